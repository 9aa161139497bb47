"""Apache Kafka's own command line tools, on a JVM, against the broker."""

import json
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.deadlines import deadline_s
from tests.system.cluster.polling import until
from tests.wire.replicas import REPLICAS, await_forgotten, await_known

from odradek import Broker

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

TOPICS = "org.apache.kafka.tools.TopicCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
CONFIGS = "kafka.admin.ConfigCommand"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
CLIENT_METRICS = "org.apache.kafka.tools.ClientMetricsCommand"
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"

Tool = Callable[..., str]


@pytest.fixture
def create(tool: Tool, bootstrap: str) -> Callable[..., str]:
    """Makes a topic; returns what the tool said when every broker knows it."""

    def call(topic: str, partitions: int, *flags: str) -> str:
        said = tool(TOPICS, "--create", "--topic", topic, "--partitions", str(partitions), *flags)
        await_known(bootstrap, topic, partitions)
        return said

    return call


def test_a_topics_life(tool: Tool, create: Callable[..., str], topic: str, bootstrap: str) -> None:
    """TopicCommand cannot create, list, describe, alter or delete."""
    flags = ["--replication-factor", str(REPLICAS), "--config", "retention.ms=60000"]
    assert f"Created topic {topic}." in create(topic, 3, *flags)
    assert topic in tool(TOPICS, "--list").split()
    described = tool(TOPICS, "--describe", "--topic", topic)
    assert "PartitionCount: 3" in described
    assert f"ReplicationFactor: {REPLICAS}" in described
    assert "retention.ms=60000" in described
    assert len(re.findall(r"Leader: [1-3]\b", described)) == 3
    tool(TOPICS, "--alter", "--topic", topic, "--partitions", "4")
    await_known(bootstrap, topic, 4)
    assert "PartitionCount: 4" in tool(TOPICS, "--describe", "--topic", topic)
    tool(TOPICS, "--delete", "--topic", topic)
    await_forgotten(bootstrap, topic)
    assert topic not in tool(TOPICS, "--list").split()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_console_producer_and_consumer(tool: Tool, topic: str, codec: str) -> None:
    """The Java client's batches of a codec are refused, or come back changed."""
    tool(TOPICS, "--create", "--topic", topic, "--partitions", "1")
    lines = [f"key-{n}\tvalue {n}" for n in range(200)]
    tool(
        PRODUCER,
        *("--topic", topic, "--compression-codec", codec),
        *("--reader-property", "parse.key=true"),
        text="\n".join(lines) + "\n",
    )
    read = ["--topic", topic, "--partition", "0", "--formatter-property", "print.key=true"]
    out = tool(CONSUMER, *read, "--offset", "earliest", "--max-messages", "200")
    assert out.splitlines() == lines
    out = tool(CONSUMER, *read, "--offset", "190", "--max-messages", "10")
    assert out.splitlines() == lines[190:]


def test_offsets_by_time_and_kind(tool: Tool, topic: str) -> None:
    """GetOffsetShell's special times are answered wrongly."""
    tool(TOPICS, "--create", "--topic", topic, "--partitions", "1")
    tool(PRODUCER, "--topic", topic, text="one\ntwo\nthree\n")

    def offset(time: str) -> str:
        return tool(OFFSETS, "--topic", topic, "--time", time).strip().rpartition(":")[2]

    assert offset("earliest") == "0"
    assert offset("latest") == "3"
    assert offset("max-timestamp") in ("0", "1", "2")
    assert offset("1000") == "0"


def test_configs_and_deleted_records(
    tool: Tool, create: Callable[..., str], topic: str, tmp_path: Path
) -> None:
    """ConfigCommand or DeleteRecordsCommand does not reach the topic."""
    create(topic, 1)
    entity = ["--entity-type", "topics", "--entity-name", topic]
    tool(
        CONFIGS,
        "--alter",
        *entity,
        "--add-config",
        "max.message.bytes=2000,cleanup.policy=[compact,delete]",
    )

    def described() -> str:
        return tool(CONFIGS, "--describe", *entity)

    # Another broker of a cluster may be asked, and hears of it a moment later.
    until(lambda: "max.message.bytes=2000" in described(), "the topic has its limit", described)
    until(lambda: "cleanup.policy=compact,delete" in described(), "it has both", described)
    tool(CONFIGS, "--alter", *entity, "--delete-config", "cleanup.policy")
    until(lambda: "cleanup.policy" not in described(), "it has the broker's", described)
    tool(PRODUCER, "--topic", topic, text="one\ntwo\nthree\n")
    wanted = {"partitions": [{"topic": topic, "partition": 0, "offset": 2}], "version": 1}
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps(wanted), encoding="utf-8")
    assert "low_watermark: 2" in tool(DELETE_RECORDS, "--offset-json-file", str(file))
    assert tool(OFFSETS, "--topic", topic, "--time", "-2").strip() == f"{topic}:0:2"


