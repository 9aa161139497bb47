"""`AdminZnodes`: what tools and earlier brokers request of the controller by znodes: preferred
leaders, changed in-sync replicas and failed directories. `requested_reassignments` has
reassignments."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from odradek.controller.elected.broker_channel import BrokerChannel
from odradek.controller.elected.context import ControllerContext
from odradek.controller.elected.event_queue import ControllerEventQueue
from odradek.controller.replicas.elections import plan_election
from odradek.controller.results import ElectionType
from odradek.metadata.changes import Change
from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.client import Delete, Failure, Node
from odradek.metadata.zookeeper.znodes import ZnodeError

logger = logging.getLogger(__name__)


class AdminZnodes:
    """Read by the controller of `context`; `read_topic` reads the states of a topic again."""

    def __init__(
        self,
        context: ControllerContext,
        events: ControllerEventQueue,
        channels: Mapping[int, BrokerChannel],
        read_topic: Callable[[str], None],
    ) -> None:
        self._context: Final = context
        self._events: Final = events
        self._channels: Final = channels
        self._read_topic: Final = read_topic

    def read_all(self) -> None:
        """Looks what is asked for, and from now on whenever something is."""
        self._read_elections()
        self._read_isr_changes()
        self._read_log_dir_events()

    def _read_elections(self) -> None:
        def on_node(node: Node | Failure | None) -> None:
            if not isinstance(node, Node) or not self._context.is_open:
                return
            try:
                wanted = znodes.read_elections(node.data)
            except ZnodeError as error:
                logger.error("leaders are not elected: %s", error)
                wanted = []
            plan = partial(plan_election, election_type=ElectionType.PREFERRED)
            self._events.change_each(wanted, plan)
            # The next controller holds those elections that this one does not get to.
            self._events.submit(lambda _: Change(None), partial(end, node.version))

        # It only says that it is its turn.
        def end(version: int, _outcome: object) -> None:
            if self._context.is_open:
                self._context.commit([Delete(znodes.PREFERRED_ELECTION, version)])

        self._context.watch_node(znodes.PREFERRED_ELECTION, on_node, self._read_elections)

    def _read_isr_changes(self) -> None:
        """Brokers of old change their ISR by themselves, and say so here."""

        def on_found(path: str, node: Node) -> None:
            for topic in {each.topic for each in znodes.read_isr_change(path, node.data)}:
                self._read_topic(topic)

        self._read_events(znodes.ISR_CHANGES, on_found, self._read_isr_changes)

    def _read_log_dir_events(self) -> None:
        """A broker has lost a directory: it is asked which replicas it can serve."""

        def on_found(path: str, node: Node) -> None:
            channel = self._channels.get(znodes.read_log_dir_event(path, node.data))
            if channel is not None:
                channel.note_roles()
                channel.poke()

        self._read_events(znodes.LOG_DIR_EVENTS, on_found, self._read_log_dir_events)

    def _read_events(
        self, folder: str, on_found: Callable[[str, Node], None], again: Callable[[], None]
    ) -> None:
        def on_children(names: tuple[str, ...] | Failure) -> None:
            if not isinstance(names, Failure) and self._context.is_open:
                self._context.gather([f"{folder}/{name}" for name in names], on_nodes)

        def on_nodes(nodes: Mapping[str, Node | None]) -> None:
            for path, node in nodes.items():
                if node is None or not self._context.is_open:
                    continue
                try:
                    on_found(path, node)
                except ZnodeError as error:
                    logger.error("an event is ignored: %s", error)
                self._context.commit([Delete(path)])

        self._context.watch_children(folder, on_children, again)
