"""Archive, audit, restore, latest and query, in one session.

If these fail, an archive is not what the topic was, or nobody notices.
"""

import hashlib
import json
import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row
from tests.deadlines import deadline_s

import odradek
from pyspark_odradek.pipelines import (
    PipelineError,
    PipelineSettings,
    archive,
    audit,
    compact,
    read_table,
    restore,
    volume,
)
from pyspark_odradek.pipelines import latest as latest_pipeline
from pyspark_odradek.pipelines import query as query_pipeline
from pyspark_odradek.pipelines.audit import compare_each, differences, sums
from pyspark_odradek.pipelines.bookkeeping import described
from pyspark_odradek.pipelines.bookkeeping.manifest import Manifest
from pyspark_odradek.pipelines.ends.sealed import seal, unseal
from pyspark_odradek.pipelines.ends.snapshots import topic_spans
from pyspark_odradek.progress import ProgressGroups

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

FIRST_TIME_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
        assert producer.flush(deadline_s(60)) == 0
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
    assert sorted(str(p.relative_to(target)) for p in target.glob("batch=0-*/**/*.parquet")) == [
        file["path"] for file in files
    ]
    hours = {file["path"].split("/")[2] for file in files}
    assert len(files) == len(hours) == 3
    assert sum(piece["records"] for file in files for piece in file["ranges"]) == 600
    for file in files:
        content = (target / file["path"]).read_bytes()
        assert file["sha256"] == hashlib.sha256(content).hexdigest()
        assert file["bytes"] == len(content)


def test_an_archive_is_seen_as_a_group_without_lag(broker, archived) -> None:
    """Retention would overtake the archive before anybody could see it."""
    partitions = [TopicPartition("orders", number) for number in range(3)]
    deadline = time.monotonic() + deadline_s(60)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    while True:
        asked = [ConsumerGroupTopicPartitions("spark.archive-orders", partitions)]
        [future] = admin.list_consumer_group_offsets(asked).values()
        offsets = [each.offset for each in future.result(deadline_s(30)).topic_partitions]
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


def test_a_topic_comes_back_with_all_that_it_had(spark, broker, tmp_path) -> None:
    """Settings, empty partitions and groups there were forgotten; a large record ended it."""
    config = {"max.message.bytes": "3000000", "cleanup.policy": "compact", "retention.ms": "1000"}
    config["compression.type"] = "gzip"
    broker.create_topic("whole", partitions=4, config=config)
    broker.produce("whole", b"small", key="k", partition=0)
    broker.produce("whole", b"x" * 2_500_000, key="k", partition=1)
    commit(broker, "whole", "at-the-end", {0: 1, 3: 0})
    settings = PipelineSettings(
        broker.bootstrap_servers, "whole", to=str(tmp_path / "a"), source=str(tmp_path / "a")
    )
    archive.build(spark, settings).run()
    again = replace(settings, topic="whole-again", groups="at-the-end")
    assert restore.build(spark, again).run().facts == {"records": 2, "groups": 1}
    found = described.describe(broker.bootstrap_servers, "whole-again")
    assert found.partitions == 4
    endless = {"retention.ms": "-1", "retention.bytes": "-1"}
    assert found.settings == {**config, **endless, "message.timestamp.type": "CreateTime"}
    groups = described.committed(broker.bootstrap_servers, "whole-again")
    assert groups["at-the-end"] == {0: 1, 3: 0}
    assert [len(r.value) for r in broker.records("whole-again") if r.partition == 1] == [2_500_000]
    # The limit that it has now need not be the one that its records were written under.
    assert restore.restored_settings({"max.message.bytes": "9"}, 100) == {
        "max.message.bytes": "612"
    }


def test_a_topic_that_is_there_takes_the_largest_record(spark, broker, tmp_path) -> None:
    """It was half full then, and the next attempt was refused for that."""
    broker.create_topic("large", partitions=2, config={"max.message.bytes": "3000000"})
    broker.produce("large", b"small", partition=0)
    broker.produce("large", b"x" * 2_500_000, partition=1)
    broker.create_topic("large-again", partitions=2, config={"compression.type": "gzip"})
    settings = PipelineSettings(
        broker.bootstrap_servers, "large", to=str(tmp_path / "a"), source=str(tmp_path / "a")
    )
    archive.build(spark, settings).run()
    restore.build(spark, replace(settings, topic="large-again")).run()
    assert sorted(len(record.value) for record in broker.records("large-again")) == [5, 2_500_000]


