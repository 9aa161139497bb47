"""`Watches`: at most one watch for each node, however often it is read."""

from collections.abc import Callable
from typing import Final

from odradek.metadata.zookeeper.client import OnChanged, OnChildren, OnNode, ZooKeeperClient


class Watches:
    """Reads nodes, and calls `again` once when the result has changed, which reads and watches
    again. Watches from before `forget` do not call back."""

    def __init__(self, zookeeper: ZooKeeperClient) -> None:
        self._zookeeper: Final = zookeeper
        self._watched: Final[set[str]] = set()

    def get(self, path: str, on_done: OnNode, again: Callable[[], None]) -> None:
        """Reads a node, or finds that there is none."""
        self._zookeeper.get(path, on_done, self.watch(path, again))

    def children(self, path: str, on_done: OnChildren, again: Callable[[], None]) -> None:
        """Reads the names of a node's children."""
        self._zookeeper.children(path, on_done, self.watch(path, again))

    def watch(self, path: str, again: Callable[[], None]) -> OnChanged | None:
        """The callback that a read of the node needs; None when the node is watched already."""
        if path in self._watched:
            return None
        self._watched.add(path)

        def on_changed() -> None:
            if path in self._watched:
                self._watched.discard(path)
                again()

        return on_changed

    def forget(self) -> None:
        """Forgets all watches: their session or controller epoch is over."""
        self._watched.clear()
