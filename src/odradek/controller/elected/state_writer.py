"""`StateWriter`: decided states, written to ZooKeeper in transactions of a bearable size.

Each state is written over the version that the decision was worked out on. If one of many is
refused, the others are written one by one. An existing folder is fine: the controller that began a
topic may have been killed before it wrote the states. A state that somebody has removed is created
again, also if there is another by now, whose version is an earlier one.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from odradek.controller.elected.context import ANY_VERSION, ControllerContext, KnownNode
from odradek.errors import ErrorCode
from odradek.metadata.image import (
    MetadataDelta,
    PartitionImage,
    ReplicaAssignment,
    TopicImage,
)
from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.client import (
    Create,
    Created,
    Delete,
    Failure,
    Node,
    Operation,
    Refusal,
    SetData,
)
from odradek.metadata.zookeeper.znodes import NO_STATE, TopicNode
from odradek.model import TopicPartition

logger = logging.getLogger(__name__)

Refused: TypeAlias = Mapping[TopicPartition, ErrorCode]
"""The partitions whose states were not written: INVALID_UPDATE_VERSION where another one stands,
KAFKA_STORAGE_ERROR where the ensemble refuses."""

STATES_PER_WRITE: Final = 100
VERSIONS_PER_WRITE: Final = 500


class _State(NamedTuple):
    """A partition, and the operations that write its state."""

    partition: TopicPartition
    operations: list[Operation]


class _Write(NamedTuple):
    """A transaction: the operations on a whole topic, and the states of partitions. If it writes a
    topic's node, `topic` is its name and `node` its content after that. `later` is what is left to
    be done after that for the one state that it writes."""

    head: list[Operation]
    states: list[_State]
    topic: str = ""
    node: KnownNode | None = None
    later: Sequence[Operation] = ()

    @property
    def operations(self) -> list[Operation]:
        """All of them, in their order."""
        return [*self.head, *(each for state in self.states for each in state.operations)]

    def split(self) -> "list[_Write]":
        """A transaction for each partition; none when they belong together."""
        if len(self.states) < 2 or self.node is not None:
            return []
        return [_Write(self.head, [state]) for state in self.states]

    @property
    def update(self) -> SetData | None:
        """The operation, if it is the only one, on a state that was written before."""
        operation = self.operations[-1]
        is_one = len(self.operations) == 1 and bool(self.states)
        return operation if is_one and isinstance(operation, SetData) else None

    def begun(self, update: SetData, there: Node | None) -> "list[_Write]":
        """The `update` where somebody has removed the state: created, in the place of the one that
        is `there`, and written as often as its version says, which is the partition's epoch and
        never goes back. Nothing if that state is a later one."""
        if there is not None and there.version >= update.version:
            return []
        path, data = update.path, update.data
        where = self.states[0].partition
        first: list[Operation] = [Create(znodes.partitions_path(where.topic))]
        first.append(Create(znodes.partition_path(where)))
        if there is not None:
            first = [Delete(path, there.version)]
        sets = [SetData(path, data, version) for version in range(update.version + 1)]
        return [_in_steps(where, [*first, Create(path, data), *sets])]

    def rest(self) -> "_Write":
        """The write that follows when this one is done."""
        return _in_steps(self.states[0].partition, self.later)

    def without(self, folder: Operation) -> "_Write":
        """The same, but that a folder is not made."""
        return self._replace(
            head=[each for each in self.head if each != folder],
            states=[
                _State(partition, [each for each in operations if each != folder])
                for partition, operations in self.states
            ],
        )


def _in_steps(partition: TopicPartition, operations: Sequence[Operation]) -> _Write:
    """The first transaction of many operations on a state; all of them, if they are bearable."""
    first, later = operations[:VERSIONS_PER_WRITE], operations[VERSIONS_PER_WRITE:]
    return _Write([], [_State(partition, [*first])], later=later)


class StateWriter:
    """Writes for the controller of `context`; `on_deposed` is called when there is a later one,
    `on_lost` when the session is over."""

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
        refused: dict[TopicPartition, ErrorCode] = {}
        left = 1

        def go_on(writes: Sequence[_Write]) -> None:
            nonlocal left
            left += len(writes) - 1
            if not left:
                on_done(refused)
            for write in writes:
                self._context.commit(write.operations, partial(on_committed, write))

        def on_committed(write: _Write, outcome: Created | Refusal) -> None:
            if isinstance(outcome, Refusal):
                self._try_again(write, outcome, partial(on_refused, write, _code(outcome)))
                return
            if write.node is not None:
                self._context.note_node(write.topic, write.node)
            go_on([write.rest()] if write.later else [])

        def on_refused(write: _Write, code: ErrorCode, again: Sequence[_Write]) -> None:
            if not again:
                refused.update((state.partition, code) for state in write.states)
            go_on(again)

        go_on(self._writes(delta))

    def _writes(self, delta: MetadataDelta) -> list[_Write]:
        writes: list[_Write] = []
        rest: list[_State] = []
        for topic in delta.topics_added:
            writes += self._writes_of(topic, (), rest)
        for topic in delta.topics_changed:
            before = delta.previous.topics.get(topic.name)
            writes += self._writes_of(topic, () if before is None else before.partitions, rest)
        for start in range(0, len(rest), STATES_PER_WRITE):
            writes.append(_Write([], rest[start : start + STATES_PER_WRITE]))
        return writes

    def _writes_of(
        self,
        topic: TopicImage,
        known: Sequence[PartitionImage],
        rest: list[_State],
    ) -> list[_Write]:
        """Makes the writes that the topic needs for itself; what may be written together with other
        topics' states comes to `rest`."""
        changed = [
            each
            for each in topic.partitions
            if each.partition_epoch > _epoch_of(known, each.partition)
        ]
        writes, others = self._node_writes(topic, changed, known)
        if changed and all(each.partition_epoch == NO_STATE for each in known):
            if not writes:
                # The first of its partitions are written with their folder.
                writes = [_Write([], others[:STATES_PER_WRITE])]
                others = others[STATES_PER_WRITE:]
            writes[0].head.append(Create(znodes.partitions_path(topic.name)))
        rest += others
        return writes

    def _node_writes(
        self,
        topic: TopicImage,
        changed: Sequence[PartitionImage],
        known: Sequence[PartitionImage],
    ) -> tuple[list[_Write], list[_State]]:
        """Makes the writes of the topic's node, if it is not as the image has it, together with
        the states of the partitions whose replicas change, so that nobody ever finds the one
        without the other; answers the states of the other partitions besides."""
        before = [each.assignment for each in known]
        node = self._context.topic_nodes.get(topic.name)
        if node is None:
            node = KnownNode(ANY_VERSION, TopicNode(topic.topic_id, tuple(before)))
        # Partitions that somebody has added, and that are not in the image yet, stay.
        wanted = [*before, *node.content.assignments[len(before) :]]
        moved, stayed = _by_assignment(changed, wanted)
        others = [self._state(topic.name, each, known) for each in stayed]
        if not moved and node.content == TopicNode(topic.topic_id, tuple(wanted)):
            return [], others
        writes = []
        for start in range(0, max(1, len(moved)), STATES_PER_WRITE):
            some = moved[start : start + STATES_PER_WRITE]
            for each in some:
                wanted[each.partition : each.partition + 1] = [each.assignment]
            states = [self._state(topic.name, each, known) for each in some]
            operation = _over(topic, node, wanted)
            node = _after(node, TopicNode(topic.topic_id, tuple(wanted)))
            writes.append(_Write([operation], states, topic.name, node))
        return writes, others

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

    def _try_again(
        self, write: _Write, refusal: Refusal, then: Callable[[Sequence[_Write]], None]
    ) -> None:
        """Calls `then` with what of a refused transaction may still be done."""
        again = self._left_to_try(write, refusal)
        update = write.update
        is_other = refusal.failure is Failure.BAD_VERSION and self._context.is_open
        if update is None or not is_other:
            then(again)
            return

        def on_node(node: Node | Failure | None) -> None:
            then([] if isinstance(node, Failure) else write.begun(update, node))

        self._context.zookeeper.get(update.path, on_node)

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
        if refusal.failure is Failure.NO_NODE and (update := write.update) is not None:
            return write.begun(update, None)
        return write.split()


