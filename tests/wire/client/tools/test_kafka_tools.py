"""Our command line beside Apache Kafka's own tools, on the same brokers.

Both do the same to topics and groups of their own whose names are of the same length; what they
print on standard output has to be the same then, but for ids, times and the order of rows that
Kafka takes from hash tables. If these fail, a script that parses the tools breaks.
"""

import asyncio
import base64
import contextlib
import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Consumer as GroupMember
from confluent_kafka import Producer as TransactionalProducer
from confluent_kafka import TopicPartition as Place
from tests.deadlines import deadline_ms, deadline_s
from tests.wire.client.tools.comparing import flags as every_flag
from tests.wire.client.tools.comparing.answers import Ours, difference, normal, told_otherwise
from tests.wire.client.tools.comparing.lines import (
    CONFIGS,
    CONSOLES,
    CONTROLLERS,
    FILES,
    GROUPS,
    LOGGED,
    MEMBERS,
    PERFORMANCE,
    REFUSED,
    SHARE_GROUPS,
    TOPICS,
    TRANSACTIONS,
)
from tests.wire.java_tools import JavaTools
from tests.wire.replicas import REPLICAS

import odradek
from odradek.cli.main import main
from odradek.client import Admin, Producer
from odradek.client.core.admin_types import (
    CommittedOffset,
    ConfigResource,
    NewTopic,
)
from odradek.model import ConfigResourceType, TopicPartition

# The columns of transactions whose numbers differ from one transaction to the next.
PASSING = {
    "ProducerId",
    "LastTimestamp",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "Duration(min)",
}
TIME_LIMIT_S = deadline_s(120)
# Where the records are that a formatter shows.
INTERNAL_FORMATTERS = {
    "OffsetsMessageFormatter": "__consumer_offsets",
    "GroupMetadataMessageFormatter": "__consumer_offsets",
    "ShareGroupMessageFormatter": "__consumer_offsets",
    "TransactionLogMessageFormatter": "__transaction_state",
    "group.share.ShareGroupStateMessageFormatter": "__share_group_state",
}
# Of each state that a transaction has without a time-out, and of what a share group gave back.
SHOWN_BY = {
    "TransactionLogMessageFormatter": [f'"transactionStatus":{state},' for state in (0, 1, 2, 4)],
    "group.share.ShareGroupStateMessageFormatter": ['"deliveryState":0,"deliveryCount":1'],
}
READER = "console-consumer"
# How long a reader waits for a record before it ends.
QUIET_MS = str(deadline_ms(4000))
# With the blanks that fill its column up.
NUMBER = re.compile(r"\d+ *")
# Where one JSON object ends and the next one begins.
BETWEEN = re.compile(r"(?<=\})(?=\{\"key\":)")
CLOSE_S = deadline_s(60)
# Young enough that retention leaves the records alone.
NOW_MS = int(datetime.now(UTC).timestamp() * 1000)


async def prepare_empty(servers: str, topic: str) -> None:
    """A topic with two empty partitions."""
    async with Admin(servers) as admin:
        await admin.create_topics([NewTopic(topic, 2, REPLICAS)])


async def prepare(servers: str, topic: str, group: str) -> None:
    """A topic with ten records in two partitions, and a group that stands in it."""
    async with Producer(servers) as producer, Admin(servers) as admin:
        await admin.create_topics([NewTopic(topic, 2, REPLICAS)])
        for number in range(10):
            await producer.send(topic, b"v", partition=number % 2, timestamp_ms=NOW_MS + number)
        await producer.flush()
        offsets = {TopicPartition(topic, 0): 2, TopicPartition(topic, 1): 5}
        values = {each: CommittedOffset(offset) for each, offset in offsets.items()}
        await admin.alter_group_offsets(group, values)


async def prepare_shared(servers: str, topic: str, group: str) -> None:
    """A topic with ten records in two partitions, and a share group that stands in it."""
    await prepare(servers, topic, f"other-{group}")
    offsets = {TopicPartition(topic, 0): 2, TopicPartition(topic, 1): 5}
    async with Admin(servers) as admin:
        assert await admin.alter_share_group_offsets(group, offsets) == dict.fromkeys(offsets)


