"""`ZooKeeperMetadataStore`: one broker's view of a cluster whose metadata is in ZooKeeper.

As in Apache Kafka with ZooKeeper, the brokers do different things: each keeps its own session and
writes what concerns nobody else's decision (settings, new topics, marks of deletion); the elected
one decides about partitions (`office`), and tells the others. So the image of a broker is made of
what its controller says (`commands`) and of settings, which it reads itself; that of the controller
is what it has read and written. Each of these has a file of its own; here they are put together,
and here stands in which order they end when a session does.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final
from uuid import UUID

from odradek.clock import Clock
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.control import (
    AlterPartition,
    ControlledBroker,
    ControlPlane,
    LeaderAndIsr,
    ReplicaErrors,
    StopReplica,
    UpdateMetadata,
)
from odradek.metadata.image import (
    BrokerRegistration,
    ConfigResource,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
    with_replicas,
    without_replicas,
)
from odradek.metadata.store import (
    ListenerStage,
    MetadataListener,
    MetadataStore,
    MetadataStoreError,
    NewPartitions,
    NewTopic,
    OnDone,
    PartitionChange,
)
from odradek.metadata.zookeeper import decrees, znodes
from odradek.metadata.zookeeper.alterations import Alterations
from odradek.metadata.zookeeper.candidacy import Candidacy
from odradek.metadata.zookeeper.client import (
    Create,
    Failure,
    Node,
    Refusal,
    ZooKeeperClient,
    unexpected,
)
from odradek.metadata.zookeeper.commands import Commands
from odradek.metadata.zookeeper.decrees import difference
from odradek.metadata.zookeeper.membership import UNREGISTERED, Membership
from odradek.metadata.zookeeper.office.office import ControllerOffice
from odradek.metadata.zookeeper.office.wishes import ReplicaPlans
from odradek.metadata.zookeeper.operations import TopicOperations, new_topic_id
from odradek.metadata.zookeeper.publishing import ImagePublisher
from odradek.metadata.zookeeper.settings import LOST, ClusterSettings
from odradek.metadata.zookeeper.znodes import ZnodeError
from odradek.model import EndPoint, TopicPartition
from odradek.timer import Timer

logger = logging.getLogger(__name__)


class ZooKeeperMetadataStore(MetadataStore, ControlledBroker):
    """The view of broker `broker_id`, published into `cache`."""

    def __init__(
        self,
        cache: MetadataCache,
        broker_id: int,
        zookeeper: ZooKeeperClient,
        plane: ControlPlane,
        timer: Timer,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        plans: ReplicaPlans,
    ) -> None:
        self._broker_id: Final = broker_id
        self._zookeeper: Final = zookeeper
        self._plane: Final = plane
        self._timer: Final = timer
        self._plans: Final = plans
        self._random_bytes: Final = random_bytes
        self._session_listeners: Final[list[Callable[[], None]]] = []
        publisher = ImagePublisher(cache, broker_id)
        self._publisher: Final = publisher
        self._settings: Final = ClusterSettings(zookeeper, publisher, broker_id)
        membership = Membership(broker_id, zookeeper, clock, publisher)
        self._membership: Final = membership
        self._candidacy: Final = Candidacy(
            membership, zookeeper, clock, publisher, self._make_office
        )
        self._commands: Final = Commands(membership, self._candidacy, publisher, self._settings)
        self._topics: Final = TopicOperations(membership, zookeeper, publisher, self._new_id)
        self._alterations: Final = Alterations(
            membership, timer, publisher, ask=self._ask_controller, on_answer=self._on_altered
        )
        zookeeper.on_session_lost(self._lose_session)

    # --- start and end ------------------------------------------------------------------------

    def load(self) -> MetadataImage:
        """Connects; publishes who lives and all settings. Of topics the controller tells."""
        self._zookeeper.start()
        for path in znodes.PERSISTENT:
            self._ensure(path)
        cluster_id = self._cluster_id()
        configs, features, features_epoch = self._settings.load()
        image = MetadataImage(
            cluster_id,
            brokers=MappingProxyType(self._live_brokers()),
            features=features,
            features_epoch=features_epoch,
        ).with_configs(configs)
        empty = MetadataImage(cluster_id)
        self._publisher.begin(MetadataDelta(empty, image, configs=configs, brokers_changed=True))
        self._settings.watch()
        return image

    @property
    def deleted_topics(self) -> frozenset[UUID]:
        """None: a controller has replicas of deleted topics stopped when their broker is back."""
        return frozenset()

    def forget_deleted_topics(self) -> None:
        """There are none."""

    def close(self) -> None:
        """Ends the session, and with it this broker's life."""
        if self._membership.is_closed:
            return
        self._membership.is_closed = True
        self._candidacy.close()
        self._refuse_all(BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, "The broker is stopping."))
        self._zookeeper.close()

    def subscribe(self, stage: ListenerStage, listener: MetadataListener) -> None:
        """See `MetadataStore`."""
        self._publisher.subscribe(stage, listener)

    def on_session_lost(self, listener: Callable[[], None]) -> None:
        """See `MetadataStore`."""
        self._session_listeners.append(listener)

    def _ensure(self, path: str) -> None:
        parts = path.strip("/").split("/")
        for count in range(1, len(parts) + 1):
            outcome = self._zookeeper.commit_now([Create("/" + "/".join(parts[:count]))])
            if isinstance(outcome, Refusal) and outcome.failure is not Failure.NODE_EXISTS:
                raise unexpected(outcome)

    def _cluster_id(self) -> str:
        """The id that is there, or a new one; whoever is first names the cluster."""
        self._ensure(znodes.CLUSTER_ID.rpartition("/")[0])
        while True:
            node = self._zookeeper.read_now([znodes.CLUSTER_ID])[znodes.CLUSTER_ID]
            if node is not None:
                try:
                    return znodes.read_cluster_id(node.data)
                except ZnodeError as error:
                    raise MetadataStoreError(str(error)) from error
            data = znodes.cluster_id_json(znodes.uuid_text(self._new_id()))
            self._zookeeper.commit_now([Create(znodes.CLUSTER_ID, data)])

    def _live_brokers(self) -> dict[int, BrokerRegistration]:
        paths = znodes.broker_paths(self._zookeeper.children_now(znodes.BROKER_IDS))
        brokers = {}
        for path, node in self._zookeeper.read_now(list(paths)).items():
            if node is not None:
                broker = _broker(paths[path], node)
                if broker is not None:
                    brokers[broker.id] = broker
        return brokers

    def _new_id(self) -> UUID:
        return new_topic_id(self._random_bytes, self._publisher.image)

    # --- the session, and who is the controller -----------------------------------------------

    def register_broker(
        self,
        broker_id: int,
        endpoints: Sequence[EndPoint],
        rack: str | None,
        on_done: OnDone[BrokerRegistration],
    ) -> None:
        """Begins a session; see `MetadataStore`. What an earlier one of ours has left goes."""
        assert broker_id == self._broker_id, f"this is the store of broker {self._broker_id}"

        def on_end(outcome: BrokerRegistration | BrokerError) -> None:
            on_done(outcome)
            self._commands.go_on()
            if not isinstance(outcome, BrokerError):
                self._candidacy.look()

        self._membership.register(endpoints, rack, on_end)

    def sync(self, on_done: OnDone[None]) -> None:
        """Answers when it is known who is the controller; if it is this broker, when the elections
        that it has begun are written. What other controllers tell is not waited for."""
        self._candidacy.settle(on_done)

    def _lose_session(self) -> None:
        """Others may lead by now: nothing is acknowledged before all listeners know."""
        if self._membership.is_closed:
            return
        if self._membership.end_session():
            for listener in tuple(self._session_listeners):
                listener()
        self._candidacy.end_session()
        self._refuse_all(LOST)
        self._membership.leave()
        self._settings.watch()

    def _refuse_all(self, error: BrokerError) -> None:
        self._publisher.refuse_waiters(error)
        self._candidacy.refuse_waiters(error)
        self._commands.refuse_all()
        self._alterations.lose()
        self._settings.lose()

    def _make_office(
        self, epoch: int, epoch_version: int, on_deposed: Callable[[], None]
    ) -> ControllerOffice:
        return ControllerOffice(
            *(self._broker_id, epoch, epoch_version, self._zookeeper, self._plane, self._timer),
            *(self._publisher, self._settings, self._plans, self._new_id, on_deposed),
        )

    # --- operations ---------------------------------------------------------------------------

    def create_topics(
        self, topics: Sequence[NewTopic], on_done: OnDone[list[TopicImage | BrokerError]]
    ) -> None:
        """Writes topics and their settings; whoever is the controller has them led."""
        self._topics.create_topics(topics, on_done)

    def delete_topics(
        self, topic_ids: Sequence[UUID], on_done: OnDone[list[TopicImage | BrokerError]]
    ) -> None:
        """Marks topics; the controller has them removed."""
        self._topics.delete_topics(topic_ids, on_done)

    def create_partitions(
        self, additions: Sequence[NewPartitions], on_done: OnDone[list[TopicImage | BrokerError]]
    ) -> None:
        """Writes more partitions; whoever is the controller has them led."""
        self._topics.create_partitions(additions, on_done)

    def change_partitions(
        self,
        changes: Sequence[PartitionChange],
        on_done: OnDone[list[PartitionImage | BrokerError]],
    ) -> None:
        """A leader's ISR is asked of the controller; all else only the controller may do."""
        office = self._candidacy.held_office
        if self._membership.epoch != UNREGISTERED and changes and all(map(self._is_own, changes)):
            self._alterations.submit(changes, on_done)
        elif office is not None:
            office.change_partitions(changes, self._broker_id, on_done)
        else:
            on_done([BrokerError(ErrorCode.NOT_CONTROLLER) for _ in changes])

    def alter_configs(
        self, altered: Mapping[ConfigResource, Mapping[str, str | None]], on_done: OnDone[None]
    ) -> None:
        """See `MetadataStore`."""
        self._settings.alter(altered, on_done)

    def update_features(self, levels: Mapping[str, int], on_done: OnDone[None]) -> None:
        """See `MetadataStore`."""
        self._settings.update_features(levels, on_done)

    def allocate_producer_ids(self, count: int, on_done: OnDone[range]) -> None:
        """See `MetadataStore`."""
        self._settings.allocate_producer_ids(count, on_done)

    def report_offline(self, partitions: Sequence[TopicPartition], broker_id: int) -> None:
        """Shows it here, and has the controller look."""
        self._report(partitions, broker_id, is_offline=True)

    def report_online(self, partitions: Sequence[TopicPartition], broker_id: int) -> None:
        """Shows what comes of it here, and has the controller look."""
        self._report(partitions, broker_id, is_offline=False)

    def _report(
        self, partitions: Sequence[TopicPartition], broker_id: int, *, is_offline: bool
    ) -> None:
        office = self._candidacy.held_office
        if office is not None:
            office.report(partitions, broker_id, is_offline=is_offline)
            return
        change = without_replicas if is_offline else with_replicas
        self._publisher.publish(
            lambda image: difference(image, change(image, partitions, broker_id))
        )
        data = znodes.log_dir_event_json(broker_id)
        event = Create(znodes.LOG_DIR_EVENT_PREFIX, data, sequential=True)
        self._zookeeper.commit([event], _ignore)

    # --- a leader's questions -----------------------------------------------------------------

    def _is_own(self, change: PartitionChange) -> bool:
        """Whether this broker leads the partition and changes nothing but its ISR."""
        partition = self._publisher.image.partition(change.topic_partition)
        return (
            partition is not None
            and change.assignment is None
            and change.leader == partition.leader == self._broker_id
        )

    def _ask_controller(
        self, request: AlterPartition, on_done: OnDone[list[PartitionImage | BrokerError]]
    ) -> None:
        image = self._publisher.image
        controller = image.brokers.get(image.controller_id)
        if controller is None:
            on_done(BrokerError(ErrorCode.NOT_CONTROLLER))
        elif controller.id == self._broker_id:
            self.on_alter_partition(request, on_done)
        else:
            self._plane.alter_partition(controller, request, on_done)

    def _on_altered(
        self, change: PartitionChange, outcome: PartitionImage, then: Callable[[], None]
    ) -> None:
        def answered(image: MetadataImage) -> MetadataDelta | None:
            after = decrees.with_outcome(image, change.topic_partition, outcome)
            return None if after is image else difference(image, after)

        self._publisher.publish(answered, then)

    # --- what the controller says, and what it is asked ---------------------------------------

    def on_leader_and_isr(self, request: LeaderAndIsr, on_done: OnDone[ReplicaErrors]) -> None:
        """See `ControlledBroker`."""
        self._commands.on_leader_and_isr(request, on_done)

    def on_update_metadata(self, request: UpdateMetadata, on_done: OnDone[None]) -> None:
        """See `ControlledBroker`."""
        self._commands.on_update_metadata(request, on_done)

    def on_stop_replica(self, request: StopReplica, on_done: OnDone[ReplicaErrors]) -> None:
        """See `ControlledBroker`."""
        self._commands.on_stop_replica(request, on_done)

    def on_alter_partition(
        self, request: AlterPartition, on_done: OnDone[list[PartitionImage | BrokerError]]
    ) -> None:
        """See `ControlledBroker`."""
        office = self._candidacy.held_office
        if office is None:
            on_done(BrokerError(ErrorCode.NOT_CONTROLLER))
        else:
            office.alter_partition(request, on_done)

    def on_controlled_shutdown(
        self, broker_id: int, broker_epoch: int, on_done: OnDone[Sequence[TopicPartition]]
    ) -> None:
        """See `ControlledBroker`."""
        office = self._candidacy.held_office
        if office is None:
            on_done(BrokerError(ErrorCode.NOT_CONTROLLER))
        else:
            office.shut_down(broker_id, broker_epoch, on_done)


def _broker(broker_id: int, node: Node) -> BrokerRegistration | None:
    try:
        return znodes.read_broker(broker_id, node.data, node.created)
    except ZnodeError as error:
        logger.error("a broker is passed over: %s", error)
        return None


def _ignore(outcome: object) -> None:
    """Nobody waits for it."""
