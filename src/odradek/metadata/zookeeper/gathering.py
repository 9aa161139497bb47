"""Reading many nodes at once: all requests are made together, one answer comes when all have."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from odradek.metadata.zookeeper.client import Failure, Node, OnChanged, ZooKeeperClient


def _nothing() -> None:
    """Whoever asked has ended with the session."""


def gather(
    zookeeper: ZooKeeperClient,
    paths: Iterable[str],
    on_done: Callable[[Mapping[str, Node | None]], None],
    *,
    watch: Callable[[str], OnChanged | None] = lambda _path: None,
    on_lost: Callable[[], None] = _nothing,
) -> None:
    """Reads nodes, each with what `watch` has for it. When the session has ended meanwhile
    `on_lost` is called instead. Without any path the answer comes at once."""
    wanted = list(paths)
    nodes: dict[str, Node | None] = {}
    is_lost = False

    def on_node(path: str, node: Node | Failure | None) -> None:
        nonlocal is_lost
        if isinstance(node, Failure):
            is_lost = is_lost or node is Failure.SESSION_LOST
            node = None
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
