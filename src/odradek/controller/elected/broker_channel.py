"""`BrokerChannel`: the requests of the controller to one other broker.

It notes *what* has changed, not how: when the broker can be reached, it gets the state at that
time. So a slow broker is not sent every state that there was meanwhile, what was lost is said
again, and the same again does no harm. At most one round is under way: LeaderAndIsr,
UpdateMetadata, StopReplica, in that order. A new broker gets everything. A Kafka broker follows no
leader that it does not know to be alive: so when brokers have come or gone, a separate
UpdateMetadata says so before the roles are sent. Requests about many partitions are made one in a
turn of the loop, to whichever broker. The requests of a round all show the image with which it
began: what has changed since is noted for the next one.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from odradek.controller.answers import all_partitions
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.changes import replicas_of
from odradek.metadata.control import (
    ControlHeader,
    ControlPlane,
    LeaderAndIsr,
    PartitionState,
    ReplicaErrors,
    StoppedReplica,
    StopReplica,
    UpdateMetadata,
)
from odradek.metadata.engine import BrokerView
from odradek.metadata.image import (
    BrokerRegistration,
    MetadataDelta,
    MetadataImage,
    TopicImage,
)
from odradek.metadata.serial_queue import Release, SerialQueue
from odradek.metadata.zookeeper.metadata_updates import DELETED, EPOCH_DURING_DELETE
from odradek.model import TopicPartition
from odradek.timer import Timer, TimerTask

logger = logging.getLogger(__name__)

RETRY_MS: Final = 200
# A round about more partitions takes several turns of the loop.
TURN_PARTITIONS: Final = 500
_STOPPED: Final = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_SERVED_OR_NOT: Final = (
    ErrorCode.NONE,
    ErrorCode.STALE_CONTROLLER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


class BrokerChannel:
    """Sends the image to `broker`, in the name of a controller and its epoch. All channels of a
    controller share the `turns` in which long requests are made.

    `on_told` is called when the broker has been told everything, can serve all its replicas, and
    so could write back the ids of topics that it was not told of; `on_served` gets the replicas
    that it can serve, `on_stopped` those that it has given up; `on_deposed` is called when there
    is a later controller.
    """

    def __init__(
        self,
        broker: BrokerRegistration,
        header: ControlHeader,
        plane: ControlPlane,
        timer: Timer,
        view: BrokerView,
        turns: SerialQueue,
        *,
        on_told: Callable[[BrokerRegistration], None],
        on_served: Callable[[BrokerRegistration, Mapping[TopicPartition, bool]], None],
        on_stopped: Callable[[BrokerRegistration, Sequence[TopicPartition]], None],
        on_deposed: Callable[[], None],
    ) -> None:
        self.broker: Final = broker
        self._header: Final = header
        self._plane: Final = plane
        self._timer: Final = timer
        self._view: Final = view
        self._turns: Final = turns
        self._on_told: Final = on_told
        self._on_served: Final = on_served
        self._on_stopped: Final = on_stopped
        self._on_deposed: Final = on_deposed
        self._is_full = True
        self._roles: set[TopicPartition] = set()
        self._shown: set[TopicPartition] = set()
        self._new: set[TopicPartition] = set()
        self._brokers_changed = True
        self._deleted: dict[UUID, TopicImage] = {}
        self._stopped: dict[TopicPartition, StoppedReplica] = {}
        self._under_way = 0
        self._retry = self._retrial()
        self._closed = False

    def note(self, delta: MetadataDelta) -> None:
        """Notes what of a change concerns the broker."""
        broker_id = self.broker.id
        self._brokers_changed |= delta.brokers_changed
        new = {topic.name for topic in delta.topics_added}
        for topic in delta.topics_removed:
            self.delete(topic)
        for topic, partition in delta.partitions():
            topic_partition = TopicPartition(topic.name, partition.partition)
            self._shown.add(topic_partition)
            before = None if topic.name in new else delta.previous.partition(topic_partition)
            if broker_id in partition.replicas:
                self._roles.add(topic_partition)
                self._stopped.pop(topic_partition, None)
                if delta.is_new_replica(topic, partition, broker_id):
                    self._new.add(topic_partition)
                continue
            if before is not None and broker_id in before.replicas:
                self._roles.discard(topic_partition)
                self.stop([topic_partition], partition.leader_epoch)

    def note_roles(self) -> None:
        """Notes that the broker is to answer again which of its replicas it can serve."""
        self._roles.update(replicas_of(self._view.image, self.broker.id))

    def delete(self, topic: TopicImage) -> None:
        """Notes that a topic is being deleted."""
        self._deleted[topic.topic_id] = topic
        mine = [each for each in topic.partitions if self.broker.id in each.replicas]
        self.stop(
            [TopicPartition(topic.name, each.partition) for each in mine], EPOCH_DURING_DELETE
        )

    def stop(self, replicas: Iterable[TopicPartition], leader_epoch: int) -> None:
        """Notes replicas that the broker is to give up, with their logs."""
        for replica in replicas:
            self._stopped[replica] = StoppedReplica(replica, leader_epoch, delete=True)

    def poke(self) -> None:
        """Sends what has changed, unless a request is already in flight."""
        if self._under_way or self._closed or self._retry.is_pending:
            return
        image = self._view.image
        roles = self._take_roles(image)
        is_long = self._size(image, roles) > TURN_PARTITIONS
        commands = self._commands(image, roles)
        self._is_full = False
        self._under_way = len(commands)
        for command in commands:
            if is_long:
                self._turns.submit(partial(self._send_later, command))
            else:
                command()

    def _commands(
        self, image: MetadataImage, roles: Sequence[TopicPartition]
    ) -> list[Callable[[], None]]:
        """Takes what is noted into the requests of a round."""
        commands: list[Callable[[], None]] = []
        if roles and self._brokers_changed:
            commands.append(self._live_brokers(image))
        if self._is_full or roles:
            commands.append(self._leader_and_isr(image, roles))
        if self._is_full or self._shown or self._deleted or self._brokers_changed:
            commands.append(self._update_metadata(image))
        self._stopped = {
            where: each for where, each in self._stopped.items() if self._is_to_go(image, where)
        }
        if self._stopped:
            commands.append(self._stop_replica())
        return commands

    def _size(self, image: MetadataImage, roles: Sequence[TopicPartition]) -> int:
        """How many partitions a round is about, some of them more than once."""
        topics = image.topics.values() if self._is_full else self._deleted.values()
        shown = len(self._shown) + sum(len(topic.partitions) for topic in topics)
        return len(roles) + shown + len(self._stopped)

    def _send_later(self, command: Callable[[], None], release: Release) -> None:
        def send() -> None:
            try:
                if not self._closed:
                    command()
            finally:
                release()

        self._view.attempt_later(send)

    def tell_all(self) -> None:
        """Tells everything again."""
        self._is_full = True
        self.poke()

    def close(self) -> None:
        """Tells nothing any more."""
        self._closed = True
        self._retry.cancel()

    def _take_roles(self, image: MetadataImage) -> list[TopicPartition]:
        wanted: Collection[TopicPartition] = self._roles
        if self._is_full:
            wanted = replicas_of(image, self.broker.id)
        self._roles = set()
        roles = []
        for topic_partition in wanted:
            partition = image.partition(topic_partition)
            if partition is not None and self.broker.id in partition.replicas:
                roles.append(topic_partition)
        return roles

    def _is_to_go(self, image: MetadataImage, where: TopicPartition) -> bool:
        """Whether the broker is to give the replica up: it may have been given it back while an
        order of before was under way, and came to nothing."""
        partition = image.partition(where)
        return partition is None or self.broker.id not in partition.replicas

    def _live_brokers(self, image: MetadataImage) -> Callable[[], None]:
        """The live brokers. A broker that has just come is not named: more is to follow for it."""
        unnamed = self.broker.id if self._is_full else None
        live = tuple(broker for broker in image.brokers.values() if broker.id != unnamed)
        request = UpdateMetadata(self._header, (), live)
        return lambda: self._plane.update_metadata(self.broker, request, self._finish)

    def _leader_and_isr(
        self, image: MetadataImage, roles: Sequence[TopicPartition]
    ) -> Callable[[], None]:
        is_full, new = self._is_full, self._new
        self._new = set()

        def on_done(outcome: ReplicaErrors | BrokerError) -> None:
            if isinstance(outcome, BrokerError):
                self._is_full |= is_full
                self._roles.update(roles)
                self._new |= new
            else:
                # A replica that is there already under this epoch is served, too.
                served = {
                    replica: code is not ErrorCode.KAFKA_STORAGE_ERROR
                    for replica, code in outcome.items()
                    if code in _SERVED_OR_NOT
                }
                self._on_served(self.broker, served)
                # A broker whose disk is dead does not know whose logs lie there.
                if is_full and not self._is_full and all(served.values()):
                    self._on_told(self.broker)
            self._finish(outcome)

        def send() -> None:
            states = [self._state(image, each, is_new=each in new) for each in roles]
            leaders = {state.partition.leader for state in states}
            live = [broker for broker in image.brokers.values() if broker.id in leaders]
            request = LeaderAndIsr(self._header, is_full, states, live)
            self._plane.leader_and_isr(self.broker, request, on_done)

        return send

    def _update_metadata(self, image: MetadataImage) -> Callable[[], None]:
        is_full, shown, deleted = self._is_full, self._shown, self._deleted
        self._shown, self._deleted, self._brokers_changed = set(), {}, False

        def on_done(outcome: BrokerError | None) -> None:
            if isinstance(outcome, BrokerError):
                self._shown |= shown
                self._deleted = {**deleted, **self._deleted}
                self._brokers_changed = True
                self._is_full |= is_full
            self._finish(outcome)

        def send() -> None:
            wanted: Iterable[TopicPartition] = all_partitions(image) if is_full else shown
            states = [
                self._deleted_state(topic, index)
                for topic in deleted.values()
                for index in range(len(topic.partitions))
            ]
            states += [
                self._state(image, each) for each in wanted if image.partition(each) is not None
            ]
            request = UpdateMetadata(self._header, states, tuple(image.brokers.values()))
            self._plane.update_metadata(self.broker, request, on_done)

        return send

    def _stop_replica(self) -> Callable[[], None]:
        stopped = self._stopped
        self._stopped = {}
        request = StopReplica(self._header, tuple(stopped.values()))

        def on_done(outcome: ReplicaErrors | BrokerError) -> None:
            if isinstance(outcome, BrokerError):
                self._stopped = {**stopped, **self._stopped}
            else:
                done = [each for each in stopped if outcome.get(each) in _STOPPED]
                self._on_stopped(self.broker, done)
            self._finish(outcome)

        return lambda: self._plane.stop_replica(self.broker, request, on_done)

    def _finish(self, outcome: object) -> None:
        self._under_way -= 1
        if self._closed:
            return
        if isinstance(outcome, BrokerError):
            if outcome.code is ErrorCode.STALE_CONTROLLER_EPOCH:
                self._on_deposed()
                return
            logger.info("requests to broker %d are sent again: %s", self.broker.id, outcome)
            if not self._retry.is_pending:
                self._retry = self._retrial()
                self._timer.add(self._retry)
        self.poke()

    def _retrial(self) -> TimerTask:
        return TimerTask(RETRY_MS, lambda: self._view.attempt(self.poke))

    def _state(
        self, image: MetadataImage, where: TopicPartition, *, is_new: bool = False
    ) -> PartitionState:
        topic = image.topics[where.topic]
        partition = topic.partitions[where.partition]
        epoch = self._header.controller_epoch
        return PartitionState(topic.name, topic.topic_id, epoch, partition, is_new)

    def _deleted_state(self, topic: TopicImage, index: int) -> PartitionState:
        partition = topic.partitions[index]._replace(leader=DELETED)
        return PartitionState(topic.name, topic.topic_id, self._header.controller_epoch, partition)
