"""Our command line beside Apache Kafka's own tools, on the same brokers.

Both do the same to topics and groups of their own whose names are of the same length; what they
print on standard output has to be the same then, but for ids and the order of rows that Kafka
takes from hash tables. If these fail, a script that parses the tools breaks.
"""

import asyncio
import contextlib
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer as TransactionalProducer

from odradek.cli.main import main
from odradek.client import Admin, Producer
from odradek.client.core.admin_types import CommittedOffset, NewTopic
from odradek.model import TopicPartition

PACKAGE = "org.apache.kafka.tools"
CLASSES = {
    "topics": f"{PACKAGE}.TopicCommand",
    "consumer-groups": f"{PACKAGE}.consumer.group.ConsumerGroupCommand",
    "get-offsets": f"{PACKAGE}.GetOffsetShell",
    "cluster": f"{PACKAGE}.ClusterTool",
    "transactions": f"{PACKAGE}.TransactionsCommand",
    "log-dirs": f"{PACKAGE}.LogDirsCommand",
    "leader-election": f"{PACKAGE}.LeaderElectionCommand",
    "delete-records": f"{PACKAGE}.DeleteRecordsCommand",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": f"{PACKAGE}.consumer.ConsoleConsumer",
    "console-producer": f"{PACKAGE}.ConsoleProducer",
}
# A list of partitions, which Kafka takes from a hash table too.
PARTITIONS = re.compile(r"T-\d+(, T-\d+)+")
ID = re.compile(r"TopicId: \S{22}")
# The columns of transactions whose numbers differ from one transaction to the next.
PASSING = {
    "ProducerId",
    "LastTimestamp",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "Duration(min)",
}
TIME_LIMIT_S = 120
# Young enough that retention leaves the records alone.
NOW_MS = int(datetime.now(UTC).timestamp() * 1000)

Theirs = Callable[[str, list[str], str], tuple[int, str]]

TOPICS = [
    "topics --create --topic {topic} --partitions 2 --config retention.ms=-1",
    "topics --create --topic {topic}",
    "topics --create --topic {topic} --if-not-exists",
    "topics --create --topic {topic}.dotted --replication-factor 9",
    "topics --create --topic {topic}!",
    "topics --create --topic other --partitions 0",
    "topics --list --topic {topic}",
    "topics --describe --topic {topic}",
    "topics --describe --topic {topic} --unavailable-partitions",
    "topics --describe --topic {topic} --at-min-isr-partitions",
    "topics --describe --topic {topic} --topics-with-overrides",
    "topics --describe --topic no{topic}",
    "topics --describe --topic no{topic} --if-exists",
    "topics --describe --topic-id abc",
    "topics --alter --topic {topic} --partitions 1",
    "topics --alter --topic {topic} --partitions 3",
    "topics --delete --topic no{topic}",
    "configs --describe --entity-type topics --entity-name {topic}",
    "configs --alter --topic {topic} --add-config segment.ms=10000,cleanup.policy=[compact,delete]",
    "configs --describe --topic {topic}",
    "configs --alter --topic {topic} --delete-config segment.ms",
    "configs --describe --topic no{topic}",
    "topics --delete --topic {topic}",
    "topics --list --topic {topic}",
]

