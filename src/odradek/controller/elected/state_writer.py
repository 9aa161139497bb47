"""`StateWriter`: decided states, written to ZooKeeper in transactions of a bearable size.

Each state is written over the version that the decision was worked out on. If one of many is
refused, the others are written one by one. An existing folder is fine: the controller that began a
topic may have been killed before it wrote the states. A state that somebody has removed is created
again, also if there is another by now, whose version is an earlier one.

The states of thousands of partitions are made in slices, and the loop turns in between. If the
controller is deposed meanwhile, the rest is not written.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Final, NamedTuple, TypeAlias

from odradek.background import do_each_in_turns
from odradek.controller.elected.context import ANY_VERSION, ControllerContext, KnownNode
from odradek.controller.slices import Defer
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
# How many transactions are made in a turn of the loop.
SLICE_WRITES: Final = 20


class _Part(NamedTuple):
    """A partition of a topic whose state is to be written, over that version; NO_STATE if there is
    none yet."""

    topic: str
    partition: PartitionImage
    version: int


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
    `on_lost` when the session is over. `defer` does something at the loop's next turn."""

    def __init__(
        self,
        context: ControllerContext,
        on_deposed: Callable[[], None],
        on_lost: Callable[[], None],
        defer: Defer,
    ) -> None:
        self._context: Final = context
        self._on_deposed: Final = on_deposed
        self._on_lost: Final = on_lost
        self._defer: Final = defer

    def write(self, delta: MetadataDelta, on_done: Callable[[Refused], None]) -> None:
        """Answers the partitions whose states were not written."""
        refused: dict[TopicPartition, ErrorCode] = {}
        left = 1  # the making of the transactions, and those under way

        def end() -> None:
            nonlocal left
            left -= 1
            if not left:
                on_done(refused)

        def begin(write: _Write) -> None:
            nonlocal left
            if self._context.is_open:
                left += 1
                self._context.commit(write.operations, partial(on_committed, write))

        def on_committed(write: _Write, outcome: Created | Refusal) -> None:
            if isinstance(outcome, Refusal):
                self._try_again(write, outcome, partial(on_refused, write, _code(outcome)))
                return
            if write.node is not None:
                self._context.note_node(write.topic, write.node)
            if write.later:
                begin(write.rest())
            end()

        def on_refused(write: _Write, code: ErrorCode, again: Sequence[_Write]) -> None:
            for each in again:
                begin(each)
            if not again:
                refused.update((state.partition, code) for state in write.states)
            end()

        writes = takewhile(lambda _: self._context.is_open, self._writes(delta))
        do_each_in_turns(writes, begin, SLICE_WRITES, self._defer, end)

    def _writes(self, delta: MetadataDelta) -> Iterator[_Write]:
        known = delta.previous.topics
        changes: list[tuple[TopicImage, Sequence[PartitionImage]]] = [
            (topic, ()) for topic in delta.topics_added
        ]
        for topic in delta.topics_changed:
            before = known.get(topic.name)
            changes.append((topic, () if before is None else before.partitions))
        # What may be written together with other topics' states.
        rest: list[_Part] = []
        for topic, partitions in changes:
            yield from self._writes_of(topic, partitions, rest)
            while len(rest) >= STATES_PER_WRITE:
                yield _Write([], self._states(rest[:STATES_PER_WRITE]))
                del rest[:STATES_PER_WRITE]
        if rest:
            yield _Write([], self._states(rest))

    def _writes_of(
        self, topic: TopicImage, known: Sequence[PartitionImage], rest: list[_Part]
    ) -> Iterator[_Write]:
        """Makes the writes that the topic needs for itself: its node, if it is not as the image
        has it, together with the states of the partitions whose replicas change, so that nobody
        ever finds the one without the other. Its other states come to `rest`."""
        changed = _changed(topic, known)
        before = [each.assignment for each in known]
        node = self._context.topic_nodes.get(topic.name)
        if node is None:
            node = KnownNode(ANY_VERSION, TopicNode(topic.topic_id, tuple(before)))
        # Partitions that somebody has added, and that are not in the image yet, stay.
        wanted = [*before, *node.content.assignments[len(before) :]]
        moved, stayed = _by_assignment(changed, wanted)
        folders: list[Operation] = []
        if changed and all(each.partition_epoch == NO_STATE for each in known):
            # Made with the first of its partitions.
            folders.append(Create(znodes.partitions_path(topic.name)))
        if moved or node.content != TopicNode(topic.topic_id, tuple(wanted)):
            for start in range(0, max(1, len(moved)), STATES_PER_WRITE):
                some = moved[start : start + STATES_PER_WRITE]
                for _, each, _ in some:
                    wanted[each.partition : each.partition + 1] = [each.assignment]
                operations, folders = [_over(topic, node, wanted), *folders], []
                node = _after(node, TopicNode(topic.topic_id, tuple(wanted)))
                yield _Write(operations, self._states(some), topic.name, node)
        if folders:
            yield _Write(folders, self._states(stayed[:STATES_PER_WRITE]))
            del stayed[:STATES_PER_WRITE]
        rest += stayed

    def _states(self, parts: Iterable[_Part]) -> list[_State]:
        return [self._state(each) for each in parts]

    def _state(self, part: _Part) -> _State:
        where = TopicPartition(part.topic, part.partition.partition)
        data = znodes.state_json(part.partition, self._context.epoch)
        if part.version == NO_STATE:
            folder = Create(znodes.partition_path(where))
            return _State(where, [folder, Create(znodes.state_path(where), data)])
        return _State(where, [SetData(znodes.state_path(where), data, part.version)])

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


def _changed(topic: TopicImage, known: Sequence[PartitionImage]) -> list[_Part]:
    """The partitions of a topic that have a later state than the `known` one."""
    parts = [_Part(topic.name, each, _epoch_of(known, each.partition)) for each in topic.partitions]
    return [each for each in parts if each.partition.partition_epoch > each.version]


def _by_assignment(
    parts: Iterable[_Part], assignments: Sequence[ReplicaAssignment]
) -> tuple[list[_Part], list[_Part]]:
    """Divides partitions into those that have other replicas than these, and the rest."""
    moved: list[_Part] = []
    stayed: list[_Part] = []
    for each in parts:
        index = each.partition.partition
        is_there = index < len(assignments)
        is_moved = not is_there or each.partition.assignment != assignments[index]
        (moved if is_moved else stayed).append(each)
    return moved, stayed


def _over(topic: TopicImage, node: KnownNode, wanted: Sequence[ReplicaAssignment]) -> Operation:
    data = znodes.topic_json(topic.topic_id, wanted)
    return SetData(znodes.topic_path(topic.name), data, node.version)


def _after(node: KnownNode, content: TopicNode) -> KnownNode:
    is_known = node.version != ANY_VERSION
    return KnownNode(node.version + 1 if is_known else ANY_VERSION, content)