def test_a_restore_that_failed_is_gone_on_with(spark, broker, archived, monkeypatch) -> None:
    """Its topic could not be used any more, and all was written again to another one."""
    settings = replace(archived, topic="gone-on", groups="billing")
    write = restore.write
    with monkeypatch.context() as patch:
        for some in ("partition < 2", "offset < 200"):
            patch.setattr(restore, "write", fails_behind(write, some))
            with pytest.raises(Killed):
                restore.build(spark, settings).run()
    assert len(broker.records("gone-on")) == 800
    assert restore.build(spark, settings).run().facts == {"records": 900, "groups": 1}
    assert audit.build(spark, settings).run().findings == []
    with pytest.raises(PipelineError, match="gone-on-0 has, or had, records"):
        restore.build(spark, settings).run()


def test_a_restore_is_not_gone_on_with_behind_others_records(
    spark, broker, archived, monkeypatch
) -> None:
    settings = replace(archived, topic="others")
    with monkeypatch.context() as patch:
        patch.setattr(restore, "write", fails_behind(restore.write, "partition < 2"))
        with pytest.raises(Killed):
            restore.build(spark, settings).run()
    broker.produce("others", b"x", partition=2)
    with pytest.raises(PipelineError, match="others-2 has, or had, records"):
        restore.build(spark, settings).run()
    broker.delete_topic("others")
    broker.create_topic("others", partitions=3, config={})
    broker.produce("others", b"x", partition=1)
    with pytest.raises(PipelineError, match="others-1 has, or had, records"):
        restore.build(spark, settings).run()


class Killed(Exception):
    """Ends an attempt."""


def fails_behind(write: Callable[..., None], some: str) -> Callable[..., None]:
    """Writes some of the records, and no more."""

    def half(records: DataFrame, *where: Any) -> None:
        write(records.where(some), *where)
        raise Killed

    return half


def test_small_files_are_put_together(spark, archived, tmp_path) -> None:
    """A topic that is archived often would have more files than any reader opens."""
    root = tmp_path / "archive"
    shutil.copytree(str(archived.to), root, ignore=shutil.ignore_patterns("_restored"))
    before = rows_of(spark, root)
    assert len(list(root.rglob("*.parquet"))) == 5
    copy = replace(archived, to=str(root), source=str(root))
    manifest = Manifest(spark, str(root))
    with manifest.reading() as read:
        assert compact.build(spark, copy).run().facts == {"files before": 5, "files after": 4}
        # Whoever reads finds what was there when he began.
        assert manifest.frame(read.files).count() == 900
    assert len(list(root.rglob("*.parquet"))) == 6
    assert audit.build(spark, copy).run().findings == []
    # There is nothing more to do, but to tidy up; and the archive goes on behind.
    assert compact.build(spark, copy).run().facts == {"files before": 4, "files after": 4}
    assert len(list(root.rglob("*.parquet"))) == 4
    assert rows_of(spark, root) == before
    assert audit.build(spark, copy).run().findings == []
    assert manifest.table.last_batch() == 1
    archive.build(spark, copy).run()
    assert manifest.table.last_batch() == 1


