"""`odradek import`: takes over the topics of a stopped Apache Kafka, by copying its directories.

The source stays as it is. Logs are copied into a separate folder inside the data directory and
moved into place together; the metadata is written last, and its commit makes all of it valid. What
an import leaves that was interrupted before it, the next one takes out (`unfinished_import`). Topic
ids, partitions and records come from the directories, settings from the metadata log of a Kafka
without ZooKeeper. With ZooKeeper the settings are not in the directories: they are read from it
where it is named. Otherwise such topics keep everything: nothing is deleted before the user has
decided.

Groups' offsets and transactional ids are imported too, as records of internal topics; and, with the
settings, SCRAM users, delegation tokens, ACLs and client quotas. Of a user, a token or a quota that
the data directory already has, its own values stay.
"""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID, uuid4

from odradek.cli.arguments import add_format, natural_number
from odradek.cli.data_directory.directory_lock import held_still
from odradek.cli.data_directory.import_access import (
    ImportRefused,
    access_statements,
    missing_access,
    settings_of_zookeeper,
    told_of_access,
)
from odradek.cli.data_directory.unfinished_import import (
    FILES,
    FOLDER,
    change_checkpoints,
    take_out,
    take_out_all,
    write_note,
)
from odradek.cli.data_directory.zookeeper_metadata import read_zookeeper
from odradek.cli.terminal import tell
from odradek.config import ConfigError
from odradek.config.topic import usable_topic_settings
from odradek.errors import BrokerError, reason_of
from odradek.kafka_files.check import log_directories
from odradek.kafka_files.inspection import UnreadableFile
from odradek.kafka_files.interchange import (
    CopiedLog,
    SourceDirectory,
    SourceLog,
    copy_log,
    metadata_batches,
    read_source,
)
from odradek.kafka_files.kafka_access import KafkaAccess
from odradek.kafka_files.kraft_image import METADATA_TOPIC, KafkaMetadata
from odradek.metadata.image import ConfigResource, PartitionImage, TopicImage
from odradek.metadata.sqlite import schema
from odradek.metadata.sqlite.database import Database
from odradek.metadata.sqlite.journal import Statement, StoredMetadata
from odradek.metadata.store import MetadataStoreError
from odradek.model import INTERNAL_TOPICS, TopicPartition
from odradek.protocol.primitives import ProtocolError
from odradek.protocol.uuids import uuid_text
from odradek.records.reader import read_batch
from odradek.storage import checkpoints, names
from odradek.system_calls import sync_path

if TYPE_CHECKING:
    from odradek.metadata.zookeeper import ZooKeeperSettings

# Topics that other parts of Kafka keep for themselves; nothing here would read them.
_NOT_TAKEN: Final = frozenset({METADATA_TOPIC, "__share_group_state", "__remote_log_metadata"})
_KEEP_ALL: Final[Mapping[str, str]] = {"retention.ms": "-1", "retention.bytes": "-1"}
_INTERNAL: Final[Mapping[str, str]] = {"cleanup.policy": "compact", "compression.type": "producer"}
_PROGRESS_BYTES: Final = 256 * 1024 * 1024
_PRODUCER_ID_BLOCK: Final = 1000


