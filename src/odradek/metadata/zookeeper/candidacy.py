"""`Candidacy`: this broker looks who is the controller, and stands when nobody is.

Elected is whose ephemeral node stands at `/controller`; with it the epoch rises by one, in the same
transaction, so no two controllers ever have the same.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from odradek.clock import Clock
from odradek.errors import BrokerError
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
from odradek.metadata.zookeeper.decrees import difference
from odradek.metadata.zookeeper.membership import Membership
from odradek.metadata.zookeeper.office.office import ControllerOffice
from odradek.metadata.zookeeper.publishing import ImagePublisher
from odradek.metadata.zookeeper.watches import Watches
from odradek.metadata.zookeeper.znodes import ZnodeError

logger = logging.getLogger(__name__)


class Candidacy:
    """That of `membership`'s broker. `make_office` makes the office of an epoch, of the version of
    the epoch's node and of what is to be called when there is a later controller."""

    def __init__(
        self,
        membership: Membership,
        zookeeper: ZooKeeperClient,
        clock: Clock,
        publisher: ImagePublisher,
        make_office: Callable[[int, int, Callable[[], None]], ControllerOffice],
    ) -> None:
        self.office: ControllerOffice | None = None
        self._membership: Final = membership
        self._zookeeper: Final = zookeeper
        self._clock: Final = clock
        self._publisher: Final = publisher
        self._make_office: Final = make_office
        self._is_controller_known = False
        self._is_watching = False
        self._watches: Final = Watches(zookeeper)
        self._settling: list[OnDone[None]] = []
        publisher.follow(self._on_published)

    @property
    def held_office(self) -> ControllerOffice | None:
        """The office, once its controller has read everything and is known as such."""
        is_held = self._publisher.image.controller_id == self._membership.broker_id
        return self.office if is_held else None

    def look(self) -> None:
        """Looks who is the controller, and from now on whenever another one may be."""
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
        """Ends the office, if there is one."""
        office = self.office
        if office is not None:
            self.close()
            logger.warning("This broker is no longer the controller, of epoch %d", office.epoch)
            self._publisher.publish(partial(_with_controller, controller_id=NO_CONTROLLER))

    def end_session(self) -> None:
        """The session is over: somebody else may be the controller."""
        self.resign()
        self._is_controller_known = False
        self._is_watching = False
        self._watches.forget()

    def close(self) -> None:
        """Ends the office, if there is one; publishes nothing."""
        office, self.office = self.office, None
        if office is not None:
            office.close()

    def refuse_waiters(self, error: BrokerError) -> None:
        """Who is the controller will not be known."""
        settling, self._settling = self._settling, []
        for on_done in settling:
            on_done(error)

    def _on_published(self, delta: MetadataDelta) -> None:
        if self.office is not None:
            self.office.on_published(delta)

    def _on_changed(self, session_number: int) -> None:
        if session_number == self._membership.session_number:
            self._is_watching = False
            self.look()

    def _on_controller(self, node: Node | Failure | None) -> None:
        if not self._membership.is_live or isinstance(node, Failure):
            return
        if node is None:
            self.resign()
            self._stand()
            return
        try:
            controller_id = znodes.read_controller(node.data)
        except ZnodeError as error:
            logger.error("nobody is known to be the controller: %s", error)
            return
        if self.office is not None:
            if node.owner == self._zookeeper.session_id:
                return
            self.resign()
        if node.owner == self._zookeeper.session_id:
            # Elected, but the connection broke before the answer: under which epoch nobody knows.
            self._zookeeper.commit([Delete(znodes.CONTROLLER, node.version)], _ignore)
            return
        if controller_id == self._membership.broker_id:
            return  # of an earlier life; it is about to go
        self._is_controller_known = True
        self._publisher.publish(
            partial(_with_controller, controller_id=controller_id), self._settle
        )

    def _stand(self) -> None:
        def on_epoch(node: Node | Failure | None) -> None:
            if not self._membership.is_live or isinstance(node, Failure):
                return
            if node is None:
                create = Create(znodes.CONTROLLER_EPOCH, b"0")
                self._zookeeper.commit([create], lambda _: self.look())
                return
            try:
                epoch = znodes.read_controller_epoch(node.data) + 1
            except ZnodeError as error:
                logger.error("there is no election until that is mended: %s", error)
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

        def on_committed(
            session: int, epoch: int, version: int, outcome: Created | Refusal
        ) -> None:
            if self._membership.is_closed or session != self._membership.session_number:
                return
            if isinstance(outcome, Refusal):
                if outcome.failure is not Failure.SESSION_LOST:
                    self.look()
                return
            self._take_office(epoch, version)

        self._zookeeper.get(znodes.CONTROLLER_EPOCH, on_epoch)

    def _await_other_epoch(self, version: int) -> None:
        """Stands again when the epoch's node is another than that of `version`."""

        def on_epoch(node: Node | Failure | None) -> None:
            if node is None or (isinstance(node, Node) and node.version != version):
                self.look()

        self._watches.get(znodes.CONTROLLER_EPOCH, on_epoch, self.look)

    def _take_office(self, epoch: int, version: int) -> None:
        logger.info("This broker is the controller, of epoch %d", epoch)
        office = self._make_office(epoch, version, self.on_deposed)
        self.office = office

        def on_open() -> None:
            if self.office is office:
                self._publisher.complete()
                self._is_controller_known = True
                self._settle()

        office.open(on_open)
        self.look()

    def _settle(self) -> None:
        if not self._is_controller_known:
            return
        settling, self._settling = self._settling, []
        for on_done in settling:
            if self.office is None:
                on_done(None)
            else:
                self.office.settle(on_done)


def _with_controller(image: MetadataImage, controller_id: int) -> MetadataDelta | None:
    if image.controller_id == controller_id:
        return None
    return difference(image, replace(image, controller_id=controller_id))


def _ignore(outcome: object) -> None:
    """The watch tells what came of it."""