GROUPS = [
    "get-offsets --topic {topic}",
    "get-offsets --topic {topic} --time earliest",
    "get-offsets --topic-partitions {topic}:1 --time -3",
    "get-offsets --topic no{topic}",
    "consumer-groups --describe --group {group}",
    "consumer-groups --describe --group {group} --verbose",
    "consumer-groups --describe --group {group} --members",
    "consumer-groups --describe --group {group} --members --verbose",
    "consumer-groups --describe --group {group} --state",
    "consumer-groups --describe --group {group} --state --verbose",
    "consumer-groups --reset-offsets --group {group} --topic {topic} --to-earliest",
    "consumer-groups --reset-offsets --group {group} --topic {topic}:1 --to-offset 3 --execute",
    "consumer-groups --reset-offsets --group {group} --all-topics --shift-by -9 --dry-run --export",
    "consumer-groups --reset-offsets --group {group} --topic {topic} --to-latest --execute",
    "consumer-groups --reset-offsets --group {group} --topic {topic} --to-offset 99 --dry-run",
    "consumer-groups --describe --group {group}",
    "consumer-groups --delete-offsets --group {group} --topic {topic}:0",
    "consumer-groups --delete-offsets --group {group} --topic no{topic}",
    "consumer-groups --delete --group {group} --group no{group}",
    "consumer-groups --delete --group no{group}",
    "leader-election --election-type preferred --topic {topic} --partition 0",
    "cluster cluster-id",
    "cluster list-endpoints",
    "log-dirs --describe --topic-list {topic}",
]

FILES = [
    "delete-records --offset-json-file {folder}/{topic}.records",
    "delete-records --offset-json-file {folder}/{topic}.beyond",
    "delete-records --offset-json-file {folder}/{topic}.twice",
    "leader-election --election-type preferred --path-to-json-file {folder}/{topic}.elect",
    "leader-election --election-type preferred --path-to-json-file {folder}/{topic}.elect-none",
    "consumer-groups --reset-offsets --group {group} --from-file {folder}/{topic}.reset --dry-run",
    "consumer-groups --reset-offsets --group {group} --topic {topic} --to-current --dry-run",
    "consumer-groups --reset-offsets --group {group} --topic {topic} --by-duration PT1H --execute",
    "consumer-groups --reset-offsets --group {group} --topic {topic} "
    "--to-datetime 2020-01-01T00:00:00.000 --dry-run",
    "consumer-groups --reset-offsets --group {group} --topic {topic} "
    "--to-datetime 2100-01-01T00:00:00.000 --dry-run",
]

TRANSACTIONS = [
    "list --transactional-id-pattern {topic}.*",
    "describe --transactional-id {topic}-open",
    "describe --transactional-id {topic}-idle",
    "describe --transactional-id no{topic}",
    "describe-producers --topic {topic} --partition 0",
    "describe-producers --topic {topic} --partition 0 --broker-id 1",
    "find-hanging --topic {topic} --max-transaction-timeout -1",
    "abort --topic {topic} --partition 0 --start-offset 77",
    "abort --topic {topic} --partition 0 --start-offset 0",
    "describe-producers --topic {topic} --partition 0",
    "describe --transactional-id {topic}-open",
    "forceTerminateTransaction --transactionalId {topic}-idle",
    "forceTerminateTransaction --transactionalId {topic}-new",
    "describe --transactional-id {topic}-new",
]


