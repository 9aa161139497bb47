"""Other people's clients against a broker process of ours.

Every test here speaks to a real `odradek start` over a real socket. With
`ODRADEK_WIRE_BOOTSTRAP=host:port` the same tests run against another broker, such as Apache
Kafka: that is how an expectation is checked before it is held against ours. With
`ODRADEK_WIRE_REPLICAS=3` topics are made with so many replicas, where that names a cluster.
"""

import contextlib
import itertools
import json
import os
import subprocess
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest
from tests.deadlines import deadline_s
from tests.wire.differential.harness import Peer, Scenario, Target, differences, lead_coordinators
from tests.wire.java_tools import JavaTools
from tools import peers
from tools.kafka_node import kafka_cluster, kafka_node, zookeeper_kafka_node
from tools.zookeeper_node import zookeeper_ensemble

from odradek import Broker
from odradek.server.in_process.arguments.settings import TEST_DEFAULTS
from odradek.testing.processes import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_odradek.testing import SparkAndBroker

T = TypeVar("T")
JAVA_TIMEOUT_S = deadline_s(240)
KAFKAJS_TIMEOUT_S = deadline_s(120)
# Some records are of 1970: who looks for old ones every five minutes may not delete them in a test.
NO_RETENTION = {"log.retention.ms": "-1"}
# The two brokers of the differential tests are told the same, so that no default hides a fault.
DIFFERENTIAL_SETTINGS = {
    "broker.id": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "log.retention.hours": "100",
    "log.roll.ms": "700000000",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "5000",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.heartbeat.interval.ms": "5000",
    "group.share.assignment.interval.ms": "0",
}
# A file may hold names that no broker knows; our Python API refuses them.
UNKNOWN_SETTINGS = {"no.such.setting": "secret"}
# What nobody has with ours: Kafka's quorum would set `min.insync.replicas` for all brokers.
DIFFERENTIAL_FEATURES = {"eligible.leader.replicas.version": 0}
ONE, THREE = 1, 3
BROKER_LOG = pytest.StashKey[Path]()
SHOWN_LOG_LINES = 40


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows what the broker said last: in other logs there is only the end."""
    report = yield
    log = item.session.stash.get(BROKER_LOG, None)
    if report.failed and log is not None:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        report.sections.append(("The broker's log", "\n".join(lines[-SHOWN_LOG_LINES:])))
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where another broker is asked, that is all: tests with one of their own say nothing of it."""
    if "ODRADEK_WIRE_BOOTSTRAP" in os.environ:
        others = [item for item in items if not _asks_bootstrap(item)]
        items[:] = [item for item in items if item not in others]
        config.hook.pytest_deselected(items=others)


def _asks_bootstrap(item: pytest.Item) -> bool:
    if not item.path.is_relative_to(Path(__file__).parent):
        return True
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return "bootstrap" in parameters or "bootstrap" in getattr(item, "fixturenames", ())


@dataclass(frozen=True)
class Sample:
    """A record that a test sends and wants back, the same in every client's terms."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: list[tuple[str, bytes]] = field(default_factory=list)


@pytest.fixture(scope="session")
def bootstrap(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[str]:
    """The address of a broker process that lives as long as the session."""
    other = os.environ.get("ODRADEK_WIRE_BOOTSTRAP")
    if other:
        yield other
        return
    data = tmp_path_factory.mktemp("broker")
    log = request.session.stash[BROKER_LOG] = data / "stderr.log"
    settings = [f"{name}={value}" for name, value in {**TEST_DEFAULTS, **NO_RETENTION}.items()]
    flags = [flag for each in settings for flag in ("--set", each)]
    with BrokerProcess(data / "data", *flags, log=log) as broker:
        yield broker.bootstrap_servers
    assert "Traceback" not in log.read_text()


@pytest.fixture(scope="session")
def apache_kafka() -> Iterator[str]:
    """Where an Apache Kafka 4.3 of this session listens."""
    try:
        with kafka_node("512m", settings=NO_RETENTION) as node:
            yield node.bootstrap_servers
    except peers.PeerUnavailable as reason:
        pytest.skip(f"PEER MISSING, NOT TESTED: {reason}")


@pytest.fixture(scope="session")
def apache_kafka_3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where an Apache Kafka 3.9 of this session listens."""
    home = tmp_path_factory.mktemp("kafka3")
    try:
        with zookeeper_kafka_node(home, settings=NO_RETENTION) as node:
            yield node.bootstrap_servers
    except peers.PeerUnavailable as reason:
        pytest.skip(f"PEER MISSING, NOT TESTED: {reason}")


