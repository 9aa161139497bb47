"""If these fail, an audit passes over a record that is not what it was, or is there twice, or does
not end."""

import shutil
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import functions as f
from tests.deadlines import deadline_s

import odradek
from odradek.model import TopicPartition as Part
from pyspark_odradek.pipelines import PipelineSettings, archive, audit, restore
from pyspark_odradek.pipelines.audit import compared, content_of, is_within, sums
from pyspark_odradek.pipelines.bookkeeping.manifest import ArchivedFile, FileRange, Manifest
from pyspark_odradek.pipelines.bookkeeping.shares import Shares
from pyspark_odradek.pipelines.ends.snapshots import Span
from pyspark_odradek.pipelines.ends.tables import Number

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

SCHEMA = (
    "topic string, partition int, offset long, timestamp timestamp, timestampType int, "
    "key binary, value binary, headers array<struct<key:string,value:binary>>"
)
TIME_MS = 1_700_000_000_000
PLACE = ("t", 0, 0, datetime(2026, 11, 28, tzinfo=UTC), 0)
PAIRS = [
    ((b"a", None, None), (None, b"a", None)),
    ((b"a", b"", None), (b"a", None, None)),
    ((None, None, [("a", None), ("b", None)]), (None, None, [("a", b"b")])),
    ((None, None, [("a", b"b"), ("c", None)]), (None, None, [("a", None), ("b", b"c")])),
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_records_that_differ_in_what_is_null_are_told_apart(spark, one: Any, other: Any) -> None:
    """Spark's checksum leaves out nulls."""
    frames = [spark.createDataFrame([(*PLACE, *record)], SCHEMA) for record in (one, other)]
    assert sums(frames[0]) != sums(frames[1])
    first, second = (frame.select(content_of().alias("content")).first() for frame in frames)
    assert first != second


@pytest.fixture(scope="module")
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker() as broker:
        yield broker


def archived(spark, broker: odradek.Broker, topic: str, place: Path) -> PipelineSettings:
    settings = PipelineSettings(broker.bootstrap_servers, topic, to=str(place), source=str(place))
    archive.build(spark, settings).run()
    return settings


def transact(broker: odradek.Broker, topic: str, count: int, *, commit: bool) -> None:
    """Each takes an offset more than it has records."""
    servers = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic}
    producer = Producer(servers)
    producer.init_transactions(deadline_s(30))
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, str(number), partition=0, timestamp=TIME_MS)
    producer.flush(deadline_s(30))
    if commit:
        producer.commit_transaction(deadline_s(30))
    else:
        producer.abort_transaction(deadline_s(30))


def test_records_that_are_twice_are_found_where_the_topic_has_lost_them(
    spark, broker, tmp_path: Path
) -> None:
    """There was room for them among the offsets of what was aborted."""
    broker.create_topic("again", partitions=1, config={"retention.ms": "-1"})
    transact(broker, "again", 9, commit=False)
    transact(broker, "again", 4, commit=True)
    settings = archived(spark, broker, "again", tmp_path / "a")
    manifest = Manifest(spark, str(settings.to))
    files = manifest.batch_files(0)
    [place] = (tmp_path / "a").glob("batch=0-*")
    shutil.copytree(place, tmp_path / "a/batch=1-0")
    copies = [replace(file, path=file.path.replace(place.name, "batch=1-0")) for file in files]
    document = manifest.table.document(0)
    assert document is not None
    both = {"files": list(map(asdict, copies)), "offsets": document["offsets"]}
    manifest.table.commit(Number(1), both)
    [finding] = audit.build(spark, settings).run().findings
    assert finding.endswith(": 4 records are in the archive twice")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    below = TopicPartition("again", 0, 13)
    admin.delete_records([below])[below].result(deadline_s(60))
    findings = audit.build(spark, settings).run().findings
    assert findings == [
        "again-0: 3 records are in the archive twice",
        f"{finding.partition(':')[0]}: 1 records are in the archive twice",
    ]


def test_very_many_partitions_are_compared(spark) -> None:
    """Spark failed at a condition for each of them, with a thousand already."""
    spans = {Part("t", number): Span(number, number + 2) for number in range(5_000)}
    places = [(number, number + at) for number in (0, 7, 4_999) for at in (-1, 0, 1, 2)]
    records = spark.createDataFrame([*places, (5_000, 5_001)], "partition int, offset long")
    found = records.where(is_within(spans)).collect()
    assert sorted(map(tuple, found)) == [(n, n + at) for n in (0, 7, 4_999) for at in (0, 1)]
    assert records.where(~is_within(spans)).count() == 7
    assert records.where(is_within({})).count() == 0


def test_what_very_many_partitions_lack_costs_no_call_for_each(
    spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restore of 10 000 partitions that was gone on with asked the JVM for ten seconds."""
    calls: list[object] = []
    lit = f.lit

    def counted(value: object) -> object:
        calls.append(value)
        return lit(value)

    monkeypatch.setattr(f, "lit", counted)
    rows, asked = [(0, 5), (7, 6), (7, 7), (4_999, 9)], set()
    records = spark.createDataFrame(rows, "partition int, offset long")
    # One record is there of 7, and one of 4 999.
    for partitions, expected in ((5_000, [(0, 5), (7, 7)]), (7, rows)):
        calls.clear()
        there = {Part("t", number): Span(0, number % 3) for number in range(partitions)}
        lacking = restore.behind(records, there)
        asked.add(len(calls))
        found = lacking.select("partition", "offset").collect()
        assert sorted(map(tuple, found)) == expected
        # The list is made once, and not for each record.
        assert "split(" not in lacking._jdf.queryExecution().optimizedPlan().toString()
    assert len(asked) == 1


def test_the_records_of_a_large_hour_are_shared_out_evenly(spark) -> None:
    """Wherever the offsets of its partitions begin: one of its files was too large."""
    pieces = [(0, 0, 51), (1, 100, 151), (4_000, 9_000, 9_050), (4_001, 9_100, 9_150)]
    ranges = [FileRange("t", part, start, end, end - start) for part, start, end in pieces]
    shares = Shares([ArchivedFile("b/h/f", 202 * 100, "", ranges)], 10_000)
    rows = [("t", part, offset) for part, start, end in pieces for offset in range(start, end)]
    records = spark.createDataFrame(rows, "topic string, partition int, offset long")
    found = records.groupBy(shares.of_record().alias("share")).count().collect()
    assert sorted(map(tuple, found)) == [(0, 100), (1, 100), (2, 2)]


def test_a_topic_that_loses_its_last_records_meanwhile_has_none_to_count(spark) -> None:
    """The audit told of None records."""
    nothing = spark.createDataFrame([], SCHEMA)
    assert compared(nothing, nothing) == ([], 0)


def test_an_archive_of_no_records_is_audited(spark, broker, tmp_path: Path) -> None:
    """Spark reads no table of no files."""
    broker.create_topic("aborted", partitions=1, config={"retention.ms": "-1"})
    transact(broker, "aborted", 3, commit=False)
    settings = archived(spark, broker, "aborted", tmp_path / "a")
    outcome = audit.build(spark, settings).run()
    assert (outcome.findings, outcome.facts["records"]) == ([], 0)
