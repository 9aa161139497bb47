"""What does the log cost: appends against plain writes, reads against pread, look-ups, recovery?

`python -m benchmarks.micro.storage --json [--directory DIR]` prints one JSON object on the last
line. All rates are per second of CPU time, the kernel's included, since other work on the
machine would show in any other. Every ratio is taken within one run, the two sides in turn, and
what one has written is removed before the other writes: memory that nobody has used before costs
the kernel several times as much. Nothing is synced.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from uuid import UUID, uuid4

from odradek.background import InlineBackground
from odradek.clock import SystemClock
from odradek.config.broker import BrokerConfig
from odradek.config.topic import LogConfig
from odradek.model import TopicPartition
from odradek.records.builder import RecordBatchBuilder
from odradek.storage import Log, LogManager, OsFileSystem
from odradek.timer import MockTimer

PARTITION = TopicPartition("bench", 0)
MIB = 1 << 20
ROUND_BYTES = 32 * MIB
ROUNDS = 15


def manager_over(directory: str, timer: MockTimer | None = None) -> LogManager:
    manager = LogManager(
        [directory],
        BrokerConfig({}),
        SystemClock(),
        timer or MockTimer(),
        InlineBackground(),
        new_uuid=uuid4,
        on_log_dir_failure=print,
        file_system=OsFileSystem(durable=False),
    )
    manager.start()
    return manager


def batch_of(size_bytes: int, record_bytes: int) -> bytes:
    builder = RecordBatchBuilder(0)
    now_ms = SystemClock().wall_ms()
    while builder.size_bytes + record_bytes < size_bytes:
        builder.append(now_ms, None, b"x" * record_bytes, [])
    return builder.build()


def seconds(action: Callable[[], None]) -> float:
    """The CPU seconds that it takes."""
    began = time.process_time()
    action()
    return time.process_time() - began


def append(log: Log, batch: bytes, total_bytes: int, per_call: int) -> None:
    """Appends, with `per_call` requests handed over at once."""
    views = [memoryview(bytearray(batch)) for _ in range(per_call)]
    zero = bytes(8)
    for _ in range(total_bytes // (len(batch) * per_call)):
        for view in views:
            view[:8] = zero
        log.appender.append_as_leader(views, 0)


def write(descriptor: int, batch: bytes, total_bytes: int) -> None:
    """Writes the same bytes, plainly; made ready in the same way."""
    view = memoryview(bytearray(batch))
    zero = bytes(8)
    for _ in range(total_bytes // len(batch)):
        view[:8] = zero
        os.write(descriptor, view)


def append_rates(directory: str, batch: bytes, per_call: int, rounds: int) -> tuple[float, float]:
    """Median MB/s of appends, and of plain writes."""
    timer = MockTimer()
    manager = manager_over(directory, timer)
    log = manager.get_or_create(PARTITION, UUID(int=1), LogConfig({"file.delete.delay.ms": 0}))
    descriptor = os.open(os.path.join(directory, "plain"), os.O_RDWR | os.O_CREAT)
    appends, writes = [], []
    for _ in range(rounds + 1):
        writes.append(seconds(lambda: write(descriptor, batch, ROUND_BYTES)))
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        appends.append(seconds(lambda: append(log, batch, ROUND_BYTES, per_call)))
        log.truncate_fully_and_start_at(log.log_end_offset)
        timer.advance_clock(1)
    os.close(descriptor)
    manager.shutdown()
    # The first round finds the memory.
    return rate(statistics.median(appends[1:])), rate(statistics.median(writes[1:]))


def rate(taken_s: float) -> float:
    """MB/s of one round."""
    return ROUND_BYTES / taken_s / 1e6


def read_rates(log: Log, slice_bytes: int) -> tuple[float, float]:
    """MB/s of reads through the log, and of plain pread of the same file."""
    path = log.segments.first.file.path
    size_bytes = log.segments.first.size_bytes
    descriptor = os.open(path, os.O_RDONLY)
    count = size_bytes // slice_bytes
    step = log.log_end_offset // max(count, 1)

    def through_log() -> None:
        for number in range(count):
            log.read(number * step, slice_bytes, log.log_end_offset, True)

    def plain() -> None:
        for number in range(count):
            os.pread(descriptor, slice_bytes, number * slice_bytes)

    plain()
    rates = (count * slice_bytes / seconds(through_log), count * slice_bytes / seconds(plain))
    os.close(descriptor)
    return rates[0] / 1e6, rates[1] / 1e6


def lookup_us(log: Log, count: int = 2000) -> tuple[float, float]:
    """Microseconds of a look-up by offset and by time."""
    step = max(log.log_end_offset // count, 1)
    newest_ms = log.segments.active.max_timestamp
    by_offset = seconds(lambda: [log.convert_offset(n * step) for n in range(count)] and None)
    by_time = seconds(
        lambda: [log.segments.active.locate_timestamp(newest_ms, 0) for _ in range(count)] and None
    )
    return by_offset / count * 1e6, by_time / count * 1e6


def recovery_rate(directory: str) -> float:
    """MB/s of the start after a crash."""
    os.unlink(os.path.join(directory, ".kafka_cleanshutdown"))
    os.unlink(os.path.join(directory, "recovery-point-offset-checkpoint"))
    began = time.process_time()
    manager = manager_over(directory)
    took = time.process_time() - began
    size_bytes = sum(log.segments.size_bytes for log in manager.logs())
    manager.shutdown()
    return size_bytes / took / 1e6


def compaction_rate(directory: str, count: int) -> float:
    """Thousands of 100-byte records that compaction takes in per second; one in ten stays."""
    manager = manager_over(directory)
    settings = {"cleanup.policy": ("compact",), "segment.bytes": 64 * MIB}
    log = manager.get_or_create(PARTITION, UUID(int=1), LogConfig(settings))
    now_ms = SystemClock().wall_ms()
    for first in range(0, count, 100):
        builder = RecordBatchBuilder(0)
        for number in range(first, first + 100):
            builder.append(now_ms, b"key-%08d" % (number * 7919 % (count // 10)), b"v" * 80, [])
        log.appender.append_as_leader([memoryview(bytearray(builder.build()))], 0)
    log.appender.roll()
    log.update_high_watermark(log.log_end_offset)
    took = seconds(manager.cleaner.look)
    manager.shutdown()
    return count / took / 1e3


def many_logs(directory: str, count: int) -> tuple[float, float]:
    """Milliseconds to make a log, and to open it again after an orderly end."""
    manager = manager_over(directory)

    def create() -> None:
        for number in range(count):
            manager.get_or_create(TopicPartition("many", number), UUID(int=1), LogConfig())

    created = seconds(create)
    batch = batch_of(200, 50)
    for log in manager.logs():
        log.appender.append_as_leader([memoryview(bytearray(batch))], 0)
    manager.shutdown()
    opened = seconds(lambda: manager_over(directory).shutdown())
    return created / count * 1e3, opened / count * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="accepted for uniformity")
    parser.add_argument("--directory", default=None)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--logs", type=int, default=500)
    arguments = parser.parse_args()
    root = tempfile.mkdtemp(dir=arguments.directory)
    try:
        print(json.dumps(measure(root, arguments.mib * MIB, arguments.logs)))
    finally:
        shutil.rmtree(root)


def measure(root: str, total_bytes: int, log_count: int) -> dict[str, float]:
    directory = os.path.join(root, "data")
    batch = batch_of(16 * 1024, 1024)
    figures: dict[str, float] = {}
    for name, per_call in (("append_16k", 1), ("append_16k_by_8", 8)):
        appended, written = append_rates(os.path.join(root, name), batch, per_call, ROUNDS)
        figures[f"{name}_mb_per_s"], figures[f"{name}_of_write"] = appended, appended / written
    manager = manager_over(directory)
    log = manager.get_or_create(PARTITION, UUID(int=1), LogConfig({"retention.ms": -1}))
    append(log, batch, total_bytes, 8)
    figures["read_1m_mb_per_s"], figures["pread_1m_mb_per_s"] = read_rates(log, MIB)
    figures["lookup_offset_us"], figures["lookup_time_us"] = lookup_us(log)
    manager.shutdown()
    figures["recovery_mb_per_s"] = recovery_rate(directory)
    small = manager_over(os.path.join(root, "small"))
    tiny = batch_of(200, 100)
    log = small.get_or_create(PARTITION, UUID(int=1), LogConfig())
    tiny_s = seconds(lambda: append(log, tiny, 20_000 * len(tiny), 32))
    figures["append_tiny_by_32_us"] = tiny_s / 20_000 * 1e6
    small.shutdown()
    compacted = compaction_rate(os.path.join(root, "compacted"), 1_000_000)
    figures["compaction_k_records_per_s"] = compacted
    create_ms, open_ms = many_logs(os.path.join(root, "many"), log_count)
    figures["create_log_ms"], figures["open_log_ms"] = create_ms, open_ms
    return {name: round(figure, 3) for name, figure in figures.items()}


if __name__ == "__main__":
    main()
