"""If these fail, a topic cannot be restored since its settings, or those of Kafka, have changed."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import odradek
from pyspark_odradek.pipelines import PipelineError, PipelineSettings, archive, audit, restore
from pyspark_odradek.pipelines.bookkeeping import described
from pyspark_odradek.pipelines.ends.files import FileSystem
from pyspark_odradek.pipelines.ends.owners import Lock

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

TIME_MS = 1_700_000_000_000
FOREVER = str(2**63 - 1)
POLICY, SEGMENT = "cleanup.policy", "segment.bytes"
BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"


@pytest.fixture(scope="module")
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker() as broker:
        yield broker


def archived(
    spark, broker: odradek.Broker, place: Path, name: str, was: str = "", now: str = ""
) -> PipelineSettings:
    """The archive of a topic with a large record without a key, whose setting has changed since; of
    one that may be from the future, with one that is."""
    topic = f"archived-{name}"
    own = {"retention.ms": "-1", "max.message.bytes": "3000000", **({name: was} if was else {})}
    broker.create_topic(topic, partitions=1, config=own)
    time_ms = TIME_MS * 1000 if name == AFTER else TIME_MS
    broker.produce(topic, b"x" * 2_000_000, timestamp=time_ms)
    if now:
        broker.configure(topic, {name: now})
    target = str(place / "archive")
    settings = PipelineSettings(broker.bootstrap_servers, topic, to=target, source=target)
    archive.build(spark, settings).run()
    return replace(settings, topic=f"{topic}-again")


@pytest.mark.parametrize(
    ("name", "was", "now", "restored"),
    [
        (POLICY, "delete", "compact", "delete"),
        (SEGMENT, "3000000", "1048576", "2016137"),
        (BEFORE, FOREVER, "1", FOREVER),
        (AFTER, FOREVER, "1", FOREVER),
    ],
)
def test_a_topic_comes_back_that_would_not_take_its_records_any_more(
    spark, broker, tmp_path, name: str, was: str, now: str, restored: str
) -> None:
    """The restore failed, at each attempt."""
    settings = archived(spark, broker, tmp_path, name, was, now)
    restore.build(spark, settings).run()
    found = described.describe(broker.bootstrap_servers, settings.topic).settings
    assert found[name] == restored
    assert audit.build(spark, settings).run().findings == []


@pytest.mark.parametrize("part", ["key", "value", "headers"])
def test_a_record_may_be_large_by_any_part(spark, broker, tmp_path, part: str) -> None:
    """The limit went by keys and values alone; and what no codec makes smaller is larger in one."""
    topic, large = f"large-{part}", random.Random(39).randbytes(2_000_000)
    own = {"max.message.bytes": "3000000", "compression.type": "snappy"}
    broker.create_topic(topic, partitions=1, config=own)
    given: dict[str, Any] = {part: {"h": large} if part == "headers" else large}
    broker.produce(topic, **{"value": b"v", **given})
    # A restored topic has this limit again, unless a record needs more.
    broker.configure(topic, {"max.message.bytes": "1000000"})
    target = str(tmp_path / "archive")
    settings = PipelineSettings(broker.bootstrap_servers, topic, to=target, source=target)
    archive.build(spark, settings).run()
    restore.build(spark, replace(settings, topic=f"{topic}-again")).run()
    [before], [after] = broker.records(topic), broker.records(f"{topic}-again")
    assert (after.key, after.value, after.headers) == (before.key, before.value, before.headers)


def test_a_topic_that_is_there_is_given_room_for_a_batch_in_its_segments(
    spark, broker, tmp_path
) -> None:
    """A record that was larger than a segment was refused, whatever limit it was given."""
    settings = archived(spark, broker, tmp_path, "room")
    own = {SEGMENT: "1048576", "retention.ms": "-1"}
    broker.create_topic(settings.topic, partitions=1, config=own)
    restore.build(spark, settings).run()
    [record] = broker.records(settings.topic)
    assert len(record.value) == 2_000_000


def test_a_topic_that_does_not_keep_times_is_not_restored_to(spark, broker, tmp_path) -> None:
    """All records got the time of the restore, and nobody was told."""
    settings = archived(spark, broker, tmp_path, "times")
    own = {"message.timestamp.type": "LogAppendTime"}
    broker.create_topic(settings.topic, partitions=1, config=own)
    with pytest.raises(PipelineError, match="the archived times would be lost"):
        restore.build(spark, settings).run()
    assert broker.records(settings.topic) == []


def test_a_topic_that_would_remove_old_records_is_not_restored_to(spark, broker, tmp_path) -> None:
    """The restore was said to be done, and its records were gone at the next look at retention."""
    settings = archived(spark, broker, tmp_path, "age")
    broker.create_topic(settings.topic, partitions=1, config={})
    with pytest.raises(PipelineError, match="-again removes records that are older than 604800000"):
        restore.build(spark, settings).run()
    assert broker.records(settings.topic) == []
    broker.configure(settings.topic, {"retention.ms": "-1", "retention.bytes": "1999999"})
    with pytest.raises(PipelineError, match="removes what a partition has beyond 1999999 bytes"):
        restore.build(spark, settings).run()
    assert broker.records(settings.topic) == []
    broker.configure(settings.topic, {"retention.bytes": "2000512"})
    restore.build(spark, settings).run()
    assert len(broker.records(settings.topic)) == 1


def test_bytes_of_a_topic_are_more_than_those_of_keys_and_values(spark, broker, tmp_path) -> None:
    """A restore was said to be done to a topic that removed the first of its records."""
    own = {"retention.ms": "-1"}
    broker.create_topic("small", partitions=1, config=own)
    broker.produce_many("small", [b"0123456789"] * 500)
    target = str(tmp_path / "archive")
    settings = PipelineSettings(broker.bootstrap_servers, "small", to=target, source=target)
    archive.build(spark, settings).run()
    broker.create_topic("small-again", partitions=1, config={**own, "retention.bytes": "5000"})
    with pytest.raises(PipelineError, match="removes what a partition has beyond 5000 bytes"):
        restore.build(spark, replace(settings, topic="small-again")).run()
    assert broker.records("small-again") == []


def test_a_restore_that_is_gone_on_with_moves_no_consumer_back(spark, broker, tmp_path) -> None:
    """It committed what groups had in the archive once more, after they had read on."""
    settings = replace(archived(spark, broker, tmp_path, "moved"), groups="billing")
    brokers, topic = settings.brokers, settings.topic
    described.commit(brokers, "archived-moved", {"billing": {0: 0}})
    broker.produce("archived-moved", b"y")
    archive.build(spark, replace(settings, topic="archived-moved")).run()
    with pytest.MonkeyPatch.context() as patch:
        dies_before(patch, restore.Attempt, "end")
        with pytest.raises(Killed):
            restore.build(spark, settings).run()
    assert described.committed(brokers, topic) == {"billing": {0: 0}}
    described.commit(brokers, topic, {"billing": {0: 2}})
    restore.build(spark, settings).run()
    assert described.committed(brokers, topic) == {"billing": {0: 2}}


def test_records_without_a_key_do_not_go_to_a_topic_that_is_compacted(
    spark, broker, tmp_path
) -> None:
    """The first one was refused, half way through the topic, at each attempt."""
    settings = archived(spark, broker, tmp_path, "keyless")
    own = {POLICY: "compact", "max.message.bytes": "1000000"}
    broker.create_topic(settings.topic, partitions=1, config=own)
    with pytest.raises(PipelineError, match="takes no record without a key, and the archive has 1"):
        restore.build(spark, settings).run()
    assert described.describe(settings.brokers, settings.topic).settings == own


def test_records_come_back_from_times_that_a_broker_does_not_take(spark, broker, tmp_path) -> None:
    """Kafka 3 bounds no times, Kafka 4 does: a record from the future stopped each attempt, half
    way through the topic."""
    times = [TIME_MS, TIME_MS * 1000]
    with odradek.Broker(config={f"log.{AFTER}": FOREVER}) as old:
        old.create_topic("times", partitions=1, config={"retention.ms": "-1"})
        for time_ms in times:
            old.produce("times", b"v", timestamp=time_ms)
        target = str(tmp_path / "archive")
        settings = PipelineSettings(old.bootstrap_servers, "times", to=target, source=target)
        archive.build(spark, settings).run()
    own = {"retention.ms": "-1", BEFORE: "1000", AFTER: "1000"}
    broker.create_topic("times-there", partitions=1, config=own)
    for topic in ("times-new", "times-there"):
        again = replace(settings, bootstrap_servers=broker.bootstrap_servers, topic=topic)
        restore.build(spark, again).run()
        assert [record.timestamp for record in broker.records(topic)] == times


def test_of_two_restores_to_a_topic_one_is_refused(spark, broker, tmp_path) -> None:
    """Each took the other's records for its own of an earlier attempt, and wrote the rest."""
    settings = archived(spark, broker, tmp_path, "once")
    place = f"{settings.source}/_restored/{settings.topic}"
    with (
        Lock(FileSystem(spark), place),
        pytest.raises(PipelineError, match=f"{place} is being written to by process"),
    ):
        restore.build(spark, settings).run()
    restore.build(spark, settings).run()
    assert len(broker.records(settings.topic)) == 1


