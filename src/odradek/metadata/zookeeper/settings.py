"""`ClusterSettings`: settings, features and producer ids, which every broker writes by itself.

Settings are announced by a numbered node each; a broker that sees one reads the settings it names
again. Numbers that are gone before this broker has seen them (the connection was lost for long)
have it read all again.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

from odradek.config.features import DEFAULT_LEVELS
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import ConfigResource, MetadataDelta, MetadataImage, ResourceType
from odradek.metadata.store import OnDone
from odradek.metadata.zookeeper import znodes
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
)
from odradek.metadata.zookeeper.gathering import gather
from odradek.metadata.zookeeper.publishing import ImagePublisher
from odradek.metadata.zookeeper.watches import Watches
from odradek.metadata.zookeeper.znodes import ZnodeError

logger = logging.getLogger(__name__)

KEPT_ANNOUNCEMENTS: Final = 1000
LOST: Final = BrokerError(
    ErrorCode.BROKER_NOT_AVAILABLE, "The session with ZooKeeper is over; the outcome is unknown."
)


class ClusterSettings:
    """Reads into the image of `publisher`, writes for `broker_id`."""

    def __init__(
        self, zookeeper: ZooKeeperClient, publisher: ImagePublisher, broker_id: int
    ) -> None:
        self._zookeeper: Final = zookeeper
        self._publisher: Final = publisher
        self._broker_id: Final = broker_id
        self._seen = -1
        self._topics: Final[set[str]] = set()
        self._waiting: Final[list[tuple[int, OnDone[None]]]] = []
        self._features_waiting: Final[list[tuple[int, OnDone[None]]]] = []
        self._watches: Final = Watches(zookeeper)
        publisher.follow(self._on_published)

    def load(self) -> tuple[dict[ConfigResource, dict[str, str]], Mapping[str, int], int]:
        """Everything there is: settings, features, and the version of the features. Blocks.

        Raises:
            MetadataStoreError: ZooKeeper cannot be read.
        """
        zookeeper = self._zookeeper
        announced = _numbered(zookeeper.children_now(znodes.CONFIG_CHANGES))
        self._seen = announced[-1][0] if announced else -1
        settings: dict[ConfigResource, dict[str, str]] = {}
        for kind in znodes.CONFIG_TYPES:
            folder = znodes.config_folder(kind)
            paths = [f"{folder}/{name}" for name in zookeeper.children_now(folder)]
            for path, node in zookeeper.read_now(paths).items():
                resource = _resource(path)
                found = {} if node is None else _understood(path, node)
                if resource is None or found is None:
                    continue
                if kind is ResourceType.TOPIC:
                    self._topics.add(resource.name)
                if found:
                    settings[resource] = found
        node = zookeeper.read_now([znodes.FEATURES])[znodes.FEATURES]
        if node is None:
            zookeeper.commit_now([Create(znodes.FEATURES, znodes.features_json({}))])
            return settings, DEFAULT_LEVELS, 0
        return settings, _levels(node), node.version

    def watch(self) -> None:
        """Looks for what has changed since `load`, and from now on."""
        self._look()
        self._look_at_features()

    def lose(self) -> None:
        """The session is over: who waits hears of it."""
        self._watches.forget()
        waiting = [on_done for _, on_done in (*self._waiting, *self._features_waiting)]
        self._waiting.clear()
        self._features_waiting.clear()
        for on_done in waiting:
            on_done(LOST)

    def with_topics(self, names: Iterable[str], then: Callable[[], None]) -> None:
        """Calls `then` when the settings of these topics are in the image: a topic is made with
        them, and nobody announces those. When the session ends it is called without."""
        new = {
            znodes.config_path(ConfigResource(ResourceType.TOPIC, name)): name
            for name in names
            if name not in self._topics
        }

        def on_nodes(nodes: Mapping[str, Node | None]) -> None:
            self._topics.update(new.values())
            self._publisher.publish(partial(_with_read, nodes), then)

        if new:
            gather(self._zookeeper, new, on_nodes, on_lost=then)
        else:
            then()

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
                    on_done(_refused(outcome.failure))
                return
            number = max(map(znodes.sequence_number, outcome[-len(announcements) :]))
            if number <= self._seen:
                on_done(None)
            else:
                self._waiting.append((number, on_done))

        if paths:
            gather(self._zookeeper, paths, on_nodes, on_lost=lambda: on_done(LOST))
        else:
            on_done(None)

    def _may_alter(self, resource: ConfigResource) -> bool:
        """A topic may go between the check of a request and its turn."""
        return (
            resource.type is not ResourceType.TOPIC or resource.name in self._publisher.image.topics
        )

    def update_features(self, levels: Mapping[str, int], on_done: OnDone[None]) -> None:
        """Writes all levels down; answers when this broker has read them."""

        def on_node(node: Node | Failure | None) -> None:
            if not isinstance(node, Node):
                on_done(_refused(node))
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
                    on_done(_refused(outcome.failure))
            elif self._publisher.image.features_epoch >= version:
                on_done(None)
            else:
                self._features_waiting.append((version, on_done))

        self._zookeeper.get(znodes.FEATURES, on_node)

    def allocate_producer_ids(self, count: int, on_done: OnDone[range]) -> None:
        """Takes the next block; one whose writer lost the connection is lost, never reused."""

        def on_node(node: Node | Failure | None) -> None:
            if not isinstance(node, Node):
                on_done(_refused(node))
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
                on_done(_refused(outcome.failure))

        self._zookeeper.get(znodes.PRODUCER_IDS, on_node)

    # --- what others have changed -------------------------------------------------------------

    def _look(self) -> None:
        self._watches.children(znodes.CONFIG_CHANGES, self._on_announced, self._look)

    def _on_announced(self, names: tuple[str, ...] | Failure) -> None:
        if isinstance(names, Failure):
            return
        numbered = _numbered(names)
        new = [(number, name) for number, name in numbered if number > self._seen]
        if not new:
            return
        is_gapless = self._seen < 0 or new[0][0] == self._seen + 1
        last = new[-1][0]
        paths = [f"{znodes.CONFIG_CHANGES}/{name}" for _, name in new]

        def on_nodes(nodes: Mapping[str, Node | None]) -> None:
            entities = {_announced(path, node) for path, node in nodes.items() if node is not None}
            if not is_gapless:
                self._read_all(last)
                return
            resources = [znodes.config_resource(entity) for entity in entities if entity]
            self._read([each for each in resources if each is not None], last)

        gather(self._zookeeper, paths, on_nodes)
        self._purge([name for _, name in numbered])

    def _purge(self, names: Sequence[str]) -> None:
        """Leaves the latest; who was away longer reads everything."""
        for name in names[:-KEPT_ANNOUNCEMENTS]:
            self._zookeeper.commit([Delete(f"{znodes.CONFIG_CHANGES}/{name}")], _ignore)

    def _read_all(self, last: int) -> None:
        resources = set(self._publisher.image.configs)
        kinds = list(znodes.CONFIG_TYPES)
        left = len(kinds)

        def on_children(kind: ResourceType, names: tuple[str, ...] | Failure) -> None:
            nonlocal left
            left -= 1
            if not isinstance(names, Failure):
                for name in names:
                    found = znodes.config_resource(f"{znodes.CONFIG_TYPES[kind]}/{name}")
                    if found is not None:
                        resources.add(found)
            if not left:
                self._read(list(resources), last)

        for kind in kinds:
            self._zookeeper.children(znodes.config_folder(kind), partial(on_children, kind))

    def _read(self, resources: Sequence[ConfigResource], last: int) -> None:
        def on_nodes(nodes: Mapping[str, Node | None]) -> None:
            self._publisher.publish(partial(_with_read, nodes), on_published)

        def on_published() -> None:
            self._seen = max(self._seen, last)
            due = [each for each in self._waiting if each[0] <= self._seen]
            for each in due:
                self._waiting.remove(each)
            for _, on_done in due:
                on_done(None)

        gather(self._zookeeper, [znodes.config_path(each) for each in resources], on_nodes)

    def _look_at_features(self) -> None:
        self._watches.get(znodes.FEATURES, self._on_features, self._look_at_features)

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

        self._publisher.publish(change, on_published)

    def _on_published(self, delta: MetadataDelta) -> None:
        """Topics that are gone, or their settings: another one of the name has its own."""
        gone = {topic.name for topic in delta.topics_removed}
        self._topics.difference_update(gone | _without_settings(delta))


def _without_settings(delta: MetadataDelta) -> set[str]:
    """The topics that are not there, and whose settings have gone."""
    image = delta.image
    return {
        each.name
        for each in delta.configs_changed
        if each.type is ResourceType.TOPIC
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
    """A cluster of which nobody has changed a feature has those of a new one."""
    try:
        return znodes.read_features(node.data) or DEFAULT_LEVELS
    except ZnodeError as error:
        logger.error("features are those of a new cluster: %s", error)
        return DEFAULT_LEVELS


def _resource(path: str) -> ConfigResource | None:
    return znodes.config_resource(path.removeprefix(f"{znodes.CONFIG}/"))


def _understood(path: str, node: Node) -> dict[str, str] | None:
    try:
        return znodes.read_config(path, node.data)
    except ZnodeError as error:
        logger.error("settings stay as they were: %s", error)
        return None


def _numbered(names: Iterable[str]) -> list[tuple[int, str]]:
    """The announcements in their order."""
    found = []
    for name in names:
        try:
            found.append((znodes.sequence_number(name), name))
        except ZnodeError as error:
            logger.error("an announcement is passed over: %s", error)
    return sorted(found)


def _announced(path: str, node: Node) -> str:
    try:
        return znodes.read_config_change(path, node.data)
    except ZnodeError as error:
        logger.error("an announcement is passed over: %s", error)
        return ""


def _refused(failure: object) -> BrokerError:
    if failure is Failure.SESSION_LOST:
        return LOST
    return BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"ZooKeeper refuses: {failure}")


def _ignore(outcome: object) -> None:
    """Another broker may have been first."""
