"""Random operations on a store with a file and on one without: same image, also after a restart."""

import itertools
import tempfile
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rounds import rounds

from odradek.background import InlineBackground
from odradek.metadata import (
    ConfigResource,
    MetadataCache,
    MetadataImage,
    NewPartitions,
    NewTopic,
    PartitionChange,
)
from odradek.metadata.sqlite import EmbeddedMetadataStore, SharedMetadata
from odradek.metadata.sqlite.database import Database
from odradek.metadata.sqlite.journal import Journal
from odradek.model import TopicPartition

_NAMES = st.sampled_from(["a", "b", "c"])
_OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), _NAMES, st.integers(1, 3)),
        st.tuples(st.just("delete"), _NAMES, st.just(0)),
        st.tuples(st.just("grow"), _NAMES, st.integers(1, 3)),
        st.tuples(st.just("set"), _NAMES, st.integers(0, 3)),
        st.tuples(st.just("unset"), _NAMES, st.just(0)),
        st.tuples(st.just("change"), _NAMES, st.integers(0, 2)),
    ),
    max_size=20,
)


class _Node:
    def __init__(self, journal: Journal | None = None) -> None:
        numbers = itertools.count(1)
        self.cache = MetadataCache()
        shared = SharedMetadata(
            InlineBackground(), lambda size: next(numbers).to_bytes(size, "big"), journal
        )
        self.store = EmbeddedMetadataStore(self.cache, shared)
        self.store.load()
        self.store.register_broker(1, (), None, _ignore)

    def run(self, kind: str, name: str, number: int) -> None:
        topic = self.cache.image.topic(name)
        resource = ConfigResource.topic(name)
        match kind:
            case "create":
                new = NewTopic(name, ((1,),) * number, {"retention.ms": str(number)})
                self.store.create_topics([new], _ignore)
            case "delete":
                topic_id = UUID(int=0) if topic is None else topic.topic_id
                self.store.delete_topics([topic_id], _ignore)
            case "grow":
                first = 0 if topic is None else len(topic.partitions)
                self.store.create_partitions(
                    [NewPartitions(name, first, ((1,),) * number)], _ignore
                )
            case "set":
                self.store.alter_configs({resource: {"flush.ms": str(number)}}, _ignore)
            case "unset":
                self.store.alter_configs({resource: {"flush.ms": None}}, _ignore)
            case _:
                change = PartitionChange(TopicPartition(name, number), 0, -1, (1,))
                self.store.change_partitions([change], _ignore)


def _ignore(outcome: Any) -> None:
    """Refusals are part of the game: both stores refuse alike."""


def _facts(image: MetadataImage) -> tuple[Any, ...]:
    return dict(image.topics), dict(image.topics_by_id), dict(image.configs)


def _kept(image: MetadataImage) -> tuple[Any, ...]:
    """The part of an image that a restart keeps: all but who leads and the epochs that the election
    raises.
    """
    topics = {
        name: [topic.topic_id, [(p.replicas, p.isr, p.leader_epoch) for p in topic.partitions]]
        for name, topic in image.topics.items()
    }
    return topics, dict(image.configs)


@settings(max_examples=rounds(25))
@given(_OPERATIONS)
def test_with_and_without_a_file(operations: list[tuple[str, str, int]]) -> None:
    """The SQL must say what the image says."""
    with tempfile.TemporaryDirectory() as directory:
        plain, kept = _Node(), _Node(Database(directory))
        for operation in operations:
            plain.run(*operation)
            kept.run(*operation)
            assert _facts(plain.cache.image) == _facts(kept.cache.image)
        before = kept.cache.image
        kept.store.close()
        cache = MetadataCache()
        shared = SharedMetadata(InlineBackground(), bytes, Database(directory))
        again = EmbeddedMetadataStore(cache, shared)
        assert _kept(again.load()) == _kept(before)
        again.close()
