"""Archive, audit, restore, latest and query, in one session.

If these fail, an archive is not what the topic was, or nobody notices.
"""

import hashlib
import itertools
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import Row

import odradek
from pyspark_odradek.pipelines import (
    PipelineError,
    PipelineSettings,
    archive,
    audit,
    compact,
    restore,
    volume,
)
from pyspark_odradek.pipelines import latest as latest_pipeline
from pyspark_odradek.pipelines import query as query_pipeline
from pyspark_odradek.pipelines.bookkeeping.manifest import Manifest
from pyspark_odradek.pipelines.ends.files import FileSystem
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
        if first:
            commit(broker, "orders", "billing", {0: 250, 1: 300})
        archive.build(spark, settings).run()
    yield settings
    spark.streams.removeListener(listener)


def commit(broker: odradek.Broker, topic: str, group: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    positions = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
    consumer.commit(offsets=positions, asynchronous=False)
    consumer.close()


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
    again = replace(archived, topic="orders-again", groups="all")
    assert restore.build(spark, again).run().facts == {"records": 900, "groups": 1}
    lags = {str(part): lag for part, lag in broker.lag("billing").items()}
    assert lags == {"orders-0": 50, "orders-1": 0, "orders-again-0": 50, "orders-again-1": 0}
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


class Killed(Exception):
    """The process ended here."""


@pytest.fixture
def killed_at(monkeypatch):
    """Lets no more than so many changes to files happen; None: all."""
    left: list[int | None] = [None]

    def guarded(change):
        def changed(*arguments):
            if left[0] is not None:
                left[0] -= 1
                if left[0] < 0:
                    raise Killed
            return change(*arguments)

        return changed

    for name in ("replace", "move", "remove"):
        monkeypatch.setattr(FileSystem, name, guarded(getattr(FileSystem, name)))
    return lambda changes: left.__setitem__(0, changes)


def test_small_files_are_put_together_whenever_it_is_killed(
    spark, archived, tmp_path, killed_at
) -> None:
    """A topic that is archived often would have more files than any reader opens."""
    root = tmp_path / "archive"
    shutil.copytree(str(archived.to), root, ignore=shutil.ignore_patterns("_restored"))
    before = rows_of(spark, root)
    assert len(list(root.rglob("*.parquet"))) == 5
    copy = replace(archived, to=str(root), source=str(root))
    # Before the manifest is switched: nothing has happened. After that: all of it has.
    killed_at(1)
    with pytest.raises(Killed):
        compact.build(spark, copy).run()
    killed_at(None)
    assert audit.build(spark, copy).run().findings == []
    killed_at(2)
    with pytest.raises(Killed):
        compact.build(spark, copy).run()
    committed = tmp_path / "committed"
    shutil.copytree(root, committed)
    for changes in itertools.count():
        shutil.rmtree(root)
        shutil.copytree(committed, root)
        manifest = Manifest(spark, str(root))
        killed_at(changes)
        try:
            manifest.settle()
            break
        except Killed:
            killed_at(None)
            files = manifest.files()
        assert {file.path: file.sha256 for file in files} == {
            str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in root.rglob("*.parquet")
        }
    assert changes > 5
    killed_at(None)
    assert not list(root.glob("_compacted*"))
    assert len(list(root.rglob("*.parquet"))) == 4
    assert rows_of(spark, root) == before
    assert audit.build(spark, copy).run().findings == []
    # There is nothing more to do; and the archive goes on behind what was compacted.
    assert compact.build(spark, copy).run().facts == {"files before": 4, "files after": 4}
    assert Manifest(spark, str(root)).has(1)
    assert not Manifest(spark, str(root)).has(2)
    assert Manifest(spark, str(root)).last_batch() == 1


def rows_of(spark, root: Path) -> list[Row]:
    table = spark.read.parquet(str(root)).drop("batch")
    return table.orderBy("partition", "offset").collect()


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
    for name in ("_manifest/batch-0.json", "_groups.json"):
        document = Path(str(archived.to), name)
        content, place = document.read_bytes(), document.with_name(f".{document.name}.crc")
        hadoops = place.read_bytes()
        place.unlink()
        document.write_bytes(content.replace(b'"0"', b'"1"').replace(b'"end": 2', b'"end": 3'))
        with pytest.raises(PipelineError, match=f"{document.name} is damaged"):
            audit.build(spark, archived).run()
        document.write_bytes(content)
        place.write_bytes(hadoops)
    assert audit.build(spark, archived).run().findings == []


def test_an_archive_in_a_format_that_spark_has_not_is_refused(spark, archived, tmp_path) -> None:
    """Half of an archive would be there when Spark says so itself, with a page of Java."""
    target = tmp_path / "archive"
    for name, table, why in (
        ("delta", None, "has no Delta Kernel: say"),
        ("iceberg", "lake.shop.orders", "has no Iceberg: say"),
        ("iceberg", None, "--table CATALOG.NAMESPACE.NAME goes with --format iceberg"),
        ("delta", "lake.shop.orders", "--table CATALOG.NAMESPACE.NAME goes with"),
        ("orc", None, "one of parquet, delta, iceberg, not orc"),
    ):
        with pytest.raises(PipelineError, match=why):
            archive.build(spark, replace(archived, to=str(target), format=name, table=table))
        assert not target.exists()
    with pytest.raises(PipelineError, match="was begun in another format or table than"):
        archive.build(spark, replace(archived, format="delta"))


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


def test_a_directory_of_something_else_is_left_alone(spark, broker, archived, tmp_path) -> None:
    wrong = replace(archived, topic="other")
    before = rows_of(spark, Path(str(archived.to)))
    is_archive = "is of archive of the topic orders; choose another directory"
    with pytest.raises(PipelineError, match=is_archive):
        latest_pipeline.build(spark, archived).run()
    with pytest.raises(PipelineError, match=is_archive):
        query_pipeline.build(spark, replace(archived, sql="SELECT 1 AS one")).run()
    broker.produce("other", "x")
    for pipeline in (archive, volume):
        with pytest.raises(PipelineError, match=is_archive):
            pipeline.build(spark, wrong).run()
    assert rows_of(spark, Path(str(archived.to))) == before
    (tmp_path / "photographs").mkdir()
    with pytest.raises(PipelineError, match="holds photographs, which is not of latest"):
        latest_pipeline.build(spark, replace(archived, to=str(tmp_path))).run()
    assert [path.name for path in tmp_path.iterdir()] == ["photographs"]


def test_a_table_takes_the_place_of_the_one_before(spark, broker, archived, tmp_path) -> None:
    broker.create_topic("keys", partitions=1, config={})
    settings = replace(archived, topic="keys", to=str(tmp_path / "latest"))
    for values in ("one", "two"):
        broker.produce("keys", values, key="k")
        latest_pipeline.build(spark, settings).run()
        found = spark.read.parquet(str(settings.to)).collect()
        assert [bytes(row.value).decode() for row in found] == [values]


def test_an_audit_without_a_topic_does_not_pass(spark, archived) -> None:
    outcome = audit.build(spark, replace(archived, topic="ordrs")).run()
    assert outcome.findings == ["there is no topic ordrs to compare the archive with"]


def test_topics_are_tables_in_sql(spark, archived, tmp_path: Path) -> None:
    sql = "SELECT count(*) AS n FROM orders a JOIN orders b USING (partition, offset)"
    query_pipeline.build(spark, replace(archived, sql=sql, to=str(tmp_path / "answer"))).run()
    assert spark.read.parquet(str(tmp_path / "answer")).collect()[0].n == 900
    with pytest.raises(PipelineError, match="there is no topic nowhere"):
        query_pipeline.build(spark, replace(archived, sql=sql, topic="nowhere")).run()