@pytest.fixture
def theirs(java: str, kafka_class_path: str, tmp_path: Path) -> Theirs:
    """Runs a tool of Kafka's: its status and what it printed."""
    logging = tmp_path / "log4j2.properties"
    logging.write_text("rootLogger.level = OFF\n", encoding="utf-8")

    def call(tool: str, words: list[str], text: str = "") -> tuple[int, str]:
        flags = ["-Xmx128m", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={logging}"]
        done = subprocess.run(
            [java, *flags, "-cp", kafka_class_path, CLASSES[tool], *words],
            input=text,
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_S,
            check=False,
        )
        return done.returncode, done.stdout

    return call


async def prepare_empty(servers: str, topic: str) -> None:
    """A topic with two empty partitions."""
    async with Admin(servers) as admin:
        await admin.create_topics([NewTopic(topic, 2, 1)])


async def prepare(servers: str, topic: str, group: str) -> None:
    """A topic with ten records in two partitions, and a group that stands in it."""
    async with Producer(servers) as producer, Admin(servers) as admin:
        await admin.create_topics([NewTopic(topic, 2, 1)])
        for number in range(10):
            await producer.send(topic, b"v", partition=number % 2, timestamp_ms=NOW_MS + number)
        await producer.flush()
        offsets = {TopicPartition(topic, 0): 2, TopicPartition(topic, 1): 5}
        values = {each: CommittedOffset(offset) for each, offset in offsets.items()}
        await admin.alter_group_offsets(group, values)


def write_files(folder: Path, topic: str) -> None:
    """The files that `FILES` names."""

    def partition(index: int, **more: int) -> dict[str, object]:
        return {"topic": topic, "partition": index, **more}

    documents = {
        "records": {"partitions": [partition(0, offset=2), partition(1, offset=-1)], "version": 1},
        "beyond": {"partitions": [partition(0, offset=99)], "version": 1},
        "twice": {"partitions": [partition(0, offset=2), partition(0, offset=3)], "version": 1},
        "elect": {"partitions": [partition(0), partition(1)]},
        "elect-none": {"partitions": [partition(7)]},
    }
    for name, document in documents.items():
        (folder / f"{topic}.{name}").write_text(json.dumps(document), encoding="utf-8")
    (folder / f"{topic}.reset").write_text(f"{topic},0,3\n{topic},1,5\n", encoding="utf-8")


def words_of(
    line: str, servers: str, topic: str, group: str, folder: Path
) -> tuple[str, list[str]]:
    tool, *rest = line.format(topic=topic, group=group, folder=folder).split()
    place = 1 if tool == "cluster" else 0
    return tool, [*rest[:place], "--bootstrap-server", servers, *rest[place:]]


def normal(text: str, topic: str, group: str) -> list[str]:
    """What was printed, without names and ids, rows in order."""
    # A log directory is JSON on one line, whose elements Kafka takes from a hash table.
    text = ID.sub("TopicId: ?", text.replace(topic, "T").replace(group, "G"))
    text = PARTITIONS.sub(lambda found: ", ".join(sorted(found[0].split(", "))), text)
    return sorted("".join(sorted(line)) if line[:1] == "{" else line for line in text.split("\n"))


@pytest.mark.slow
@pytest.mark.parametrize("lines", [TOPICS, GROUPS, FILES], ids=["topics", "groups", "files"])
def test_every_line_prints_what_kafkas_tool_prints(
    modern_servers: str,
    lines: list[str],
    theirs: Theirs,
    names: Callable[[str], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stem = names("t").replace(".", "-")
    pairs = [(f"{stem}-a", f"{stem}-ga"), (f"{stem}-b", f"{stem}-gb")]
    if lines is not TOPICS:
        for topic, group in pairs:
            asyncio.run(prepare(modern_servers, topic, group))
            write_files(tmp_path, topic)
    failed = []
    for line in lines:
        (their_topic, their_group), (our_topic, our_group) = pairs
        tool, words = words_of(line, modern_servers, their_topic, their_group, tmp_path)
        their_status, their_text = theirs(tool, words, "")
        tool, words = words_of(line, modern_servers, our_topic, our_group, tmp_path)
        capsys.readouterr()
        our_status = main([tool, *words])
        our_text = capsys.readouterr().out
        expected = (their_status, normal(their_text, their_topic, their_group))
        found = (our_status, normal(our_text, our_topic, our_group))
        if found != expected:
            texts = f"--- theirs {their_status}\n{their_text}\n--- ours {our_status}\n{our_text}"
            failed.append(f"{line}\n{texts}")
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
    theirs: Theirs,
    names: Callable[[str], str],
    capsys: pytest.CaptureFixture[str],
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
            connection = ["--bootstrap-server", modern_servers]
            words = [*connection, *line.format(topic=topics[0]).split()]
            status, text = theirs("transactions", words, "")
            expected = status, steady(text, topics[0])
            capsys.readouterr()
            words = [*connection, *line.format(topic=topics[1]).split()]
            our_status = main(["transactions", *words])
            our_text = capsys.readouterr().out
            if (our_status, steady(our_text, topics[1])) != expected:
                failed.append(f"{line}\n--- theirs {status}\n{text}\n--- ours\n{our_text}")
    assert not failed, "\n\n".join(failed)


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
