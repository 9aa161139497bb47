"""The replica that a consumer should read from (KIP-392): the leader sends it there.

Asked by the leader for consumers that name their rack. `RackAwareReplicaSelector` chooses, among
the replicas in that rack that have the offset, the one with the largest log end; the leader itself,
if it is in that rack, or if no other is. Pure.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias


class ReplicaView(NamedTuple):
    """A replica as its leader sees it; `caught_up_ms_ago` is 0 for the leader."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    caught_up_ms_ago: int


ReplicaSelector: TypeAlias = Callable[[str, ReplicaView, Sequence[ReplicaView]], int]
"""Answers a broker's id for a rack, the leader, and the followers that hold the offset."""


def rack_aware(rack: str, leader: ReplicaView, followers: Sequence[ReplicaView]) -> int:
    """The replica of Kafka's `RackAwareReplicaSelector`."""
    near = [follower for follower in followers if follower.rack == rack]
    if leader.rack == rack or not near:
        return leader.broker_id
    return max(near, key=_freshness).broker_id


def _freshness(replica: ReplicaView) -> tuple[int, int, int]:
    return replica.log_end_offset, -replica.caught_up_ms_ago, replica.broker_id


_SELECTORS: Final[dict[str, ReplicaSelector]] = {"RackAwareReplicaSelector": rack_aware}


def replica_selector(class_name: str | None) -> ReplicaSelector | None:
    """The selector of `replica.selector.class`; None for Kafka's `LeaderSelector` and without."""
    return None if class_name is None else _SELECTORS.get(class_name.rpartition(".")[2])
