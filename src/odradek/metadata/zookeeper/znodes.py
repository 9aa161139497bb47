"""The layout of ZooKeeper: Kafka's paths, and Kafka's JSON in them.

Pure. Writing gives bytes as Apache Kafka 3.9 writes them; reading accepts what it and its
predecessors have written, and nothing else: an unreadable node is a `ZnodeError` that names it,
since a guess at the leader would be worse than none.
"""

import binascii
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar, cast
from urllib.parse import unquote
from uuid import UUID

from odradek.errors import EnvironmentFailure
from odradek.metadata.image import (
    BrokerRegistration,
    ConfigResource,
    PartitionImage,
    ReplicaAssignment,
)
from odradek.metadata.sanitized import sanitized
from odradek.model import ConfigResourceType, EndPoint, TopicPartition
from odradek.protocol.uuids import uuid_of, uuid_text

T = TypeVar("T")

BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"
CONFIG: Final = "/config"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE_PREFIX: Final = "/config/changes/config_change_"
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGNMENTS: Final = "/admin/reassign_partitions"
PREFERRED_ELECTION: Final = "/admin/preferred_replica_election"
ISR_CHANGES: Final = "/isr_change_notification"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX: Final = "/log_dir_event_notification/log_dir_event_"
PRODUCER_IDS: Final = "/latest_producer_id_block"
FEATURES: Final = "/feature"

CONSUMERS: Final = "/consumers"
"""The folder in which old consumers, whoever they are, create their nodes."""

PERSISTENT: Final = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    "/brokers/seqid",
    ISR_CHANGES,
    PRODUCER_IDS,
    LOG_DIR_EVENTS,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
    "/config/client-metrics",
    "/config/groups",
)
"""The nodes that every broker creates at its start where they are missing."""

SECRET: Final = ("/config/users", "/config/brokers", "/delegation_token/tokens")
"""The folders whose nodes may hold secrets: credentials, passwords, tokens."""

CONFIG_TYPES: Final = {
    ConfigResourceType.TOPIC: "topics",
    ConfigResourceType.BROKER: "brokers",
    ConfigResourceType.CLIENT_METRICS: "client-metrics",
    ConfigResourceType.GROUP: "groups",
    ConfigResourceType.USER: "users",
}
"""The resources with settings in ZooKeeper, and the names of their folders."""

_TYPES_BY_FOLDER: Final = {folder: kind for kind, folder in CONFIG_TYPES.items()}
_DEFAULT: Final = "<default>"
NO_STATE: Final = -1
"""The partition epoch, and the leader epoch, of a partition that has never had a leader."""


MAX_INT: Final = (1 << 31) - 1
MAX_PORT: Final = 65535
MAX_PRODUCER_ID: Final = (1 << 62) - 1


class ZnodeError(EnvironmentFailure):
    """An unreadable node in ZooKeeper; the text names it."""


class PartitionStateNode(NamedTuple):
    """The content of `/brokers/topics/T/partitions/P/state`."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int


class TopicNode(NamedTuple):
    """The content of `/brokers/topics/T`. Kafka before 2.8 gave topics no id."""

    topic_id: UUID | None
    assignments: tuple[ReplicaAssignment, ...]


# Paths


def is_node_name(name: str) -> bool:
    """Whether ZooKeeper allows a node of that name."""
    return bool(name) and "/" not in name and name not in (".", "..") and name.isprintable()


def read_object(path: str, data: bytes) -> dict[str, Any]:
    """The JSON object in the node at `path`.

    Raises:
        ZnodeError: it is something else, or has half of a character, which cannot be encoded.
    """
    try:
        value = json.loads(data)
        if b"\\u" in data:
            _encode(value)
    except (ValueError, RecursionError):
        raise _not_understood(path, f"{data[:80]!r} is no JSON") from None
    if not isinstance(value, dict):
        raise _not_understood(path, f"{data[:80]!r} is no object")
    return value


def _not_understood(path: str, what: str) -> ZnodeError:
    return ZnodeError(f"{path} in ZooKeeper is not understood: {what}")


def broker_path(broker_id: int) -> str:
    """The path of a broker's registration."""
    return f"{BROKER_IDS}/{broker_id}"


def broker_paths(names: Iterable[str]) -> dict[str, int]:
    """The paths of the brokers with these node names, and their ids."""
    ids = (number for name in names if (number := _digits(name)) is not None and number <= MAX_INT)
    return {broker_path(each): each for each in ids}


def topic_path(topic: str) -> str:
    """The path of a topic's id and the replicas of its partitions."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """The parent of a topic's partitions."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic_partition: TopicPartition) -> str:
    """The parent of a partition's state."""
    return f"{TOPICS}/{topic_partition.topic}/partitions/{topic_partition.partition}"


