"""Assigns a log directory to a cluster before the first start of its broker, which would otherwise
create a cluster id."""

import contextlib
import os
from collections.abc import Mapping
from uuid import uuid4

from odradek.config import BrokerConfig
from odradek.metadata.sqlite import schema
from odradek.metadata.sqlite.database import Database
from odradek.metadata.store import MetadataStoreError
from odradek.server.errors import StartError
from odradek.storage import checkpoints, names
from odradek.storage.files import OsFileSystem


def properties_of(directory: str) -> Mapping[str, str]:
    """Reads the directory's `meta.properties`, which name its cluster; empty for a new directory.

    Raises:
        OSError, CorruptCheckpoint: it cannot be read.
    """
    try:
        with open(f"{directory}/{names.META_PROPERTIES}", "rb") as file:
            return checkpoints.parse_meta_properties(file.read())
    except FileNotFoundError:
        return {}


def give(directory: str, cluster_id: str, broker_id: int, *, is_first: bool) -> None:
    """Assigns the directory to a cluster; the first directory of a broker holds the metadata.

    Raises:
        OSError, MetadataStoreError: it cannot be written.
    """
    os.makedirs(directory, exist_ok=True)
    if is_first:
        with contextlib.closing(Database(directory)) as database:
            database.write([schema.put_property(schema.CLUSTER_ID, cluster_id)])
    data = checkpoints.encode_meta_properties(cluster_id, broker_id, uuid4())
    OsFileSystem().replace(f"{directory}/{names.META_PROPERTIES}", data, sync=True)


def give_new(config: BrokerConfig, cluster_id: str) -> None:
    """Assigns a broker without a cluster to this one; its other directories follow the first at the
    start. On ZooKeeper the cluster has its id there.

    Raises:
        StartError: the first directory cannot be written.
    """
    first = config.log_dirs[0]
    if config["zookeeper.connect"] or os.path.lexists(f"{first}/{schema.FILE_NAME}"):
        return
    try:
        give(first, cluster_id, config.broker_id, is_first=True)
    except (OSError, MetadataStoreError) as error:
        raise StartError(str(error)) from error
