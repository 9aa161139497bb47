"""Pipelines that go along a topic: repetitions, windows, joins and lag.

If these fail, a record is counted twice or not at all, or a group that is behind is not told of.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException
from pyspark.sql.functions import col
from tests.deadlines import deadline_s

import odradek
from odradek.model import TopicPartition as Part
from odradek.tables.plan.ranges import OffsetRange
from pyspark_odradek.pipelines import (
    PipelineError,
    PipelineSettings,
    dedup,
    join,
    lag,
    volume,
    window,
)

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

FIRST_TIME_MS = 1_700_000_400_000  # a full ten minutes
# Spark has no later one, and with a minus none that is earlier.
LAST_TIME_MS = 9_223_372_036_854_775
MINUTE_MS = 60_000
HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker() as broker:
        yield broker


@pytest.fixture
def settings(broker, request, tmp_path) -> PipelineSettings:
    """A topic of this test's own, with one partition."""
    topic = re.sub(r"[\W_]", "-", request.node.name)
    broker.create_topic(topic, partitions=1, config={"retention.ms": "-1"})
    return PipelineSettings(broker.bootstrap_servers, topic, to=str(tmp_path / "out"))


@pytest.fixture
def put(broker, settings):
    """Writes records with a key, a value and the minute of their time."""

    def put(*records: tuple[str | None, str, float], topic: str = settings.topic) -> None:
        for key, value, minute in records:
            timestamp = FIRST_TIME_MS + int(minute * MINUTE_MS)
            broker.produce(topic, value, key=key, timestamp=timestamp)

    return put


def test_repetitions_are_left_out_also_in_later_batches(spark, settings, put) -> None:
    settings = replace(settings, within="10 minutes")
    put(("a", "1", 0), ("b", "2", 1), ("a", "3", 2), (None, "4", 3), (None, "5", 3))
    dedup.build(spark, settings).run()
    put(("b", "6", 4), ("c", "7", 60))
    dedup.build(spark, settings).run()
    # One that Spark need not know any more, and one that nobody can know of.
    put(("a", "8", 61), ("d", "9", 5))
    outcome = dedup.build(spark, settings).run()
    found = spark.read.parquet(str(settings.to)).orderBy("offset").collect()
    assert [bytes(row.value) for row in found] == [b"1", b"2", b"4", b"5", b"7", b"8"]
    assert outcome.facts == {"too late": 1}


def test_repetitions_by_an_expression_to_a_topic(spark, broker, settings, put, tmp_path) -> None:
    broker.create_topic("once", partitions=1)
    # It has partitions that the other topic has not.
    broker.create_topic("wide", partitions=3, config={"retention.ms": "-1"})
    for number, key in enumerate(("a", "b", "b")):
        value, time = f'{{"id": {max(1, number)}}}', FIRST_TIME_MS + number * MINUTE_MS
        broker.produce("wide", value, key=key, timestamp=time, partition=min(2, 2 * number))
    job = dedup.build(
        spark,
        replace(
            settings, topic="wide", by="get_json_object(CAST(value AS STRING), '$.id')", to=None,
            to_topic="once", checkpoint=str(tmp_path / "checkpoint"),
        ),
    )  # fmt: skip
    job.run()
    once = broker.records("once", read_committed=True)
    # Two tasks write them, either of which may be first; and of two that are the same either stays.
    assert sorted(record.value for record in once) == [b'{"id": 1}', b'{"id": 2}']
    assert {record.timestamp for record in once} <= {
        FIRST_TIME_MS + minute * MINUTE_MS for minute in range(3)
    }


