"""Archive, audit, restore, latest and query, in one session.

If these fail, an archive is not what the topic was, or nobody notices.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import odradek
from pyspark_odradek.pipelines import PipelineError, PipelineSettings, archive, audit, restore
from pyspark_odradek.pipelines import latest as latest_pipeline
from pyspark_odradek.pipelines import query as query_pipeline
from pyspark_odradek.progress import ProgressGroups

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

FIRST_TIME_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def archived(spark, broker, tmp_path_factory) -> Iterator[PipelineSettings]:
    """A topic of 900 records in three hours, archived in two batches."""
    listener = ProgressGroups(broker.bootstrap_servers)
    spark.streams.addListener(listener)
    broker.create_topic("orders", partitions=3, config={"retention.ms": "-1"})
    target = tmp_path_factory.mktemp("archive")
    settings = PipelineSettings(
        broker.bootstrap_servers, "orders", to=str(target), source=str(target)
    )
    for first in (0, 600):
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(first, first + (600 if first == 0 else 300)):
            producer.produce(
                "orders", key=b"k%d" % (number % 50), partition=number % 3,
                value=None if number % 50 == 7 else b"v%d" % number,
                timestamp=FIRST_TIME_MS + number * 3 * HOUR_MS // 900,
                headers=[("n", b"%d" % number)] if number % 2 else None,
            )  # fmt: skip
        assert producer.flush(60) == 0
        archive.build(spark, settings).run()
    yield settings
    spark.streams.removeListener(listener)


def test_an_archive_is_ordered_by_hours_and_written_down(archived) -> None:
    assert archived.to is not None
    target = Path(archived.to)
    manifest = json.loads((target / "_manifest/batch-0.json").read_text())
    files = manifest["files"]
    assert sorted(str(p.relative_to(target)) for p in (target / "batch=0").rglob("*.parquet")) == [
        file["path"] for file in files
    ]
    hours = {file["path"].split("/")[2] for file in files}
    assert len(files) == len(hours) == 3
    assert sum(piece["records"] for file in files for piece in file["ranges"]) == 600


def test_an_archive_is_seen_as_a_group_without_lag(broker, archived) -> None:
    """Nobody would see in time that retention is about to be faster than the archive."""
    partitions = [TopicPartition("orders", number) for number in range(3)]
    deadline = time.monotonic() + 60
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    while True:
        asked = [ConsumerGroupTopicPartitions("spark.archive-orders", partitions)]
        [future] = admin.list_consumer_group_offsets(asked).values()
        offsets = [each.offset for each in future.result(30).topic_partitions]
        if offsets == [300, 300, 300]:
            return
        assert time.monotonic() < deadline, offsets
        time.sleep(0.1)


def test_an_archive_that_is_right_has_no_findings(spark, archived) -> None:
    assert audit.build(spark, archived).run().findings == []


def test_a_restored_topic_is_the_original_row_by_row(spark, broker, archived) -> None:
    again = replace(archived, topic="orders-again")
    assert restore.build(spark, again).run().facts == {"records": 900}
    frames = [
        spark.read.format("odradek").option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("includeHeaders", "true").option("subscribe", topic).load().drop("topic")
        .orderBy("partition", "offset").collect()
        for topic in ("orders", "orders-again")
    ]  # fmt: skip
    assert len(frames[0]) == 900
    assert frames[0] == frames[1]
    assert audit.build(spark, again).run().findings == []
    stretches = json.loads(Path(str(archived.to), "_restored/orders-again.json").read_text())
    assert stretches == [{"partition": p, "start": 0, "to": 0, "records": 300} for p in range(3)]
    with pytest.raises(PipelineError, match="orders-again-0 has, or had, records"):
        restore.build(spark, again).run()


def test_any_flipped_byte_is_found(spark, archived) -> None:
    [first, *_] = sorted(Path(str(archived.to)).rglob("*.parquet"))
    content = first.read_bytes()
    checksum = first.with_name(f".{first.name}.crc")
    hadoops = checksum.read_bytes()
    checksum.unlink()  # Hadoop's own check would come first, and only on local disks.
    for position in (4, len(content) // 2, len(content) - 6):
        changed = bytearray(content)
        changed[position] ^= 1
        first.write_bytes(changed)
        [finding] = audit.build(spark, archived).run().findings
        assert "is not what was written" in finding
        with pytest.raises(PipelineError, match="the archive is damaged"):
            restore.build(spark, replace(archived, topic="never")).run()
    first.write_bytes(content)
    checksum.write_bytes(hadoops)
    assert audit.build(spark, archived).run().findings == []


def test_a_topic_with_other_records_is_found(spark, broker, archived) -> None:
    broker.create_topic("other", partitions=3, config={})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(9):
        producer.produce("other", b"x", partition=number % 3, timestamp=FIRST_TIME_MS)
    producer.flush(60)
    findings = audit.build(spark, replace(archived, topic="other")).run().findings
    assert [finding.partition(" ")[0] for finding in findings] == ["other-0", "other-1", "other-2"]
    assert all("they are not the same" in finding for finding in findings)


def test_the_newest_record_of_every_key(spark, archived, tmp_path: Path) -> None:
    latest_pipeline.build(spark, replace(archived, to=str(tmp_path / "latest"))).run()
    found = spark.read.parquet(str(tmp_path / "latest")).collect()
    newest = {}
    for number in range(900):
        newest[number % 3, number % 50] = number
    expected = {(p, b"k%d" % k, b"v%d" % n) for (p, k), n in newest.items() if k != 7}
    assert {(row.partition, bytes(row.key), bytes(row.value)) for row in found} == expected


def test_topics_are_tables_in_sql(spark, archived, tmp_path: Path) -> None:
    sql = "SELECT count(*) AS n FROM orders a JOIN orders b USING (partition, offset)"
    query_pipeline.build(spark, replace(archived, sql=sql, to=str(tmp_path / "answer"))).run()
    assert spark.read.parquet(str(tmp_path / "answer")).collect()[0].n == 900
    with pytest.raises(PipelineError, match="there is no topic nowhere"):
        query_pipeline.build(spark, replace(archived, sql=sql, topic="nowhere")).run()