def state_path(topic_partition: TopicPartition) -> str:
    """The path of a partition's leader and ISR."""
    return f"{partition_path(topic_partition)}/state"


def deletion_path(topic: str) -> str:
    """The mark of a topic to delete."""
    return f"{DELETE_TOPICS}/{topic}"


def config_path(resource: ConfigResource) -> str:
    """The path of a resource's settings."""
    return f"{CONFIG}/{entity_path(resource)}"


def config_folder(type: ConfigResourceType) -> str:
    """The parent of the settings of all resources of a type."""
    return f"{CONFIG}/{CONFIG_TYPES[type]}"


def entity_path(resource: ConfigResource) -> str:
    """The name of a resource in notifications: `topics/T`, `brokers/1`, `brokers/<default>`."""
    name = resource.name
    if resource.type is ConfigResourceType.BROKER and not name:
        name = _DEFAULT
    if resource.type is ConfigResourceType.USER:
        name = sanitized(name)
    return f"{CONFIG_TYPES[resource.type]}/{name}"


def config_resource(entity: str) -> ConfigResource | None:
    """The resource that `entity_path` names; None when its settings mean nothing here."""
    folder, _, name = entity.partition("/")
    kind = _TYPES_BY_FOLDER.get(folder)
    if kind is None or not name or "/" in name:
        return None
    if kind is ConfigResourceType.USER:
        name = unquote(name)
    is_default = kind is ConfigResourceType.BROKER and name == _DEFAULT
    return ConfigResource(kind, "" if is_default else name)


# Brokers


def broker_json(broker: BrokerRegistration, wall_ms: int) -> bytes:
    """A live broker. Its first end point is also in `host` and `port`, for old tools."""
    first = broker.endpoints[0] if broker.endpoints else None
    value: dict[str, object] = {
        "features": {},
        "listener_security_protocol_map": {
            each.listener_name: each.security_protocol for each in broker.endpoints
        },
        "endpoints": [
            f"{each.listener_name}://{_bracketed(each.host)}:{each.port}"
            for each in broker.endpoints
        ],
    }
    if broker.rack is not None:
        value["rack"] = broker.rack
    value["jmx_port"] = -1
    value["port"] = -1 if first is None else first.port
    value["host"] = None if first is None else first.host
    value["version"] = 5
    value["timestamp"] = str(wall_ms)
    if broker.is_missing_logs:
        # Of ours alone: Kafka passes over what it does not know.
        value["missing_logs"] = 1
    return _encode(value)


def read_broker(broker_id: int, data: bytes, epoch: int) -> BrokerRegistration:
    """The broker of that id; `epoch` is the transaction that made the node.

    Raises:
        ZnodeError: it is not understood.
    """
    node = _Node(broker_path(broker_id), data)
    node.version(2, 3, 4, 5)
    protocols = node.optional("listener_security_protocol_map", dict) or {}
    endpoints = tuple(_endpoint(node, text, protocols) for text in node.list_of("endpoints", str))
    is_missing_logs = node.optional("missing_logs", int) == 1
    rack = node.optional("rack", str)
    return BrokerRegistration(broker_id, endpoints, rack, epoch, is_missing_logs)


def _endpoint(node: "_Node", text: str, protocols: Mapping[str, object]) -> EndPoint:
    name, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    number = -1 if port == "-1" else _digits(port)
    if not separator or not colon or number is None or number > MAX_PORT:
        raise node.error(f"{text!r} is no end point")
    protocol = protocols.get(name, name)
    if not isinstance(protocol, str):
        raise node.error(f"{protocol!r} is no security protocol")
    return EndPoint(name, protocol, host.removeprefix("[").removesuffix("]"), number)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


# Topics and partitions


def topic_json(topic_id: UUID | None, assignments: Sequence[ReplicaAssignment]) -> bytes:
    """A topic: the replicas of its partitions, the preferred leader first."""
    value: dict[str, object] = {
        "partitions": {str(i): each.replicas for i, each in enumerate(assignments)},
    }
    if topic_id is not None:
        value["topic_id"] = uuid_text(topic_id)
    value["adding_replicas"] = {
        str(i): each.adding for i, each in enumerate(assignments) if each.adding
    }
    value["removing_replicas"] = {
        str(i): each.removing for i, each in enumerate(assignments) if each.removing
    }
    value["version"] = 3 if topic_id is not None else 2
    return _encode(value)