def test_files_that_are_put_together_stay_in_directories_of_their_kind(
    spark, broker, tmp_path
) -> None:
    """An archive that was begun by hours, and went on without, had no hours any more."""
    broker.create_topic("kinds", partitions=2, config={"retention.ms": "-1"})
    target = str(tmp_path / "archive")
    settings = PipelineSettings(broker.bootstrap_servers, "kinds", to=target, source=target)
    for by in ("hour", "day", "none") * 2:
        for number in range(4):
            time_ms = FIRST_TIME_MS + number % 2 * HOUR_MS
            broker.produce("kinds", by, key="k", partition=number // 2, timestamp=time_ms)
        archive.build(spark, replace(settings, partition_by=by)).run()
    manifest = Manifest(spark, target)
    compact.build(spark, settings).run()
    with manifest.reading() as archived:
        found = [(list(each.times), values_of(manifest.frame([each]))) for each in archived.files]
    assert sorted(found) == [
        ([], {b"none"}),
        (["date"], {b"day"}),
        (["date", "hour"], {b"hour"}),
        (["date", "hour"], {b"hour"}),
    ]
    assert audit.build(spark, settings).run().findings == []


def test_what_a_killed_run_has_left_is_no_finding(spark, archived, tmp_path) -> None:
    """An archive that was killed once could neither be audited nor restored."""
    root = tmp_path / "archive"
    shutil.copytree(str(archived.to), root, ignore=shutil.ignore_patterns("_restored"))
    [place] = root.glob("batch=1-*")
    shutil.copytree(place, root / "batch=2-deadbeef")
    copy = replace(archived, to=str(root), source=str(root))
    outcome = audit.build(spark, copy).run()
    assert outcome.findings == []
    assert outcome.facts["files of no batch"] == len(list(place.rglob("*.parquet")))
    with pytest.raises(PipelineError, match="orders-0 has, or had, records"):
        restore.build(spark, copy).run()


def test_gaps_are_found_and_no_others(spark, broker, tmp_path) -> None:
    """Control batches of transactions take offsets, and aborted records are nowhere."""
    broker.create_topic("gaps", partitions=1, config={"retention.ms": "-1"})
    settings = PipelineSettings(
        broker.bootstrap_servers, "gaps", to=str(tmp_path / "a"), source=str(tmp_path / "a"),
        max_offsets_per_trigger=3,
    )  # fmt: skip
    transact(broker, "gaps", "x", 2, commit=False)
    transact(broker, "gaps", "y", 5, commit=True)
    transact(broker, "gaps", "z", 1, commit=False)
    transact(broker, "gaps", "w", 2, commit=True)
    archive.build(spark, settings).run()
    kept = read_table(spark, str(settings.to))
    assert kept is not None
    assert {bytes(row.value)[:1] for row in kept.collect()} == {b"w", b"y"}
    assert audit.build(spark, settings).run().findings == []
    manifest = tmp_path / "a/_manifest"
    numbers = sorted(int(path.stem[6:]) for path in manifest.glob("*.json"))
    assert numbers == list(range(len(numbers)))
    # The last one: nothing behind it tells that it is missing.
    (manifest / f"batch-{numbers[-1]}.json").unlink()
    findings = audit.build(spark, settings).run().findings
    assert f"batch {numbers[-1]} is done, and not in the manifest" in findings
    (manifest / "batch-1.json").unlink()
    with pytest.raises(PipelineError, match="has no batch 1 in its manifest"):
        audit.build(spark, settings).run()


def test_a_gap_is_found_wherever_it_is(spark, broker, tmp_path, monkeypatch) -> None:
    """At the beginning of a partition, in the middle, at the end, or all of it: each of the files
    has to be missed. The driver got the hours, too, of which nothing is missing."""
    looked_at: list[int] = []

    def noted(rows: list[Row]) -> Iterator[str]:
        looked_at.append(len(rows))
        return compare_each(rows)

    monkeypatch.setattr(audit, "compare_each", noted)
    broker.create_topic("missed", partitions=2, config={"retention.ms": "-1"})
    for hour, partition in ((0, 0), (1, 0), (2, 0), (3, 1), (3, 1)):
        time_ms = FIRST_TIME_MS + hour * HOUR_MS
        broker.produce("missed", "x", partition=partition, timestamp=time_ms)
    target = str(tmp_path / "archive")
    settings = PipelineSettings(broker.bootstrap_servers, "missed", to=target, source=target)
    archive.build(spark, settings).run()
    document = tmp_path / "archive/_manifest/batch-0.json"
    whole = document.read_text()
    told = unseal(whole)
    assert len(told["files"]) == 4
    for file in told["files"]:
        others = [each for each in told["files"] if each != file]
        document.write_text(seal({**told, "files": others}))
        [piece] = file["ranges"]
        hour = " ".join(name.split("=")[1] for name in file["path"].split("/")[1:-1])
        assert audit.build(spark, settings).run().findings == [
            f"missed-{piece['partition']} {hour}: {piece['records']} records of the topic are not "
            "there"
        ]
    document.write_text(whole)
    assert audit.build(spark, settings).run().findings == []
    assert looked_at == [1] * 4


@pytest.mark.parametrize(("topic", "is_compacted"), [("anew", False), ("anew-compacted", True)])
def test_an_archive_does_not_go_on_with_a_topic_that_was_made_anew(
    spark, broker, tmp_path, topic: str, is_compacted: bool
) -> None:
    """With `allow_loss` it had two records at one offset, and findings for ever."""
    settings = PipelineSettings(
        broker.bootstrap_servers, topic, to=str(tmp_path / "a"), source=str(tmp_path / "a"),
        allow_loss=True, max_offsets_per_trigger=2,
    )  # fmt: skip
    broker.create_topic(topic, partitions=1, config={"retention.ms": "-1"})
    broker.produce_many(topic, [b"old"] * 3)
    archive.build(spark, settings).run()
    if is_compacted:
        facts = compact.build(spark, settings).run().facts
        assert facts == {"files before": 2, "files after": 1}
    broker.delete_topic(topic)
    broker.create_topic(topic, partitions=1, config={"retention.ms": "-1"})
    broker.produce_many(topic, [b"new"] * 5)
    with pytest.raises(PySparkException, match=f"{topic} was deleted and recreated: archive it to"):
        archive.build(spark, settings).run()
    kept = read_table(spark, str(settings.to))
    assert kept is not None
    assert [bytes(row.value) for row in kept.collect()] == [b"old"] * 3


def test_an_hour_is_not_compacted_again_without_fewer_files(spark, broker, tmp_path: Path) -> None:
    """Each run wrote the second hour again, into two files as before: each had the offsets up to a
    multiple of so many. The third has more than a file takes. The last one has smaller records,
    and was cut by the number of larger ones."""
    broker.create_topic("small-files", partitions=2, config={"retention.ms": "-1"})
    noise = random.Random(7)
    for number in range(320):
        hour = 3 if number >= 120 else min(number // 30, 2)
        broker.produce(
            "small-files", noise.randbytes(10 if hour == 3 else 5_000),
            partition=number % 2 if hour == 2 else 0, timestamp=FIRST_TIME_MS + hour * HOUR_MS,
        )  # fmt: skip
    target = str(tmp_path / "archive")
    settings = PipelineSettings(
        broker.bootstrap_servers, "small-files", to=target, source=target,
        max_offsets_per_trigger=25, file_bytes=200_000,
    )  # fmt: skip
    archive.build(spark, settings).run()
    adaptive = spark.conf.get("spark.sql.adaptive.enabled")
    # It puts the few records of a test together again.
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        facts = [compact.build(spark, settings).run().facts for _ in range(2)]
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    assert [each["files after"] for each in facts] == [5, 5]
    assert facts[1]["files before"] == 5
    documents = (tmp_path / "archive/_manifest").iterdir()
    assert [path.name for path in documents] == ["compacted-0.json"]
    assert audit.build(spark, settings).run().findings == []


def test_a_compacted_topic_has_fewer_records_than_its_archive(spark, broker, tmp_path) -> None:
    """It was reported as different, though nothing is missing."""
    broker.create_topic("compacted", partitions=1, config={"cleanup.policy": "compact"})
    for number in range(6):
        broker.produce("compacted", f"v{number}", key=f"k{number % 2}")
    settings = PipelineSettings(
        broker.bootstrap_servers, "compacted", to=str(tmp_path / "a"), source=str(tmp_path / "a")
    )
    archive.build(spark, settings).run()
    # What the cleaner would leave, under another name: as it would after a restore.
    broker.create_topic("cleaned", partitions=1, config={"cleanup.policy": "compact"})
    for number in range(4):
        broker.produce("cleaned", f"v{number}", key=f"k{number % 2}", timestamp=1)
    findings = audit.build(spark, replace(settings, topic="cleaned")).run().findings
    assert findings == ["cleaned-0 1970-01-01 00: 4 records are in both, and they are not the same"]
    outcome = audit.build(spark, settings).run()
    assert outcome.findings == []
    assert "records that the topic has no longer" not in outcome.facts
    ours, theirs = (
        spark.createDataFrame(
            [(b"k", b"v", None, EPOCH, 0, number, "t", 0) for number in offsets], _COLUMNS
        )
        for offsets in ((0, 1, 2, 2), (1, 2, 3))
    )
    [row] = differences(ours, theirs).collect()
    assert list(compare_each([row])) == [
        "t-0 1970-01-01 00: 1 records of the topic are not there",
        "t-0 1970-01-01 00: 1 records are in the archive twice",
    ]
    assert row.gone == 1


def test_what_the_cleaner_has_taken_is_no_finding(spark, tmp_path) -> None:
    """Taking the topic's setting back gave findings in every audit from then on."""
    clock = odradek.ManualClock()
    with odradek.Broker(clock=clock) as broker:
        topic = {"segment.bytes": "200", "min.cleanable.dirty.ratio": "0.01", "retention.ms": "-1"}
        broker.create_topic("cleaned", partitions=1, config=topic)
        for _ in range(12):
            broker.produce("cleaned", bytes(50), key="k")
        target = str(tmp_path / "archive")
        settings = PipelineSettings(broker.bootstrap_servers, "cleaned", to=target, source=target)
        archive.build(spark, settings).run()
        broker.configure("cleaned", {"cleanup.policy": "compact"})
        # The archive's lease ends, and the cleaner has its turn.
        clock.advance(3_600_000)
        broker.configure("cleaned", {"cleanup.policy": "delete"})
        gone = 12 - len(broker.records("cleaned"))
        outcome = audit.build(spark, settings).run()
    assert outcome.findings == []
    assert outcome.facts["records that the topic has no longer"] == gone > 0


_COLUMNS = (
    "key binary, value binary, headers array<struct<key:string,value:binary>>, "
    "timestamp timestamp, timestampType int, offset long, topic string, partition int"
)


def transact(broker: odradek.Broker, topic: str, name: str, count: int, *, commit: bool) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(deadline_s(30))
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, b"%s%d" % (name.encode(), number), key=b"k", partition=0)
    producer.flush(deadline_s(30))
    if commit:
        producer.commit_transaction(deadline_s(30))
    else:
        producer.abort_transaction(deadline_s(30))


def values_of(records: DataFrame) -> set[bytes]:
    return {bytes(row.value) for row in records.collect()}


def rows_of(spark, root: Path) -> list[Row]:
    table = spark.read.parquet(str(root)).drop("batch")
    return table.orderBy("partition", "offset").collect()


def test_any_flipped_byte_is_found(spark, archived) -> None:
    [first, *_] = sorted(Path(str(archived.to)).rglob("*.parquet"))
    content = first.read_bytes()
    for position in (4, len(content) // 2, len(content) - 6):
        changed = bytearray(content)
        changed[position] ^= 1
        first.write_bytes(changed)
        [finding] = audit.build(spark, archived).run().findings
        assert "is not what was written" in finding
        with pytest.raises(PipelineError, match="the archive is damaged"):
            restore.build(spark, replace(archived, topic="never")).run()
    first.write_bytes(content)
    for name in ("_manifest/batch-0.json", "_topic.json"):
        document = Path(str(archived.to), name)
        content = document.read_bytes()
        document.write_bytes(content.replace(b'"0"', b'"1"').replace(b'"end": 2', b'"end": 3'))
        with pytest.raises(PipelineError, match=f"{document.name} is damaged"):
            audit.build(spark, archived).run()
        document.write_bytes(content)
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
    producer.flush(deadline_s(60))
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
    with pytest.raises(PipelineError, match="is an archive of orders, not of other"):
        compact.build(spark, wrong).run()
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


def test_what_was_taken_back_is_in_no_table(spark, broker, archived, tmp_path: Path) -> None:
    """`latest` had the aborted record for the newest of its key."""
    broker.create_topic("taken_back", partitions=1, config={})
    transact(broker, "taken_back", "kept", 1, commit=True)
    transact(broker, "taken_back", "aborted", 1, commit=False)
    settings = replace(archived, topic="taken_back", sql="SELECT value FROM taken_back")
    everything = replace(settings, isolation_level="read_uncommitted")
    for each, newest, all_of_them in (
        (settings, {b"kept0"}, {b"kept0"}),
        (everything, {b"aborted0"}, {b"kept0", b"aborted0"}),
    ):
        for pipeline, expected in ((latest_pipeline, newest), (query_pipeline, all_of_them)):
            target = str(tmp_path / f"{pipeline.__name__}-{each.isolation_level}")
            pipeline.build(spark, replace(each, to=target)).run()
            found = read_table(spark, target)
            assert found is not None
            assert {bytes(row.value) for row in found.collect()} == expected


def test_an_audit_does_not_say_to_use_a_flag_that_it_has_not(spark, archived) -> None:
    """It named `--isolation-level`, which made no difference: an archive knows how it was read."""
    with pytest.raises(PipelineError, match=r"has committed records only, .* leave out --data-dir"):
        audit.build(spark, replace(archived, path="/data")).run()


def test_an_audit_looks_where_the_archive_keeps_how_far_it_is(
    spark, broker, archived, tmp_path
) -> None:
    """With a checkpoint elsewhere nobody noticed that the last batch was missing."""
    kept = str(tmp_path / "checkpoint")
    settings = replace(archived, to=str(tmp_path / "a"), source=str(tmp_path / "a"))
    settings = replace(settings, checkpoint=kept, max_offsets_per_trigger=450)
    archive.build(spark, settings).run()
    (tmp_path / "a/_manifest/batch-1.json").unlink()
    findings = audit.build(spark, settings).run().findings
    assert "batch 1 is done, and not in the manifest" in findings


def test_an_audit_finds_nothing_wrong_with_retention_beside_it(
    spark, broker, archived, tmp_path, monkeypatch
) -> None:
    """It failed when the topic lost records between its two looks at the topic."""
    broker.create_topic("kept-shortly", partitions=1, config={})
    broker.produce_many("kept-shortly", [b"%d" % number for number in range(10)])
    place = str(tmp_path / "out")
    settings = replace(archived, topic="kept-shortly", to=place, source=place)
    archive.build(spark, settings).run()
    ask = topic_spans

    def overtaken(settings: PipelineSettings) -> Any:
        found = ask(settings)
        before = [TopicPartition("kept-shortly", 0, 4)]
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.delete_records(before)[before[0]].result(deadline_s(60))
        return found

    monkeypatch.setattr("pyspark_odradek.pipelines.audit.topic_spans", overtaken)
    outcome = audit.build(spark, settings).run()
    assert outcome.findings == []
    assert outcome.facts["records that the topic has no longer"] == 4

    compared: list[object] = []

    def deleted(records: DataFrame) -> Any:
        compared.append(sums(records))
        if len(compared) == 2:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            admin.delete_topics([settings.topic])[settings.topic].result(deadline_s(60))
        return compared[-1]

    monkeypatch.setattr("pyspark_odradek.pipelines.audit.topic_spans", ask)
    monkeypatch.setattr("pyspark_odradek.pipelines.audit.sums", deleted)
    archive.build(spark, replace(settings, to=f"{place}-again")).run()
    again = replace(settings, source=f"{place}-again")
    [finding] = audit.build(spark, again).run().findings
    assert finding.startswith("there is no topic kept-shortly to compare the archive with")


def test_an_audit_without_a_topic_does_not_pass(spark, archived) -> None:
    outcome = audit.build(spark, replace(archived, topic="ordrs")).run()
    assert outcome.findings == [
        "there is no topic ordrs to compare the archive with (did you mean orders?)"
    ]


def test_topics_are_tables_in_sql(spark, archived, tmp_path: Path) -> None:
    sql = "SELECT count(*) AS n FROM orders a JOIN orders b USING (partition, offset)"
    query_pipeline.build(spark, replace(archived, sql=sql, to=str(tmp_path / "answer"))).run()
    assert spark.read.parquet(str(tmp_path / "answer")).collect()[0].n == 900
    with pytest.raises(PipelineError, match="there is no topic nowhere"):
        query_pipeline.build(spark, replace(archived, sql=sql, topic="nowhere")).run()


def test_topics_whose_names_are_one_name_in_sql_are_refused(spark, broker, archived) -> None:
    """Both were the one that came last."""
    for name, value in (("Case", b"upper"), ("case", b"lower")):
        broker.create_topic(name, partitions=1, config={})
        broker.produce(name, value)
    asked = replace(archived, topic="Case,case", sql="SELECT * FROM case")
    with pytest.raises(PipelineError, match="Case and case are one name in Spark's SQL"):
        query_pipeline.build(spark, asked).run()
