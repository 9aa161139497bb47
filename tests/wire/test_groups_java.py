"""Kafka's own console consumer and ConsumerGroupCommand, on a JVM, with a group."""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
RECORDS = 40

Tool = Callable[..., str]


@pytest.fixture
def filled(bootstrap: str, topic: str) -> str:
    """A topic with twenty records in each of two partitions, a second apart."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        timestamp_ms = 1_700_000_000_000 + 1000 * (number // 2)
        producer.produce(topic, b"%d" % number, partition=number % 2, timestamp=timestamp_ms)
    assert producer.flush(30) == 0
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
    tool(GROUPS, "--delete-offsets", *named, "--topic", f"{filled}:0")
    left = [row for row in rows(tool(GROUPS, "--describe", *named)) if row[0] == group]
    assert [(row[2], row[3]) for row in left] == [("1", "6")]
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
    while len(consumer.assignment()) < 2:
        consumer.poll(0.1)
    try:
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