@pytest.fixture
def topic(request: pytest.FixtureRequest, names: Callable[[str], str]) -> str:
    """A topic name of this test's own; the topic does not exist yet."""
    return names(request.node.originalname)


@pytest.fixture(scope="session")
def names() -> Callable[[str], str]:
    """Makes names that no other test of this run, or of a run before, uses."""
    counter = itertools.count()
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    return lambda stem: f"{stem}-{worker}-{os.getpid()}-{next(counter)}"


@pytest.fixture(scope="session")
def samples() -> list[Sample]:
    """Forty records with all that a record may have: no key, no value, headers, empty values."""
    return [
        Sample(
            key=None if number % 7 == 3 else b"key-%d" % number,
            value=None if number == 16 else b"value-%d " % number * (number % 9),
            timestamp_ms=1_700_000_000_000 + 1000 * number,
            headers=[("n", b"%d" % number), ("empty", b"")] if number % 3 == 0 else [],
        )
        for number in range(40)
    ]


@pytest.fixture(scope="session")
def kcat() -> str:
    return _peer(peers.kcat)


@pytest.fixture(scope="session")
def kafka_class_path() -> str:
    return os.pathsep.join(map(str, _peer(peers.kafka_jars)))


@pytest.fixture(scope="session")
def java() -> str:
    return _peer(peers.java)


@pytest.fixture(scope="session")
def javac() -> str:
    return _peer(lambda: peers.program("javac", "default-jdk-headless"))


@pytest.fixture(scope="session")
def old_client_class_path() -> Callable[[str], str]:
    """The class path of Kafka's Java clients of a version before 0.11."""
    return lambda version: os.pathsep.join(map(str, _peer(lambda: peers.old_client_jars(version))))


@pytest.fixture(scope="session")
def old_kafka_python() -> Callable[[str], Path]:
    """The folder with a kafka-python of a version."""
    return lambda version: _peer(lambda: peers.old_kafka_python(version))


@pytest.fixture(scope="session")
def connector_jars() -> str:
    """The official connector's jars as `spark.jars` wants them; empty where they cannot be had."""
    try:
        return ",".join(map(str, peers.spark_connector_jars()))
    except peers.PeerUnavailable:
        return ""


@pytest.fixture
def connector(connector_jars: str) -> str:
    """The name of the official connector's format."""
    if not connector_jars:
        pytest.skip("PEER MISSING, NOT TESTED: Spark's Kafka connector cannot be fetched here")
    return "kafka"


@pytest.fixture(scope="session")
def odradek_spark_conf(connector_jars: str) -> dict[str, str]:
    """The session of the run has the official connector as well, where it can be had."""
    return {"spark.jars": connector_jars} if connector_jars else {}


@pytest.fixture(scope="session")
def spark(odradek_spark: "SparkAndBroker") -> "SparkSession":
    """The Spark session of the run."""
    return odradek_spark.spark


@pytest.fixture(scope="session")
def kafkajs_folder() -> Path:
    return _peer(peers.kafkajs)


