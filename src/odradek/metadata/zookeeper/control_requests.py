"""`ControlRequests`: the controller's requests to this broker, one after the other.

`metadata_updates` applies a request to the image; this module decides when: after earlier requests,
with the settings of its topics read, and not if it comes from an earlier controller or was meant
for an earlier registration of this broker. Either may happen between two of its steps.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Protocol, TypeAlias, TypeVar

from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.changes import difference
from odradek.metadata.control import (
    ControlHeader,
    LeaderAndIsr,
    PartitionState,
    ReplicaErrors,
    StopReplica,
    UpdateMetadata,
)
from odradek.metadata.engine import BrokerView
from odradek.metadata.image import BrokerRegistration, MetadataDelta, MetadataImage
from odradek.metadata.serial_queue import Release, SerialQueue
from odradek.metadata.store import OnDone
from odradek.metadata.zookeeper import metadata_updates as updates
from odradek.metadata.zookeeper.cluster_configs import ClusterConfigs
from odradek.metadata.zookeeper.membership import UNREGISTERED, Membership
from odradek.model import TopicPartition

T = TypeVar("T")
WriteIdsBack: TypeAlias = Callable[[Collection[str], Callable[[], None]], None]
"""Writes back the ids that topics but the named ones have in the logs here, and lack in ZooKeeper;
calls back when it has, or the session has ended."""
logger = logging.getLogger(__name__)


class OwnElection(Protocol):
    """The port to this broker's own election as controller."""

    @property
    def epoch(self) -> int | None:
        """The epoch that it was elected under; None while it is not the controller."""
        ...

    def on_deposed(self) -> None:
        """Called when there is a later controller."""
        ...


