"""Topics' nodes that a tool of old, or a hand, writes over as the controller goes: processes, with
clients at work. No acknowledged record may be lost, and no replica its log."""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count

import pytest

pytest.importorskip("kazoo")

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.system.cluster.history import read_log
from tests.system.cluster.polling import PATIENCE_S, until
from tests.system.cluster.proxies import broker
from tests.system.cluster.running_cluster import BROKERS, PARTITIONS, RunningCluster

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster faults")]


def write_as_the_controller_goes(cluster: RunningCluster, topic: str, text: bytes) -> int:
    """Writes the node and removes that of the controller at once; returns the next controller."""
    before = cluster.zookeeper.get("/controller_epoch")[1].version
    with cluster.zookeeper.transaction() as both:
        both.set_data(f"/brokers/topics/{topic}", text)
        both.delete("/controller")
    until(
        lambda: cluster.zookeeper.get("/controller_epoch")[1].version > before,
        "there is another controller",
    )
    return cluster.controller()


def node_of(cluster: RunningCluster, topic: str) -> dict[str, object]:
    found = json.loads(cluster.zookeeper.get(f"/brokers/topics/{topic}")[0])
    assert isinstance(found, dict)
    return found


def only(broker_id: int) -> bytes:
    """A node without an id, by which all others would give their replicas up."""
    partitions = {str(index): [broker_id] for index in range(PARTITIONS)}
    return json.dumps({"version": 2, "partitions": partitions}).encode()


def assert_put_back(cluster: RunningCluster, topic: str, before: dict[str, object]) -> None:
    until(lambda: node_of(cluster, topic) == before, f"{topic} is as it was")
    for each in cluster.brokers.values():
        for partition in range(PARTITIONS):
            assert any((disk / f"{topic}-{partition}").is_dir() for disk in each.disks)
        assert f"{topic}-0 is set aside" not in each.said()


def test_a_node_without_id_and_with_one_replica(cluster: RunningCluster) -> None:
    """The others would delete their logs, and the topic would be another."""
    with cluster.load("written-over"):
        before = node_of(cluster, "written-over")
        write_as_the_controller_goes(cluster, "written-over", only(1))
        assert_put_back(cluster, "written-over", before)


def test_a_node_that_is_written_over_for_two_controllers(cluster: RunningCluster) -> None:
    """The second controller would begin on what the first has half put right."""
    with cluster.load("twice"):
        before = node_of(cluster, "twice")
        for broker_id in (1, 2, 3):
            write_as_the_controller_goes(cluster, "twice", only(broker_id))
        assert_put_back(cluster, "twice", before)


def test_a_node_that_is_not_understood(cluster: RunningCluster) -> None:
    """The topic would be taken for deleted."""
    with cluster.load("garbled") as load:
        path = "/brokers/topics/garbled"
        good = cluster.zookeeper.get(path)[0]
        for garbage in (b"?", b'{"version":3,"topic_id":7,"partitions":{"0":"x"}}'):
            write_as_the_controller_goes(cluster, "garbled", garbage)
            load.await_progress()
        cluster.zookeeper.set(path, good)
        assert_put_back(cluster, "garbled", json.loads(good))


def without_id(node: dict[str, object]) -> bytes:
    """The node as a tool of old writes it."""
    return json.dumps({"version": 2, "partitions": node["partitions"]}).encode()


def kill(cluster: RunningCluster, broker_id: int) -> None:
    """Returns when the broker counts as gone."""
    cluster.brokers[broker_id].kill()
    until(lambda: broker_id not in cluster.registered(), "its session is over")


