"""A reader of the files keeps up with the broker, and keeps what it saw when the broker dies.

Bounds of such a reader are the high watermarks that the broker writes down every
`replica.high.watermark.checkpoint.interval.ms`.
"""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.deadlines import deadline_s
from tests.system.processes import BrokerProcess

from odradek import Broker, ManualClock
from odradek.model import TopicPartition
from odradek.records.reader import iter_records
from odradek.tables.scan.directory import DataDirectory

PARTITION = TopicPartition("t", 0)
INTERVAL_MS = 5_000
PATIENCE_S = deadline_s(120)


def until(holds: Callable[[], bool]) -> None:
    """Waits for what happens in another thread or process."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "what was written down stays behind"
        time.sleep(0.01)


def read(path: Path) -> list[bytes]:
    """All that a reader of the files is allowed to see."""
    directory = DataDirectory((str(path),))
    end = directory.high_watermarks().get(PARTITION, 0)
    return [
        bytes(record.value)
        for chunk in directory.partition(PARTITION).read(0, end)
        for record in iter_records(bytes(chunk.records))
        if record.offset < end
    ]


def test_files_are_as_fresh_as_the_broker_within_two_intervals(tmp_path: Path) -> None:
    """A reader of the files would miss records that every consumer has."""
    clock = ManualClock()
    with Broker(data_dir=str(tmp_path), clock=clock) as broker:
        broker.create_topic("t")
        sent: list[bytes] = []
        for turn in range(5):
            values = [b"%d-%d" % (turn, number) for number in range(20)]
            broker.produce_many("t", values)
            sent += values
            for _ in range(2):
                clock.advance(INTERVAL_MS)
            until(lambda: read(tmp_path) == sent)  # noqa: B023 - asked before the next turn


@pytest.mark.slow
def test_what_files_have_shown_stays_after_a_kill(tmp_path: Path) -> None:
    """A batch that was read would lack records when it is read again, or end before the broker."""
    interval = ["--set", "replica.high.watermark.checkpoint.interval.ms=100"]
    data = tmp_path / "data"
    sent = 0
    for _ in range(3):
        with BrokerProcess(data, *interval) as process:
            until(lambda: len(read_or_none(data)) >= sent)  # noqa: B023 - asked at once
            producer = Producer({"bootstrap.servers": process.bootstrap_servers, "linger.ms": 1})
            shown: list[bytes] = []
            for number in range(sent, sent + 3_000):
                producer.produce("t", b"%d" % number, partition=0)
                if number % 500 == 0:
                    producer.flush(PATIENCE_S)
                    now = read_or_none(data)
                    assert now[: len(shown)] == shown
                    shown = now
            producer.flush(PATIENCE_S)
            sent += 3_000
            until(lambda: len(read(data)) == sent)  # noqa: B023 - asked at once
            process.kill()
            assert read(data) == [b"%d" % number for number in range(sent)]


def read_or_none(path: Path) -> list[bytes]:
    """`read`, of a topic that may not be there yet."""
    return read(path) if (path / "t-0").is_dir() else []
