"""`odradek fsck`: checks data directories without changing them.

One line per finding: the file, the offset and the position if known, the fault, and what the next
start of a broker does about it. Exit status 1 if there is one, 0 and nothing on standard output if
there is none. A directory that a running broker uses is refused, since half-written data would look
torn. Apache Kafka's directories can be checked too; the metadata is compared only if there is an
`odradek-metadata.sqlite`.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from odradek.cli.arguments import add_format
from odradek.cli.data_directory.directory_lock import held_still
from odradek.cli.terminal import tell
from odradek.errors import reason_of
from odradek.kafka_files.check import DirectoryCheck, Finding, KnownPartition, log_directories
from odradek.kafka_files.inspection import UnreadableFile
from odradek.metadata.image import ConfigResource
from odradek.metadata.sqlite import schema
from odradek.metadata.sqlite.database import Database
from odradek.metadata.sqlite.journal import StoredMetadata
from odradek.metadata.store import MetadataStoreError
from odradek.model import COMPACTED_TOPICS, TopicPartition
from odradek.storage import names

_DATABASE_FILES: Final = (schema.FILE_NAME, schema.FILE_NAME + "-wal")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `odradek fsck`."""
    parser.add_argument(
        "directories",
        metavar="DIR",
        nargs="+",
        help="a data directory; all of them, where log.dirs names several",
    )
    parser.add_argument(
        "--deep", action="store_true", help="look into every record, not only at checksums"
    )
    add_format(parser, "an object for each finding")


def run(arguments: argparse.Namespace) -> int:
    """Checks the directories; names on standard error what it has checked."""
    check = Check(is_json=arguments.format == "json", is_deep=arguments.deep)
    try:
        with ExitStack() as stack:
            directories = list(log_directories(arguments.directories))
            for directory in directories:
                stack.enter_context(held_still(directory))
            check.run(directories)
    except UnreadableFile as error:
        tell(str(error))
        return 1
    words = f"{check.count} findings" if check.count != 1 else "1 finding"
    print(
        f"checked {check.logs} partitions, {check.size_bytes} bytes of records: {words}",
        file=sys.stderr,
    )
    return 1 if check.count else 0


class Check:
    """One run over all directories of a broker."""

    def __init__(self, *, is_json: bool, is_deep: bool) -> None:
        self._is_json: Final = is_json
        self._is_deep: Final = is_deep
        self.count = 0
        self.logs = 0
        self.size_bytes = 0

    def run(self, directories: Sequence[str]) -> None:
        """Checks the metadata, then each directory, then that they match.

        Raises:
            UnreadableFile: a directory cannot be listed.
        """
        metadata = self._read_metadata(directories)
        known = None if metadata is None else known_partitions(metadata)
        homes: dict[TopicPartition, str] = {}
        properties: dict[str, dict[str, str]] = {}
        for directory in directories:
            check = DirectoryCheck(
                directory,
                known,
                self.find,
                deep=self._is_deep,
                deleted_topics=frozenset() if metadata is None else metadata.deleted_topics,
            )
            check.run()
            properties[directory] = check.properties
            self.logs += len(check.logs)
            self.size_bytes += sum(log.size_bytes for log in check.logs.values())
            for topic_partition in check.logs:
                home = homes.setdefault(topic_partition, directory)
                if home != directory:
                    path = os.path.join(directory, str(topic_partition))
                    self.find(Finding(path, f"{home} holds this partition too"))
        self._check_identities(properties, metadata)
        for topic_partition in sorted(set(known or ()) - set(homes)):
            path = os.path.join(directories[0], str(topic_partition))
            problem = "it is missing: the metadata knows the partition, no directory here holds it"
            self.find(Finding(path, problem, remedy="the next start makes an empty one"))

    def find(self, finding: Finding) -> None:
        """Prints a finding."""
        self.count += 1
        if self._is_json:
            facts = {"file": finding.path, "offset": finding.offset, "position": finding.position}
            print(json.dumps({**facts, "what": finding.problem, "remedy": finding.remedy}))
            return
        where = "".join(
            f", {name} {value}"
            for name, value in (("offset", finding.offset), ("position", finding.position))
            if value is not None
        )
        remedy = "" if finding.remedy is None else f" ({finding.remedy})"
        print(f"{finding.path}{where}: {finding.problem}{remedy}")

    def _read_metadata(self, directories: Sequence[str]) -> StoredMetadata | None:
        for directory in directories:
            path = os.path.join(directory, schema.FILE_NAME)
            if os.path.lexists(path):
                try:
                    return read_metadata(directory)
                except UnreadableFile as error:
                    self.find(Finding(path, error.problem))
        return None

    def _check_identities(
        self, properties: dict[str, dict[str, str]], metadata: StoredMetadata | None
    ) -> None:
        cluster_ids: dict[str, str] = {}
        if metadata is not None and metadata.cluster_id:
            cluster_ids[metadata.cluster_id] = "the metadata"
        directory_ids: dict[str, str] = {}
        for directory, fields in properties.items():
            path = os.path.join(directory, names.META_PROPERTIES)
            cluster_id = fields.get("cluster.id")
            if cluster_id and cluster_ids and cluster_id not in cluster_ids:
                other, source = next(iter(cluster_ids.items()))
                problem = f"it names the cluster {cluster_id}, {source} names {other}"
                self.find(Finding(path, problem))
            elif cluster_id:
                cluster_ids.setdefault(cluster_id, path)
            directory_id = fields.get("directory.id")
            if directory_id and directory_ids.setdefault(directory_id, path) != path:
                problem = f"{directory_ids[directory_id]} has the same directory.id"
                self.find(Finding(path, problem))


def read_metadata(directory: str) -> StoredMetadata:
    """Reads the metadata file of a stopped broker, as of its last commit.

    Read from a copy: sqlite3 would fold the write-ahead log of a broker that was killed into
    the file.

    Raises:
        UnreadableFile: it cannot be read or is damaged.
    """
    path = os.path.join(directory, schema.FILE_NAME)
    with tempfile.TemporaryDirectory(prefix="odradek-fsck-") as copies:
        try:
            for name in _DATABASE_FILES:
                if os.path.lexists(os.path.join(directory, name)):
                    shutil.copyfile(os.path.join(directory, name), os.path.join(copies, name))
        except OSError as error:
            raise UnreadableFile(path, reason_of(error)) from error
        try:
            database = Database(copies)
            try:
                return database.read()
            finally:
                database.close()
        except MetadataStoreError as error:
            problem = str(error).replace(os.path.join(copies, schema.FILE_NAME), "the file")
            raise UnreadableFile(path, problem) from error


def known_partitions(metadata: StoredMetadata) -> dict[TopicPartition, KnownPartition]:
    """The partitions of the metadata whose files can be compared with it."""
    known: dict[TopicPartition, KnownPartition] = {}
    for topic in metadata.topics:
        settings = metadata.configs.get(ConfigResource.topic(topic.name), {})
        policy = settings.get("cleanup.policy", "")
        is_compacted = "compact" in policy or topic.name in COMPACTED_TOPICS
        for partition in topic.partitions:
            topic_partition = TopicPartition(topic.name, partition.partition)
            known[topic_partition] = KnownPartition(topic.topic_id, is_compacted)
    return known
