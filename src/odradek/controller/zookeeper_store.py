"""`ZooKeeperMetadataStore`: one broker's view of a cluster whose metadata is in ZooKeeper.

As in Apache Kafka with ZooKeeper, the brokers do different things: each keeps its own session and
writes whatever needs no decision of the controller (settings, new topics, marks of deletion); the
elected one decides about partitions (`elected`), and informs the others. So a broker's image
consists of the controller's requests (`control_requests`) and of settings, which it reads itself;
the controller's image is what it has read and written. Each of these has its own module; this one
joins them, and ends them in order when a session ends.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final
from uuid import UUID

from odradek.acl import AclBinding
from odradek.client_quota import QuotaEntity, QuotaKey
from odradek.clock import Clock
from odradek.controller.elected.context import ControllerContext
from odradek.controller.elected.elected_controller import ElectedController
from odradek.controller.elected.election import ControllerElection
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.changes import difference, new_topic_id
from odradek.metadata.control import (
    AlterPartition,
    ControlledBroker,
    ControlPlane,
    LeaderAndIsr,
    ReplicaErrors,
    StopReplica,
    UpdateMetadata,
)
from odradek.metadata.engine import BrokerView, MetadataEngine
from odradek.metadata.fail_stop import OnBroken, fail
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
from odradek.metadata.zookeeper import metadata_updates as updates
from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.announcements import Announcements
from odradek.metadata.zookeeper.client import (
    LOST,
    Create,
    Created,
    Failure,
    Node,
    Refusal,
    ZooKeeperClient,
    unexpected,
)
from odradek.metadata.zookeeper.cluster_configs import ClusterConfigs
from odradek.metadata.zookeeper.control_requests import ControlRequests
from odradek.metadata.zookeeper.image_waiters import ImageWaiters
from odradek.metadata.zookeeper.isr_changes import IsrChanges
from odradek.metadata.zookeeper.membership import UNREGISTERED, Membership
from odradek.metadata.zookeeper.security import acl_znodes, tokens
from odradek.metadata.zookeeper.security.acls import Acls, ClusterAcls
from odradek.metadata.zookeeper.security.quotas import ClusterQuotas
from odradek.metadata.zookeeper.security.tokens import ClusterTokens
from odradek.metadata.zookeeper.topic_ids import write_ids_back
from odradek.metadata.zookeeper.topic_operations import TopicOperations
from odradek.metadata.zookeeper.znodes import ZnodeError
from odradek.model import ConfigResourceType, EndPoint, TopicPartition
from odradek.protocol.uuids import uuid_text
from odradek.timer import Timer, TimerTask

logger = logging.getLogger(__name__)

RETRY_MS: Final = 200


class ZooKeeperMetadataStore(MetadataStore, ControlledBroker):
    """The view of broker `broker_id`, published into `cache`. `ids_in_logs` gives the ids that
    topics have in the logs here, `is_missing_logs` whether a log directory could not be read."""

    def __init__(
        self,
        cache: MetadataCache,
        broker_id: int,
        zookeeper: ZooKeeperClient,
        plane: ControlPlane,
        timer: Timer,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        on_broken: OnBroken = fail,
        *,
        ids_in_logs: Callable[[], Mapping[str, UUID]] = dict,
        is_missing_logs: Callable[[], bool] = bool,
        keeps_acls: bool = False,
        keeps_tokens: bool = False,
    ) -> None:
        self._broker_id: Final = broker_id
        self._zookeeper: Final = zookeeper
        self._plane: Final = plane
        self._timer: Final = timer
        self._random_bytes: Final = random_bytes
        self._ids_in_logs: Final = ids_in_logs
        self._session_listeners: Final[list[Callable[[], None]]] = []
        view = BrokerView(MetadataEngine(), cache, broker_id, on_broken, timer.call_threadsafe)
        view.engine.views.append(view)
        self._waiters: Final = ImageWaiters(view)
        self._view: Final = view
        announcements = Announcements(zookeeper, znodes.CONFIG_CHANGES)
        self._announcements: Final = announcements
        self._configs: Final = ClusterConfigs(zookeeper, view, broker_id, announcements)
        self._quotas: Final = ClusterQuotas(zookeeper, view, announcements)
        # A broker without an authorizer does not follow ACLs.
        self._acls: Final = ClusterAcls(zookeeper, view) if keeps_acls else None
        self._tokens: Final = ClusterTokens(zookeeper, view) if keeps_tokens else None
        membership = Membership(broker_id, zookeeper, clock, view, is_missing_logs)
        self._membership: Final = membership
        self._election: Final = ControllerElection(
            membership, zookeeper, clock, timer, view, self._make_controller
        )
        self._control_requests: Final = ControlRequests(
            membership, self._election, view, self._configs, self._write_ids_back
        )
        self._topics: Final = TopicOperations(
            membership, zookeeper, view, self._waiters, self._new_id
        )
        self._isr_changes: Final = IsrChanges(
            membership, timer, view, ask=self._ask_controller, on_answer=self._on_altered
        )
        # After the other followers of the image: waiters may use their results.
        view.follow(lambda _: self._waiters.look())
        zookeeper.on_session_lost(self._lose_session)

    # --- start and end ------------------------------------------------------------------------

    def load(self) -> MetadataImage:
        """Connects; publishes the live brokers and all settings. The controller sends topics."""
        self._zookeeper.start()
        for path in znodes.PERSISTENT:
            self._ensure(path)
        cluster_id = self._cluster_id()
        self._announcements.load()
        configs, features, features_epoch = self._configs.load()
        configs.update(self._load_tokens())
        acls, quotas = self._load_acls(), self._quotas.load()
        image = (
            MetadataImage(
                cluster_id,
                brokers=MappingProxyType(self._live_brokers()),
                features=features,
                features_epoch=features_epoch,
            )
            .with_configs(configs)
            .with_acls(acls)
            .with_client_quotas(quotas)
        )
        empty = MetadataImage(cluster_id)
        delta = MetadataDelta(
            empty,
            image,
            configs=configs,
            acls=acls,
            client_quotas=quotas,
            brokers_changed=True,
        )
        # No listener has to act on it: there are no topics yet.
        self._view.engine.image = image
        self._view.cache.is_told = self._view.cache.is_current = False
        self._view.cache.publish(delta)
        self._watch()
        return image

    @property
    def deleted_topics(self) -> frozenset[UUID]:
        """None: a controller has replicas of deleted topics stopped when their broker is back."""
        return frozenset()

    def forget_deleted_topics(self) -> None:
        """There are none."""

    def close(self) -> None:
        """Ends the session, and with it this broker's registration."""
        if self._membership.is_closed:
            return
        self._membership.is_closed = True
        self._election.close()
        self._refuse_all(BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, "The broker is stopping."))
        self._zookeeper.close()
        self._view.engine.close()

    def subscribe(self, stage: ListenerStage, listener: MetadataListener) -> None:
        """See `MetadataStore`."""
        self._view.subscribe(stage, listener)

    def on_session_lost(self, listener: Callable[[], None]) -> None:
        """See `MetadataStore`."""
        self._session_listeners.append(listener)

    def _load_acls(self) -> Acls:
        if self._acls is None:
            return {}
        for path in acl_znodes.PERSISTENT:
            self._ensure(path)
        return self._acls.load()

    def _load_tokens(self) -> dict[ConfigResource, dict[str, str]]:
        if self._tokens is None:
            return {}
        for path in tokens.PERSISTENT:
            self._ensure(path)
        return self._tokens.load()

    def _watch(self) -> None:
        self._announcements.watch()
        self._configs.watch()
        if self._acls is not None:
            self._acls.watch()
        if self._tokens is not None:
            self._tokens.watch()

    def _ensure(self, path: str) -> None:
        parts = path.strip("/").split("/")
        for count in range(1, len(parts) + 1):
            outcome = self._zookeeper.commit_now([Create("/" + "/".join(parts[:count]))])
            if isinstance(outcome, Refusal) and outcome.failure is not Failure.NODE_EXISTS:
                raise unexpected(outcome)

    def _cluster_id(self) -> str:
        """The existing id, or a new one; the first broker names the cluster."""
        self._ensure(znodes.CLUSTER_ID.rpartition("/")[0])
        while True:
            node = self._zookeeper.read_now([znodes.CLUSTER_ID])[znodes.CLUSTER_ID]
            if node is not None:
                try:
                    return znodes.read_cluster_id(node.data)
                except ZnodeError as error:
                    raise MetadataStoreError(str(error)) from error
            data = znodes.cluster_id_json(uuid_text(self._new_id()))
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
        return new_topic_id(self._random_bytes, self._view.image)

    # --- the session, and who is the controller -----------------------------------------------

    def register_broker(
        self,
        broker_id: int,
        endpoints: Sequence[EndPoint],
        rack: str | None,
        on_done: OnDone[BrokerRegistration],
    ) -> None:
        """Begins a session; see `MetadataStore`. The znodes of our earlier session are removed."""
        assert broker_id == self._broker_id, f"this is the store of broker {self._broker_id}"

        def on_end(outcome: BrokerRegistration | BrokerError) -> None:
            on_done(outcome)
            self._control_requests.go_on()
            if not isinstance(outcome, BrokerError):
                self._election.look()

        register = partial(self._membership.register, endpoints, rack, on_end)
        if self._view.cache.is_told:
            register()
        else:
            self._write_ids_back((), register, on_lost=lambda: on_end(LOST))

    def _write_ids_back(
        self,
        known: Collection[str],
        then: Callable[[], None],
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        """Writes back the ids of topics that are not `known`."""
        ids = {name: each for name, each in self._ids_in_logs().items() if name not in known}
        write_ids_back(self._zookeeper, self._broker_id, ids, then, on_lost or then)

    def sync(self, on_done: OnDone[None]) -> None:
        """Answers when it is known who is the controller; if it is this broker, when its elections
        are written. It does not wait for requests of other controllers."""
        self._election.settle(on_done)

    def _lose_session(self) -> None:
        """Ends the session: others may lead by now, so nothing is acknowledged before all listeners
        know."""
        if self._membership.is_closed:
            return
        was_registered = self._membership.end_session()
        self._view.cache.is_current = False
        # The rest of a change must not make this broker lead after its listeners know.
        self._view.engine.cut_short(BrokerError(ErrorCode.NOT_CONTROLLER))
        if was_registered:
            for listener in tuple(self._session_listeners):
                listener()
        self._election.end_session()
        self._refuse_all(LOST)
        self._membership.leave()
        self._watch()

    def _refuse_all(self, error: BrokerError) -> None:
        self._waiters.refuse_all(error)
        self._election.refuse_waiters(error)
        self._control_requests.refuse_all()
        self._isr_changes.lose()
        self._announcements.lose()
        self._configs.lose()
        if self._acls is not None:
            self._acls.lose()
        if self._tokens is not None:
            self._tokens.lose()

    def _make_controller(
        self, epoch: int, epoch_version: int, on_deposed: Callable[[], None]
    ) -> ElectedController:
        return ElectedController(
            ControllerContext(self._broker_id, epoch, epoch_version, self._zookeeper),
            self._plane,
            self._timer,
            self._view,
            self._configs,
            self._new_id,
            self._ids_in_logs,
            on_deposed,
        )

    # --- operations ---------------------------------------------------------------------------

    def create_topics(
        self, topics: Sequence[NewTopic], on_done: OnDone[list[TopicImage | BrokerError]]
    ) -> None:
        """Writes topics and their settings; the controller elects their leaders."""
        self._topics.create_topics(topics, on_done)

    def delete_topics(
        self, topic_ids: Sequence[UUID], on_done: OnDone[list[TopicImage | BrokerError]]
    ) -> None:
        """Marks topics; the controller has them removed."""
        self._topics.delete_topics(topic_ids, on_done)

    def create_partitions(
        self, additions: Sequence[NewPartitions], on_done: OnDone[list[TopicImage | BrokerError]]
    ) -> None:
        """Writes more partitions; the controller elects their leaders."""
        self._topics.create_partitions(additions, on_done)

    def change_partitions(
        self,
        changes: Sequence[PartitionChange],
        on_done: OnDone[list[PartitionImage | BrokerError]],
    ) -> None:
        """Sends the ISR changes of a leader to the controller; only the controller may make
        others."""
        controller = self._election.active
        if self._membership.epoch != UNREGISTERED and changes and all(map(self._is_own, changes)):
            self._isr_changes.submit(changes, on_done)
        elif controller is not None:
            controller.change_partitions(changes, self._broker_id, on_done)
        else:
            on_done([BrokerError(ErrorCode.NOT_CONTROLLER) for _ in changes])

    def alter_configs(
        self, altered: Mapping[ConfigResource, Mapping[str, str | None]], on_done: OnDone[None]
    ) -> None:
        """See `MetadataStore`."""
        if self._tokens is not None and any(
            each.type is ConfigResourceType.DELEGATION_TOKEN for each in altered
        ):
            self._tokens.alter(altered, on_done)
        else:
            self._configs.alter(altered, on_done)

    def alter_acls(
        self, added: Collection[AclBinding], removed: Collection[AclBinding], on_done: OnDone[None]
    ) -> None:
        """See `MetadataStore`."""
        assert self._acls is not None, "a broker without an authorizer keeps no ACLs"
        self._acls.alter(added, removed, on_done)

    def alter_client_quotas(
        self,
        altered: Mapping[QuotaEntity, Mapping[QuotaKey, float | None]],
        on_done: OnDone[None],
    ) -> None:
        """See `MetadataStore`."""
        self._quotas.alter(altered, on_done)

    def update_features(self, levels: Mapping[str, int], on_done: OnDone[None]) -> None:
        """See `MetadataStore`."""
        self._configs.update_features(levels, on_done)

    def allocate_producer_ids(self, count: int, on_done: OnDone[range]) -> None:
        """See `MetadataStore`."""
        self._configs.allocate_producer_ids(count, on_done)

    def report_offline(self, partitions: Sequence[TopicPartition], broker_id: int) -> None:
        """Publishes it here, and has the controller check the replicas."""
        self._report(partitions, broker_id, is_offline=True)

    def report_online(self, partitions: Sequence[TopicPartition], broker_id: int) -> None:
        """Publishes the outcome here, and has the controller check the replicas."""
        self._report(partitions, broker_id, is_offline=False)

    def _report(
        self, partitions: Sequence[TopicPartition], broker_id: int, *, is_offline: bool
    ) -> None:
        controller = self._election.active
        if controller is not None:
            controller.report(partitions, broker_id, is_offline=is_offline)
            return
        change = without_replicas if is_offline else with_replicas
        self._view.publish(lambda image: difference(image, change(image, partitions, broker_id)))
        self._have_controller_look(self._membership.session_number)

    def _have_controller_look(self, session: int) -> None:
        """Makes the controller ask which replicas this broker can serve; repeats that while it is
        refused. In a new session the controller asks by itself."""
        if session != self._membership.session_number or self._membership.is_closed:
            return

        def on_committed(outcome: Created | Refusal) -> None:
            if isinstance(outcome, Refusal):
                again = partial(self._have_controller_look, session)
                self._timer.add(TimerTask(RETRY_MS, lambda: self._view.attempt(again)))

        data = znodes.log_dir_event_json(self._broker_id)
        event = Create(znodes.LOG_DIR_EVENT_PREFIX, data, sequential=True)
        self._zookeeper.commit([event], on_committed)

    # --- a leader's questions -----------------------------------------------------------------

    def _is_own(self, change: PartitionChange) -> bool:
        """Whether this broker leads the partition and changes nothing but its ISR."""
        partition = self._view.image.partition(change.topic_partition)
        return (
            partition is not None
            and change.assignment is None
            and change.leader == partition.leader == self._broker_id
        )

    def _ask_controller(
        self, request: AlterPartition, on_done: OnDone[list[PartitionImage | BrokerError]]
    ) -> None:
        image = self._view.image
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
            after = updates.with_outcome(image, change.topic_partition, outcome)
            return None if after is image else difference(image, after)

        self._view.publish(answered, then)

    # --- what the controller says, and what it is asked ---------------------------------------

    def on_leader_and_isr(self, request: LeaderAndIsr, on_done: OnDone[ReplicaErrors]) -> None:
        """See `ControlledBroker`."""
        self._control_requests.on_leader_and_isr(request, on_done)

    def on_update_metadata(self, request: UpdateMetadata, on_done: OnDone[None]) -> None:
        """See `ControlledBroker`."""
        self._control_requests.on_update_metadata(request, on_done)

    def on_stop_replica(self, request: StopReplica, on_done: OnDone[ReplicaErrors]) -> None:
        """See `ControlledBroker`."""
        self._control_requests.on_stop_replica(request, on_done)

    def on_alter_partition(
        self, request: AlterPartition, on_done: OnDone[list[PartitionImage | BrokerError]]
    ) -> None:
        """See `ControlledBroker`."""
        controller = self._election.active
        if controller is None:
            on_done(BrokerError(ErrorCode.NOT_CONTROLLER))
        else:
            controller.alter_partition(request, on_done)

    def on_controlled_shutdown(
        self, broker_id: int, broker_epoch: int, on_done: OnDone[Sequence[TopicPartition]]
    ) -> None:
        """See `ControlledBroker`."""
        controller = self._election.active
        if controller is None:
            on_done(BrokerError(ErrorCode.NOT_CONTROLLER))
        else:
            controller.shut_down(broker_id, broker_epoch, on_done)


def _broker(broker_id: int, node: Node) -> BrokerRegistration | None:
    try:
        return znodes.read_broker(broker_id, node.data, node.created)
    except ZnodeError as error:
        logger.error("a broker is ignored: %s", error)
        return None
