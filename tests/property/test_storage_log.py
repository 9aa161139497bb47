"""The log against a list: whatever is done to it, it holds what the list says.

Hypothesis appends, reads, rolls, truncates, forgets, compacts, restarts and crashes in any
order, with segments small enough to roll all the time. The model is a table of records by
offset and two offsets. What compaction takes is not foretold but judged: of each key the newest
record stays, nothing comes back, and nothing changes.
"""

import shutil
import tempfile
from typing import NamedTuple
from uuid import UUID, uuid4

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.background import InlineBackground
from odradek.clock import ManualClock
from odradek.config.broker import BrokerConfig
from odradek.config.topic import LogConfig, parse_topic_settings
from odradek.kafka_files.check import Finding, PartitionCheck
from odradek.model import TopicPartition
from odradek.records.batch import split_batches
from odradek.records.builder import RecordBatchBuilder
from odradek.records.reader import read_batch
from odradek.records.record import Record
from odradek.storage import Log, LogAppendInfo, LogManager, OsFileSystem
from odradek.timer import MockTimer

PARTITION = TopicPartition("orders", 3)
BACKOFF_MS = 1000
DELETE_RETENTION_MS = 3000
RETAINED_BYTES = 900
SETTINGS = {
    "segment.bytes": "500",
    "index.interval.bytes": "90",
    "file.delete.delay.ms": "0",
    "cleanup.policy": "compact,delete",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": str(DELETE_RETENTION_MS),
    "retention.ms": "-1",
}
KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
PAIRS = st.lists(
    st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=40))), min_size=1, max_size=4
)
# No producer id: a batch of nobody's.
PRODUCERS = st.sampled_from([-1, 5, 6])


def configured(retention_bytes: int = -1) -> LogConfig:
    settings = {**SETTINGS, "retention.bytes": str(retention_bytes)}
    return LogConfig(parse_topic_settings(settings))


