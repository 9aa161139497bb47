"""Every API in every version, asked for nothing in particular: four requests of each, made from
the definitions of the messages, beside an Apache Kafka.

A request names what does not exist, has blanks for names, is empty, or has nulls wherever the
message has room for one, whether Kafka allows it there or not. What makes a request wait or
change what other tests rely on has a value of its own in `_FIXED`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields
from types import MappingProxyType, UnionType
from typing import Any, Final, NamedTuple, Union, get_args, get_origin
from uuid import UUID

import pytest
from tests.wire.differential.harness import API_KEYS, Peer, Scenario, Target

from odradek.protocol import messages

pytestmark = [pytest.mark.slow, pytest.mark.of_three_too, pytest.mark.xdist_group("jvm")]

Check = Callable[[Scenario], None]
SOFTWARE: Final = {"client_software_name": "sweep", "client_software_version": "1"}


class Filling(NamedTuple):
    """The values for the fields of a request; `own` are those with values of their own."""

    name: str
    text: str | None
    number: int
    id: UUID | None
    elements: int | None
    own: Mapping[str, object] = MappingProxyType({})


FILLINGS: Final = (
    Filling("unknown", "sweep-none", 0, UUID(int=0xABCDEF), 1),
    Filling("blank", "", -1, None, 1),
    Filling("empty", "", 0, None, 0),
    Filling("null", None, 0, None, None),
)

# 0 acks would not be answered.
_FIXED: Final[Mapping[str, object]] = MappingProxyType({"timeout_ms": 3000, "acks": -1})
# What cannot be compared, and why.
LEFT_OUT: Final = (
    # A request of no transaction: Kafka never answers it.
    ("add_partitions_to_txn", 4, "empty"),
    ("add_partitions_to_txn", 5, "empty"),
    # Every partition: which of two directories a new one came to lie in is chance.
    *(("describe_log_dirs", version, "null") for version in range(1, 6)),
)
_SHARE_PARTITION: Final = "sweep:AAAAAAAAAAAAAAAAAAAATQ:0"
# What tells of all topics and groups: of three brokers those of other tests were placed by chance.
OF_EVERYTHING: Final = (
    ("metadata", 0, "empty"),
    *(("metadata", version, "null") for version in range(1, 14)),
    *(("list_groups", version, filling.name) for version in range(6) for filling in FILLINGS),
)


def values_of(message_type: Any, filling: Filling) -> dict[str, object]:
    """The values of a message, for `Peer.ask`."""
    values: dict[str, object] = {}
    for field in fields(message_type):
        if "tag" in field.metadata:
            continue
        kafka_type: str = field.metadata.get("kafka_type", "")
        key = field.name + "_ms" * kafka_type.startswith(("timedelta", "datetime"))
        known = {**_FIXED, **filling.own}
        values[key] = known[key] if key in known else _value(field.type, kafka_type, filling)
    return values


def _value(annotation: Any, kafka_type: str, filling: Filling) -> object:
    is_nullable = get_origin(annotation) in (UnionType, Union)
    if is_nullable:
        annotation = next(part for part in get_args(annotation) if part is not type(None))
    if get_origin(annotation) is tuple:
        if filling.elements is None:
            return None
        element = get_args(annotation)[0]
        return [_value(element, kafka_type, filling)] * filling.elements
    if hasattr(annotation, "__version__"):
        is_null = is_nullable and filling.elements is None
        return None if is_null else values_of(annotation, filling)
    if kafka_type == "string":
        return filling.text if is_nullable or filling.text is not None else ""
    if kafka_type in ("bytes", "records"):
        return None if filling.text is None else filling.text.encode()
    if kafka_type == "uuid":
        return filling.id
    if kafka_type == "bool":
        return False
    return filling.number


def served_by_both(targets: Iterable[Target]) -> list[tuple[str, int]]:
    """The APIs that both serve, each in the versions that both serve."""
    both = [served_on(target) for target in targets]
    return [
        (name, version)
        for name, key in API_KEYS.items()
        for version in messages.versions(key)
        if all(key in each and each[key][0] <= version <= each[key][1] for each in both)
    ]


def served_on(target: Target) -> dict[int, tuple[int, int]]:
    peer = Peer(target)
    answer = peer.quietly("api_versions", 4, **SOFTWARE)
    peer.close()
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


def ask_all(
    peer: Peer, apis: Iterable[tuple[str, int]], left_out: Collection[tuple[str, int, str]]
) -> None:
    """Asks for nothing in particular, in every way."""
    for name, version in apis:
        request_type = messages.request_type(API_KEYS[name], version)
        for filling in FILLINGS:
            if (name, version, filling.name) not in left_out:
                peer.ask_eventually(name, version, **values_of(request_type, filling))


def test_every_api_in_every_version(
    two_brokers: tuple[Target, Target], same_answers: Check
) -> None:
    common = served_by_both(two_brokers)
    is_alone = len(two_brokers[0].replicas) == 1
    left_out = LEFT_OUT if is_alone else LEFT_OUT + OF_EVERYTHING

    def scenario(peer: Peer) -> None:
        # From here on there are the topics of the coordinators.
        for version, kind, key in ((4, 0, "sweep"), (4, 1, "sweep"), (6, 2, _SHARE_PARTITION)):
            asked = {"key_type": kind, "coordinator_keys": [key]}
            peer.ask_until(
                lambda answer: not answer.coordinators[0].error_code,
                *("find_coordinator", version),
                **asked,
            )
        ask_all(peer, common, left_out)

    same_answers(scenario)
