"""Every option of a read, by three routes, beside the official connector: the same rows.

Through the broker, from segments with the broker's bounds (`path` beside it), and from `path`
alone. If these fail, a job changed from `kafka` to `odradek` reads something else, or an option
is accepted and means something else.
"""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.listener import SourceProgress
from tests.deadlines import deadline_s
from tests.wire.spark.topics import (
    CASES,
    FIRST_TIME_MS,
    FORMATS,
    TRANSACTIONS,
    produce_transactions,
    write_topics,
)

import odradek
from pyspark_odradek.progress import source_metrics

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

BROKER, BOTH, PATH = "broker", "segments and broker", "segments"
ROUTES = (BROKER, BOTH, PATH)
SMALL = "small"
CUT = "cut"
PATIENCE_S = deadline_s(120)
CHECKPOINT, STARTS = "replication-offset-checkpoint", "log-start-offset-checkpoint"
MIDDLE_MS = FIRST_TIME_MS + 30_000


class Place(NamedTuple):
    """A broker that runs, and where its files are."""

    servers: str
    data_dir: str

    def options(self, route: str) -> dict[str, str]:
        """The options that say where to read."""
        servers = {"kafka.bootstrap.servers": self.servers}
        return {**(servers if route != PATH else {}), **({} if route == BROKER else self.path())}

    def path(self) -> dict[str, str]:
        return {"path": self.data_dir}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    data_dir = tmp_path_factory.mktemp("broker")
    write_topics(data_dir)
    config = {"replica.high.watermark.checkpoint.interval.ms": "200"}
    with odradek.Broker(data_dir=str(data_dir), config=config) as broker:
        for topic in (SMALL, CUT):
            broker.create_topic(topic, partitions=3, config={"retention.ms": "-1"})
            for number in range(90):
                broker.produce(
                    topic, b"v%d" % number, key=b"k%d" % number, partition=number % 3,
                    timestamp=FIRST_TIME_MS + 1000 * number, headers=[("n", b"1")],
                )  # fmt: skip
        delete_records(broker.bootstrap_servers, CUT, {0: 10, 1: 30})
        with contextlib.contextmanager(produce_transactions)(broker):
            found = Place(broker.bootstrap_servers, str(data_dir))
            await_checkpoint(found)
            yield found


def delete_records(servers: str, topic: str, before: dict[int, int]) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    wanted = [TopicPartition(topic, number, offset) for number, offset in before.items()]
    for future in admin.delete_records(wanted).values():
        future.result(deadline_s(60))


def await_checkpoint(place: Place) -> None:
    """Until what `path` alone sees is all there is."""
    deadline = time.monotonic() + PATIENCE_S
    checkpoint, starts = (Path(place.data_dir, name) for name in (CHECKPOINT, STARTS))
    expected = {f"{SMALL} {number} 30" for number in range(3)} | {f"{FORMATS} 0 60"}
    while not (
        expected <= lines(checkpoint)
        and any(line.startswith(f"{TRANSACTIONS} 1") for line in lines(checkpoint))
        and f"{CUT} 0 10" in lines(starts)
    ):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def rows(frame: DataFrame) -> list[Row]:
    """In an order that needs no shuffle."""
    return sorted(frame.collect(), key=lambda row: (row.topic, row.partition, row.offset))


def read(spark: SparkSession, format: str, options: dict[str, str]) -> DataFrame:
    return spark.read.format(format).options(**options).load()


def by_all_routes(
    spark: SparkSession, connector: str, place: Place, options: dict[str, str]
) -> list[Row]:
    """The options that the connector reads; ours have to read the same, but those that need a
    broker."""
    theirs = read(spark, connector, {**place.options(BROKER), **options})
    expected = rows(theirs)
    needs_broker = "kafka.isolation.level" in options
    for route in (BROKER,) if needs_broker else ROUTES:
        ours = read(spark, "odradek", {**place.options(route), **options})
        assert ours.schema == theirs.schema, route
        found = rows(ours)
        assert len(found) == len(expected), route
        assert found == expected, route
    return expected


