"""`Commands`: what the controller tells this broker, one command after the other.

What a command makes of the image is worked out in `decrees`; here stands when: after those before
it, with the settings of its topics read, and not when it comes from a controller of the past or
was meant for an earlier life of this broker.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.control import (
    Decree,
    LeaderAndIsr,
    PartitionState,
    ReplicaErrors,
    StopReplica,
    UpdateMetadata,
)
from odradek.metadata.image import BrokerRegistration, MetadataDelta, MetadataImage
from odradek.metadata.store import OnDone
from odradek.metadata.zookeeper import decrees
from odradek.metadata.zookeeper.candidacy import Candidacy
from odradek.metadata.zookeeper.decrees import difference
from odradek.metadata.zookeeper.membership import UNREGISTERED, Membership
from odradek.metadata.zookeeper.publishing import ImagePublisher
from odradek.metadata.zookeeper.settings import ClusterSettings
from odradek.model import TopicPartition

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Commands:
    """Obeyed by the broker of `membership`."""

    def __init__(
        self,
        membership: Membership,
        candidacy: Candidacy,
        publisher: ImagePublisher,
        settings: ClusterSettings,
    ) -> None:
        self._membership: Final = membership
        self._candidacy: Final = candidacy
        self._publisher: Final = publisher
        self._settings: Final = settings
        self._waiting: Final[deque[tuple[Callable[[], None], Callable[[BrokerError], None]]]] = (
            deque()
        )
        self._is_under_way = False
        self._tells_all = False

    def on_leader_and_isr(self, request: LeaderAndIsr, on_done: OnDone[ReplicaErrors]) -> None:
        """See `ControlledBroker`."""
        broker_id = self._membership.broker_id
        session = self._membership.epoch

        def begin() -> None:
            nonlocal session
            session = self._membership.epoch
            names = {state.topic for state in request.partitions}
            self._settings.with_topics(names, place)

        def place() -> None:
            if self._is_over(session, on_done):
                return
            refused = decrees.refusals(self._publisher.image, request, broker_id)
            obeyed = [state for state in request.partitions if state.replica not in refused]
            # Of those that are not new the listeners are to find that they were there before.
            old = [state for state in obeyed if not state.is_new]
            self._publisher.publish(
                lambda image: _if_changed(image, decrees.with_placeholders(image, old)),
                lambda: assign(obeyed, refused),
            )

        def assign(
            obeyed: Sequence[PartitionState], refused: dict[TopicPartition, ErrorCode]
        ) -> None:
            self._tells_all |= request.is_full

            def change(image: MetadataImage) -> MetadataDelta | None:
                after = decrees.with_brokers(
                    image, [*image.brokers.values(), *_unknown(image, request.leaders)], broker_id
                )
                after = decrees.with_placeholders(after, obeyed)
                after, late = decrees.with_roles(after, obeyed, broker_id)
                refused.update((each.replica, ErrorCode.STALE_CONTROLLER_EPOCH) for each in late)
                return _if_changed(image, _commanded_by(after, request.decree))

            self._publisher.publish(change, lambda: self._end(lambda: on_done(outcome(refused))))

        def outcome(refused: ReplicaErrors) -> ReplicaErrors:
            errors = {}
            for state in request.partitions:
                where = state.replica
                partition = self._publisher.image.partition(where)
                if partition is not None and broker_id in partition.offline:
                    errors[where] = ErrorCode.KAFKA_STORAGE_ERROR
                elif where in refused:
                    errors[where] = refused[where]
                elif partition is None:
                    errors[where] = ErrorCode.KAFKA_STORAGE_ERROR
                else:
                    errors[where] = ErrorCode.NONE
            return errors

        self._take(request.decree, begin, on_done)

    def on_update_metadata(self, request: UpdateMetadata, on_done: OnDone[None]) -> None:
        """See `ControlledBroker`."""
        broker_id = self._membership.broker_id
        session = self._membership.epoch
        # Else it only tells who is there to be followed, before the roles of this broker come.
        is_named = any(broker.id == broker_id for broker in request.brokers)

        def begin() -> None:
            nonlocal session
            session = self._membership.epoch
            names = {
                state.topic
                for state in request.partitions
                if state.partition.leader != decrees.DELETED
            }
            self._settings.with_topics(names, show)

        def show() -> None:
            if self._is_over(session, on_done):
                return
            tells_all = self._tells_all and is_named
            self._tells_all &= not is_named

            def change(image: MetadataImage) -> MetadataDelta | None:
                after = decrees.with_metadata(image, request, broker_id)
                if tells_all:
                    after = decrees.without_unnamed(after, request, broker_id)
                return _if_changed(image, _commanded_by(after, request.decree))

            def then() -> None:
                if is_named:
                    self._publisher.complete()
                self._end(lambda: on_done(None))

            self._publisher.publish(change, then)

        self._take(request.decree, begin, on_done)

    def on_stop_replica(self, request: StopReplica, on_done: OnDone[ReplicaErrors]) -> None:
        """See `ControlledBroker`."""
        broker_id = self._membership.broker_id
        publish = self._publisher.publish

        def begin() -> None:
            late: list[TopicPartition] = []
            orphans = [
                each.topic_partition
                for each in request.replicas
                if each.delete and self._publisher.image.topic(each.topic_partition.topic) is None
            ]
            if orphans:
                # Their logs are here without anybody knowing: they come in, and go.
                publish(
                    lambda image: difference(image, decrees.with_orphans(image, orphans, broker_id))
                )
                publish(lambda image: difference(image, decrees.without_orphans(image, orphans)))

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

            publish(change, lambda: self._end(lambda: on_done(outcome())))

        self._take(request.decree, begin, on_done)

    def go_on(self) -> None:
        """Begins with the next command, if none is under way."""
        while self._waiting and not self._is_under_way and not self._membership.is_registering:
            self._is_under_way = True
            begin, _ = self._waiting.popleft()
            begin()

    def refuse_all(self) -> None:
        """The life that they were meant for is over."""
        waiting = list(self._waiting)
        self._waiting.clear()
        for _, refuse in waiting:
            refuse(BrokerError(ErrorCode.STALE_BROKER_EPOCH))

    def _take(self, decree: Decree, begin: Callable[[], None], on_done: OnDone[T]) -> None:
        """Carries a command out when those before it are, unless it is of the past."""

        def refuse(error: BrokerError) -> None:
            on_done(error)

        def checked() -> None:
            error = self._objection(decree)
            if error is not None:
                self._end(lambda: on_done(error))
                return
            if self._candidacy.office is not None:
                self._candidacy.on_deposed()
            begin()

        self._waiting.append((checked, refuse))
        self.go_on()

    def _is_over(self, session: int, on_done: OnDone[T]) -> bool:
        """Whether the session has ended in which a command was begun; it is refused then."""
        is_over = self._membership.epoch != session
        if is_over:
            self._end(lambda: on_done(BrokerError(ErrorCode.STALE_BROKER_EPOCH)))
        return is_over

    def _objection(self, decree: Decree) -> BrokerError | None:
        epoch = self._membership.epoch
        if epoch == UNREGISTERED or 0 <= decree.broker_epoch < epoch:
            logger.warning(
                "Broker %d is not obeyed: it commands this broker as of epoch %d, which is over",
                decree.controller_id,
                decree.broker_epoch,
            )
            return BrokerError(ErrorCode.STALE_BROKER_EPOCH)
        office = self._candidacy.office
        is_own_office = office is not None and decree.controller_epoch <= office.epoch
        if decree.controller_epoch < self._publisher.image.controller_epoch or is_own_office:
            logger.warning(
                "Broker %d is not obeyed: its epoch %d as a controller is over",
                decree.controller_id,
                decree.controller_epoch,
            )
            return BrokerError(ErrorCode.STALE_CONTROLLER_EPOCH)
        return None

    def _end(self, answer: Callable[[], None]) -> None:
        self._is_under_way = False
        answer()
        self.go_on()


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
