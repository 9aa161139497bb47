"""Records are written to a broker from one thread, as a task of Spark's sink does it.

If these fail, rows are lost, written twice, in another partition or in another order.
"""

import random
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.deadlines import deadline_s
from tests.unit.tables.columns import binary_column
from tests.wire.differential.harness import Peer, Target
from tools import peers
from tools.kafka_node import kafka_node

import odradek
from odradek.client.addresses import Address
from odradek.client.core.producing import requests
from odradek.client.core.producing.partitioner import partition_for_key
from odradek.client.errors import KafkaError
from odradek.client.sync import BlockingConnection, Cluster
from odradek.clock import SystemClock
from odradek.errors import ErrorCode
from odradek.model import TopicPartition as Place
from odradek.protocol.direct.produce import ProducePartitionResponse
from odradek.tables.arrow import arrow_schema
from odradek.tables.errors import OutdatedQuery
from odradek.tables.plan.identity import Identity
from odradek.tables.plan.options import ClientOptions, ReadOptions, TopicSelection
from odradek.tables.plan.ranges import OffsetRange
from odradek.tables.scan.reading import read_ranges
from odradek.tables.write.batch_commit import BatchCommit
from odradek.tables.write.query_run import QueryRun
from odradek.tables.write.record_accumulator import Rows
from odradek.tables.write.transaction import BatchTransaction, Content
from odradek.tables.write.writing import TopicWriter, WriteOptions

SLOW = [pytest.mark.slow, pytest.mark.xdist_group("transactions of kafka")]


@pytest.fixture(scope="module")
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker() as broker:
        yield broker


@pytest.fixture
def cluster(broker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap_servers, request_timeout_ms=10_000) as cluster:
        yield cluster


def row(
    topic: str,
    partition: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]] = (),
    timestamp_ms: int | None = None,
) -> Rows:
    """One record."""
    return Rows(
        1,
        topic,
        binary_column([value]),
        binary_column([key]),
        [partition],
        [headers],
        [timestamp_ms],
    )


def consumed(servers: str, topic: str, partition: int) -> list[tuple]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g"})
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition))
    consumer.assign([TopicPartition(topic, partition, low)])
    messages = consumer.consume(high - low, timeout=deadline_s(20)) if high > low else []
    consumer.close()
    return [(m.key(), m.value(), m.headers(), m.timestamp()[1]) for m in messages]


@pytest.mark.parametrize("codec", [0, 4])
def test_records_arrive_as_they_are_in_their_order(broker, cluster, codec: int) -> None:
    topic = f"written-{codec}"
    broker.create_topic(topic, partitions=3, config={})
    writer = TopicWriter(cluster, WriteOptions(codec=codec, batch_bytes=500), SystemClock())
    for number in range(1_000):
        headers = [("n", b"%d" % number), ("null", None)] if number % 2 else []
        value = None if number % 5 == 0 else b"v%d" % number
        writer.append(row(topic, number % 3, b"k%d" % number, value, headers, 1_000_000 + number))
    writer.flush()
    for partition in range(3):
        expected = [
            (
                b"k%d" % n,
                None if n % 5 == 0 else b"v%d" % n,
                [("n", b"%d" % n), ("null", None)] if n % 2 else None,
                1_000_000 + n,
            )
            for n in range(partition, 1_000, 3)
        ]
        assert consumed(broker.bootstrap_servers, topic, partition) == expected


def test_a_key_decides_where_a_record_goes_as_with_other_clients(broker, cluster) -> None:
    broker.create_topic("keyed", partitions=4, config={})
    writer = TopicWriter(cluster, WriteOptions(), SystemClock())
    for number in range(100):
        writer.append(row("keyed", None, b"k%d" % number, b""))
    writer.flush()
    for partition in range(4):
        keys = {key for key, *_ in consumed(broker.bootstrap_servers, "keyed", partition)}
        assert keys == {
            key
            for key in (b"k%d" % n for n in range(100))
            if partition_for_key(key, 4) == partition
        }


