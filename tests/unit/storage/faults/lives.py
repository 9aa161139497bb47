"""A short life of four logs with all that touches the disk, and what was promised in it.

`Life.steps` are called one by one under an injected fault; what is acknowledged is noted, and
`Promises.check` compares a log with it. Nothing is left to chance: the same operations come in
the same order every time, so a test may stop or fail each of them by its number.
"""

import os
from collections.abc import Callable, Mapping
from uuid import UUID

from tests.unit.storage.conftest import World

from odradek.config.topic import LogConfig, parse_topic_settings
from odradek.errors import BrokerError, LogDirFailure
from odradek.kafka_files.check import DirectoryCheck, KnownPartition
from odradek.model import AppendOrigin, TopicPartition
from odradek.records.batch import split_batches
from odradek.records.builder import RecordBatchBuilder, build_end_marker
from odradek.records.reader import read_batch
from odradek.records.record import Record
from odradek.storage import FileSystem, Log, LogManager
from odradek.timer import MockTimer

ORDERS = TopicPartition("orders", 0)
TABLE = TopicPartition("table", 0)
GONE = TopicPartition("gone", 0)
# Of a follower: its leader changes, and the next one has less.
CUT = TopicPartition("cut", 0)
SETTINGS = {
    "segment.bytes": "400",
    "index.interval.bytes": "100",
    "file.delete.delay.ms": "10",
    "min.cleanable.dirty.ratio": "0.01",
    "retention.ms": "-1",
}
PROPERTIES = {"log.cleaner.backoff.ms": "1000", "log.retention.check.interval.ms": "100000000"}
CONFIGS = {
    ORDERS: LogConfig(parse_topic_settings(SETTINGS)),
    TABLE: LogConfig(parse_topic_settings({**SETTINGS, "cleanup.policy": "compact"})),
    GONE: LogConfig(parse_topic_settings(SETTINGS)),
    CUT: LogConfig(parse_topic_settings(SETTINGS)),
}
IDS = {ORDERS: UUID(int=1), TABLE: UUID(int=2), GONE: UUID(int=3), CUT: UUID(int=4)}
# Of the topic that is made under the name of the deleted one.
ANEW = UUID(int=0xA4E3)

Item = tuple[bytes | None, bytes | None]


class Promises:
    """The known facts of one log: the records that it took, by offset, and where it begins.

    `end` is above all that was acknowledged, `durable` is up to where it is on the disk. The
    records in `undecided` were sent and never answered: a crash may keep or lose them. `start` is
    what a deletion was told, `may_start` what one has asked for.
    """

    def __init__(self, *, compacted: bool) -> None:
        self.is_compacted = compacted
        self.records: dict[int, Item] = {}
        self.refused: set[Item] = set()
        self.undecided: set[Item] = set()
        self.start = 0
        self.may_start = 0
        self.end = 0
        self.durable = 0

    def note(self, first_offset: int, items: list[Item]) -> None:
        """Notes what was acknowledged; no offset is given twice."""
        assert first_offset == self.end, f"offset {first_offset} where {self.end} is next"
        for item in items:
            self.records[self.end] = item
            self.end += 1

    def cut(self, offset: int) -> None:
        """Notes that records are to go: until that is done they may be there or not."""
        for each in [each for each in self.records if each >= offset]:
            self.undecided.add(self.records.pop(each))
        self.end = min(self.end, offset)
        self.durable = min(self.durable, offset)

    def check(self, log: Log, *, least_end: int | None = None, may_return: bool = False) -> None:
        """Compares a log with what was promised, up to `least_end` at the least.

        With `may_return` refused records may be there: a disk that forgets may forget the
        truncation that took them away, one that fails may refuse it.
        """
        least_end = self.end if least_end is None else least_end
        assert log.log_end_offset >= least_end, (log.log_end_offset, least_end)
        assert log.log_start_offset <= self.may_start, (log.log_start_offset, self.may_start)
        found = {r.offset: r for r in records_of(log)}
        known = self.undecided | (self.refused if may_return else set())
        for offset, record in found.items():
            item = (record.key, record.value)
            # Where a truncation was forgotten, what was there before may be there again.
            may_be_another = may_return and offset >= least_end and item in known
            if offset in self.records:
                assert may_be_another or item == self.records[offset], offset
            elif not record.is_control:
                assert item in known, (offset, record.value)
        needed = self.needed(log.log_start_offset, log.log_end_offset)
        assert {n for n in needed if n < least_end} <= set(found), sorted(found)

    def needed(self, start: int, end: int) -> set[int]:
        """The offsets that a log from `start` to `end` has to hold."""
        present = [offset for offset in self.records if start <= offset < end]
        if not self.is_compacted:
            return set(present)
        return set({self.records[offset][0]: offset for offset in present}.values())


