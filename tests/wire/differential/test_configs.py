"""Settings of every kind of resource, set, described and refused, beside an Apache Kafka."""

import logging
from collections.abc import Callable, Iterable, Iterator

import pytest
from tests.wire.differential.harness import Peer, Scenario

pytestmark = [pytest.mark.slow, pytest.mark.of_three_too, pytest.mark.xdist_group("jvm")]

Check = Callable[[Scenario], None]

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
THIS_BROKER = "1"


def describe(
    peer: Peer, kind: int, name: str, keys: Iterable[str] | None = None, version=4
) -> None:
    wanted = None if keys is None else list(keys)
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": wanted}
    told = {"include_documentation": True} if version >= 3 else {}
    resources = [resource]
    peer.ask_eventually(
        "describe_configs", version, resources=resources, include_synonyms=True, **told
    )


def alter(
    peer: Peer,
    kind: int,
    name: str,
    *steps: tuple[str, int, str | None],
    version: int = 1,
    validate_only: bool = False,
) -> None:
    configs = [
        {"name": key, "config_operation": operation, "value": value}
        for key, operation, value in steps
    ]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    peer.ask(
        "incremental_alter_configs", version, resources=[resource], validate_only=validate_only
    )


def replace(
    peer: Peer, kind: int, name: str, *settings: tuple[str, str | None], version: int = 2
) -> None:
    configs = [{"name": key, "value": value} for key, value in settings]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    peer.ask("alter_configs", version, resources=[resource], validate_only=False)


def create(peer: Peer, name: str, **settings: str) -> None:
    configs = [{"name": key.replace("_", "."), "value": value} for key, value in settings.items()]
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": configs}
    peer.ask("create_topics", 7, topics=[topic], timeout_ms=9000)


