"""Topics' nodes that a tool of old, or a hand, writes over as the controller goes: processes, with
clients at work. No acknowledged record may be lost, and no replica its log."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

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


def write_records(cluster: RunningCluster, topic: str, replicas: Sequence[int]) -> None:
    """Makes a topic on some brokers, and writes to all of its partitions."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    assignment = [list(replicas)] * PARTITIONS
    new = NewTopic(topic, PARTITIONS, replica_assignment=assignment)
    admin.create_topics([new])[topic].result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in range(10 * PARTITIONS):
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
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


def test_a_node_without_id_for_a_controller_that_was_never_told(cluster: RunningCluster) -> None:
    """The brokers with the logs live: it would give the topic another id, and they set them
    aside."""
    newcomer = cluster.another_leader()
    others = [each for each in BROKERS if each != newcomer]
    cluster.brokers[newcomer].kill()
    until(lambda: newcomer not in cluster.registered(), "its session is over")
    write_records(cluster, "untold", others)
    before = node_of(cluster, "untold")
    nameless = {"version": 2, "partitions": before["partitions"]}
    with ThreadPoolExecutor(1) as thread:
        with cluster.board.cut(broker(newcomer), *map(broker, others)):
            started = thread.submit(cluster.brokers[newcomer].start)
            until(lambda: newcomer in cluster.registered(), "the newcomer lives")
            elect(cluster, newcomer, "untold", json.dumps(nameless).encode())
        started.result()
    until(lambda: node_of(cluster, "untold") == before, "the topic has its id")
    log = read_log(cluster.bootstrap_servers, "untold", PARTITIONS)
    assert [len(log[each]) for each in range(PARTITIONS)] == [10] * PARTITIONS
    for each in others:
        assert "set aside" not in cluster.brokers[each].said()
