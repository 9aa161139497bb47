"""`ControllerElection`: finds out which broker is the controller, and stands when none is.

The broker whose ephemeral node is at `/controller` is elected. The epoch rises by one in the same
transaction, so no two controllers ever have the same epoch.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from odradek.clock import Clock
from odradek.controller.elected.elected_controller import ElectedController
from odradek.errors import BrokerError
from odradek.metadata.changes import difference
from odradek.metadata.engine import BrokerView
from odradek.metadata.image import NO_CONTROLLER, MetadataDelta, MetadataImage
from odradek.metadata.store import OnDone
from odradek.metadata.zookeeper import znodes
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
)
from odradek.metadata.zookeeper.membership import Membership
from odradek.metadata.zookeeper.watches import Watches
from odradek.metadata.zookeeper.znodes import ZnodeError
from odradek.timer import Timer, TimerTask

logger = logging.getLogger(__name__)

RETRY_MS: Final = 1_000


class ControllerElection:
    """The part of `membership`'s broker in it. `make_controller` creates the controller; it gets
    the epoch, the version of the epoch's node, and a callback for when there is a later
    controller."""

    def __init__(
        self,
        membership: Membership,
        zookeeper: ZooKeeperClient,
        clock: Clock,
        timer: Timer,
        view: BrokerView,
        make_controller: Callable[[int, int, Callable[[], None]], ElectedController],
    ) -> None:
        self.controller: ElectedController | None = None
        self._membership: Final = membership
        self._zookeeper: Final = zookeeper
        self._clock: Final = clock
        self._timer: Final = timer
        self._view: Final = view
        self._make_controller: Final = make_controller
        self._is_controller_known = False
        self._is_watching = False
        self._watches: Final = Watches(zookeeper)
        self._retry = TimerTask(RETRY_MS)
        self._settling: list[OnDone[None]] = []
        view.follow(self._on_published)

    @property
    def epoch(self) -> int | None:
        """The epoch that this broker was elected under; None while it is not the controller."""
        return None if self.controller is None else self.controller.epoch

    @property
    def active(self) -> ElectedController | None:
        """The controller, once it has read everything and is known as such."""
        controller = self.controller
        # The image may still be that of an earlier election of this broker.
        is_known = self._view.image.controller_id == self._membership.broker_id
        return controller if is_known and controller is not None and controller.has_read else None

    def look(self) -> None:
        """Finds out which broker is the controller, now and whenever that may have changed."""
        if not self._membership.is_live:
            return
        on_changed = None
        if not self._is_watching:
            self._is_watching = True
            on_changed = partial(self._on_changed, self._membership.session_number)
        self._zookeeper.get(znodes.CONTROLLER, self._on_controller, on_changed)

    def settle(self, on_done: OnDone[None]) -> None:
        """Answers when it is known who is the controller; if it is this broker, when what it has
        begun is done."""
        self._settling.append(on_done)
        self._settle()

    def on_deposed(self) -> None:
        """There is a later controller."""
        self.resign()
        self.look()

    def resign(self) -> None:
        """Ends the controller, if there is one."""
        controller = self.controller
        if controller is not None:
            self.close()
            logger.warning("This broker is no longer the controller, of epoch %d", controller.epoch)
            self._view.publish(partial(_with_controller, controller_id=NO_CONTROLLER))

    def end_session(self) -> None:
        """The session is over: somebody else may be the controller."""
        self.resign()
        self._is_controller_known = False
        self._is_watching = False
        self._watches.forget()

    def close(self) -> None:
        """Ends the controller, if there is one; publishes nothing."""
        controller, self.controller = self.controller, None
        if controller is not None:
            controller.close()

    def refuse_waiters(self, error: BrokerError) -> None:
        """Answers those who wait to know the controller with an error."""
        settling, self._settling = self._settling, []
        for on_done in settling:
            on_done(error)

    def _on_published(self, delta: MetadataDelta) -> None:
        if self.controller is not None:
            self.controller.on_published(delta)

    def _on_changed(self, session_number: int) -> None:
        if session_number == self._membership.session_number:
            self._is_watching = False
            self.look()

    def _on_controller(self, node: Node | Failure | None) -> None:
        if not self._membership.is_live:
            return
        if isinstance(node, Failure):
            self._look_again(node)
            return
        if node is None:
            self.resign()
            self._stand()
            return
        try:
            controller_id = znodes.read_controller(node.data)
        except ZnodeError as error:
            logger.error("the controller is unknown: %s", error)
            return
        if self.controller is not None:
            if node.owner == self._zookeeper.session_id:
                return
            self.resign()
        if node.owner == self._zookeeper.session_id:
            # Elected, but the connection broke before the answer: under which epoch nobody knows.
            self._remove(node.version)
            return
        if controller_id == self._membership.broker_id:
            return  # of an earlier life; it is about to go
        self._is_controller_known = True
        self._view.publish(partial(_with_controller, controller_id=controller_id), self._settle)

    def _remove(self, version: int) -> None:
        """Takes away the node by which this broker would be elected."""

        def on_committed(outcome: Created | Refusal) -> None:
            if isinstance(outcome, Refusal):
                self._look_again(outcome.failure)

        self._zookeeper.commit([Delete(znodes.CONTROLLER, version)], on_committed)

    def _stand(self) -> None:
        def on_epoch(node: Node | Failure | None) -> None:
            if not self._membership.is_live:
                return
            if isinstance(node, Failure):
                self._look_again(node)
                return
            if node is None:
                create = Create(znodes.CONTROLLER_EPOCH, b"0")
                self._zookeeper.commit([create], on_created)
                return
            try:
                epoch = znodes.read_controller_epoch(node.data) + 1
            except ZnodeError as error:
                logger.error("there is no election until this is fixed: %s", error)
                self._await_other_epoch(node.version)
                return
            data = znodes.controller_json(self._membership.broker_id, self._clock.wall_ms())
            operations: list[Operation] = [
                Create(znodes.CONTROLLER, data, ephemeral=True),
                SetData(znodes.CONTROLLER_EPOCH, str(epoch).encode(), node.version),
            ]
            session = self._membership.session_number
            self._zookeeper.commit(
                operations, lambda outcome: on_committed(session, epoch, node.version + 1, outcome)
            )

        def on_created(outcome: Created | Refusal) -> None:
            self._look_again(outcome.failure if isinstance(outcome, Refusal) else None)

        def on_committed(
            session: int, epoch: int, version: int, outcome: Created | Refusal
        ) -> None:
            if self._membership.is_closed or session != self._membership.session_number:
                return
            if isinstance(outcome, Refusal):
                self._look_again(outcome.failure)
                return
            self._take_over(epoch, version)

        self._zookeeper.get(znodes.CONTROLLER_EPOCH, on_epoch)

    def _look_again(self, failure: Failure | None) -> None:
        """Finds out again which broker is the controller. The ensemble may permit later what it
        refuses now, and sends no notification of that."""
        if failure is Failure.REFUSED:
            if not self._retry.is_pending:
                self._retry = TimerTask(RETRY_MS, lambda: self._view.attempt(self.look))
                self._timer.add(self._retry)
        elif failure is not Failure.SESSION_LOST:
            self.look()

    def _await_other_epoch(self, version: int) -> None:
        """Stands again when the epoch's node is another than that of `version`."""

        def on_epoch(node: Node | Failure | None) -> None:
            if node is None or (isinstance(node, Node) and node.version != version):
                self.look()

        self._watches.get(znodes.CONTROLLER_EPOCH, on_epoch, self.look)

    def _take_over(self, epoch: int, version: int) -> None:
        logger.info("This broker is the controller, of epoch %d", epoch)
        controller = self._make_controller(epoch, version, self.on_deposed)
        self.controller = controller

        def on_open() -> None:
            if self.controller is controller:
                self._view.cache.tell()
                self._is_controller_known = True
                self._settle()

        controller.open(on_open)
        self.look()

    def _settle(self) -> None:
        if not self._is_controller_known:
            return
        settling, self._settling = self._settling, []
        for on_done in settling:
            if self.controller is None:
                on_done(None)
            else:
                self.controller.settle(on_done)


def _with_controller(image: MetadataImage, controller_id: int) -> MetadataDelta | None:
    if image.controller_id == controller_id:
        return None
    return difference(image, replace(image, controller_id=controller_id))
