"""The journal on sqlite3: one file in the first data directory, locked while it is open.

A commit is durable when `write` returns (write-ahead log, synchronous FULL). The file is held
exclusively, so two brokers on one data directory find out at once. All errors of sqlite3 become a
`MetadataStoreError` that names the file.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID
from weakref import WeakSet

from odradek.errors import reason_of
from odradek.metadata.image import ConfigResource, PartitionImage, TopicImage
from odradek.metadata.sqlite import acl_rows, quota_rows, schema
from odradek.metadata.sqlite.journal import Statement, StoredMetadata
from odradek.metadata.store import MetadataStoreError
from odradek.model import ConfigResourceType
from odradek.system_calls import left_open_by_children

# The smallest page of sqlite3.
_LEAST_BYTES: Final = 512
# Enough for the deletion of a topic with hundreds of partitions.
_RESERVE_BYTES: Final = 256 * 1024


_open_databases: "Final[WeakSet[Database]]" = WeakSet()

# sqlite3 merges the write-ahead log into the file and removes it: its owner would then write into a
# file without a name.
left_open_by_children(lambda: [each._connection for each in _open_databases])


class Database:
    """An open metadata file. May be used from several threads, one call at a time.

    Raises:
        MetadataStoreError: the file is in use, corrupt, written by another program or by a newer
            version, or its directory is not writable.
    """

    def __init__(self, directory: str) -> None:
        self.path: Final = os.path.join(directory, schema.FILE_NAME)
        _check_size(self.path)
        with _explained(self.path):
            self._connection: Final[sqlite3.Connection] = sqlite3.connect(
                self.path, timeout=0, isolation_level=None, check_same_thread=False
            )
        try:
            with _explained(self.path):
                self._prepare()
        except MetadataStoreError:
            self._connection.close()
            raise
        _open_databases.add(self)

    def read(self) -> StoredMetadata:
        """Reads the whole file.

        Raises:
            MetadataStoreError: the rows do not make sense.
        """
        with _explained(self.path):
            try:
                return self._read()
            except (ValueError, TypeError, KeyError, AssertionError) as error:
                raise MetadataStoreError(f"{self.path} is corrupt: {error}") from error

    def write(self, statements: Sequence[Statement]) -> None:
        """Runs all statements in one transaction; durable on return.

        Raises:
            MetadataStoreError: the commit failed; nothing was written.
        """
        with _explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                for sql, rows in statements:
                    self._connection.executemany(sql, rows)
                self._connection.execute("COMMIT")
            except BaseException:  # an interrupt too: the next read would take it for written
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Closes the file."""
        _open_databases.discard(self)
        self._connection.close()

    def _prepare(self) -> None:
        self._execute("PRAGMA locking_mode = EXCLUSIVE")
        application_id = self._number("PRAGMA application_id")
        tables = self._number("SELECT count(*) FROM sqlite_master")
        if application_id != schema.APPLICATION_ID and (application_id or tables):
            raise MetadataStoreError(f"{self.path} is not a metadata store of odradek")
        version = self._number("PRAGMA user_version")
        if version > schema.SCHEMA_VERSION:
            raise MetadataStoreError(
                f"{self.path} was written by a newer odradek (schema {version}, "
                f"this one knows {schema.SCHEMA_VERSION})"
            )
        self._execute("PRAGMA journal_mode = WAL")
        self._execute("PRAGMA synchronous = FULL")
        if version < schema.SCHEMA_VERSION:
            self._create(version)
        self._check()
        self._reserve()

    def _create(self, version: int) -> None:
        """Makes the tables that a new file (version 0), or one of an earlier version, lacks."""
        self._execute("BEGIN IMMEDIATE")
        for statement in schema.ADDED_COLUMNS if 0 < version < schema.ADDED_COLUMNS_VERSION else ():
            self._execute(statement)
        for statement in schema.TABLES:
            self._execute(statement)
        self._execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        self._execute(f"PRAGMA user_version = {schema.SCHEMA_VERSION}")
        self._execute("COMMIT")

    def _check(self) -> None:
        """Takes the write lock, which is kept, and has sqlite3 look for damage."""
        self._execute("BEGIN IMMEDIATE")
        finding = self._connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        self._execute("COMMIT")
        if finding != "ok":
            # Of several lines.
            raise MetadataStoreError(f"{self.path} is corrupt: {' '.join(finding.split())}")

    def _reserve(self) -> None:
        """Grows both files ahead: on a full disk it must be possible to delete topics.

        sqlite3 keeps using the space: pages of the dropped table are free for later rows, and the
        write-ahead log is written from its beginning after the checkpoint.
        """
        try:
            self._execute(f"CREATE TABLE reserve AS SELECT zeroblob({_RESERVE_BYTES}) AS filler")
            self._execute("DROP TABLE reserve")
            self._execute("PRAGMA wal_checkpoint(RESTART)")
        except sqlite3.OperationalError:
            # The disk is already full: changes that need no more space are still possible.
            self._execute("DROP TABLE IF EXISTS reserve")

    def _read(self) -> StoredMetadata:
        properties = dict(self._rows(schema.SELECT_PROPERTIES))
        features = properties.get(schema.FEATURES)
        return StoredMetadata(
            cluster_id=properties.get(schema.CLUSTER_ID, ""),
            broker_epoch=int(properties.get(schema.BROKER_EPOCH, 0)),
            controller_epoch=int(properties.get(schema.CONTROLLER_EPOCH, 0)),
            next_producer_id=int(properties.get(schema.NEXT_PRODUCER_ID, 0)),
            features=None if features is None else schema.feature_levels(features),
            features_epoch=int(properties.get(schema.FEATURES_EPOCH, 0)),
            topics=self._read_topics(),
            configs=self._read_configs(),
            acls=acl_rows.read(self._rows(acl_rows.SELECT)),
            client_quotas=quota_rows.read(self._rows(quota_rows.SELECT)),
            deleted_topics=frozenset(
                UUID(bytes=topic_id) for (topic_id,) in self._rows(schema.SELECT_DELETED)
            ),
        )

    def _read_topics(self) -> list[TopicImage]:
        partitions: dict[bytes, list[PartitionImage]] = {}
        for topic_id, index, leader, epoch, version, replicas, isr, adding, removing in self._rows(
            schema.SELECT_PARTITIONS
        ):
            image = PartitionImage(
                index,
                leader,
                epoch,
                version,
                schema.broker_ids(replicas),
                schema.broker_ids(isr),
                adding=schema.broker_ids(adding),
                removing=schema.broker_ids(removing),
            )
            partitions.setdefault(topic_id, []).append(image)
        topics = [
            TopicImage(name, UUID(bytes=topic_id), ()).with_partitions(partitions.pop(topic_id))
            for topic_id, name in self._rows(schema.SELECT_TOPICS)
        ]
        if partitions:
            raise ValueError("there are partitions without a topic")
        return topics

    def _read_configs(self) -> dict[ConfigResource, dict[str, str]]:
        configs: dict[ConfigResource, dict[str, str]] = {}
        for resource_type, resource_name, name, value in self._rows(schema.SELECT_CONFIGS):
            resource = ConfigResource(ConfigResourceType(resource_type), resource_name)
            configs.setdefault(resource, {})[name] = value
        return configs

    def _rows(self, sql: str) -> Iterator[Any]:
        return iter(self._connection.execute(sql))

    def _number(self, sql: str) -> int:
        return int(self._connection.execute(sql).fetchone()[0])

    def _execute(self, sql: str) -> None:
        self._connection.execute(sql)


def _check_size(path: str) -> None:
    """Refuses a file that sqlite3 would take for a new one, or fill up with zeros."""
    size_bytes = os.path.getsize(path) if os.path.isfile(path) else 0
    if 0 < size_bytes < _LEAST_BYTES:
        raise MetadataStoreError(f"{path} is corrupt: {size_bytes} bytes are no database")
    # A write-ahead log has the pages that a crash has kept out of the file.
    if size_bytes == 0 or os.path.exists(path + "-wal"):
        return
    with _explained(path), open(path, "rb") as stream:
        page_bytes = int.from_bytes(stream.read(18)[16:])
    # 1 means 65 536, which does not fit into the field.
    if page_bytes > 1 and size_bytes % page_bytes:
        raise MetadataStoreError(f"{path} is corrupt: {size_bytes} bytes are no whole pages")


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise MetadataStoreError(f"{path} is in use by another broker") from error
        raise MetadataStoreError(f"{path} cannot be used: {error}") from error
    except OSError as error:
        raise MetadataStoreError(f"{path} cannot be used: {reason_of(error)}") from error
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise MetadataStoreError(f"{path} is corrupt or not a metadata store: {error}") from error