async def prepare_consoles(servers: str, topic: str, _group: str) -> None:
    """Topics with all that a record may have, with numbers, and to write to."""
    async with Producer(servers) as producer, Admin(servers) as admin:
        names = [topic, f"{topic}-number", f"{topic}-written", f"{topic}-perf"]
        round_about = NewTopic(f"{topic}-round", 3, REPLICAS)
        await admin.create_topics([round_about, *(NewTopic(each, 1, REPLICAS) for each in names)])
        numbers = b"\0\0\0\x05", b"\0\0\0\0\0\0\0\x07"
        records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
            (b"k0", b"v0", [("h", b"x"), ("n", None)]),
            (None, b"v1", []),
            (b"k2", None, []),
            (b"", b"", [("empty", b"")]),
            (*numbers, []),
        ]
        for number, (key, value, headers) in enumerate(records):
            when_ms = NOW_MS + number
            await producer.send(topic, value, key=key, headers=headers, timestamp_ms=when_ms)
        await producer.send(f"{topic}-number", numbers[1], key=numbers[0])
        await producer.flush()


def write_files(folder: Path, topic: str, group: str) -> None:
    """The files that the lines name."""

    def partition(index: int, **more: int) -> dict[str, object]:
        return {"topic": topic, "partition": index, **more}

    documents = {
        "records": {"partitions": [partition(0, offset=2), partition(1, offset=-1)], "version": 1},
        "beyond": {"partitions": [partition(0, offset=99)], "version": 1},
        "twice": {"partitions": [partition(0, offset=2), partition(0, offset=3)], "version": 1},
        "version": {"partitions": [], "version": 2},
        "elect": {"partitions": [partition(0), partition(1)]},
        "elect-none": {"partitions": [partition(7)]},
        "elect-twice": {"partitions": [partition(0), partition(0)]},
    }
    texts = {name: json.dumps(document) for name, document in documents.items()}
    texts |= {
        "reset": f"{topic},0,3\n{topic},1,5\n",
        "groups": f"{group},{topic},0,3\nno{group},{topic},1,2\n",
        "broken": "{not, json",
        "list": "[]",
        "no-list": '{"partitions": {}}',
        "no-name": '{"version": 1, "partitions": [{"topic": 1}]}',
        "no-offset": '{"version": 1, "partitions": [{"topic": "t", "partition": 0}]}',
        "properties": "retries=5\n",
        "format": "print.key=true\nkey.separator=|\n",
        "reader": "parse.key=true\nkey.separator=;\n",
    }
    for name, text in texts.items():
        (folder / f"{topic}.{name}").write_text(text, encoding="utf-8")


def words_of(line: str, servers: str, topic: str, group: str, folder: Path) -> list[str]:
    """The tool and its words."""
    topic_id = ""
    if "{id}" in line:
        topic_id = asyncio.run(id_of(servers, topic))
    tool, *rest = line.format(topic=topic, group=group, folder=folder, id=topic_id).split()
    place = 1 if tool == "cluster" else 0
    return [tool, *rest[:place], "--bootstrap-server", servers, *rest[place:]]


