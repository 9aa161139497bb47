"""`ControllerContext`: the state that all parts of a controller share: the epoch, and what ends
with it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.client import (
    Check,
    Created,
    Node,
    OnChanged,
    OnChildren,
    OnCommitted,
    OnNode,
    Operation,
    Refusal,
    ZooKeeperClient,
    note_refused,
)
from odradek.metadata.zookeeper.reads import gather
from odradek.metadata.zookeeper.watches import Watches
from odradek.metadata.zookeeper.znodes import TopicNode

ANY_VERSION: Final = -1


class KnownNode(NamedTuple):
    """A topic's node as it was last read or written, and its version."""

    version: int
    content: TopicNode


class ControllerContext:
    """Controller `broker_id`, elected under `epoch`. Its writes are conditional on the version that
    the epoch's node got with its election, so a deposed controller writes nothing.
    """

    def __init__(
        self, broker_id: int, epoch: int, epoch_version: int, zookeeper: ZooKeeperClient
    ) -> None:
        self.broker_id: Final = broker_id
        self.epoch: Final = epoch
        self.is_open = True
        self.topic_nodes: Final[dict[str, KnownNode]] = {}
        """Each topic's node. A write over it is based on its content: somebody may have added
        partitions that the image does not have yet."""
        self.zookeeper: Final = zookeeper
        """For reads without a watch. The controller writes through `commit` only."""
        self._check: Final = Check(znodes.CONTROLLER_EPOCH, epoch_version)
        self._watches: Final = Watches(zookeeper)

    def watch_node(self, path: str, on_done: OnNode, again: Callable[[], None]) -> None:
        """Reads a node; calls `again` when it has changed."""
        self._watches.get(path, on_done, again)

    def watch_children(self, path: str, on_done: OnChildren, again: Callable[[], None]) -> None:
        """Reads the names of a node's children; calls `again` when there are others."""
        self._watches.children(path, on_done, again)

    def gather(
        self,
        paths: Iterable[str],
        on_done: Callable[[Mapping[str, Node | None]], None],
        again: Callable[[str], None] | None = None,
    ) -> None:
        """Reads nodes at once; calls `again` with the path of each that has changed."""

        def watch(path: str) -> OnChanged | None:
            return None if again is None else self._watches.watch(path, lambda: again(path))

        gather(self.zookeeper, paths, on_done, watch=watch)

    def commit(self, operations: Sequence[Operation], on_done: OnCommitted | None = None) -> None:
        """Does all operations or none, unless there is a later controller: then the operation at
        place 0 is the one that is refused. Without `on_done` a refusal is only logged."""
        self.zookeeper.commit([self._check, *operations], on_done or self._note_refusal)

    def _note_refusal(self, outcome: Created | Refusal) -> None:
        if self.is_open:
            note_refused("ZooKeeper refuses a change of the controller", outcome)

    def note_node(self, topic: str, node: KnownNode) -> bool:
        """Notes what a topic's node holds; False where that was known. A read never undoes a later
        write."""
        known = self.topic_nodes.get(topic)
        if known is not None and known.version >= node.version:
            return False
        self.topic_nodes[topic] = node
        return True

    def close(self) -> None:
        """Ends all watches."""
        self.is_open = False
        self._watches.forget()