def test_an_answer_that_is_lost_makes_no_second_copy(broker, cluster) -> None:
    """The batch is sent again with its sequence, and the broker knows it."""
    broker.create_topic("lost-answer", partitions=1, config={})
    writer = TopicWriter(cluster, WriteOptions(), SystemClock())
    writer.append(row("lost-answer", 0, None, b"first"))
    writer.flush()
    proxy = Cut(broker.bootstrap_servers)
    real = cluster.connection
    cut = iter([True])

    def connection(node_id: int | None) -> BlockingConnection:
        if next(cut, False):
            return BlockingConnection(proxy.address, client_id="t", timeout_s=deadline_s(30))
        return real(node_id)

    cluster.connection = connection  # type: ignore[method-assign]
    writer.append(row("lost-answer", 0, None, b"second"))
    writer.flush()
    proxy.close()
    found = [value for _, value, *_ in consumed(broker.bootstrap_servers, "lost-answer", 0)]
    assert found == [b"first", b"second"]
    assert proxy.swallowed


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("bound", ["max.message.bytes", "segment.bytes"])
def test_a_batch_too_large_for_its_topic_goes_in_pieces(
    broker, cluster, codec: int, bound: str
) -> None:
    """A table could not be written to a topic with a small max.message.bytes."""
    topic = f"small-{bound}-{codec}"
    broker.create_topic(topic, partitions=2, config={bound: "1000"})
    writer = TopicWriter(cluster, WriteOptions(codec=codec), SystemClock())
    values = [random.Random(number).randbytes(150) for number in range(100)]
    for number, value in enumerate(values):
        writer.append(row(topic, number % 2, b"k", value, [("h", b"1")], 1_000 + number))
    writer.flush()
    for partition in range(2):
        assert consumed(broker.bootstrap_servers, topic, partition) == [
            (b"k", values[number], [("h", b"1")], 1_000 + number)
            for number in range(partition, 100, 2)
        ]


def test_what_the_broker_refuses_is_told(broker, cluster) -> None:
    broker.create_topic("small", partitions=1, config={"max.message.bytes": "1000"})
    writer = TopicWriter(cluster, WriteOptions(), SystemClock())
    writer.append(row("small", 0, None, bytes(5_000)))
    with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE: small-0"):
        writer.flush()
    meant = r"there is no topic 'smal' \(did you mean small\?\)"
    with pytest.raises(KafkaError, match=f"UNKNOWN_TOPIC_OR_PARTITION: {meant}"):
        TopicWriter(cluster, WriteOptions(), SystemClock()).append(row("smal", None, b"k", b"v"))


@pytest.mark.parametrize("others", [False, True])
def test_an_answer_that_says_nothing_of_a_batch_is_no_answer(broker, monkeypatch, others) -> None:
    """A task would send the batch again for ever, or fail with the name of another partition."""
    topic = f"unnamed-{others}"
    broker.create_topic(topic, partitions=1, config={})
    said = {Place("another", 7): ProducePartitionResponse(7, ErrorCode.NONE)} if others else {}
    with Cluster(broker.bootstrap_servers, request_timeout_ms=2_000) as cluster:
        writer = TopicWriter(cluster, WriteOptions(), SystemClock())
        writer.append(row(topic, 0, None, b"v"))
        with monkeypatch.context() as lying:
            lying.setattr(requests, "answers_in", lambda *_: said)
            with pytest.raises(KafkaError, match=f"the answer says nothing of {topic}-0"):
                writer.flush()
    assert [value for _, value, *_ in consumed(broker.bootstrap_servers, topic, 0)] == [b"v"]


# --- exactly once -------------------------------------------------------------------------------


class Died(Exception):
    """The task is gone, at a step that a test has chosen."""


class Killed(BatchTransaction):
    """An attempt that ends without a word, as a process that is killed does."""

    async def _close(self) -> None:
        if self._cluster is not None:
            await self._cluster.close()


class Kafka(NamedTuple):
    """An Apache Kafka, which speaks transactions of a version: `transaction.version`."""

    bootstrap_servers: str
    version: int

    def create_topic(self, name: str, partitions: int, config: dict[str, str]) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        admin.create_topics([NewTopic(name, partitions, config=config)])[name].result(
            deadline_s(60)
        )


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    """The address of an Apache Kafka with the oldest transactions."""
    try:
        with kafka_node(heap="384m", features={"transaction.version": 0}) as node:
            yield node.bootstrap_servers
    except peers.PeerUnavailable as reason:
        pytest.skip(f"PEER MISSING, NOT TESTED: {reason}")


