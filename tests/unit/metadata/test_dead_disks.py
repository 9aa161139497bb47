"""Brokers of a ZooKeeper cluster with real logs, one of whose disks is dead at a start."""

from pathlib import Path

import pytest
from tests.unit.metadata.zookeeper_cluster import Broker, Cluster
from tests.unit.replication.fakes import Cluster as Disks

from odradek.errors import ErrorCode
from odradek.metadata import ListenerStage, NewPartitions, NewTopic
from odradek.model import TopicPartition

PARTITIONS = [TopicPartition("a", index) for index in range(4)]


def start_on(cluster: Cluster, first: Path, second: Path) -> tuple[Broker, Disks]:
    """Broker 1, with logs in two directories."""
    broker = cluster.add(1)
    disks = Disks(str(first), more_directories=[str(second)])
    broker.store.subscribe(ListenerStage.REPLICAS, disks.replicas.apply_delta)
    broker.register()
    cluster.settle()
    return broker, disks


@pytest.mark.parametrize("unclean", [False, True])
def test_no_log_on_a_dead_disk_is_made_anew(tmp_path: Path, unclean: bool) -> None:
    """A broker that is started while a disk is dead would make its logs anew, empty, on the other
    one, and lead with them: what was acknowledged would be gone with nobody having been told."""
    first, second = tmp_path / "first", tmp_path / "second"
    cluster = Cluster(unclean=unclean)
    cluster.start(2)
    broker, disks = start_on(cluster, first, second)
    cluster.controller.ask("create_topics", [NewTopic("a", ((1,),) * len(PARTITIONS), {})])
    for each in PARTITIONS:
        (result,) = disks.produce(each, b"kept")
        assert result.error_code is ErrorCode.NONE
    homes = {log.topic_partition: log.log_directory.path for log in disks.log_manager.logs()}
    lost = sorted(each for each, home in homes.items() if home == str(second))
    assert len(lost) == 2
    cluster.stop(1)
    disks.close()
    second.rename(tmp_path / "away")
    second.write_text("a file where a directory should be", encoding="utf-8")
    broker, disks = start_on(cluster, first, second)
    states = {each: broker.state("a", each.partition) for each in PARTITIONS}
    assert {each: state.leader for each, state in states.items()} == {
        each: -1 if each in lost else 1 for each in PARTITIONS
    }
    assert [each for each, state in states.items() if state.offline == (1,)] == lost
    ends = {log.topic_partition: log.log_end_offset for log in disks.log_manager.logs()}
    assert ends == {each: 1 for each in PARTITIONS if each not in lost}
    cluster.controller.ask("create_partitions", [NewPartitions("a", 4, ((1,),))])
    assert broker.state("a", 4).leader == 1, "what is new has nothing to lose"
    disks.close()
