"""The log against a list: whatever is done to it, it holds what the list says.

Hypothesis appends, reads, rolls, truncates, forgets, restarts and crashes in any order, with
segments small enough to roll all the time. The model is a list of values and two offsets.
"""

import shutil
import tempfile
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.background import InlineBackground
from odradek.clock import ManualClock
from odradek.config.broker import BrokerConfig
from odradek.config.topic import LogConfig
from odradek.model import TopicPartition
from odradek.records.builder import RecordBatchBuilder
from odradek.records.reader import iter_records
from odradek.storage import Log, LogAppendInfo, LogManager, OsFileSystem
from odradek.timer import MockTimer

PARTITION = TopicPartition("orders", 3)
SETTINGS = {"segment.bytes": 500, "index.interval.bytes": 90, "file.delete.delay.ms": 0}
VALUES = st.lists(st.binary(max_size=40), min_size=1, max_size=4)


class LogAgainstList(RuleBasedStateMachine):
    """`values[i]` is the value of offset i; offsets below `start` are forgotten."""

    @initialize()
    def begin(self) -> None:
        self.directory = tempfile.mkdtemp()
        self.clock = ManualClock()
        self.timer = MockTimer()
        self.values: list[bytes] = []
        self.times: list[int] = []
        self.start = 0
        self.epoch = 0
        self.sequence = 0
        self.open()

    def open(self) -> None:
        self.manager = LogManager(
            [self.directory],
            BrokerConfig({}),
            self.clock,
            self.timer,
            InlineBackground(),
            on_log_dir_failure=self.fail,
            file_system=OsFileSystem(3, durable=False),
        )
        self.manager.start()
        self.log: Log = self.manager.get_or_create(PARTITION, UUID(int=1), LogConfig(SETTINGS))
        self.log.update_high_watermark(self.log.log_end_offset)

    def fail(self, directory: str) -> None:
        raise AssertionError(f"{directory} failed")

    def batch(self, values: list[bytes], age_ms: int, sequence: int) -> memoryview:
        builder = RecordBatchBuilder(0, producer_id=5, producer_epoch=0, base_sequence=sequence)
        for value in values:
            builder.append(self.clock.wall_ms() - age_ms, b"key", value, [])
        return memoryview(bytearray(builder.build()))

    @rule(requests=st.lists(st.tuples(VALUES, st.integers(0, 100)), min_size=1, max_size=5))
    def append(self, requests: list[tuple[list[bytes], int]]) -> None:
        first_sequence = self.sequence
        views = []
        for values, age_ms in requests:
            views.append(self.batch(values, age_ms, self.sequence))
            self.sequence += len(values)
        results = self.log.append_as_leader(views, self.epoch)
        for (values, age_ms), result in zip(requests, results, strict=True):
            assert isinstance(result, LogAppendInfo), result
            assert not result.duplicate
            assert result.first_offset == len(self.values)
            self.values += values
            self.times += [self.clock.wall_ms() - age_ms] * len(values)
            assert result.last_offset == len(self.values) - 1
        self.log.update_high_watermark(len(self.values))
        self.last = (requests[-1], first_sequence, results[-1])

    @precondition(lambda self: hasattr(self, "last"))
    @rule()
    def retry(self) -> None:
        (values, age_ms), _, result = self.last
        repeated = self.batch(values, age_ms, self.sequence - len(values))
        (info,) = self.log.append_as_leader([repeated], self.epoch)
        assert isinstance(info, LogAppendInfo)
        assert info.duplicate
        assert info.first_offset == result.first_offset

    @rule(passed_ms=st.integers(0, 500))
    def time_passes(self, passed_ms: int) -> None:
        self.clock.advance(passed_ms)
        self.timer.advance_clock(passed_ms)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        offset = self.start + int((len(self.values) - self.start) * share)
        self.log.truncate_to(offset)
        offset = self.log.log_end_offset
        del self.values[offset:]
        del self.times[offset:]
        self.start = min(self.start, offset)
        state = self.log.producers.get(5)
        self.sequence = 0 if state is None else state.last_sequence + 1
        if hasattr(self, "last"):
            del self.last

    @rule(share=st.floats(0, 1))
    def forget(self, share: float) -> None:
        offset = self.start + int((len(self.values) - self.start) * share)
        self.log.maybe_increment_log_start_offset(offset)
        self.start = offset
        self.manager.delete_old_segments()

    @rule()
    def restart(self) -> None:
        self.manager.shutdown()
        self.open()

    @rule(torn=st.binary(max_size=100))
    def crash(self, torn: bytes) -> None:
        path = self.log.segments.active.file.path
        for directory in self.manager.directories:
            directory.release_lock()
        with open(path, "ab") as file:
            file.write(torn)
        self.open()

    @rule(share=st.floats(0, 1), max_bytes=st.integers(0, 1500))
    def read(self, share: float, max_bytes: int) -> None:
        offset = self.start + int((len(self.values) - self.start) * share)
        info = self.log.read(offset, max_bytes, len(self.values), True)
        found = [
            record
            for record in iter_records(b"".join(info.records), drop_partial_tail=True)
            if record.offset >= offset
        ]
        assert [r.value for r in found] == self.values[offset : offset + len(found)]
        assert found or offset == len(self.values)

    @rule(late_ms=st.integers(-200, 50))
    def search(self, late_ms: int) -> None:
        target = self.clock.wall_ms() + late_ms
        expected = next(
            (n for n in range(self.start, len(self.times)) if self.times[n] >= target), None
        )
        found = self.log.fetch_offset_by_timestamp(target, len(self.times))
        assert (found.offset if found else None) == expected

    @invariant()
    def bounds(self) -> None:
        assert self.log.log_end_offset == len(self.values)
        assert self.log.log_start_offset == self.start
        assert self.log.segments.first.base_offset <= self.start
        for epoch, start_offset in self.log.leader_epochs.entries:
            assert epoch <= self.epoch
            assert start_offset <= len(self.values)

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            self.manager.shutdown()
            shutil.rmtree(self.directory)


TestLogAgainstList = LogAgainstList.TestCase
