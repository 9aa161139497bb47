"""`ClusterConfigs`: settings, features and producer ids, which every broker writes by itself.

Altered settings are announced (`announcements`), and every broker reads them again.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final
from uuid import UUID

from odradek.config.features import DEFAULT_LEVELS
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.engine import BrokerView
from odradek.metadata.image import ZERO_UUID, ConfigResource, MetadataDelta, MetadataImage
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
from odradek.metadata.zookeeper.watches import Watches
from odradek.metadata.zookeeper.znodes import ZnodeError
from odradek.model import ConfigResourceType

logger = logging.getLogger(__name__)


class ClusterConfigs:
    """Reads into the image of `view`, writes for `broker_id`."""

    def __init__(
        self,
        zookeeper: ZooKeeperClient,
        view: BrokerView,
        broker_id: int,
        announcements: Announcements,
    ) -> None:
        self._zookeeper: Final = zookeeper
        self._view: Final = view
        self._broker_id: Final = broker_id
        self._announcements: Final = announcements
        # The resources whose settings have been read; those from `load` belong to the first
        # metadata.
        self._topics: Final[dict[str, UUID | None]] = {}
        self._features_waiting: Final[list[tuple[int, OnDone[None]]]] = []
        self._watches: Final = Watches(zookeeper)
        announcements.follow(self._on_announced)
        view.follow(self._on_published)

    def load(self) -> tuple[dict[ConfigResource, dict[str, str]], Mapping[str, int], int]:
        """Reads everything: settings, features, and the version of the features. Blocks.

        Raises:
            MetadataStoreError: ZooKeeper cannot be read.
        """
        zookeeper = self._zookeeper
        settings: dict[ConfigResource, dict[str, str]] = {}
        for kind in znodes.CONFIG_TYPES:
            folder = znodes.config_folder(kind)
            paths = [f"{folder}/{name}" for name in zookeeper.children_now(folder)]
            for path, node in zookeeper.read_now(paths).items():
                resource = _resource(path)
                found = {} if node is None else _understood(path, node)
                if resource is None or found is None:
                    continue
                if kind is ConfigResourceType.TOPIC:
                    self._topics[resource.name] = None
                if found:
                    settings[resource] = found
        node = zookeeper.read_now([znodes.FEATURES])[znodes.FEATURES]
        if node is None:
            zookeeper.commit_now([Create(znodes.FEATURES, znodes.features_json({}))])
            return settings, DEFAULT_LEVELS, 0
        return settings, _levels(node), node.version

    def watch(self) -> None:
        """Looks for features that have changed since `load`, and from now on."""
        self._watches.get(znodes.FEATURES, self._on_features, self.watch)

    def lose(self) -> None:
        """Ends the session: waiting callers get an error."""
        self._watches.forget()
        waiting = list(self._features_waiting)
        self._features_waiting.clear()
        for _, on_done in waiting:
            on_done(LOST)

    def with_topics(self, ids: Mapping[str, UUID], then: Callable[[], None]) -> None:
        """Calls `then` when the settings of these topics are in the image: those of a new topic are
        not announced. When the session ends it is called without them."""
        new = {}
        for name, topic_id in ids.items():
            if name not in self._topics:
                new[name] = topic_id
            elif self._topics[name] is None:
                self._topics[name] = topic_id
            elif topic_id not in (self._topics[name], ZERO_UUID):
                new[name] = topic_id
        if new:
            self.read_topics(new, then)
        else:
            then()

    def forget_untold(self) -> None:
        """Forgets the settings of unknown topics from `load`, now that this broker has received all
        topics: they do not belong to a later topic of the name."""
        for name in [name for name, topic_id in self._topics.items() if topic_id is None]:
            del self._topics[name]

    def read_topics(self, ids: Mapping[str, UUID], then: Callable[[], None]) -> None:
        """Like `with_topics`, but reads the settings again even if they are known."""

        def on_nodes(nodes: Mapping[str, Node | None]) -> None:
            self._topics.update(ids)
            self._view.publish(partial(_with_read, nodes), then)

        paths = [znodes.config_path(ConfigResource.topic(name)) for name in ids]
        gather(self._zookeeper, paths, on_nodes, on_lost=then)

    def alter(
        self,
        altered: Mapping[ConfigResource, Mapping[str, str | None]],
        on_done: OnDone[None],
    ) -> None:
        """Writes settings and announces them; answers when this broker has read them."""
        unknown = [each for each in altered if each.type not in znodes.CONFIG_TYPES]
        if unknown:
            on_done(BrokerError(ErrorCode.INVALID_REQUEST, f"{unknown[0]} has no settings"))
            return
        paths = {znodes.config_path(each): each for each in altered if self._may_alter(each)}

        announcements = [
            Create(znodes.CONFIG_CHANGE_PREFIX, znodes.config_change_json(each), sequential=True)
            for each in paths.values()
        ]

        def on_nodes(nodes: Mapping[str, Node | None]) -> None:
            operations: list[Operation] = []
            for path, node in nodes.items():
                before = {} if node is None else _understood(path, node)
                if before is None:
                    text = f"{path} in ZooKeeper is not understood"
                    on_done(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, text))
                    return
                merged: dict[str, str | None] = {**before, **altered[paths[path]]}
                data = znodes.config_json({k: v for k, v in merged.items() if v is not None})
                if node is None:
                    operations.append(Create(path, data))
                else:
                    operations.append(SetData(path, data, node.version))
            self._zookeeper.commit([*operations, *announcements], on_committed)

        def on_committed(outcome: Created | Refusal) -> None:
            if isinstance(outcome, Refusal):
                if outcome.failure in (Failure.BAD_VERSION, Failure.NODE_EXISTS):
                    self.alter(altered, on_done)
                else:
                    on_done(refused(outcome.failure))
                return
            number = max(map(znodes.sequence_number, outcome[-len(announcements) :]))
            self._announcements.when_seen(number, on_done)

        if paths:
            gather(self._zookeeper, paths, on_nodes, on_lost=lambda: on_done(LOST))
        else:
            on_done(None)

    def _may_alter(self, resource: ConfigResource) -> bool:
        """Whether the resource still exists: a topic may be deleted between the check of a request
        and its turn."""
        return (
            resource.type is not ConfigResourceType.TOPIC
            or resource.name in self._view.image.topics
        )

    def update_features(self, levels: Mapping[str, int], on_done: OnDone[None]) -> None:
        """Stores all levels; answers when this broker has read them."""

        def on_node(node: Node | Failure | None) -> None:
            if not isinstance(node, Node):
                on_done(refused(node))
                return
            merged = {**_levels(node), **levels}
            data = znodes.features_json({k: v for k, v in merged.items() if v})
            operations = [SetData(znodes.FEATURES, data, node.version)]
            version = node.version + 1
            self._zookeeper.commit(operations, lambda outcome: on_committed(version, outcome))

        def on_committed(version: int, outcome: Created | Refusal) -> None:
            if isinstance(outcome, Refusal):
                if outcome.failure is Failure.BAD_VERSION:
                    self.update_features(levels, on_done)
                else:
                    on_done(refused(outcome.failure))
            elif self._view.image.features_epoch >= version:
                on_done(None)
            else:
                self._features_waiting.append((version, on_done))

        self._zookeeper.get(znodes.FEATURES, on_node)

    def allocate_producer_ids(self, count: int, on_done: OnDone[range]) -> None:
        """Takes the next block; if the connection is lost at the write, the block is lost too,
        never reused."""

        def on_node(node: Node | Failure | None) -> None:
            if not isinstance(node, Node):
                on_done(refused(node))
                return
            try:
                first = znodes.read_next_producer_id(node.data)
            except ZnodeError as error:
                on_done(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
                return
            block = range(first, first + count)
            data = znodes.producer_ids_json(self._broker_id, block)
            operations = [SetData(znodes.PRODUCER_IDS, data, node.version)]
            self._zookeeper.commit(operations, lambda outcome: on_committed(block, outcome))

        def on_committed(block: range, outcome: Created | Refusal) -> None:
            if not isinstance(outcome, Refusal):
                on_done(block)
            elif outcome.failure is Failure.BAD_VERSION:
                self.allocate_producer_ids(count, on_done)
            else:
                on_done(refused(outcome.failure))

        self._zookeeper.get(znodes.PRODUCER_IDS, on_node)

    # --- what others have changed -------------------------------------------------------------

    def _on_announced(self, nodes: Mapping[str, Node] | None, on_read: OnDone[None]) -> None:
        if nodes is None:
            self._read_all(on_read)
            return
        entities = {_announced(path, node) for path, node in nodes.items()}
        resources = [znodes.config_resource(entity) for entity in entities if entity]
        self._read([each for each in resources if each is not None], on_read)

    def _read_all(self, on_read: OnDone[None]) -> None:
        """Reads the existing resources, and the known ones, which may be deleted."""
        known = [each for each in self._view.image.configs if each.type in znodes.CONFIG_TYPES]

        def on_paths(paths: Sequence[str]) -> None:
            found = (_resource(path) for path in paths)
            self._read(list({*known, *(each for each in found if each)}), on_read)

        folders = [znodes.config_folder(kind) for kind in znodes.CONFIG_TYPES]
        gather_children(self._zookeeper, folders, on_paths)

    def _read(self, resources: Sequence[ConfigResource], on_read: OnDone[None]) -> None:
        paths = [znodes.config_path(each) for each in resources]
        read_into(self._view, self._zookeeper, paths, _with_read, on_read)

    def _on_features(self, node: Node | Failure | None) -> None:
        if not isinstance(node, Node):
            return
        levels, version = _levels(node), node.version

        def change(image: MetadataImage) -> MetadataDelta | None:
            if version == image.features_epoch:
                return None
            after = replace(image, features=MappingProxyType(dict(levels)), features_epoch=version)
            return MetadataDelta(image, after)

        def on_published() -> None:
            due = [each for each in self._features_waiting if each[0] <= version]
            for each in due:
                self._features_waiting.remove(each)
            for _, on_done in due:
                on_done(None)

        self._view.publish(change, on_published)

    def _on_published(self, delta: MetadataDelta) -> None:
        """Forgets the settings of deleted topics: another one of the name has its own."""
        gone = {topic.name for topic in delta.topics_removed}
        for name in gone | _without_settings(delta):
            self._topics.pop(name, None)


def _without_settings(delta: MetadataDelta) -> set[str]:
    """The missing topics, whose settings are deleted."""
    image = delta.image
    return {
        each.name
        for each in delta.configs_changed
        if each.type is ConfigResourceType.TOPIC
        and each.name not in image.topics
        and not image.config(each)
    }


def _with_read(nodes: Mapping[str, Node | None], image: MetadataImage) -> MetadataDelta | None:
    read: dict[ConfigResource, dict[str, str]] = {}
    for path, node in nodes.items():
        resource = _resource(path)
        settings = {} if node is None else _understood(path, node)
        if resource is None or settings is None:
            continue
        if dict(image.config(resource)) != settings:
            read[resource] = settings
    if not read:
        return None
    return MetadataDelta(image, image.with_configs(read), configs=read)


def _levels(node: Node) -> Mapping[str, int]:
    """The levels of the features; without a change those of a new cluster."""
    try:
        return znodes.read_features(node.data) or DEFAULT_LEVELS
    except ZnodeError as error:
        logger.error("the features are a new cluster's: %s", error)
        return DEFAULT_LEVELS


def _resource(path: str) -> ConfigResource | None:
    return znodes.config_resource(path.removeprefix(f"{znodes.CONFIG}/"))


def _understood(path: str, node: Node) -> dict[str, str] | None:
    try:
        return znodes.read_config(path, node.data)
    except ZnodeError as error:
        logger.error("settings stay as they were: %s", error)
        return None


def _announced(path: str, node: Node) -> str:
    try:
        return znodes.read_config_change(path, node.data)
    except ZnodeError as error:
        logger.error("an announcement is ignored: %s", error)
        return ""
