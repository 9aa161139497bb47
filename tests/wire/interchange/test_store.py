"""The store on real ZooKeeper ensembles: several brokers of one process, on one thread."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kazoo")

from kazoo.client import KazooClient
from tests.deadlines import deadline_s
from tests.unit.metadata.zookeeper.zookeeper_cluster import Broker, Cluster
from tools.zookeeper_node import ZooKeeperEnsemble, ZooKeeperNode, zookeeper_ensemble

from odradek.clock import ManualClock, SystemClock
from odradek.errors import ErrorCode
from odradek.metadata import ConfigResource, NewTopic, PartitionChange
from odradek.metadata.image import NO_CONTROLLER, BrokerRegistration, TopicImage
from odradek.metadata.store import MetadataStoreError
from odradek.metadata.zookeeper import ZooKeeperSettings, generate_broker_id
from odradek.metadata.zookeeper.client import Create, Failure, Refusal
from odradek.metadata.zookeeper.connection.session import KazooSession
from odradek.model import NO_LEADER, TopicPartition
from odradek.testing.processes import BrokerProcess, ProcessFailed
from odradek.timer import SystemTimer

pytestmark = pytest.mark.slow

DEADLINE_S = deadline_s(120)
SESSION_MS = 4_000
TP = TopicPartition("a", 0)


class RealCluster(Cluster):
    """Its brokers keep sessions with an ensemble; their loop is this thread."""

    def __init__(self, connect: str) -> None:
        super().__init__()
        self.connect = connect
        self.clock: Any = SystemClock()
        self.timer = SystemTimer(self.clock)
        self.calls: deque[Callable[[], None]] = deque()
        self.called = threading.Event()

    def add(self, broker_id: int) -> Broker:
        settings = ZooKeeperSettings(self.connect, SESSION_MS, 30_000, 100)
        broken: list[Exception] = []
        session = KazooSession(settings, self.timer, self.clock, self.call, broken.append)
        broker = Broker(self, broker_id, session, broken, unclean=False)
        self.brokers[broker_id] = broker
        return broker

    def call(self, action: Callable[[], None]) -> None:
        self.calls.append(action)
        self.called.set()

    def turn(self) -> None:
        """The actions that are due now; waits a moment when none is."""
        self.called.clear()
        while self.calls:
            self.calls.popleft()()
        self.timer.advance_clock(0)
        self.tree.run()
        if not self.calls:
            self.called.wait(0.01)

    def until(self, is_so: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not is_so():
            assert time.monotonic() < deadline, "it did not come to that"
            self.turn()

    def start(self, broker_id: int) -> Broker:
        broker = self.add(broker_id)
        registered = self.ask(broker_id, "register_broker", broker_id, (), None)
        assert isinstance(registered, BrokerRegistration), registered
        synced = broker.begin("sync")
        self.until(lambda: synced)
        return broker

    def ask(self, broker_id: int, operation: str, *arguments: Any) -> Any:
        return self.ask_of(self.brokers[broker_id], operation, *arguments)

    def ask_of(self, broker: Broker, operation: str, *arguments: Any) -> Any:
        answers = broker.begin(operation, *arguments)
        self.until(lambda: answers)
        return answers[0]

    def agree(self, is_so: Callable[[Broker], object]) -> None:
        self.until(lambda: all(is_so(broker) for broker in self.brokers.values()))

    def create(self, *assignment: tuple[int, ...], name: str = "a") -> TopicImage:
        (topic,) = self.ask(
            max(self.brokers), "create_topics", [NewTopic(name, assignment, {"retention.ms": "5"})]
        )
        assert isinstance(topic, TopicImage), topic
        self.agree(lambda broker: broker.image.topic_by_id(topic.topic_id))
        return topic

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.store.close()
        self.brokers.clear()


@pytest.fixture(scope="module")
def one() -> Iterator[ZooKeeperEnsemble]:
    with zookeeper_ensemble(1) as ensemble:
        yield ensemble


@pytest.fixture(scope="module")
def three() -> Iterator[ZooKeeperEnsemble]:
    with zookeeper_ensemble(3) as ensemble:
        yield ensemble


@pytest.fixture
def cluster(one: ZooKeeperEnsemble, request: pytest.FixtureRequest) -> Iterator[RealCluster]:
    """Three brokers under a root of their own."""
    made = RealCluster(f"{one.connect}/{request.node.name}")
    try:
        for broker_id in (1, 2, 3):
            made.start(broker_id)
        made.agree(lambda broker: sorted(broker.image.brokers) == [1, 2, 3])
        yield made
    finally:
        made.close()


def test_a_life(cluster: RealCluster) -> None:
    """Topics, settings, in-sync sets, a controller that goes, deletion."""
    topic = cluster.create((2, 1, 3), (1, 2), (3, 1))
    resource = ConfigResource.topic("a")
    assert cluster.ask(3, "alter_configs", {resource: {"flush.ms": "7"}}) is None
    expected = {"flush.ms": "7", "retention.ms": "5"}
    cluster.agree(lambda broker: broker.image.config(resource) == expected)
    (changed,) = cluster.ask(2, "change_partitions", [PartitionChange(TP, 0, 2, (2, 3))])
    assert changed.isr == (2, 3)
    cluster.agree(lambda broker: broker.state().isr == (2, 3))
    assert cluster.ask(3, "allocate_producer_ids", 1000) == range(1000)

    cluster.brokers.pop(1).store.close()
    cluster.agree(lambda broker: broker.image.controller_id in (2, 3))
    cluster.agree(lambda broker: broker.state("a", 1).leader == 2)
    cluster.start(1)
    cluster.agree(lambda broker: sorted(broker.image.brokers) == [1, 2, 3])

    assert cluster.ask(1, "delete_topics", [topic.topic_id])[0].name == "a"
    cluster.agree(lambda broker: "a" not in broker.image.topics)
    cluster.until(lambda: not _children(cluster, "/admin/delete_topics"))
    assert _children(cluster, "/brokers/topics") == []
    cluster.create((1,))


def test_a_session_that_expires(cluster: RealCluster) -> None:
    """The ensemble ends the session of the controller; it comes back as one of the others."""
    cluster.create((1, 2), (2, 3))
    first: Any = cluster.brokers[1]
    _expire(cluster.connect, first.zookeeper)
    cluster.until(lambda: first.losses)
    # In the turn in which it hears of it, it leads nothing and commands nobody any more.
    assert first.state("a", 0).leader == NO_LEADER
    assert first.image.controller_id == NO_CONTROLLER
    (refused,) = cluster.ask(1, "change_partitions", [PartitionChange(TP, 0, 1, (1,))])
    assert refused.code is ErrorCode.NOT_CONTROLLER
    others = [cluster.brokers[2], cluster.brokers[3]]
    cluster.until(lambda: all(each.image.controller_id in (2, 3) for each in others))
    cluster.until(lambda: all(each.state().leader == 2 for each in others))
    registered = cluster.ask(1, "register_broker", 1, (), None)
    assert isinstance(registered, BrokerRegistration)
    cluster.agree(lambda broker: sorted(broker.image.brokers) == [1, 2, 3])
    cluster.agree(lambda broker: broker.state().leader == 2)


def test_a_second_broker_of_the_same_number(cluster: RealCluster) -> None:
    """It would take the place of the one that lives."""
    first = cluster.brokers[1]
    refused = cluster.ask_of(cluster.add(1), "register_broker", 1, (), None)
    assert refused.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.brokers[1].store.close()
    cluster.brokers[1] = first
    cluster.create((1, 2))
    assert first.losses == 0


def test_a_directory_of_another_cluster(one: ZooKeeperEnsemble, tmp_path: Path) -> None:
    """Its logs would be given up as nobody's, or served as another topic's."""
    flags = ("--broker-id", "1")
    with BrokerProcess(tmp_path / "data", "--zookeeper", f"{one.connect}/this", *flags):
        pass
    other = BrokerProcess(tmp_path / "data", "--zookeeper", f"{one.connect}/that", *flags)
    with pytest.raises(ProcessFailed, match="belongs to broker 1 of cluster"):
        other.start()


def test_many_partitions_fail_over(cluster: RealCluster) -> None:
    """A broker that leads a third of 1 000 partitions, and is the controller, goes."""
    ids = (1, 2, 3)
    cluster.create(*[tuple(ids[(i + k) % 3] for k in range(3)) for i in range(1000)])
    began = time.monotonic()
    cluster.brokers.pop(1).store.close()
    cluster.agree(
        lambda broker: all(
            each.leader in (2, 3) and 1 not in each.isr
            for each in broker.image.topics["a"].partitions
        )
    )
    print(f"1 000 partitions failed over in {time.monotonic() - began:.2f} s")


def test_numbers_for_brokers(one: ZooKeeperEnsemble) -> None:
    settings = ZooKeeperSettings(f"{one.connect}/numbers", SESSION_MS, 30_000)
    assert [generate_broker_id(settings, 1000) for _ in range(2)] == [1001, 1002]


def test_nobody_there() -> None:
    settings = ZooKeeperSettings("127.0.0.1:1", SESSION_MS, 500)
    clock = ManualClock()
    session = KazooSession(settings, SystemTimer(clock), clock, lambda action: None)
    with pytest.raises(MetadataStoreError, match=r"127\.0\.0\.1:1 cannot be reached within 500 ms"):
        session.start()


def test_a_process_that_stood_still(one: ZooKeeperEnsemble) -> None:
    """Its own clock tells it, before the ensemble does."""
    clock = ManualClock()
    timer = SystemTimer(clock)
    settings = ZooKeeperSettings(one.connect, SESSION_MS, 30_000)
    session = KazooSession(settings, timer, clock, lambda action: None)
    losses: list[bool] = []
    session.on_session_lost(lambda: losses.append(True))
    session.start()
    try:
        for _ in range(20):
            clock.advance(SESSION_MS // 12)
            timer.advance_clock(0)
        clock.advance(SESSION_MS)
        timer.advance_clock(0)
        assert losses == [], "it had logs to open, and is nobody yet"
        session.commit([Create("/it-lives", ephemeral=True)], lambda _: None)
        clock.advance(SESSION_MS)
        timer.advance_clock(0)
        assert losses == [True]
    finally:
        session.close()


def test_what_is_too_large_for_the_ensemble_is_refused(one: ZooKeeperEnsemble) -> None:
    """ZooKeeper hangs up on it: sent again for ever, it would take every other request with it."""
    cluster = RealCluster(one.connect)
    session = cluster.add(1).zookeeper
    answers: dict[str, object] = {}
    session.start()
    try:
        for path, data in (("/first", b"1"), ("/large", bytes(2 << 20)), ("/last", b"1")):
            session.commit([Create(path, data)], partial(answers.__setitem__, path))
        cluster.until(lambda: len(answers) == 3)
    finally:
        session.close()
    assert answers["/large"] == Refusal(0, Failure.REFUSED)
    # Whether it was made before the connection broke nobody has told.
    made = (Refusal(0, Failure.NODE_EXISTS), ("/first",), ("/last",))
    assert answers["/first"] in made
    assert answers["/last"] in made


def test_nodes_of_an_ensemble_that_come_and_go(
    three: ZooKeeperEnsemble, request: pytest.FixtureRequest
) -> None:
    """A watch that was set with a node that died would not be heard of again: a setting, a topic
    or a broker's end would be missed for ever."""
    cluster = RealCluster(f"{three.connect}/{request.node.name}")
    resource = ConfigResource.topic("a")
    try:
        for broker_id in (1, 2, 3):
            cluster.start(broker_id)
        cluster.create((1, 2), (2, 3))
        for number, node in enumerate(three.nodes):
            node.kill()
            value = str(number)
            assert cluster.ask(1 + number, "alter_configs", {resource: {"flush.ms": value}}) is None
            cluster.agree(partial(_has_setting, value))
            cluster.create((3, 1), name=f"b{number}")
            back = threading.Thread(target=_restart, args=(node,))
            back.start()
            cluster.until(partial(_is_over, back))
        assert [each.losses for each in cluster.brokers.values()] == [0, 0, 0]
        cluster.brokers.pop(1).store.close()
        cluster.agree(lambda broker: broker.state("a", 0).leader == 2)
    finally:
        cluster.close()


