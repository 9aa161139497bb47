"""Faults on a cluster of three processes that meet in an ensemble of three ZooKeepers.

While producers and consumers of other people's libraries are at work, brokers are killed, stopped
where they stand, cut off and restarted. Afterwards the history of the clients is compared with the
log (`history`), the logs of the replicas with each other, and the brokers' own logs say what has
happened. `ODRADEK_ROUNDS` has the last test go through all faults so many times.
"""

import contextlib
import os
import random
import subprocess
import sys
from collections.abc import Callable

import pytest

pytest.importorskip("kazoo")

from tests.deadlines import deadline_s
from tests.rounds import rounds
from tests.system.cluster.faulty_machine import DISK_FAILS, DISK_HAS_ROOM, DISK_IS_FULL
from tests.system.cluster.history import Load
from tests.system.cluster.polling import until
from tests.system.cluster.proxies import ZOOKEEPER, broker
from tests.system.cluster.running_cluster import (
    BROKERS,
    EXPIRED,
    PARTITIONS,
    STOOD_STILL,
    LoggedBroker,
    RunningCluster,
)

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster faults")]

ROUNDS = rounds(1)
# What of `tests/wire` is quick and asks any broker: libraries, groups, our own client.
QUICK_SUITES = [
    *(
        f"tests/wire/libraries/test_{name}.py"
        for name in ("kafka_python", "aiokafka", "confluent", "kcat", "kafkajs", "transactions")
    ),
    "tests/wire/groups/test_groups.py",
    *(
        f"tests/wire/client/test_{name}.py"
        for name in ("admin", "consumer", "consumer_groups", "producer", "blocking_client")
    ),
    "tests/wire/client/tools/test_transactions_tool.py",
]
# What needs a JVM for every line; groups with Java's clients are in `test_consumer_protocol`.
JAVA_TESTS = [
    "tests/wire/libraries/test_java_tools.py::test_a_topics_life",
    "tests/wire/libraries/test_java_tools.py::test_configs_and_deleted_records",
    "tests/wire/libraries/test_java_tools.py::test_reassignments_that_are_none",
]
# Reading takes a controller several answers, each as late as this.
SLOW_READ_S = 0.25
SUITE_TIMEOUT_S = deadline_s(600)
# Of a topic, or of all brokers where there is none.
CHANGES = [
    ("settings", "segment.bytes", "16384"),
    ("settings", "max.compaction.lag.ms", "1000"),
    # More than the topic's longest: a pair that no topic could have been given at once.
    ("", "log.cleaner.min.compaction.lag.ms", "5000"),
    ("", "log.cleaner.min.cleanable.ratio", "0.2"),
    ("", "log.cleaner.min.compaction.lag.ms", "0"),
    ("settings", "min.insync.replicas", "1"),
    ("settings-transactions", "segment.ms", "1000"),
    ("settings", "min.insync.replicas", "2"),
]


def test_a_leader_is_killed(cluster: RunningCluster) -> None:
    """Its acknowledged records would be gone with it."""
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
    """No broker would elect leaders any more."""
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
            assert "ZooKeeper session has ended" not in cluster.brokers[lonely].said()
        cluster.brokers[lonely].await_saying(EXPIRED)
        cluster.brokers[lonely].await_saying("Registered again, under epoch")


def test_a_log_directory_fails(cluster: RunningCluster) -> None:
    """The partitions on it would have no leader, or one that answers every request with an
    error."""
    with cluster.load("disk") as load:
        victim = cluster.another_leader()
        disk = cluster.brokers[victim].bad_disk
        lost = [each for each in range(PARTITIONS) if (disk / f"disk-{each}").exists()]
        assert lost
        cluster.brokers[victim].signal(DISK_FAILS)
        cluster.brokers[victim].await_saying(f"{disk} is offline: ")

        def is_out() -> bool:
            states = [cluster.state("disk", each) for each in lost]
            return all(leader not in (-1, victim) and victim not in isr for leader, isr in states)

        until(is_out, f"broker {victim} leads nothing of what it has lost")
        load.await_progress()
        # Whoever is elected now hears of it from the broker itself.
        controller = cluster.controller()
        cluster.brokers[controller].stop()
        cluster.brokers[controller].kill()
        cluster.restore()
        load.await_progress()
        assert is_out()
        cluster.brokers[victim].kill()
        cluster.restore()


def test_a_disk_is_full_for_a_while(cluster: RunningCluster) -> None:
    """Every append is refused, those of coordinators too: what is decided may not be forgotten."""
    with cluster.load("full") as load:
        victim = cluster.another_leader()
        cluster.brokers[victim].signal(DISK_IS_FULL)
        cluster.brokers[victim].await_saying("No space left on device")
        cluster.brokers[victim].signal(DISK_HAS_ROOM)
        load.await_progress()
        assert " is offline: " not in cluster.brokers[victim].said()


def test_a_replica_is_slow(cluster: RunningCluster) -> None:
    """Producers wait for it, as long as it is in sync; nobody else may."""
    with cluster.load("slow") as load:
        slow, *others = BROKERS
        with cluster.board.slow(broker(slow), *map(broker, others), delay_s=0.2):
            load.await_progress()


