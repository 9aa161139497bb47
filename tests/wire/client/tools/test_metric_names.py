"""The metrics of our clients, beside those of Kafka's own. If this fails, a value is missing under
Kafka's name, or another has it."""

import re
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.wire.java_tools import JavaTools

from odradek.client import Consumer, Producer

pytestmark = pytest.mark.slow
Run = Callable[[Coroutine[Any, Any, Any]], Any]
PRINTED = re.compile(r"^([a-z-]+):([a-z-]+):\{.*\} *: ", re.MULTILINE)
RECORDS = 20


def of_kafka(java_tools: JavaTools, tool: str, *words: str) -> set[tuple[str, str]]:
    """The groups and names that a tool of Kafka's prints of its client."""
    status, output, errors = java_tools(tool, [*words, "--print-metrics"])
    assert status == 0, errors
    return set(PRINTED.findall(output))


def of_ours(client: Producer | Consumer) -> set[tuple[str, str]]:
    """The same of a client of ours; topics and nodes are tags of Kafka's."""
    return {
        (group.partition(".")[0], name)
        for group, values in client.metrics().items()
        for name in values
    }


def test_a_producer_measures_by_kafkas_names(
    bootstrap: str, topic: str, java_tools: JavaTools, run: Run
) -> None:
    async def measured() -> set[tuple[str, str]]:
        async with Producer(bootstrap) as producer:
            await producer.send_and_wait(topic, b"v")
            return of_ours(producer)

    known = of_kafka(
        java_tools,
        "producer-perf-test",
        *("--topic", topic, "--num-records", str(RECORDS), "--record-size", "10"),
        *("--throughput", "-1", "--bootstrap-server", bootstrap),
    )
    ours = run(measured())
    assert ours
    assert ours <= known


def test_a_member_measures_by_kafkas_names(
    bootstrap: str, topic: str, java_tools: JavaTools, run: Run
) -> None:
    async def measured() -> set[tuple[str, str]]:
        async with Producer(bootstrap) as producer:
            await (await producer.send_many(topic, [b"v"] * RECORDS))
        settings = {"group_id": f"of-{topic}", "auto_offset_reset": "earliest"}
        async with Consumer(bootstrap, topics=[topic], **settings) as consumer:
            await consumer.getone()
            await consumer.commit()
            return of_ours(consumer)

    ours = run(measured())
    known = of_kafka(
        java_tools,
        "consumer-perf-test",
        *("--topic", topic, "--num-records", str(RECORDS), "--bootstrap-server", bootstrap),
    )
    assert ours
    assert ours <= known
