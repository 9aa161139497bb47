"""Chains of transactions on three processes: with nothing wrong, and under kills, pauses, cuts and
slow replicas, one at a time and two at once.

Every input is in the output once, as readers of committed records see it all the while: whoever is
shown an aborted record, or one again, has it twice, since chains carry on what they have aborted.
Clients meet no fatal error where nothing is wrong, and no more than the faults explain where
something is.
"""

import contextlib
import itertools
import shutil
from pathlib import Path

import pytest

pytest.importorskip("kazoo")

from confluent_kafka import Producer
from tests.deadlines import deadline_s
from tests.system.cluster.chains import (
    CLIENTS,
    PARTITIONS,
    Carried,
    Chain,
    ProgramChain,
    java_command,
    met_without_reason,
    running,
)
from tests.system.cluster.polling import until
from tests.system.cluster.proxies import broker
from tests.system.cluster.running_cluster import BROKERS, RunningCluster
from tools import peers

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster faults")]

INPUTS = 45
SLOW_S = 0.1
PROGRAMS = ("java", "franz-go")
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")
BALANCERS = ("range", "sticky", "cooperative-sticky")


class Feed:
    """Numbers that are written to a topic, and the chains that carry them."""

    def __init__(self, cluster: RunningCluster, source: str, targets: list[str]) -> None:
        servers = cluster.bootstrap_servers
        self._source = source
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        self._numbers = itertools.count()
        self.written = 0
        self.outputs = {each: Carried(servers, each) for each in targets}

    def write(self, count: int) -> None:
        for number in itertools.islice(self._numbers, count):
            value, partition = str(number).encode(), number % PARTITIONS
            self._producer.produce(self._source, value, partition=partition)
            self.written += 1
        assert self._producer.flush(deadline_s(60)) == 0

    def await_carried(self) -> None:
        """Returns when every chain has carried everything."""
        for target, output in self.outputs.items():
            until(
                lambda: output.look() >= self.written,  # noqa: B023
                f"{target} has {self.written} records",
                lambda: sorted(set(range(self.written)) - set(output.values)),  # noqa: B023
            )

    def check(self) -> None:
        """Everything once."""
        for target, output in self.outputs.items():
            output.look()
            output.close()
            assert sorted(output.values) == list(range(self.written)), target


@pytest.mark.parametrize("version", ["1", "2"])
def test_franz_go_carries_each_record_once(
    cluster: RunningCluster, tmp_path: Path, version: str
) -> None:
    """Fails when a producer is told INVALID_TXN_STATE, or anything else that ends it, though no
    broker has failed: several members begin and end transactions while their group balances."""
    program = franz_go()
    source, servers = f"go-source-{version}", cluster.bootstrap_servers
    targets = [f"go-{each}-{version}" for each in BALANCERS]
    for topic in (source, *targets):
        cluster.create(topic)
    feed = Feed(cluster, source, targets)
    feed.write(INPUTS)
    commands = {
        each: [program, servers, source, each, each, name, version, "once"]
        for each, name in zip(targets, BALANCERS, strict=True)
    }
    chains = [ProgramChain(*each, tmp_path) for each in commands.items()]
    with running(*chains):
        feed.await_carried()
        feed.write(INPUTS)
        feed.await_carried()
    feed.check()
    for each in chains:
        assert each.met[-1].startswith("ended "), each.met