class Life:
    """The logs of one manager and what happens to them."""

    def __init__(self, world: World, file_system: FileSystem) -> None:
        self.world = world
        self.file_system = file_system
        self.promises = {
            ORDERS: Promises(compacted=False),
            TABLE: Promises(compacted=True),
            GONE: Promises(compacted=False),
            CUT: Promises(compacted=False),
        }
        self.manager: LogManager | None = None
        self.waiting: list[tuple[memoryview, list[Item]]] = []
        self.sequence = 0
        self.epoch = 0
        self.was_deleted = False
        self.ids = dict(IDS)

    def steps(self) -> list[Callable[[], None]]:
        """The life, piece by piece; each may raise BrokerError and be called again."""
        steps: list[Callable[[], None]] = [self.begin, lambda: self.log(GONE)]
        steps += [lambda size=size: self.append_orders(size) for size in (10, 150, 100, 20, 5)]
        steps += [self.abort_transaction, self.new_leader]
        steps += [lambda n=n: self.append_table(n) for n in range(9)]
        steps += [lambda n=n: self.append_to_cut(b"old %d" % n) for n in range(8)]
        steps += [lambda: self.append(GONE, [(None, b"gone")]), self.checkpoint]
        steps += [self.cut, *(lambda n=n: self.append_to_cut(b"new %d" % n) for n in range(7))]
        steps += [lambda: self.append_orders(120), self.delete_records, self.compact]
        steps += [lambda: self.append_table(9), self.delete_topic, self.make_anew, self.wait]
        steps += [self.read, lambda: self.append_orders(30), self.compact, self.restart]
        steps += [lambda: self.append_orders(60), self.compact, self.read, self.kill]
        return steps

    def begin(self) -> None:
        try:
            self.manager = self.world.start(self.file_system, PROPERTIES)
        except LogDirFailure:
            # A broker that cannot start is gone.
            self.end()
            self.world.failed.clear()
            raise

    def log(self, topic_partition: TopicPartition) -> Log:
        assert self.manager is not None
        return self.log_of(self.manager, topic_partition)

    def log_of(self, manager: LogManager, topic_partition: TopicPartition) -> Log:
        config = CONFIGS[topic_partition]
        return manager.get_or_create(topic_partition, self.ids[topic_partition], config)

    def append(self, topic_partition: TopicPartition, items: list[Item], **producer: object) -> int:
        """One batch without a producer's memory: when it is refused, it stays so."""
        batch = self.batch(items, **producer)
        return self.send(topic_partition, batch, items)

    def send(self, topic_partition: TopicPartition, batch: memoryview, items: list[Item]) -> int:
        log = self.log(topic_partition)
        promises = self.promises[topic_partition]
        promises.undecided.update(items)
        (info,) = log.appender.append_as_leader([batch], self.epoch)
        promises.undecided.difference_update(items)
        if isinstance(info, BrokerError):
            promises.refused.update(items)
            raise info
        promises.refused.difference_update(items)
        if not info.duplicate:
            promises.note(info.first_offset, items)
        log.update_high_watermark(log.log_end_offset)
        return info.first_offset

    def append_orders(self, size_bytes: int) -> None:
        """The batches that an idempotent producer still has to send, one more of it, and a plain
        batch."""
        value = b"i%d" % self.sequence
        items: list[Item] = [(None, value)]
        self.waiting.append((self.batch(items, sequence=self.sequence), items))
        self.sequence += 1
        while self.waiting:
            batch, items = self.waiting[0]
            self.send(ORDERS, memoryview(bytearray(batch)), items)
            self.waiting.pop(0)
        self.append(ORDERS, [(None, b"%d " % self.sequence + b"x" * size_bytes)])

    def append_to_cut(self, value: bytes) -> None:
        self.append(CUT, [(None, value + b" " * 100)])

    def cut(self) -> None:
        """Another replica leads, which has less."""
        promises = self.promises[CUT]
        promises.cut(3)
        self.log(CUT).truncate_to(3)
        promises.refused |= promises.undecided
        promises.undecided.clear()

    def append_table(self, number: int) -> None:
        value = None if number == 6 else b"value %d" % number
        self.append(TABLE, [(b"k%d" % (number % 3), value), (b"same", b"same %d" % number)])

    def abort_transaction(self) -> None:
        self.append(ORDERS, [(None, b"aborted")], producer_id=7, sequence=0, transactional=True)
        marker = build_end_marker(
            commit=False,
            base_offset=0,
            timestamp_ms=self.world.clock.wall_ms(),
            producer_id=7,
            producer_epoch=0,
            coordinator_epoch=1,
        )
        self.finish(memoryview(bytearray(marker)))

    def finish(self, marker: memoryview) -> None:
        log = self.log(ORDERS)
        (info,) = log.appender.append_as_leader([marker], self.epoch, AppendOrigin.COORDINATOR)
        if isinstance(info, BrokerError):
            raise info
        self.promises[ORDERS].end = log.log_end_offset
        log.update_high_watermark(log.log_end_offset)

    def new_leader(self) -> None:
        self.epoch += 1
        self.append(ORDERS, [(None, b"led by %d" % self.epoch)])

    def checkpoint(self) -> None:
        """Flushes all logs; the checkpoints follow as the broker's timer would have it."""
        assert self.manager is not None
        for log in self.manager.logs():
            log.local.flush()
        self.manager.checkpoints.write_recovery_points()
        self.manager.checkpoints.write_high_watermarks()
        self.note_durable()

    def note_durable(self) -> None:
        assert self.manager is not None
        for log in self.manager.logs():
            promises = self.promises[log.topic_partition]
            promises.durable = max(promises.durable, log.local.recovery_point)

    def delete_records(self) -> None:
        promises = self.promises[ORDERS]
        log = self.log(ORDERS)
        promises.may_start = max(promises.may_start, log.log_end_offset - 4)
        log.maybe_increment_log_start_offset(promises.may_start)
        promises.start = promises.may_start
        assert self.manager is not None
        self.manager.housekeeping.delete_old_segments()
        self.wait()

    def compact(self) -> None:
        self.log(TABLE).appender.roll()
        self.world.advance(1000)

    def delete_topic(self) -> None:
        assert self.manager is not None
        self.was_deleted = True
        self.manager.delete(GONE)

    def make_anew(self) -> None:
        """Another topic of the name of one that was deleted."""
        if self.ids[GONE] != ANEW:
            self.ids[GONE] = ANEW
            self.promises[GONE] = Promises(compacted=False)
        self.append(GONE, [(None, b"anew")])

    def read(self) -> None:
        assert self.manager is not None
        self.check(self.manager)

    def restart(self) -> None:
        """An orderly end and a start."""
        if self.manager is not None:
            self.manager.shutdown()
        self.begin()

    def kill(self) -> None:
        """An end of the process and a start, which has to recover."""
        self.end()
        self.begin()

    def end(self) -> None:
        """The process is gone, and its timer with it."""
        self.manager = None
        self.world.crash(self.world.managers[-1])
        self.world.timer = MockTimer()

    def wait(self) -> None:
        self.world.advance(100)

    def check_durable(self, manager: LogManager) -> None:
        """Compares a manager's logs with what was on the disk for certain."""
        held = {log.topic_partition for log in manager.logs()}
        for topic_partition, promises in self.promises.items():
            if topic_partition not in held:
                assert self.was_deleted or not promises.durable, topic_partition
                continue
            log = self.log_of(manager, topic_partition)
            promises.check(log, least_end=promises.durable, may_return=True)
            assert log.log_start_offset >= promises.start, "deleted records are back"

    def batch(
        self,
        items: list[Item],
        *,
        producer_id: int = 9,
        sequence: int = -1,
        transactional: bool = False,
    ) -> memoryview:
        builder = RecordBatchBuilder(
            0,
            producer_id=producer_id if sequence >= 0 else -1,
            producer_epoch=0 if sequence >= 0 else -1,
            base_sequence=sequence,
            is_transactional=transactional,
        )
        for key, value in items:
            builder.append(self.world.clock.wall_ms(), key, value, [])
        return memoryview(bytearray(builder.build()))

    def check(self, manager: LogManager, *, may_return: bool = False) -> None:
        """Compares what a manager's logs give with what was promised."""
        held = {log.topic_partition for log in manager.logs()}
        for topic_partition, promises in self.promises.items():
            if topic_partition in held:
                promises.check(self.log_of(manager, topic_partition), may_return=may_return)
            else:
                assert self.was_deleted or not promises.records, topic_partition


def records_of(log: Log) -> list[Record]:
    """All records from the log start on, by as many reads as it takes, checksums compared."""
    records: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = b"".join(log.read(offset, 1 << 20, log.log_end_offset, True).records)
        headers = split_batches(data, drop_partial_tail=True)
        if not headers:
            break
        for header in headers:
            records += [r for r in read_batch(data, header, check_crc=True) if r.offset >= offset]
        offset = headers[-1].last_offset + 1
    return records


def findings(
    directory: str, ids: Mapping[TopicPartition, UUID], *, may_have_gaps: bool = False
) -> list[str]:
    """The findings of `fsck` in a directory with these topics.

    With `may_have_gaps` it does not ask for every offset: a power failure may take a segment's
    records, and leave the one behind it.
    """
    found: list[str] = []

    def note(finding) -> None:
        found.append(f"{os.path.relpath(finding.path, directory)}: {finding.problem}")

    known = {each: KnownPartition(ids[each], config.compact) for each, config in CONFIGS.items()}
    DirectoryCheck(directory, None if may_have_gaps else known, note).run()
    return found
