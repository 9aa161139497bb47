"""The logs of the transactions' simulation take and refuse what real partitions do."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.simulation.transactions import SimulatedLog
from tests.unit.coordinator.transactional.transactions import ABORT, COMMIT
from tests.unit.replication.fakes import Cluster

from odradek.coordinator.runtime.batches import EndMarker
from odradek.coordinator.transactions.requests import ProducerIdAndEpoch
from odradek.errors import ErrorCode
from odradek.model import AppendOrigin, TopicPartition
from odradek.records.builder import RecordBatchBuilder
from odradek.replication.append import ACKS_ALL, AppendRequest, AppendResult
from odradek.storage.log.log import Log
from odradek.testing.faulty_files import FaultyFileSystem

E = ErrorCode
TP = TopicPartition("a", 0)
REFUSALS = [E.NOT_ENOUGH_REPLICAS, E.KAFKA_STORAGE_ERROR, E.NOT_LEADER_OR_FOLLOWER]


class Fake:
    """A log of the simulation."""

    def __init__(self, _directory: str) -> None:
        self._log = SimulatedLog("a-0")

    def write(self, sequence: int, epoch: int = 0) -> ErrorCode:
        identity, transaction = ProducerIdAndEpoch(9, epoch), SimpleNamespace(tag="t")
        append = SimpleNamespace(identity=identity, sequence=sequence, transaction=transaction)
        return _only(lambda on_done: self._log.write(append, on_done))

    def mark(self, marker: EndMarker) -> ErrorCode:
        return _only(lambda on_done: self._log.mark(marker, 0, on_done))

    def refuse(self, code: ErrorCode) -> None:
        self._log.refusal = code

    def heal(self) -> None:
        self._log.refusal = None

    def restart(self) -> None:
        self._log.kill()

    @property
    def end(self) -> int:
        return len(self._log.entries)

    @property
    def is_stable(self) -> bool:
        return self._log.producers.first_unstable_offset < 0

    def close(self) -> None:
        """It holds nothing."""


class Real:
    """A partition that this broker leads, on a disk that may be full."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._files = FaultyFileSystem()
        self._start()

    def _start(self) -> None:
        self._cluster = Cluster(self._directory, file_system=self._files)
        self._cluster.create("a", (1, 2), isr=(1,))

    def write(self, sequence: int, epoch: int = 0) -> ErrorCode:
        builder = RecordBatchBuilder(
            producer_id=9, producer_epoch=epoch, base_sequence=sequence, is_transactional=True
        )
        builder.append(self._cluster.clock.wall_ms(), None, b"v")
        return self._append(bytearray(builder.build()), AppendOrigin.CLIENT)

    def mark(self, marker: EndMarker) -> ErrorCode:
        batch = marker.batch(self._cluster.clock.wall_ms())
        return self._append(batch, AppendOrigin.COORDINATOR, marker.transaction_version)

    def _append(self, batch: bytearray, origin: AppendOrigin, version: int = 0) -> ErrorCode:
        answers: list[AppendResult] = []
        entries = [(TP, memoryview(batch))]
        request = AppendRequest(ACKS_ALL, 500, origin, entries, answers.extend, version)
        self._cluster.replicas.append_records([request])
        (answer,) = answers
        return answer.error_code

    def refuse(self, code: ErrorCode) -> None:
        if code is E.NOT_ENOUGH_REPLICAS:
            self._cluster.configure("a", min_insync_replicas="2")
        elif code is E.KAFKA_STORAGE_ERROR:
            self._files.is_full = True
        else:
            self._cluster.change("a", leader=2, leader_epoch=1)

    def heal(self) -> None:
        """A disk that was full is used again by a broker that starts."""
        if self._files.is_full:
            self._files.is_full = False
            self.restart()
        self._cluster.configure("a")
        self._cluster.change("a", leader=1, leader_epoch=2)

    def restart(self) -> None:
        self._cluster.close()
        self._start()

    @property
    def _log(self) -> Log:
        log = self._cluster.replicas.partition(TP).log
        assert log is not None
        return log

    @property
    def end(self) -> int:
        return self._log.log_end_offset

    @property
    def is_stable(self) -> bool:
        return self._log.producers.first_unstable_offset < 0

    def close(self) -> None:
        self._cluster.close()


World = Fake | Real


def _only(begin) -> ErrorCode:
    codes: list[ErrorCode] = []
    begin(codes.append)
    (code,) = codes
    return code


def marker(epoch: int, *, version: int = 2, is_commit: bool = True, coordinator: int = 0):
    return EndMarker(9, epoch, coordinator, COMMIT if is_commit else ABORT, version)


@pytest.fixture(params=[Fake, Real])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made: World = request.param(str(tmp_path / "data"))
    yield made
    made.close()


def test_sequences_are_taken_in_their_order_and_once(world: World) -> None:
    """A log that takes what a real one refuses hides a gap, or a record that is there twice."""
    assert [world.write(each) for each in (0, 1, 1, 5, 2)] == [
        E.NONE,
        E.NONE,
        E.NONE,
        E.OUT_OF_ORDER_SEQUENCE_NUMBER,
        E.NONE,
    ]
    assert world.end == 3


@pytest.mark.parametrize("code", REFUSALS)
def test_a_write_that_is_refused_leaves_no_trace(world: World, code: ErrorCode) -> None:
    """Its producer sends it again, with the same sequence."""
    world.write(0)
    world.refuse(code)
    assert world.write(1) is code
    world.heal()
    assert world.end == 1
    assert world.write(2) is E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert world.write(1) is E.NONE


@pytest.mark.parametrize("code", REFUSALS)
def test_a_marker_that_is_refused_leaves_its_transaction_open(
    world: World, code: ErrorCode
) -> None:
    """Readers would be shown what may be aborted."""
    world.write(0)
    world.refuse(code)
    assert world.mark(marker(1)) is code
    world.heal()
    assert (world.end, world.is_stable) == (1, False)
    assert world.mark(marker(1)) is E.NONE
    assert (world.end, world.is_stable) == (2, True)


@pytest.mark.parametrize(
    ("late", "code"),
    [
        (marker(0), E.INVALID_PRODUCER_EPOCH),
        (marker(1), E.NONE),
        (marker(1, coordinator=-1), E.TRANSACTION_COORDINATOR_FENCED),
        (marker(0, version=1), E.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_marker_behind_the_end_is_refused_or_repeats_it(
    world: World, late: EndMarker, code: ErrorCode
) -> None:
    """A late one would end the next transaction."""
    world.write(0)
    world.mark(marker(1))
    assert world.mark(late) is code
    assert world.write(0, epoch=1) is E.NONE
    assert not world.is_stable


def test_a_producer_is_known_again_after_a_kill(world: World) -> None:
    """A batch that is sent again would be there twice, and an open transaction be taken for
    decided."""
    world.write(0)
    world.restart()
    assert not world.is_stable
    assert [world.write(0), world.write(2)] == [E.NONE, E.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert world.mark(marker(1, is_commit=False)) is E.NONE
    world.restart()
    assert world.is_stable
    assert world.write(0) is E.INVALID_PRODUCER_EPOCH
