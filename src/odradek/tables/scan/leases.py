"""Leases of a query: protect the records that it has still to read from retention and compaction.

The planner takes one for all ranges of a read, and every reader of some of them renews it, so it
lasts as long as a reader runs and expires after that. A lease is optional: a broker that knows none
(Apache Kafka) ignores the request, and a read continues without one. `storage/leases.py` defines
what it holds.
"""

import json
import logging
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from odradek.clock import SystemClock
from odradek.errors import BrokerError
from odradek.model import TopicPartition
from odradek.protocol.direct.list_offsets import RENEWED_LEASE
from odradek.system_calls import host_name
from odradek.tables.errors import MissingData
from odradek.tables.plan.bounds import Bounds, open_bounds
from odradek.tables.plan.options import ReadOptions
from odradek.tables.plan.ranges import OffsetRange

_log = logging.getLogger(__name__)

_clock: Final = SystemClock()
# So often in its time a lease is renewed: queries wait for their turn, and workers die.
_RENEWALS: Final = 10


@dataclass(frozen=True)
class ReadLease:
    """A lease on planned ranges; travels with them to their readers.

    `taken_ms` is when, in milliseconds since the epoch. `packed` has the partitions, as little as
    they can be: every task of a plan has them all.
    """

    lease_id: str
    owner: str
    taken_ms: int
    duration_ms: int
    packed: bytes

    def partitions(self) -> Iterator[TopicPartition]:
        """The partitions that the lease is on."""
        for topic, digits in json.loads(zlib.decompress(self.packed)).items():
            numbers = int(digits, 16)
            for number in range(numbers.bit_length()):
                if numbers >> number & 1:
                    yield TopicPartition(topic, number)


def new_lease_id() -> str:
    """A unique id."""
    return uuid4().hex


def take_lease(
    bounds: Bounds, options: ReadOptions, ranges: Sequence[OffsetRange], lease_id: str
) -> ReadLease | None:
    """Takes a lease on all ranges; None if the options want none, or the source gives none."""
    if options.lease_ms == 0 or not ranges:
        return None
    offsets: dict[TopicPartition, int] = {}
    for piece in ranges:
        known = offsets.get(piece.topic_partition, piece.start)
        offsets[piece.topic_partition] = min(known, piece.start)
    owner = f"{options.client.client_id}@{host_name()}"
    lease = ReadLease(lease_id, owner, _clock.wall_ms(), options.lease_ms, pack(offsets))
    return lease if _hold(bounds, lease, lease.duration_ms, offsets) else None


def release_lease(bounds: Bounds, lease: ReadLease) -> None:
    """Releases a lease before its time."""
    _hold(bounds, lease, 0, dict.fromkeys(lease.partitions(), RENEWED_LEASE))


class LeaseKeeper:
    """Renews a lease while its ranges are read."""

    # When the lease that was seen last was renewed, here: most tasks of a process are of one query.
    _last: tuple[str, int] = ("", 0)

    def __init__(self, options: ReadOptions, lease: ReadLease | None) -> None:
        self._options = options
        self._lease = lease
        if lease is not None and LeaseKeeper._last[0] != lease.lease_id:
            LeaseKeeper._last = (lease.lease_id, lease.taken_ms)

    def maybe_renew(self) -> None:
        """Renews the lease if it is time to; on separate connections."""
        lease, now_ms = self._lease, _clock.wall_ms()
        # A time to come is of a clock that was set back, or of a planner's that is ahead of ours.
        if lease is None or 0 <= now_ms - LeaseKeeper._last[1] < lease.duration_ms // _RENEWALS:
            return
        LeaseKeeper._last = (lease.lease_id, now_ms)
        try:
            with closing(open_bounds(self._options)) as bounds:
                offsets = dict.fromkeys(lease.partitions(), RENEWED_LEASE)
                _hold(bounds, lease, lease.duration_ms, offsets)
        except BrokerError as error:
            _log.info("the lease on the records being read cannot be renewed: %s", error)


def pack(partitions: Iterable[TopicPartition]) -> bytes:
    """The partitions of each topic as the bits of a number, compressed: any half of 10 000 takes
    1.5 KB.
    """
    numbers: dict[str, int] = {}
    for topic, number in partitions:
        numbers[topic] = numbers.get(topic, 0) | 1 << number
    digits = {topic: f"{bits:x}" for topic, bits in numbers.items()}
    return zlib.compress(json.dumps(digits).encode())


def _hold(
    bounds: Bounds, lease: ReadLease, duration_ms: int, offsets: Mapping[TopicPartition, int]
) -> bool:
    try:
        return bounds.hold(lease.lease_id, lease.owner, duration_ms, offsets)
    except (BrokerError, MissingData, OSError) as error:
        _log.info("the records being read are not protected from retention: %s", error)
        return False
