"""`Wishes`: what tools and brokers of old ask the controller for by nodes: reassignments, preferred
leaders, a look at other in-sync replicas or at failed directories."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from odradek.errors import BrokerError
from odradek.metadata import changes
from odradek.metadata.changes import Change
from odradek.metadata.image import MetadataImage, PartitionImage
from odradek.metadata.store import PartitionChange
from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.client import Delete, Failure, Node, Operation, SetData
from odradek.metadata.zookeeper.office.docket import Docket
from odradek.metadata.zookeeper.office.feed import BrokerFeed
from odradek.metadata.zookeeper.office.term import Term
from odradek.metadata.zookeeper.publishing import ImagePublisher
from odradek.metadata.zookeeper.znodes import ZnodeError
from odradek.model import TopicPartition

logger = logging.getLogger(__name__)


class ReplicaPlans(NamedTuple):
    """What is decided about replicas; pure functions of the floor above."""

    controlled_shutdown: Callable[[MetadataImage, int], list[PartitionChange]]
    reassignment: Callable[
        [MetadataImage, TopicPartition, tuple[int, ...] | None], PartitionChange | None
    ]
    """Raises BrokerError where there can be none."""
    preferred_election: Callable[[MetadataImage, TopicPartition], PartitionChange]
    """Raises BrokerError where it is not needed or cannot be."""


class Wishes:
    """Asked of the controller of `term`; `read_topic` reads the states of a topic again."""

    def __init__(
        self,
        term: Term,
        docket: Docket,
        publisher: ImagePublisher,
        plans: ReplicaPlans,
        feeds: Mapping[int, BrokerFeed],
        read_topic: Callable[[str], None],
    ) -> None:
        self._term: Final = term
        self._docket: Final = docket
        self._publisher: Final = publisher
        self._plans: Final = plans
        self._feeds: Final = feeds
        self._read_topic: Final = read_topic
        self._reassignments: dict[TopicPartition, tuple[int, ...]] = {}

    def read_all(self) -> None:
        """Looks what is asked for, and from now on whenever something is."""
        self._read_reassignments()
        self._read_elections()
        self._read_isr_changes()
        self._read_log_dir_events()

    def end_reassignments(self) -> None:
        """Takes what is done, or cannot be, out of the node."""
        if not self._reassignments or not self._docket.is_empty:
            return
        image = self._publisher.image
        left = {}
        for where, replicas in self._reassignments.items():
            partition = image.partition(where)
            if partition is not None and partition.is_reassigning:
                left[where] = replicas
        if left == self._reassignments:
            return
        self._reassignments = left
        path = znodes.REASSIGNMENTS
        operation: Operation = Delete(path)
        if left:
            operation = SetData(path, znodes.reassignments_json(left), -1)
        self._term.commit([operation])

    def _read_reassignments(self) -> None:
        def on_node(node: Node | Failure | None) -> None:
            if not isinstance(node, Node) or not self._term.is_open:
                return
            try:
                wishes = znodes.read_reassignments(node.data)
            except ZnodeError as error:
                logger.error("reassignments are not begun: %s", error)
                return
            new = {tp: to for tp, to in wishes.items() if self._reassignments.get(tp) != to}
            self._reassignments = dict(wishes)
            if new:
                self._change_each(
                    new, lambda image, where: self._plans.reassignment(image, where, new[where])
                )
            self.end_reassignments()

        self._term.watch_node(znodes.REASSIGNMENTS, on_node, self._read_reassignments)

    def _read_elections(self) -> None:
        def on_node(node: Node | Failure | None) -> None:
            if not isinstance(node, Node) or not self._term.is_open:
                return
            try:
                wanted = znodes.read_elections(node.data)
            except ZnodeError as error:
                logger.error("leaders are not elected: %s", error)
                wanted = []
            self._change_each(wanted, self._plans.preferred_election)
            self._term.commit([Delete(znodes.PREFERRED_ELECTION)])

        self._term.watch_node(znodes.PREFERRED_ELECTION, on_node, self._read_elections)

    def _change_each(
        self,
        partitions: Iterable[TopicPartition],
        plan: Callable[[MetadataImage, TopicPartition], PartitionChange | None],
    ) -> None:
        def prepare(image: MetadataImage) -> Change[list[PartitionImage | BrokerError]]:
            planned = []
            for each in partitions:
                try:
                    change = plan(image, each)
                except BrokerError as error:
                    logger.info("%s is passed over: %s", each, error)
                    continue
                if change is not None:
                    planned.append(change)
            return changes.change_partitions(image, planned, self._term.broker_id)

        self._docket.submit(prepare, lambda _: self.end_reassignments())

    def _read_isr_changes(self) -> None:
        """Brokers of old change their ISR by themselves, and say so here."""

        def on_found(path: str, node: Node) -> None:
            for topic in {each.topic for each in znodes.read_isr_change(path, node.data)}:
                self._read_topic(topic)

        self._read_events(znodes.ISR_CHANGES, on_found, self._read_isr_changes)

    def _read_log_dir_events(self) -> None:
        """A broker has lost a directory: it is asked which replicas it can serve."""

        def on_found(path: str, node: Node) -> None:
            feed = self._feeds.get(znodes.read_log_dir_event(path, node.data))
            if feed is not None:
                feed.note_roles()
                feed.poke()

        self._read_events(znodes.LOG_DIR_EVENTS, on_found, self._read_log_dir_events)

    def _read_events(
        self, folder: str, on_found: Callable[[str, Node], None], again: Callable[[], None]
    ) -> None:
        def on_children(names: tuple[str, ...] | Failure) -> None:
            if not isinstance(names, Failure) and self._term.is_open:
                self._term.gather([f"{folder}/{name}" for name in names], on_nodes)

        def on_nodes(nodes: Mapping[str, Node | None]) -> None:
            for path, node in nodes.items():
                if node is None or not self._term.is_open:
                    continue
                try:
                    on_found(path, node)
                except ZnodeError as error:
                    logger.error("an event is passed over: %s", error)
                self._term.commit([Delete(path)])

        self._term.watch_children(folder, on_children, again)
