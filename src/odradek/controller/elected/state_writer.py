"""`StateWriter`: decided states, written to ZooKeeper in transactions of a bearable size.

Each state is written over the version that the decision was worked out on. Where one of many is
refused, the others are written each for itself. A folder that is there already is as good as made:
whoever began a topic may have been killed before its states were written.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from odradek.controller.elected.context import ControllerContext
from odradek.errors import ErrorCode
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
from odradek.metadata.zookeeper.znodes import NO_STATE
from odradek.model import TopicPartition

logger = logging.getLogger(__name__)

Refused: TypeAlias = Mapping[TopicPartition, ErrorCode]
"""The partitions whose states were not written: INVALID_UPDATE_VERSION where another one stands,
KAFKA_STORAGE_ERROR where the ensemble refuses."""

STATES_PER_WRITE: Final = 100


class _State(NamedTuple):
    """A partition, and what writes its state."""

    partition: TopicPartition
    operations: list[Operation]


class _Write(NamedTuple):
    """A transaction: what concerns a whole topic, and the states of partitions."""

    head: list[Operation]
    states: list[_State]

    @property
    def operations(self) -> list[Operation]:
        """All of them, in their order."""
        return [*self.head, *(each for state in self.states for each in state.operations)]

    def split(self) -> "list[_Write]":
        """A transaction for each partition; none when they belong together."""
        if len(self.states) < 2 or any(isinstance(each, SetData) for each in self.head):
            return []
        return [_Write(self.head, [state]) for state in self.states]

    def without(self, folder: Operation) -> "_Write":
        """The same, but that a folder is not made."""
        return _Write(
            [each for each in self.head if each != folder],
            [
                _State(partition, [each for each in operations if each != folder])
                for partition, operations in self.states
            ],
        )


class StateWriter:
    """Writes for the controller of `context`; `on_deposed` hears that there is a later one,
    `on_lost` that the session is over."""

    def __init__(
        self,
        context: ControllerContext,
        on_deposed: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._context: Final = context
        self._on_deposed: Final = on_deposed
        self._on_lost: Final = on_lost

    def write(self, delta: MetadataDelta, on_done: Callable[[Refused], None]) -> None:
        """Answers the partitions whose states were not written."""
        writes = self._writes(delta)
        refused: dict[TopicPartition, ErrorCode] = {}
        left = len(writes)

        def on_committed(write: _Write, outcome: Created | Refusal) -> None:
            nonlocal left
            left -= 1
            if isinstance(outcome, Refusal):
                again = self._left_to_try(write, outcome)
                left += len(again)
                for each in again:
                    self._commit(each, on_committed)
                if not again:
                    code = _code(outcome)
                    refused.update((state.partition, code) for state in write.states)
            else:
                for operation in write.head:
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
            head: list[Operation] = []
            if known and _assignments(topic, len(known)) != _assignments(before, len(known)):
                data = znodes.topic_json(topic.topic_id, [p.assignment for p in topic.partitions])
                version = self._context.topic_versions.get(topic.name, -1)
                head.append(SetData(znodes.topic_path(topic.name), data, version))
            is_first = all(each.partition_epoch == NO_STATE for each in known)
            if is_first and any(each.partition_epoch == 0 for each in changed):
                head.append(Create(znodes.partitions_path(topic.name)))
            if head:
                # The first of its partitions are written with it; the rest comes behind.
                writes.append(_Write(head, []))
                open_write, apart = writes[-1], open_write
            for each in changed:
                if len(open_write.states) >= STATES_PER_WRITE:
                    open_write = _Write([], [])
                    writes.append(open_write)
                open_write.states.append(self._state(topic.name, each, known))
            if head:
                open_write = apart
        return [write for write in writes if write.states]

    def _state(
        self, topic: str, partition: PartitionImage, known: Sequence[PartitionImage]
    ) -> _State:
        where = TopicPartition(topic, partition.partition)
        data = znodes.state_json(partition, self._context.epoch)
        version = _epoch_of(known, partition.partition)
        if version == NO_STATE:
            folder = Create(znodes.partition_path(where))
            return _State(where, [folder, Create(znodes.state_path(where), data)])
        return _State(where, [SetData(znodes.state_path(where), data, version)])

    def _commit(
        self, write: _Write, on_committed: Callable[[_Write, Created | Refusal], None]
    ) -> None:
        self._context.commit(write.operations, lambda outcome: on_committed(write, outcome))

    def _left_to_try(self, write: _Write, refusal: Refusal) -> list[_Write]:
        """Lists what of a refused transaction may still be done."""
        if refusal.failure is Failure.SESSION_LOST:
            self._on_lost()
        elif refusal.place == 0 and refusal.failure is not Failure.REFUSED:
            logger.warning(
                "another controller has been elected: epoch %d is over", self._context.epoch
            )
            self._on_deposed()
        if not self._context.is_open:
            return []
        if refusal.failure is Failure.NODE_EXISTS:
            operation = write.operations[refusal.place - 1]
            if isinstance(operation, Create) and not operation.data:
                return [write.without(operation)]
        return write.split()

    def _note_version(self, operation: SetData) -> None:
        name = operation.path.removeprefix(f"{znodes.TOPICS}/")
        if operation.version >= 0:
            self._context.topic_versions[name] = operation.version + 1


def _code(refusal: Refusal) -> ErrorCode:
    if refusal.failure is Failure.REFUSED:
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.INVALID_UPDATE_VERSION


def _epoch_of(known: Sequence[PartitionImage], index: int) -> int:
    return known[index].partition_epoch if index < len(known) else NO_STATE


def _assignments(topic: TopicImage | None, count: int) -> list[object]:
    return [] if topic is None else [each.assignment for each in topic.partitions[:count]]
