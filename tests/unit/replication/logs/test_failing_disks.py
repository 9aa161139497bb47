"""Disks that fail while a replica takes up its role, at each operation of it."""

from pathlib import Path
from uuid import UUID

import pytest
from tests.unit.replication.fakes import Cluster

from odradek.errors import ErrorCode
from odradek.model import TopicPartition
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
