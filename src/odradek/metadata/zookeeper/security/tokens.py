"""`ClusterTokens`: delegation tokens in ZooKeeper, as Apache Kafka 3.9 keeps them there.

Each is a node with everything but its password. A change of a token is announced by a numbered node
with its id, and every broker reads the token again (`announcements`).
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.engine import BrokerView
from odradek.metadata.image import ConfigResource, MetadataDelta, MetadataImage
from odradek.metadata.kept_tokens import INFORMATION, token_resource
from odradek.metadata.store import OnDone
from odradek.metadata.zookeeper.announcements import Announcements
from odradek.metadata.zookeeper.client import (
    LOST,
    Create,
    Created,
    Delete,
    Failure,
    Node,
    Operation,
    Refusal,
    SetData,
    ZooKeeperClient,
    refused,
)
from odradek.metadata.zookeeper.reads import gather, gather_children, read_into
from odradek.metadata.zookeeper.znodes import is_node_name
from odradek.model import ConfigResourceType

logger = logging.getLogger(__name__)

TOKENS: Final = "/delegation_token/tokens"
CHANGES: Final = "/delegation_token/token_changes"
_CHANGE_PREFIX: Final = f"{CHANGES}/token_change_"
_OTHERS_FIRST: Final = (Failure.BAD_VERSION, Failure.NODE_EXISTS, Failure.NO_NODE)
PERSISTENT: Final = (TOKENS, CHANGES)
"""The znodes that a broker with delegation tokens creates at its start."""

Altered = Mapping[ConfigResource, Mapping[str, str | None]]


class ClusterTokens:
    """Reads into the image of `view`."""

    def __init__(self, zookeeper: ZooKeeperClient, view: BrokerView) -> None:
        self._zookeeper: Final = zookeeper
        self._view: Final = view
        self._announcements: Final = Announcements(zookeeper, CHANGES)
        self._announcements.follow(self._on_announced)

    def load(self) -> dict[ConfigResource, dict[str, str]]:
        """Reads all tokens. Blocks.

        Raises:
            MetadataStoreError: ZooKeeper cannot be read.
        """
        self._announcements.load()
        paths = [f"{TOKENS}/{name}" for name in self._zookeeper.children_now(TOKENS)]
        nodes = self._zookeeper.read_now(paths)
        return {_resource(path): found for path in paths if (found := _kept(path, nodes[path]))}

    def watch(self) -> None:
        """Looks for changes since `load`, and from now on."""
        self._announcements.watch()

    def lose(self) -> None:
        """Ends the session."""
        self._announcements.lose()

    def alter(self, altered: Altered, on_done: OnDone[None]) -> None:
        """Writes tokens and announces them; answers when this broker has read them. A token that
        was deleted meanwhile stays deleted."""
        known = {_path(each) for each in altered if self._view.image.config(each)}
        self._alter(altered, known, on_done)

    def _alter(self, altered: Altered, known: set[str], on_done: OnDone[None]) -> None:
        texts = {_path(resource): changes[INFORMATION] for resource, changes in altered.items()}

        def on_nodes(nodes: Mapping[str, Node | None]) -> None:
            if any(nodes[path] is None and texts[path] is not None for path in known):
                on_done(BrokerError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND))
                return
            changes = [each for path in texts for each in _written(path, nodes[path], texts[path])]
            announcements = [
                Create(_CHANGE_PREFIX, each.name.encode(), sequential=True) for each in altered
            ]
            self._zookeeper.commit([*changes, *announcements], on_committed)

        def on_committed(outcome: Created | Refusal) -> None:
            if not isinstance(outcome, Refusal):
                self._read(altered, on_done)
            elif outcome.failure in _OTHERS_FIRST:
                self._alter(altered, known, on_done)
            else:
                on_done(refused(outcome.failure))

        if not all(is_node_name(each.name) for each in altered):
            on_done(BrokerError(ErrorCode.INVALID_REQUEST, "a token of such an id has no place"))
        else:
            gather(self._zookeeper, texts, on_nodes, on_lost=partial(on_done, LOST))

    # --- what others have changed -------------------------------------------------------------

    def _on_announced(self, nodes: Mapping[str, Node] | None, on_read: OnDone[None]) -> None:
        ids = None if nodes is None else {_announced(node) for node in nodes.values()}
        if ids is None or not all(map(is_node_name, ids)):
            self._read_all(on_read)
        else:
            self._read(map(token_resource, ids), on_read)

    def _read_all(self, on_read: OnDone[None]) -> None:
        """Reads the existing tokens, and the known ones, which may be deleted."""
        kind = ConfigResourceType.DELEGATION_TOKEN
        known = [each for each in self._view.image.configs if each.type is kind]

        def on_paths(paths: Sequence[str]) -> None:
            self._read({*known, *map(_resource, paths)}, on_read)

        gather_children(self._zookeeper, [TOKENS], on_paths)

    def _read(self, resources: Iterable[ConfigResource], on_done: OnDone[None]) -> None:
        paths = [_path(each) for each in resources]
        read_into(self._view, self._zookeeper, paths, _with_read, on_done)


def _announced(node: Node) -> str:
    return node.data.decode("utf-8", "replace")


def _written(path: str, node: Node | None, text: str | None) -> list[Operation]:
    if text is None:
        return [] if node is None else [Delete(path, node.version)]
    data = text.encode()
    return [Create(path, data) if node is None else SetData(path, data, node.version)]


def _with_read(nodes: Mapping[str, Node | None], image: MetadataImage) -> MetadataDelta | None:
    read = {_resource(path): _kept(path, node) for path, node in nodes.items()}
    changed = {each: kept for each, kept in read.items() if dict(image.config(each)) != kept}
    if not changed:
        return None
    return MetadataDelta(image, image.with_configs(changed), configs=changed)


def _kept(path: str, node: Node | None) -> dict[str, str]:
    """A token for the image; none if its node is unreadable, so that no client can log in by it."""
    try:
        return {} if node is None else {INFORMATION: node.data.decode()}
    except UnicodeDecodeError:
        logger.error("%s in ZooKeeper holds no delegation token", path)
        return {}


def _path(resource: ConfigResource) -> str:
    return f"{TOKENS}/{resource.name}"


def _resource(path: str) -> ConfigResource:
    return token_resource(path.rpartition("/")[2])
