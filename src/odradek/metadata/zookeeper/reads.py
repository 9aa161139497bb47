"""Reads many nodes at once: all requests are made together, with one callback after all answers."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from odradek.background import ignore
from odradek.metadata.engine import BrokerView
from odradek.metadata.image import MetadataDelta, MetadataImage
from odradek.metadata.store import OnDone
from odradek.metadata.zookeeper.client import LOST, Failure, Node, OnChanged, ZooKeeperClient

UNREADABLE: Final = Node(b"", 0, 0, 0)
"""A node that exists but that this broker may not read: it does not count as deleted."""


def gather(
    zookeeper: ZooKeeperClient,
    paths: Iterable[str],
    on_done: Callable[[Mapping[str, Node | None]], None],
    *,
    watch: Callable[[str], OnChanged | None] = lambda _path: None,  # no watch
    on_lost: Callable[[], None] = ignore,
) -> None:
    """Reads nodes, each with its callback from `watch`. When the session has ended meanwhile
    `on_lost` is called instead. Without any path the answer comes at once."""
    wanted = list(paths)
    nodes: dict[str, Node | None] = {}
    is_lost = False

    def on_node(path: str, node: Node | Failure | None) -> None:
        nonlocal is_lost
        if isinstance(node, Failure):
            is_lost = is_lost or node is Failure.SESSION_LOST
            node = UNREADABLE
        nodes[path] = node
        if len(nodes) == len(wanted):
            if is_lost:
                on_lost()
            else:
                on_done(nodes)

    if not wanted:
        on_done(nodes)
    for path in wanted:
        zookeeper.get(path, partial(on_node, path), watch(path))


def read_into(
    view: BrokerView,
    zookeeper: ZooKeeperClient,
    paths: Iterable[str],
    with_read: Callable[[Mapping[str, Node | None], MetadataImage], MetadataDelta | None],
    on_done: OnDone[None],
) -> None:
    """Reads nodes into the image of `view`; answers when they are there, or with `LOST` when the
    session has ended meanwhile."""

    def on_nodes(nodes: Mapping[str, Node | None]) -> None:
        view.publish(partial(with_read, nodes), partial(on_done, None))

    gather(zookeeper, paths, on_nodes, on_lost=partial(on_done, LOST))


def gather_children(
    zookeeper: ZooKeeperClient,
    folders: Iterable[str],
    on_done: Callable[[list[str]], None],
    *,
    on_lost: Callable[[], None] = ignore,
) -> None:
    """Lists the paths that lie in folders, of which some may not be there. When the session has
    ended meanwhile `on_lost` is called instead."""
    wanted = list(folders)
    found: dict[str, tuple[str, ...]] = {}
    is_lost = False

    def on_names(folder: str, names: tuple[str, ...] | Failure) -> None:
        nonlocal is_lost
        is_lost = is_lost or names is Failure.SESSION_LOST
        found[folder] = () if isinstance(names, Failure) else names
        if len(found) < len(wanted):
            return
        if is_lost:
            on_lost()
        else:
            on_done([f"{folder}/{name}" for folder in wanted for name in found[folder]])

    if not wanted:
        on_done([])
    for folder in wanted:
        zookeeper.children(folder, partial(on_names, folder))
