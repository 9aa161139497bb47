"""Spark reads topics: our source, beside the official connector on the same topics.

If these fail, a job changed from `kafka` to `odradek` gives other rows, or a stream loses its
place. One Spark session, with the connector's jars where they can be had, serves all tests.
"""

import glob
import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from tools import peers

import odradek
from pyspark_odradek import session

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

FIRST_TIME_MS = 1_700_000_000_000
RECORDS = 3_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(scope="module")
def connector_jars() -> str:
    """The official connector's jars; empty where they cannot be had."""
    try:
        return ",".join(map(str, peers.spark_connector_jars()))
    except peers.PeerUnavailable:
        return ""


@pytest.fixture(scope="module")
def spark(connector_jars: str) -> Iterator[SparkSession]:
    conf = {"spark.jars": connector_jars} if connector_jars else {}
    with session("tests", master="local[2]", conf=conf) as spark:
        yield spark


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("broker"))


@pytest.fixture(scope="module")
def broker(data_dir: str) -> Iterator[odradek.Broker]:
    with odradek.Broker(data_dir=data_dir) as broker:
        yield broker


@pytest.fixture
def connector(connector_jars: str) -> str:
    """The name of the connector's format."""
    if not connector_jars:
        pytest.skip("PEER MISSING, NOT TESTED: Spark's Kafka connector cannot be fetched here")
    return "kafka"


@pytest.fixture
def fill(broker: odradek.Broker) -> Callable[..., str]:
    """Makes a topic and fills it; gives its name."""

    def fill(codec: str = "none", count: int = RECORDS, name: str = "", **config: str) -> str:
        if not name:
            name = f"t-{uuid.uuid4().hex[:8]}"
            dotted = {key.replace("_", "."): value for key, value in config.items()}
            broker.create_topic(name, partitions=3, config={"retention.ms": "-1", **dotted})
        produce(broker.bootstrap_servers, name, codec, count)
        return name

    return fill


def produce(servers: str, topic: str, codec: str, count: int) -> None:
    """Records with and without key, value and headers, one each second."""
    settings = {"bootstrap.servers": servers, "compression.type": codec, "linger.ms": 5}
    producer = Producer({**settings, "batch.num.messages": 40})
    errors: list[object] = []
    for number in range(count):
        producer.produce(
            topic,
            key=None if number % 7 == 3 else b"key-%d" % number,
            value=None if number % 11 == 5 else b"value-%d " % number * (number % 20),
            partition=number % 3,
            timestamp=FIRST_TIME_MS + 1000 * number,
            headers=[("n", b"%d" % number), ("null", None)] if number % 3 == 0 else None,
            on_delivery=lambda error, _: errors.append(error),
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert errors == [None] * count


def table(spark: SparkSession, format: str, **options: str) -> DataFrame:
    reader = spark.read.format(format)
    for name, value in options.items():
        reader = reader.option(name.replace("_", "."), value)
    return reader.load()


def rows(frame: DataFrame) -> list[Row]:
    return frame.orderBy("topic", "partition", "offset").collect()


# --- batch ------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_the_same_topic_is_the_same_table(
    spark, broker, data_dir, fill, connector, codec: str
) -> None:
    topic = fill(codec)
    at_broker = {"kafka_bootstrap_servers": broker.bootstrap_servers}
    common = {"subscribe": topic, "includeHeaders": "true"}
    theirs = table(spark, connector, **at_broker, **common)
    expected = rows(theirs)
    assert len(expected) == RECORDS
    for where in (at_broker, {**at_broker, "path": data_dir}):
        ours = table(spark, "odradek", **where, **common)
        assert ours.schema == theirs.schema
        assert rows(ours) == expected


def test_log_append_time_and_headers_left_out(spark, broker, fill, connector) -> None:
    topic = fill(count=50, message_timestamp_type="LogAppendTime")
    options = {"kafka_bootstrap_servers": broker.bootstrap_servers, "subscribe": topic}
    ours = rows(table(spark, "odradek", **options))
    assert ours == rows(table(spark, connector, **options))
    assert {row.timestampType for row in ours} == {1}


@pytest.mark.parametrize(
    "options",
    [
        {"startingTimestamp": str(FIRST_TIME_MS + 500_000)},
        {
            "startingTimestamp": str(FIRST_TIME_MS + 500_500),
            "endingTimestamp": str(FIRST_TIME_MS + 900_000),
        },
        {"minPartitions": "8"},
        {"assign": '{"TOPIC": [2, 0]}'},
        {"subscribePattern": "TOPI[C]"},
        {"startingOffsets": '{"TOPIC": {"0": 10, "1": -2, "2": 900}}'},
        {"endingOffsets": '{"TOPIC": {"0": 10, "1": -1, "2": 900}}'},
        {"startingOffsetsByTimestamp": '{"TOPIC": {"0": 1, "1": 1700000100000, "2": 1}}'},
    ],
)
def test_options_mean_what_they_mean_to_the_connector(
    spark, broker, data_dir, fill, connector, options: dict[str, str]
) -> None:
    topic = fill()
    named = {name: value.replace("TOPI[C]", f"{topic}").replace("TOPIC", topic)
             for name, value in options.items()}  # fmt: skip
    if not named.keys() & {"assign", "subscribePattern"}:
        named["subscribe"] = topic
    at_broker = {"kafka_bootstrap_servers": broker.bootstrap_servers, **named}
    expected = rows(table(spark, connector, **at_broker))
    assert expected
    assert rows(table(spark, "odradek", **at_broker)) == expected
    assert rows(table(spark, "odradek", path=data_dir, **at_broker)) == expected


