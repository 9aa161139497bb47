"""A broker's storage without a broker: a directory, a clock, a timer, and the log manager."""

import os
from collections.abc import Callable, Iterator
from uuid import UUID, uuid4

import pytest

from odradek.background import Background, InlineBackground, Workers
from odradek.clock import ManualClock
from odradek.config.broker import BrokerConfig
from odradek.config.topic import LogConfig, parse_topic_settings
from odradek.kafka_files.check import DirectoryCheck, Finding, KnownPartition
from odradek.model import TopicPartition
from odradek.records.builder import RecordBatchBuilder
from odradek.records.reader import iter_records
from odradek.records.record import Record
from odradek.storage import FileSystem, Log, LogManager, OsFileSystem
from odradek.storage.files import HandlePool
from odradek.storage.manager.logs_loader import OnProgress
from odradek.timer import MockTimer

ORDERS = TopicPartition("orders", 0)
ORDERS_ID = UUID(int=7)


class World:
    """Starts and ends log managers over the same directories, in order or not."""

    def __init__(self, directories: list[str]) -> None:
        self.directories = directories
        self.clock = ManualClock(wall_ms=1_700_000_000_000)
        self.timer = MockTimer()
        self.failed: list[str] = []
        self.managers: list[LogManager] = []
        self._pools: dict[LogManager, HandlePool] = {}
        self.orders = ORDERS

    def start(
        self,
        file_system: FileSystem | None = None,
        properties: dict[str, str] | None = None,
        workers: Workers | None = None,
        on_progress: OnProgress | None = None,
        background: Background | None = None,
        node_id: int = 1,
    ) -> LogManager:
        """A manager over the directories, as a broker that starts would have it."""
        file_system = file_system or OsFileSystem(64, durable=False)
        manager = LogManager(
            self.directories,
            BrokerConfig(properties or {}),
            self.clock,
            self.timer,
            background or InlineBackground(),
            new_uuid=uuid4,
            on_log_dir_failure=self.failed.append,
            file_system=file_system,
            workers=workers,
        )
        self.managers.append(manager)
        self._pools[manager] = file_system.pool
        manager.start(on_progress, cluster_id="cluster", node_id=node_id)
        return manager

    def crash(self, manager: LogManager) -> None:
        """The process is gone: nothing is closed but by the kernel, which gives up the locks."""
        for directory in manager.directories:
            directory.release_lock()
        if manager in self._pools:  # a test may have it crash by itself
            self._pools.pop(manager).release_all()

    def log(self, manager: LogManager | None = None, **settings: str) -> Log:
        """The log of `orders-0`, with a topic's settings in snake case."""
        config = self.config(**settings)
        return (manager or self.start()).get_or_create(ORDERS, ORDERS_ID, config)

    def config(self, **settings: str) -> LogConfig:
        """A topic's settings, given in snake case."""
        names = {name.replace("_", "."): text for name, text in settings.items()}
        return LogConfig(parse_topic_settings(names))

    def findings(self) -> list[str]:
        """The findings of `fsck` in the directories."""
        logs = [log for manager in self.managers for log in manager.logs()]
        known = {
            log.topic_partition: KnownPartition(log.topic_id, log.config.compact) for log in logs
        }
        found: list[Finding] = []
        for directory in filter(os.path.isdir, self.directories):
            DirectoryCheck(directory, known, found.append, deep=True).run()
        return [str(finding) for finding in found]

    def advance(self, duration_ms: int) -> None:
        """Lets time pass, for the clock and for the timer."""
        self.clock.advance(duration_ms)
        self.timer.advance_clock(duration_ms)


class Batches:
    """Makes batches as clients send them."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def __call__(
        self,
        *values: bytes,
        timestamp_ms: int | None = None,
        producer_id: int = -1,
        producer_epoch: int = 0,
        base_sequence: int = -1,
        is_transactional: bool = False,
    ) -> memoryview:
        builder = RecordBatchBuilder(
            0,
            producer_id=producer_id,
            producer_epoch=producer_epoch if producer_id >= 0 else -1,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )
        for value in values:
            now_ms = self._clock.wall_ms() if timestamp_ms is None else timestamp_ms
            builder.append(now_ms, None, value, [])
        return memoryview(bytearray(builder.build()))


def read_records(log: Log, max_bytes: int = 1 << 20) -> list[Record]:
    """All records of the log, by as many reads as it takes, as a consumer would."""
    records: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = b"".join(log.read(offset, max_bytes, log.log_end_offset, True).records)
        found = [r for r in iter_records(data, drop_partial_tail=True) if r.offset >= offset]
        assert found, f"nothing to read at {offset} of {log.log_end_offset}"
        records += found
        offset = found[-1].offset + 1
    return records


def values_of(log: Log) -> list[bytes | None]:
    return [record.value for record in read_records(log)]


@pytest.fixture
def world(tmp_path, request) -> Iterator[World]:
    """A world; what a test leaves in it has to be sound, unless it is marked `leaves_damage`."""
    world = World([str(tmp_path / "data")])
    yield world
    for manager in world.managers:
        world.crash(manager)
    if request.node.get_closest_marker("leaves_damage") is None:
        assert world.findings() == []


@pytest.fixture
def batches(world: World) -> Batches:
    return Batches(world.clock)


@pytest.fixture
def read_all() -> Callable[[Log], list[Record]]:
    return read_records


@pytest.fixture
def values() -> Callable[[Log], list[bytes | None]]:
    return values_of
