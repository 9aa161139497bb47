"""`ElectedController`: the work of the broker that was elected controller, while it is.

It reads everything once, and then whatever a watch reports as changed (`topic_reader`,
`topic_deletions`, `requested_reassignments`, `admin_znodes`, and the brokers here). Every change of
partitions goes through one event queue: it is worked out on the image that the one before it left,
written to ZooKeeper (`state_writer`), acted on, published, and told to the other brokers over their
channels. Writes are conditional twice: on the epoch of the controller, so a deposed one writes
nothing, and on the version of each node that the change is based on. If a node has another version,
it is read again, and the requester gets an error that makes it look again.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from odradek.controller.elected.admin_znodes import AdminZnodes
from odradek.controller.elected.broker_channel import BrokerChannel
from odradek.controller.elected.context import ControllerContext
from odradek.controller.elected.event_queue import ControllerEventQueue, with_refusals
from odradek.controller.elected.image_changes import with_come, with_partitions, without_gone
from odradek.controller.elected.requested_reassignments import RequestedReassignments
from odradek.controller.elected.state_writer import StateWriter
from odradek.controller.elected.topic_deletions import TopicDeletions
from odradek.controller.elected.topic_reader import TopicReader
from odradek.controller.replicas.elections import plan_controlled_shutdown
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.changes import Change, difference, replicas_of
from odradek.metadata.control import AlterPartition, ControlHeader, ControlPlane
from odradek.metadata.engine import BrokerView
from odradek.metadata.image import (
    BrokerRegistration,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    with_replicas,
    without_replicas,
)
from odradek.metadata.serial_queue import SerialQueue
from odradek.metadata.store import OnDone, PartitionChange
from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.client import Failure, Node
from odradek.metadata.zookeeper.cluster_configs import ClusterConfigs
from odradek.metadata.zookeeper.znodes import ZnodeError
from odradek.model import TopicPartition
from odradek.timer import Timer

logger = logging.getLogger(__name__)


class ElectedController:
    """The controller of the epoch of `context`: from `open` to `close`."""

    def __init__(
        self,
        context: ControllerContext,
        plane: ControlPlane,
        timer: Timer,
        view: BrokerView,
        configs: ClusterConfigs,
        new_id: Callable[[], UUID],
        ids_in_logs: Callable[[], Mapping[str, UUID]],
        on_deposed: Callable[[], None],
    ) -> None:
        self._plane: Final = plane
        self._timer: Final = timer
        self._view: Final = view
        self._on_deposed: Final = on_deposed
        self._channels: Final[dict[int, BrokerChannel]] = {}
        self._turns: Final = SerialQueue()
        # Called once when the brokers have been read.
        self._when_read: list[Callable[[], None]] = []
        self._context: Final = context
        events = ControllerEventQueue(
            context,
            view,
            StateWriter(context, on_deposed, self.close, view.attempt_later),
            on_refused=lambda refused: self._topics.on_refused(refused),
            on_done=lambda: self._reassignments.end(),
        )
        self._events: Final = events
        self._deletions: Final = TopicDeletions(
            context,
            events,
            view,
            timer,
            self._channels,
            on_removed=lambda: self._topics.read_all(),
        )
        self._topics: Final = TopicReader(
            context,
            events,
            view,
            timer,
            configs,
            self._deletions,
            self._channels,
            new_id,
            ids_in_logs,
        )
        self._admin_znodes: Final = AdminZnodes(context, events, self._channels, self._topics.read)
        self._reassignments: Final = RequestedReassignments(context, events, view, timer)

    @property
    def epoch(self) -> int:
        """That of the controller."""
        return self._context.epoch

    @property
    def has_read(self) -> bool:
        """Whether the image is this controller's, and no longer an earlier controller's."""
        return self._topics.is_complete

    # --- its epoch ----------------------------------------------------------------------------

    def open(self, on_open: Callable[[], None]) -> None:
        """Takes over: everything is read, and with the first image of this controller its brokers
        are told of it."""

        def on_read() -> None:
            if not self._context.is_open:
                return
            self._deletions.read()
            self._reassignments.begin()
            self._admin_znodes.read_all()
            on_open()

        def read_topics() -> None:
            self._topics.read_all(on_read)

        self._when_read.append(lambda: self._reassignments.read(read_topics))
        self._read_brokers()

    def close(self) -> None:
        """Ends it: it writes and sends nothing any more; waiting requests are answered with an
        error."""
        if not self._context.is_open:
            return
        self._context.close()
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
        self._events.refuse_all()

    def on_published(self, delta: MetadataDelta) -> None:
        """Notes for the other brokers what has changed, and tells them; until everything is read
        the image is what others have told this broker, and not for this controller to tell."""
        if not self._context.is_open or not self.has_read:
            return
        for broker_id, channel in list(self._channels.items()):
            broker = delta.image.brokers.get(broker_id)
            if broker is None or broker.epoch != channel.broker.epoch:
                channel.close()
                del self._channels[broker_id]
            else:
                channel.note(delta)
        for broker in delta.image.brokers.values():
            if broker.id != self._context.broker_id and broker.id not in self._channels:
                self._channels[broker.id] = self._channel(broker)
        for channel in list(self._channels.values()):
            channel.poke()

    def _channel(self, broker: BrokerRegistration) -> BrokerChannel:
        channel = BrokerChannel(
            broker,
            ControlHeader(self._context.broker_id, self._context.epoch, broker.epoch),
            self._plane,
            self._timer,
            self._view,
            self._turns,
            on_told=lambda told: self._topics.on_told(told.id),
            on_served=self._on_served,
            on_stopped=self._deletions.on_stopped,
            on_deposed=self._on_deposed,
        )
        self._deletions.tell(channel)
        return channel

    # --- what brokers ask ---------------------------------------------------------------------

    def change_partitions(
        self,
        wanted: Sequence[PartitionChange],
        broker_id: int,
        on_done: OnDone[list[PartitionImage | BrokerError]],
    ) -> None:
        """See `MetadataStore.change_partitions`; asked for by a broker."""
        self._reassignments.overrule(
            wanted,
            lambda: self._events.submit(
                lambda image: with_partitions(image, wanted, broker_id),
                on_done,
                with_refusals(wanted),
            ),
        )

    def alter_partition(
        self, request: AlterPartition, on_done: OnDone[list[PartitionImage | BrokerError]]
    ) -> None:
        """See `ControlledBroker.on_alter_partition`."""
        broker = self._view.image.brokers.get(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            on_done(BrokerError(ErrorCode.STALE_BROKER_EPOCH))
            return
        answers = [
            self._answer_at_once(change, leader_epoch, request.broker_id)
            for change, leader_epoch in zip(request.changes, request.leader_epochs, strict=True)
        ]
        accepted = [
            change
            for change, answer in zip(request.changes, answers, strict=True)
            if answer is None
        ]

        def on_changed(outcome: list[PartitionImage | BrokerError] | BrokerError) -> None:
            if isinstance(outcome, BrokerError):
                on_done(outcome)
                return
            rest = iter(outcome)
            on_done([next(rest) if answer is None else answer for answer in answers])

        self.change_partitions(accepted, request.broker_id, on_changed)

    def _answer_at_once(
        self, change: PartitionChange, leader_epoch: int, leader_id: int
    ) -> PartitionImage | BrokerError | None:
        """The answer to a request that is refused or needs no change; None if it has to be
        written."""
        image = self._view.image
        partition = image.partition(change.topic_partition)
        if partition is None:
            return BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if leader_epoch > partition.leader_epoch or change.partition_epoch > (
            partition.partition_epoch
        ):
            # Somebody has written what this broker has not seen: a later controller.
            return BrokerError(ErrorCode.NOT_CONTROLLER)
        if leader_epoch < partition.leader_epoch:
            return BrokerError(ErrorCode.FENCED_LEADER_EPOCH)
        if change.isr == partition.isr:
            return partition
        if change.partition_epoch < partition.partition_epoch:
            return BrokerError(ErrorCode.INVALID_UPDATE_VERSION)
        joining = set(change.isr) - set(partition.isr)
        if not set(change.isr) <= image.brokers.keys() or joining & set(partition.offline):
            return BrokerError(ErrorCode.INELIGIBLE_REPLICA)
        if partition.leader != leader_id or change.leader != partition.leader:
            return BrokerError(ErrorCode.INVALID_REQUEST)
        return None

    def shut_down(
        self, broker_id: int, broker_epoch: int, on_done: OnDone[Sequence[TopicPartition]]
    ) -> None:
        """See `ControlledBroker.on_controlled_shutdown`."""
        broker = self._view.image.brokers.get(broker_id)
        if broker_epoch >= 0 and (broker is None or broker.epoch != broker_epoch):
            on_done(BrokerError(ErrorCode.STALE_BROKER_EPOCH))
            return
        if broker is None:
            on_done(BrokerError(ErrorCode.BROKER_NOT_AVAILABLE))
            return

        def on_changed(outcome: list[PartitionImage | BrokerError] | BrokerError) -> None:
            if isinstance(outcome, BrokerError):
                on_done(outcome)
                return
            image = self._view.image
            mine = replicas_of(image, broker_id)
            # A broker with the only replica waits for nobody: no other broker will ever lead it.
            on_done([each for each in mine if _leads_others(image, each, broker_id)])

        def prepare(image: MetadataImage) -> Change[list[PartitionImage | BrokerError]]:
            plan = plan_controlled_shutdown(image, broker_id)
            return with_partitions(image, plan, self._context.broker_id)

        logger.info("broker %d is about to stop: others are to lead", broker_id)
        self._events.submit(prepare, on_changed)

    def report(
        self, partitions: Sequence[TopicPartition], broker_id: int, *, is_offline: bool
    ) -> None:
        """Replicas of a broker cannot be served any more, or again. If the broker is gone, they
        stay offline until it is back: it may have answered before it went."""
        change = without_replicas if is_offline else with_replicas

        def prepare(image: MetadataImage) -> Change[None]:
            if not is_offline and broker_id not in image.brokers:
                return Change(None)
            return Change(None, difference(image, change(image, partitions, broker_id)))

        self._events.submit(prepare)

    def settle(self, on_done: OnDone[None]) -> None:
        """Answers when what was begun before has taken effect."""
        self._events.submit(lambda _: Change(None), on_done)

    # --- which brokers there are --------------------------------------------------------------

    def _read_brokers(self) -> None:
        def on_children(names: tuple[str, ...] | Failure) -> None:
            if isinstance(names, Failure) or not self._context.is_open:
                return
            paths = znodes.broker_paths(names)
            self._context.gather(
                paths, lambda nodes: on_nodes(paths, nodes), lambda _path: self._read_brokers()
            )

        def on_nodes(paths: Mapping[str, int], nodes: Mapping[str, Node | None]) -> None:
            if not self._context.is_open:
                return
            found = [
                self._broker(paths[path], node) for path, node in nodes.items() if node is not None
            ]
            brokers = {broker.id: broker for broker in found if broker is not None}
            if not self._topics.is_complete:
                self._topics.brokers_at_start = brokers
            else:
                self._events.submit(partial(without_gone, brokers=brokers))
                self._events.submit(partial(with_come, brokers=brokers))
            self._topics.on_brokers()
            when_read, self._when_read = self._when_read, []
            for each in when_read:
                each()

        self._context.watch_children(znodes.BROKER_IDS, on_children, self._read_brokers)

    def _broker(self, broker_id: int, node: Node) -> BrokerRegistration | None:
        """The broker of a node. If a node cannot be read, the known values stay: the broker lives
        as long as its node exists."""
        try:
            return znodes.read_broker(broker_id, node.data, node.created)
        except ZnodeError as error:
            known = self._view.image.brokers.get(broker_id)
            if known is None:
                logger.error("a broker is ignored: %s", error)
                return None
            logger.error("broker %d is not updated: %s", broker_id, error)
            return known._replace(epoch=node.created or known.epoch)

    def _on_served(self, broker: BrokerRegistration, served: Mapping[TopicPartition, bool]) -> None:
        """A broker has said which of its replicas it can serve."""
        image = self._view.image
        failed: list[TopicPartition] = []
        back: list[TopicPartition] = []
        for where, is_served in served.items():
            partition = image.partition(where)
            if partition is None or (broker.id in partition.offline) != is_served:
                continue
            (back if is_served else failed).append(where)
        if failed:
            logger.warning("broker %d cannot serve %d replicas", broker.id, len(failed))
            self.report(failed, broker.id, is_offline=True)
        if back:
            logger.info("broker %d serves %d replicas again", broker.id, len(back))
            self.report(back, broker.id, is_offline=False)


def _leads_others(image: MetadataImage, where: TopicPartition, broker_id: int) -> bool:
    partition = image.partition(where)
    return partition is not None and partition.leader == broker_id and len(partition.replicas) > 1
