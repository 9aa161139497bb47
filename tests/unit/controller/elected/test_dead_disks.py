"""Brokers of a ZooKeeper cluster with real logs, one of whose disks is dead at a start."""

import json
from pathlib import Path

import pytest
from tests.unit.metadata.zookeeper.zookeeper_cluster import Broker, Cluster
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
    broker.is_missing_logs = disks.log_manager.is_missing_logs
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


def die(cluster: Cluster, disks: Disks, disk: Path) -> None:
    """All brokers end at once, so nobody changes a state, and a disk does not come back."""
    for broker in list(cluster.brokers.values()):
        broker.close()
    cluster.settle()
    disks.close()
    disk.rename(disk.with_name("away"))
    disk.write_text("a file where a directory should be", encoding="utf-8")


def lost_and_kept(disks: Disks) -> tuple[list[TopicPartition], list[TopicPartition]]:
    """The partitions with a log in the second directory, and in the first."""
    homes = {log.topic_partition: log.log_directory.path for log in disks.log_manager.logs()}
    second = disks.log_manager.directories[1].path
    lost = sorted(each for each, home in homes.items() if home == second)
    return lost, sorted(homes.keys() - set(lost))


def test_no_log_on_a_dead_disk_of_the_controller_is_made_anew(tmp_path: Path) -> None:
    """A controller that begins knows no topic, so each is new to it: it would make its own logs
    anew on the disk that is left, and lead with them."""
    cluster = Cluster()
    broker, disks = start_on(cluster, tmp_path / "first", tmp_path / "second")
    broker.ask("create_topics", [NewTopic("a", ((1,),) * len(PARTITIONS), {})])
    lost, kept = lost_and_kept(disks)
    assert len(lost) == len(kept) == 2
    die(cluster, disks, tmp_path / "second")
    broker, disks = start_on(cluster, tmp_path / "first", tmp_path / "second")
    assert lost_and_kept(disks) == ([], kept)
    leaders = {each: broker.state("a", each.partition).leader for each in PARTITIONS}
    assert leaders == {each: -1 if each in lost else 1 for each in PARTITIONS}
    broker.ask("create_topics", [NewTopic("b", ((1,),), {})])
    assert broker.state("b").leader == 1, "what is new has nothing to lose"
    disks.close()


def test_no_log_on_a_dead_disk_is_made_anew_of_a_topic_that_had_no_id(tmp_path: Path) -> None:
    """The controller takes the topic in once a broker has written its id back: as a new one, of
    which a broker that leads it with a dead disk would make its log anew."""
    first, second = tmp_path / "first", tmp_path / "second"
    cluster = Cluster(3)
    cluster.brokers.pop(1).store.close()
    broker, disks = start_on(cluster, first, second)
    cluster.controller.ask("create_topics", [NewTopic("a", ((1, 2),) * len(PARTITIONS), {})])
    lost, kept = lost_and_kept(disks)
    die(cluster, disks, second)
    cluster.logs[1].clear()
    replicas = {str(each.partition): [1, 2] for each in PARTITIONS}
    cluster.tree.put("/brokers/topics/a", json.dumps({"version": 2, "partitions": replicas}))
    cluster.start(3)
    broker, disks = start_on(cluster, first, second)
    assert cluster.controller.id == 3
    assert "a" not in broker.image.topics
    cluster.start(2)
    assert lost_and_kept(disks) == ([], kept)
    led = [each for each in PARTITIONS if broker.state("a", each.partition).leader == 1]
    assert led == kept, f"not {lost}"
    disks.close()