class Item(NamedTuple):
    """A record as it was sent, and when the log took it."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    appended_ms: int


class Sent(NamedTuple):
    """A batch, and the sequence that it begins with."""

    pairs: list[tuple[bytes, bytes | None]]
    timestamp: int
    producer_id: int
    base_sequence: int

    def encoded(self) -> memoryview:
        """The batch as a client sends it."""
        has_producer = self.producer_id >= 0
        builder = RecordBatchBuilder(
            0,
            producer_id=self.producer_id,
            producer_epoch=0 if has_producer else -1,
            base_sequence=self.base_sequence if has_producer else -1,
        )
        for key, value in self.pairs:
            builder.append(self.timestamp, key, value, [])
        return memoryview(bytearray(builder.build()))


class LogAgainstList(RuleBasedStateMachine):
    """`items` are the records that are there by offset; those below `start` are forgotten."""

    @initialize()
    def begin(self) -> None:
        self.directory = tempfile.mkdtemp()
        self.clock = ManualClock(wall_ms=1_700_000_000_000)
        self.timer = MockTimer()
        self.items: dict[int, Item] = {}
        self.start = 0
        self.end = 0
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        # The last batch of each producer, and the offset that it got.
        self.last: dict[int, tuple[Sent, int]] = {}
        self.open()

    def open(self) -> None:
        self.manager = LogManager(
            [self.directory],
            BrokerConfig({"log.cleaner.backoff.ms": str(BACKOFF_MS)}),
            self.clock,
            self.timer,
            InlineBackground(),
            new_uuid=uuid4,
            on_log_dir_failure=self.fail,
            file_system=OsFileSystem(3, durable=False),
        )
        self.manager.start()
        self.log: Log = self.manager.get_or_create(PARTITION, UUID(int=1), configured())
        self.log.update_high_watermark(self.log.log_end_offset)

    def fail(self, directory: str) -> None:
        raise AssertionError(f"{directory} failed")

    @rule(
        requests=st.lists(st.tuples(PAIRS, st.integers(0, 100), PRODUCERS), min_size=1, max_size=5)
    )
    def append(self, requests: list[tuple[list[tuple[bytes, bytes | None]], int, int]]) -> None:
        now_ms = self.clock.wall_ms()
        batches = []
        for pairs, age_ms, producer_id in requests:
            sequence = self.sequences.get(producer_id, 0)
            batches.append(Sent(pairs, now_ms - age_ms, producer_id, sequence))
            self.sequences[producer_id] = sequence + len(pairs)
        views = [batch.encoded() for batch in batches]
        results = self.log.appender.append_as_leader(views, self.epoch)
        for sent, result in zip(batches, results, strict=True):
            assert isinstance(result, LogAppendInfo), result
            assert not result.duplicate
            assert result.first_offset == self.end
            for key, value in sent.pairs:
                self.items[self.end] = Item(key, value, sent.timestamp, now_ms)
                self.end += 1
            assert result.last_offset == self.end - 1
            if sent.producer_id >= 0:
                self.last[sent.producer_id] = (sent, result.first_offset)
        self.log.update_high_watermark(self.end)

    @precondition(lambda self: self.last)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        sent, first_offset = self.last[data.draw(st.sampled_from(sorted(self.last)))]
        (info,) = self.log.appender.append_as_leader([sent.encoded()], self.epoch)
        assert isinstance(info, LogAppendInfo)
        assert info.duplicate
        assert info.first_offset == first_offset

    @rule(passed_ms=st.integers(0, 2500))
    def time_passes(self, passed_ms: int) -> None:
        self.clock.advance(passed_ms)
        self.timer.advance_clock(passed_ms)
        self.judge_compaction()

    @rule()
    def roll(self) -> None:
        self.log.appender.roll()

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1

    @rule()
    def compact(self) -> None:
        self.log.appender.roll()
        self.clock.advance(BACKOFF_MS)
        self.timer.advance_clock(BACKOFF_MS)
        self.judge_compaction()
        cleaned = [(n, item.key) for n, item in self.items.items() if n < self.log.cleaned_offset]
        assert len({key for _, key in cleaned}) == len(cleaned), "a key is there twice"
        assert self.log.cleaned_offset == self.end or not self.held()

    def judge_compaction(self) -> None:
        """Lets those go that the cleaner took, if it had the right to."""
        found = {record.offset for record in self.all_records()}
        newest = {item.key: offset for offset, item in self.items.items()}
        for offset in [n for n in self.items if n >= self.start and n not in found]:
            item = self.items[offset]
            waited_ms = self.clock.wall_ms() - item.appended_ms
            is_over = item.value is None and waited_ms > DELETE_RETENTION_MS
            assert newest[item.key] > offset or is_over, f"offset {offset} is gone"
        self.items = {n: item for n, item in self.items.items() if n in found}

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        # Below the cleaned offset a log may end where its last batch was, once it is reopened.
        self.log.truncate_to(max(self.place(share), min(self.log.cleaned_offset, self.end)))
        self.end = self.log.log_end_offset
        self.items = {n: item for n, item in self.items.items() if n < self.end}
        self.start = min(self.start, self.end)
        self.last = {}
        for producer_id in (5, 6):
            state = self.log.producers.get(producer_id)
            self.sequences[producer_id] = 0 if state is None else state.last_sequence + 1

    @rule(share=st.floats(0, 1))
    def forget(self, share: float) -> None:
        offset = self.place(share)
        self.log.maybe_increment_log_start_offset(offset)
        self.start = offset
        self.manager.housekeeping.delete_old_segments()
        self.items = {n: item for n, item in self.items.items() if n >= self.start}

    @rule()
    def retain(self) -> None:
        sizes = [(s.base_offset, s.size_bytes) for s in self.log.segments.all()]
        self.log.update_config(configured(retention_bytes=RETAINED_BYTES))
        self.manager.housekeeping.delete_old_segments()
        self.log.update_config(configured())
        first = self.log.segments.first.base_offset
        if first > self.start:
            assert sum(size for base, size in sizes if base >= first) >= RETAINED_BYTES
            self.start = first
        self.items = {n: item for n, item in self.items.items() if n >= self.start}

    @rule()
    def restart(self) -> None:
        self.manager.shutdown()
        self.open()

    @rule(torn=st.binary(max_size=100))
    def crash(self, torn: bytes) -> None:
        path = self.log.segments.active.file.path
        for directory in self.manager.directories:
            directory.release_lock()
        self.timer = MockTimer()
        with open(path, "ab") as file:
            file.write(torn)
        self.open()

    @rule(share=st.floats(0, 1), max_bytes=st.integers(0, 1500))
    def read(self, share: float, max_bytes: int) -> None:
        offset = self.place(share)
        found = self.read_at(offset, max_bytes)[0]
        expected = [n for n in self.held() if n >= offset][: len(found)]
        assert [record.offset for record in found] == expected
        for record in found:
            item = self.items[record.offset]
            assert (record.key, record.value, record.timestamp) == item[:3]

    @rule(late_ms=st.integers(-3000, 50))
    def search(self, late_ms: int) -> None:
        target = self.clock.wall_ms() + late_ms
        expected = next((n for n in self.held() if self.items[n].timestamp >= target), None)
        found = self.log.fetch_offset_by_timestamp(target, self.end)
        assert (found.offset if found else None) == expected

    @invariant()
    def bounds(self) -> None:
        assert self.log.log_end_offset == self.end
        assert self.log.log_start_offset == self.start
        assert self.log.segments.first.base_offset <= self.start
        for epoch, start_offset in self.log.leader_epochs.entries:
            assert epoch <= self.epoch
            assert start_offset <= self.end

    @invariant()
    def contents(self) -> None:
        assert [record.offset for record in self.all_records()] == self.held()

    def held(self) -> list[int]:
        """The offsets of the records that are there."""
        return [offset for offset in self.items if offset >= self.start]

    def place(self, share: float) -> int:
        return self.start + int((self.end - self.start) * share)

    def all_records(self) -> list[Record]:
        records: list[Record] = []
        offset = self.start
        while offset < self.end:
            found, following = self.read_at(offset, 1 << 20)
            if following <= offset:
                break
            records += found
            offset = following
        return records

    def read_at(self, offset: int, max_bytes: int) -> tuple[list[Record], int]:
        """The records of one read, and the offset behind its last batch."""
        data = b"".join(self.log.read(offset, max_bytes, self.end, True).records)
        headers = split_batches(data, drop_partial_tail=True)
        records = [record for header in headers for record in read_batch(data, header)]
        following = headers[-1].last_offset + 1 if headers else offset
        return [record for record in records if record.offset >= offset], following

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            self.manager.shutdown()
            findings: list[Finding] = []
            path = f"{self.directory}/{PARTITION}"
            PartitionCheck(path, None, findings.append, is_closed=True).run()
            shutil.rmtree(self.directory)
            assert findings == []


TestLogAgainstList = LogAgainstList.TestCase
TestLogAgainstList.settings = settings(stateful_step_count=30)