def test_everything_that_is_described(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        create(peer, "described", retention_ms="1000", cleanup_policy="compact,delete")
        for version in range(1, 5):
            describe(peer, TOPIC, "described", version=version)
            describe(peer, BROKER, THIS_BROKER, version=version)
            describe(peer, GROUP, "described", version=version)
        describe(peer, BROKER, "")
        describe(peer, TOPIC, "described", [])
        describe(peer, TOPIC, "described", ["retention.ms", "no.such", "retention.ms"])
        describe(peer, BROKER, THIS_BROKER, ["no.such", "num.io.threads"])

    same_answers(scenario)


def test_resources_that_are_not_there(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        for kind, names in RESOURCES.items():
            for name in names:
                describe(peer, kind, name)
                alter(peer, kind, name, ("retention.ms", SET, "1"))
                alter(peer, kind, name, ("retention.ms", SET, "1"), validate_only=True)
                alter(peer, kind, name)
                replace(peer, kind, name, ("retention.ms", "1"))

    same_answers(scenario)


ODD_NAMES = ("", ".", "a b", "x" * 250, "ä")
RESOURCES = {
    TOPIC: ("none", "__cluster_metadata", *ODD_NAMES),
    BROKER: ("0", "2", "x", "-1", "01", "99999999999"),
    GROUP: ODD_NAMES,
    METRICS: ODD_NAMES,
    LOGGER: ("2", "", "x"),
    0: ("x",),
    1: ("x",),
    3: ("x",),
    64: ("x",),
    -1: ("x",),
}


def test_topic_settings_in_steps(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        create(peer, "steps")
        for steps in TOPIC_STEPS:
            alter(peer, TOPIC, "steps", *steps, validate_only=True)
            alter(peer, TOPIC, "steps", *steps)
            describe(peer, TOPIC, "steps", {name for name, _, _ in steps})
        alter(peer, TOPIC, "steps", ("retention.ms", SET, "5"), version=0)
        describe(peer, TOPIC, "steps")

    same_answers(scenario)


TOPIC_STEPS = (
    [("retention.ms", SET, "1000")],
    [("retention.ms", SET, " 1000 ")],
    [("retention.ms", SET, "x")],
    [("retention.ms", SET, "")],
    [("retention.ms", SET, None)],
    [("retention.ms", SET, "-2")],
    [("retention.ms", SET, "9223372036854775808")],
    [("retention.ms", DELETE, None)],
    [("retention.ms", DELETE, "7")],
    [("retention.ms", APPEND, "7")],
    [("retention.ms", SUBTRACT, "7")],
    [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
    [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
    [("retention.ms", SET, "3"), ("segment.ms", SET, "x")],
    [("no.such", SET, "1")],
    [("no.such", DELETE, None)],
    [("no.such", APPEND, "1")],
    [("", SET, "1")],
    [("", DELETE, None)],
    [("cleanup.policy", APPEND, "compact")],
    [("cleanup.policy", APPEND, "compact")],
    [("cleanup.policy", APPEND, "")],
    [("cleanup.policy", APPEND, None)],
    [("cleanup.policy", APPEND, "x")],
    [("cleanup.policy", SUBTRACT, "delete")],
    [("cleanup.policy", SUBTRACT, "x")],
    [("cleanup.policy", SUBTRACT, "")],
    [("cleanup.policy", SUBTRACT, "compact")],
    [("cleanup.policy", SET, "")],
    [("cleanup.policy", SET, "compact,compact")],
    [("cleanup.policy", SET, "compact, delete")],
    [("cleanup.policy", SET, "compact,,delete")],
    [("cleanup.policy", DELETE, None)],
    [("leader.replication.throttled.replicas", APPEND, "0:1")],
    [("leader.replication.throttled.replicas", APPEND, "0:1,1:1")],
    [("leader.replication.throttled.replicas", SUBTRACT, "0:1")],
    [("leader.replication.throttled.replicas", SET, "x")],
    [("leader.replication.throttled.replicas", SET, "*")],
    [("leader.replication.throttled.replicas", SET, "0:1, *")],
    [("follower.replication.throttled.replicas", SET, "*,*")],
    [("follower.replication.throttled.replicas", SET, " *")],
    [("follower.replication.throttled.replicas", SET, ",0:1")],
    [("follower.replication.throttled.replicas", SET, ",".join(["1:1"] * 8_000))],
    [
        (
            "follower.replication.throttled.replicas",
            APPEND,
            ",".join(map("{0}:1".format, range(900))),
        )
    ],
    [("follower.replication.throttled.replicas", DELETE, None)],
    [("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5")],
    [("max.compaction.lag.ms", SET, "5"), ("min.compaction.lag.ms", SET, "1")],
    [("min.cleanable.dirty.ratio", SET, "1.5")],
    [("min.cleanable.dirty.ratio", SET, "1")],
    [("min.cleanable.dirty.ratio", SET, "0.25")],
    [("min.cleanable.dirty.ratio", SET, "1e-1")],
    [("preallocate", SET, "TRUE")],
    [("preallocate", SET, "yes")],
    [("compression.type", SET, "ZSTD")],
    [("compression.type", SET, "none")],
    [("compression.type", SET, "uncompressed")],
    [("compression.gzip.level", SET, "0")],
    [("compression.gzip.level", SET, "-1")],
    [("compression.gzip.level", SET, "10")],
    [("compression.zstd.level", SET, "-131072")],
    [("compression.zstd.level", SET, "-131073")],
    [("compression.zstd.level", SET, "23")],
    [("compression.lz4.level", SET, "18")],
    [("message.timestamp.type", SET, "LogAppendTime")],
    [("message.timestamp.type", SET, "logappendtime")],
    [("message.timestamp.before.max.ms", SET, "-1")],
    [("remote.storage.enable", SET, "true")],
    [("remote.storage.enable", SET, "false")],
    [("local.retention.ms", SET, "1")],
    [("local.retention.bytes", SET, "-3")],
    [("min.insync.replicas", SET, "0")],
    [("min.insync.replicas", SET, "2")],
    [("min.insync.replicas", DELETE, None)],
    [("flush.ms", SET, "-1")],
    [("flush.messages", SET, "0")],
    [("flush.messages", SET, "1.0")],
    [("max.message.bytes", SET, "-1")],
    [("index.interval.bytes", SET, "-1")],
    [("segment.index.bytes", SET, "3")],
    [("segment.jitter.ms", SET, "-1")],
    [("segment.ms", SET, "0")],
    [("file.delete.delay.ms", SET, "-1")],
    [("unclean.leader.election.enable", SET, "true")],
    [("unclean.leader.election.enable", DELETE, "")],
)


def test_topic_settings_replaced(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        create(peer, "replaced")
        for settings in TOPIC_REPLACEMENTS:
            replace(peer, TOPIC, "replaced", *settings)
            describe(peer, TOPIC, "replaced", ["retention.ms", "segment.ms", "cleanup.policy"])
        for version in range(3):
            replace(peer, TOPIC, "replaced", ("retention.ms", str(version)), version=version)
        describe(peer, TOPIC, "replaced")

    same_answers(scenario)


TOPIC_REPLACEMENTS = (
    [("retention.ms", "1000"), ("segment.ms", "7")],
    [("retention.ms", "1000")],
    [("retention.ms", None)],
    [("retention.ms", "1"), ("retention.ms", "2")],
    [("retention.ms", "x")],
    [("no.such", "1")],
    [("cleanup.policy", "")],
    [],
)


def test_resources_named_twice(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        create(peer, "twice")
        step = {"name": "retention.ms", "config_operation": SET, "value": "1"}
        resource = {"resource_type": TOPIC, "resource_name": "twice"}
        peer.ask("incremental_alter_configs", 1, resources=[resource | {"configs": [step]}] * 2)
        # AlterConfigs with a resource twice is never answered by Kafka.
        wanted = resource | {"configuration_keys": ["retention.ms"]}
        peer.ask_eventually("describe_configs", 4, resources=[wanted] * 2)

    same_answers(scenario)


def test_broker_settings(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        for name in (THIS_BROKER, ""):
            for steps in BROKER_STEPS:
                alter(peer, BROKER, name, *steps, validate_only=True)
                alter(peer, BROKER, name, *steps)
                keys = {key for key, _, _ in steps}
                describe(peer, BROKER, THIS_BROKER, keys)
                describe(peer, BROKER, "", keys)
                undo = [(key, DELETE, None) for key in sorted(keys)]
                alter(peer, BROKER, name, *undo)
                describe(peer, BROKER, THIS_BROKER, keys)
        replace(peer, BROKER, "", ("log.retention.ms", "5"), ("no.such.b", "1"))
        replace(peer, BROKER, THIS_BROKER, ("log.retention.ms", "6"), ("num.io.threads", "9"))
        describe(peer, BROKER, "")
        describe(peer, BROKER, THIS_BROKER)
        replace(peer, BROKER, THIS_BROKER, ("log.retention.ms", "6"), ("log.retention.ms", "7"))
        replace(peer, BROKER, THIS_BROKER, ("broker.id", "7"))
        replace(peer, BROKER, THIS_BROKER)
        replace(peer, BROKER, "")
        describe(peer, BROKER, THIS_BROKER)

    same_answers(scenario)


def test_a_default_that_contradicts_a_topic(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        create(peer, "contradicted", max_compaction_lag_ms="1000")
        for name, value in LAGS.items():
            alter(peer, BROKER, "", (name, SET, value))
        describe(peer, TOPIC, "contradicted", ["min.compaction.lag.ms", "max.compaction.lag.ms"])
        alter(peer, TOPIC, "contradicted", ("retention.ms", SET, "5"))
        alter(peer, TOPIC, "contradicted", ("max.compaction.lag.ms", DELETE, None))
        alter(peer, TOPIC, "contradicted", ("max.compaction.lag.ms", SET, "5000"))
        alter(peer, BROKER, "", *((name, DELETE, None) for name in LAGS))
        describe(peer, TOPIC, "contradicted", ["min.compaction.lag.ms", "max.compaction.lag.ms"])

    same_answers(scenario)


LAGS = {"log.cleaner.min.compaction.lag.ms": "5000", "log.cleaner.max.compaction.lag.ms": "2000"}


BROKER_STEPS = (
    [("no.such", SET, "1")],
    [("advertised.listeners", SET, "PLAINTEXT://127.0.0.1:1")],
    [("broker.id", SET, "3")],
    [("node.id", SET, "3")],
    [("broker.rack", SET, "r")],
    [("log.dirs", SET, "/tmp")],
    [("num.partitions", SET, "2")],
    [("auto.create.topics.enable", SET, "false")],
    [("log.retention.ms", SET, "1000")],
    [("log.retention.minutes", SET, "1000")],
    [("log.retention.hours", SET, "1000")],
    [("log.retention.ms", SET, "x")],
    [("log.roll.ms", SET, "70000")],
    [("log.cleanup.policy", SET, "compact")],
    [("log.cleanup.policy", APPEND, "compact")],
    [("log.cleanup.policy", APPEND, "")],
    [("log.flush.interval.ms", SET, "1000")],
    [("log.segment.bytes", SET, "1")],
    [("log.segment.bytes", SET, "2000000")],
    [("message.max.bytes", SET, "100")],
    [("min.insync.replicas", SET, "2")],
    [("min.insync.replicas", SET, "0")],
    [("num.io.threads", SET, "16")],
    [("num.io.threads", SET, "17")],
    [("num.io.threads", SET, "4")],
    [("num.io.threads", SET, "3")],
    [("num.io.threads", SET, "0")],
    [("num.network.threads", SET, "7")],
    [("num.replica.fetchers", SET, "2")],
    [("num.replica.fetchers", SET, "3")],
    [("num.recovery.threads.per.data.dir", SET, "4")],
    [("num.recovery.threads.per.data.dir", SET, "5")],
    [("background.threads", SET, "21")],
    [("background.threads", SET, "5")],
    [("background.threads", SET, "4")],
    [("log.cleaner.threads", SET, "2")],
    [("log.cleaner.threads", SET, "3")],
    [("log.cleaner.threads", SET, "0")],
    [("log.cleaner.io.max.bytes.per.second", SET, "1e6")],
    [("max.connections", SET, "10000")],
    [("max.connections.per.ip", SET, "10000")],
    [("max.connections.per.ip.overrides", SET, "10.0.0.1:5000")],
    [("max.connections.per.ip.overrides", SET, "x")],
    [("max.connections.per.ip.overrides", SET, "1.2.3.4:" + "9" * 12)],
    [("max.connection.creation.rate", SET, "100")],
    [("listener.name.plaintext.max.connections", SET, "1000")],
    [("listener.name.internal.ssl.keystore.password", SET, "secret")],
    [("listener.name.plaintext.no.such", SET, "1")],
    [("ssl.keystore.password", SET, "secret")],
    [("ssl.keystore.location", SET, "/tmp/none")],
    [("sasl.jaas.config", SET, "x required;")],
    [("producer.id.expiration.ms", SET, "1000")],
    [("transaction.partition.verification.enable", SET, "false")],
    [("unclean.leader.election.enable", SET, "true")],
    [("compression.type", SET, "zstd")],
    [("compression.type", SET, "x")],
    [("log.message.timestamp.type", SET, "LogAppendTime")],
    [("leader.replication.throttled.rate", SET, "100")],
    [("follower.replication.throttled.rate", SET, "x")],
    [("replica.alter.log.dirs.io.max.bytes.per.second", SET, "100")],
    [("metric.reporters", SET, "")],
    [("metric.reporters", SET, "no.such.Class")],
    [("log.local.retention.ms", SET, "5")],
    [("remote.log.manager.copier.thread.pool.size", SET, "5")],
    [("group.consumer.heartbeat.interval.ms", SET, "6000")],
    [("log.retention.ms", SET, "1"), ("no.such", SET, "2")],
    [("log.retention.ms", SET, "1"), ("broker.id", SET, "2")],
    [("log.retention.ms", APPEND, "1")],
    [("log.retention.ms", SET, None)],
)


def test_group_settings(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        for steps in GROUP_STEPS:
            alter(peer, GROUP, "settings", *steps, validate_only=True)
            alter(peer, GROUP, "settings", *steps)
            describe(peer, GROUP, "settings", {name for name, _, _ in steps})
            replace(peer, GROUP, "other", *((name, value) for name, _, value in steps))
        describe(peer, GROUP, "settings")
        replace(peer, GROUP, "settings")
        describe(peer, GROUP, "settings")

    same_answers(scenario)


GROUP_STEPS = (
    [("consumer.session.timeout.ms", SET, "50000")],
    [("consumer.session.timeout.ms", SET, "44999")],
    [("consumer.session.timeout.ms", SET, "60001")],
    [("consumer.session.timeout.ms", SET, "x")],
    [("consumer.session.timeout.ms", DELETE, None)],
    [("consumer.session.timeout.ms", APPEND, "1")],
    [("consumer.heartbeat.interval.ms", SET, "4999")],
    [("consumer.heartbeat.interval.ms", SET, "15001")],
    [("consumer.heartbeat.interval.ms", SET, "10000")],
    [("consumer.assignment.interval.ms", SET, "15001")],
    [("consumer.assignment.interval.ms", SET, "-1")],
    [("consumer.assignment.interval.ms", SET, "5")],
    [("share.session.timeout.ms", SET, "44999")],
    [("share.session.timeout.ms", SET, "60001")],
    [("share.heartbeat.interval.ms", SET, "4999")],
    [("share.heartbeat.interval.ms", SET, "15001")],
    [("share.assignment.interval.ms", SET, "15001")],
    [("share.record.lock.duration.ms", SET, "14999")],
    [("share.record.lock.duration.ms", SET, "60001")],
    [("share.delivery.count.limit", SET, "1")],
    [("share.delivery.count.limit", SET, "11")],
    [("share.partition.max.record.locks", SET, "99")],
    [("share.partition.max.record.locks", SET, "4001")],
    [("share.auto.offset.reset", SET, "earliest")],
    [("share.auto.offset.reset", SET, "none")],
    [("share.auto.offset.reset", SET, "by_duration:PT1H")],
    [("share.auto.offset.reset", SET, "by_duration:x")],
    [("share.isolation.level", SET, "read_committed")],
    [("share.isolation.level", SET, "x")],
    [("share.renew.acknowledge.enable", SET, "x")],
    [("streams.session.timeout.ms", SET, "44999")],
    [("streams.session.timeout.ms", SET, "60001")],
    [("streams.heartbeat.interval.ms", SET, "4999")],
    [("streams.heartbeat.interval.ms", SET, "15001")],
    [("streams.assignment.interval.ms", SET, "15001")],
    [("streams.num.standby.replicas", SET, "3")],
    [("streams.num.standby.replicas", SET, "2")],
    [("streams.initial.rebalance.delay.ms", SET, "-1")],
    [("streams.initial.rebalance.delay.ms", SET, "1")],
    [("no.such", SET, "1")],
    [("no.such", DELETE, None)],
    [("consumer.session.timeout.ms", SET, "50000"), ("consumer.session.timeout.ms", SET, "1")],
    [("consumer.session.timeout.ms", SET, "45000"), ("consumer.heartbeat.interval.ms", SET, "1")],
)


def test_settings_of_client_metrics(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        for steps in METRICS_STEPS:
            alter(peer, METRICS, "pushed", *steps, validate_only=True)
            alter(peer, METRICS, "pushed", *steps)
            describe(peer, METRICS, "pushed")
        replace(peer, METRICS, "replaced", ("metrics", "x"), ("interval.ms", "100"))
        replace(peer, METRICS, "replaced", ("match", "x"))
        describe(peer, METRICS, "replaced")

    same_answers(scenario)


METRICS_STEPS = (
    [("interval.ms", SET, "99")],
    [("interval.ms", SET, "100")],
    [("interval.ms", SET, "3600001")],
    [("interval.ms", SET, "x")],
    [("metrics", SET, "")],
    [("metrics", SET, "*")],
    [("metrics", SET, "org.apache.kafka.producer.,org.apache.kafka.consumer.")],
    [("metrics", APPEND, "org.apache.kafka.admin.")],
    [("metrics", SUBTRACT, "org.apache.kafka.admin.")],
    [("match", SET, "client_id=a.*")],
    [("match", APPEND, "client_software_name=b")],
    [("match", SET, "client_id")],
    [("match", SET, "client_id=")],
    [("match", SET, "no_such=a")],
    [("match", SET, "client_id=(")],
    [("match", SET, "client_id=a{99999999999}")],
    [("match", SET, "client_id=a=b")],
    [("match", DELETE, None)],
    [("no.such", SET, "x")],
    [("no.such", DELETE, None)],
    [("interval.ms", DELETE, None), ("metrics", DELETE, None)],
)


@pytest.fixture
def level_of_this_process() -> Iterator[None]:
    """Our broker runs in this process, whose own level is not to be changed for good."""
    level = logging.root.level
    yield
    logging.root.setLevel(level)


@pytest.mark.usefixtures("level_of_this_process")
def test_levels_of_loggers(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        for steps in LOGGER_STEPS:
            alter(peer, LOGGER, THIS_BROKER, *steps, validate_only=True)
            alter(peer, LOGGER, THIS_BROKER, *steps)
            describe(peer, LOGGER, THIS_BROKER, ["root"])
        replace(peer, LOGGER, THIS_BROKER, ("root", "INFO"))

    same_answers(scenario)


LOGGER_STEPS = (
    [("root", SET, "WARN")],
    [("root", SET, "FATAL")],
    [("root", SET, "TRACE")],
    [("root", SET, "OFF")],
    [("root", SET, "warn")],
    [("root", SET, "")],
    [("root", DELETE, None)],
    [("root", APPEND, "INFO")],
    [("root", SUBTRACT, "INFO")],
    [("no.such.logger", SET, "INFO")],
    [("no.such.logger", DELETE, None)],
    [("root", SET, "INFO"), ("no.such.logger", SET, "INFO")],
    [("root", SET, "ERROR")],
)