class ControlRequests:
    """Carries out what the controller requests of the broker of `membership`."""

    def __init__(
        self,
        membership: Membership,
        election: OwnElection,
        view: BrokerView,
        configs: ClusterConfigs,
        write_ids_back: WriteIdsBack,
    ) -> None:
        self._membership: Final = membership
        self._election: Final = election
        self._view: Final = view
        self._configs: Final = configs
        self._write_ids_back: Final = write_ids_back
        self._queue: Final = SerialQueue(lambda: not membership.is_registering)
        self._release: Release = lambda: None
        self._tells_all = False

    def on_leader_and_isr(self, request: LeaderAndIsr, on_done: OnDone[ReplicaErrors]) -> None:
        """See `ControlledBroker`."""
        broker_id = self._membership.broker_id
        session = self._membership.epoch

        def begin() -> None:
            nonlocal session
            session = self._membership.epoch
            ids = {state.topic: state.topic_id for state in request.partitions}
            read = partial(self._configs.with_topics, ids, place)
            if request.is_full:
                # A controller that does not name a topic may not know its id.
                self._write_ids_back(ids, read)
            else:
                read()

        def place() -> None:
            if self._is_over(session, request.header, on_done):
                return
            refused: dict[TopicPartition, ErrorCode] = {}
            obeyed: list[PartitionState] = []

            def know(image: MetadataImage) -> MetadataDelta | None:
                refused.update(updates.refusals(image, request, broker_id))
                obeyed.extend(each for each in request.partitions if each.replica not in refused)
                # The listeners have to see that partitions that are not new existed before.
                old = [state for state in obeyed if not state.is_new]
                return _if_changed(image, updates.with_placeholders(image, old))

            self._obey(request.header, know, lambda: assign(obeyed, refused))

        def assign(
            obeyed: Sequence[PartitionState], refused: dict[TopicPartition, ErrorCode]
        ) -> None:
            if self._is_over(session, request.header, on_done):
                return
            self._tells_all |= request.is_full

            def change(image: MetadataImage) -> MetadataDelta | None:
                after = updates.with_brokers(
                    image, [*image.brokers.values(), *_unknown(image, request.leaders)], broker_id
                )
                after = updates.with_placeholders(after, obeyed)
                after, late = updates.with_roles(after, obeyed, broker_id)
                refused.update((each.replica, ErrorCode.STALE_CONTROLLER_EPOCH) for each in late)
                return _if_changed(image, _commanded_by(after, request.header))

            def then() -> None:
                if not self._is_over(session, request.header, on_done):
                    self._end(lambda: on_done(outcome(refused)))

            self._obey(request.header, change, then)

        def outcome(refused: ReplicaErrors) -> ReplicaErrors:
            errors = {}
            for state in request.partitions:
                where = state.replica
                partition = self._view.image.partition(where)
                if partition is not None and broker_id in partition.offline:
                    errors[where] = ErrorCode.KAFKA_STORAGE_ERROR
                elif where in refused:
                    errors[where] = refused[where]
                elif partition is None:
                    errors[where] = ErrorCode.KAFKA_STORAGE_ERROR
                else:
                    errors[where] = ErrorCode.NONE
            return errors

        self._take(request.header, begin, on_done)

    def on_update_metadata(self, request: UpdateMetadata, on_done: OnDone[None]) -> None:
        """See `ControlledBroker`."""
        broker_id = self._membership.broker_id
        session = self._membership.epoch
        # Otherwise it only has the brokers to follow, before this broker's roles come.
        is_named = any(broker.id == broker_id for broker in request.brokers)

        def begin() -> None:
            nonlocal session
            session = self._membership.epoch
            ids = {
                state.topic: state.topic_id
                for state in request.partitions
                if state.partition.leader != updates.DELETED
            }
            self._configs.with_topics(ids, show)

        def show() -> None:
            if self._is_over(session, request.header, on_done):
                return
            tells_all = self._tells_all and is_named
            self._tells_all &= not is_named

            def change(image: MetadataImage) -> MetadataDelta | None:
                after = updates.with_metadata(image, request, broker_id)
                return _if_changed(image, _commanded_by(after, request.header))

            def forget(image: MetadataImage) -> MetadataDelta | None:
                if not tells_all:
                    return None
                after = updates.without_unnamed(image, request, broker_id)
                return _if_changed(image, after, are_deleted=False)

            def then() -> None:
                if self._is_over(session, request.header, on_done):
                    return
                if tells_all:
                    self._configs.forget_untold()
                if is_named:
                    self._view.cache.tell()
                self._end(lambda: on_done(None))

            self._obey(request.header, change)
            self._obey(request.header, forget, then)

        self._take(request.header, begin, on_done)

    def on_stop_replica(self, request: StopReplica, on_done: OnDone[ReplicaErrors]) -> None:
        """See `ControlledBroker`."""
        broker_id = self._membership.broker_id

        def begin() -> None:
            session = self._membership.epoch
            late: set[TopicPartition] = set()
            orphans = [
                each.topic_partition
                for each in request.replicas
                if each.delete and self._view.image.topic(each.topic_partition.topic) is None
            ]
            if orphans:
                # Their logs are here but not in the image: they are added, and then removed.
                self._obey(
                    request.header,
                    lambda image: difference(
                        image, updates.with_orphans(image, orphans, broker_id)
                    ),
                )
                self._obey(
                    request.header,
                    lambda image: difference(
                        image, updates.without_orphans(image, orphans), are_deleted=False
                    ),
                )

            def change(image: MetadataImage) -> MetadataDelta | None:
                after, refused = updates.without_stopped(image, request.replicas, broker_id)
                late.update(each.topic_partition for each in refused)
                return _if_changed(image, _commanded_by(after, request.header))

            def outcome() -> ReplicaErrors:
                return {
                    each.topic_partition: ErrorCode.FENCED_LEADER_EPOCH
                    if each.topic_partition in late
                    else ErrorCode.NONE
                    for each in request.replicas
                }

            def then() -> None:
                # Requests that the end of a session interrupted are not lost: the controller
                # repeats them.
                if not self._is_over(session, request.header, on_done):
                    self._end(lambda: on_done(outcome()))

            self._obey(request.header, change, then)

        self._take(request.header, begin, on_done)

    def go_on(self) -> None:
        """Begins with the next request, if none is under way."""
        self._queue.go_on()

    def refuse_all(self) -> None:
        """Refuses all requests: the session that they were meant for is over."""
        self._queue.refuse_all()

    def _take(self, header: ControlHeader, begin: Callable[[], None], on_done: OnDone[T]) -> None:
        """Carries out a command after the earlier ones, unless it is outdated."""

        def refuse() -> None:
            on_done(BrokerError(ErrorCode.STALE_BROKER_EPOCH))

        def checked() -> None:
            error = self._objection(header)
            if error is not None:
                self._end(lambda: on_done(error))
                return
            if self._election.epoch is not None:
                self._election.on_deposed()
            begin()

        def take(release: Release) -> None:
            self._release = release
            self._view.attempt(checked)

        if self._membership.is_closed:
            refuse()
        else:
            self._queue.submit(take, refuse)

    def _obey(
        self,
        header: ControlHeader,
        change: Callable[[MetadataImage], MetadataDelta | None],
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Takes a step of a command, unless there is a later controller by its turn."""
        self._view.publish(
            lambda image: None if self._is_past(header, image) else change(image), then
        )

    def _is_over(self, session: int, header: ControlHeader, on_done: OnDone[T]) -> bool:
        """Whether the session in which a command began is over, or its controller was replaced; the
        command is refused then."""
        if self._membership.epoch != session:
            code = ErrorCode.STALE_BROKER_EPOCH
        elif self._is_past(header, self._view.image):
            code = ErrorCode.STALE_CONTROLLER_EPOCH
        else:
            return False
        self._end(lambda: on_done(BrokerError(code)))
        return True

    def _is_past(self, header: ControlHeader, image: MetadataImage) -> bool:
        own = self._election.epoch
        epoch = header.controller_epoch
        return epoch < image.controller_epoch or (own is not None and epoch <= own)

    def _objection(self, header: ControlHeader) -> BrokerError | None:
        epoch = self._membership.epoch
        if epoch == UNREGISTERED or 0 <= header.broker_epoch < epoch:
            logger.warning(
                "A request of controller %d is refused: its broker epoch %d is outdated",
                header.controller_id,
                header.broker_epoch,
            )
            return BrokerError(ErrorCode.STALE_BROKER_EPOCH)
        if self._is_past(header, self._view.image):
            logger.warning(
                "A request of controller %d is refused: its controller epoch %d is outdated",
                header.controller_id,
                header.controller_epoch,
            )
            return BrokerError(ErrorCode.STALE_CONTROLLER_EPOCH)
        return None

    def _end(self, answer: Callable[[], None]) -> None:
        self._view.attempt(answer)
        self._release()


def _commanded_by(image: MetadataImage, header: ControlHeader) -> MetadataImage:
    known = (image.controller_id, image.controller_epoch)
    if known == (header.controller_id, header.controller_epoch):
        return image
    return replace(
        image, controller_id=header.controller_id, controller_epoch=header.controller_epoch
    )


def _if_changed(
    before: MetadataImage, after: MetadataImage, *, are_deleted: bool = True
) -> MetadataDelta | None:
    return None if after is before else difference(before, after, are_deleted=are_deleted)


def _unknown(
    image: MetadataImage, brokers: Sequence[BrokerRegistration]
) -> list[BrokerRegistration]:
    return [broker for broker in brokers if broker.id not in image.brokers]