def test_a_stopped_brokers_directory_is_a_table(spark, tmp_path: Path) -> None:
    with odradek.Broker(data_dir=str(tmp_path)) as broker:
        config = {"segment.bytes": "20000", "retention.ms": "-1"}
        broker.create_topic("kept", partitions=3, config=config)
        produce(broker.bootstrap_servers, "kept", "none", RECORDS)
    frame = table(spark, "odradek", path=str(tmp_path), subscribe="kept", columns="offset,key")
    assert frame.columns == ["offset", "key"]
    assert frame.count() == RECORDS
    segments = glob.glob(str(tmp_path / "kept-*" / "*.log"))
    assert len(segments) > 6
    assert frame.rdd.getNumPartitions() >= len(segments) - 3


def test_only_what_is_committed_is_read_from_a_path(spark, broker, data_dir, fill) -> None:
    topic = fill(count=30)
    checkpoint = Path(data_dir) / "replication-offset-checkpoint"
    frame = table(spark, "odradek", path=data_dir, subscribe=topic)
    written = checkpoint.read_text().splitlines() if checkpoint.exists() else []
    committed = sum(int(line.split()[2]) for line in written if line.startswith(f"{topic} "))
    assert committed <= frame.count() <= 30


def test_records_that_are_gone_are_not_passed_over_in_silence(spark, broker, fill) -> None:
    topic = fill(count=300)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.delete_records([Position(topic, 1, 40)]).values():
        future.result(60)
    options = {
        "kafka_bootstrap_servers": broker.bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": json.dumps({topic: {"0": 0, "1": 10, "2": 0}}),
    }
    with pytest.raises(PySparkException, match="failOnDataLoss"):
        table(spark, "odradek", **options).count()
    lenient = table(spark, "odradek", failOnDataLoss="false", **options)
    assert lenient.where("partition = 1").agg({"offset": "min"}).first()[0] == 40
    assert lenient.count() == 260


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "there-is-no-such-topic"}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"subscribe": "t", "maxOffsetPerTrigger": "1"}, "maxOffsetsPerTrigger"),
        ({"subscribe": "t", "columns": "body"}, "no column 'body'"),
    ],
)
def test_mistakes_say_what_is_wrong(spark, broker, options: dict[str, str], words: str) -> None:
    with pytest.raises(PySparkException, match=words):
        table(spark, "odradek", kafka_bootstrap_servers=broker.bootstrap_servers, **options).count()


# --- streams ------------------------------------------------------------------------------------


def stream_once(spark: SparkSession, format: str, target: Path, **options: str) -> list[int]:
    """Runs a stream to the end of its topics; how many rows each batch had."""
    reader = spark.readStream.format(format).option("startingOffsets", "earliest")
    for name, value in options.items():
        reader = reader.option(name.replace("_", "."), value)
    query = (
        reader.load()
        .writeStream.format("parquet")
        .option("path", str(target / "data"))
        .option("checkpointLocation", str(target / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [batch["numInputRows"] for batch in query.recentProgress if batch["numInputRows"]]


@pytest.mark.parametrize("reads_files", [False, True])
def test_a_stream_goes_on_where_it_ended(
    spark, broker, data_dir, fill, tmp_path: Path, reads_files: bool
) -> None:
    topic = fill()
    options = {
        "kafka_bootstrap_servers": broker.bootstrap_servers,
        "subscribe": topic,
        "maxOffsetsPerTrigger": "1000",
        **({"path": data_dir} if reads_files else {}),
    }
    assert stream_once(spark, "odradek", tmp_path, **options) == [999, 999, 999, 3]
    assert stream_once(spark, "odradek", tmp_path, **options) == []
    fill(count=90, name=topic)
    assert stream_once(spark, "odradek", tmp_path, **options) == [90]
    archived = spark.read.parquet(str(tmp_path / "data")).select("partition", "offset").collect()
    assert len(archived) == len(set(archived)) == RECORDS + 90


def test_checkpoints_hold_the_connectors_offsets(
    spark, broker, fill, connector, tmp_path: Path
) -> None:
    topic = fill(count=300)
    options = {"kafka_bootstrap_servers": broker.bootstrap_servers, "subscribe": topic}
    written = {}
    for name in ("odradek", connector):
        stream_once(spark, name, tmp_path / name, **options)
        lines = (tmp_path / name / "checkpoint/offsets/0").read_text().splitlines()
        written[name] = json.loads(lines[-1])
    assert written["odradek"] == written[connector] == {topic: {"0": 100, "1": 100, "2": 100}}


# --- the official connector as a client of our broker ----------------------------------------


def test_the_connector_streams_from_us(spark, broker, fill, connector, tmp_path: Path) -> None:
    options = {
        "kafka_bootstrap_servers": broker.bootstrap_servers,
        "subscribe": fill("zstd"),
        "maxOffsetsPerTrigger": "1000",
    }
    assert sum(stream_once(spark, connector, tmp_path, **options)) == RECORDS
    assert stream_once(spark, connector, tmp_path, **options) == []


def test_the_connector_writes_to_us(spark, broker, connector) -> None:
    topic = f"sink-{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic, partitions=2, config={})
    frame = spark.range(5_000).selectExpr(
        "CAST(id AS STRING) AS key", "REPEAT(CAST(id AS STRING), 10) AS value"
    )
    servers = broker.bootstrap_servers
    writer = frame.write.format(connector).option("kafka.bootstrap.servers", servers)
    writer.option("topic", topic).save()
    back = table(spark, "odradek", kafka_bootstrap_servers=servers, subscribe=topic)
    keys = back.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)").collect()
    assert len(keys) == 5_000
    assert {(row.key, row.value) for row in keys} == {(f"{n}", f"{n}" * 10) for n in range(5_000)}
