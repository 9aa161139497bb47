"""More faults on the cluster of `test_faults`: of ZooKeeper, of clocks, of what lies in either.

They run where `ODRADEK_ROUNDS` is set (`conftest`).
"""

import asyncio
import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("kazoo")

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from tests.system.cluster.history import read_log
from tests.system.cluster.polling import PATIENCE_S, until
from tests.system.cluster.proxies import broker
from tests.system.cluster.running_cluster import (
    BROKERS,
    PARTITIONS,
    RunningCluster,
)

from odradek.client import Admin
from odradek.testing.processes import BrokerProcess, ProcessFailed

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster faults")]


def test_the_controller_and_a_leader_are_killed_at_once(cluster: RunningCluster) -> None:
    """One broker of three is fewer than acks=all asks for: it must wait, not acknowledge alone."""
    with cluster.load("two-killed") as load:
        controller, other = cluster.controller(), cluster.another_leader()
        (left,) = set(BROKERS) - {controller, other}
        cluster.brokers[controller].kill()
        cluster.brokers[other].kill()
        cluster.brokers[left].await_saying("This broker is the controller, of epoch")
        until(lambda: cluster.state("two-killed") == (left, {left}), "one leads alone")
        before = sum(load.history.counts().values())
        cluster.restore()
        load.await_progress()
        assert before < sum(load.history.counts().values())


def test_a_controller_wakes_from_a_long_pause(cluster: RunningCluster) -> None:
    """Its decisions are of the past, and may not be obeyed."""
    with cluster.load("controller-paused") as load:
        sleeper = cluster.controller()
        cluster.brokers[sleeper].pause()
        until(lambda: cluster.controller() != sleeper, "there is another controller")
        load.await_progress()
        cluster.brokers[sleeper].resume()
        cluster.brokers[sleeper].await_saying("This broker is no longer the controller")
        cluster.brokers[sleeper].await_saying("Registered again, under epoch")


def test_two_brokers_are_cut_off_from_each_other(cluster: RunningCluster) -> None:
    """Both live for the ensemble: only the ISR may change, and acks=all must not wait for ever."""
    with cluster.load("apart") as load:
        one, other = (each for each in BROKERS if each != cluster.controller())
        with cluster.board.cut(broker(one), broker(other)):
            cluster.brokers[one].await_saying(rf"apart-\d: out of sync: \[{other}\]")
            load.await_progress()
        for each in cluster.brokers.values():
            assert "ZooKeeper session has ended" not in each.said()


def test_the_leading_zookeeper_is_killed(cluster: RunningCluster) -> None:
    """An ensemble survives the loss of one; so do the sessions that it kept."""
    with cluster.load("ensemble") as load:
        leader = next(node for node in cluster.ensemble.nodes if node.mode == "leader")
        leader.kill()
        load.await_progress()
        until(
            lambda: any(n.mode == "leader" for n in cluster.ensemble.nodes if n is not leader),
            "another ZooKeeper leads",
        )
        leader.start()
        leader.await_serving()


def test_nothing_is_guessed_while_there_is_no_zookeeper(cluster: RunningCluster) -> None:
    """Brokers that resigned would make an outage of the whole cluster out of one of ZooKeeper;
    brokers that elected somebody would do it behind each other's backs."""
    with cluster.load("silence") as load:
        states = [cluster.state("silence", each) for each in range(3)]
        victim, *others = sorted(BROKERS)
        for node in cluster.ensemble.nodes:
            node.kill()
        for each in cluster.brokers.values():
            each.await_saying("The connection to ZooKeeper is lost; nothing is decided meanwhile")
        for _ in range(4):
            load.await_progress()
        for each in cluster.brokers.values():
            assert "ZooKeeper session has ended" not in each.said()
        cluster.brokers[victim].kill()
        for node in cluster.ensemble.nodes:
            node.start()
        until(lambda: cluster.registered() <= set(others), "the killed one is missed")
        assert states
        cluster.await_others_lead(victim, "silence")
        load.await_progress()
        cluster.restore()


def test_a_longer_log_gives_way_after_an_unclean_election(cluster: RunningCluster) -> None:
    """Two histories would live on in one partition."""
    topic = "longer"
    cluster.create(topic, 1, unclean_leader_election_enable="true", min_insync_replicas="1")
    leader = cluster.leader(topic)
    # A controller that reaches nobody goes on being one: nobody could leave the ISR.
    behind = next(each for each in BROKERS if each not in (leader, cluster.controller()))
    (other,) = set(BROKERS) - {leader, behind}
    produce(cluster, topic, *(f"both {number}" for number in range(5)))
    for each in cluster.brokers.values():
        each.mark()
    with cluster.board.cut(broker(behind), broker(leader), broker(other)):
        produce(cluster, topic, *(f"lost {number}" for number in range(20)))
        until(lambda: cluster.state(topic) == (leader, {leader, other}), "one has fallen behind")
        for each in (leader, other):
            cluster.brokers[each].kill()
        until(lambda: cluster.state(topic) == (behind, {behind}), "the one behind leads")
    cluster.brokers[behind].await_saying(
        f"{topic}-0: broker {behind} leads, which was not in sync: what it has missed is lost"
    )
    produce(cluster, topic, "kept")
    cluster.restore()
    cluster.await_in_sync(topic, 1)
    cluster.await_same_logs(topic, 1)
    values = read_log(cluster.bootstrap_servers, topic, 1)[0].values()
    assert list(values) == [*(f"both {number}" for number in range(5)), "kept"]
    cluster.brokers[leader].await_saying(f"{topic}-0 (was cut to|is at) 5")