# --- batch ------------------------------------------------------------------------------------


def test_all_that_a_log_can_hold_is_the_same(spark, connector, place) -> None:
    """Magics, codecs, gaps, times, sizes: the partitions of one topic."""
    found = by_all_routes(spark, connector, place, {"subscribe": FORMATS, "includeHeaders": "true"})
    counts = dict.fromkeys(CASES, 0)
    for row in found:
        counts[list(CASES)[row.partition]] += 1
    assert counts["nothing"] == 0
    assert min(count for name, count in counts.items() if name != "nothing") >= 5


def test_every_cut_through_gaps_is_the_same(spark, connector, place) -> None:
    """Bounds in batches, in gaps, on their edges, and where nothing is between them.

    The connector reads the whole; at a cut that ends in a gap it waits, and gives up.
    """
    partitions = [number for number, name in enumerate(CASES) if "missing" in name]
    assigned = {"assign": json.dumps({FORMATS: partitions})}
    whole = rows(read(spark, connector, {**place.options(BROKER), **assigned}))
    last = {number: max(r.offset for r in whole if r.partition == number) for number in partitions}
    for start, end in ((0, 41), (1, 38), (39, 99), (40, 100), (57, 520), (99, 600)):
        ends = {str(number): min(end, last[number] + 1) for number in partitions}
        bounds = {
            "startingOffsets": json.dumps({FORMATS: dict.fromkeys(ends, start)}),
            "endingOffsets": json.dumps({FORMATS: ends}),
        }
        expected = [row for row in whole if start <= row.offset < end]
        for route in ROUTES:
            given = {**place.options(route), **assigned, **bounds}
            assert rows(read(spark, "odradek", given)) == expected, (route, start, end)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_transactions_are_the_same(spark, connector, place, isolation: str) -> None:
    """Of an aborted one nothing is seen, behind an open one nothing either."""
    found = by_all_routes(
        spark, connector, place, {"subscribe": TRANSACTIONS, "kafka.isolation.level": isolation}
    )
    values = {bytes(row.value) for row in found}
    assert (b"open" in values) is (isolation == "read_uncommitted")
    assert (b"behind the open one" in values) is (isolation == "read_uncommitted")
    if isolation == "read_uncommitted":
        by_all_routes(spark, connector, place, {"subscribe": TRANSACTIONS})


