"""Faults on a cluster of three processes that meet in an ensemble of three ZooKeepers.

While producers and consumers of other people's libraries are at work, brokers are killed, stopped
where they stand, cut off and restarted. Afterwards the history of the clients is compared with the
log (`history`), the logs of the replicas with each other, and the brokers' own logs say what has
happened. `ODRADEK_ROUNDS` has the last test go on for so many faults.
"""

import os
import random
import subprocess
import sys

import pytest

pytest.importorskip("kazoo")

from tests.system.cluster.polling import until
from tests.system.cluster.proxies import ZOOKEEPER, broker
from tests.system.cluster.running_cluster import BROKERS, EXPIRED, STOOD_STILL, RunningCluster

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster faults")]

ROUNDS = int(os.environ.get("ODRADEK_ROUNDS", "1"))
# What of `tests/wire` is quick and asks any broker: libraries, groups, our own client.
QUICK_SUITES = [
    *(
        f"tests/wire/libraries/test_{name}.py"
        for name in ("kafka_python", "aiokafka", "confluent", "kcat", "kafkajs", "transactions")
    ),
    "tests/wire/groups/test_groups.py",
    *(
        f"tests/wire/client/{name}.py"
        for name in ("test_admin", "test_consumer", "test_producer", "test_blocking_client")
    ),
    "tests/wire/client/tools/test_transactions_tool.py",
]
# What needs a JVM for every line; groups with Java's clients are in `test_consumer_protocol`.
JAVA_TESTS = [
    "tests/wire/libraries/test_java_tools.py::test_a_topics_life",
    "tests/wire/libraries/test_java_tools.py::test_configs_and_deleted_records",
    "tests/wire/libraries/test_java_tools.py::test_reassignments_that_are_none",
]
SUITE_TIMEOUT_S = 600


def test_a_leader_is_killed(cluster: RunningCluster) -> None:
    """What it had acknowledged would be gone with it."""
    with cluster.load("leader-killed") as load:
        victim, controller = cluster.another_leader(), cluster.controller()
        cluster.brokers[victim].kill()
        cluster.brokers[controller].await_saying(rf"brokers that are gone: \[{victim}\]")
        cluster.await_others_lead(victim, "leader-killed")
        load.await_progress()
        cluster.restore()
        cluster.brokers[controller].await_saying(rf"brokers that have come: \[{victim}\]")
        cluster.brokers[victim].await_saying("recovered after an unclean end")


def test_the_controller_is_killed(cluster: RunningCluster) -> None:
    """Nobody would elect leaders any more."""
    with cluster.load("controller-killed") as load:
        victim = cluster.controller()
        cluster.brokers[victim].kill()
        until(lambda: cluster.controller() != victim, "there is another controller")
        cluster.brokers[cluster.controller()].await_saying(
            "This broker is the controller, of epoch"
        )
        cluster.await_others_lead(victim, "controller-killed")
        load.await_progress()
        cluster.restore()


def test_a_leader_wakes_from_a_long_pause(cluster: RunningCluster) -> None:
    """It believes that it leads; two leaders would acknowledge different records for one offset."""
    with cluster.load("paused") as load:
        sleeper = cluster.another_leader()
        cluster.brokers[sleeper].pause()
        cluster.await_others_lead(sleeper, "paused")
        load.await_progress()
        cluster.brokers[sleeper].resume()
        cluster.brokers[sleeper].await_saying(STOOD_STILL)
        cluster.brokers[sleeper].await_saying("Registered again, under epoch")


def test_a_broker_is_cut_off_from_the_others_and_from_zookeeper(cluster: RunningCluster) -> None:
    """Clients reach it, and it has not heard that it is taken for dead."""
    with cluster.load("cut-off") as load:
        lonely = cluster.another_leader()
        others = [broker(each) for each in BROKERS if each != lonely]
        with cluster.board.cut(broker(lonely), ZOOKEEPER, *others):
            cluster.await_others_lead(lonely, "cut-off")
            load.await_progress()
            cluster.brokers[lonely].await_saying("The connection to ZooKeeper is lost")
            assert "session with ZooKeeper is over" not in cluster.brokers[lonely].said()
        cluster.brokers[lonely].await_saying(EXPIRED)
        cluster.brokers[lonely].await_saying("Registered again, under epoch")


def test_a_rolling_restart_is_not_noticed(cluster: RunningCluster) -> None:
    """Nobody could upgrade a cluster in use: `load` asserts that no error reaches a client."""
    with cluster.load("rolling") as load:
        for each in cluster.brokers.values():
            assert each.stop() == 0
            assert "Others lead what this broker has led" in each.said()
            each.kill()
            cluster.restore()
            cluster.await_in_sync("rolling")
            load.await_progress()


@pytest.mark.parametrize(
    "suites", [[*QUICK_SUITES, "-m", "not slow"], JAVA_TESTS], ids=["quick", "java"]
)
def test_other_suites_on_three_replicas(cluster: RunningCluster, suites: list[str]) -> None:
    """What holds with one broker holds with three: `tests/wire` can be told to ask for replicas."""
    where = {"ODRADEK_WIRE_BOOTSTRAP": cluster.bootstrap_servers, "ODRADEK_WIRE_REPLICAS": "3"}
    command = [sys.executable, "-m", "pytest", "-q", *suites]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider"],
        env={**os.environ, **where},
        capture_output=True,
        text=True,
        timeout=SUITE_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-12_000:]
    assert " passed" in done.stdout


def killed(cluster: RunningCluster, broker_id: int) -> None:
    cluster.brokers[broker_id].kill()
    cluster.await_others_lead(broker_id, "rounds")
    cluster.restore()


def paused(cluster: RunningCluster, broker_id: int) -> None:
    cluster.brokers[broker_id].pause()
    cluster.await_others_lead(broker_id, "rounds")
    cluster.brokers[broker_id].resume()


def restarted(cluster: RunningCluster, broker_id: int) -> None:
    assert cluster.brokers[broker_id].stop() == 0
    cluster.brokers[broker_id].kill()
    cluster.restore()


def cut_off(cluster: RunningCluster, broker_id: int) -> None:
    others = [broker(each) for each in BROKERS if each != broker_id]
    with cluster.board.cut(broker(broker_id), ZOOKEEPER, *others):
        cluster.await_others_lead(broker_id, "rounds")


def test_one_fault_after_another(cluster: RunningCluster) -> None:
    """What one fault leaves behind must not be what the next one needs."""
    dice = random.Random(20261122)
    with cluster.load("rounds") as load:
        for _ in range(ROUNDS):
            fault = dice.choice([killed, paused, restarted, cut_off])
            fault(cluster, dice.choice(BROKERS))
            load.await_progress()
            cluster.await_in_sync("rounds")
