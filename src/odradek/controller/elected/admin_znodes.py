"""`AdminZnodes`: what tools and earlier brokers request of the controller by znodes: reassignments,
preferred leaders, a look at other in-sync replicas or at failed directories."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final

from odradek.background import ignore
from odradek.controller.answers import one_each
from odradek.controller.elected.broker_channel import BrokerChannel
from odradek.controller.elected.context import ControllerContext
from odradek.controller.elected.event_queue import ControllerEventQueue, with_refusals
from odradek.controller.elected.image_changes import with_partitions
from odradek.controller.replicas.elections import plan_election
from odradek.controller.replicas.reassignments import plan_reassignment
from odradek.controller.results import ElectionType
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.changes import Change
from odradek.metadata.engine import BrokerView
from odradek.metadata.image import MetadataImage, PartitionImage, ReplicaAssignment
from odradek.metadata.store import PartitionChange
from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.client import Delete, Failure, Node, Operation, SetData
from odradek.metadata.zookeeper.znodes import ZnodeError
from odradek.model import TopicPartition
from odradek.timer import Timer, TimerTask

logger = logging.getLogger(__name__)

RETRY_MS: Final = 200
_UNWRITTEN: Final = (ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.KAFKA_STORAGE_ERROR)


class AdminZnodes:
    """Read by the controller of `context`; `read_topic` reads the states of a topic again."""

    def __init__(
        self,
        context: ControllerContext,
        events: ControllerEventQueue,
        view: BrokerView,
        timer: Timer,
        channels: Mapping[int, BrokerChannel],
        read_topic: Callable[[str], None],
    ) -> None:
        self._context: Final = context
        self._events: Final = events
        self._view: Final = view
        self._timer: Final = timer
        self._channels: Final = channels
        self._read_topic: Final = read_topic
        self._reassignments: dict[TopicPartition, tuple[int, ...]] = {}
        # Those that were not written, and the replicas that they were to replace.
        self._refused: dict[TopicPartition, ReplicaAssignment] = {}

    def read_all(self) -> None:
        """Looks what is asked for, and from now on whenever something is."""
        self._read_reassignments()
        self._read_elections()
        self._read_isr_changes()
        self._read_log_dir_events()

    def end_reassignments(self) -> None:
        """Takes what is done, or cannot be, or was overruled since, out of the node."""
        if not self._reassignments or not self._events.is_empty:
            return
        image = self._view.image
        left = {}
        for where, replicas in self._reassignments.items():
            partition = image.partition(where)
            if partition is None:
                continue
            if self._is_to_begin(where, partition) or _is_moving(partition, replicas):
                left[where] = replicas
        if left == self._reassignments:
            return
        self._reassignments = left
        path = znodes.REASSIGNMENTS
        operation: Operation = Delete(path)
        if left:
            operation = SetData(path, znodes.reassignments_json(left), -1)
        self._context.commit([operation])

    def _read_reassignments(self) -> None:
        def on_node(node: Node | Failure | None) -> None:
            if not isinstance(node, Node) or not self._context.is_open:
                return
            try:
                requested = znodes.read_reassignments(node.data)
            except ZnodeError as error:
                logger.error("reassignments are not begun: %s", error)
                return
            new = {tp: to for tp, to in requested.items() if self._reassignments.get(tp) != to}
            self._reassignments = dict(requested)
            self._begin_reassignments(new)

        self._context.watch_node(znodes.REASSIGNMENTS, on_node, self._read_reassignments)

    def _begin_reassignments(self, new: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        def on_refused(refused: Collection[TopicPartition]) -> None:
            image = self._view.image
            for where in refused:
                partition = image.partition(where)
                if partition is not None:
                    self._refused[where] = partition.assignment
            if refused:
                self._timer.add(TimerTask(RETRY_MS, lambda: self._view.attempt(self._begin_again)))

        self._change_each(
            new, lambda image, where: plan_reassignment(image, where, new[where]), on_refused
        )

    def _begin_again(self) -> None:
        """Tries again what could not be written, unless other replicas were asked for since."""
        if not self._context.is_open:
            return
        image = self._view.image
        again = {
            where: replicas
            for where, replicas in self._reassignments.items()
            if (partition := image.partition(where)) and self._is_to_begin(where, partition)
        }
        self._refused.clear()
        self._begin_reassignments(again)

    def _is_to_begin(self, where: TopicPartition, partition: PartitionImage) -> bool:
        return self._refused.get(where) == partition.assignment

    def _read_elections(self) -> None:
        def on_node(node: Node | Failure | None) -> None:
            if not isinstance(node, Node) or not self._context.is_open:
                return
            try:
                wanted = znodes.read_elections(node.data)
            except ZnodeError as error:
                logger.error("leaders are not elected: %s", error)
                wanted = []
            self._change_each(wanted, partial(plan_election, election_type=ElectionType.PREFERRED))
            self._context.commit([Delete(znodes.PREFERRED_ELECTION)])

        self._context.watch_node(znodes.PREFERRED_ELECTION, on_node, self._read_elections)

    def _change_each(
        self,
        partitions: Iterable[TopicPartition],
        plan: Callable[[MetadataImage, TopicPartition], PartitionChange | None],
        on_refused: Callable[[Collection[TopicPartition]], None] = ignore,
    ) -> None:
        planned: list[PartitionChange] = []

        def prepare(image: MetadataImage) -> Change[list[PartitionImage | BrokerError]]:
            for each in partitions:
                try:
                    change = plan(image, each)
                except BrokerError as error:
                    logger.info("%s is passed over: %s", each, error)
                    continue
                if change is not None:
                    planned.append(change)
            return with_partitions(image, planned, self._context.broker_id)

        def on_done(outcome: list[PartitionImage | BrokerError] | BrokerError) -> None:
            each_outcome = zip(planned, one_each(outcome, len(planned)), strict=True)
            on_refused(
                [
                    change.topic_partition
                    for change, each in each_outcome
                    if isinstance(each, BrokerError) and each.code in _UNWRITTEN
                ]
            )
            self.end_reassignments()

        self._events.submit(prepare, on_done, with_refusals(planned))

    def _read_isr_changes(self) -> None:
        """Brokers of old change their ISR by themselves, and say so here."""

        def on_found(path: str, node: Node) -> None:
            for topic in {each.topic for each in znodes.read_isr_change(path, node.data)}:
                self._read_topic(topic)

        self._read_events(znodes.ISR_CHANGES, on_found, self._read_isr_changes)

    def _read_log_dir_events(self) -> None:
        """A broker has lost a directory: it is asked which replicas it can serve."""

        def on_found(path: str, node: Node) -> None:
            channel = self._channels.get(znodes.read_log_dir_event(path, node.data))
            if channel is not None:
                channel.note_roles()
                channel.poke()

        self._read_events(znodes.LOG_DIR_EVENTS, on_found, self._read_log_dir_events)

    def _read_events(
        self, folder: str, on_found: Callable[[str, Node], None], again: Callable[[], None]
    ) -> None:
        def on_children(names: tuple[str, ...] | Failure) -> None:
            if not isinstance(names, Failure) and self._context.is_open:
                self._context.gather([f"{folder}/{name}" for name in names], on_nodes)

        def on_nodes(nodes: Mapping[str, Node | None]) -> None:
            for path, node in nodes.items():
                if node is None or not self._context.is_open:
                    continue
                try:
                    on_found(path, node)
                except ZnodeError as error:
                    logger.error("an event is passed over: %s", error)
                self._context.commit([Delete(path)])

        self._context.watch_children(folder, on_children, again)


def _is_moving(partition: PartitionImage, target: tuple[int, ...]) -> bool:
    """Whether the partition is on its way to these replicas."""
    staying = tuple(each for each in partition.replicas if each not in partition.removing)
    return partition.is_reassigning and staying == target
