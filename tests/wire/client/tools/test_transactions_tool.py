"""`odradek transactions` on a broker of ours: what it shows of open transactions, and ends.

If these fail, an operator is told wrong things of a partition that stands still, or cannot free it.
That tables are Kafka's, word for word, is in `test_kafka_tools.py`.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import Producer as TransactionalProducer
from confluent_kafka import TopicPartition as Place
from tests.deadlines import deadline_s
from tests.wire.client.test_producer import make
from tests.wire.differential.harness import Peer, Target

from odradek import Broker
from odradek.cli.main import main
from odradek.cli.tools.transactions import hanging
from odradek.client import Admin
from odradek.client.core.admin_types import (
    ProducerState,
    TransactionDescription,
    TransactionListing,
)
from odradek.client.errors import KafkaError
from odradek.model import TopicPartition
from odradek.records.builder import RecordBatchBuilder

TIMEOUT_S = deadline_s(60)
KAFKAS_TOOL = "org.apache.kafka.tools.TransactionsCommand"


@pytest.fixture
def writer(bootstrap: str, topic: str) -> TransactionalProducer:
    """A producer with a record in an open transaction; its id is the topic's name."""
    asyncio.run(make(bootstrap, topic))
    producer = TransactionalProducer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"v", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    return producer


@pytest.fixture
def ask(bootstrap: str, capsys: pytest.CaptureFixture[str]):
    """Runs the tool: its status, and what it said on both outputs."""

    def call(line: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(["transactions", "--bootstrap-server", bootstrap, *line.split()])
        said = capsys.readouterr()
        return status, said.out, said.err

    return call


def rows(answer: tuple[int, str, str]) -> list[dict[str, object]]:
    status, text, errors = answer
    assert (status, errors) == (0, "")
    return json.loads(text)


def test_an_open_transaction_is_shown(writer, topic, ask) -> None:
    [listed] = rows(ask(f"list --transactional-id-pattern {topic} --format json"))
    assert (listed["TransactionalId"], listed["TransactionState"]) == (topic, "Ongoing")
    assert rows(ask(f"list --transactional-id-pattern no{topic} --format json")) == []
    [described] = rows(ask(f"describe --transactional-id {topic} --format json"))
    assert described["TopicPartitions"] == [f"{topic}-0"]
    assert described["ProducerId"] == listed["ProducerId"]
    assert described["TransactionDurationMs"] >= 0
    leader = writer.list_topics(topic).topics[topic].partitions[0].leader
    for flags in ("", f" --broker-id {leader}"):
        line = f"describe-producers --topic {topic} --partition 0{flags} --format json"
        [producer] = rows(ask(line))
        assert producer["ProducerId"] == listed["ProducerId"]
        assert producer["CurrentTransactionStartOffset"] == 0
    assert "None" not in ask(f"describe --transactional-id {topic}")[1]
    # Its coordinator knows of it, however long it lasts.
    line = f"find-hanging --topic {topic} --max-transaction-timeout -1 --format json"
    assert rows(ask(line)) == []


def test_force_ends_the_transaction_and_shuts_its_producer_out(
    writer, bootstrap, topic, ask
) -> None:
    partition = TopicPartition(topic, 0)
    assert ask(f"forceTerminateTransaction --transactionalId {topic}") == (0, "", "")

    async def producers() -> list[ProducerState]:
        async with Admin(bootstrap) as admin:
            found = (await admin.describe_producers([partition]))[partition]
            assert not isinstance(found, KafkaError)
            return found

    [state] = asyncio.run(producers())
    assert state.transaction_start_offset == -1
    with pytest.raises(KafkaException):
        writer.commit_transaction(TIMEOUT_S)


UNVERIFIED = {"transaction.partition.verification.enable": "false"}


def hang(bootstrap: str, topic: str) -> None:
    """A transaction in a partition that no coordinator knows, as clients before verification
    leave it behind when their first write is late; the record is an hour old."""
    builder = RecordBatchBuilder(
        producer_id=777, producer_epoch=3, base_sequence=0, is_transactional=True
    )
    builder.append(time.time_ns() // 1_000_000 - 3_600_000, None, b"v")
    partition = {"index": 0, "records": builder.build()}
    peer = Peer(Target(bootstrap))
    written = peer.ask(
        "produce",
        9,
        transactional_id="hung",
        acks=-1,
        timeout_ms=9000,
        topic_data=[{"name": topic, "partition_data": [partition]}],
    )
    peer.close()
    assert written.responses[0].partition_responses[0].error_code == 0


@pytest.fixture
def hung_broker() -> Iterator[str]:
    """The address of a broker with a transaction that hangs in partition 0 of topic `hung`."""
    with Broker(config=UNVERIFIED) as broker:
        broker.create_topic("hung")
        # So that there is a coordinator to be asked.
        producer = TransactionalProducer(
            {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "other"}
        )
        producer.init_transactions(TIMEOUT_S)
        hang(broker.bootstrap_servers, "hung")
        yield broker.bootstrap_servers


def run_tool(bootstrap: str, line: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(["transactions", "--bootstrap-server", bootstrap, *line.split()]) == 0
    return capsys.readouterr().out


def test_a_transaction_that_hangs_is_found_and_ended(
    hung_broker: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An operator cannot find out what holds readers up, or not free them."""
    for scope in ("--topic hung", "--topic hung --partition 0", "--broker-id 1"):
        found = json.loads(run_tool(hung_broker, f"find-hanging {scope} --format json", capsys))
        [row] = found
        assert (row["Topic"], row["Partition"], row["ProducerId"]) == ("hung", 0, 777)
        assert (row["ProducerEpoch"], row["StartOffset"]) == (3, 0)
        assert row["Duration(min)"] in (60, 61)
    run_tool(hung_broker, "abort --topic hung --partition 0 --start-offset 0", capsys)
    assert (
        json.loads(run_tool(hung_broker, "find-hanging --topic hung --format json", capsys)) == []
    )
    consumer = Consumer({"bootstrap.servers": hung_broker, "group.id": "g"})
    _, stable_end = consumer.get_watermark_offsets(Place("hung", 0), TIMEOUT_S)
    assert stable_end == 2
    consumer.close()


@pytest.mark.slow
@pytest.mark.xdist_group("jvm")
def test_kafkas_tool_finds_and_ends_what_hangs_with_ours(
    hung_broker: str, tool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kafka's tool cannot do so with our broker, or ours says it in other words."""
    address = ["--bootstrap-server", hung_broker]
    find = ["find-hanging", "--topic", "hung"]
    printed = tool.unbound(KAFKAS_TOOL, *address, *find)
    assert "777" in printed
    assert run_tool(hung_broker, " ".join(find), capsys) == printed
    end = ["abort", "--topic", "hung", "--partition", "0", "--start-offset", "0"]
    tool.unbound(KAFKAS_TOOL, *address, *end)
    assert run_tool(hung_broker, " ".join(find), capsys) == tool.unbound(
        KAFKAS_TOOL, *address, *find
    )


class Coordinator:
    """An admin whose coordinator knows one producer, with one partition to be ended."""

    async def list_transactions(self, *, producer_ids):
        assert producer_ids == {1, 2}
        return {1: [TransactionListing("known", 1, "Ongoing")]}

    async def describe_transactions(self, names):
        assert list(names) == ["known"]
        partitions = frozenset({TopicPartition("t", 0)})
        return {"known": TransactionDescription("known", 1, "Ongoing", 1, 1, 1, 0, partitions)}


def test_what_no_coordinator_will_end_hangs() -> None:
    """An operator is not told of a partition that stands still, or of one that does not."""
    opened = [
        (TopicPartition("t", index), ProducerState(producer_id, 0, 0, 0, -1, 0))
        for index, producer_id in ((0, 1), (1, 1), (0, 2))
    ]
    assert asyncio.run(hanging(Coordinator(), opened)) == opened[1:]


def test_an_abort_ends_the_transaction_in_its_partition(writer, topic, ask) -> None:
    abort = f"abort --topic {topic} --partition 0 --start-offset"
    status, text, errors = ask(f"{abort} 7")
    assert (status, text) == (1, "")
    assert errors == (
        f"Could not find any open transactions starting at offset 7 on partition {topic}-0\n"
    )
    assert ask(f"{abort} 0") == (0, "", "")
    [producer] = rows(ask(f"describe-producers --topic {topic} --partition 0 --format json"))
    assert producer["CurrentTransactionStartOffset"] is None
    old = f"abort --topic {topic} --partition 0 --producer-id {producer['ProducerId']}"
    status, _, errors = ask(f"{old} --producer-epoch -1 --coordinator-epoch -1")
    assert status == 1
    assert errors.startswith(
        f"Failed to abort transaction AbortTransactionSpec(topicPartition={topic}-0, "
    )


def test_errors_are_one_line_and_status_1(topic, bootstrap, ask, tmp_path: Path) -> None:
    status, text, errors = ask(f"describe --transactional-id no{topic}")
    assert (status, text) == (1, "")
    assert errors.startswith(
        f"Failed to describe transaction state of transactional-id `no{topic}`: "
    )
    settings = tmp_path / "client.properties"
    settings.write_text("default.api.timeout.ms=300\n", encoding="utf-8")
    short = f"--command-config {settings}"
    for action in (
        f"describe-producers --topic {topic} --partition 0",
        f"describe-producers --topic {topic} --partition 0 --broker-id 9",
        f"find-hanging --topic {topic}",
        f"abort --topic {topic} --partition 0 --start-offset 0",
        f"abort --topic {topic} --partition 0 --producer-id 1 --producer-epoch 0"
        " --coordinator-epoch 0",
        "list --transactional-id-pattern [",
    ):
        status, text, errors = ask(f"{short} {action}")
        assert (status, text, errors.count("\n")) == (1, "", 1), errors
        assert errors.startswith("Failed to "), errors


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "required: ACTION"),
        ("find-hanging", "requires either --topic or --broker-id"),
        ("find-hanging --broker-id 1 --partition 0", "--partition argument requires --topic"),
        ("abort --topic t --partition 0", "must be identified either with --start-offset"),
        ("abort --topic t --partition 0 --producer-id 1", "argument --producer-epoch"),
        ("describe-producers --topic t --partition 2147483648", "could not convert"),
        ("list --bogus", "unrecognized arguments"),
    ],
)
def test_wrong_usage_is_status_2(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["transactions", "--bootstrap-server", "x:1", *line.split()])
    assert caught.value.code == 2
    assert said in capsys.readouterr().err
