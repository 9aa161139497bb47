"""`ControllerOffice`: what the broker does that was elected controller, for as long as it is.

It reads everything once, and from then on what the watches say has changed (`topics`, `deletions`,
`wishes`, and the brokers here). Every change of partitions goes through one queue (`docket`): it is
worked out on the image that the one before it left, written to ZooKeeper (`writing`), acted on,
published, and told to the other brokers by their feeds. What is written is conditional twice: on
the epoch of the controller, so that one that was deposed writes nothing, and on the version of each
node that the change was worked out on. Where a node turns out to be another, it is read again, and
whoever had asked is told to look.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from odradek.errors import BrokerError, ErrorCode
from odradek.metadata import changes
from odradek.metadata.changes import Change
from odradek.metadata.control import AlterPartition, ControlPlane, Decree
from odradek.metadata.image import (
    BrokerRegistration,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    with_replicas,
    without_replicas,
)
from odradek.metadata.store import OnDone, PartitionChange
from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.client import Failure, Node, ZooKeeperClient
from odradek.metadata.zookeeper.decrees import difference, replicas_of
from odradek.metadata.zookeeper.office.deletions import TopicDeletions
from odradek.metadata.zookeeper.office.docket import Docket
from odradek.metadata.zookeeper.office.feed import BrokerFeed
from odradek.metadata.zookeeper.office.readings import with_come, without_gone
from odradek.metadata.zookeeper.office.term import Term
from odradek.metadata.zookeeper.office.topics import TopicReader
from odradek.metadata.zookeeper.office.wishes import ReplicaPlans, Wishes
from odradek.metadata.zookeeper.office.writing import StateWriter
from odradek.metadata.zookeeper.publishing import ImagePublisher
from odradek.metadata.zookeeper.settings import ClusterSettings
from odradek.metadata.zookeeper.znodes import ZnodeError
from odradek.model import TopicPartition
from odradek.timer import Timer

logger = logging.getLogger(__name__)


class ControllerOffice:
    """The controller of an epoch. `open` begins its term, `close` ends it."""

    def __init__(
        self,
        broker_id: int,
        epoch: int,
        epoch_version: int,
        zookeeper: ZooKeeperClient,
        plane: ControlPlane,
        timer: Timer,
        publisher: ImagePublisher,
        settings: ClusterSettings,
        plans: ReplicaPlans,
        new_id: Callable[[], UUID],
        on_deposed: Callable[[], None],
    ) -> None:
        self._plane: Final = plane
        self._timer: Final = timer
        self._publisher: Final = publisher
        self._plans: Final = plans
        self._on_deposed: Final = on_deposed
        self._feeds: Final[dict[int, BrokerFeed]] = {}
        term = Term(broker_id, epoch, epoch_version, zookeeper)
        self._term: Final = term
        docket = Docket(
            term,
            publisher,
            StateWriter(term, on_deposed, on_lost=self.close),
            on_refused=lambda refused: self._topics.read_again(refused),
            on_done=lambda: self._wishes.end_reassignments(),
        )
        self._docket: Final = docket
        self._deletions: Final = TopicDeletions(
            term, docket, publisher, self._feeds, on_removed=lambda: self._topics.read_all()
        )
        self._topics: Final = TopicReader(
            term, docket, publisher, settings, self._deletions, new_id
        )
        self._wishes: Final = Wishes(term, docket, publisher, plans, self._feeds, self._topics.read)

    @property
    def epoch(self) -> int:
        """That of the controller."""
        return self._term.epoch

    # --- the term -----------------------------------------------------------------------------

    def open(self, on_open: Callable[[], None]) -> None:
        """Takes over: everything is read, and with the first image of this controller its brokers
        are told of it."""

        def on_read() -> None:
            if not self._term.is_open:
                return
            self._deletions.read()
            self._wishes.read_all()
            on_open()

        self._read_brokers(lambda: self._topics.read_all(on_read))

    def close(self) -> None:
        """Ends the term: nothing is written or told any more; who waits hears of it."""
        if not self._term.is_open:
            return
        self._term.close()
        for feed in self._feeds.values():
            feed.close()
        self._feeds.clear()
        self._docket.refuse_all()

    def on_published(self, delta: MetadataDelta) -> None:
        """Notes for the other brokers what has changed, and tells them."""
        if not self._term.is_open:
            return
        for broker_id, feed in list(self._feeds.items()):
            broker = delta.image.brokers.get(broker_id)
            if broker is None or broker.epoch != feed.broker.epoch:
                feed.close()
                del self._feeds[broker_id]
            else:
                feed.note(delta)
        for broker in delta.image.brokers.values():
            if broker.id != self._term.broker_id and broker.id not in self._feeds:
                self._feeds[broker.id] = self._feed(broker)
        for feed in list(self._feeds.values()):
            feed.poke()

    def _feed(self, broker: BrokerRegistration) -> BrokerFeed:
        feed = BrokerFeed(
            broker,
            Decree(self._term.broker_id, self._term.epoch, broker.epoch),
            self._plane,
            self._timer,
            lambda: self._publisher.image,
            on_served=self._on_served,
            on_stopped=self._deletions.on_stopped,
            on_deposed=self._on_deposed,
        )
        self._deletions.tell(feed)
        return feed

    # --- what brokers ask ---------------------------------------------------------------------

    def change_partitions(
        self,
        wanted: Sequence[PartitionChange],
        broker_id: int,
        on_done: OnDone[list[PartitionImage | BrokerError]],
    ) -> None:
        """See `MetadataStore.change_partitions`; asked for by a broker."""

        def settle(
            change: Change[list[PartitionImage | BrokerError]], refused: set[TopicPartition]
        ) -> list[PartitionImage | BrokerError]:
            return [
                BrokerError(ErrorCode.INVALID_UPDATE_VERSION)
                if each.topic_partition in refused
                else outcome
                for each, outcome in zip(wanted, change.result, strict=True)
            ]

        self._docket.submit(
            lambda image: changes.change_partitions(image, wanted, broker_id), on_done, settle
        )

    def alter_partition(
        self, request: AlterPartition, on_done: OnDone[list[PartitionImage | BrokerError]]
    ) -> None:
        """See `ControlledBroker.on_alter_partition`."""
        broker = self._publisher.image.brokers.get(request.broker_id)
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
        """What is refused, and what is so already; None for what is to be written."""
        image = self._publisher.image
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
        if not set(change.isr) <= image.brokers.keys():
            return BrokerError(ErrorCode.INELIGIBLE_REPLICA)
        if partition.leader != leader_id or change.leader != partition.leader:
            return BrokerError(ErrorCode.INVALID_REQUEST)
        return None

    def shut_down(
        self, broker_id: int, broker_epoch: int, on_done: OnDone[Sequence[TopicPartition]]
    ) -> None:
        """See `ControlledBroker.on_controlled_shutdown`."""
        broker = self._publisher.image.brokers.get(broker_id)
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
            image = self._publisher.image
            mine = replicas_of(image, broker_id)
            # Who has the only replica waits for nobody: no one else will ever lead it.
            on_done([each for each in mine if _leads_others(image, each, broker_id)])

        def prepare(image: MetadataImage) -> Change[list[PartitionImage | BrokerError]]:
            plan = self._plans.controlled_shutdown(image, broker_id)
            return changes.change_partitions(image, plan, self._term.broker_id)

        logger.info("broker %d is about to stop: others are to lead", broker_id)
        self._docket.submit(prepare, on_changed)

    def report(
        self, partitions: Sequence[TopicPartition], broker_id: int, *, is_offline: bool
    ) -> None:
        """Replicas of a broker cannot be served any more, or again."""
        change = without_replicas if is_offline else with_replicas

        def prepare(image: MetadataImage) -> Change[None]:
            return Change(None, difference(image, change(image, partitions, broker_id)))

        self._docket.submit(prepare)

    def settle(self, on_done: OnDone[None]) -> None:
        """Answers when what was begun before has taken effect."""
        self._docket.submit(lambda _: Change(None), on_done)

    # --- which brokers there are --------------------------------------------------------------

    def _read_brokers(self, then: Callable[[], None] = lambda: None) -> None:
        def on_children(names: tuple[str, ...] | Failure) -> None:
            if isinstance(names, Failure) or not self._term.is_open:
                return
            paths = znodes.broker_paths(names)
            self._term.gather(paths, lambda nodes: on_nodes(paths, nodes))

        def on_nodes(paths: Mapping[str, int], nodes: Mapping[str, Node | None]) -> None:
            if not self._term.is_open:
                return
            brokers = {}
            for path, node in nodes.items():
                if node is None:
                    continue
                try:
                    broker = znodes.read_broker(paths[path], node.data, node.created)
                except ZnodeError as error:
                    logger.error("a broker is passed over: %s", error)
                    continue
                brokers[broker.id] = broker
            if not self._topics.is_complete:
                self._topics.brokers_at_start = brokers
            else:
                self._docket.submit(partial(without_gone, brokers=brokers))
                self._docket.submit(partial(with_come, brokers=brokers))
            then()

        self._term.watch_children(znodes.BROKER_IDS, on_children, self._read_brokers)

    def _on_served(self, broker: BrokerRegistration, served: Mapping[TopicPartition, bool]) -> None:
        """A broker has said which of its replicas it can serve."""
        image = self._publisher.image
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
