"""`RequestedReassignments`: reassignments that tools request by a znode.

The node is written over the version that was read, and over no other: a tool may add to it at any
moment. A reassignment that a newer request overrules leaves the node before that request takes
effect, and a controller reads the node before it accepts requests: otherwise it would start the
overruled one again.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from odradek.controller.elected.context import ControllerContext
from odradek.controller.elected.event_queue import ControllerEventQueue
from odradek.controller.replicas.reassignments import plan_reassignment
from odradek.metadata.engine import BrokerView
from odradek.metadata.image import PartitionImage, ReplicaAssignment
from odradek.metadata.store import PartitionChange
from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.client import (
    Created,
    Delete,
    Failure,
    Node,
    Operation,
    Refusal,
    SetData,
)
from odradek.metadata.zookeeper.znodes import ZnodeError
from odradek.model import TopicPartition
from odradek.timer import Timer, TimerTask

logger = logging.getLogger(__name__)

RETRY_MS: Final = 200
Requested: TypeAlias = Mapping[TopicPartition, tuple[int, ...]]
"""The replicas that partitions are to have."""


class RequestedReassignments:
    """Read, begun and ended by the controller of `context`."""

    def __init__(
        self,
        context: ControllerContext,
        events: ControllerEventQueue,
        view: BrokerView,
        timer: Timer,
    ) -> None:
        self._context: Final = context
        self._events: Final = events
        self._view: Final = view
        self._timer: Final = timer
        # The node's content at that version.
        self._requested: Requested = {}
        self._version = 0
        self._has_begun = False
        self._is_writing = False
        # Called when the node has been written.
        self._waiting: list[Callable[[], None]] = []
        # Those that were not written, and the replicas that they were to replace.
        self._refused: dict[TopicPartition, ReplicaAssignment] = {}

    def read(self, then: Callable[[], None] = lambda: None) -> None:
        """Reads what is asked for, now and whenever that has changed."""

        def on_node(node: Node | Failure | None) -> None:
            if self._context.is_open:
                self._note(node if isinstance(node, Node) else None)
            then()

        self._context.watch_node(znodes.REASSIGNMENTS, on_node, self.read)

    def begin(self) -> None:
        """Begins what is asked for, and from now on whatever else is."""
        self._has_begun = True
        self._begin(self._requested)

    def end(self) -> None:
        """Takes what is done, or cannot be, or was overruled since, out of the node."""
        if self._has_begun and self._requested and self._events.is_empty:
            self._write(self._left(), self.end)

    def overrule(self, changes: Sequence[PartitionChange], then: Callable[[], None]) -> None:
        """Calls `then` when the node no longer has the reassignments that these changes
        overrule."""
        targets = self._new_targets(changes)
        left = {
            where: replicas
            for where, replicas in self._requested.items()
            if targets.get(where, replicas) == replicas
        }
        if left == self._requested or not self._context.is_open:
            then()
        elif self._is_writing:
            self._waiting.append(partial(self.overrule, changes, then))
        else:
            self._write(left, partial(self.overrule, changes, then), on_unwritable=then)

    def _new_targets(self, changes: Sequence[PartitionChange]) -> Requested:
        """The replicas that partitions are to have, of those that were to have others."""
        image = self._view.image
        return {
            change.topic_partition: _staying(change.assignment)
            for change in changes
            if change.assignment is not None
            and (partition := image.partition(change.topic_partition)) is not None
            and _staying(change.assignment) != _staying(partition.assignment)
        }

    def _note(self, node: Node | None) -> None:
        requested = {} if node is None else _read(node)
        new = {tp: to for tp, to in requested.items() if self._requested.get(tp) != to}
        self._requested = requested
        self._version = 0 if node is None else node.version
        if self._has_begun:
            self._begin(new)

    def _begin(self, new: Requested) -> None:
        def on_unwritten(refused: Collection[TopicPartition]) -> None:
            image = self._view.image
            for where in refused:
                partition = image.partition(where)
                if partition is not None:
                    self._refused[where] = partition.assignment
            if refused:
                self._timer.add(TimerTask(RETRY_MS, lambda: self._view.attempt(self._begin_again)))

        self._events.change_each(
            new, lambda image, where: plan_reassignment(image, where, new[where]), on_unwritten
        )

    def _begin_again(self) -> None:
        """Tries again what could not be written, unless other replicas were asked for since."""
        if not self._context.is_open:
            return
        image = self._view.image
        again = {
            where: replicas
            for where, replicas in self._requested.items()
            if (partition := image.partition(where)) and self._is_to_begin(where, partition)
        }
        self._refused.clear()
        self._begin(again)

    def _is_to_begin(self, where: TopicPartition, partition: PartitionImage) -> bool:
        return self._refused.get(where) == partition.assignment

    def _left(self) -> Requested:
        image = self._view.image
        return {
            where: replicas
            for where, replicas in self._requested.items()
            if (partition := image.partition(where)) is not None
            and (self._is_to_begin(where, partition) or _is_moving(partition, replicas))
        }

    def _write(
        self,
        left: Requested,
        then: Callable[[], None],
        on_unwritable: Callable[[], None] = lambda: None,
    ) -> None:
        """Writes what is left of the node, unless it is that already or is being written; `then` is
        called when it was written, here or by somebody else."""
        if self._is_writing or left == self._requested:
            return
        self._is_writing = True
        operation: Operation = Delete(znodes.REASSIGNMENTS, self._version)
        if left:
            data = znodes.reassignments_json(left)
            operation = SetData(znodes.REASSIGNMENTS, data, self._version)

        def on_committed(outcome: Created | Refusal) -> None:
            self._is_writing = False
            if not isinstance(outcome, Refusal):
                self._requested = left
                self._version += 1
                then()
            elif outcome.failure in (Failure.BAD_VERSION, Failure.NO_NODE) and outcome.place:
                self.read(then)
            else:
                on_unwritable()
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                each()

        self._context.commit([operation], on_committed)


def _read(node: Node) -> Requested:
    try:
        return znodes.read_reassignments(node.data)
    except ZnodeError as error:
        logger.error("reassignments are not begun: %s", error)
        return {}


def _is_moving(partition: PartitionImage, target: tuple[int, ...]) -> bool:
    """Whether the partition is on its way to these replicas."""
    return partition.is_reassigning and _staying(partition.assignment) == target


def _staying(assignment: ReplicaAssignment) -> tuple[int, ...]:
    """The replicas that a partition has in the end."""
    return tuple(each for each in assignment.replicas if each not in assignment.removing)