@pytest.fixture(
    params=[
        "ours",
        *(pytest.param(version, id=f"kafka-{version}", marks=SLOW) for version in range(3)),
    ]
)
def any_broker(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Ours, or an Apache Kafka with each version of transactions, in their order."""
    if request.param == "ours":
        yield request.getfixturevalue("broker")
        return
    servers = request.getfixturevalue("kafka")
    if request.param:
        peer = Peer(Target(servers))
        wish = {"feature": "transaction.version", "max_version_level": request.param,
                "upgrade_type": 1}  # fmt: skip
        answer = peer.ask("update_features", 2, feature_updates=[wish], timeout_ms=9000)
        peer.close()
        assert answer.error_code == 0, answer.error_message
    yield Kafka(servers, request.param)


def write_batch(
    broker,
    topic: str,
    batch: int,
    *,
    die_at: str = "",
    run: str = "run",
    kind: type[BatchTransaction] = Killed,
) -> bool:
    """An attempt at a batch of ten records; whether it wrote them."""
    of = QueryRun(f"query-{topic}", f"checkpoint-{topic}", run, Place(topic, 0))
    driver = BatchCommit(broker.bootstrap_servers, of, timeout_ms=60_000, may_lack_records=False)

    def maybe_die(step: str) -> None:
        if step == die_at:
            raise Died

    with (
        Cluster(broker.bootstrap_servers, request_timeout_ms=10_000) as cluster,
        kind(broker.bootstrap_servers, of, 0, timeout_ms=60_000) as attempt,
    ):
        if not attempt.begin(batch):
            driver.commit(batch, [attempt.repeated(Content(10))])
            return False
        maybe_die("begun")
        writer = TopicWriter(cluster, WriteOptions(batch_bytes=200), SystemClock(), attempt)
        for number in range(10):
            writer.append(row(topic, number % 2, None, b"0-%d-%d" % (batch, number)))
            if number == 5:
                maybe_die("half")
        writer.flush()
        maybe_die("flushed")
        share = attempt.prepare(batch, Content(10))
        maybe_die("prepared")
    driver.commit(batch, [share])
    maybe_die("committed")
    return True


def committed(broker, topic: str) -> list[bytes]:
    """The records that readers of committed records see, in both partitions."""
    found = []
    with Cluster(broker.bootstrap_servers) as cluster:
        for partition in (Place(topic, 0), Place(topic, 1)):
            end = cluster.list_offsets({partition: -1}, read_committed=True)[partition] or 0
            for piece in read_ranges(
                ReadOptions(
                    TopicSelection(names=(topic,)),
                    ClientOptions(broker.bootstrap_servers),
                    read_committed=True,
                ),
                Identity(),
                arrow_schema(("value",)),
                [OffsetRange(partition, 0, end)],
            ):
                found += piece.column(0).to_pylist()
    return found


def test_a_batch_is_written_once_wherever_its_task_dies(any_broker) -> None:
    """Before the records, among them, before the commit, and after it, when nobody knows."""
    topic = f"once-{getattr(any_broker, 'version', '')}"
    any_broker.create_topic(topic, partitions=2, config={})
    expected = []
    steps = [("", Killed), ("begun", Killed), ("half", Killed), ("half", BatchTransaction),
             ("flushed", Killed), ("prepared", Killed), ("committed", Killed),
             ("", Killed)]  # fmt: skip
    for batch, (die_at, kind) in enumerate(steps):
        if die_at:
            with pytest.raises(Died):
                write_batch(any_broker, topic, batch, die_at=die_at, kind=kind)
        wrote = write_batch(any_broker, topic, batch)
        assert wrote is (die_at != "committed")
        assert not write_batch(any_broker, topic, batch)
        expected += [b"0-%d-%d" % (batch, number) for number in range(10)]
    assert sorted(committed(any_broker, topic)) == sorted(expected)
    assert write_batch(any_broker, topic, len(steps), run="started again")
    with pytest.raises(OutdatedQuery):
        write_batch(any_broker, topic, len(steps) + 1)


def test_an_attempt_that_still_runs_is_shut_out_by_the_next(broker) -> None:
    """A task that was given up but lives on would write the batch a second time."""
    broker.create_topic("fenced", partitions=2, config={})
    run = QueryRun("query-fenced", "checkpoint-fenced", "run", Place("fenced", 0))
    with (
        Cluster(broker.bootstrap_servers, request_timeout_ms=5_000) as cluster,
        BatchTransaction(broker.bootstrap_servers, run, 0, timeout_ms=60_000) as older,
    ):
        assert older.begin(0)
        writer = TopicWriter(cluster, WriteOptions(), SystemClock(), older)
        writer.append(row("fenced", 0, None, b"older"))
        writer.flush()
        assert write_batch(broker, "fenced", 0)
        writer.append(row("fenced", 0, None, b"older again"))
        with pytest.raises(KafkaError, match=r"FENCED|INVALID_PRODUCER_EPOCH"):
            writer.flush()
        with pytest.raises(KafkaError, match=r"FENCED|INVALID_PRODUCER_EPOCH"):
            older.prepare(0, Content(2))
    assert sorted(committed(broker, "fenced")) == [b"0-0-%d" % number for number in range(10)]


class Cut:
    """A way to the broker that passes everything on, and swallows its answer to a Produce."""

    def __init__(self, servers: str) -> None:
        host, port = servers.split(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*self._listener.getsockname())
        self.swallowed = False
        self._thread = threading.Thread(target=self._pass_on)
        self._thread.start()

    def close(self) -> None:
        self._thread.join(deadline_s(20))
        self._listener.close()

    def _pass_on(self) -> None:
        client, _ = self._listener.accept()
        broker = socket.create_connection(self._target)
        with client, broker:
            while True:
                request = frame(client)
                broker.sendall(request)
                answer = frame(broker)
                if request[4:6] == b"\0\0":
                    self.swallowed = True
                    return
                client.sendall(answer)


def frame(connection: socket.socket) -> bytes:
    """A whole frame with its size."""
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        data += connection.recv(1 << 16)
    return data