def read_topic(topic: str, data: bytes) -> TopicNode:
    """Its id and the replicas of its partitions.

    Raises:
        ZnodeError: it is not understood, or a partition is missing.
    """
    node = _Node(topic_path(topic), data)
    version = node.version(1, 2, 3)
    replicas = _replicas_by_partition(node, "partitions", node.required("partitions", dict))
    adding = _replicas_by_partition(node, "adding", node.optional("adding_replicas", dict) or {})
    removing = _replicas_by_partition(
        node, "removing", node.optional("removing_replicas", dict) or {}
    )
    if sorted(replicas) != list(range(len(replicas))):
        raise node.error(f"its partitions are {sorted(replicas)}")
    topic_id = _topic_id(node) if version >= 3 else None
    assignments = tuple(
        ReplicaAssignment(replicas[i], adding.get(i, ()), removing.get(i, ()))
        for i in range(len(replicas))
    )
    return TopicNode(topic_id, assignments)


def _topic_id(node: "_Node") -> UUID | None:
    """The topic's id; None if it is missing or zero, which means the same in Kafka's messages."""
    text = node.optional("topic_id", str)
    found = None if text is None else _uuid(node, text)
    return found if found is not None and found.int else None


def _replicas_by_partition(
    node: "_Node", what: str, value: Mapping[str, object]
) -> dict[int, tuple[int, ...]]:
    found = {}
    for partition, replicas in value.items():
        index = _digits(partition)
        if index is None:
            raise node.error(f"{partition!r} is no partition")
        found[index] = node.integers(f"{what} of {partition}", replicas)
    return found


def state_json(partition: PartitionImage, controller_epoch: int) -> bytes:
    """The leader and the in-sync replicas of a partition."""
    return _encode(
        {
            "controller_epoch": controller_epoch,
            "leader": partition.leader,
            "version": 1,
            "leader_epoch": partition.leader_epoch,
            "isr": partition.isr,
        }
    )


def read_state(topic_partition: TopicPartition, data: bytes) -> PartitionStateNode:
    """Raises `ZnodeError` when it is not understood."""
    node = _Node(state_path(topic_partition), data)
    node.version(1)
    return PartitionStateNode(
        leader=node.required("leader", int),
        leader_epoch=node.required("leader_epoch", int),
        isr=node.integers("isr", node.required("isr", list)),
        controller_epoch=node.required("controller_epoch", int),
    )


# The controller


def controller_json(broker_id: int, wall_ms: int) -> bytes:
    """The id of the controller."""
    return _encode(
        {
            "version": 2,
            "brokerid": broker_id,
            "timestamp": str(wall_ms),
            "kraftControllerEpoch": -1,
        }
    )


def read_controller(data: bytes) -> int:
    """The controller's broker id; raises `ZnodeError` when it is not understood."""
    node = _Node(CONTROLLER, data)
    node.version(1, 2)
    return node.required("brokerid", int)


def read_controller_epoch(data: bytes) -> int:
    """A plain number; raises `ZnodeError` when it is none."""
    return _number(CONTROLLER_EPOCH, data)


# Settings


def config_json(settings: Mapping[str, str]) -> bytes:
    """The settings of a resource."""
    return _encode({"version": 1, "config": dict(sorted(settings.items()))})


def read_config(path: str, data: bytes) -> dict[str, str]:
    """The settings in the node at `path`; raises `ZnodeError` when they are not understood."""
    node = _Node(path, data)
    node.version(1)
    settings = node.required("config", dict)
    wrong = [name for name, value in settings.items() if not isinstance(value, str)]
    if wrong:
        raise node.error(f"the value of {wrong[0]} is no text")
    return dict(settings)


def config_change_json(resource: ConfigResource) -> bytes:
    """Tells all brokers to look at the settings of a resource."""
    return _encode({"version": 2, "entity_path": entity_path(resource)})


def read_config_change(path: str, data: bytes) -> str:
    """The entity to look at; raises `ZnodeError` when it is not understood."""
    node = _Node(path, data)
    if node.version(1, 2) == 1:
        return f"{node.required('entity_type', str)}/{node.required('entity_name', str)}"
    return node.required("entity_path", str)


# Requests of administrators by znodes


def reassignments_json(requested: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    """The target replicas of partitions."""
    partitions = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
        for tp, replicas in requested.items()
    ]
    return _encode({"version": 1, "partitions": partitions})