async def id_of(servers: str, topic: str) -> str:
    async with Admin(servers) as admin:
        found = (await admin.describe_topic(topic)).topic_id
    assert found is not None, "brokers of today have ids"
    return base64.urlsafe_b64encode(found.bytes).decode().rstrip("=")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lines", "setting_up"),
    [
        (TOPICS, None),
        (CONFIGS, prepare),
        (GROUPS, prepare),
        (SHARE_GROUPS, prepare_shared),
        (FILES, prepare),
        (CONSOLES, prepare_consoles),
        (PERFORMANCE, prepare_consoles),
    ],
    ids=["topics", "configs", "groups", "share-groups", "files", "consoles", "performance"],
)
def test_every_line_prints_what_kafkas_tool_prints(
    modern_servers: str,
    lines: list[str],
    setting_up: Callable[[str, str, str], Coroutine[None, None, None]] | None,
    java_tools: JavaTools,
    ours: Ours,
    names: Callable[[str], str],
    tmp_path: Path,
) -> None:
    stem = names("t").replace(".", "-")
    pairs = [(f"{stem}-a", f"{stem}-ga"), (f"{stem}-b", f"{stem}-gb")]
    for topic, group in pairs if setting_up is not None else ():
        asyncio.run(setting_up(modern_servers, topic, group))
        write_files(tmp_path, topic, group)
    failed: list[str] = []
    for whole in lines:
        line, _, text = whole.partition(" <<< ")
        found = []
        for (topic, group), run in zip(pairs, (java_tools, ours), strict=True):
            tool, *words = words_of(line, modern_servers, topic, group, tmp_path)
            done = run(tool, words, text)
            found.append((done, normal(done, line, topic, group)))
        (theirs_said, expected), ours_said = found
        if whole in LOGGED:
            expected = expected._replace(traced=True)
        failed += difference(line, (theirs_said, expected), ours_said)
    assert not failed, "\n\n".join(failed)


async def controllers_of(servers: str) -> str:
    """Where the controllers listen; of a cluster that has none its brokers."""
    async with Admin(servers) as admin:
        broker = ConfigResource(ConfigResourceType.BROKER, "1")
        settings = (await admin.describe_configs([broker]))[broker]
    assert isinstance(settings, dict)
    voters = settings.get("controller.quorum.voters")
    return servers if voters is None or not voters.value else voters.value.partition("@")[2]


@pytest.mark.slow
def test_controllers_are_asked_as_kafkas_tools_ask_them(
    modern_servers: str, java_tools: JavaTools, ours: Ours, names: Callable[[str], str]
) -> None:
    """Somebody whose brokers are all away could not look at the cluster, or not see why."""
    topic = names("t")
    asyncio.run(prepare_empty(modern_servers, topic))
    where = f"--bootstrap-controller {asyncio.run(controllers_of(modern_servers))}"
    failed: list[str] = []
    for line in CONTROLLERS:
        tool, *words = line.format(topic=topic, controllers=where).split()
        both = [run(tool, words, "") for run in (java_tools, ours)]
        failed += told_otherwise(line, *both, topic, "no group")
    assert not failed, "\n\n".join(failed)


@pytest.mark.slow
def test_who_may_not_is_told_so_as_by_kafkas_tools(
    java_tools: JavaTools, ours: Ours, tmp_path: Path
) -> None:
    """A refusal would look like an empty answer, or be told in other words."""
    topic, group = "refused", "members"
    failed: list[str] = []
    with odradek.Broker() as broker:
        servers = broker.bootstrap_servers
        asyncio.run(prepare(servers, topic, group))
        write_files(tmp_path, topic, group)
        for api, error, line in REFUSED:
            tool, *words = words_of(line, servers, topic, group, tmp_path)
            with broker.fail(api, error):
                both = [run(tool, words, "") for run in (java_tools, ours)]
                failed += told_otherwise(line, *both, topic, group)
    assert not failed, "\n\n".join(failed)


async def state_of(servers: str, group: str) -> str:
    async with Admin(servers) as admin:
        found = (await admin.describe_groups([group]))[group]
    return "" if isinstance(found, Exception) else found.state


@contextlib.contextmanager
def members(servers: str, topic: str, group: str, protocol: str) -> Iterator[None]:
    """Three members of a group that share the two partitions of a topic, one with a name of its
    own; what there is has been read and committed."""
    settings = {"bootstrap.servers": servers, "group.id": group, "group.protocol": protocol}
    settings |= {"auto.offset.reset": "earliest", "enable.auto.commit": "false"}
    names: list[dict[str, str]] = [{}, {"group.instance.id": f"{protocol}-instance"}, {}]
    consumers = [
        GroupMember({**settings, **name, "client.id": f"member-{number}"})
        for number, name in enumerate(names)
    ]
    try:
        for each in consumers:
            each.subscribe([topic])
        deadline_s = time.monotonic() + TIME_LIMIT_S
        # Whoever gets a partition of another reads it again, since nothing is committed yet.
        while sum(place.offset for each in consumers for place in places(each)) < 10 or (
            asyncio.run(state_of(servers, group)) != "Stable"
        ):
            assert time.monotonic() < deadline_s, "the group does not settle"
            for each in consumers:
                each.poll(0.1)
        for each in consumers:
            if read := places(each):
                each.commit(offsets=read, asynchronous=False)
        yield
    finally:
        for each in consumers:
            close(each)


