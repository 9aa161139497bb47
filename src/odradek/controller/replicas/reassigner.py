"""`Reassigner`: carries out administrators' reassignments of partitions.

`reassignments` plans a request on the published image, once earlier requests have taken effect:
otherwise a state that is about to change could seem to be as requested, or to have nothing to
cancel. A leader may change its ISR meanwhile; the store refuses the change then, and it is planned
again on the new state, a few times. It does not wait for the end of a reassignment, which
`ReplicationControl` handles.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

from odradek.controller.answers import one_each, plan_each
from odradek.controller.replicas.reassignments import plan_reassignment
from odradek.controller.slices import Defer, OnSlice, distinct_by_slices
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import PartitionImage
from odradek.metadata.store import MetadataStore, PartitionChange
from odradek.model import TopicPartition


class Reassignment(NamedTuple):
    """The target replicas of a partition; None cancels the reassignment in progress."""

    topic_partition: TopicPartition
    target: tuple[int, ...] | None


Outcome: TypeAlias = tuple[TopicPartition, BrokerError | None]
OnReassigned: TypeAlias = Callable[[Mapping[TopicPartition, BrokerError | None]], None]

MOST_TRIES: Final = 10
"""How often what is asked for is planned. The store may know a state that nobody here can read."""

_partition_of: Final = attrgetter("topic_partition")


class Reassigner:
    """Begins, cancels and lists reassignments."""

    def __init__(self, store: MetadataStore, cache: MetadataCache) -> None:
        self._store: Final = store
        self._cache: Final = cache

    def alter(
        self,
        requests: Sequence[Reassignment],
        on_done: OnReassigned,
        *,
        allow_replication_factor_change: bool = True,
        defer: Defer | None = None,
    ) -> None:
        """Answers an error, or None, for every partition, when the begun reassignments are
        durable."""

        def alter(
            repeated: Collection[object], some: Sequence[Reassignment], on_some: OnSlice[Outcome]
        ) -> None:
            results: dict[TopicPartition, BrokerError | None] = {}
            self._alter(
                some,
                repeated,
                allow_replication_factor_change,
                results,
                lambda _: on_some(results.items()),
            )

        def on_synced(outcome: BrokerError | None) -> None:
            if isinstance(outcome, BrokerError):
                on_done(dict.fromkeys([each.topic_partition for each in requests], outcome))
            else:
                distinct_by_slices(
                    requests, _partition_of, alter, lambda found: on_done(dict(found)), defer
                )

        self._store.sync(on_synced)

    def _alter(
        self,
        requests: Sequence[Reassignment],
        repeated: Collection[object],
        may_change_factor: bool,
        results: dict[TopicPartition, BrokerError | None],
        on_done: OnReassigned,
        tries: int = MOST_TRIES,
    ) -> None:
        plan = partial(
            plan_reassignment,
            self._cache.image,
            allow_replication_factor_change=may_change_factor,
        )
        plans = plan_each(requests, lambda each: plan(*each), _partition_of, repeated)
        accepted = [planned for planned in plans if isinstance(planned, PartitionChange)]
        for requested, planned in zip(requests, plans, strict=True):
            results[requested.topic_partition] = (
                planned if isinstance(planned, BrokerError) else None
            )

        def on_changed(outcome: list[PartitionImage | BrokerError] | BrokerError) -> None:
            overtaken = set()
            for change, each in zip(accepted, one_each(outcome, len(accepted)), strict=True):
                if isinstance(each, BrokerError):
                    results[change.topic_partition] = each
                    if each.code is ErrorCode.INVALID_UPDATE_VERSION:
                        overtaken.add(change.topic_partition)
            if overtaken and tries > 1:
                again = [
                    requested for requested in requests if requested.topic_partition in overtaken
                ]
                self._alter(again, (), may_change_factor, results, on_done, tries - 1)
            else:
                on_done(results)

        if accepted:
            self._store.change_partitions(accepted, on_changed)
        else:
            on_done(results)
