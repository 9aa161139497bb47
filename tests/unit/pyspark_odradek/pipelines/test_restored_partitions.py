"""If these fail, a restore is said to be done, or goes on, where the topic has other records."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

import odradek
from odradek.client import Admin
from odradek.model import TopicPartition
from pyspark_odradek.pipelines import PipelineError, PipelineSettings, restore
from pyspark_odradek.pipelines.bookkeeping import described
from pyspark_odradek.pipelines.bookkeeping.extents import Extent
from pyspark_odradek.pipelines.bookkeeping.manifest import ArchivedFile, FileRange
from pyspark_odradek.pipelines.ends.snapshots import Span

NO_SPARK = cast(SparkSession, None)
PART = TopicPartition("lost", 0)


@pytest.fixture(scope="module")
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker() as broker:
        yield broker


def test_a_topic_with_fewer_partitions_is_not_restored_to(broker: odradek.Broker) -> None:
    """Spark would end with an error of one of its tasks, or a record be in another partition."""
    broker.create_topic("few", partitions=2)
    settings = PipelineSettings(broker.bootstrap_servers, "few")
    with pytest.raises(PipelineError, match="few has 2 partitions, the archive 3"):
        restore.prepare_topic(settings, 3, {}, may_go_on=False)
    assert restore.prepare_topic(settings, 2, {}, may_go_on=False) == {}


def test_a_restored_topic_has_the_settings_and_the_codec_of_its_archive() -> None:
    """Records would be stored uncompressed that were compressed, and segments be of another age."""
    kept = {"compression.type": "zstd", "segment.ms": "1000", "max.message.bytes": "3000000"}
    assert restore.restored_settings(kept, 2_000_000) == kept
    limit = restore.limit_for(4_000_000)
    assert limit > 4_000_000
    restored = restore.restored_settings(kept, 4_000_000)
    assert restored == {**kept, "max.message.bytes": str(limit)}


@pytest.mark.parametrize("written", [1, 3])
def test_a_restore_counts_what_the_topic_has(broker: odradek.Broker, written: int) -> None:
    """A task that Spark repeats writes its records again."""
    topic = f"counted-{written}"
    broker.create_topic(topic, partitions=2)
    files = [
        ArchivedFile(f"{part}", 1, "", [FileRange("any", 1, 10 * part, 10 * part + 9, 1)])
        for part in range(2)
    ]
    settings = PipelineSettings(broker.bootstrap_servers, topic)
    broker.produce_many(topic, [b"x"] * written, partition=1)
    with pytest.raises(PipelineError, match=f"{topic}-1 has {written} records and its archive 2"):
        restore.check_written(settings, files)
    if written < 2:
        broker.produce(topic, b"x", partition=1)
        restore.check_written(settings, files)


def test_an_attempt_is_gone_on_with_in_its_own_topic(
    broker: odradek.Broker, tmp_path: Path
) -> None:
    """Another topic of that name has records of somebody else, be they the same at first."""
    settings = PipelineSettings(broker.bootstrap_servers, "begun")
    attempt = restore.Attempt(NO_SPARK, str(tmp_path), settings)
    assert not attempt.is_begun()
    for _ in range(2):
        broker.create_topic("begun")
        assert not attempt.is_begun()
        attempt.begin()
        assert attempt.is_begun()
        broker.delete_topic("begun")
        assert not attempt.is_begun()
    attempt.end()
    assert list((tmp_path / "_restored").iterdir()) == []


def test_an_attempt_of_an_earlier_version_is_gone_on_with(
    broker: odradek.Broker, tmp_path: Path
) -> None:
    """Its note has no groups, and ended the restore with a traceback."""
    settings = PipelineSettings(broker.bootstrap_servers, "noted")
    broker.create_topic("noted")
    attempt = restore.Attempt(NO_SPARK, str(tmp_path), settings)
    attempt.begin()
    note = tmp_path / "_restored/noted.begun"
    note.write_text(str(described.topic_id(settings.brokers, "noted")))
    assert attempt.is_begun()
    attempt.begin()
    assert attempt.without_moved({"billing": {0: 5}}) == {"billing": {0: 5}}
    note.write_text("d9c5f2a4-0b1e-4c8e-9a44-6a7a4a7bb001")
    assert not attempt.is_begun()


def test_a_group_that_has_gone_on_stays_where_it_is(broker: odradek.Broker, tmp_path: Path) -> None:
    """An attempt that went on behind one that was killed put a consumer back, to records that it
    had read."""
    settings = PipelineSettings(broker.bootstrap_servers, "groups")
    broker.create_topic("groups", partitions=2)
    # From before there were records: this is not where the archive says.
    described.commit(settings.brokers, "groups", {"billing": {1: 0}, "later": {1: 0}})
    wanted = {"billing": {0: 5, 1: 7}, "new": {0: 3}}
    first = restore.Attempt(NO_SPARK, str(tmp_path), settings)
    first.begin()
    assert first.without_moved(wanted) == wanted
    described.commit(settings.brokers, "groups", {"billing": {0: 5}})
    described.commit(settings.brokers, "groups", {"billing": {0: 6}})
    again = restore.Attempt(NO_SPARK, str(tmp_path), settings)
    again.begin()
    wanted["later"] = {1: 9}
    assert again.without_moved(wanted) == {"billing": {1: 7}, "new": {0: 3}, "later": {1: 9}}
    broker.delete_topic("groups")
    broker.create_topic("groups", partitions=2)
    described.commit(settings.brokers, "groups", {"billing": {0: 6}})
    anew = restore.Attempt(NO_SPARK, str(tmp_path), settings)
    anew.begin()
    assert anew.without_moved(wanted) == wanted


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_records_without_a_key_do_not_go_to_a_compacted_topic(
    broker: odradek.Broker, policy: str
) -> None:
    """The first of them ended the restore, half way through the topic, and each later attempt."""
    topic = f"keyed-{policy.replace(',', '-')}"
    broker.create_topic(topic, config={"cleanup.policy": policy, "retention.ms": "-1"})
    settings = PipelineSettings(broker.bootstrap_servers, topic)
    extent = Extent(1, 1, 0, 0, without_key=2)
    with pytest.raises(PipelineError, match="takes no record without a key, and the archive has 2"):
        restore.check_kept(settings, extent)
    restore.check_kept(settings, replace(extent, without_key=0))
    broker.configure(topic, {"cleanup.policy": "delete"})
    restore.check_kept(settings, extent)


def test_a_topic_that_has_lost_records_is_not_gone_on_with(broker: odradek.Broker) -> None:
    """The rest would be written, as many as there should be, and nobody miss the first ones."""
    settings = PipelineSettings(broker.bootstrap_servers, "lost")
    broker.create_topic("lost", partitions=1)
    broker.produce_many("lost", [b"x"] * 3)
    there = restore.prepare_topic(settings, 1, {}, may_go_on=True)
    assert there == {PART: Span(0, 3)}
    asyncio.run(delete_first(broker.bootstrap_servers))
    with pytest.raises(PipelineError, match="lost-0 has, or had, records"):
        restore.prepare_topic(settings, 1, {}, may_go_on=True)


async def delete_first(servers: str) -> None:
    async with Admin(servers) as admin:
        await admin.delete_records({PART: 1})
