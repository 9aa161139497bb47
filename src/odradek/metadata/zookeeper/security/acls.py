"""`ClusterAcls`: ACLs in ZooKeeper, which every broker writes by itself, as Kafka 3.9's do.

The entries of a pattern are one znode. A broker that changes it announces the pattern
(`announcements`), and every broker reads the entries again.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

from odradek.acl import AccessControlEntry, AclBinding, PatternType, ResourcePattern
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.acl_changes import by_pattern, entries_of
from odradek.metadata.engine import BrokerView
from odradek.metadata.image import MetadataDelta, MetadataImage
from odradek.metadata.store import MetadataStoreError, OnDone
from odradek.metadata.zookeeper.announcements import Announcements
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
    refused,
)
from odradek.metadata.zookeeper.reads import gather_children, read_into
from odradek.metadata.zookeeper.security import acl_znodes
from odradek.metadata.zookeeper.znodes import ZnodeError

logger = logging.getLogger(__name__)

_OTHERS_FIRST: Final = (Failure.BAD_VERSION, Failure.NODE_EXISTS, Failure.NO_NODE)
ATTEMPTS: Final = 10
"""How often a change is repeated that other brokers' changes overtook."""
Acls = dict[ResourcePattern, frozenset[AccessControlEntry]]


class ClusterAcls:
    """Reads into the image of `view`."""

    def __init__(self, zookeeper: ZooKeeperClient, view: BrokerView) -> None:
        self._zookeeper: Final = zookeeper
        self._view: Final = view
        self._announcements: Final = {
            kind: Announcements(zookeeper, folder) for kind, folder in acl_znodes.CHANGES.items()
        }
        for kind, announcements in self._announcements.items():
            announcements.follow(partial(self._on_announced, kind))

    def load(self) -> Acls:
        """Reads all ACLs. Blocks.

        Raises:
            MetadataStoreError: ZooKeeper cannot be read, or has an unreadable node: a broker that
                ignored it might admit a principal that it denies.
        """
        acls: Acls = {}
        for kind, announcements in self._announcements.items():
            announcements.load()
            for type_folder in acl_znodes.type_folders(kind):
                paths = [f"{type_folder}/{x}" for x in self._zookeeper.children_now(type_folder)]
                for path, node in self._zookeeper.read_now(paths).items():
                    if node is not None:
                        acls[acl_znodes.pattern_of(path)] = _read_or_fail(path, node)
        return acls

    def watch(self) -> None:
        """Looks for changes since `load`, and from now on."""
        for each in self._announcements.values():
            each.watch()

    def lose(self) -> None:
        """Ends the session."""
        for each in self._announcements.values():
            each.lose()

    def alter(
        self, added: Collection[AclBinding], removed: Collection[AclBinding], on_done: OnDone[None]
    ) -> None:
        """Writes the entries of one pattern after the other; answers when this broker has read
        them, or with the first error."""
        more, less = by_pattern(added), by_pattern(removed)
        patterns = list(dict.fromkeys((*less, *more)))
        homeless = [each.name for each in patterns if not acl_znodes.has_place(each)]
        if homeless:
            text = f"ZooKeeper cannot keep ACLs on a resource named {homeless[0]!r}"
            on_done(BrokerError(ErrorCode.INVALID_REQUEST, text))
            return

        def go_on(outcome: BrokerError | None) -> None:
            if isinstance(outcome, BrokerError):
                on_done(outcome)
            elif patterns:
                pattern = patterns.pop()
                change = (more.get(pattern, set()), less.get(pattern, set()))
                self._alter_one(pattern, *change, ATTEMPTS, go_on)
            else:
                on_done(None)

        go_on(None)

    def _alter_one(
        self,
        pattern: ResourcePattern,
        added: set[AccessControlEntry],
        removed: set[AccessControlEntry],
        attempts: int,
        on_done: OnDone[None],
    ) -> None:
        path = acl_znodes.acl_path(pattern)

        def on_node(node: Node | Failure | None) -> None:
            if isinstance(node, Failure):
                on_done(refused(node))
                return
            try:
                before = frozenset() if node is None else acl_znodes.read_acls(path, node.data)
            except ZnodeError as error:
                on_done(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
                return
            after = before - removed | added
            if after == before:
                self._read([pattern], on_done)
                return
            self._zookeeper.commit(_written(path, pattern, node, after), on_committed)

        def on_committed(outcome: Created | Refusal) -> None:
            if not isinstance(outcome, Refusal):
                self._read([pattern], on_done)
            elif attempts > 1 and outcome.failure in _OTHERS_FIRST:
                self._alter_one(pattern, added, removed, attempts - 1, on_done)
            else:
                on_done(refused(outcome.failure))

        self._zookeeper.get(path, on_node)

    # --- what others have changed -------------------------------------------------------------

    def _on_announced(
        self, kind: PatternType, nodes: Mapping[str, Node] | None, on_read: OnDone[None]
    ) -> None:
        announced = {_announced(kind, path, node) for path, node in (nodes or {}).items()}
        if nodes is None or None in announced:
            self._read_all(kind, on_read)
        else:
            self._read([each for each in announced if each is not None], on_read)

    def _read_all(self, kind: PatternType, on_done: OnDone[None]) -> None:
        """Reads the existing patterns, and the known ones, which may be deleted."""
        known = [each for each in self._view.image.acls if each.pattern_type is kind]

        def on_paths(paths: Sequence[str]) -> None:
            self._read(list({*known, *map(acl_znodes.pattern_of, paths)}), on_done)

        gather_children(self._zookeeper, acl_znodes.type_folders(kind), on_paths)

    def _read(self, patterns: Sequence[ResourcePattern], on_done: OnDone[None]) -> None:
        paths = [acl_znodes.acl_path(each) for each in patterns]
        read_into(self._view, self._zookeeper, paths, _with_read, on_done)


def _written(
    path: str, pattern: ResourcePattern, node: Node | None, after: frozenset[AccessControlEntry]
) -> list[Operation]:
    """Writes the entries of a pattern, which has none without a node, and announces them."""
    data = acl_znodes.acls_json(after)
    prefix = acl_znodes.change_prefix(pattern.pattern_type)
    change: Operation
    if node is None:
        change = Create(path, data)
    elif after:
        change = SetData(path, data, node.version)
    else:
        change = Delete(path, node.version)
    return [change, Create(prefix, acl_znodes.change_data(pattern), sequential=True)]


def _with_read(nodes: Mapping[str, Node | None], image: MetadataImage) -> MetadataDelta | None:
    read: Acls = {}
    for path, node in nodes.items():
        pattern = acl_znodes.pattern_of(path)
        try:
            entries = frozenset() if node is None else acl_znodes.read_acls(path, node.data)
        except ZnodeError as error:
            logger.error("ACLs stay as they were: %s", error)
            continue
        if entries != entries_of(image, pattern):
            read[pattern] = entries
    return MetadataDelta(image, image.with_acls(read), acls=read) if read else None


def _read_or_fail(path: str, node: Node) -> frozenset[AccessControlEntry]:
    try:
        return acl_znodes.read_acls(path, node.data)
    except ZnodeError as error:
        raise MetadataStoreError(str(error)) from error


def _announced(kind: PatternType, path: str, node: Node) -> ResourcePattern | None:
    """The announced pattern; None if the announcement is unreadable."""
    try:
        return acl_znodes.read_change(path, kind, node.data)
    except ZnodeError as error:
        logger.error("all ACLs are read again: %s", error)
        return None