def _code(refusal: Refusal) -> ErrorCode:
    if refusal.failure is Failure.REFUSED:
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.INVALID_UPDATE_VERSION


def _epoch_of(known: Sequence[PartitionImage], index: int) -> int:
    return known[index].partition_epoch if index < len(known) else NO_STATE


def _by_assignment(
    partitions: Iterable[PartitionImage], assignments: Sequence[ReplicaAssignment]
) -> tuple[list[PartitionImage], list[PartitionImage]]:
    """Divides partitions into those that have other replicas than these, and the rest."""
    moved: list[PartitionImage] = []
    stayed: list[PartitionImage] = []
    for each in partitions:
        is_there = each.partition < len(assignments)
        is_moved = not is_there or each.assignment != assignments[each.partition]
        (moved if is_moved else stayed).append(each)
    return moved, stayed


def _over(topic: TopicImage, node: KnownNode, wanted: Sequence[ReplicaAssignment]) -> Operation:
    data = znodes.topic_json(topic.topic_id, wanted)
    return SetData(znodes.topic_path(topic.name), data, node.version)


def _after(node: KnownNode, content: TopicNode) -> KnownNode:
    is_known = node.version != ANY_VERSION
    return KnownNode(node.version + 1 if is_known else ANY_VERSION, content)
