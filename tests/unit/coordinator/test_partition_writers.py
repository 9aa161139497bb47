"""The promises of a log that coordinators rely on, of the real one and of the list that tests have
instead.

`ReplicatedLog` stands over real logs and a made-up cluster, whose broker 2 is as far as it fetches.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.coordinator.fakes import ListLog
from tests.unit.replication.fakes import Cluster, batch

from odradek.coordinator.runtime.partition_writer import PartitionWriter
from odradek.errors import BrokerError, ErrorCode
from odradek.model import GROUP_METADATA_TOPIC, TopicPartition
from odradek.records.batch import split_batches
from odradek.records.reader import read_batch
from odradek.server.coordination.base import ReplicatedLog

MAX_BYTES = 1_000
TP = TopicPartition(GROUP_METADATA_TOPIC, 0)
Outcomes = list[BrokerError | None]


class Listed:
    """The list that tests have."""

    def __init__(self) -> None:
        self._log = ListLog()
        self._log.max_bytes = MAX_BYTES
        self.writer: PartitionWriter = self._log

    def stall(self) -> None:
        self._log.holds = True

    def commit(self) -> None:
        self._log.commit()

    def lose_replicas(self) -> None:
        self._log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS

    def lose_leadership(self) -> None:
        self._log.lose()
        self._log.refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER


class Replicated:
    """The real one; `stall` gives it a follower that has fetched nothing yet."""

    def __init__(self, directory: str) -> None:
        self._cluster = Cluster(directory)
        self.writer: PartitionWriter = ReplicatedLog(GROUP_METADATA_TOPIC, self._cluster.replicas)
        self._cluster.create(
            GROUP_METADATA_TOPIC,
            (1, 2),
            isr=(1,),
            max_message_bytes=str(MAX_BYTES),
            min_insync_replicas="1",
        )

    def stall(self) -> None:
        self._cluster.change(GROUP_METADATA_TOPIC, isr=(1, 2))

    def commit(self) -> None:
        for _ in range(2):  # the second fetch says what the first has brought
            _, end = self.writer.bounds(0)
            self._cluster.fetch(TP, end, replica_id=2)

    def lose_replicas(self) -> None:
        self._cluster.configure(
            GROUP_METADATA_TOPIC, max_message_bytes=str(MAX_BYTES), min_insync_replicas="2"
        )

    def lose_leadership(self) -> None:
        self._cluster.change(GROUP_METADATA_TOPIC, leader=2, leader_epoch=1)

    def close(self) -> None:
        self._cluster.close()


@pytest.fixture(params=["listed", "replicated"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listed | Replicated]:
    if request.param == "listed":
        yield Listed()
        return
    replicated = Replicated(str(tmp_path))
    yield replicated
    replicated.close()


def append(log: Listed | Replicated, *values: bytes) -> Outcomes:
    outcomes: Outcomes = []
    log.writer.append(0, bytearray(batch(*values)), outcomes.append)
    return outcomes


def codes(outcomes: Outcomes) -> list[ErrorCode | None]:
    return [None if outcome is None else outcome.code for outcome in outcomes]


def stored(log: Listed | Replicated) -> list[bytes]:
    start, end = log.writer.bounds(0)
    data = log.writer.read(0, start, 1 << 20) if end > start else b""
    return [
        bytes(record.value or b"")
        for header in split_batches(data, drop_partial_tail=True)
        for record in read_batch(data, header)
    ]


def test_what_is_committed_is_read_back_in_its_order(log: Listed | Replicated) -> None:
    """Fails when a coordinator would load something else than it was told is committed."""
    assert [append(log, b"1", b"2"), append(log, b"3")] == [[None], [None]]
    assert stored(log) == [b"1", b"2", b"3"]
    assert log.writer.bounds(0) == (0, 3)


def test_a_batch_that_is_too_large_is_refused_whole(log: Listed | Replicated) -> None:
    """Fails when a write of a coordinator could be in the log in part."""
    assert log.writer.max_batch_bytes(0) == MAX_BYTES
    assert codes(append(log, b"x" * 600, b"y" * 600)) == [ErrorCode.MESSAGE_TOO_LARGE]
    assert codes(append(log, b"x" * (MAX_BYTES - 100))) == [None]
    assert len(stored(log)) == 1


def test_too_few_replicas_refuse_at_once_and_store_nothing(log: Listed | Replicated) -> None:
    """Fails when what was refused is found by the next coordinator."""
    log.lose_replicas()
    assert codes(append(log, b"1")) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert stored(log) == []


def test_slow_replicas_are_waited_for(log: Listed | Replicated) -> None:
    """Fails when a coordinator hears of a commit too early, twice, or in another order."""
    log.stall()
    first, second = append(log, b"1"), append(log, b"2")
    assert first == second == []
    log.commit()
    assert first == second == [None]
    log.commit()
    assert first == second == [None]


def test_a_lost_leadership_is_an_outcome(log: Listed | Replicated) -> None:
    """Fails when who waits for the replicas waits for ever, or writes on as if it led."""
    log.stall()
    waiting = append(log, b"1")
    log.lose_leadership()
    assert codes(waiting) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert codes(append(log, b"2")) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
