"""The tables of the embedded store, and how values become columns.

A file is ours when it bears our application id; its user version is the schema's. The
statements that change rows stand here too, so that the SQL is in one place.
"""

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from odradek.metadata.image import ConfigResource, PartitionImage, TopicImage
from odradek.metadata.sqlite import acl_rows, quota_rows
from odradek.metadata.sqlite.journal import Statement, StoredMetadata
from odradek.model import ConfigResourceType
from odradek.storage.names import METADATA_DATABASE

FILE_NAME: Final = METADATA_DATABASE
APPLICATION_ID: Final = 0x4F645261
SCHEMA_VERSION: Final = 5

CLUSTER_ID: Final = "cluster_id"
BROKER_EPOCH: Final = "broker_epoch"
CONTROLLER_EPOCH: Final = "controller_epoch"
NEXT_PRODUCER_ID: Final = "next_producer_id"
# All features in use, from the first change of one on.
FEATURES: Final = "features"
FEATURES_EPOCH: Final = "features_epoch"

_CREATE: Final = "CREATE TABLE IF NOT EXISTS"
TABLES: Final = (
    f"{_CREATE} property (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    f"{_CREATE} topic (topic_id BLOB PRIMARY KEY, name TEXT NOT NULL UNIQUE) WITHOUT ROWID",
    f"{_CREATE} partition (topic_id BLOB NOT NULL, partition INTEGER NOT NULL,"
    " leader INTEGER NOT NULL, leader_epoch INTEGER NOT NULL, partition_epoch INTEGER NOT NULL,"
    " replicas TEXT NOT NULL, isr TEXT NOT NULL, adding TEXT NOT NULL DEFAULT '',"
    " removing TEXT NOT NULL DEFAULT '', PRIMARY KEY (topic_id, partition)) WITHOUT ROWID",
    f"{_CREATE} config (resource_type INTEGER NOT NULL, resource_name TEXT NOT NULL,"
    " name TEXT NOT NULL, value TEXT NOT NULL,"
    " PRIMARY KEY (resource_type, resource_name, name)) WITHOUT ROWID",
    # Since version 2: deleted topics whose logs may still exist.
    f"{_CREATE} deleted_topic (topic_id BLOB PRIMARY KEY) WITHOUT ROWID",
    # Since version 4.
    f"{_CREATE} {acl_rows.TABLE}",
    # Since version 5.
    f"{_CREATE} {quota_rows.TABLE}",
)
# The columns that version 1 and 2 lack: a reassignment in progress.
ADDED_COLUMNS_VERSION: Final = 3
ADDED_COLUMNS: Final = (
    "ALTER TABLE partition ADD COLUMN adding TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE partition ADD COLUMN removing TEXT NOT NULL DEFAULT ''",
)

SELECT_PROPERTIES: Final = "SELECT name, value FROM property"
SELECT_TOPICS: Final = "SELECT topic_id, name FROM topic ORDER BY name"
SELECT_PARTITIONS: Final = (
    "SELECT topic_id, partition, leader, leader_epoch, partition_epoch, replicas, isr, adding,"
    " removing"
    " FROM partition ORDER BY topic_id, partition"
)
SELECT_DELETED: Final = "SELECT topic_id FROM deleted_topic"
SELECT_CONFIGS: Final = "SELECT resource_type, resource_name, name, value FROM config"

_PUT_PROPERTY: Final = "INSERT OR REPLACE INTO property VALUES (?, ?)"
_PUT_TOPIC: Final = "INSERT INTO topic VALUES (?, ?)"
_PUT_PARTITION: Final = "INSERT OR REPLACE INTO partition VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_PUT_CONFIG: Final = "INSERT OR REPLACE INTO config VALUES (?, ?, ?, ?)"
_DELETE_TOPIC: Final = "DELETE FROM topic WHERE topic_id = ?"
_DELETE_PARTITIONS: Final = "DELETE FROM partition WHERE topic_id = ?"
_PUT_DELETED: Final = "INSERT OR REPLACE INTO deleted_topic VALUES (?)"
_FORGET_DELETED: Final = "DELETE FROM deleted_topic WHERE topic_id = ?"
_DELETE_CONFIG: Final = (
    "DELETE FROM config WHERE resource_type = ? AND resource_name = ? AND name = ?"
)
_DELETE_CONFIGS: Final = "DELETE FROM config WHERE resource_type = ? AND resource_name = ?"


