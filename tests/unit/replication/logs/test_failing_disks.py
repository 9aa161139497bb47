"""Disks that fail while a replica takes up its role, at each operation of it."""

from pathlib import Path
from uuid import UUID

import pytest
from tests.unit.replication.fakes import Cluster

from odradek.errors import BrokerError, ErrorCode
from odradek.model import AppendOrigin, TopicPartition
from odradek.records.builder import RecordBatchBuilder
from odradek.testing.faulty_files import FaultyFileSystem

A = TopicPartition("orders", 0)


@pytest.fixture
def files() -> FaultyFileSystem:
    return FaultyFileSystem()


@pytest.fixture
def cluster(tmp_path: Path, files: FaultyFileSystem) -> Cluster:
    return Cluster(str(tmp_path / "a"), file_system=files, more_directories=[str(tmp_path / "b")])


@pytest.mark.parametrize("operation", [1, 2])
def test_nobody_leads_on_a_disk_that_fails_in_the_election(
    cluster: Cluster, files: FaultyFileSystem, operation: int
) -> None:
    """The controller would be told that the broker leads: nobody else is elected, and coordinators
    are told to read a log that is not there."""
    cluster.create("orders", (1, 2), leader=2)
    files.fail_at = files.operations + operation
    cluster.change("orders", leader=1, leader_epoch=1)
    assert len(cluster.log_manager.offline_dirs) == 1
    partition = cluster.replicas.partition(A)
    assert not partition.is_leader
    assert partition.isr_size == 0
    assert cluster.image.topics["orders"].partitions[0].offline == (1,)
    (refused,) = cluster.produce(A, b"a")
    assert refused.error_code is ErrorCode.KAFKA_STORAGE_ERROR
    cluster.close()


def test_no_log_is_handed_out_whose_disk_fails_when_its_topics_id_is_written(
    cluster: Cluster, files: FaultyFileSystem
) -> None:
    """Without a report: the directory has failed before the replica has its log."""
    topic = cluster.create("orders", (1, 2), leader=2)
    log = cluster.log_manager.get(A)
    assert log is not None
    log.topic_id = UUID(int=topic.topic_id.int ^ 1)
    cluster.replicas.partition(A).make_offline()
    files.fail_at = files.operations + 1
    cluster.change("orders", leader=1, leader_epoch=1)
    assert len(cluster.log_manager.offline_dirs) == 1
    assert not cluster.replicas.partition(A).is_leader
    assert cluster.image.topics["orders"].partitions[0].offline == (1,)
    cluster.close()


def fill(cluster: Cluster, count: int) -> None:
    for _ in range(count):
        (result,) = cluster.produce(A, b"value")
        assert result.error_code is ErrorCode.NONE


@pytest.mark.parametrize("has_room", ["at the election", "later"])
def test_a_new_leader_that_appends_nothing_keeps_the_end_of_its_log(
    cluster: Cluster, files: FaultyFileSystem, tmp_path: Path, has_room: str
) -> None:
    """Compaction has left nothing in front of the end, and a full disk refused the segment that
    says so: after a kill the leader would give offsets again that consumers have passed."""
    cluster.create("orders", (1, 2))
    fill(cluster, 3)
    log = cluster.replicas.partition(A).leader_log()
    # As compaction leaves it where the last records were tombstones.
    log.local.log_end_offset = 6
    log.appender.roll()
    fill(cluster, 3)
    cluster.change("orders", leader=2, leader_epoch=1)
    files.is_full = True
    with pytest.raises(BrokerError, match="rolling"):
        log.truncate_to(5)
    files.is_full = has_room == "later"
    cluster.change("orders", leader=1, leader_epoch=2)
    assert cluster.replicas.partition(A).is_leader
    files.is_full = False
    if has_room == "later":
        cluster.wait(cluster.config["log.retention.check.interval.ms"])
    assert log.log_end_offset == 5
    kill(cluster)
    cluster = Cluster(str(tmp_path / "a"), more_directories=[str(tmp_path / "b")])
    cluster.create("orders", (1, 2))
    assert cluster.replicas.partition(A).leader_log().log_end_offset == 5
    cluster.close()


def kill(cluster: Cluster) -> None:
    cluster.replicas.shutdown()
    for directory in cluster.log_manager.directories:
        directory.release_lock()


def test_a_leader_that_does_not_know_its_producers_appends_nothing(cluster: Cluster) -> None:
    """A damaged record has stopped it, when it followed, from finding out which they are: batches
    would be checked against others, and be appended twice or refused for good."""

    def send(sequence: int) -> int | ErrorCode:
        builder = RecordBatchBuilder(producer_id=5, producer_epoch=0, base_sequence=sequence)
        builder.append(1, None, b"x")
        data = [memoryview(bytearray(builder.build()))]
        try:
            (result,) = cluster.replicas.partition(A).append_to_leader(data, AppendOrigin.CLIENT, 0)
        except BrokerError as error:
            return error.code
        return result.code if isinstance(result, BrokerError) else result.first_offset

    cluster.create("orders", (1, 2), index_interval_bytes="100")
    assert [send(sequence) for sequence in range(20)] == [*range(20)]
    log = cluster.replicas.partition(A).leader_log()
    cluster.change("orders", leader=2, leader_epoch=1)
    with open(log.segments.active.file.path, "r+b") as file:
        sound = file.read(12)
        file.seek(0)
        file.write(sound[:8] + b"\xff" * 4)
        file.flush()
        for _ in range(2):
            with pytest.raises(BrokerError) as refused:
                log.truncate_to(15)
            assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
        cluster.change("orders", leader=1, leader_epoch=2)
        assert [send(sequence) for sequence in (15, 14, 0)] == [ErrorCode.CORRUPT_MESSAGE] * 3
        assert log.log_end_offset == 15
        file.seek(0)
        file.write(sound)
    assert [send(sequence) for sequence in (14, 15, 15, 16)] == [14, 15, 15, 16]
    cluster.close()
