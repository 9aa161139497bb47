"""`Announcements`: numbered nodes that tell every broker to read something again.

Settings and quotas have one folder for both, ACLs one for each kind of pattern. A number counts as
seen when its resource is in the image, so that a session that ends before loses none. If numbers
are removed before this broker has seen them (the connection was lost for long), it reads all again.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from odradek.errors import BrokerError
from odradek.metadata.store import OnDone
from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.client import (
    LOST,
    Delete,
    Failure,
    Node,
    ZooKeeperClient,
    note_refused,
)
from odradek.metadata.zookeeper.reads import gather
from odradek.metadata.zookeeper.watches import Watches
from odradek.metadata.zookeeper.znodes import ZnodeError

logger = logging.getLogger(__name__)

KEPT: Final = 1000
Reader: TypeAlias = Callable[[Mapping[str, Node] | None, OnDone[None]], None]
"""Reads what these nodes name, or everything (None), and calls back when that is in the image; with
`LOST`, or not at all, if the session ends meanwhile."""


class Announcements:
    """The announcements of one folder."""

    def __init__(self, zookeeper: ZooKeeperClient, folder: str) -> None:
        self._zookeeper: Final = zookeeper
        self._folder: Final = folder
        self._readers: Final[list[Reader]] = []
        self._waiting: Final[list[tuple[int, OnDone[None]]]] = []
        self._watches: Final = Watches(zookeeper)
        self._seen = -1

    def follow(self, reader: Reader) -> None:
        """Calls `reader` with every announced resource."""
        self._readers.append(reader)

    def load(self) -> None:
        """Notes the existing announcements: a full read after this includes them. Blocks.

        Raises:
            MetadataStoreError: ZooKeeper cannot be read.
        """
        found = _numbered(self._zookeeper.children_now(self._folder))
        self._seen = found[-1][0] if found else -1

    def watch(self) -> None:
        """Looks for announcements since `load`, and from now on."""
        self._watches.children(self._folder, self._on_announced, self.watch)

    def lose(self) -> None:
        """Ends the session: waiting callers get an error."""
        self._watches.forget()
        waiting = list(self._waiting)
        self._waiting.clear()
        for _, on_done in waiting:
            on_done(LOST)

    def when_seen(self, number: int, on_done: OnDone[None]) -> None:
        """Calls back when the announced resource has been read."""
        if number <= self._seen:
            on_done(None)
        else:
            self._waiting.append((number, on_done))

    def _on_announced(self, names: tuple[str, ...] | Failure) -> None:
        if isinstance(names, Failure):
            return
        found = _numbered(names)
        new = [(number, name) for number, name in found if number > self._seen]
        if not new:
            return
        last = new[-1][0]
        is_gapless = new[0][0] == self._seen + 1

        def on_nodes(nodes: Mapping[str, Node | None]) -> None:
            there = {path: node for path, node in nodes.items() if node is not None}
            is_whole = is_gapless and len(there) == len(nodes)
            self._read(there if is_whole else None, last)

        gather(self._zookeeper, [f"{self._folder}/{name}" for _, name in new], on_nodes)
        self._purge([name for _, name in found])

    def _purge(self, names: Sequence[str]) -> None:
        """Removes all but the latest; a broker that was away longer reads everything."""
        note = partial(note_refused, "an old announcement is removed later")
        for name in names[:-KEPT]:
            self._zookeeper.commit([Delete(f"{self._folder}/{name}")], note)

    def _read(self, nodes: Mapping[str, Node] | None, last: int) -> None:
        left = len(self._readers)

        def on_read(outcome: BrokerError | None) -> None:
            nonlocal left
            if outcome is not None:
                return  # the next session reads what this one left unread
            left -= 1
            if not left:
                self._note(last)

        for reader in self._readers:
            reader(nodes, on_read)

    def _note(self, last: int) -> None:
        self._seen = max(self._seen, last)
        due = [each for each in self._waiting if each[0] <= self._seen]
        for each in due:
            self._waiting.remove(each)
        for _, on_done in due:
            on_done(None)


def _numbered(names: Iterable[str]) -> list[tuple[int, str]]:
    """The announcements in their order."""
    found = []
    for name in names:
        try:
            found.append((znodes.sequence_number(name), name))
        except ZnodeError as error:
            logger.error("an announcement is ignored: %s", error)
    return sorted(found)