def test_chains_go_on_under_faults(cluster: RunningCluster, tmp_path: Path) -> None:
    """Fails when a chain of any client loses a record, has one twice, stands still, or is told what
    no fault explains."""
    source, servers = "chained", cluster.bootstrap_servers
    cluster.create(source)
    commands, missing = {}, []
    for name in PROGRAMS:
        try:
            commands[name] = program_command(name, servers, source, f"chain-{name}", tmp_path)
        except peers.PeerUnavailable as reason:
            missing.append(str(reason))
    targets = {name: f"chain-{name}" for name in (*CLIENTS, *commands)}
    for target in targets.values():
        cluster.create(target)
    feed = Feed(cluster, source, list(targets.values()))
    chains = {name: Chain(name, servers, source, targets[name]) for name in CLIENTS}
    programs = {name: ProgramChain(targets[name], commands[name], tmp_path) for name in commands}
    with running(*chains.values(), *programs.values()):
        feed.write(INPUTS)
        feed.await_carried()
        for fault in FAULTS:
            with fault(cluster, source):
                feed.write(INPUTS)
                feed.await_carried()
            cluster.restore()
            for topic in (source, *targets.values(), *INTERNAL_TOPICS):
                cluster.await_in_sync(topic)
        feed.write(INPUTS)
        feed.await_carried()
    feed.check()
    for name, chain in {**chains, **programs}.items():
        assert not met_without_reason(chain.met, len(FAULTS)), (name, chain.met)
    if missing:
        pytest.skip(f"PEER MISSING, NOT TESTED: {missing}")


@contextlib.contextmanager
def killed(cluster: RunningCluster, topic: str):
    """A broker that leads and coordinates is gone."""
    victim = cluster.another_leader()
    cluster.brokers[victim].kill()
    cluster.await_others_lead(victim, topic)
    yield


@contextlib.contextmanager
def paused(cluster: RunningCluster, topic: str):
    """A broker stands still until others lead, and wakes in the middle of what they do."""
    sleeper = cluster.another_leader()
    cluster.brokers[sleeper].pause()
    cluster.await_others_lead(sleeper, topic)
    cluster.brokers[sleeper].resume()
    yield


@contextlib.contextmanager
def cut(cluster: RunningCluster, _topic: str):
    """Two brokers do not reach each other: their replicas wait, until they are out of sync."""
    one, other = sorted(set(BROKERS) - {cluster.controller()})
    with cluster.board.cut(broker(one), broker(other)):
        yield


@contextlib.contextmanager
def slowed(cluster: RunningCluster, topic: str):
    """All that passes between a broker and the others is slow, and its replicas are in sync: every
    record and every marker waits for them."""
    slow, *others = BROKERS
    with cluster.board.slow(broker(slow), *map(broker, others), delay_s=SLOW_S):
        yield
        cluster.await_in_sync(topic)


@contextlib.contextmanager
def killed_beside_a_slow_one(cluster: RunningCluster, topic: str):
    """Of the two that are left, one is slow, and nothing is committed without it."""
    one, other = BROKERS[0], BROKERS[1]
    ways = [broker(each) for each in BROKERS if each != one]
    with cluster.board.slow(broker(one), *ways, delay_s=SLOW_S):
        cluster.brokers[other].kill()
        cluster.await_others_lead(other, topic)
        yield


@contextlib.contextmanager
def killed_while_another_is_paused(cluster: RunningCluster, topic: str):
    """One is left, and can commit nothing before the sleeper wakes and follows it."""
    sleeper, victim = sorted(set(BROKERS) - {cluster.controller()})
    cluster.brokers[sleeper].pause()
    cluster.await_others_lead(sleeper, topic)
    cluster.brokers[victim].kill()
    cluster.await_others_lead(victim, topic)
    cluster.brokers[sleeper].resume()
    yield


FAULTS = (killed, cut, paused, slowed, killed_beside_a_slow_one, killed_while_another_is_paused)


def franz_go() -> str:
    try:
        return peers.franz_go()
    except peers.PeerUnavailable as reason:
        pytest.skip(f"PEER MISSING, NOT TESTED: {reason}")


def program_command(name: str, servers: str, source: str, target: str, home: Path) -> list[str]:
    """How a chain of a program is begun.

    Raises:
        PeerUnavailable: it cannot be had here.
    """
    if name == "java":
        javac = shutil.which("javac")
        if javac is None:
            raise peers.PeerUnavailable("javac is missing")
        tools = (peers.kafka_jars(), peers.java(), javac)
        return java_command(*tools, home, servers, source, target, "endless")
    balancer = "cooperative-sticky"
    return [peers.franz_go(), servers, source, target, target, balancer, "2", "restart"]