def places(member: GroupMember) -> list[Place]:
    """How far a member has read, where it has read something."""
    return [place for place in member.position(member.assignment()) if place.offset > 0]


def close(consumer: GroupMember) -> None:
    """Closes a member, whom its library may keep for ever: librdkafka's newer protocol sometimes
    waits in `close` for an assignment that does not come."""
    closing = threading.Thread(target=consumer.close, daemon=True)
    closing.start()
    closing.join(CLOSE_S)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_is_told_as_kafkas_tool_tells_it(
    modern_servers: str,
    java_tools: JavaTools,
    ours: Ours,
    names: Callable[[str], str],
    protocol: str,
) -> None:
    """Members, their assignments and epochs would be told otherwise, or a group that is at work
    be changed."""
    topic, group = names("t"), names("g")
    asyncio.run(prepare(modern_servers, topic, f"no{group}"))
    failed: list[str] = []
    with members(modern_servers, topic, group, protocol):
        for line in MEMBERS:
            words = line.format(topic=topic, group=group).split()
            words = ["--bootstrap-server", modern_servers, *words]
            both = [run("consumer-groups", words, "") for run in (java_tools, ours)]
            failed += told_otherwise(line, *both, topic, group)
    assert not failed, "\n\n".join(failed)


@pytest.mark.slow
def test_flags_go_together_as_those_of_kafkas_tools_do(
    bootstrap: str, java_tools: JavaTools, ours: Ours
) -> None:
    """Ours would do what Kafka's tool refuses, or refuse what it takes, or in other words."""
    asyncio.run(prepare_empty(bootstrap, every_flag.TOPIC))
    failed: list[str] = []
    for tool, *words in every_flag.lines():
        line = " ".join((tool, *words))
        names = every_flag.TOPIC, every_flag.VALUES["group"]
        where = ["--bootstrap-server", bootstrap]
        both = [run(tool, [*where, *words], "") for run in (java_tools, ours)]
        failed += told_otherwise(line, *both, *names)
    assert not failed, "\n\n".join(failed)


@contextlib.contextmanager
def open_transaction(servers: str, topic: str) -> Iterator[None]:
    """A producer with an open transaction in partition 0 of a topic, and one with none."""
    settings = {"bootstrap.servers": servers, "transaction.timeout.ms": 600_000}
    idle, writer = (
        TransactionalProducer({**settings, "transactional.id": f"{topic}-{name}"})
        for name in ("idle", "open")
    )
    for each in (idle, writer):
        each.init_transactions(TIME_LIMIT_S)
    writer.begin_transaction()
    writer.produce(topic, b"v", partition=0)
    assert writer.flush(TIME_LIMIT_S) == 0
    yield
    # Only what holds the connection; whoever ended the transaction shut the producer out.
    writer.purge()


def steady(text: str, topic: str) -> list[str]:
    """The lines of a table, sorted, without names, and without ids and times, of the same width."""
    table = [line.split("\t") for line in text.replace(topic, "T").splitlines()]
    for line in table[1:]:
        for place, (column, cell) in enumerate(zip(table[0], line, strict=True)):
            if column.strip() in PASSING and cell.strip().isdigit():
                line[place] = "N".ljust(len(cell))
    return sorted("\t".join(line) for line in table)


