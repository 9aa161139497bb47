"""`TimeLags`: for how long the next record of a group has been waiting to be read.

That is the time of its batch, which has to be looked up in the log. It is looked up once for each
committed offset, a bounded number of times a look: the rest has its turn at the next.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.errors import BrokerError
from odradek.model import TopicPartition
from odradek.records.batch import parse_header
from odradek.records.errors import CorruptRecords

if TYPE_CHECKING:
    from odradek.server.broker import BrokerServer

MOST_READS: Final = 500
MOST_KEPT: Final = 20_000


class TimeLag(NamedTuple):
    """The lag of a group in a partition, in milliseconds; 0 where it has read everything."""

    group_id: str
    where: TopicPartition
    lag_ms: int


class TimeLags:
    """Remembers the times that it has looked up."""

    def __init__(self, server: "BrokerServer") -> None:
        self._server: Final = server
        self._times: dict[tuple[str, TopicPartition], tuple[int, int]] = {}

    def read(self) -> Iterator[TimeLag | None]:
        """The lags in partitions that are led here; others may run whenever it yields None."""
        before, self._times = self._times, {}
        now_ms = self._server.clock.wall_ms()
        reads = 0
        for shard in self._server.coordinators.groups.coordinator.runtime.shards():
            for group_id in shard.offset_store.group_ids():
                yield None
                for topic, offsets in list(shard.offset_store.of_group(group_id).items()):
                    for index, committed in list(offsets.items()):
                        key = group_id, TopicPartition(topic, index)
                        known = before.get(key)
                        if known is None or known[0] != committed.offset:
                            if reads == MOST_READS:
                                continue
                            time_ms = self._time_of(key[1], committed.offset)
                            if time_ms is None:
                                continue
                            reads += time_ms > 0
                            known = committed.offset, time_ms
                        if known[1] and len(self._times) < MOST_KEPT:
                            self._times[key] = known
                        lag_ms = max(now_ms - known[1], 0) if known[1] else 0
                        yield TimeLag(*key, lag_ms)

    def _time_of(self, where: TopicPartition, offset: int) -> int | None:
        """The time of the batch that has the offset, or the next; 0 if there is none to read, None
        if it is unknown."""
        partition = self._server.replicas.partitions.find(where)
        if partition is None or partition.log is None or not partition.is_leader:
            return None
        log = partition.log
        if offset >= log.high_watermark:
            return 0
        try:
            found = log.read(max(offset, log.log_start_offset), 1, log.high_watermark, True)
            if not found.records:
                return 0
            return max(parse_header(found.records[0]).max_timestamp, 0) or None
        except (BrokerError, CorruptRecords):
            return None