def put_property(name: str, value: str | int) -> Statement:
    """Writes a single value, such as the cluster id."""
    return _PUT_PROPERTY, [(name, str(value))]


def put_all(metadata: StoredMetadata) -> list[Statement]:
    """Writes a whole cluster's metadata into a store that has none."""
    properties: dict[str, str | int] = {
        CLUSTER_ID: metadata.cluster_id,
        BROKER_EPOCH: metadata.broker_epoch,
        CONTROLLER_EPOCH: metadata.controller_epoch,
        NEXT_PRODUCER_ID: metadata.next_producer_id,
        FEATURES_EPOCH: metadata.features_epoch,
    }
    if metadata.features is not None:
        properties[FEATURES] = feature_levels_text(metadata.features)
    settings = [
        (resource, name, value)
        for resource, values in metadata.configs.items()
        for name, value in values.items()
    ]
    return [
        *(put_property(name, value) for name, value in properties.items()),
        put_topics(metadata.topics),
        *(put_partitions(topic.topic_id, topic.partitions) for topic in metadata.topics),
        put_configs(settings),
        acl_rows.put(metadata.acls),
        quota_rows.put(metadata.client_quotas),
    ]


def put_topics(topics: Iterable[TopicImage]) -> Statement:
    """Writes new topics, without their partitions."""
    return _PUT_TOPIC, [(topic.topic_id.bytes, topic.name) for topic in topics]


def put_partitions(topic_id: UUID, partitions: Iterable[PartitionImage]) -> Statement:
    """Writes new or changed partitions of a topic."""
    return _PUT_PARTITION, [_partition_row(topic_id, partition) for partition in partitions]


def delete_topics(topics: Iterable[TopicImage]) -> list[Statement]:
    """Removes topics with their partitions and settings, and records them as deleted."""
    topics = tuple(topics)
    ids = [(topic.topic_id.bytes,) for topic in topics]
    resources = [(int(ConfigResourceType.TOPIC), topic.name) for topic in topics]
    return [
        *((_DELETE_TOPIC, ids), (_DELETE_PARTITIONS, ids), (_DELETE_CONFIGS, resources)),
        (_PUT_DELETED, ids),
    ]


def forget_deleted(topic_ids: Iterable[UUID]) -> Statement:
    """Removes the records of deleted topics, whose logs are gone."""
    return _FORGET_DELETED, [(topic_id.bytes,) for topic_id in topic_ids]


def put_configs(settings: Iterable[tuple[ConfigResource, str, str]]) -> Statement:
    """Writes settings of resources."""
    return _PUT_CONFIG, [
        (int(resource.type), resource.name, name, value) for resource, name, value in settings
    ]


def delete_configs(settings: Iterable[tuple[ConfigResource, str]]) -> Statement:
    """Removes settings of resources."""
    return _DELETE_CONFIG, [
        (int(resource.type), resource.name, name) for resource, name in settings
    ]


def broker_ids(text: str) -> tuple[int, ...]:
    """Reads a list of broker ids back from its column."""
    return tuple(int(part) for part in text.split(",")) if text else ()


def feature_levels_text(levels: Mapping[str, int]) -> str:
    """The levels of features as one value."""
    return " ".join(f"{name}={level}" for name, level in sorted(levels.items()))


def feature_levels(text: str) -> dict[str, int]:
    """Reads `feature_levels_text` back; ValueError if it is malformed."""
    pairs = (word.split("=") for word in text.split())
    return {name: int(level) for name, level in pairs}


def _partition_row(topic_id: UUID, image: PartitionImage) -> tuple[object, ...]:
    return (
        topic_id.bytes,
        image.partition,
        image.leader,
        image.leader_epoch,
        image.partition_epoch,
        *(
            ",".join(map(str, ids))
            for ids in (image.replicas, image.isr, image.adding, image.removing)
        ),
    )
