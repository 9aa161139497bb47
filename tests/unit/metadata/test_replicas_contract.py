"""The replicas that tests of stores are given answer a store as the real ones do."""

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from tests.unit.metadata.fake_replicas import FakeReplicas
from tests.unit.replication.fakes import Cluster

from odradek.config import BrokerConfig, LogConfig
from odradek.metadata import (
    ConfigResource,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from odradek.model import TopicPartition
from odradek.testing.faulty_files import FaultyFileSystem

TP = TopicPartition("a", 0)


class Fake:
    """Broker 1 with replicas that have no logs."""

    def __init__(self, _directory: str) -> None:
        self._replicas = FakeReplicas(1, BrokerConfig())

    def apply(self, delta: MetadataDelta) -> list[TopicPartition]:
        return self._replicas.apply_delta(delta)

    def break_disk(self) -> None:
        self._replicas.unserved.add(TP)

    def mend_disk(self) -> None:
        self._replicas.unserved.clear()

    @property
    def log_config(self) -> LogConfig:
        return self._replicas.log_configs["a"]

    @property
    def fates(self) -> tuple[int, int]:
        return len(self._replicas.deleted), len(self._replicas.set_aside)

    @property
    def topic_id(self) -> UUID | None:
        return self._replicas.topic_ids.get("a")

    def restart(self) -> None:
        self._replicas = FakeReplicas(1, BrokerConfig(), self._replicas.logs)

    def close(self) -> None:
        """It holds nothing."""


class Real:
    """Broker 1 with logs on a disk."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._files = FaultyFileSystem()
        self._cluster = Cluster(directory, file_system=self._files)

    def apply(self, delta: MetadataDelta) -> list[TopicPartition]:
        return self._cluster.replicas.apply_delta(delta)

    def break_disk(self) -> None:
        self._files.is_full = True

    def mend_disk(self) -> None:
        self._files.is_full = False

    @property
    def log_config(self) -> LogConfig:
        log = self._cluster.replicas.partition(TP).log
        assert log is not None
        return log.config

    @property
    def fates(self) -> tuple[int, int]:
        found = os.listdir(self._directory)
        deleted = [each for each in found if each.endswith("-delete")]
        return len(deleted), len([each for each in found if each.endswith("-stray")])

    @property
    def topic_id(self) -> UUID | None:
        return self._cluster.log_manager.topic_ids.get("a")

    def restart(self) -> None:
        self._cluster.close()
        self._cluster = Cluster(self._directory, file_system=self._files)

    def close(self) -> None:
        self._cluster.close()


World = Fake | Real
OTHER = UUID(int=1 << 100 | (1 << 60) - 1)


@pytest.fixture(params=[Fake, Real])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made: World = request.param(str(tmp_path / "data"))
    yield made
    made.close()


def image(
    replicas: tuple[int, ...] = (1, 2),
    *,
    epoch: int = 0,
    offline: tuple[int, ...] = (),
    **settings: str,
) -> MetadataImage:
    partition = PartitionImage(0, -1 if offline else 1, epoch, epoch, replicas, replicas, offline)
    resource = ConfigResource.topic("a")
    configs = {resource: {name.replace("_", "."): value for name, value in settings.items()}}
    topic = TopicImage("a", UUID(int=1), (partition,))
    return MetadataImage("c").with_topics([topic]).with_configs(configs)


def added(new: MetadataImage) -> MetadataDelta:
    return MetadataDelta(MetadataImage("c"), new, added=new.topics.values())


def changed(old: MetadataImage, new: MetadataImage) -> MetadataDelta:
    return MetadataDelta(old, new, changed=new.topics.values())


def test_what_can_be_served_is_not_named(world: World) -> None:
    """Else every topic would come to clients without a leader."""
    assert world.apply(added(image())) == []


def test_what_cannot_be_served_is_named_as_long_as_it_is_asked_for(world: World) -> None:
    """A store shows it offline by this answer alone, and asks again when it tries once more."""
    world.break_disk()
    new, offline = image(), image(epoch=1, offline=(1,))
    assert world.apply(added(new)) == [TP]
    assert world.apply(changed(new, offline)) == [], "the store knows"
    assert world.apply(changed(offline, image(epoch=2))) == [TP]
    world.mend_disk()
    assert world.apply(changed(offline, image(epoch=3))) == []


def test_replicas_of_others_are_none_of_its_business(world: World) -> None:
    """A broken disk says nothing of what lies elsewhere."""
    world.break_disk()
    assert world.apply(added(image((2, 3)))) == []


def test_a_log_goes_with_its_topic(world: World) -> None:
    """Disks would fill with what was deleted."""
    new = image()
    world.apply(added(new))
    topic = new.topics["a"]
    assert world.topic_id == topic.topic_id
    world.apply(MetadataDelta(new, new.with_topics(removed=[topic]), removed=[topic]))
    assert world.fates == (1, 0)
    assert world.topic_id is None


@pytest.mark.parametrize("size", [None, 1])
def test_another_topic_of_the_name_is_no_order_to_delete(world: World, size: int | None) -> None:
    """All records of a topic would be gone when somebody writes an id that is not its own, in
    slices, too, where the one comes after the other has gone."""
    before = image()
    world.apply(added(before))
    old, new = before.topics["a"], before.topics["a"]._replace(topic_id=OTHER)
    after = before.with_topics(removed=[old]).with_topics([new])
    delta = MetadataDelta(before, after, removed=[old], added=[new])
    for each in [delta] if size is None else delta.in_slices(size):
        world.apply(each)
    assert world.fates == (0, 1)
    assert world.topic_id == OTHER


@pytest.mark.parametrize("topic_id", [UUID(int=1), OTHER])
def test_a_log_of_a_replica_that_went_elsewhere_meanwhile(world: World, topic_id: UUID) -> None:
    """It would lie on the disk of a broker that was away for ever, and nobody know. No controller
    has ordered this broker to delete it."""
    world.apply(added(image()))
    world.restart()
    assert world.topic_id == UUID(int=1)
    elsewhere = image((2, 3), epoch=1)
    topic = elsewhere.topics["a"]._replace(topic_id=topic_id)
    assert world.apply(added(elsewhere.with_topics([topic]))) == []
    assert world.fates == (0, 1)
    assert world.topic_id is None


def test_a_partition_of_which_nothing_is_known_says_nothing_of_its_log(world: World) -> None:
    """A broker that starts hears of its partitions one after another: it would set aside what it
    is about to be told to serve."""
    world.apply(added(image()))
    world.restart()
    unknown = image(())
    assert world.apply(added(unknown)) == []
    assert world.apply(changed(unknown, image(epoch=1))) == []
    assert world.fates == (0, 0)
    assert world.topic_id == UUID(int=1)


def test_stored_settings_never_raise(world: World) -> None:
    """A fake that reads no settings would let a store pass that wedges on them."""
    settings = {"segment_bytes": "many", "no_such": "x", "flush_ms": "7"}
    assert world.apply(added(image(**settings))) == []
    assert (world.log_config.segment_bytes, world.log_config.flush_ms) == (1 << 30, 7)
