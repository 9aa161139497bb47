"""Every kind of waiting that the broker knows can be listed, and says what it waits for."""

import importlib
import pkgutil
from collections.abc import Iterator

import odradek.controller
import odradek.coordinator
import odradek.replication
from odradek.purgatory import DelayedOperation

KINDS = {
    "DelayedAnswer",
    "DelayedTopicChange",
    "DelayedDeleteRecords",
    "DelayedElectLeader",
    "DelayedFetch",
    "DelayedHeartbeat",
    "DelayedJoin",
    "DelayedMarkers",
    "DelayedMetadata",
    "DelayedProduce",
    "DelayedRevocation",
    "DelayedSession",
    "DelayedShareFetch",
    "DelayedSync",
    "DelayedWrite",
    "InitialDelayedJoin",
}
# What others derive from; never waits itself.
BASES = {"MemberDeadline"}


def derived(kind: type[DelayedOperation]) -> Iterator[type[DelayedOperation]]:
    """All classes of the broker that derive from it."""
    for one in kind.__subclasses__():
        yield from derived(one)
        if one.__module__.startswith("odradek."):
            yield one


def test_every_kind_says_what_it_waits_for() -> None:
    """ "Why is this request waiting?" would be answered with nothing at all."""
    for floor in (odradek.replication, odradek.coordinator, odradek.controller):
        for module in pkgutil.walk_packages(floor.__path__, f"{floor.__name__}."):
            importlib.import_module(module.name)
    kinds = {one.__name__: one for one in derived(DelayedOperation)}
    assert kinds.keys() == KINDS | BASES
    for name in KINDS:
        assert kinds[name].missing is not DelayedOperation.missing, name