BATCH_OPTIONS = {
    "earliest to latest": {"startingOffsets": "earliest", "endingOffsets": "LATEST"},
    "offsets": {
        "startingOffsets": '{"small": {"0": 10, "1": -2, "2": 29}}',
        "endingOffsets": '{"small": {"0": 11, "1": -1, "2": 30}}',
    },
    "nothing between": {
        "startingOffsets": '{"small": {"0": 30, "1": 5, "2": 0}}',
        "endingOffsets": '{"small": {"0": 30, "1": 5, "2": 0}}',
    },
    "times": {
        "startingTimestamp": str(MIDDLE_MS + 1),
        "endingTimestamp": str(MIDDLE_MS + 20_000),
    },
    "a time before all": {"startingTimestamp": "0"},
    "an end behind all": {"endingTimestamp": str(MIDDLE_MS * 2)},
    "times by partition": {
        "startingOffsetsByTimestamp": json.dumps(
            {SMALL: {"0": 1, "1": MIDDLE_MS, "2": MIDDLE_MS + 500}}
        ),
        "endingOffsetsByTimestamp": json.dumps(
            {SMALL: {"0": MIDDLE_MS, "1": MIDDLE_MS + 9000, "2": MIDDLE_MS * 2}}
        ),
    },
    "a time goes before offsets": {
        "startingTimestamp": str(MIDDLE_MS),
        "startingOffsets": '{"small": {"0": 10, "1": 10, "2": 10}}',
    },
    "no match, from the end": {
        "startingTimestamp": str(MIDDLE_MS * 2),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "assigned": {"assign": '{"small": [2, 0], "cut": [1]}'},
    "by pattern": {"subscribePattern": "s.al+|cu[st]"},
    "two topics": {"subscribe": "small,cut"},
    "pieces": {"minPartitions": "7"},
    "small pieces": {"maxRecordsPerPartition": "4"},
    "both kinds of pieces": {"minPartitions": "5", "maxRecordsPerPartition": "20"},
    "headers": {"includeHeaders": "true"},
    "names in any case": {"INCLUDEHEADERS": "TRUE", "startingoffsets": "EARLIEST"},
    "what is gone is passed over": {
        "subscribe": CUT,
        "failOnDataLoss": "false",
        "startingOffsets": '{"cut": {"0": 3, "1": 0, "2": 7}}',
    },
    "what is gone, not asked for": {"subscribe": CUT},
    "settings of the consumer": {
        "kafka.max.poll.records": "7",
        "kafka.fetch.min.bytes": "1",
        "kafka.fetch.max.bytes": "1000",
        "kafka.max.partition.fetch.bytes": "100",
        "kafka.request.timeout.ms": "30000",
        "kafka.client.id": "me",
        "groupIdPrefix": "p",
        "kafkaConsumer.pollTimeoutMs": "20000",
    },
    "a group": {"kafka.group.id": "mine"},
}


@pytest.mark.parametrize("name", BATCH_OPTIONS)
def test_an_option_of_a_batch_means_what_it_means_to_the_connector(
    spark, connector, place, name: str
) -> None:
    options = dict(BATCH_OPTIONS[name])
    if not options.keys() & {"assign", "subscribePattern", "subscribe"}:
        options["subscribe"] = SMALL
    found = by_all_routes(spark, connector, place, options)
    assert bool(found) is (name not in ("nothing between", "no match, from the end"))


REFUSED = {
    "no topics": {"subscribe": None},
    "two ways to say which": {"assign": '{"small": [0]}'},
    "no topic in the list": {"subscribe": " , "},
    "an unknown topic": {"subscribe": "nowhere"},
    "not JSON": {"startingOffsets": "{small"},
    "half of the partitions": {"startingOffsets": '{"small": {"0": 1}}'},
    "partitions too many": {"startingOffsets": '{"small": {"0": 1, "1": 1, "2": 1, "3": 1}}'},
    "another topic's offsets": {"startingOffsets": '{"cut": {"0": 1, "1": 1, "2": 1}}'},
    "a batch from the end": {"startingOffsets": "latest"},
    "a batch from the end of one": {"startingOffsets": '{"small": {"0": -1, "1": 0, "2": 0}}'},
    "a batch to the start": {"endingOffsets": "earliest"},
    "a batch to the start of one": {"endingOffsets": '{"small": {"0": -2, "1": 9, "2": 9}}'},
    "it would begin after its end": {
        "startingOffsets": '{"small": {"0": 9, "1": 0, "2": 0}}',
        "endingOffsets": '{"small": {"0": 5, "1": 9, "2": 9}}',
    },
    "it would begin behind all": {"startingOffsets": '{"small": {"0": 99, "1": 0, "2": 0}}'},
    "no record is as late": {"startingTimestamp": str(MIDDLE_MS * 2)},
    "no time": {"startingTimestamp": "yesterday"},
    "no number": {"minPartitions": "many"},
    "not one record": {"maxRecordsPerPartition": "0"},
    "no boolean": {"includeHeaders": "maybe"},
    "no strategy": {"startingOffsetsByTimestampStrategy": "sometimes", "startingTimestamp": "1"},
    "what is gone": {
        "subscribe": CUT,
        "startingOffsets": '{"cut": {"0": 3, "1": 0, "2": 0}}',
    },
    "a reset": {"kafka.auto.offset.reset": "earliest"},
    "commits": {"kafka.enable.auto.commit": "true"},
    "a key deserializer": {"kafka.key.deserializer": "x"},
    "a value deserializer": {"kafka.value.deserializer": "x"},
    "interceptors": {"kafka.interceptor.classes": "x"},
}
# The connector is content with these. Some are mistakes, and it reads something or nothing; the
# last two tune what is not tuned that way here.
ONLY_OURS = {
    "an unknown partition": {"subscribe": None, "assign": '{"small": [7]}'},
    "no time at all": {"kafka.isolation.level": "read_everything"},
    "a misspelt setting": {"kafka.max.pol.records": "7"},
    "a misspelt option": {"startingOffset": "earliest"},
    "a number of retries": {"fetchOffset.numRetries": "2"},
    "a pause between retries": {"fetchOffset.retryIntervalMs": "10"},
}


def refusal(spark: SparkSession, format: str, options: dict[str, str | None]) -> str | None:
    """The message about options that cannot be, if there is one."""
    given = {name: value for name, value in options.items() if value is not None}
    try:
        read(spark, format, given).collect()
    except (PySparkException, Py4JJavaError) as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", [*REFUSED, *ONLY_OURS])
def test_what_the_connector_refuses_is_refused_in_a_sentence(
    spark, connector, place, name: str
) -> None:
    case = {"subscribe": SMALL, **(REFUSED.get(name) or ONLY_OURS[name])}
    if name in REFUSED:
        assert refusal(spark, connector, {**place.options(BROKER), **case}) is not None
    for route in ROUTES:
        said = refusal(spark, "odradek", {**place.options(route), **case})
        assert said is not None, route
        assert len(said.splitlines()) <= 3, said
        assert "Traceback" not in said


# --- streams ----------------------------------------------------------------------------------

STREAM_OPTIONS = {
    "from the start": {"startingOffsets": "earliest"},
    "from offsets": {"startingOffsets": '{"small": {"0": 10, "1": -2, "2": -1}}'},
    "from a time": {"startingTimestamp": str(MIDDLE_MS)},
    "from times by partition": {
        "startingOffsetsByTimestamp": json.dumps({SMALL: {"0": 1, "1": MIDDLE_MS, "2": MIDDLE_MS}})
    },
    "from the end where no record is as late": {
        "startingTimestamp": str(MIDDLE_MS * 2),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "limited batches": {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"},
    "uneven limited batches": {
        "startingOffsets": '{"small": {"0": 25, "1": 0, "2": 28}}',
        "maxOffsetsPerTrigger": "20",
    },
    "batches of so many at least": {"startingOffsets": "earliest", "minOffsetsPerTrigger": "20"},
    "assigned": {"startingOffsets": "earliest", "assign": '{"small": [1], "cut": [0]}'},
    "by pattern, with headers, in pieces": {
        "startingOffsets": "earliest",
        "subscribePattern": "small|cut",
        "includeHeaders": "true",
        "minPartitions": "9",
        "maxRecordsPerPartition": "7",
    },
    "what is gone is passed over": {
        "subscribe": CUT,
        "failOnDataLoss": "false",
        "startingOffsets": '{"cut": {"0": 3, "1": 0, "2": 7}}',
    },
    "committed": {
        "subscribe": TRANSACTIONS,
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
        "maxOffsetsPerTrigger": "40",
    },
}


class Streamed(NamedTuple):
    """The records of a stream to the end of its topics, the ends of its batches, and what was
    told."""

    rows: list[Row]
    ends: list[dict]
    sources: list[SourceProgress]


def stream(spark: SparkSession, format: str, options: dict[str, str], folder: Path) -> Streamed:
    """Runs a stream to the end; with the folder of an earlier one it goes on."""
    checkpoint, target = folder / "checkpoint", folder / f"data-{time.monotonic_ns()}"
    query = (
        spark.readStream.format(format).options(**options).load()
        .writeStream.format("parquet").option("path", str(target))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    try:
        assert query.awaitTermination(PATIENCE_S)
    finally:
        query.stop()
    files = [str(file) for file in target.glob("*.parquet")]
    found = rows(spark.read.parquet(*files)) if files else []
    batches = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    told = [progress["sources"][0] for progress in query.recentProgress if progress["sources"]]
    return Streamed(found, [offsets_in(path) for path in batches], told)


def offsets_in(batch: Path) -> dict:
    """Where a batch ended; ours have the ids of topics beside it, as topics without partitions."""
    document = json.loads(batch.read_text().splitlines()[-1])
    return {topic: offsets for topic, offsets in document.items() if offsets}


@pytest.mark.parametrize("name", STREAM_OPTIONS)
def test_an_option_of_a_stream_means_what_it_means_to_the_connector(
    spark, connector, place, tmp_path: Path, name: str
) -> None:
    options = dict(STREAM_OPTIONS[name])
    if not options.keys() & {"assign", "subscribePattern", "subscribe"}:
        options["subscribe"] = SMALL
    at_broker = {**place.options(BROKER), **options}
    expected = stream(spark, connector, at_broker, tmp_path / "theirs")
    needs_broker = "kafka.isolation.level" in options
    for route in (BROKER,) if needs_broker else ROUTES:
        given = {**place.options(route), **options}
        found = stream(spark, "odradek", given, tmp_path / route)
        assert found.rows == expected.rows, route
        if "maxOffsetsPerTrigger" not in options:
            assert found.ends[-1:] == expected.ends[-1:], route


def test_metrics_of_the_connectors_source_are_had_of_ours(
    spark, connector, place, tmp_path
) -> None:
    """A dashboard of a job that changes to `odradek` would be empty."""
    options = {"subscribe": SMALL, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "7"}
    given = {**place.options(BROKER), **options}
    theirs = stream(spark, connector, given, tmp_path / "theirs").sources
    ours = stream(spark, "odradek", given, tmp_path / "ours").sources
    told = [{name: float(text) for name, text in each["metrics"].items()} for each in theirs]
    assert len({each["maxOffsetsBehindLatest"] for each in told}) > 1
    assert [source_metrics(each) for each in theirs] == told
    assert [source_metrics(each) for each in ours] == told


def test_a_stream_goes_on_from_the_others_checkpoint(spark, connector, place, tmp_path) -> None:
    """A job is changed to `odradek`, and back: each record is read once over all of its runs."""
    # Each run writes to files of its own, and would look for those of earlier batches in them.
    spark.conf.set("spark.sql.streaming.fileSink.log.compactInterval", "100")
    topic = "handed-over"
    admin = AdminClient({"bootstrap.servers": place.servers})
    admin.create_topics([NewTopic(topic, 2)])[topic].result(deadline_s(60))
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "6"}
    kafka, ours = (connector, BROKER), ("odradek", BROKER)
    found: list[Row] = []
    turns = [kafka, ours, ("odradek", PATH), kafka, kafka, ("odradek", BOTH), ours, kafka]
    for number, (name, route) in enumerate(turns):
        producer = Producer({"bootstrap.servers": place.servers})
        for record in range(10):
            producer.produce(topic, b"%d-%d" % (number, record), partition=record % 2)
        assert producer.flush(deadline_s(60)) == 0
        if route == PATH:
            await_ends(place, topic, 5 * (number + 1))
        found += stream(spark, name, {**place.options(route), **options}, tmp_path).rows
    positions = [(row.partition, row.offset) for row in found]
    assert len(positions) == len(set(positions)) == 10 * len(turns)


def await_ends(place: Place, topic: str, end: int) -> None:
    """Until the checkpoint of high watermarks says so of both partitions."""
    checkpoint, deadline = Path(place.data_dir, CHECKPOINT), time.monotonic() + PATIENCE_S
    while not {f"{topic} {number} {end}" for number in (0, 1)} <= lines(checkpoint):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def lines(path: Path) -> set[str]:
    return set(path.read_text().splitlines()) if path.exists() else set()


# --- writing ------------------------------------------------------------------------------------

HEADERS = (
    "array(struct('h' AS key, CAST('x' AS BINARY) AS value), "
    "struct('n' AS key, CAST(NULL AS BINARY) AS value))"
)
WRITTEN = {
    "values": ["value"],
    "keys and values, as binary": ["CAST(value AS BINARY) AS value", "key"],
    "nothing but nulls": ["CAST(NULL AS STRING) AS value", "CAST(NULL AS BINARY) AS key"],
    "headers": ["value", "key", f"IF(id % 2 = 0, {HEADERS}, NULL) AS headers"],
    "partitions": ["value", "CAST(id % 2 AS INT) AS partition"],
    "partitions for some": ["value", "key", "IF(id % 2 = 0, 1, NULL) AS partition"],
    "topics by row, and the option": ["value", "key", "'elsewhere' AS topic"],
    "topics of another type, and the option": ["value", "key", "id AS topic"],
    "columns that are no record's": [
        "value",
        "key",
        "id",
        "CAST('2024-05-06' AS DATE) AS timestamp",
    ],
}
NOT_WRITTEN = {
    "no value": ["key"],
    "a value of another type": ["id AS value"],
    "a key of another type": ["value", "id AS key"],
    "headers of another type": ["value", "map('h', 'x') AS headers"],
    "a partition of another type": ["value", "id AS partition"],
    "a topic of another type": ["value", "id AS topic"],
    "a partition that is not there": ["value", "7 AS partition"],
}


def written(
    spark: SparkSession, format: str, place: Place, topic: str | None, columns: list[str]
) -> None:
    frame = spark.range(40).selectExpr(
        "id", "CONCAT('value-', id) AS value", "CONCAT('key-', id % 9) AS key"
    )
    writer = frame.selectExpr(*columns).coalesce(1).write.format(format).mode("append")
    writer.options(**place.options(BROKER), **{"kafka.max.block.ms": "5000"})
    # With the option, nobody looks at a column of that name.
    (writer if topic is None else writer.option("topic", topic)).save()


@pytest.mark.parametrize("name", WRITTEN)
def test_a_table_is_written_as_the_connector_writes_it(spark, connector, place, name: str) -> None:
    found = []
    admin = AdminClient({"bootstrap.servers": place.servers})
    for sink in (connector, "odradek"):
        topic = f"{sink}-{list(WRITTEN).index(name)}"
        admin.create_topics([NewTopic(topic, 2)])[topic].result(deadline_s(60))
        written(spark, sink, place, topic, WRITTEN[name])
        at_broker = {**place.options(BROKER), "subscribe": topic, "includeHeaders": "true"}
        back = rows(read(spark, "odradek", at_broker))
        # Without keys any partition will do, and each has its own to begin with.
        placed = "key" in WRITTEN[name] or "partition" in WRITTEN[name][-1]
        found.append(
            sorted(
                repr((row.key, row.value, row.headers, row.partition if placed else None))
                for row in back
            )
        )
    assert len(found[0]) == 40
    assert found[1] == found[0]


@pytest.mark.parametrize("name", NOT_WRITTEN)
def test_what_the_connector_does_not_write_is_refused_in_a_sentence(
    spark, connector, place, name: str
) -> None:
    for sink in (connector, "odradek"):
        with pytest.raises((PySparkException, Py4JJavaError)) as error:
            written(spark, sink, place, None if "topic" in name else SMALL, NOT_WRITTEN[name])
    assert "Traceback" not in str(error.value)
    assert "SourceError" in str(error.value)
