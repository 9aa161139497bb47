"""Kafka's names for the files of a log directory, in both directions. Pure.

A partition is a directory `<topic>-<partition>`; a segment is a family of files that share
its base offset as 20 digits. A directory that waits for its removal is `<topic>-<partition>.<32 hex
digits>-delete`, that of a future log ends in `-future` instead, and a file that waits for its
removal ends in `.deleted`.
"""

import re
from typing import Final
from uuid import UUID

from odradek.model import TopicPartition

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
# Ours: the number and checksum of a closed transaction index's entries.
TXN_CHECK_SUFFIX: Final = ".txncheck"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
TEMPORARY_SUFFIX: Final = ".tmp"
# Ours: a reader's lease (see `leases`).
LEASE_SUFFIX: Final = ".lease"
# The longest lease: it is renewed while its query runs.
LONGEST_LEASE_MS: Final = 3_600_000
SEGMENT_SUFFIXES: Final = (
    LOG_SUFFIX,
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    TXN_CHECK_SUFFIX,
)

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
META_PROPERTIES: Final = "meta.properties"
# Ours, in the first of the directories: topics, settings and the like of a broker alone.
METADATA_DATABASE: Final = "odradek-metadata.sqlite"
LOCK_FILE: Final = ".lock"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"

_SEGMENT_FILE: Final = re.compile(
    r"^(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.txncheck|\.snapshot)$"
)
_PARTITION_DIRECTORY: Final = re.compile(r"^([A-Za-z0-9._-]{1,249})-(\d{1,10})$")
_DELETED_DIRECTORY: Final = re.compile(r"^.+\.[0-9a-f]{32}-delete$")
_FUTURE_DIRECTORY: Final = re.compile(r"^([A-Za-z0-9._-]{1,249})-(\d{1,10})\.[0-9a-f]{32}-future$")
_STRAY_DIRECTORY: Final = re.compile(r"^.+\.[0-9a-f]{32}-stray$")
# The file system's limit for a name; a topic's own limit leaves no room for the ending.
_NAME_MAX: Final = 255


def segment_file(directory: str, base_offset: int, suffix: str) -> str:
    """The path of one of a segment's files."""
    return f"{directory}/{base_offset:020d}{suffix}"


def parse_segment_file(name: str) -> tuple[int, str] | None:
    """The base offset and the suffix, None when the name is not a segment's file."""
    match = _SEGMENT_FILE.match(name)
    return (int(match[1]), match[2]) if match else None


def leading_offset(name: str) -> int:
    """The base offset that a file of a segment is named by, whatever follows; else 0."""
    digits = name.partition(".")[0]
    return int(digits) if digits.isdecimal() else 0


def partition_directory(topic_partition: TopicPartition) -> str:
    """The name of a partition's directory."""
    return f"{topic_partition.topic}-{topic_partition.partition}"


def parse_partition_directory(name: str) -> TopicPartition | None:
    """The partition of a directory's name, None when it is no such name."""
    match = _PARTITION_DIRECTORY.match(name)
    return TopicPartition(match[1], int(match[2])) if match else None


def deleted_directory(topic_partition: TopicPartition, unique: UUID) -> str:
    """The name of a partition's directory that waits for its removal."""
    ending = f".{unique.hex}-delete"
    return partition_directory(topic_partition)[: _NAME_MAX - len(ending)] + ending


def is_deleted_directory_of(name: str, topic_partition: TopicPartition) -> bool:
    """Whether the directory waits for its removal and, by its name, was the partition's."""
    ending = len(name) - len(name.rpartition(".")[0])
    of_partition = partition_directory(topic_partition)[: _NAME_MAX - ending]
    return is_deleted_directory(name) and name[:-ending] == of_partition


def future_directory(topic_partition: TopicPartition, unique: UUID) -> str:
    """The name of the directory in which a partition's next log grows."""
    return f"{partition_directory(topic_partition)}.{unique.hex}-future"


def may_have_future(topic_partition: TopicPartition) -> bool:
    """Whether the name of the partition's future log is short enough for a file."""
    return len(future_directory(topic_partition, UUID(int=0))) <= _NAME_MAX


def parse_future_directory(name: str) -> TopicPartition | None:
    """The partition whose next log grows in a directory, None when it is no such name."""
    match = _FUTURE_DIRECTORY.match(name)
    return TopicPartition(match[1], int(match[2])) if match else None


def stray_directory(topic_partition: TopicPartition, unique: UUID) -> str:
    """The name of a directory that was set aside for a person to look at; never removed."""
    ending = f".{unique.hex}-stray"
    return partition_directory(topic_partition)[: _NAME_MAX - len(ending)] + ending


def is_deleted_directory(name: str) -> bool:
    """Whether the directory waits for its removal."""
    return _DELETED_DIRECTORY.match(name) is not None


def is_stray_directory(name: str) -> bool:
    """Whether the directory was set aside."""
    return _STRAY_DIRECTORY.match(name) is not None