def test_the_producer_performance_tool(tool: Tool, topic: str, bootstrap: str) -> None:
    """A Java producer at full speed is refused or starves."""
    tool(TOPICS, "--create", "--topic", topic, "--partitions", "2")
    out = tool.unbound(  # type: ignore[attr-defined]
        PERFORMANCE,
        *("--topic", topic, "--num-records", "20000", "--record-size", "500"),
        *("--throughput", "-1", "--producer-props", f"bootstrap.servers={bootstrap}"),
    )
    assert "20000 records sent" in out
    counts = tool(OFFSETS, "--topic", topic, "--time", "latest").split()
    assert sum(int(line.rpartition(":")[2]) for line in counts) == 20000


def test_log_dirs_and_versions_are_described(tool: Tool, topic: str) -> None:
    """DescribeLogDirs or ApiVersions is not what the Java admin client understands."""
    tool(TOPICS, "--create", "--topic", topic, "--partitions", "1")
    tool(PRODUCER, "--topic", topic, text="one\n")
    out = tool(LOG_DIRS, "--describe", "--topic-list", topic)
    [described] = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    [directory] = described["brokers"][0]["logDirs"]
    assert directory["error"] is None
    assert directory["partitions"][0]["partition"] == f"{topic}-0"
    assert directory["partitions"][0]["size"] > 60
    assert "Produce(0): 0 to 13" in tool(API_VERSIONS)


def test_features_and_the_quorum_are_described(tool: Tool) -> None:
    """Operators look here first: what the cluster has agreed on, and who keeps its metadata."""
    lines = [line.split() for line in tool(FEATURES, "describe").splitlines()]
    levels = {line[1]: line[line.index("FinalizedVersionLevel:") + 1] for line in lines}
    assert (levels["group.version"], levels["transaction.version"]) == ("1", "2")
    assert "LeaderId:" in tool(QUORUM, "describe", "--status")


def test_reassignments_that_are_none(
    tool: Tool, create: Callable[..., str], topic: str, tmp_path: Path
) -> None:
    """The tool's two steps, with the replicas that the partition has already."""
    create(topic, 1)
    described = tool(TOPICS, "--describe", "--topic", topic)
    (replicas,) = re.findall(r"Replicas: ([\d,]+)", described)
    partition = {"topic": topic, "partition": 0, "replicas": [*map(int, replicas.split(","))]}
    file = tmp_path / "reassign.json"
    file.write_text(json.dumps({"version": 1, "partitions": [partition]}), encoding="utf-8")
    out = tool(REASSIGN, "--reassignment-json-file", str(file), "--execute")
    assert "Successfully started" in out
    assert "is completed" in tool(REASSIGN, "--reassignment-json-file", str(file), "--verify")


def test_client_metrics_are_subscribed(tool: Tool, topic: str) -> None:
    """A subscription is set, listed and described by its tool."""
    tool(CLIENT_METRICS, "--alter", "--name", topic, "--metrics", "*", "--interval", "60000")
    assert topic in tool(CLIENT_METRICS, "--list").split()
    assert "interval.ms=60000" in tool(CLIENT_METRICS, "--describe", "--name", topic)
    tool(CLIENT_METRICS, "--delete", "--name", topic)


def test_replicas_move_between_log_directories(
    tool: Tool, names: Callable[[str], str], tmp_path: Path
) -> None:
    """Fails when Kafka's tool cannot move a replica under a running producer, or see its end."""
    topic, log_dirs = names("moved"), [str(tmp_path / name) for name in ("a", "b")]
    with Broker(data_dir=",".join(log_dirs)) as broker:
        broker.create_topic(topic)
        (lies_in,) = [each for each in log_dirs if f"{topic}-0" in os.listdir(each)]
        (target,) = {*log_dirs} - {lies_in}
        wish = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [target]}
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps({"version": 1, "partitions": [wish]}), encoding="utf-8")
        where = ["--bootstrap-server", broker.bootstrap_servers]
        what = ["--reassignment-json-file", str(plan)]
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
        sent = 0
        with ThreadPoolExecutor(1) as executor:
            moving = executor.submit(tool.unbound, REASSIGN, *where, *what, "--execute")
            while not moving.done():
                producer.produce(topic, b"%d" % sent)
                producer.flush(deadline_s(60))
                sent += 1
        assert "Successfully started" in moving.result()
        told = tool.unbound(REASSIGN, *where, *what, "--verify")
        assert f"replica {topic}-0-1 completed successfully" in told
        assert f"{topic}-0" in os.listdir(target)
        values = [int(each.value) for each in broker.records(topic)]
        assert values == list(range(sent))