@pytest.fixture
def kafkajs(kafkajs_folder: Path, bootstrap: str) -> Iterator[Callable[..., dict]]:
    """Runs a program for kafkajs against the broker; returns the object that it printed."""
    node = peers.program("node", "nodejs")
    # Beside the library, where the program finds it; workers share the folder.
    script = kafkajs_folder / f"program-{os.getpid()}.js"

    def call(source: str, *arguments: str) -> dict:
        script.write_text(source, encoding="utf-8")
        done = subprocess.run(
            [node, str(script), bootstrap, *arguments],
            capture_output=True,
            text=True,
            timeout=KAFKAJS_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    yield call
    script.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def java_tools(
    java: str, kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaTools]:
    """Runs tools of Kafka's, all in one JVM."""
    with JavaTools(java, kafka_class_path, tmp_path_factory.mktemp("java")) as tools:
        yield tools


@pytest.fixture
def tool(java_tools: JavaTools, bootstrap: str) -> Callable[..., str]:
    """Runs a tool by its class; returns what it printed."""

    def call(name: str, *arguments: str, text: str = "") -> str:
        done = java_tools.run(name, arguments, text)
        assert done.status == 0, done.output + done.errors
        return done.output

    def bound(name: str, *arguments: str, text: str = "") -> str:
        return call(name, "--bootstrap-server", bootstrap, *arguments, text=text)

    bound.unbound = call  # type: ignore[attr-defined]
    return bound


def _peer(fetch: Callable[[], T]) -> T:
    """A peer, or a loud skip that says why it cannot be had here."""
    try:
        return fetch()
    except peers.PeerUnavailable as reason:
        pytest.skip(f"PEER MISSING, NOT TESTED: {reason}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test marked so asks clusters of three as well, when all single brokers are done."""
    if "two_brokers" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("of_three_too")
        counts = [ONE] if marker is None or False in marker.args else [ONE, THREE]
        if metafunc.definition.get_closest_marker("of_three_only") is not None:
            counts = [THREE]
        names = [f"of-{count}" for count in counts]
        metafunc.parametrize("two_brokers", counts, indirect=True, ids=names, scope="session")


@pytest.fixture(scope="session")
def two_brokers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Target, Target]]:
    """An Apache Kafka and ours, started with the same settings: alone, or as the first of three."""
    home = tmp_path_factory.mktemp("two")
    with (_two_clusters if request.param == THREE else _two_alone)(home) as targets:
        yield targets


@contextlib.contextmanager
def _two_clusters(home: Path) -> Iterator[tuple[Target, Target]]:
    """Of the three the first leads everything: where chance decides, it would decide otherwise for
    each. Ours meet in a ZooKeeper."""
    settings = {
        name: "3" if name.endswith("replication.factor") else value
        for name, value in {**DIFFERENTIAL_SETTINGS, **UNKNOWN_SETTINGS}.items()
        if name != "broker.id"
    }
    settings["default.replication.factor"] = "3"
    (home / "ours.properties").write_text("".join(f"{n}={v}\n" for n, v in settings.items()))
    with contextlib.ExitStack() as stack:
        nodes = _peer(
            lambda: stack.enter_context(
                kafka_cluster(heap="256m", settings=settings, features=DIFFERENTIAL_FEATURES)
            )
        )
        ensemble = stack.enter_context(zookeeper_ensemble(1, home))
        flags = ("--zookeeper", ensemble.connect, "--config", str(home / "ours.properties"))
        # One after the other: the first becomes the controller, which alone makes topics.
        ours = [
            stack.enter_context(BrokerProcess(home / str(n), *flags, "--broker-id", str(n)))
            for n in (1, 2, 3)
        ]
        addresses = (
            [f"127.0.0.1:{node.port}" for node in nodes],
            [broker.bootstrap_servers for broker in ours],
        )
        targets = [Target(first, (1, 2, 3), tuple(others)) for first, *others in addresses]
        for target in targets:
            lead_coordinators(target)
        yield targets[0], targets[1]


@contextlib.contextmanager
def _two_alone(home: Path) -> Iterator[tuple[Target, Target]]:
    """Each has two log directories."""
    log_dirs = [f"{home}/{who}-1,{home}/{who}-2" for who in ("kafka", "ours")]
    with contextlib.ExitStack() as stack:
        node = _peer(
            lambda: stack.enter_context(
                kafka_node(
                    heap="384m",
                    settings={
                        **DIFFERENTIAL_SETTINGS,
                        **UNKNOWN_SETTINGS,
                        "log.dirs": log_dirs[0],
                    },
                    features=DIFFERENTIAL_FEATURES,
                )
            )
        )
        broker = Broker(data_dir=log_dirs[1], config=DIFFERENTIAL_SETTINGS)
        broker._settings.update(UNKNOWN_SETTINGS)
        stack.enter_context(broker)
        yield Target(node.bootstrap_servers), Target(broker.bootstrap_servers)


@pytest.fixture
def same_answers(two_brokers: tuple[Target, Target]) -> Callable[[Scenario], None]:
    """Runs a scenario against Apache Kafka and against ours; both must answer the same."""

    def check(scenario: Scenario) -> None:
        # Ours first: it is at once what Kafka is eventually.
        ours = Peer(two_brokers[1])
        kafka = Peer(two_brokers[0], expected=ours.answers)
        for peer in (ours, kafka):
            try:
                scenario(peer)
            finally:
                peer.close()
        found = differences(kafka.answers, ours.answers, ours.target.allowed)
        assert not found, f"{len(found)} differences\n" + "\n".join(found)

    return check
