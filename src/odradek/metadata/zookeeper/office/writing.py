"""`StateWriter`: decided states, written to ZooKeeper in transactions of a bearable size.

Each state is written over the version that the decision was worked out on. Where one of many is
refused, the others are written each for itself.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from odradek.metadata.image import MetadataDelta, PartitionImage, TopicImage
from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.client import (
    Create,
    Created,
    Failure,
    Operation,
    Refusal,
    SetData,
)
from odradek.metadata.zookeeper.office.term import Term
from odradek.metadata.zookeeper.znodes import NO_STATE
from odradek.model import TopicPartition

logger = logging.getLogger(__name__)

STATES_PER_WRITE: Final = 100


class _Write(NamedTuple):
    """A transaction, and the partitions whose states it writes."""

    operations: list[Operation]
    partitions: list[TopicPartition]

    def split(self) -> "list[_Write]":
        """A transaction for each partition; none when they belong together."""
        if len(self.operations) != len(self.partitions):
            return []
        return [
            _Write([operation], [partition])
            for operation, partition in zip(self.operations, self.partitions, strict=True)
        ]


class StateWriter:
    """Writes for the controller of `term`; `on_deposed` hears that there is a later one, `on_lost`
    that the session is over."""

    def __init__(
        self, term: Term, on_deposed: Callable[[], None], on_lost: Callable[[], None]
    ) -> None:
        self._term: Final = term
        self._on_deposed: Final = on_deposed
        self._on_lost: Final = on_lost

    def write(self, delta: MetadataDelta, on_done: Callable[[set[TopicPartition]], None]) -> None:
        """Answers the partitions that turned out to be in another state."""
        writes = self._writes(delta)
        refused: set[TopicPartition] = set()
        left = len(writes)

        def on_committed(write: _Write, outcome: Created | Refusal) -> None:
            nonlocal left
            left -= 1
            if isinstance(outcome, Refusal):
                self._on_refused(write, outcome, refused)
                if len(write.partitions) > 1 and outcome.place and self._term.is_open:
                    # One of many: each for itself, then.
                    singles = write.split()
                    if singles:
                        left += len(singles)
                        refused.difference_update(write.partitions)
                        for single in singles:
                            self._commit(single, on_committed)
            else:
                for operation in write.operations:
                    if isinstance(operation, SetData):
                        self._note_version(operation)
            if not left:
                on_done(refused)

        if not writes:
            on_done(refused)
        for write in writes:
            self._commit(write, on_committed)

    def _writes(self, delta: MetadataDelta) -> list[_Write]:
        writes: list[_Write] = []
        open_write = apart = _Write([], [])
        writes.append(open_write)
        for topic in (*delta.topics_added, *delta.topics_changed):
            before = delta.previous.topics.get(topic.name)
            known = (
                before.partitions if before is not None and topic not in delta.topics_added else ()
            )
            changed = [
                each
                for each in topic.partitions
                if each.partition_epoch > _epoch_of(known, each.partition)
            ]
            if not changed:
                continue
            operations: list[Operation] = []
            if known and _assignments(topic, len(known)) != _assignments(before, len(known)):
                data = znodes.topic_json(topic.topic_id, [p.assignment for p in topic.partitions])
                version = self._term.topic_versions.get(topic.name, -1)
                operations.append(SetData(znodes.topic_path(topic.name), data, version))
            is_first = all(each.partition_epoch == NO_STATE for each in known)
            if is_first and any(each.partition_epoch == 0 for each in changed):
                operations.append(Create(znodes.partitions_path(topic.name)))
            if operations:
                # The first of its partitions are written with it; the rest comes behind.
                writes.append(_Write(operations, []))
                open_write, apart = writes[-1], open_write
            for each in changed:
                if len(open_write.partitions) >= STATES_PER_WRITE:
                    open_write = _Write([], [])
                    writes.append(open_write)
                open_write.operations.extend(self._state(topic.name, each, known))
                open_write.partitions.append(TopicPartition(topic.name, each.partition))
            if operations:
                open_write = apart
        return [write for write in writes if write.partitions]

    def _state(
        self, topic: str, partition: PartitionImage, known: Sequence[PartitionImage]
    ) -> list[Operation]:
        where = TopicPartition(topic, partition.partition)
        data = znodes.state_json(partition, self._term.epoch)
        version = _epoch_of(known, partition.partition)
        if version == NO_STATE:
            return [Create(znodes.partition_path(where)), Create(znodes.state_path(where), data)]
        return [SetData(znodes.state_path(where), data, version)]

    def _commit(
        self, write: _Write, on_committed: Callable[[_Write, Created | Refusal], None]
    ) -> None:
        self._term.commit(write.operations, lambda outcome: on_committed(write, outcome))

    def _on_refused(self, write: _Write, refusal: Refusal, refused: set[TopicPartition]) -> None:
        if refusal.failure is Failure.SESSION_LOST:
            self._on_lost()
        elif refusal.place == 0:
            logger.warning(
                "another controller has been elected: epoch %d is over", self._term.epoch
            )
            self._on_deposed()
        refused.update(write.partitions)

    def _note_version(self, operation: SetData) -> None:
        words = operation.path.split("/")
        if operation.path.startswith(znodes.TOPICS) and len(words) == 4 and operation.version >= 0:
            self._term.topic_versions[words[3]] = operation.version + 1


def _epoch_of(known: Sequence[PartitionImage], index: int) -> int:
    return known[index].partition_epoch if index < len(known) else NO_STATE


def _assignments(topic: TopicImage | None, count: int) -> list[object]:
    return [] if topic is None else [each.assignment for each in topic.partitions[:count]]
