"""If these fail, a restore is said to be done, or goes on, where the topic has other records."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

import odradek
from pyspark_odradek.pipelines import PipelineError, PipelineSettings, restore
from pyspark_odradek.pipelines.bookkeeping.manifest import ArchivedFile, FileRange

NO_SPARK = cast(SparkSession, None)


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
