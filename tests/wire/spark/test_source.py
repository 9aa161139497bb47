"""Spark reads topics: our source, beside the official connector on the same topics.

If these fail, a job changed from `kafka` to `odradek` gives other rows, or a stream loses its
place. One Spark session, with the connector's jars where they can be had, serves all tests.
"""

import glob
import json
import re
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from tests.deadlines import deadline_s

import odradek
from pyspark_odradek.errors import reason_in

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

FIRST_TIME_MS = 1_700_000_000_000
RECORDS = 3_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("broker"))


@pytest.fixture(scope="module")
def broker(data_dir: str) -> Iterator[odradek.Broker]:
    with odradek.Broker(data_dir=data_dir) as broker:
        yield broker


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
    assert producer.flush(deadline_s(60)) == 0
    assert errors == [None] * count


def table(spark: SparkSession, format: str, **options: str) -> DataFrame:
    reader = spark.read.format(format)
    for name, value in options.items():
        reader = reader.option(name.replace("_", "."), value)
    return reader.load()


def rows(frame: DataFrame) -> list[Row]:
    order = [name for name in ("topic", "partition", "offset") if name in frame.columns]
    return frame.orderBy(*order).collect()


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
        future.result(deadline_s(60))
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
    at_broker = {"kafka_bootstrap_servers": broker.bootstrap_servers}
    with pytest.raises(PySparkException, match=words) as error:
        table(spark, "odradek", **at_broker, **options).count()
    assert len(str(error.value).splitlines()) <= 3, str(error.value)


def test_a_stream_says_in_one_sentence_what_is_wrong(spark, broker, tmp_path: Path) -> None:
    """Spark would tell of its own trouble with a reader that it could not make."""
    at_broker = {"kafka_bootstrap_servers": broker.bootstrap_servers}
    for options, words in [
        ({"subscribe": "nowhere"}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"subscribe": "t", "endingOffsets": "latest"}, "have no meaning for a stream"),
    ]:
        with pytest.raises(PySparkException) as error:
            stream_once(spark, "odradek", tmp_path / "t", **at_broker, **options)
        sentence = reason_in(str(error.value))
        assert sentence is not None
        assert words in sentence
        assert "Traceback" not in str(error.value)


def test_a_path_of_another_cluster_is_refused(spark, broker, fill, tmp_path: Path) -> None:
    """Its rows would be taken for those of the topic of the same name."""
    topic = fill(count=30)
    with odradek.Broker(data_dir=str(tmp_path)) as other:
        other.create_topic(topic, partitions=3, config={})
        produce(other.bootstrap_servers, topic, "none", 60)
    options = {"kafka_bootstrap_servers": broker.bootstrap_servers, "subscribe": topic}
    for path in (str(tmp_path), "/no/such/directory"):
        with pytest.raises(PySparkException, match="path: "):
            table(spark, "odradek", path=path, failOnDataLoss="false", **options).count()


def test_large_records_need_little_memory(spark, broker, data_dir, fill) -> None:
    """A batch of 32 768 records of 10 KB took more than the heap has, and ended Spark."""
    broker.create_topic("large", partitions=1, config={"max.message.bytes": "9000000"})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20,
                         "compression.type": "lz4", "message.max.bytes": 9_000_000})  # fmt: skip
    for size, count in ((10_000, 35_000), (5_000_000, 3)):
        for _ in range(count):
            producer.produce("large", bytes(size))
            producer.poll(0)
            if len(producer) > 5_000:
                producer.flush()
    assert producer.flush(deadline_s(120)) == 0
    at_broker = {"kafka_bootstrap_servers": broker.bootstrap_servers, "subscribe": "large"}
    for more in ({}, {"path": data_dir}):
        frame = table(spark, "odradek", columns="value", **at_broker, **more)
        [row] = frame.selectExpr("count(*) AS n", "sum(length(value)) AS bytes").collect()
        assert (row.n, row.bytes) == (35_003, 365_000_000)


