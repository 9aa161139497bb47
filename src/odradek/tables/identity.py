"""Which cluster and which topics a plan was made for, and whether a directory is theirs.

Offsets mean nothing in another topic of the same name. So a plan carries the ids of cluster
and topics, and whoever reads compares them with what is written beside the records:
`cluster.id` in `meta.properties`, `topic_id` in `partition.metadata`. What has no id, as with
brokers before Kafka 2.8, cannot be told apart.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from odradek.storage.checkpoints import parse_meta_properties, parse_partition_metadata
from odradek.storage.names import META_PROPERTIES, PARTITION_METADATA
from odradek.tables.errors import WrongPath


@dataclass(frozen=True)
class Identity:
    """The ids that are known."""

    cluster_id: str | None = None
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)


def cluster_of(log_dir: str) -> str | None:
    """The cluster that a log directory belongs to, None when it does not say.

    Raises:
        WrongPath: there is no such directory, or it cannot be read.
    """
    if not os.path.isdir(log_dir):
        raise WrongPath(f"path: there is no directory {log_dir} on {os.uname().nodename}")
    data = _content(os.path.join(log_dir, META_PROPERTIES))
    return None if data is None else parse_meta_properties(data).get("cluster.id")


def topic_id_of(partition_directory: str) -> UUID | None:
    """The id of the topic that a partition's directory belongs to, None when it does not say."""
    data = _content(os.path.join(partition_directory, PARTITION_METADATA))
    return None if data is None else parse_partition_metadata(data)


def check_log_dirs(log_dirs: tuple[str, ...], cluster_id: str | None) -> None:
    """Checks that directories are there and belong to a cluster.

    Raises:
        WrongPath: one does not.
    """
    for log_dir in log_dirs:
        found = cluster_of(log_dir)
        if found is not None and cluster_id is not None and found != cluster_id:
            raise WrongPath(
                f"path: {log_dir} belongs to cluster {found}, the offsets to cluster {cluster_id}"
            )


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read() or None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise WrongPath(f"path: {path} cannot be read: {error.strerror}") from error