class Killed(Exception):
    """The process ended here."""


def dies_before(patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Ends the process before a step: from then on it changes no file, and keeps its lock."""

    def die(*_: object) -> None:
        for change in ("create", "replace", "remove"):
            patch.setattr(FileSystem, change, die)
        raise Killed

    patch.setattr(owner, name, die)


def test_a_restore_that_is_killed_between_two_steps_is_gone_on_with(
    spark, broker, tmp_path
) -> None:
    """Records were there twice, or the topic could not be used any more."""
    settings = replace(archived(spark, broker, tmp_path, "killed"), groups="all")
    for owner, name in (
        (restore, "raise_limit"),
        (restore.Attempt, "begin"),
        (restore, "write"),
        (restore, "check_written"),
        (restore, "moved"),
        (described, "commit"),
        (restore.Attempt, "end"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            dies_before(patch, owner, name)
            with pytest.raises(Killed):
                restore.build(spark, settings).run()
    restore.build(spark, settings).run()
    [record] = broker.records(settings.topic)
    assert (record.offset, record.timestamp, len(record.value)) == (0, TIME_MS, 2_000_000)
    assert audit.build(spark, settings).run().findings == []
    with pytest.raises(PipelineError, match="archived-killed-again-0 has, or had, records"):
        restore.build(spark, settings).run()


def test_settings_that_a_cluster_need_not_know_are_not_restored() -> None:
    """Kafka 4 refuses a topic with settings that it has no longer, or a storage that it has not."""
    kept = {"message.format.version": "2.8", "remote.storage.enable": "true", "segment.ms": "1"}
    assert restore.restored_settings(kept, 0) == {"segment.ms": "1"}
