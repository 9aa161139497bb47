"""The image is what every answer is read from; a change must not be seen in older images."""

from uuid import UUID

import pytest

from odradek.metadata import (
    ConfigResource,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from odradek.metadata.shared_map import SharedMap
from odradek.model import TopicPartition


def _topic(name: str, number: int, partitions: int = 1) -> TopicImage:
    images = tuple(PartitionImage(index, 1, 0, 0, (1,), (1,)) for index in range(partitions))
    return TopicImage(name, UUID(int=number), images)


def _with_replicas(topic: TopicImage, replicas: tuple[int, ...]) -> TopicImage:
    return topic.with_partitions([each._replace(replicas=replicas) for each in topic.partitions])


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_a_change_in_slices_comes_to_the_same(size: int) -> None:
    """Listeners that follow it slice by slice would end with another image than clients are
    shown."""
    gone = [_topic("b", 2, 5), _topic("f", 6), _topic("g", 7)]
    before = MetadataImage("c").with_topics([_topic("a", 1, 4), *gone, _topic("d", 3, 2)])
    grown, again = _topic("a", 1, 7), _topic("b", 9, 3)
    moved = before.topics["d"].partitions[1]._replace(leader=2)
    changed = before.topics["d"].with_partitions([moved])
    resource = ConfigResource.topic("a")
    new = _topic("e", 4, 2)
    after = before.with_topics([grown, again, changed, new], gone)
    after = after.with_configs({resource: {"flush.ms": "1"}}).with_brokers({1: None}, 1)  # type: ignore[dict-item]
    delta = MetadataDelta(
        before,
        after,
        added=[again, new],
        removed=gone,
        changed=[grown, changed],
        configs=[resource],
        brokers_changed=True,
        are_deleted=False,
    )
    slices = list(delta.in_slices(size))
    assert sum(len(list(each.partitions())) for each in slices) == 9
    assert all(len(list(each.partitions())) + len(_going(each)) <= size for each in slices)
    assert not any(each.are_deleted for each in slices)
    assert [each.previous for each in slices] == [before, *(each.image for each in slices[:-1])]
    last = slices[-1].image
    assert dict(last.topics) == dict(after.topics)
    assert dict(last.topics_by_id) == dict(after.topics_by_id)
    assert all(
        (each.image.configs, each.image.brokers) == (after.configs, after.brokers)
        for each in slices
    )
    went = [each for step in slices for each in _going(step)]
    assert sorted(went) == [("b", number) for number in range(5)] + [("f", 0), ("g", 0)]
    assert not any(_going(each) and list(each.partitions()) for each in slices[1:])


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_removal_that_is_cut_short_leaves_what_is_still_to_go(count: int) -> None:
    """Fails when replicas stay behind of a topic of which nobody knows any more."""
    large = _topic("a", 1, 7)
    before = MetadataImage("c").with_topics([large, _topic("b", 2)])
    after = before.with_topics(removed=before.topics.values())
    delta = MetadataDelta(before, after, removed=before.topics.values())
    slices = list(delta.in_slices(2))[:count]
    went = {each for step in slices for each in _going(step)}
    there = {
        (topic.name, partition.partition)
        for topic in slices[-1].image.topics.values()
        for partition in topic.partitions
    }
    assert went & there == set()
    assert len(went | there) == 8
    topics = slices[-1].image.topics.values()
    assert dict(slices[-1].image.topics_by_id) == {each.topic_id: each for each in topics}


def _going(delta: MetadataDelta) -> list[tuple[str, int]]:
    return [
        (topic.name, each.partition) for topic in delta.topics_removed for each in topic.partitions
    ]


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


@pytest.mark.parametrize(
    ("known", "found", "is_new"),
    [
        ((), (), True),
        ((), ("a",), False),
        ((_topic("a", 2, 2),), (), True),
        ((_topic("a", 1, 1),), (), True),
        ((_topic("a", 1, 1),), ("a",), False),
        ((_topic("a", 1, 2),), (), False),
        ((_with_replicas(_topic("a", 1, 2), (2, 3)),), ("a",), True),
        ((_with_replicas(_topic("a", 1, 2), ()),), (), False),
    ],
)
def test_a_replica_is_new_where_its_broker_can_have_no_log_of_it(
    known: tuple[TopicImage, ...], found: tuple[str, ...], is_new: bool
) -> None:
    """Fails when an empty log is made in the place of one on a failed disk."""
    topic = _topic("a", 1, 2)
    before = MetadataImage("c").with_topics(known)
    delta = MetadataDelta(before, before.with_topics([topic]), found=found)
    assert delta.is_new_replica(topic, topic.partitions[1], 1) is is_new


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
    resource = ConfigResource.topic("a")
    image = MetadataImage("c").with_configs({resource: {"k": "v"}})
    assert image.config(resource) == {"k": "v"}
    assert image.topic_config("a") == {"k": "v"}
    assert len(image.with_configs({resource: {}}).configs) == 0