def test_half_a_batch_of_which_records_are_gone_can_be_completed(
    spark, broker, settings, put, tmp_path
) -> None:
    """Retention had overtaken it, and no flag could make the sink go on."""
    broker.create_topic("half", partitions=1)
    tasks = 4
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", str(tasks))
    settings = replace(settings, to=None, to_topic="half", checkpoint=str(tmp_path / "kept"))
    put(*((f"k{number}", str(number), 0) for number in range(40)))
    try:
        with (
            # The first is of the transaction that writes down how the batch is cut.
            broker.delay(1, "EndTxn", times=1),
            broker.fail("EndTxn", "UNKNOWN_SERVER_ERROR", times=tasks - 1),
            pytest.raises(PySparkException, match="UNKNOWN_SERVER_ERROR"),
        ):
            dedup.build(spark, settings).run()
        committed = broker.records("half", read_committed=True)
        assert 0 < len(committed) < 40, "one of the tasks was committed"
        delete_records(broker, settings.topic, 20)
        with pytest.raises(PySparkException, match="failOnDataLoss"):
            dedup.build(spark, settings).run()
        dedup.build(spark, replace(settings, allow_loss=True)).run()
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    found = [int(record.value or b"") for record in broker.records("half", read_committed=True)]
    there = {int(record.value or b"") for record in committed} | set(range(20, 40))
    assert sorted(found) == sorted(there)