def test_settings_change_under_load(cluster: RunningCluster) -> None:
    """A legal one would wedge the follower of the metadata, on every broker."""
    with cluster.load("settings") as load:
        for topic, name, value in CHANGES:
            cluster.configure(topic, name, value)
            load.await_progress(1)
        for each in cluster.brokers.values():
            assert "Halting" not in each.said()


def test_a_controller_is_killed_while_it_reads(cluster: RunningCluster) -> None:
    """The third one finds what two have left half done."""
    with cluster.load("reading") as load:
        assert cluster.led_by(cluster.controller(), "reading")
        controller_killed_while_it_reads(cluster, load, cluster.controller())
        load.await_progress()


def test_a_rolling_restart_is_not_noticed(cluster: RunningCluster) -> None:
    """A cluster in use could not be upgraded: `load` asserts that no error reaches a client."""
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
    """The things that hold with one broker hold with three: `tests/wire` can be told to ask for
    replicas."""
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


Fault = Callable[[RunningCluster, Load, int], None]


def killed(cluster: RunningCluster, load: Load, broker_id: int) -> None:
    cluster.brokers[broker_id].kill()
    cluster.await_others_lead(broker_id, load.topic)
    cluster.restore()


def paused(cluster: RunningCluster, load: Load, broker_id: int) -> None:
    cluster.brokers[broker_id].pause()
    cluster.await_others_lead(broker_id, load.topic)
    cluster.brokers[broker_id].resume()


def restarted(cluster: RunningCluster, load: Load, broker_id: int) -> None:
    assert cluster.brokers[broker_id].stop() == 0
    cluster.brokers[broker_id].kill()
    cluster.restore()


def cut_off(cluster: RunningCluster, load: Load, broker_id: int) -> None:
    others = [broker(each) for each in BROKERS if each != broker_id]
    with cluster.board.cut(broker(broker_id), ZOOKEEPER, *others):
        cluster.await_others_lead(broker_id, load.topic)


def slowed(cluster: RunningCluster, load: Load, broker_id: int) -> None:
    """Its replicas are slow, and in sync."""
    others = [broker(each) for each in BROKERS if each != broker_id]
    with cluster.board.slow(broker(broker_id), *others, delay_s=0.1):
        load.await_progress()
        cluster.await_in_sync(load.topic)


def filled(cluster: RunningCluster, load: Load, broker_id: int) -> None:
    """It refuses every write until there is room again."""
    cluster.brokers[broker_id].mark()
    cluster.brokers[broker_id].signal(DISK_IS_FULL)
    cluster.brokers[broker_id].await_saying("No space left on device")
    cluster.brokers[broker_id].signal(DISK_HAS_ROOM)


def disk_lost(cluster: RunningCluster, load: Load, broker_id: int) -> None:
    """One of its disks fails, and is well again when it is started anew."""
    victim = cluster.brokers[broker_id]
    victim.mark()
    victim.signal(DISK_FAILS)
    victim.await_saying(f"{victim.bad_disk} is offline: ")
    load.await_progress()
    victim.kill()
    cluster.restore()


def settings_changed(cluster: RunningCluster, load: Load, broker_id: int) -> None:
    for name, value in (("segment.bytes", "16384"), ("max.compaction.lag.ms", "1000")):
        cluster.configure(load.topic, name, value)


def controller_killed_while_it_reads(cluster: RunningCluster, load: Load, broker_id: int) -> None:
    """Two controllers are killed one after the other, the second before it has decided anything:
    what it reads comes slowly. It elects leaders as soon as it has read everything."""
    first = cluster.controller()
    led = cluster.led_by(first, load.topic)
    others = {number: each for number, each in cluster.brokers.items() if number != first}
    with contextlib.ExitStack() as slow:
        for number, each in others.items():
            each.mark()
            slow.enter_context(cluster.board.slow(broker(number), ZOOKEEPER, delay_s=SLOW_READ_S))
        cluster.brokers[first].kill()
        second = one_of(others, "This broker is the controller, of epoch")
        cluster.brokers[second].kill()
        assert cluster.led_by(first, load.topic) == led, "it had read everything"
    (third,) = others.keys() - {second}
    cluster.brokers[third].await_saying("This broker is the controller, of epoch")
    cluster.restore()


def one_of(brokers: dict[int, LoggedBroker], text: str) -> int:
    """The id of the first broker whose log has a text since the mark; waits for it."""

    def who() -> list[int]:
        return [broker_id for broker_id, each in brokers.items() if text in each.said()]

    until(who, f"one of {sorted(brokers)} says {text!r}")
    return who()[0]


FAULTS: list[Fault] = [
    killed,
    paused,
    restarted,
    cut_off,
    slowed,
    filled,
    disk_lost,
    settings_changed,
    controller_killed_while_it_reads,
]


def test_one_fault_after_another(cluster: RunningCluster) -> None:
    """One fault must not leave behind what the next one needs."""
    rng = random.Random(20261122)
    with cluster.load("rounds") as load:
        for _ in range(ROUNDS):
            for fault in rng.sample(FAULTS, len(FAULTS)):
                fault(cluster, load, rng.choice(BROKERS))
                load.await_progress()
                cluster.await_in_sync("rounds")
