"""If these fail, what a pipeline writes depends on the time zone of the session that runs it."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql.functions import unix_micros, unix_seconds
from tests.deadlines import deadline_s

import odradek
from pyspark_odradek.pipelines import (
    PipelineSettings,
    archive,
    audit,
    compact,
    decode,
    dedup,
    join,
    lag,
    latest,
    query,
    read_table,
    redrive,
    restore,
    volume,
    window,
)
from pyspark_odradek.pipelines.bookkeeping.manifest import Manifest
from pyspark_odradek.pipelines.ends.hours import begin_of_hour, utc_date, utc_hour
from pyspark_odradek.pipelines.ends.streams import distance
from pyspark_odradek.pipelines.window import counted

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

ZONES = ["America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu"]
# When clocks change in one of them, both ways.
DAYS = ["2026-03-08", "2026-11-01", "2026-03-29", "2026-10-25", "2026-04-05", "2026-10-04"]
TIMES = [
    datetime.fromisoformat(day).replace(tzinfo=UTC) + timedelta(minutes=half * 30)
    for day in DAYS
    for half in range(-2, 10)
]


@pytest.fixture(scope="module")
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for topic in ("orders", "payments", "others"):
            broker.create_topic(topic, partitions=1, config={"retention.ms": "-1"})
            for number, time in enumerate(sorted(TIMES)):
                at = int(time.timestamp() * 1000)
                value = f'{{"n": {number}, "at": "{time.isoformat()}"}}'
                value = "another" if topic == "others" else value
                producer.produce(topic, value, b"%d" % number, timestamp=at)
        assert producer.flush(deadline_s(60)) == 0
        yield broker


@pytest.fixture(params=ZONES)
def zone(spark, request: pytest.FixtureRequest) -> Iterator[str]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before)


def test_an_archive_has_the_hours_of_utc(spark, broker, zone: str, tmp_path: Path) -> None:
    """Records of 02:30 on the day when clocks change were put into the directory of 03."""
    target = str(tmp_path / "archive")
    settings = PipelineSettings(broker.bootstrap_servers, "orders", to=target, source=target)
    archive.build(spark, settings).run()
    expected = Counter((time.strftime("%Y-%m-%d"), time.strftime("%H")) for time in TIMES)
    assert hours_of(spark, target) == expected
    compact.build(spark, replace(settings, file_bytes=1 << 30)).run()
    assert hours_of(spark, target) == expected
    assert audit.build(spark, settings).run().findings == []
    findings = audit.build(spark, replace(settings, topic="others")).run().findings
    assert findings == [
        f"others-0 {date} {hour}: {count} records are in both, and they are not the same"
        for (date, hour), count in sorted(expected.items())
    ]
    again = replace(settings, topic=f"again-{zone.rpartition('/')[2]}")
    restore.build(spark, again).run()
    assert audit.build(spark, again).run().findings == []


def hours_of(spark, archive: str) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    with Manifest(spark, archive).reading() as archived:
        for file in archived.files:
            where = file.times["date"], file.times["hour"]
            found[where] += sum(piece.records for piece in file.ranges)
    return found


def test_tables_have_the_times_of_the_records(spark, broker, zone: str, tmp_path: Path) -> None:
    settings = PipelineSettings(
        broker.bootstrap_servers, "orders", other="payments", schema="n INT",
        sql="SELECT timestamp FROM orders", within="10 minutes",
    )  # fmt: skip
    for name, pipeline in (
        ("latest", latest), ("query", query), ("dedup", dedup), ("join", join), ("decode", decode)
    ):  # fmt: skip
        target = str(tmp_path / name)
        pipeline.build(spark, replace(settings, to=target)).run()
        place = f"{target}/source=topic" if pipeline is decode else target
        assert seconds_in(spark, place, "timestamp") == Counter(time.timestamp() for time in TIMES)
    target = str(tmp_path / "volume")
    volume.build(spark, replace(settings, to=target)).run()
    hours = {time.replace(minute=0).timestamp() for time in TIMES}
    assert seconds_in(spark, target, "hour") == Counter(hours)


def test_a_lag_is_told_at_its_time(spark, broker, zone: str, tmp_path: Path) -> None:
    """As local text, the age of what waits would be hours longer or shorter."""
    group = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader"}
    consumer = Consumer(group)
    consumer.commit(offsets=[TopicPartition("orders", 0, 30)], asynchronous=False)
    consumer.close()
    settings = PipelineSettings(broker.bootstrap_servers, "orders", to=str(tmp_path / "lag"))
    began = datetime.now(UTC).timestamp()
    lag.build(spark, settings).run()
    rows = spark.read.parquet(str(settings.to)).where("group = 'reader'")
    [row] = rows.selectExpr("unix_micros(at) / 1e6 AS at", "seconds").collect()
    assert began <= row.at <= datetime.now(UTC).timestamp()
    assert row.at - row.seconds == pytest.approx(sorted(TIMES)[30].timestamp(), abs=1)


def test_what_is_decoded_later_has_its_time(spark, broker, zone: str, tmp_path: Path) -> None:
    """Times in values, and those of the records that were among the dead letters."""
    settings = PipelineSettings(
        broker.bootstrap_servers, "orders", to=str(tmp_path / "table"), schema="n ARRAY<INT>",
        dead_letters=f"dead-{zone.rpartition('/')[2]}",
    )  # fmt: skip
    decode.build(spark, settings).run()
    redrive.build(spark, replace(settings, schema="n INT, at TIMESTAMP")).run()
    for column in ("timestamp", "value.at"):
        found = seconds_in(spark, f"{settings.to}/source=redriven", column)
        assert found == Counter(time.timestamp() for time in TIMES)


def test_windows_are_those_of_utc(spark, broker, zone: str, tmp_path: Path) -> None:
    """An hour that a clock shows twice was one window of two, or the second one was late."""
    settings = PipelineSettings(
        broker.bootstrap_servers, "orders", to=str(tmp_path / "windows"), by="'all'",
        window="1 hour", within="30 minutes", max_offsets_per_trigger=10,
    )  # fmt: skip
    window.build(spark, settings).run()
    found: Counter[float] = Counter()
    for part in ("windows", "_open"):
        rows = spark.read.parquet(f"{settings.to}/{part}")
        assert rows.where("unix_micros(end) - unix_micros(start) != 3600000000").isEmpty()
        for row in rows.selectExpr("unix_seconds(start) AS start", "records").collect():
            found[float(row.start)] += row.records
    assert found == Counter(time.replace(minute=0).timestamp() for time in TIMES)


def seconds_in(spark, table: str, column: str) -> Counter[float]:
    found: Any = read_table(spark, table)
    return Counter(float(row[0]) for row in found.selectExpr(f"unix_seconds({column})").collect())


def test_hours_before_1970_are_those_of_utc(spark, zone: str) -> None:
    """If this fails, a record of 1969 is in the hour, and on the day, behind its own."""
    seconds = [-1, -3600, -3601, -86_400, -86_401, 0, 3599]
    frame = spark.createDataFrame([(each,) for each in seconds], "at long").selectExpr(
        "at", "timestamp_seconds(at) as time"
    )
    shown = frame.select(
        "at", utc_date("time"), utc_hour("time"), unix_seconds(begin_of_hour("time"))
    )
    for at, date, hour, begin in shown.collect():
        time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=at)
        assert (date, hour) == (f"{time:%Y-%m-%d}", f"{time:%H}")
        assert begin == at // 3600 * 3600


def test_days_have_24_hours_also_where_clocks_change(spark, zone: str) -> None:
    """If this fails, what is a day apart is not joined, or what is an hour more is; and a window is
    complete an hour before its time, or behind it."""
    hours, day_s = 366 * 24, 86_400
    one = spark.range(hours).selectExpr(
        "CAST(id AS STRING) AS key", "timestamp_seconds(1767225600 + id * 3600) AS timestamp"
    )
    for apart_s, matches in ((day_s, hours), (day_s + 1, 0), (-day_s, hours)):
        moved = f"timestamp_seconds(unix_seconds(timestamp) + {apart_s}) AS timestamp"
        assert join.join(one, one.selectExpr("key", moved), "key", "1 day").count() == matches
    settings = PipelineSettings("", "orders", within="1 day", by="key")
    for day in DAYS:
        noon = int(datetime.fromisoformat(f"{day}T12:00Z").timestamp())
        records = one.where(unix_seconds(one.timestamp) == noon)
        assert counted(records, None, None, settings)[1] == (noon - day_s) * 1_000_000


@pytest.mark.parametrize(
    ("interval", "seconds"),
    [
        ("30 seconds", 30),
        ("1.5 seconds", 1.5),
        ("90 minutes", 5400),
        ("36 hours", 36 * 3600),
        ("2 days 30 hours", 78 * 3600),
        ("1 week", 7 * 86_400),
        ("1 month", 31 * 86_400),
        ("1 year", 12 * 31 * 86_400),
    ],
)
def test_an_interval_is_as_long_as_in_a_watermark(spark, zone, interval: str, seconds) -> None:
    """If this fails, `join` and `window` go by another `within` than what Spark remembers."""
    frame = spark.createDataFrame([(TIMES[0],)], "time timestamp")
    ends = frame.select(unix_micros(frame.time + distance(interval))).collect()
    assert ends[0][0] == (TIMES[0].timestamp() + seconds) * 1_000_000
