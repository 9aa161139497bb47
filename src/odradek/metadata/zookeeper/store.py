"""`ZooKeeperMetadataStore`: one broker's view of a cluster whose metadata is in ZooKeeper.

As in Apache Kafka with ZooKeeper, the brokers do different things: each keeps its own session and
writes what concerns nobody else's decision (settings, new topics, marks of deletion); the elected
one decides about partitions (`office`), and tells the others. So the image of a broker is made of
what its controller says (`decrees`) and of settings, which it reads itself; that of the controller
is what it has read and written. Either way one image follows another: listeners act on the change,
stage by stage, it is published, and then who waits for it is answered.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from odradek.clock import Clock
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.control import (
    AlterPartition,
    ControlledBroker,
    ControlPlane,
    Decree,
    LeaderAndIsr,
    ReplicaErrors,
    StopReplica,
    UpdateMetadata,
)
from odradek.metadata.image import (
    NO_CONTROLLER,
    BrokerRegistration,
    ConfigResource,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    ReplicaAssignment,
    ResourceType,
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
from odradek.metadata.zookeeper.client import (
    Create,
    Created,
    Delete,
    Failure,
    Node,
    Operation,
    Refusal,
    SetData,
    ZooKeeperClient,
    unexpected,
)
from odradek.metadata.zookeeper.decrees import difference
from odradek.metadata.zookeeper.gathering import gather
from odradek.metadata.zookeeper.office import ControllerOffice, ReplicaPlans
from odradek.metadata.zookeeper.settings import LOST, ClusterSettings
from odradek.metadata.zookeeper.znodes import ZnodeError
from odradek.model import NO_LEADER, EndPoint, TopicPartition
from odradek.timer import Timer, TimerTask

T = TypeVar("T")
logger = logging.getLogger(__name__)

UNREGISTERED: Final = -1
ELECTION_RETRY_MS: Final = 500


class _Waiter(NamedTuple):
    """Somebody who waits for the image to come to something; `look` answers None until then."""

    look: Callable[[MetadataImage], object]
    on_done: Callable[[object], None]


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
        self.image = MetadataImage("")
        self._cache: Final = cache
        self._broker_id: Final = broker_id
        self._zookeeper: Final = zookeeper
        self._plane: Final = plane
        self._timer: Final = timer
        self._clock: Final = clock
        self._random_bytes: Final = random_bytes
        self._plans: Final = plans
        self._settings: Final = ClusterSettings(zookeeper, clock, self, broker_id)
        self._alterations: Final = Alterations(
            broker_id,
            timer,
            lambda: self.image,
            lambda: self._epoch,
            ask=self._ask_controller,
            on_answer=self._on_altered,
        )
        self._listeners: Final[dict[ListenerStage, list[MetadataListener]]] = {
            stage: [] for stage in ListenerStage
        }
        self._session_listeners: Final[list[Callable[[], None]]] = []
        self._epoch = UNREGISTERED
        self._is_registering = False
        self._session_number = 0
        self._office: ControllerOffice | None = None
        self._is_controller_known = False
        self._is_controller_watched = False
        self._tells_all = False
        self._queue: Final[deque[Callable[[], None]]] = deque()
        self._draining = False
        self._commands: Final[deque[tuple[Callable[[], None], Callable[[BrokerError], None]]]] = (
            deque()
        )
        self._commanded = False
        self._waiters: list[_Waiter] = []
        self._settling: list[OnDone[None]] = []
        self._election_retry = TimerTask(ELECTION_RETRY_MS, self._look_for_controller)
        self._closed = False
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
        )
        empty = MetadataImage(cluster_id)
        after = image.with_configs(configs)
        self.image = after
        self._cache.publish(MetadataDelta(empty, after, configs=configs, brokers_changed=True))
        self._settings.watch()
        return after

    @property
    def deleted_topics(self) -> frozenset[UUID]:
        """None: a controller has replicas of deleted topics stopped when their broker is back."""
        return frozenset()

    def forget_deleted_topics(self) -> None:
        """There are none."""

    def close(self) -> None:
        """Ends the session, and with it this broker's life."""
        if self._closed:
            return
        self._closed = True
        self._election_retry.cancel()
        if self._office is not None:
            self._office.close()
            self._office = None
        self._refuse_all(BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, "The broker is stopping."))
        self._zookeeper.close()

    def subscribe(self, stage: ListenerStage, listener: MetadataListener) -> None:
        """See `MetadataStore`."""
        self._listeners[stage].append(listener)

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
        names = self._zookeeper.children_now(znodes.BROKER_IDS)
        paths = {znodes.broker_path(int(name)): int(name) for name in names if name.isdigit()}
        brokers = {}
        for path, node in self._zookeeper.read_now(list(paths)).items():
            if node is not None:
                broker = _broker(paths[path], node)
                if broker is not None:
                    brokers[broker.id] = broker
        return brokers

    # --- the image ----------------------------------------------------------------------------

    def publish(
        self,
        change: Callable[[MetadataImage], MetadataDelta | None],
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Has a change worked out on the image when its turn has come, acted on and shown."""
        self._queue.append(partial(self._publish, change, then))
        self._drain()

    def _publish(
        self,
        change: Callable[[MetadataImage], MetadataDelta | None],
        then: Callable[[], None],
    ) -> None:
        delta = change(self.image)
        if delta is not None:
            self.image = delta.image
            delta = self._act(delta)
            self.image = delta.image
            self._settings.forget_topics(
                {topic.name for topic in delta.topics_removed} | _without_settings(delta)
            )
            self._cache.publish(delta)
            if self._office is not None:
                self._office.on_published(delta)
            self._alterations.on_published()
            self._answer_waiters()
        then()

    def with_settings(self, topics: Iterable[str], then: Callable[[], None]) -> None:
        """Calls `then` when the settings of these topics are in the image."""
        self._settings.with_topics(topics, then)

    def _act(self, delta: MetadataDelta) -> MetadataDelta:
        for stage in ListenerStage:
            for listener in tuple(self._listeners[stage]):
                delta = delta.without_replicas(listener(delta), self._broker_id)
        return delta

    def _drain(self) -> None:
        """One after the other: what is begun from a callback waits its turn."""
        if self._draining:
            return
        self._draining = True
        try:
            while self._queue:
                self._queue.popleft()()
        finally:
            self._draining = False

    def _await(
        self, look: Callable[[MetadataImage], T | BrokerError | None], on_done: OnDone[T]
    ) -> None:
        """Answers what `look` sees in an image, as soon as it is something."""
        waiter = _Waiter(look, on_done)  # type: ignore[arg-type]  # what it sees it answers
        if not self._is_answered(waiter):
            self._waiters.append(waiter)

    def _answer_waiters(self) -> None:
        waiters, self._waiters = self._waiters, []
        self._waiters = [each for each in waiters if not self._is_answered(each)] + self._waiters

    def _is_answered(self, waiter: _Waiter) -> bool:
        seen = waiter.look(self.image)
        if seen is not None:
            waiter.on_done(seen)
        return seen is not None

    # --- the session --------------------------------------------------------------------------

    def register_broker(
        self,
        broker_id: int,
        endpoints: Sequence[EndPoint],
        rack: str | None,
        on_done: OnDone[BrokerRegistration],
    ) -> None:
        """Begins a session; see `MetadataStore`. What an earlier one of ours has left goes."""
        assert broker_id == self._broker_id, f"this is the store of broker {self._broker_id}"
        path = znodes.broker_path(broker_id)
        broker = BrokerRegistration(broker_id, tuple(endpoints), rack, UNREGISTERED)

        def on_end(outcome: BrokerRegistration | BrokerError) -> None:
            self._is_registering = False
            on_done(outcome)
            self._next_command()

        def on_left_overs(nodes: Mapping[str, Node | None]) -> None:
            session_id = self._zookeeper.session_id
            left = [p for p, node in nodes.items() if node is not None and node.owner == session_id]
            data = znodes.broker_json(broker, self._clock.wall_ms())
            operations: list[Operation] = [Delete(each) for each in left]
            operations.append(Create(path, data, ephemeral=True))
            self._zookeeper.commit(operations, on_committed)

        def on_committed(outcome: Created | Refusal) -> None:
            if not isinstance(outcome, Refusal):
                self._zookeeper.get(path, on_node)
            elif outcome.failure is Failure.NODE_EXISTS:
                on_end(BrokerError(ErrorCode.DUPLICATE_BROKER_REGISTRATION))
            elif outcome.failure is Failure.NO_NODE:
                self.register_broker(broker_id, endpoints, rack, on_done)
            else:
                on_end(LOST)

        def on_node(node: Node | Failure | None) -> None:
            if self._closed or not isinstance(node, Node):
                on_end(LOST)
                return
            registered = broker._replace(epoch=node.created)
            self._epoch = node.created
            logger.info("Broker %d is registered under epoch %d", broker_id, node.created)

            def on_published() -> None:
                on_end(registered)
                self._look_for_controller()

            self.publish(partial(_with_own, broker=registered), on_published)

        # Commands may come as soon as the controller sees the node, before this broker does.
        self._is_registering = True
        paths = [path, znodes.CONTROLLER]
        gather(self._zookeeper, paths, on_left_overs, on_lost=lambda: on_end(LOST))

    def _lose_session(self) -> None:
        """Others may lead by now: nothing is acknowledged before all listeners know."""
        if self._closed:
            return
        was_registered = self._epoch != UNREGISTERED
        self._epoch = UNREGISTERED
        self._session_number += 1
        if was_registered:
            for listener in tuple(self._session_listeners):
                listener()
        self._resign()
        self._is_controller_known = False
        self._is_controller_watched = False
        self._refuse_all(LOST)
        self.publish(partial(_without_own, broker_id=self._broker_id))
        self._settings.watch()

    def _refuse_all(self, error: BrokerError) -> None:
        waiters, self._waiters = self._waiters, []
        settling, self._settling = self._settling, []
        commands = list(self._commands)
        self._commands.clear()
        for waiter in waiters:
            waiter.on_done(error)
        for on_done in settling:
            on_done(error)
        for _, refuse in commands:
            refuse(BrokerError(ErrorCode.STALE_BROKER_EPOCH))
        self._alterations.lose()
        self._settings.lose()

    # --- who is the controller ----------------------------------------------------------------

    def _look_for_controller(self) -> None:
        if self._closed or self._epoch == UNREGISTERED:
            return
        on_changed = None
        if not self._is_controller_watched:
            self._is_controller_watched = True
            on_changed = partial(self._on_controller_changed, self._session_number)
        self._zookeeper.get(znodes.CONTROLLER, self._on_controller, on_changed)

    def _on_controller_changed(self, session_number: int) -> None:
        if session_number == self._session_number:
            self._is_controller_watched = False
            self._look_for_controller()

    def _on_controller(self, node: Node | Failure | None) -> None:
        if self._closed or self._epoch == UNREGISTERED or isinstance(node, Failure):
            return
        if node is None:
            self._resign()
            self._stand_for_election()
            return
        try:
            controller_id = znodes.read_controller(node.data)
        except ZnodeError as error:
            logger.error("nobody is known to be the controller: %s", error)
            return
        if self._office is not None:
            if node.owner == self._zookeeper.session_id:
                return
            self._resign()
        if node.owner == self._zookeeper.session_id:
            # Elected, but the connection broke before the answer: under which epoch nobody knows.
            self._zookeeper.commit([Delete(znodes.CONTROLLER, node.version)], _ignore)
            return
        if controller_id == self._broker_id:
            return  # of an earlier life; it is about to go
        self._is_controller_known = True
        self.publish(partial(_with_controller, controller_id=controller_id), self._settle)

    def _stand_for_election(self) -> None:
        def on_epoch(node: Node | Failure | None) -> None:
            if self._closed or self._epoch == UNREGISTERED or isinstance(node, Failure):
                return
            if node is None:
                create = Create(znodes.CONTROLLER_EPOCH, b"0")
                self._zookeeper.commit([create], lambda _: self._look_for_controller())
                return
            try:
                epoch = znodes.read_controller_epoch(node.data) + 1
            except ZnodeError as error:
                logger.error("there is no election: %s", error)
                return
            data = znodes.controller_json(self._broker_id, self._clock.wall_ms())
            operations: list[Operation] = [
                Create(znodes.CONTROLLER, data, ephemeral=True),
                SetData(znodes.CONTROLLER_EPOCH, str(epoch).encode(), node.version),
            ]
            session = self._session_number
            self._zookeeper.commit(
                operations, lambda outcome: on_committed(session, epoch, node.version + 1, outcome)
            )

        def on_committed(
            session: int, epoch: int, version: int, outcome: Created | Refusal
        ) -> None:
            if self._closed or session != self._session_number:
                return
            if isinstance(outcome, Refusal):
                if outcome.failure is not Failure.SESSION_LOST:
                    self._look_for_controller()
                return
            self._take_office(epoch, version)

        self._zookeeper.get(znodes.CONTROLLER_EPOCH, on_epoch)

    def _take_office(self, epoch: int, version: int) -> None:
        logger.info("This broker is the controller, of epoch %d", epoch)
        office = ControllerOffice(
            *(self._broker_id, epoch, version, self._zookeeper, self._plane),
            *(self._timer, self, self._plans, self._new_id, self._on_deposed),
        )
        self._office = office

        def on_open() -> None:
            if self._office is office:
                self._is_controller_known = True
                self._settle()

        office.open(on_open)
        self._look_for_controller()

    def _on_deposed(self) -> None:
        self._resign()
        self._look_for_controller()

    def _resign(self) -> None:
        office, self._office = self._office, None
        if office is not None:
            office.close()
            logger.warning("This broker is no longer the controller, of epoch %d", office.epoch)
            self.publish(partial(_with_controller, controller_id=NO_CONTROLLER))

    def sync(self, on_done: OnDone[None]) -> None:
        """Answers when it is known who is the controller; if it is this broker, when the elections
        that it has begun are written. What other controllers tell is not waited for."""
        self._settling.append(on_done)
        self._settle()

    def _settle(self) -> None:
        if not self._is_controller_known:
            return
        settling, self._settling = self._settling, []
        for on_done in settling:
            if self._office is None:
                on_done(None)
            else:
                self._office.settle(on_done)

    # --- operations ---------------------------------------------------------------------------

    def create_topics(
        self, topics: Sequence[NewTopic], on_done: OnDone[list[TopicImage | BrokerError]]
    ) -> None:
        """Writes topics and their settings; whoever is the controller has them led."""
        self._each(topics, self._create_topic, on_done)

    def _create_topic(self, topic: NewTopic, on_done: OnDone[TopicImage]) -> None:
        topic_id = self._new_id()
        assignments = [ReplicaAssignment(replicas) for replicas in topic.assignment]
        path = znodes.topic_path(topic.name)
        config = znodes.config_path(ConfigResource(ResourceType.TOPIC, topic.name))
        config_data = znodes.config_json(topic.configs)
        create = Create(path, znodes.topic_json(topic_id, assignments))

        def on_committed(outcome: Created | Refusal) -> None:
            if not isinstance(outcome, Refusal):
                self._await_topic(topic, topic_id, on_done)
            elif outcome.failure is Failure.NODE_EXISTS and outcome.place == 0:
                # Left of an earlier topic, or of a request that was made twice.
                self._zookeeper.get(path, on_existing)
            elif outcome.failure is Failure.NODE_EXISTS:
                on_done(_topic_exists(topic.name))
            else:
                on_done(_refused(outcome))

        def on_existing(node: Node | Failure | None) -> None:
            if isinstance(node, Failure):
                on_done(LOST)
            elif node is None:
                self._zookeeper.commit([SetData(config, config_data, -1), create], on_committed)
            elif _is_topic(topic.name, node, topic_id):
                self._await_topic(topic, topic_id, on_done)
            else:
                on_done(_topic_exists(topic.name))

        self._zookeeper.commit([Create(config, config_data), create], on_committed)

    def _await_topic(self, topic: NewTopic, topic_id: UUID, on_done: OnDone[TopicImage]) -> None:
        """Answers when the topic is in the image, or gone from ZooKeeper before it came there."""
        path = znodes.topic_path(topic.name)
        is_gone = False

        def look(image: MetadataImage) -> TopicImage | BrokerError | None:
            there = image.topic_by_id(topic_id)
            if there is not None and _has_partitions(there, len(topic.assignment)):
                return there
            return _unknown_topic(topic.name) if is_gone else None

        def on_node(node: Node | Failure | None) -> None:
            nonlocal is_gone
            if isinstance(node, Failure):
                return
            if node is None or not _is_topic(topic.name, node, topic_id):
                is_gone = True
                self._answer_waiters()

        def again() -> None:
            if any(waiter.look is look for waiter in self._waiters):
                self._zookeeper.get(path, on_node, again)

        self._await(look, on_done)
        again()

    def delete_topics(
        self, topic_ids: Sequence[UUID], on_done: OnDone[list[TopicImage | BrokerError]]
    ) -> None:
        """Marks topics; the controller has them removed."""
        seen: set[UUID] = set()

        def delete(topic_id: UUID, on_each: OnDone[TopicImage]) -> None:
            topic = self.image.topic_by_id(topic_id)
            if topic is None or topic_id in seen:
                on_each(BrokerError(ErrorCode.UNKNOWN_TOPIC_ID))
                return
            seen.add(topic_id)

            def look(image: MetadataImage) -> TopicImage | None:
                return topic if image.topic_by_id(topic_id) is None else None

            def on_committed(outcome: Created | Refusal) -> None:
                if isinstance(outcome, Refusal) and outcome.failure is not Failure.NODE_EXISTS:
                    on_each(_refused(outcome))
                else:
                    self._await(look, on_each)

            self._zookeeper.commit([Create(znodes.deletion_path(topic.name))], on_committed)

        self._each(topic_ids, delete, on_done)

    def create_partitions(
        self, additions: Sequence[NewPartitions], on_done: OnDone[list[TopicImage | BrokerError]]
    ) -> None:
        """Writes more partitions; whoever is the controller has them led."""
        self._each(additions, self._create_partitions, on_done)

    def _create_partitions(self, addition: NewPartitions, on_done: OnDone[TopicImage]) -> None:
        name = addition.name
        path = znodes.topic_path(name)
        count = addition.first + len(addition.assignment)

        def look(image: MetadataImage) -> TopicImage | BrokerError | None:
            topic = image.topic(name)
            if topic is None:
                return _unknown_topic(name)
            return topic if _has_partitions(topic, count) else None

        def on_node(node: Node | Failure | None) -> None:
            if isinstance(node, Failure):
                on_done(LOST)
                return
            if node is None or self.image.topic(name) is None:
                on_done(_unknown_topic(name))
                return
            try:
                topic = znodes.read_topic(name, node.data)
            except ZnodeError as error:
                on_done(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
                return
            if len(topic.assignments) != addition.first:
                there = len(topic.assignments)
                message = f"Topic {name} has grown to {there} partition(s)."
                on_done(BrokerError(ErrorCode.INVALID_PARTITIONS, message))
                return
            more = tuple(ReplicaAssignment(replicas) for replicas in addition.assignment)
            data = znodes.topic_json(topic.topic_id, topic.assignments + more)
            self._zookeeper.commit([SetData(path, data, node.version)], on_committed)

        def on_committed(outcome: Created | Refusal) -> None:
            if not isinstance(outcome, Refusal):
                self._await(look, on_done)
            elif outcome.failure in (Failure.BAD_VERSION, Failure.NO_NODE):
                self._create_partitions(addition, on_done)
            else:
                on_done(_refused(outcome))

        self._zookeeper.get(path, on_node)

    def change_partitions(
        self,
        changes: Sequence[PartitionChange],
        on_done: OnDone[list[PartitionImage | BrokerError]],
    ) -> None:
        """A leader's ISR is asked of the controller; all else only the controller may do."""
        if self._epoch != UNREGISTERED and changes and all(map(self._is_own_isr, changes)):
            self._alterations.submit(changes, on_done)
        elif self._office is not None and self._is_in_office():
            self._office.change_partitions(changes, self._broker_id, on_done)
        else:
            on_done([BrokerError(ErrorCode.NOT_CONTROLLER) for _ in changes])

    def _is_in_office(self) -> bool:
        return self.image.controller_id == self._broker_id

    def _is_own_isr(self, change: PartitionChange) -> bool:
        partition = self.image.partition(change.topic_partition)
        return (
            partition is not None
            and change.assignment is None
            and change.leader == partition.leader == self._broker_id
        )

    def _ask_controller(
        self, request: AlterPartition, on_done: OnDone[list[PartitionImage | BrokerError]]
    ) -> None:
        controller = self.image.brokers.get(self.image.controller_id)
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

        self.publish(answered, then)

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
        if self._office is not None and self._is_in_office():
            self._office.report(partitions, broker_id, is_offline=is_offline)
            return
        change = without_replicas if is_offline else with_replicas
        self.publish(lambda image: difference(image, change(image, partitions, broker_id)))
        data = znodes.log_dir_event_json(broker_id)
        event = Create(znodes.LOG_DIR_EVENT_PREFIX, data, sequential=True)
        self._zookeeper.commit([event], _ignore)

    def _each(
        self,
        items: Sequence[T],
        begin: "Callable[[T, OnDone[TopicImage]], None]",
        on_done: OnDone[list[TopicImage | BrokerError]],
    ) -> None:
        """Begins something for each item, and answers when all are done, in their order."""
        if self._epoch == UNREGISTERED:
            on_done(BrokerError(ErrorCode.NOT_CONTROLLER))
            return
        results: dict[int, TopicImage | BrokerError] = {}

        def on_each(index: int, outcome: TopicImage | BrokerError) -> None:
            results[index] = outcome
            if len(results) == len(items):
                on_done([results[each] for each in range(len(items))])

        if not items:
            on_done([])
        for index, item in enumerate(items):
            begin(item, partial(on_each, index))

    # --- what the controller says -------------------------------------------------------------

    def on_leader_and_isr(self, request: LeaderAndIsr, on_done: OnDone[ReplicaErrors]) -> None:
        """See `ControlledBroker`."""

        session = self._epoch

        def begin() -> None:
            nonlocal session
            session = self._epoch
            names = {state.topic for state in request.partitions}
            self._settings.with_topics(names, place)

        def place() -> None:
            if self._is_over(session, on_done):
                return
            # Of those that are not new the listeners are to find that they were there before.
            old = [state for state in request.partitions if not state.is_new]
            self.publish(
                lambda image: _if_changed(image, decrees.with_placeholders(image, old)), assign
            )

        def assign() -> None:
            late: list[TopicPartition] = []
            self._tells_all |= request.is_full

            def change(image: MetadataImage) -> MetadataDelta | None:
                after = decrees.with_brokers(
                    image, [*image.brokers.values(), *_unknown(image, request.leaders)], broker_id
                )
                after = decrees.with_placeholders(after, request.partitions)
                after, refused = decrees.with_roles(after, request.partitions, broker_id)
                late.extend(
                    TopicPartition(each.topic, each.partition.partition) for each in refused
                )
                return _if_changed(image, _commanded_by(after, request.decree))

            self.publish(change, lambda: self._end_command(lambda: on_done(outcome(late))))

        def outcome(late: Collection[TopicPartition]) -> ReplicaErrors:
            errors = {}
            for state in request.partitions:
                where = TopicPartition(state.topic, state.partition.partition)
                partition = self.image.partition(where)
                if where in late:
                    errors[where] = ErrorCode.STALE_CONTROLLER_EPOCH
                elif partition is None or broker_id in partition.offline:
                    errors[where] = ErrorCode.KAFKA_STORAGE_ERROR
                else:
                    errors[where] = ErrorCode.NONE
            return errors

        broker_id = self._broker_id
        self._command(request.decree, begin, on_done)

    def on_update_metadata(self, request: UpdateMetadata, on_done: OnDone[None]) -> None:
        """See `ControlledBroker`."""

        session = self._epoch

        def begin() -> None:
            nonlocal session
            session = self._epoch
            names = {
                state.topic
                for state in request.partitions
                if state.partition.leader != decrees.DELETED
            }
            self._settings.with_topics(names, show)

        def show() -> None:
            if self._is_over(session, on_done):
                return
            tells_all, self._tells_all = self._tells_all, False

            def change(image: MetadataImage) -> MetadataDelta | None:
                after = decrees.with_metadata(image, request, self._broker_id)
                if tells_all:
                    after = decrees.without_unnamed(after, request, self._broker_id)
                return _if_changed(image, _commanded_by(after, request.decree))

            self.publish(change, lambda: self._end_command(lambda: on_done(None)))

        self._command(request.decree, begin, on_done)

    def on_stop_replica(self, request: StopReplica, on_done: OnDone[ReplicaErrors]) -> None:
        """See `ControlledBroker`."""
        broker_id = self._broker_id

        def begin() -> None:
            late: list[TopicPartition] = []
            orphans = [
                each.topic_partition
                for each in request.replicas
                if each.delete and self.image.topic(each.topic_partition.topic) is None
            ]
            if orphans:
                # Their logs are here without anybody knowing: they come in, and go.
                self.publish(
                    lambda image: difference(image, decrees.with_orphans(image, orphans, broker_id))
                )
                self.publish(
                    lambda image: difference(image, decrees.without_orphans(image, orphans))
                )

            def change(image: MetadataImage) -> MetadataDelta | None:
                after, refused = decrees.without_stopped(image, request.replicas, broker_id)
                late.extend(each.topic_partition for each in refused)
                return _if_changed(image, _commanded_by(after, request.decree))

            def outcome() -> ReplicaErrors:
                return {
                    each.topic_partition: ErrorCode.FENCED_LEADER_EPOCH
                    if each.topic_partition in late
                    else ErrorCode.NONE
                    for each in request.replicas
                }

            self.publish(change, lambda: self._end_command(lambda: on_done(outcome())))

        self._command(request.decree, begin, on_done)

    def on_alter_partition(
        self, request: AlterPartition, on_done: OnDone[list[PartitionImage | BrokerError]]
    ) -> None:
        """See `ControlledBroker`."""
        if self._office is None or not self._is_in_office():
            on_done(BrokerError(ErrorCode.NOT_CONTROLLER))
        else:
            self._office.alter_partition(request, on_done)

    def on_controlled_shutdown(
        self, broker_id: int, broker_epoch: int, on_done: OnDone[Sequence[TopicPartition]]
    ) -> None:
        """See `ControlledBroker`."""
        if self._office is None or not self._is_in_office():
            on_done(BrokerError(ErrorCode.NOT_CONTROLLER))
        else:
            self._office.shut_down(broker_id, broker_epoch, on_done)

    def _command(self, decree: Decree, begin: Callable[[], None], on_done: OnDone[T]) -> None:
        """Carries a command out when those before it are, unless it is of the past."""

        def refuse(error: BrokerError) -> None:
            on_done(error)

        def checked() -> None:
            error = self._objection(decree)
            if error is not None:
                self._end_command(lambda: on_done(error))
                return
            if self._office is not None:
                self._on_deposed()
            begin()

        self._commands.append((checked, refuse))
        self._next_command()

    def _is_over(self, session: int, on_done: OnDone[T]) -> bool:
        """Whether the session has ended in which a command was begun; it is refused then."""
        is_over = self._epoch != session
        if is_over:
            self._end_command(lambda: on_done(BrokerError(ErrorCode.STALE_BROKER_EPOCH)))
        return is_over

    def _objection(self, decree: Decree) -> BrokerError | None:
        if self._epoch == UNREGISTERED or 0 <= decree.broker_epoch < self._epoch:
            return BrokerError(ErrorCode.STALE_BROKER_EPOCH)
        is_own_office = self._office is not None and decree.controller_epoch <= self._office.epoch
        if decree.controller_epoch < self.image.controller_epoch or is_own_office:
            logger.warning(
                "Broker %d is not obeyed: its epoch %d as a controller is over",
                decree.controller_id,
                decree.controller_epoch,
            )
            return BrokerError(ErrorCode.STALE_CONTROLLER_EPOCH)
        return None

    def _next_command(self) -> None:
        while self._commands and not self._commanded and not self._is_registering:
            self._commanded = True
            begin, _ = self._commands.popleft()
            begin()

    def _end_command(self, answer: Callable[[], None]) -> None:
        self._commanded = False
        answer()
        self._next_command()

    def _new_id(self) -> UUID:
        """A random id that is neither reserved nor taken, nor prints with a leading dash,
        which command lines would read as an option."""
        while True:
            candidate = UUID(bytes=self._random_bytes(16), version=4)
            taken = self.image.topic_by_id(candidate) is not None
            if not taken and not znodes.uuid_text(candidate).startswith("-"):
                return candidate


# --- changes of the image that nobody else knows of ---------------------------------------------


def _with_own(image: MetadataImage, broker: BrokerRegistration) -> MetadataDelta:
    return difference(
        image, replace(image, brokers=MappingProxyType({**image.brokers, broker.id: broker}))
    )


def _without_own(image: MetadataImage, broker_id: int) -> MetadataDelta:
    """Without its session a broker leads nothing; what it follows it follows again when it is
    registered anew."""
    led = [
        topic.with_partitions(
            each._replace(leader=NO_LEADER) for each in topic.partitions if each.leader == broker_id
        )
        for topic in image.topics.values()
        if any(each.leader == broker_id for each in topic.partitions)
    ]
    others = {broker.id: broker for broker in image.brokers.values() if broker.id != broker_id}
    after = replace(image, brokers=MappingProxyType(others)).with_topics(led)
    return difference(image, after)


def _with_controller(image: MetadataImage, controller_id: int) -> MetadataDelta | None:
    if image.controller_id == controller_id:
        return None
    return difference(image, replace(image, controller_id=controller_id))


def _commanded_by(image: MetadataImage, decree: Decree) -> MetadataImage:
    known = (image.controller_id, image.controller_epoch)
    if known == (decree.controller_id, decree.controller_epoch):
        return image
    return replace(
        image, controller_id=decree.controller_id, controller_epoch=decree.controller_epoch
    )


def _if_changed(before: MetadataImage, after: MetadataImage) -> MetadataDelta | None:
    return None if after is before else difference(before, after)


def _unknown(
    image: MetadataImage, brokers: Sequence[BrokerRegistration]
) -> list[BrokerRegistration]:
    return [broker for broker in brokers if broker.id not in image.brokers]


def _without_settings(delta: MetadataDelta) -> set[str]:
    """The topics that are not there, and whose settings have gone."""
    image = delta.image
    return {
        each.name
        for each in delta.configs_changed
        if each.type is ResourceType.TOPIC
        and each.name not in image.topics
        and not image.config(each)
    }


# --- what waiters look for ----------------------------------------------------------------------


def _has_partitions(topic: TopicImage, count: int) -> bool:
    """Whether so many are known by more than that there must be some."""
    known = [each for each in topic.partitions if each.replicas]
    return len(known) >= count


def _is_topic(name: str, node: Node, topic_id: UUID) -> bool:
    try:
        return znodes.read_topic(name, node.data).topic_id == topic_id
    except ZnodeError:
        return False


def _broker(broker_id: int, node: Node) -> BrokerRegistration | None:
    try:
        return znodes.read_broker(broker_id, node.data, node.created)
    except ZnodeError as error:
        logger.error("a broker is passed over: %s", error)
        return None


def _refused(refusal: Refusal) -> BrokerError:
    if refusal.failure is Failure.SESSION_LOST:
        return BrokerError(ErrorCode.NOT_CONTROLLER)
    text = f"ZooKeeper refuses: {refusal.failure.name}"
    return BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, text)


def _topic_exists(name: str) -> BrokerError:
    return BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def _unknown_topic(name: str) -> BrokerError:
    return BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name}.")


def _ignore(outcome: object) -> None:
    """Nobody waits for it."""