def test_an_ensemble_that_is_away_for_a_while(
    three: ZooKeeperEnsemble, request: pytest.FixtureRequest
) -> None:
    """No broker loses anything, nothing is decided; what was asked for meanwhile is done then."""
    cluster = RealCluster(f"{three.connect}/{request.node.name}")
    try:
        for broker_id in (1, 2, 3):
            cluster.start(broker_id)
        cluster.create((1, 2), (2, 3))
        for node in three.nodes:
            node.kill()
        answers = cluster.brokers[3].begin("create_topics", [NewTopic("b", ((2,),), {})])
        until = time.monotonic() + 2 * SESSION_MS / 1000
        cluster.until(lambda: time.monotonic() > until)
        assert answers == []
        assert [each.losses for each in cluster.brokers.values()] == [0, 0, 0]
        assert cluster.brokers[3].state().leader == 1
        # The brokers' loop goes on meanwhile.
        back = threading.Thread(target=lambda: [node.start() for node in three.nodes])
        back.start()
        cluster.until(lambda: answers)
        back.join()
        assert answers[0][0].name == "b"
        assert [each.losses for each in cluster.brokers.values()] == [0, 0, 0]
    finally:
        cluster.close()


def _has_setting(value: str, broker: Broker) -> bool:
    return broker.image.topic_config("a").get("flush.ms") == value


def _restart(node: ZooKeeperNode) -> None:
    node.start()
    node.await_serving()


def _is_over(thread: threading.Thread) -> bool:
    return not thread.is_alive()


def _children(cluster: RealCluster, path: str) -> list[str]:
    client = KazooClient(cluster.connect)
    client.start()
    try:
        return sorted(client.get_children(path))
    finally:
        client.stop()
        client.close()


def _expire(connect: str, session: KazooSession) -> None:
    """A session is ended by its id and password."""
    client = KazooClient(connect, client_id=session._client.client_id)
    client.start()
    client.stop()
    client.close()
