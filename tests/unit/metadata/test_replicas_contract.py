"""The replicas that tests of stores are given answer a store as the real ones do."""

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

    def close(self) -> None:
        """It holds nothing."""


class Real:
    """Broker 1 with logs on a disk."""

    def __init__(self, directory: str) -> None:
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

    def close(self) -> None:
        self._cluster.close()


World = Fake | Real


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


def test_stored_settings_never_raise(world: World) -> None:
    """A fake that reads no settings would let a store pass that wedges on them."""
    settings = {"segment_bytes": "many", "no_such": "x", "flush_ms": "7"}
    assert world.apply(added(image(**settings))) == []
    assert (world.log_config.segment_bytes, world.log_config.flush_ms) == (1 << 30, 7)
