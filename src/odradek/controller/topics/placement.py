"""Replica placement: round-robin with a shift, aware of racks.

First replicas go round the brokers, so leaders are spread evenly. The others follow at a
distance that grows by one with every round, so that the partitions of a broker that fails
have their next replicas on different brokers. With five brokers and three replicas, from
broker 0:

    partition   0      1      2      3      4      5      6     ...
    replicas  0,1,2  1,2,3  2,3,4  3,4,0  4,0,1  0,2,3  1,3,4   ...

With racks, the brokers are first ordered so that neighbours stand in different racks, and a
broker is passed over while its rack has a replica and another rack has none. Random numbers are
passed in: the first broker, and the first distance.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.store import Assignment


class PlacementBroker(NamedTuple):
    """A broker that replicas may be placed on."""

    id: int
    rack: str | None = None


def place_replicas(
    brokers: Iterable[PlacementBroker],
    partitions: int,
    replication_factor: int,
    *,
    start: int,
    shift: int,
    first_partition: int = 0,
) -> Assignment:
    """Replicas for `partitions` partitions, numbered from `first_partition`.

    Raises:
        BrokerError: INVALID_REPLICATION_FACTOR, the factor is below 1 or there are fewer
            brokers.
    """
    ordered = _alternating(brokers)
    check_replication_factor(replication_factor, len(ordered))
    racks = {broker.id: broker.rack for broker in ordered}
    ids = [broker.id for broker in ordered]
    assignment = []
    for index in range(first_partition, first_partition + partitions):
        distance = shift + index // len(ids)
        first = (index + start) % len(ids)
        assignment.append(_place(ids, racks, first, distance, replication_factor))
    return tuple(assignment)


def check_replication_factor(replication_factor: int, brokers: int) -> None:
    """Refuses a factor above the number of live brokers.

    Raises:
        BrokerError: INVALID_REPLICATION_FACTOR.
    """
    if replication_factor < 1:
        message = f"Replication factor must be larger than 0, but it is {replication_factor}."
        raise BrokerError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if replication_factor > brokers:
        message = (
            f"Unable to replicate the partition {replication_factor} time(s): "
            f"only {brokers} broker(s) are registered."
        )
        raise BrokerError(ErrorCode.INVALID_REPLICATION_FACTOR, message)


def _place(
    ids: Sequence[int],
    racks: Mapping[int, str | None],
    first: int,
    distance: int,
    replication_factor: int,
) -> tuple[int, ...]:
    replicas = [ids[first]]
    used_racks = {racks[ids[first]]}
    all_racks = set(racks.values())
    step = 0
    while len(replicas) < replication_factor:
        candidate = ids[(first + 1 + (distance + step) % (len(ids) - 1)) % len(ids)]
        step += 1
        if candidate in replicas:
            continue
        rack_is_due = racks[candidate] not in used_racks or used_racks == all_racks
        if rack_is_due or step > len(ids):
            replicas.append(candidate)
            used_racks.add(racks[candidate])
    return tuple(replicas)


def _alternating(brokers: Iterable[PlacementBroker]) -> list[PlacementBroker]:
    """The brokers by id, and with racks taken in turn from each. Racks count only when every broker
    has one."""
    by_id = sorted(brokers)
    if not by_id or any(broker.rack is None for broker in by_id):
        return [PlacementBroker(broker.id) for broker in by_id]
    racks: dict[str, list[PlacementBroker]] = {}
    for broker in by_id:
        racks.setdefault(str(broker.rack), []).append(broker)
    queues = [racks[name] for name in sorted(racks)]
    rounds = max(len(queue) for queue in queues)
    return [queue[turn] for turn in range(rounds) for queue in queues if turn < len(queue)]