@pytest.mark.slow
def test_transactions_prints_what_kafkas_tool_prints(
    modern_servers: str,
    java_tools: JavaTools,
    ours: Ours,
    names: Callable[[str], str],
) -> None:
    """Columns, `None`, statuses, or what the broker was told differ from Kafka's tool."""
    stem = names("txn")
    topics = [f"{stem}-a", f"{stem}-b"]
    failed = []
    for topic in topics:
        asyncio.run(prepare_empty(modern_servers, topic))
    with contextlib.ExitStack() as opened:
        for topic in topics:
            opened.enter_context(open_transaction(modern_servers, topic))
        for line in TRANSACTIONS:
            found = []
            for topic, run in zip(topics, (java_tools, ours), strict=True):
                words = ["--bootstrap-server", modern_servers, *line.format(topic=topic).split()]
                status, text, _ = run("transactions", words, "")
                found.append((status, steady(text, topic)))
            if found[0] != found[1]:
                failed.append(f"{line}\n--- theirs {found[0]}\n--- ours {found[1]}")
    assert not failed, "\n\n".join(failed)


@pytest.mark.slow
def test_internal_records_are_shown_as_by_kafkas_formatters(
    modern_servers: str, java_tools: JavaTools, ours: Ours, names: Callable[[str], str]
) -> None:
    """A search for a group or a transaction in the broker's own topics finds it otherwise."""
    name = names("t")
    where = ["--bootstrap-server", modern_servers, "--topic"]
    asyncio.run(prepare_shared(modern_servers, name, name))
    payload = ["--num-records", "2", "--throughput", "-1", "--record-size", "1"]
    ours("producer-perf-test", [*where, name, *payload, "--transactional-id", name], "")
    read = ["--group", f"{name}-classic", "--from-beginning", "--max-messages", "10"]
    ours("console-consumer", [*where, name, *read], "")
    share = ["--group", name, "--max-messages", "2", "--release"]
    assert ours("console-share-consumer", [*where, name, *share], "").status == 0
    with open_transaction(modern_servers, name):
        for formatter, topic in INTERNAL_FORMATTERS.items():
            words = [*where, topic, "--from-beginning", "--timeout-ms", QUIET_MS, "--formatter"]
            words.append(f"org.apache.kafka.tools.consumer.{formatter}")
            # Others' records, those of these two readers among them, come and go.
            theirs, found = (
                sorted(
                    each for each in BETWEEN.split(run(READER, words, "").output) if name in each
                )
                for run in (java_tools, ours)
            )
            assert all(part in "".join(theirs) for part in SHOWN_BY.get(formatter, [name]))
            assert theirs == found


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "broker-api-versions",
        "features describe",
        "metadata-quorum describe --status",
        "metadata-quorum describe --replication",
    ],
)
def test_a_cluster_is_told_as_by_kafkas_tools(
    modern_servers: str, java_tools: JavaTools, ours: Ours, line: str
) -> None:
    """A look whether a broker is up, or has what somebody needs, would be answered otherwise."""
    tool, *words = line.split()
    words = ["--bootstrap-server", modern_servers, *words]
    theirs, found = (run(tool, words, "") for run in (java_tools, ours))
    assert theirs.status == found.status == 0
    if tool == "metadata-quorum":  # whose offsets and times move on
        theirs, found = (
            done._replace(output=NUMBER.sub("N", done.output)) for done in (theirs, found)
        )
    assert theirs == found


def test_scripts_under_kafkas_names_call_ours(
    bootstrap: str, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`kafka-bin` writes something that does not run, or runs something else."""
    assert main(["kafka-bin", str(tmp_path)]) == 0
    main(["topics", "--bootstrap-server", bootstrap, "--create", "--topic", topic])
    done = subprocess.run(
        [tmp_path / "kafka-topics.sh", "--bootstrap-server", bootstrap, "--list", "--topic", topic],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=True,
        env=os.environ,
    )
    assert done.stdout == f"{topic}\n"


def test_wrong_usage_is_status_2_and_a_broker_that_is_away_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["topics", "--bootstrap-server", "x:1", "--list", "--bogus"])
    assert caught.value.code == 2
    settings = tmp_path / "client.properties"
    settings.write_text("default.api.timeout.ms=100\n", encoding="utf-8")
    away = ["--bootstrap-server", "127.0.0.1:1", "--command-config", str(settings)]
    assert main(["topics", *away, "--list"]) == 1
    said = capsys.readouterr().out
    assert said.startswith("Error while executing topic command : no broker can be reached")
    assert said.count("\n") == 1