def test_a_compacted_topic_is_the_same_by_all_routes(spark, connector, tmp_path: Path) -> None:
    """A range that ends in a gap failed, and what was merged meanwhile was left out."""
    config = {"log.cleaner.backoff.ms": "100"}
    with odradek.Broker(data_dir=str(tmp_path), config=config) as broker:
        topic = {"cleanup.policy": "compact", "segment.bytes": "20000", "retention.ms": "-1",
                 "min.cleanable.dirty.ratio": "0.01"}  # fmt: skip
        broker.create_topic("compacted", partitions=1, config=topic)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 1})
        for number in range(6_000):
            producer.produce("compacted", bytes(50), key=b"k%d" % (number % 50))
            if number % 20 == 0:
                producer.flush()
        producer.flush()
        options = {"kafka_bootstrap_servers": broker.bootstrap_servers, "subscribe": "compacted"}
        checkpoint = tmp_path / "cleaner-offset-checkpoint"
        deadline = time.monotonic() + deadline_s(60)
        while not (checkpoint.exists() and "compacted 0" in checkpoint.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        at_once = table(spark, "odradek", path=str(tmp_path), **options).count()
        assert 50 <= at_once < 6_000
        for cut in ({}, {"endingOffsets": '{"compacted": {"0": 100}}'}):
            expected = rows(table(spark, connector, **options, **cut))
            assert rows(table(spark, "odradek", **options, **cut)) == expected
            assert rows(table(spark, "odradek", path=str(tmp_path), **options, **cut)) == expected


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
    # The id of the topic is beside them, where the connector sees no partition.
    ids = [name for name, offsets in written["odradek"].items() if not offsets]
    assert [name.partition(":")[0] for name in ids] == [topic]
    assert written[connector] == {topic: {"0": 100, "1": 100, "2": 100}}
    assert written["odradek"] == {**written[connector], ids[0]: {}}


@pytest.mark.parametrize("reads_files", [False, True])
def test_a_topic_made_anew_is_told_over_a_restart(
    spark, broker, data_dir, fill, tmp_path: Path, reads_files: bool
) -> None:
    """By its offsets alone it looks as if it had only grown."""
    topic = fill(count=30)
    options = {
        "kafka_bootstrap_servers": broker.bootstrap_servers,
        "subscribe": topic,
        **({"path": data_dir} if reads_files else {}),
    }
    assert stream_once(spark, "odradek", tmp_path, **options) == [30]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(deadline_s(60))
    broker.create_topic(topic, partitions=3, config={"retention.ms": "-1"})
    fill(count=90, name=topic)
    with pytest.raises(PySparkException, match=f"{topic} was deleted and recreated"):
        stream_once(spark, "odradek", tmp_path, **options)
    assert stream_once(spark, "odradek", tmp_path, failOnDataLoss="false", **options) == [90]
    assert stream_once(spark, "odradek", tmp_path, **options) == []


# --- writing ------------------------------------------------------------------------------------


def test_a_table_is_written_as_the_connector_writes_it(spark, broker, fill, connector) -> None:
    """Keys, values, headers and partitions, and which partition a key goes to."""
    source = table(
        spark, "odradek", kafka_bootstrap_servers=broker.bootstrap_servers,
        subscribe=fill(count=600), includeHeaders="true",
    )  # fmt: skip
    written = {}
    for name in ("odradek", connector):
        for columns in (["key", "value", "headers", "partition"], ["key", "value"]):
            topic = f"out-{name}-{len(columns)}"
            broker.create_topic(topic, partitions=3, config={})
            frame = source.select(*columns)
            if columns == ["key", "value"]:
                frame = frame.where("key IS NOT NULL")
            writer = frame.write.format(name).mode("append").option("topic", topic)
            writer.option("kafka.bootstrap.servers", broker.bootstrap_servers).save()
            back = table(
                spark, "odradek", kafka_bootstrap_servers=broker.bootstrap_servers,
                subscribe=topic, includeHeaders="true", columns="key,value,headers,partition",
            )  # fmt: skip
            found = [repr(row) for row in back.collect()]
            assert len(found) == frame.count()
            written[name, len(columns)] = sorted(found)
    for count in (4, 2):
        assert written["odradek", count] == written[connector, count]


def test_a_stream_is_written_with_its_timestamps(spark, broker, fill, tmp_path: Path) -> None:
    topic = fill(count=300)
    broker.create_topic("copy", partitions=3, config={})
    at_broker = {"kafka_bootstrap_servers": broker.bootstrap_servers, "includeHeaders": "true"}
    reader = spark.readStream.format("odradek").option("startingOffsets", "earliest")
    for name, value in at_broker.items():
        reader = reader.option(name.replace("_", "."), value)
    query = (
        reader.option("subscribe", topic).load().drop("topic").writeStream.format("odradek")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("kafka.compression.type", "zstd")
        .option("keepTimestamps", "true").option("topic", "copy")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    original = rows(table(spark, "odradek", subscribe=topic, **at_broker).drop("topic"))
    copied = rows(table(spark, "odradek", subscribe="copy", **at_broker).drop("topic"))
    assert copied == original


def test_a_batch_that_is_repeated_is_in_the_topic_once(spark, broker, fill, tmp_path: Path) -> None:
    """Spark died after the sink had committed, and before it wrote that down."""
    topic = fill(count=300)
    broker.create_topic("once", partitions=3, config={})
    at_broker = {"kafka.bootstrap.servers": broker.bootstrap_servers}

    def run() -> int:
        reader = spark.readStream.format("odradek").option("startingOffsets", "earliest")
        query = (
            reader.options(**at_broker).option("subscribe", topic)
            .option("maxOffsetsPerTrigger", "100").load().drop("topic")
            .writeStream.format("odradek").options(**at_broker).option("topic", "once")
            .option("exactlyOnce", "true").option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        return len([batch for batch in query.recentProgress if batch["numInputRows"]])

    committed = {**at_broker, "kafka.isolation.level": "read_committed", "subscribe": "once"}
    once = spark.read.format("odradek").options(**committed)
    batches = run()
    assert once.load().count() == 300
    last = tmp_path / f"commits/{batches - 1}"
    for path in (last, last.with_name(f".{last.name}.crc")):
        path.unlink()
    assert run() >= 1, "the batch was repeated"
    assert once.load().count() == 300
    fill(count=30, name=topic)
    run()
    values = [repr(row) for row in once.load().select("key", "value").collect()]
    original = spark.read.format("odradek").options(**at_broker).option("subscribe", topic).load()
    expected = [repr(row) for row in original.select("key", "value").collect()]
    assert sorted(values) == sorted(expected)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"exactlyOnce": "true"}, "exactlyOnce is for streams"),
        ({"kafka.acks": "1"}, "kafka.acks: 1 could lose records"),
        ({"topic": "no-such-topic"}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"kafka.compresion.type": "lz4"}, "did you mean kafka.compression.type"),
    ],
)
def test_a_sink_says_what_is_wrong(spark, broker, options: dict[str, str], words: str) -> None:
    writer = spark.range(3).selectExpr("CAST(id AS STRING) AS value").write.format("odradek")
    settings = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t", **options}
    with pytest.raises(Exception, match=re.escape(words)) as error:
        writer.mode("append").options(**settings).save()
    assert "Traceback" not in str(error.value)


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
