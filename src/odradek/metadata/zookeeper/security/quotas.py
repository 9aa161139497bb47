"""`ClusterQuotas`: quotas of clients in ZooKeeper, which every broker writes by itself.

They are announced among the settings (`announcements`), as Kafka 3.9 does it; see `ClusterConfigs`,
which reads the other settings.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final

from odradek.client_quota import QuotaEntity, QuotaKey, Quotas
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.engine import BrokerView
from odradek.metadata.image import MetadataDelta, MetadataImage
from odradek.metadata.quota_changes import NO_QUOTAS, QuotaAlterations, quotas_of
from odradek.metadata.store import OnDone
from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.announcements import Announcements
from odradek.metadata.zookeeper.client import (
    LOST,
    Create,
    Created,
    Failure,
    Node,
    Operation,
    Refusal,
    SetData,
    ZooKeeperClient,
    refused,
)
from odradek.metadata.zookeeper.reads import gather, gather_children, read_into
from odradek.metadata.zookeeper.security import quota_znodes
from odradek.metadata.zookeeper.security.quota_znodes import quota_entity
from odradek.metadata.zookeeper.znodes import ZnodeError

logger = logging.getLogger(__name__)

_OTHERS_FIRST: Final = (Failure.BAD_VERSION, Failure.NODE_EXISTS)
_FOLDERS: Final = (quota_znodes.USERS, quota_znodes.CLIENTS, quota_znodes.IPS)


class ClusterQuotas:
    """Reads into the image of `view`."""

    def __init__(
        self, zookeeper: ZooKeeperClient, view: BrokerView, announcements: Announcements
    ) -> None:
        self._zookeeper: Final = zookeeper
        self._view: Final = view
        announcements.follow(self._on_announced)

    def load(self) -> dict[QuotaEntity, Quotas]:
        """Reads all quotas. Blocks.

        Raises:
            MetadataStoreError: ZooKeeper cannot be read.
        """
        users, *others = (self._paths_below(f"{znodes.CONFIG}/{each}") for each in _FOLDERS)
        of_users = [
            path
            for user in users
            if quota_znodes.CLIENTS in self._zookeeper.children_now(user)
            for path in self._paths_below(f"{user}/{quota_znodes.CLIENTS}")
        ]
        found = {}
        for path, node in self._zookeeper.read_now([*users, *chain(*others), *of_users]).items():
            entity = _entity(path)
            quotas = _read(path, node)
            if entity is not None and quotas:
                found[entity] = quotas
        return found

    def alter(self, altered: QuotaAlterations, on_done: OnDone[None]) -> None:
        """Writes quotas and announces them; answers when this broker has read them."""
        paths = {quota_znodes.quotas_path(entity): entity for entity in altered}

        def on_nodes(nodes: Mapping[str, Node | None]) -> None:
            try:
                operations = self._written(nodes, {p: altered[paths[p]] for p in nodes})
            except ZnodeError as error:
                on_done(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
                return
            announcements = [
                Create(znodes.CONFIG_CHANGE_PREFIX, quota_znodes.change_json(each), sequential=True)
                for each in altered
            ]
            self._zookeeper.commit([*operations, *announcements], on_committed)

        def on_committed(outcome: Created | Refusal) -> None:
            if not isinstance(outcome, Refusal):
                self._read(list(altered), on_done)
            elif outcome.failure in _OTHERS_FIRST:
                self.alter(altered, on_done)
            else:
                on_done(refused(outcome.failure))

        self._with_folders(
            altered,
            lambda: gather(self._zookeeper, paths, on_nodes, on_lost=partial(on_done, LOST)),
        )

    def _with_folders(self, altered: QuotaAlterations, then: Callable[[], None]) -> None:
        """Makes the folders for the client ids of users, if they are missing."""
        folders: dict[str, None] = {}
        for entity in altered:
            if entity.user is not None and entity.client_id is not None:
                user = quota_znodes.quotas_path(QuotaEntity(user=entity.user))
                folders |= dict.fromkeys((user, f"{user}/{quota_znodes.CLIENTS}"))
        names = list(folders)

        # Folders may be there already; what is written below tells if one is missing.
        def go_on(_outcome: object = None) -> None:
            if names:
                self._zookeeper.commit([Create(names.pop(0), znodes.config_json({}))], go_on)
            else:
                then()

        go_on()

    @staticmethod
    def _written(
        nodes: Mapping[str, Node | None],
        alterations: Mapping[str, Mapping[QuotaKey, float | None]],
    ) -> list[Operation]:
        operations: list[Operation] = []
        for path, node in nodes.items():
            before = {} if node is None else quota_znodes.read_settings(path, node.data)
            data = znodes.config_json(quota_znodes.with_quotas(before, alterations[path]))
            operations.append(
                Create(path, data) if node is None else SetData(path, data, node.version)
            )
        return operations

    def _paths_below(self, path: str) -> list[str]:
        return [f"{path}/{name}" for name in self._zookeeper.children_now(path)]

    # --- what others have changed -------------------------------------------------------------

    def _on_announced(self, nodes: Mapping[str, Node] | None, on_read: OnDone[None]) -> None:
        if nodes is None:
            self._read_all(on_read)
            return
        entities = [_announced(path, node) for path, node in nodes.items()]
        self._read(list(dict.fromkeys(each for each in entities if each)), on_read)

    def _read_all(self, on_done: OnDone[None]) -> None:
        """Reads the existing entities, and the known ones, which may be deleted."""
        known = self._view.image.client_quotas
        kinds = [f"{znodes.CONFIG}/{each}" for each in _FOLDERS]

        def on_entities(paths: Sequence[str], of_users: Sequence[str]) -> None:
            found = (_entity(path) for path in (*paths, *of_users))
            self._read(list({*known, *(each for each in found if each)}), on_done)

        def on_names(paths: Sequence[str]) -> None:
            folders = [f"{x}/{quota_znodes.CLIENTS}" for x in paths if x.startswith(kinds[0])]
            gather_children(self._zookeeper, folders, partial(on_entities, paths))

        gather_children(self._zookeeper, kinds, on_names)

    def _read(self, entities: Sequence[QuotaEntity], on_done: OnDone[None]) -> None:
        paths = {quota_znodes.quotas_path(each): each for each in entities}
        with_read = partial(_with_read, paths)
        read_into(self._view, self._zookeeper, paths, with_read, on_done)


def _entity(path: str) -> QuotaEntity | None:
    return quota_entity(path.removeprefix(f"{znodes.CONFIG}/"))


def _read(path: str, node: Node | None) -> Quotas:
    try:
        settings = {} if node is None else quota_znodes.read_settings(path, node.data)
    except ZnodeError as error:
        logger.error("quotas that cannot be read do not apply: %s", error)
        return NO_QUOTAS
    return quota_znodes.quotas_in(settings)


def _with_read(
    entities: Mapping[str, QuotaEntity], nodes: Mapping[str, Node | None], image: MetadataImage
) -> MetadataDelta | None:
    read = {entities[path]: _read(path, node) for path, node in nodes.items()}
    changed = {
        each: quotas
        for each, quotas in read.items()
        if dict(quotas_of(image, each)) != dict(quotas)
    }
    if not changed:
        return None
    return MetadataDelta(image, image.with_client_quotas(changed), client_quotas=changed)


def _announced(path: str, node: Node) -> QuotaEntity | None:
    try:
        entity = znodes.read_config_change(path, node.data)
    except ZnodeError:
        return None  # the reader of the settings passes them
    return quota_entity(entity)
