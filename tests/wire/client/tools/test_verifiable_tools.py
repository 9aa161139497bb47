"""Our verifiable producer and consumer beside Apache Kafka's, on the same broker: the same words to
both, and the same events with the same fields in the same order, but for times. If these fail, a
system test that is written for Kafka's waits for a line that never comes."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

import pytest
from tests.deadlines import deadline_s
from tests.wire.replicas import REPLICAS

from odradek.cli.main import AS_KAFKA, COMMAND
from odradek.client import Admin, Producer
from odradek.client.core.admin_types import NewTopic

pytestmark = pytest.mark.slow
TIME_LIMIT_S: Final = deadline_s(120)
ENDED: Final = 128 + signal.SIGTERM
# What a fast machine makes other than a slow one.
PASSING: Final = ("timestamp", "avg_throughput")

Told = tuple[int, list[list[tuple[str, Any]]]]
# Runs both tools; a signal comes when an event is told the so-manyth time.
Both = Callable[..., list[Told]]


def told(command: list[str], stop_at: tuple[str, int] | None) -> Told:
    """The status of a tool, and the fields of each of its events."""
    events: list[dict[str, Any]] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ
    ) as process:
        limit = threading.Timer(TIME_LIMIT_S, process.kill)
        limit.start()
        assert process.stdout is not None, "it was asked for"
        for line in process.stdout:
            events.append(json.loads(line))
            name = events[-1]["name"]
            if stop_at == (name, sum(each["name"] == name for each in events)):
                process.terminate()
        limit.cancel()
    fields = [[each for each in event.items() if each[0] not in PASSING] for event in events]
    return process.returncode, fields


@pytest.fixture
def both(bootstrap: str, java: str, kafka_class_path: str) -> Both:
    """Runs Kafka's tool and ours, each with words of its own."""

    def run(
        name: str, words: Callable[[str], list[str]], stop_at: tuple[str, int] | None = None
    ) -> list[Told]:
        class_name = f"org.apache.kafka.tools.Verifiable{name.title()}"
        flags = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", kafka_class_path]
        commands = {
            "theirs": [java, *flags, class_name],
            "ours": [sys.executable, *COMMAND, AS_KAFKA, f"verifiable-{name}"],
        }
        where = ["--bootstrap-server", bootstrap]
        return [told([*command, *where, *words(who)], stop_at) for who, command in commands.items()]

    return run


def make_topic(servers: str, topic: str, *values: bytes, **config: str) -> None:
    """A topic with one partition and these records."""

    async def make() -> None:
        async with Admin(servers) as admin, Producer(servers) as producer:
            settings = {name.replace("_", "."): value for name, value in config.items()}
            await admin.create_topics([NewTopic(topic, 1, REPLICAS, config=settings)])
            for number, value in enumerate(values):
                await producer.send(topic, value, key=None if number else b"k")

    asyncio.run(make())


def assert_alike(runs: list[Told], status: int, least: int) -> None:
    """Both said the same, and not too little."""
    theirs, ours = runs
    assert theirs[0] == status
    assert len(theirs[1]) >= least, theirs
    assert ours == theirs


def test_a_producer_tells_what_it_sends(
    bootstrap: str, both: Both, names: Callable[[str], str]
) -> None:
    topics = {who: names(who) for who in ("theirs", "ours")}
    for topic in topics.values():
        make_topic(bootstrap, topic)
    words = ["--max-messages", "5", "--value-prefix", "7", "--repeating-keys", "2", "--acks", "1"]
    runs = both("producer", lambda who: ["--topic", topics[who], *words])
    theirs, ours = (
        (status, [[each for each in event if each[0] != "topic"] for event in events])
        for status, events in runs
    )
    assert_alike([theirs, ours], 0, 8)
    assert all(("topic", topics["ours"]) == event[4] for event in runs[1][1][1:6])


def test_a_producer_tells_what_is_refused(
    bootstrap: str, both: Both, names: Callable[[str], str]
) -> None:
    topic = names("refused")
    make_topic(bootstrap, topic, max_message_bytes="10")
    runs = both("producer", lambda _: ["--topic", topic, "--max-messages", "1"])
    assert_alike(runs, 0, 4)


def test_a_producer_ends_by_a_signal(
    bootstrap: str, both: Both, names: Callable[[str], str]
) -> None:
    topic = names("ended")
    make_topic(bootstrap, topic)
    words = ["--topic", topic, "--throughput", "0", "--acks", "0"]
    runs = both("producer", lambda _: words, ("producer_send_success", 2))
    assert_alike(runs, ENDED, 5)


@pytest.mark.parametrize(
    ("words", "stop_at", "status"),
    [
        (["--verbose"], ("offsets_committed", 1), ENDED),
        (["--max-messages", "2", "--group-protocol", "consumer", "--verbose"], None, 0),
    ],
)
def test_a_consumer_tells_what_it_reads(
    bootstrap: str,
    both: Both,
    names: Callable[[str], str],
    words: list[str],
    stop_at: tuple[str, int] | None,
    status: int,
) -> None:
    topic = names("read")
    make_topic(bootstrap, topic, b"v", "\N{SNOWMAN}".encode() + b"\xff", b'"\x01')
    runs = both(
        "consumer", lambda who: ["--topic", topic, "--group-id", f"{topic}-{who}", *words], stop_at
    )
    assert_alike(runs, status, 9)