def read_reassignments(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """The remaining requested reassignments; raises `ZnodeError` when they are not understood."""
    node = _Node(REASSIGNMENTS, data)
    node.version(1)
    found = {}
    for each in node.list_of("partitions", dict):
        inner = _Node(REASSIGNMENTS, each)
        replicas = inner.integers("replicas", inner.required("replicas", list))
        found[_topic_partition(inner)] = replicas
    return found


def read_elections(data: bytes) -> list[TopicPartition]:
    """The partitions to give back to their preferred replicas; raises `ZnodeError`."""
    return _read_partitions(PREFERRED_ELECTION, data)


def read_isr_change(path: str, data: bytes) -> list[TopicPartition]:
    """The partitions whose leader has changed the ISR by itself; raises `ZnodeError`."""
    return _read_partitions(path, data)


def log_dir_event_json(broker_id: int) -> bytes:
    """A log directory of the broker has failed."""
    return _encode({"version": 1, "broker": broker_id, "event": 1})


def read_log_dir_event(path: str, data: bytes) -> int:
    """The broker whose log directory has failed; raises `ZnodeError` when not understood."""
    node = _Node(path, data)
    node.version(1)
    return node.required("broker", int)


def _read_partitions(path: str, data: bytes) -> list[TopicPartition]:
    node = _Node(path, data)
    node.version(1)
    return [_topic_partition(_Node(path, each)) for each in node.list_of("partitions", dict)]


def _topic_partition(node: "_Node") -> TopicPartition:
    return TopicPartition(node.required("topic", str), node.required("partition", int))


# The cluster


def cluster_id_json(cluster_id: str) -> bytes:
    """The id of the cluster."""
    return _encode({"version": "1", "id": cluster_id})


def read_cluster_id(data: bytes) -> str:
    """Raises `ZnodeError` when it is not understood."""
    return _Node(CLUSTER_ID, data).required("id", str)


def producer_ids_json(broker_id: int, block: range) -> bytes:
    """The block of producer ids that was handed out last."""
    first, last = str(block.start), str(block.stop - 1)
    return _encode({"version": 1, "broker": broker_id, "block_start": first, "block_end": last})


def read_next_producer_id(data: bytes) -> int:
    """The first id behind the last block; raises `ZnodeError` when it is not understood."""
    if not data:
        return 0
    node = _Node(PRODUCER_IDS, data)
    node.version(1)
    last = _digits(node.required("block_end", str))
    if last is None or last > MAX_PRODUCER_ID:
        raise node.error("its end is no producer id")
    return last + 1


def features_json(levels: Mapping[str, int]) -> bytes:
    """The finalized features."""
    return _encode({"features": dict(sorted(levels.items())), "version": 2, "status": 1})


def read_features(data: bytes) -> dict[str, int]:
    """The finalized features, none where they are not in use; raises `ZnodeError`."""
    node = _Node(FEATURES, data)
    version = node.version(1, 2)
    levels = node.optional("features", dict) or {}
    if version == 1:
        levels = {
            name: value.get("max_version_level") if isinstance(value, dict) else None
            for name, value in levels.items()
        }
    for name, level in levels.items():
        if not isinstance(level, int):
            raise node.error(f"the level of {name} is no number")
    return levels if node.required("status", int) == 1 else {}


def sequence_number(name: str) -> int:
    """The number at the end of the name of a sequential node; raises `ZnodeError`."""
    number = _digits(name[-10:])
    if len(name) < 10 or number is None:
        raise ZnodeError(f"{name} in ZooKeeper bears no number")
    return number


def _uuid(node: "_Node", text: str) -> UUID:
    try:
        return uuid_of(text)
    except (ValueError, binascii.Error):
        raise node.error(f"{text!r} is no topic id") from None


def _number(path: str, data: bytes) -> int:
    number = _digits(data.decode("latin-1"))
    if number is None or number >= MAX_INT:
        raise ZnodeError(f"{path} in ZooKeeper is not understood: {data[:80]!r}")
    return number


def _digits(text: str) -> int | None:
    """A number in plain decimal form, of bounded size."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class _Node:
    """The object of a node, with errors that name the node."""

    def __init__(self, path: str, data: "bytes | dict[str, Any]") -> None:
        self._path: Final = path
        self._value: Final[dict[str, Any]] = (
            data if isinstance(data, dict) else read_object(path, data)
        )

    def error(self, what: str) -> ZnodeError:
        return _not_understood(self._path, what)

    def version(self, *known: int) -> int:
        version = self.required("version", int)
        if version not in known:
            raise self.error(f"version {version}")
        return version

    def required(self, name: str, kind: type[T]) -> T:
        value = self.optional(name, kind)
        if value is None:
            raise self.error(f"{name} is missing")
        return value

    def optional(self, name: str, kind: type[T]) -> T | None:
        value = self._value.get(name)
        if value is None:
            return None
        is_right = isinstance(value, kind) and not isinstance(value, bool)
        if not is_right or (isinstance(value, int) and abs(value) > MAX_INT):
            raise self.error(f"{name} is {value!r}")
        return cast(T, value)

    def list_of(self, name: str, kind: type[T]) -> list[T]:
        values: list[T] = self.required(name, list)
        for value in values:
            if not isinstance(value, kind):
                raise self.error(f"{value!r} among {name}")
        return values

    def integers(self, name: str, value: object) -> tuple[int, ...]:
        """A list of broker ids."""
        if not isinstance(value, list) or not all(
            type(each) is int and 0 <= each <= MAX_INT for each in value
        ):
            raise self.error(f"{name} is {value!r}")
        return tuple(value)
