"""Kafka's own console consumer and ConsumerGroupCommand, on a JVM, with a group."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.wire.readers import DEADLINE_S
from tests.wire.replicas import REPLICAS

import odradek

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
RECORDS = 40

Tool = Callable[..., str]


@pytest.fixture
def filled(bootstrap: str, topic: str) -> str:
    """A topic with twenty records in each of two partitions, a second apart."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, REPLICAS)])[topic].result()
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        timestamp_ms = 1_700_000_000_000 + 1000 * (number // 2)
        producer.produce(topic, b"%d" % number, partition=number % 2, timestamp=timestamp_ms)
    assert producer.flush(DEADLINE_S) == 0
    return topic


def rows(output: str) -> list[list[str]]:
    """The table that a tool printed, without its head."""
    lines = [line.split() for line in output.splitlines() if line.strip()]
    return [line for line in lines if line[0] != "GROUP"]


def test_the_console_consumer_and_every_way_to_reset(
    tool: Tool, bootstrap: str, filled: str, names: Callable[[str], str], tmp_path: Path
) -> None:
    """Kafka's tools cannot consume with a group, or cannot administer it."""
    group = names("java")
    named = ["--group", group]
    consumed = tool(
        CONSUMER,
        *["--topic", filled, "--from-beginning", "--max-messages", str(RECORDS)],
        *["--timeout-ms", "60000", *named, "--command-property", "group.protocol=classic"],
    )
    assert sorted(map(int, consumed.split())) == list(range(RECORDS))
    assert group in tool(GROUPS, "--list").split()
    described = rows(tool(GROUPS, "--describe", *named))
    assert [(row[1], row[3], row[5]) for row in described if row[0] == group] == [
        (filled, "20", "0"),
        (filled, "20", "0"),
    ]
    assert "Empty" in tool(GROUPS, "--describe", "--state", *named)

    def reset(*how: str) -> list[str]:
        printed = rows(
            tool(GROUPS, "--reset-offsets", *named, "--topic", filled, *how, "--execute")
        )
        return sorted(row[3] for row in printed if row[0] == group)

    assert reset("--to-earliest") == ["0", "0"]
    assert reset("--to-offset", "5") == ["5", "5"]
    assert reset("--shift-by", "3") == ["8", "8"]
    assert reset("--to-current") == ["8", "8"]
    assert reset("--to-datetime", "2023-11-14T22:13:30.000Z") == ["10", "10"]
    assert reset("--by-duration", "P1D") == ["20", "20"]
    assert reset("--to-latest") == ["20", "20"]
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{filled},0,4\n{filled},1,6\n", encoding="utf-8")
    assert reset("--from-file", str(plan)) == ["4", "6"]
    # An export is a plan that --from-file takes: what it says is what it would do, and it does
    # nothing.
    latest = ["--reset-offsets", *named, "--topic", filled, "--to-latest"]
    exported = tool(GROUPS, *latest, "--export", "--dry-run")
    assert sorted(exported.split()) == [f'"{filled}",0,20', f'"{filled}",1,20']
    assert reset("--to-current") == ["4", "6"]
    plan.write_text(exported, encoding="utf-8")
    assert reset("--from-file", str(plan)) == ["20", "20"]
    assert reset("--shift-by", "-14") == ["6", "6"]
    one = ["--topic", f"{filled}:1", "--to-offset", "7", "--execute"]
    tool(GROUPS, "--reset-offsets", "--all-groups", *one)
    tool(GROUPS, "--delete-offsets", *named, "--topic", f"{filled}:0")
    left = [row for row in rows(tool(GROUPS, "--describe", *named)) if row[0] == group]
    assert [(row[2], row[3]) for row in left] == [("1", "7")]
    assert "successful" in tool(GROUPS, "--delete", *named)
    assert group not in tool(GROUPS, "--list").split()


def test_members_and_states_of_a_live_group(
    tool: Tool, bootstrap: str, filled: str, names: Callable[[str], str]
) -> None:
    """Kafka's tools show members, assignments or states of a group in another way than Kafka's."""
    group = names("live")
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "anna",
            "heartbeat.interval.ms": 300,
        }
    )
    consumer.subscribe([filled])
    try:
        poll_until(consumer, lambda _polled: len(consumer.assignment()) == 2)
        members = tool(GROUPS, "--describe", "--members", "--verbose", "--group", group)
        assert "anna" in members
        assert f"{filled}(0,1)" in members or f"{filled}:0,1" in members, members
        state = tool(GROUPS, "--describe", "--state", "--group", group)
        assert "Stable" in state
        assert "range" in state
        assert group in tool(GROUPS, "--list", "--state", "stable", "--type", "classic")
        assert group not in tool(GROUPS, "--list", "--state", "empty")
    finally:
        consumer.close()


DUMP = "org.apache.kafka.tools.DumpLogSegments"


def test_kafkas_decoder_prints_our_internal_topic(tool: Tool, tmp_path: Path) -> None:
    """Kafka cannot read what we wrote of groups of both kinds and of their offsets."""
    with odradek.Broker(str(tmp_path), config={"offsets.topic.num.partitions": 1}) as broker:
        broker.create_topic("t", partitions=2)
        for protocol in ("classic", "consumer"):
            consume_one(broker, protocol)
    (log,) = tmp_path.glob("__consumer_offsets-0/*.log")
    printed = tool.unbound(DUMP, "--files", str(log), "--offsets-decoder")
    ours = subprocess.run(
        [sys.executable, "-m", "odradek", "dump-log", "--files", str(log), "--offsets-decoder"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert printed == ours.stdout, ours.stderr
    keys = [
        line.split("key: ")[1].split(" payload: ")
        for line in printed.splitlines()
        if "key: " in line
    ]
    for expected in EXPECTED:
        assert any(expected in key for key, _ in keys), expected
    assert not [key for key, _ in keys if "unknown" in key.lower()]
    values = "".join(value for _, value in keys)
    assert '"offset":1' in values
    assert '"protocol":"range"' in values
    assert '"epoch":2' in values


EXPECTED = (
    '{"type":"1","data":{"group":"classic","topic":"t","partition":',
    '{"type":"2","data":{"group":"classic"}}',
    '{"type":"1","data":{"group":"consumer","topic":"t","partition":',
    '{"type":"3","data":{"groupId":"consumer"}}',
    '{"type":"5","data":{"groupId":"consumer","memberId":',
    '{"type":"6","data":{"groupId":"consumer"}}',
    '{"type":"7","data":{"groupId":"consumer","memberId":',
    '{"type":"8","data":{"groupId":"consumer","memberId":',
)


def consume_one(broker: odradek.Broker, protocol: str) -> None:
    """A member of a group that is called like its protocol reads a record and commits."""
    bootstrap = {"bootstrap.servers": broker.bootstrap_servers}
    producer = Producer(bootstrap)
    producer.produce("t", b"value", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    consumer = Consumer(
        {
            **bootstrap,
            "group.id": protocol,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["t"])
    message = poll_until(consumer, lambda polled: polled is not None and polled.error() is None)
    consumer.commit(message, asynchronous=False)
    consumer.close()


def poll_until(consumer: Consumer, ready: Callable[[Message | None], bool]) -> Message | None:
    """Polls until what is polled, or the consumer, is ready; the time-out is only for failing."""
    deadline = time.monotonic() + DEADLINE_S
    while not ready(polled := consumer.poll(0.1)):
        assert time.monotonic() < deadline, f"polled in vain, has {consumer.assignment()}"
    return polled