def delete_records(broker: odradek.Broker, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    place = TopicPartition(topic, 0, before)
    admin.delete_records([place])[place].result(deadline_s(60))


def windows(spark, settings: PipelineSettings, part: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in spark.read.parquet(f"{settings.to}/{part}").collect()]


def test_windows_and_late_records_together_are_the_topic(spark, settings, put) -> None:
    settings = replace(
        settings, window="10 minutes", within="5 minutes", by="CAST(key AS STRING)",
        measure="CAST(value AS STRING)",
    )  # fmt: skip
    put(("a", "1", 0), ("a", "2", 9), ("b", "5", 3), ("a", "4", 11))
    window.build(spark, settings).run()
    assert windows(spark, settings, "windows") == []
    # Late, but not too late; then what ends the first window.
    put(("a", "8", 5), ("a", "1", 16))
    window.build(spark, settings).run()
    shown = spark.read.parquet(f"{settings.to}/windows").select("by", "records", "sum", "largest")
    expected = {("a", 3, 11.0, 8.0), ("b", 1, 5.0, 5.0)}
    assert {tuple(row) for row in shown.collect()} == expected
    # Too late, also for another key; the second window goes on.
    put(("a", "100", 2), ("c", "100", 2), ("a", "2", 12), ("a", "3", 30))
    window.build(spark, settings).run()
    late = spark.read.parquet(f"{settings.to}/late").collect()
    assert sorted(bytes(row.key) for row in late) == [b"a", b"c"]
    assert {tuple(row) for row in shown.collect()} == expected  # read before it was there
    complete = spark.read.parquet(f"{settings.to}/windows")
    assert complete.count() == 3
    assert complete.selectExpr("sum(records)").first()[0] + len(late) == 9  # one is open still


def test_what_is_no_number_is_counted_and_all_digits_are(spark, broker, settings) -> None:
    """The documented example ended at a price of "n/a", and 0.1 and 0.2 were more than 0.3."""
    price = "get_json_object(CAST(value AS STRING), '$.price')"
    settings = replace(
        settings, topic="prices", window="10 minutes", within="1 minutes", by="'all'", measure=price
    )
    broker.create_topic(
        "prices", config={"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**62)}
    )
    values = ["0.1", '"0.2"', '"n/a"', "null", '"NaN"', '"-Infinity"', '"12345678901234567890.5"']
    for value in (*(f'{{"price": {each}}}' for each in values), "none"):
        broker.produce("prices", value, timestamp=FIRST_TIME_MS)
    window.build(spark, settings).run()
    # One whose clock counts microseconds ends all windows; the next one is late.
    for time in (FIRST_TIME_MS * 1000, FIRST_TIME_MS):
        broker.produce("prices", '{"price": 1}', timestamp=time)
        window.build(spark, settings).run()
    [row] = spark.read.parquet(f"{settings.to}/windows").collect()
    assert (row.records, row.measured, row.sum) == (8, 3, Decimal("12345678901234567890.8"))
    assert (row.least, row.largest) == (Decimal("0.1"), Decimal("12345678901234567890.5"))
    assert len(windows(spark, settings, "late")) == 1


@pytest.fixture(params=[LAST_TIME_MS, -LAST_TIME_MS])
def odd(broker, settings, put, request) -> PipelineSettings:
    """A topic that takes any time, with a record at an end of time before one of our days."""
    own = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
    topic = f"odd-{settings.topic}"
    broker.create_topic(topic, partitions=1, config=own)
    broker.produce(topic, "1", key="k", timestamp=request.param)
    put(("k", "1", 0), topic=topic)
    return replace(settings, topic=topic)


def test_a_window_that_time_has_no_room_for_is_kept_aside(spark, odd, put) -> None:
    """One such record ended the job, at each start."""
    settings = replace(odd, window="10 minutes", within="1 minutes", by="'all'")
    window.build(spark, settings).run()
    table = spark.read.parquet(f"{settings.to}/late")
    assert (table.count(), windows(spark, settings, "windows")) == (1, [])
    put((None, "1", 5), (None, "1", 20), topic=settings.topic)
    window.build(spark, settings).run()
    [(_, _, _, records, *_)] = windows(spark, settings, "windows")
    assert (records, spark.read.parquet(f"{settings.to}/late").count()) == (2, 1)


def test_a_time_that_is_not_within_time_ends_no_window(spark, broker, settings) -> None:
    """The start of `within` before the newest record was asked for, and lies before the first
    time."""
    topic, own = f"early-{settings.topic}", {"retention.ms": "-1"}
    broker.create_topic(topic, partitions=1, config=own)
    broker.produce(topic, "1", timestamp=-LAST_TIME_MS + 30 * MINUTE_MS)
    settings = replace(settings, topic=topic, window="10 minutes", within="1 hours", by="'all'")
    window.build(spark, settings).run()
    assert windows(spark, settings, "windows") == []
    # Python has no such year.
    [row] = spark.read.parquet(f"{settings.to}/_open").select("records").collect()
    assert row.records == 1


def test_records_at_the_ends_of_time_are_joined_and_counted(spark, broker, odd, tmp_path) -> None:
    """One such record ended the job, at each start; one from before 1970 found no match."""
    settings = replace(odd, other=odd.topic, within="10 minutes")
    outcome = join.build(spark, settings).run()
    found = spark.read.parquet(str(settings.to))
    assert outcome.facts == {}
    assert found.where("offset = other_offset").count() == found.count() == 2
    volume.build(spark, replace(odd, to=str(tmp_path / "volume"))).run()
    counts = spark.read.parquet(str(tmp_path / "volume"))
    assert [row.records for row in counts.select("records").collect()] == [1, 1]


@pytest.mark.parametrize(
    ("measure", "kind", "total"),
    [
        ("9223372036854775807L", "decimal(38,0)", 2 * (2**63 - 1)),
        ("0.10BD", "decimal(38,2)", Decimal("0.20")),
        ("CAST(REPEAT('9', 38) AS DECIMAL(38, 0))", "decimal(38,0)", None),
        ("0.5D", "double", 1.0),
        (None, "double", None),
    ],
)
def test_a_measure_is_summed_up_in_a_type_that_holds_it(
    spark, measure: str | None, kind: str, total: object
) -> None:
    """A sum that is too large for any number is null, instead of ending the job."""
    settings = PipelineSettings("", "any", by="'all'", measure=measure)
    records = spark.sql("SELECT timestamp_millis(0) AS timestamp FROM range(2)")
    counted = window.opened(records, settings)
    found = window.merged(counted.unionByName(counted.limit(0)))
    assert found.schema["sum"].dataType == counted.schema["sum"].dataType
    assert (found.schema["sum"].dataType.simpleString(), found.collect()[0].sum) == (kind, total)


@pytest.mark.parametrize(
    ("first", "total", "largest"),
    [
        (("9" * 20, "9" * 20), None, Decimal("9" * 20)),
        (("9" * 20, "-1"), None, Decimal("9" * 20)),
        (("9" * 21, "9" * 21), None, None),
        (("9" * 21, "7"), None, None),
        ((" -1E+300 ", " -1E+300 "), None, None),
        (("1e-300", "1e-300"), Decimal(10), Decimal(5)),
        (("7", "7"), Decimal(24), Decimal(7)),
        (("none", "none"), Decimal(10), Decimal(5)),
    ],
)
def test_a_window_has_no_sum_once_it_was_too_large(
    spark, first: tuple[str, str], total: object, largest: object
) -> None:
    """The next batch's sum was that of the whole window; and a number that did not fit was left out
    of it, as if it were none."""
    settings = PipelineSettings("", "any", by="'all'", measure="number")
    opened = [
        window.opened(
            spark.sql(
                "SELECT timestamp_millis(0) AS timestamp, number "
                f"FROM VALUES ('{one}'), ('{other}') AS t(number)"
            ),
            settings,
        )
        for one, other in (first, ("5", "5"))
    ]
    [row] = window.merged(opened[0].unionByName(opened[1])).collect()
    assert (row.records, row.measured) == (4, 2 if "none" in first else 4)
    assert (row.sum, row.largest, row.least is None) == (total, largest, largest is None)


def test_a_window_ends_also_in_the_hour_that_is_there_twice(spark, broker, settings) -> None:
    """In autumn a later time is an earlier text, and a text is two times."""
    settings = replace(settings, window="10 minutes", within="1 minutes", by="'all'")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Prague")
    try:
        for minute in (35, 75):
            time = datetime(2023, 10, 29, tzinfo=UTC) + timedelta(minutes=minute)
            broker.produce(settings.topic, "1", timestamp=int(time.timestamp() * 1000))
            window.build(spark, settings).run()
        assert len(windows(spark, settings, "windows")) == 1
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_a_batch_of_windows_that_is_repeated_comes_to_the_same(spark, settings, put) -> None:
    """Spark was killed after the windows were written, and before its checkpoint."""
    settings = replace(settings, window="10 minutes", within="1 minutes", by="'all'")
    put(("a", "1", 0))
    window.build(spark, settings).run()
    put(("a", "1", 1), ("a", "1", 30))
    window.build(spark, settings).run()
    before = windows(spark, settings, "windows")
    checkpoint = Path(str(settings.to), "_checkpoint")
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    put(("a", "1", 31))
    window.build(spark, settings).run()
    assert windows(spark, settings, "windows") == before
    assert before[0][3] == 2
    [(_, _, _, records, *_)] = windows(spark, settings, "_open")
    assert records == 2


def test_records_of_two_topics_meet(spark, broker, settings, put) -> None:
    broker.create_topic("payments", partitions=1, config={"retention.ms": "-1"})
    settings = replace(settings, other="payments", within="10 minutes")
    put(("a", "order 1", 0), ("b", "order 2", 1), (None, "order 3", 1))
    put(("a", "paid 1", 5), ("b", "paid 2", 30), (None, "paid 3", 1), topic="payments")
    join.build(spark, settings).run()
    put(("a", "paid again", 6), topic="payments")
    join.build(spark, settings).run()
    found = spark.read.parquet(str(settings.to)).orderBy("other_offset").collect()
    assert [(bytes(row.value), bytes(row.other_value)) for row in found] == [
        (b"order 1", b"paid 1"),
        (b"order 1", b"paid again"),
    ]
    with pytest.raises(PipelineError, match="join needs another topic"):
        join.build(spark, replace(settings, other=None))


@pytest.mark.parametrize("pipeline", ["dedup", "dedup to a topic", "join"])
def test_what_an_earlier_version_remembers_is_not_gone_on_with(
    spark, broker, settings, put, tmp_path: Path, pipeline: str
) -> None:
    """It has the times of records as they are, and now they are moved: from the second batch on
    repetitions were not left out, and records that it had did not meet any more."""
    others = f"{settings.topic}-others"
    broker.create_topic(others, partitions=1, config={"retention.ms": "-1"})
    place, module = tmp_path / "out", join if pipeline == "join" else dedup
    settings = replace(settings, other=others if pipeline == "join" else None)
    if pipeline == "dedup to a topic":
        place = tmp_path / "checkpoint"
        settings = replace(settings, to=None, to_topic=others, checkpoint=str(place))
    for topic in (settings.topic, others):
        put(("a", "1", 0), ("b", "2", 90), topic=topic)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "event_time", col)
        module.build(spark, settings).run()
    before = sorted(path for path in place.rglob("*") if path.is_file())
    with pytest.raises(PipelineError, match=r"is of an earlier version: .* Choose another"):
        module.build(spark, settings)
    assert sorted(path for path in place.rglob("*") if path.is_file()) == before


def test_groups_that_are_behind(spark, broker, settings, put) -> None:
    put(*[("a", str(number), number) for number in range(5)])
    # What a sink writes down for itself is no reader, and never far.
    sinks = (("spark.id.sink.0", 1), ("spark.copy.sink", 1))
    for group, offset in (("reader", 2), ("done", 5), *sinks):
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
        consumer.commit(offsets=[TopicPartition(settings.topic, 0, offset)], asynchronous=False)
        consumer.close()
    outcome = lag.build(spark, replace(settings, max_lag=2)).run()
    assert [text.partition(",")[0] for text in outcome.findings] == [
        f"reader {settings.topic}-0: 3 records behind"
    ]
    rows = {row.group: row for row in spark.read.parquet(str(settings.to)).collect()}
    assert rows.keys() == {"reader", "done"}
    assert rows["done"].records == 0
    assert rows["done"].seconds is None
    written = datetime.fromtimestamp(FIRST_TIME_MS / 1000, UTC) + timedelta(minutes=2)
    assert abs(timedelta(seconds=rows["reader"].seconds) - (datetime.now(UTC) - written)) < HOUR
    assert lag.build(spark, replace(settings, max_lag=3)).run().findings == []


def test_tasks_find_how_long_very_many_partitions_wait(spark, broker, monkeypatch) -> None:
    """One after the other from the driver, each with a plan of all, never came to an end."""
    broker.create_topic("broad", partitions=4, config={"retention.ms": "-1"})
    for number in range(8):
        time = FIRST_TIME_MS + number * MINUTE_MS
        broker.produce("broad", "v", partition=number % 3, timestamp=time)
    settings = PipelineSettings(broker.bootstrap_servers, "broad")
    wanted = ((0, 0, 3), (0, 1, 3), (1, 2, 3), (3, 0, 1))
    pieces = {OffsetRange(Part("broad", number), *span) for number, *span in wanted}
    here = lag.first_times_of(spark, settings, pieces)
    assert sorted((time - FIRST_TIME_MS) // MINUTE_MS for time in here.values()) == [0, 3, 7]
    by_tasks, asked = lag._found_by_tasks, []

    def noted(*arguments: Any) -> Any:
        asked.append(len(arguments[2]))
        return by_tasks(*arguments)

    monkeypatch.setattr(lag, "_found_by_tasks", noted)
    monkeypatch.setattr(lag, "PIECES_HERE", 1)
    assert lag.first_times_of(spark, settings, pieces) == here
    assert asked == [len(pieces)]


def test_what_a_query_remembers_is_on_disk(spark, settings, put) -> None:
    """A whole topic in its first batch went into the heap, and ended the query at each start."""
    put(("a", "1", 0))
    dedup.build(spark, settings).run()
    [planned] = Path(str(settings.to), "_checkpoint", "offsets").glob("0")
    assert "RocksDBStateStoreProvider" in planned.read_text()


def test_what_a_query_has_read_is_not_kept_when_it_has_ended(spark, tmp_path) -> None:
    """Spark kills the reader, which so cannot say that the query is over: its lease held up
    retention for ten minutes."""
    with odradek.Broker(data_dir=str(tmp_path / "data")) as broker:
        broker.create_topic("orders", partitions=1)
        broker.produce_many("orders", [b"x"] * 10)
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"}
        found = []

        def look(batch, _) -> None:
            leases = len([*tmp_path.glob("data/*/*.lease")])
            found.append((batch.count(), leases))

        stream = spark.readStream.format("odradek").options(**options, startingOffsets="earliest")
        writer = stream.load().writeStream.foreachBatch(look).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "kept")).start().awaitTermination()
        assert found == [(10, 1)]
        assert [*tmp_path.glob("data/*/*.lease")] == []