def write_records(
    cluster: RunningCluster, topic: str, replicas: Sequence[int], partitions: int = PARTITIONS
) -> None:
    """Makes a topic on some brokers, and writes ten records to each of its partitions."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    assignment = [list(replicas)] * partitions
    config = {"min.insync.replicas": str(len(replicas))}
    new = NewTopic(topic, partitions, replica_assignment=assignment, config=config)
    admin.create_topics([new])[topic].result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in range(10 * partitions):
        producer.produce(topic, str(number).encode(), partition=number % partitions)
    assert producer.flush(PATIENCE_S) == 0


def elect(cluster: RunningCluster, newcomer: int, topic: str, text: bytes) -> None:
    """Makes a broker that comes the controller, which nobody can tell anything, as the topic's node
    is written over."""
    others = [each for each in BROKERS if each != newcomer]
    for each in others:
        cluster.brokers[each].pause()
    assert write_as_the_controller_goes(cluster, topic, text) == newcomer
    for each in others:
        cluster.brokers[each].resume()


def control_untold(cluster: RunningCluster, newcomer: int, topic: str, text: bytes) -> None:
    """Starts a broker that is told nothing before it is the controller; see `elect`."""
    others = [each for each in BROKERS if each != newcomer]
    with ThreadPoolExecutor(1) as thread:
        with cluster.board.cut(broker(newcomer), *map(broker, others)):
            started = thread.submit(cluster.brokers[newcomer].start)
            until(lambda: newcomer in cluster.registered(), "the newcomer lives")
            elect(cluster, newcomer, topic, text)
        started.result()


def test_a_node_without_id_for_a_controller_that_was_never_told(cluster: RunningCluster) -> None:
    """The brokers with the logs live: it would give the topic another id, and they set them
    aside."""
    newcomer = cluster.another_leader()
    others = [each for each in BROKERS if each != newcomer]
    kill(cluster, newcomer)
    write_records(cluster, "untold", others)
    before = node_of(cluster, "untold")
    control_untold(cluster, newcomer, "untold", without_id(before))
    until(lambda: node_of(cluster, "untold") == before, "the topic has its id")
    log = read_log(cluster.bootstrap_servers, "untold", PARTITIONS)
    assert [len(log[each]) for each in range(PARTITIONS)] == [10] * PARTITIONS
    for each in others:
        assert "set aside" not in cluster.brokers[each].said()


def on_the_bad_disk(cluster: RunningCluster, owner: int, name: str) -> str:
    """Makes topics on a broker until one has its log on the disk that can fail; new logs go to the
    disk with the fewest."""
    for number in count():
        topic = f"{name}-{number}"
        write_records(cluster, topic, [owner], partitions=1)
        if (cluster.brokers[owner].bad_disk / f"{topic}-0").is_dir():
            return topic
    raise AssertionError("count() never ends")


@contextmanager
def dead_disk(cluster: RunningCluster, broker_id: int) -> Iterator[None]:
    """The disk of a broker that does not run cannot be read."""
    disk = cluster.brokers[broker_id].bad_disk
    away = disk.rename(disk.with_name(f"{disk.name}-away"))
    disk.write_text("a file where a directory should be", encoding="utf-8")
    try:
        yield
    finally:
        disk.unlink()
        away.rename(disk)


@pytest.mark.parametrize("controls", [False, True])
def test_a_node_without_id_while_the_disk_with_the_only_log_is_dead(
    cluster: RunningCluster, controls: bool
) -> None:
    """The controller, perhaps the broker with the dead disk, would give the topic another id, and
    the log be set aside once the disk is back."""
    owner = cluster.another_leader()
    topic = on_the_bad_disk(cluster, owner, f"alone-{controls}")
    before = node_of(cluster, topic)
    nameless = without_id(before)
    kill(cluster, owner)
    with dead_disk(cluster, owner):
        if controls:
            control_untold(cluster, owner, topic, nameless)
        else:
            write_as_the_controller_goes(cluster, topic, nameless)
            cluster.brokers[owner].start()
        # They are led once the controller has read all topics, and told all brokers of them.
        for number in range(2):
            cluster.create(f"{topic}-after-{number}")
        assert node_of(cluster, topic) in (before, json.loads(nameless))
        kill(cluster, owner)
    cluster.brokers[owner].start()
    until(lambda: node_of(cluster, topic) == before, "the topic has its id")
    assert len(read_log(cluster.bootstrap_servers, topic, 1)[0]) == 10
    assert "set aside" not in cluster.brokers[owner].said()
