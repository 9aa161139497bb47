"""The image is what every answer is read from; a change must not be seen in older images."""

from uuid import UUID

from odradek.metadata import (
    ConfigResource,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    ResourceType,
    TopicImage,
)
from odradek.metadata.shared_map import SharedMap
from odradek.model import TopicPartition


def _topic(name: str, number: int, partitions: int = 1) -> TopicImage:
    images = tuple(PartitionImage(index, 1, 0, 0, (1,), (1,)) for index in range(partitions))
    return TopicImage(name, UUID(int=number), images)


def test_a_shared_map_shares_and_never_changes() -> None:
    """An image that is being read must stay what it was."""
    before: SharedMap[str, int] = SharedMap({"a": 1, "b": 2})
    after = before.replaced({"b": 3, "c": 4}, ["a", "missing"])
    assert dict(before) == {"a": 1, "b": 2}
    assert dict(after) == {"b": 3, "c": 4}
    assert (len(before), len(after)) == (2, 2)


def test_creating_topics_does_not_copy_all_of_them() -> None:
    """Otherwise ten thousand topics would cost minutes; a bucket of 256 is copied, no more."""
    full: SharedMap[int, int] = SharedMap({number: number for number in range(10_000)})
    changed = full.replaced({10_001: 1})
    shared = sum(a is b for a, b in zip(full._buckets, changed._buckets, strict=True))
    assert shared == 255


def test_topics_are_found_by_name_id_and_partition() -> None:
    """And are gone under both names when they are removed."""
    image = MetadataImage("c").with_topics([_topic("a", 1, 2), _topic("b", 2)])
    assert image.topic("a") is image.topic_by_id(UUID(int=1))
    assert image.partition(TopicPartition("a", 1)) is not None
    assert image.partition(TopicPartition("a", 2)) is None
    assert image.partition(TopicPartition("a", -1)) is None
    less = image.with_topics(removed=[_topic("a", 1, 2)])
    assert less.topic("a") is None
    assert less.topic_by_id(UUID(int=1)) is None
    assert image.topic("a") is not None


def test_a_delta_lists_new_and_changed_partitions_only() -> None:
    """The replica manager must not remake leaders that did not change."""
    before = MetadataImage("c").with_topics([_topic("a", 1, 2)])
    moved = before.topics["a"].partitions[1]._replace(leader=-1, partition_epoch=1)
    grown = before.topics["a"].with_partitions([moved, PartitionImage(2, 1, 0, 0, (1,), (1,))])
    after = before.with_topics([grown, _topic("b", 2)])
    delta = MetadataDelta(before, after, added=[_topic("b", 2)], changed=[grown])
    found = [(topic.name, partition.partition) for topic, partition in delta.partitions()]
    assert found == [("b", 0), ("a", 1), ("a", 2)]


def test_replicas_that_cannot_be_had_are_offline_in_another_delta() -> None:
    """A client must not be sent to a partition whose log did not open; who has the first delta
    must not see it change."""
    before = MetadataImage("c")
    topic = _topic("a", 1, 2)
    delta = MetadataDelta(before, before.with_topics([topic]), added=[topic])
    unserved = [TopicPartition("a", 1), TopicPartition("nowhere", 0)]
    later = delta.without_replicas(unserved, 1)
    first, second = later.image.topics["a"].partitions
    assert (first.leader, first.offline) == (1, ())
    assert (second.leader, second.offline) == (-1, (1,))
    assert later.topics_added == (later.image.topics["a"],)
    assert delta.image.topics["a"] == topic


def test_settings_of_a_resource_without_any_are_empty() -> None:
    """And a resource whose last setting went is forgotten."""
    resource = ConfigResource(ResourceType.TOPIC, "a")
    image = MetadataImage("c").with_configs({resource: {"k": "v"}})
    assert image.config(resource) == {"k": "v"}
    assert image.topic_config("a") == {"k": "v"}
    assert len(image.with_configs({resource: {}}).configs) == 0