class PlannedTopic(NamedTuple):
    """A topic to import. `partition_count` may exceed the number of logs found."""

    name: str
    topic_id: UUID
    partition_count: int
    leader_epochs: Mapping[int, int]
    settings: Mapping[str, str]
    logs: Mapping[int, SourceLog]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `odradek import`."""
    parser.add_argument(
        "sources",
        metavar="KAFKA_LOG_DIR",
        nargs="+",
        help="a directory of the stopped Kafka's log.dirs; all of them, where there are several",
    )
    parser.add_argument(
        "--data-dir", metavar="DIR", required=True, help="the data directory, created if needed"
    )
    parser.add_argument(
        "--broker-id",
        metavar="N",
        type=natural_number,
        default=1,
        help="the id of the broker that will serve it (default: 1)",
    )
    parser.add_argument(
        "--zookeeper",
        metavar="HOST:PORT",
        help="the ZooKeeper of that Kafka, still running, for settings, users, ACLs and quotas",
    )
    parser.add_argument(
        "--zk-tls-config-file",
        metavar="FILE",
        help="properties for the way to it: zookeeper.ssl.*, zookeeper.sasl.jaas.config",
    )
    add_format(parser, "the summary as an object")


def run(arguments: argparse.Namespace) -> int:
    """Runs the import, or prints in one line why it was refused."""
    sources = list(log_directories(arguments.sources))
    try:
        zookeeper = settings_of_zookeeper(arguments.zookeeper, arguments.zk_tls_config_file)
        task = Import(sources, arguments.data_dir, arguments.broker_id, zookeeper)
        with ExitStack() as stack:
            for source in sources:
                stack.enter_context(held_still(source))
            summary = task.run(stack)
        print(told_of_access(summary), end="", file=sys.stderr)
    except (UnreadableFile, ImportRefused, MetadataStoreError, ConfigError) as error:
        tell(str(error))
        return 1
    except OSError as error:
        where = error.filename or arguments.data_dir
        tell(f"{where}: {reason_of(error)}")
        return 1
    if arguments.format == "json":
        print(json.dumps(summary))
        return 0
    print(
        "imported {topics} topics, {partitions} partitions, {records} records, {bytes} bytes; "
        "start with: odradek start --data-dir {data_dir} --broker-id {broker_id}".format(**summary)
    )
    return 0


class Import:
    """One import."""

    def __init__(
        self,
        sources: Sequence[str],
        data_dir: str,
        broker_id: int,
        zookeeper: "ZooKeeperSettings | None",
    ) -> None:
        self._zookeeper: Final = zookeeper
        self._source_paths: Final = sources
        self._data_dir: Final = data_dir
        self._stage: Final = os.path.join(data_dir, FOLDER)
        self._broker_id: Final = broker_id
        self._copied_bytes = 0
        self._total_bytes = 0
        self._noted_ends: dict[str, int] = {}
        self._copies: dict[TopicPartition, CopiedLog] = {}

    def run(self, stack: ExitStack) -> dict[str, str | int]:
        """Runs the import; returns the numbers for the summary.

        Raises:
            UnreadableFile, ImportRefused, MetadataStoreError, OSError: nothing was imported.
        """
        self._check_target()
        sources = [read_source(path) for path in self._source_paths]
        named_id = _cluster_id(sources)
        kafka = self._read_metadata(sources, named_id)
        topics = plan(sources, kafka)
        self._tell_of_missing(sources, kafka)
        self._total_bytes = sum(log.size_bytes for topic in topics for log in topic.logs.values())
        before = self._present()
        os.makedirs(self._data_dir, exist_ok=True)
        stack.enter_context(held_still(self._data_dir))
        database = Database(self._data_dir)
        # Not earlier: an import that cannot lock the directory must leave it to the broker that has
        # it.
        stack.callback(database.close)
        stack.callback(self._leave_nothing, before, database)
        stored = database.read()
        take_out(self._data_dir, stored)
        self._check_identity()
        self._check_clashes(topics, stored)
        self._check_space()
        os.mkdir(self._stage)
        was_clean = all(source.was_clean for source in sources)
        for topic in topics:
            self._copy_topic(topic, with_indexes=was_clean)
        cluster_id = stored.cluster_id or named_id or self._new_cluster_id()
        is_new = not stored.cluster_id
        self._move_into_place(sources, topics)
        access = missing_access(KafkaAccess() if kafka is None else kafka.access, stored)
        statements = self._statements(cluster_id, kafka, topics, stored)
        database.write([*statements, *access_statements(access)])
        self._identify(cluster_id, was_clean=was_clean and is_new)
        return {
            "topics": len(topics),
            "partitions": len(self._copies),
            "records": sum(copy.record_count for copy in self._copies.values()),
            "bytes": sum(copy.size_bytes for copy in self._copies.values()),
            **access.counts(),
            "data_dir": self._data_dir,
            "broker_id": self._broker_id,
        }

    # The existing files.

    def _check_target(self) -> None:
        target = os.path.realpath(self._data_dir)
        for path in self._source_paths:
            source = os.path.realpath(path)
            if os.path.commonpath([source, target]) in (source, target):
                raise ImportRefused(f"{self._data_dir} and {path} lie within each other")
        if not os.path.lexists(self._data_dir):
            return
        present = set(os.listdir(self._data_dir))
        if present - {FOLDER} and schema.FILE_NAME not in present:
            raise ImportRefused(f"{self._data_dir} is not empty and not a data directory")

    def _check_identity(self) -> None:
        path = os.path.join(self._data_dir, names.META_PROPERTIES)
        if os.path.lexists(path):
            held = read_source(self._data_dir).properties.get("node.id")
            if held != str(self._broker_id):
                raise ImportRefused(f"{path} belongs to broker {held}; name it by --broker-id")

    def _present(self) -> set[str] | None:
        """The names in the data directory; None where there is none yet."""
        return set(os.listdir(self._data_dir)) if os.path.lexists(self._data_dir) else None

    def _leave_nothing(self, before: set[str] | None, database: Database) -> None:
        """Removes what an import made whose metadata was not committed, and the import's folder.

        A directory that was new or empty is so again; in one that was in use the logs would be in
        the way of the next import.
        """
        # Whatever cannot be removed now the next import removes.
        with suppress(OSError, MetadataStoreError):
            stored = database.read()
            if before or stored.cluster_id:
                take_out(self._data_dir, stored)
                return
            database.close()
            take_out_all(self._data_dir)
            if before is None:
                os.rmdir(self._data_dir)

    def _read_metadata(
        self, sources: Sequence[SourceDirectory], cluster_id: str | None
    ) -> KafkaMetadata | None:
        """Reads what Kafka stored about its topics; None when it cannot be read."""
        if self._zookeeper is not None:
            return read_zookeeper(self._zookeeper, cluster_id)
        for source in sources:
            path = os.path.join(source.path, f"{METADATA_TOPIC}-0")
            if os.path.isdir(path):
                return read_kafka_metadata(path)
        self._warn(
            "there is no metadata log in these directories, so no topic's settings: "
            "the imported topics keep everything (retention.ms=-1, retention.bytes=-1); "
            "--zookeeper HOST:PORT reads the settings from Kafka's ZooKeeper"
        )
        return None

    def _tell_of_missing(
        self, sources: Sequence[SourceDirectory], kafka: KafkaMetadata | None
    ) -> None:
        """Names the partitions that only the checkpoints mention: without metadata no other file
        does. Partitions of a topic that is missing from the metadata were deleted with it.
        """
        there = {log.topic_partition for source in sources for log in source.logs}
        live = None if kafka is None else {topic.name for topic in kafka.topics.values()}
        for source in sources:
            for log in source.logs:
                self._noted_ends[log.path] = source.noted_end(log.topic_partition)
            for partition in sorted(source.noted_partitions() - there):
                end_offset = source.noted_end(partition)
                if end_offset and (live is None or partition.topic in live):
                    self._warn(
                        f"{source.path} has no {partition}, the checkpoints there say that it "
                        f"ended at offset {end_offset}: its records are missing unless its topic "
                        "was deleted"
                    )

    def _check_clashes(self, topics: Sequence[PlannedTopic], stored: StoredMetadata) -> None:
        taken = {topic.name for topic in stored.topics} | set(os.listdir(self._data_dir))
        ids = {topic.topic_id for topic in stored.topics}
        for topic in topics:
            directories = {f"{topic.name}-{index}" for index in range(topic.partition_count)}
            if topic.name in taken or topic.topic_id in ids or taken & directories:
                raise ImportRefused(f"{self._data_dir} holds a topic {topic.name} already")

    def _check_space(self) -> None:
        free = shutil.disk_usage(self._data_dir).free
        if free < self._total_bytes:
            raise ImportRefused(
                f"{self._data_dir} has {free} bytes free, {self._total_bytes} are to be copied"
            )

    # Copying.

    def _copy_topic(self, topic: PlannedTopic, *, with_indexes: bool) -> None:
        records = size_bytes = 0
        for index in sorted(topic.logs):
            log = topic.logs[index]
            target = os.path.join(self._stage, str(log.topic_partition))
            copied = copy_log(
                log,
                target,
                with_indexes=with_indexes,
                topic_id=topic.topic_id,
                on_bytes=self._on_bytes,
            )
            if copied.damage is not None:
                self._warn(f"{copied.damage}; copied as it is, records from there on may be lost")
            elif copied.end_offset < (noted := self._noted_ends.get(log.path, 0)):
                self._warn(
                    f"{log.path} ends at offset {copied.end_offset}, the checkpoints beside it say "
                    f"{noted}: records are missing there"
                )
            self._copies[log.topic_partition] = copied
            records += copied.record_count
            size_bytes += copied.size_bytes
        missing = sorted(set(range(topic.partition_count)) - set(topic.logs))
        if missing:
            listed = ", ".join(map(str, missing))
            self._warn(f"{topic.name}: partitions {listed} are not in these directories: empty")
        print(
            f"{topic.name}: {len(topic.logs)} partitions, {records} records, {size_bytes} bytes",
            file=sys.stderr,
        )

    def _on_bytes(self, size_bytes: int) -> None:
        before = self._copied_bytes
        self._copied_bytes += size_bytes
        if before // _PROGRESS_BYTES != self._copied_bytes // _PROGRESS_BYTES:
            print(f"copied {self._copied_bytes} of {self._total_bytes} bytes", file=sys.stderr)

    def _move_into_place(
        self,
        sources: Sequence[SourceDirectory],
        topics: Sequence[PlannedTopic],
    ) -> None:
        moved = [str(log.topic_partition) for topic in topics for log in topic.logs.values()]
        write_note(self._data_dir, moved)
        # From here on a broker would find logs that were not closed by it.
        marker = os.path.join(self._data_dir, names.CLEAN_SHUTDOWN_FILE)
        if os.path.lexists(marker):
            os.unlink(marker)
        self._merge_checkpoints(sources, topics)
        for name in moved:
            os.rename(os.path.join(self._stage, name), os.path.join(self._data_dir, name))
        sync_path(self._data_dir)

    def _identify(self, cluster_id: str, *, was_clean: bool) -> None:
        """Writes whose directory it is, and that nothing has to be recovered: not before the commit
        makes it so. A broker does without either."""
        with suppress(OSError):
            if was_clean:
                self._write(names.CLEAN_SHUTDOWN_FILE, checkpoints.encode_clean_shutdown(-1))
            if not os.path.lexists(os.path.join(self._data_dir, names.META_PROPERTIES)):
                data = checkpoints.encode_meta_properties(cluster_id, self._broker_id, uuid4())
                self._write(names.META_PROPERTIES, data)

    def _merge_checkpoints(
        self, sources: Sequence[SourceDirectory], topics: Sequence[PlannedTopic]
    ) -> None:
        """Brings the sources' entries of the copied logs; one that they do not have may be there
        of an earlier topic."""
        come: dict[str, dict[TopicPartition, int]] = {}
        for name, offsets_of in (
            (names.RECOVERY_POINT_CHECKPOINT, [s.recovery_points for s in sources]),
            (names.LOG_START_OFFSET_CHECKPOINT, [s.log_start_offsets for s in sources]),
            (names.HIGH_WATERMARK_CHECKPOINT, [s.high_watermarks for s in sources]),
        ):
            come[name] = {
                each: offset
                for offsets in offsets_of
                for each, offset in offsets.items()
                if each in self._copies
            }
        gone = {
            TopicPartition(topic.name, index)
            for topic in topics
            for index in range(topic.partition_count)
        }
        change_checkpoints(self._data_dir, gone, come)

    def _write(self, name: str, data: bytes) -> None:
        FILES.replace(os.path.join(self._data_dir, name), data, sync=True)

    # Metadata.

    def _statements(
        self,
        cluster_id: str,
        kafka: KafkaMetadata | None,
        topics: Sequence[PlannedTopic],
        stored: StoredMetadata,
    ) -> list[Statement]:
        images = [self._image(topic) for topic in topics]
        settings = [
            (ConfigResource.topic(topic.name), name, value)
            for topic in topics
            for name, value in topic.settings.items()
        ]
        largest = max((copy.largest_producer_id for copy in self._copies.values()), default=-1)
        next_producer_id = max(
            stored.next_producer_id,
            0 if kafka is None else kafka.next_producer_id,
            (largest + _PRODUCER_ID_BLOCK) // _PRODUCER_ID_BLOCK * _PRODUCER_ID_BLOCK,
        )
        return [
            schema.put_property(schema.CLUSTER_ID, cluster_id),
            schema.put_property(schema.NEXT_PRODUCER_ID, next_producer_id),
            schema.put_topics(images),
            schema.put_configs(settings),
            *[schema.put_partitions(image.topic_id, image.partitions) for image in images],
        ]

    def _new_cluster_id(self) -> str:
        cluster_id = uuid_text(uuid4())
        self._warn(
            f"the directories do not name their cluster, as before Kafka 2.4: it is {cluster_id}"
        )
        return cluster_id

    def _image(self, topic: PlannedTopic) -> TopicImage:
        replicas = (self._broker_id,)
        partitions = []
        for index in range(topic.partition_count):
            copy = self._copies.get(TopicPartition(topic.name, index))
            written = -1 if copy is None else copy.latest_epoch
            epoch = max(0, topic.leader_epochs.get(index, 0), written)
            partitions.append(PartitionImage(index, self._broker_id, epoch, 0, replicas, replicas))
        return TopicImage(topic.name, topic.topic_id, tuple(partitions))

    def _warn(self, text: str) -> None:
        tell(text)


def plan(sources: Sequence[SourceDirectory], kafka: KafkaMetadata | None) -> list[PlannedTopic]:
    """The topics in the directories, with their metadata.

    A directory whose topic the metadata does not know any more is a deleted topic's.

    Raises:
        ImportRefused: two logs of one partition, or of two topics of one name.
    """
    found: dict[str, dict[int, SourceLog]] = {}
    live = None if kafka is None else {topic.name: topic for topic in kafka.topics.values()}
    for source in sources:
        for log in source.logs:
            name, index = log.topic_partition
            if name in _NOT_TAKEN or (live is not None and name not in live):
                continue
            if live is not None and log.topic_id not in (None, live[name].topic_id):
                continue
            other = found.setdefault(name, {}).setdefault(index, log)
            if other is not log:
                raise ImportRefused(f"{other.path} and {log.path} are the same partition")
    topics = []
    for name in sorted(found if live is None else set(live) - _NOT_TAKEN):
        logs = found.get(name, {})
        if live is None:
            count = max(logs) + 1
            settings = {**_KEEP_ALL, **(_INTERNAL if name in INTERNAL_TOPICS else {})}
            topics.append(PlannedTopic(name, _common_id(name, logs), count, {}, settings, logs))
        else:
            assert kafka is not None, "live topics come from the metadata"
            topic = live[name]
            settings = usable_settings(name, kafka.configs.get(name, {}))
            count = max([*topic.leader_epochs, *logs], default=-1) + 1
            epochs = topic.leader_epochs
            topics.append(PlannedTopic(name, topic.topic_id, count, epochs, settings, logs))
    return topics


def _cluster_id(sources: Sequence[SourceDirectory]) -> str | None:
    """The id of the cluster that the directories belong to; None where none is named.

    Raises:
        ImportRefused: they belong to several.
    """
    cluster_ids = {source.properties.get("cluster.id", "") for source in sources}
    if len(cluster_ids) != 1:
        raise ImportRefused(
            "the directories do not belong to one cluster: see cluster.id in their meta.properties"
        )
    return cluster_ids.pop() or None


def usable_settings(topic: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that have an effect here; the others are named on standard error."""
    usable, problems = usable_topic_settings(settings)
    for error in problems:
        left_out = f"{error.name}={settings[error.name]}"
        tell(f"{topic}: {left_out} is left out: {error}")
    return {name: value for name, value in settings.items() if name in usable}


def read_kafka_metadata(path: str) -> KafkaMetadata:
    """Replays a metadata log.

    Raises:
        UnreadableFile: it is damaged, or newer than the versions known here.
    """
    kafka = KafkaMetadata()
    for batch in metadata_batches(path):
        if batch.header.is_control:
            continue
        try:
            for record in read_batch(batch.data, batch.header):
                kafka.replay(record.value or b"")
        except (ProtocolError, BrokerError, ValueError) as error:
            offset = batch.header.base_offset
            raise UnreadableFile(path, f"the record batch at offset {offset}: {error}") from error
    return kafka


def _common_id(name: str, logs: Mapping[int, SourceLog]) -> UUID:
    """The id that the partitions of a topic agree on; a new one before Kafka 2.8."""
    ids = {log.topic_id for log in logs.values() if log.topic_id is not None}
    if len(ids) > 1:
        raise ImportRefused(f"the partitions of {name} have different topic ids")
    return ids.pop() if ids else uuid4()
