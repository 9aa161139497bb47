"""The cluster and the topics of a plan, and the check that a directory belongs to them.

Offsets are not valid in another topic of the same name. So a plan has the ids of cluster and
topics, and the reader compares them with those beside the records: `meta.properties` in the log
directory, `partition.metadata` in the partition's. Topics without an id, as with brokers before
Kafka 2.8, cannot be distinguished.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from odradek.errors import reason_of
from odradek.storage.checkpoints import parse_meta_properties, parse_partition_metadata
from odradek.storage.names import META_PROPERTIES, PARTITION_METADATA
from odradek.system_calls import host_name
from odradek.tables.errors import WrongPath


@dataclass(frozen=True)
class Identity:
    """The identity of the topics. `log_dirs` has the `meta.properties` of each directory."""

    cluster_id: str | None = None
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    log_dirs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def describe_log_dirs(log_dirs: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """The `meta.properties` of directories.

    Raises:
        WrongPath: one is missing, or is no broker's.
    """
    return {log_dir: _describe(log_dir) for log_dir in log_dirs}


def check_cluster(log_dirs: Mapping[str, Mapping[str, str]], cluster_id: str | None) -> None:
    """Checks that directories belong to the cluster that the offsets are from.

    Raises:
        WrongPath: one belongs to another.
    """
    for log_dir, properties in log_dirs.items():
        found = properties.get("cluster.id")
        if found is not None and cluster_id is not None and found != cluster_id:
            raise WrongPath(
                f"path: {log_dir} belongs to cluster {found}, kafka.bootstrap.servers to cluster "
                f"{cluster_id}"
            )


def check_same_log_dirs(log_dirs: Mapping[str, Mapping[str, str]]) -> None:
    """Checks, at the reader, that the directories are those of the plan.

    Raises:
        WrongPath: one is missing, or another one has its name on this machine.
    """
    for log_dir, properties in log_dirs.items():
        if _describe(log_dir) != properties:
            raise WrongPath(
                f"path: {log_dir} is another directory on {host_name()} than where the query was "
                "planned"
            )


def topic_id_of(partition_directory: str) -> UUID | None:
    """The id of the topic that a partition's directory belongs to, None if it is unknown."""
    data = _content(os.path.join(partition_directory, PARTITION_METADATA))
    return None if data is None else parse_partition_metadata(data)


def _describe(log_dir: str) -> dict[str, str]:
    if not os.path.isdir(log_dir):
        raise WrongPath(f"path: there is no directory {log_dir} on {host_name()}")
    data = _content(os.path.join(log_dir, META_PROPERTIES))
    return {} if data is None else parse_meta_properties(data)


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read() or None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise WrongPath(f"path: {path} cannot be read: {reason_of(error)}") from error