def test_a_second_broker_with_the_same_number_does_not_start(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    """Two would answer for the same replicas."""
    stranger = BrokerProcess(
        tmp_path / "data", "--zookeeper", cluster.ensemble.connect, "--broker-id", "2"
    )
    said = r"Broker 2 is in this cluster already, at [\w.:]+; give this one another broker.id"
    with pytest.raises(ProcessFailed, match=said), stranger:
        pytest.fail("it started")
    assert cluster.registered() == set(BROKERS)


def test_a_directory_of_another_cluster_is_left_alone(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    """Its records would be taken for those of topics that have the same names here."""
    data = tmp_path / "data"
    with BrokerProcess(data, "--broker-id", "7") as elsewhere:
        produce_at(elsewhere.bootstrap_servers, "theirs", "one")
    before = contents(data)
    stranger = BrokerProcess(data, "--zookeeper", cluster.ensemble.connect, "--broker-id", "7")
    with pytest.raises(ProcessFailed, match="belongs to broker 7 of cluster"), stranger:
        pytest.fail("it started")
    assert contents(data) == before
    assert cluster.registered() == set(BROKERS)


def test_garbage_in_zookeeper_is_passed_over(cluster: RunningCluster) -> None:
    """One damaged node would stop a whole cluster, now or at the next election."""
    garbage = {
        "/brokers/ids/9": "a broker is ignored: ",
        "/brokers/topics/junk": "a topic is ignored: ",
        "/admin/reassign_partitions": "reassignments are not begun: ",
        "/isr_change_notification/isr_change_0000000007": "is ignored: ",
    }
    # The store numbers these: one out of line has every broker read everything again.
    announced = "/config/changes/config_change_"
    with cluster.load("garbage") as load:
        for path in garbage:
            cluster.zookeeper.create(path, b"\xff{")
        path = cluster.zookeeper.create(announced, b"\xff{", sequence=True)
        garbage[path] = "an announcement is ignored: "
        try:
            for line in garbage.values():
                cluster.brokers[cluster.controller()].await_saying(line)
            load.await_progress()
            victim = cluster.controller()
            cluster.brokers[victim].kill()
            until(lambda: cluster.controller() != victim, "there is another controller")
            for path in ("/brokers/ids/9", "/brokers/topics/junk"):
                cluster.brokers[cluster.controller()].await_saying(garbage[path])
            cluster.await_others_lead(victim, "garbage")
            load.await_progress()
        finally:
            for path in garbage:
                if cluster.zookeeper.exists(path):
                    cluster.zookeeper.delete(path)
        cluster.restore()


def test_clocks_jump(cluster: RunningCluster) -> None:
    """Life and lag are a matter of how long, not of what time it is."""
    with cluster.load("clocks") as load:
        leaders = [cluster.leader("clocks", each) for each in range(PARTITIONS)]
        for jump in (signal.SIGUSR1, signal.SIGUSR2):
            for each in cluster.brokers.values():
                os.kill(each.pid, jump)
                load.await_progress()
        assert [cluster.leader("clocks", each) for each in range(PARTITIONS)] == leaders
        for each in cluster.brokers.values():
            assert "ZooKeeper session has ended" not in each.said()
            assert "out of sync" not in each.said()


def test_clients_find_the_next_controller(cluster: RunningCluster) -> None:
    """As with Apache Kafka on ZooKeeper, whoever is not the controller says NOT_CONTROLLER; who has
    remembered the one before asks again, and is served."""
    for name in ("first", "second"):
        cluster.create(f"controller-{name}")
    admin = AdminClient(
        {"bootstrap.servers": cluster.bootstrap_servers, "topic.metadata.refresh.interval.ms": 500}
    )
    admin.list_topics(timeout=PATIENCE_S)
    before = cluster.controller()
    cluster.brokers[before].stop()
    cluster.brokers[before].kill()
    cluster.restore()
    assert cluster.controller() != before
    errors: list[int] = []

    def is_deleted() -> bool:
        try:
            admin.delete_topics(["controller-first"])["controller-first"].result(PATIENCE_S)
        except KafkaException as error:
            errors.append(error.args[0].code())
            return False
        return True

    until(is_deleted, "the topic is deleted", lambda: errors)
    assert set(errors) <= {KafkaError.NOT_CONTROLLER}

    async def delete() -> dict[str, object]:
        async with Admin(f"127.0.0.1:{cluster.brokers[before].port}") as ours:
            return dict(await ours.delete_topics(["controller-second"]))

    assert asyncio.run(delete()) == {"controller-second": None}


def produce(cluster: RunningCluster, topic: str, *values: str) -> None:
    produce_at(cluster.bootstrap_servers, topic, *values)


def produce_at(bootstrap_servers: str, topic: str, *values: str) -> None:
    """Sends values to partition 0; returns when all replicas in sync have them."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all"})
    for value in values:
        producer.produce(
            topic, value, partition=0, on_delivery=lambda error, _: error and failed.append(error)
        )
    assert producer.flush(PATIENCE_S) == 0
    assert not failed, failed


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder, but for locks and what says how it was left."""
    return {
        str(each.relative_to(folder)): each.read_bytes()
        for each in folder.rglob("*")
        if each.is_file() and each.suffix in (".log", ".properties")
    }
