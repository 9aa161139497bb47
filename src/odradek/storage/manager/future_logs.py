"""Future logs: copies of logs on their way to another directory of the same broker.

A future log is a separate log in `<topic>-<partition>.<32 hex digits>-future`, never in the
directory of the partition's current log. It copies the current one until both are equal; then the
current one is renamed for deletion and the future one takes its name. A crash between these two
renames leaves a partition without a current log: the next start finds the future one beside what
waits for its removal, and finishes. An unexplained future log is set aside for a person to look at.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from odradek.config.topic import LogConfig
from odradek.errors import BrokerError
from odradek.model import TopicPartition
from odradek.records.errors import CorruptRecords
from odradek.storage import names
from odradek.storage.files import FileSystem
from odradek.storage.log.local_log import LocalLog, LogListener
from odradek.storage.log.log import Log
from odradek.storage.log_directory import LogDirectory
from odradek.storage.manager.loading import (
    LogLoadParameters,
    create_log,
    open_log,
    read_topic_id,
)
from odradek.storage.manager.log_deletion import LogDeletion
from odradek.storage.manager.log_table import LogTable
from odradek.storage.manager.logs_loader import NO_TOPIC_ID

logger: Final = logging.getLogger(__name__)


class _CopyListener(LogListener):
    """The housekeeping of future logs: neither a number of records nor their age makes a flush due.

    The current log has them too. With `flush.messages=1` a copy that is appended to would be under
    a flush all the time, and could never take the log's place.
    """

    def __init__(self, housekeeping: LogListener) -> None:
        self._housekeeping = housekeeping

    def on_rolled(self, log: LocalLog) -> None:
        """See `LogListener`."""
        self._housekeeping.on_rolled(log)

    def on_log_start_offset(self, log: LocalLog) -> None:
        """See `LogListener`."""
        self._housekeeping.on_log_start_offset(log)

    def on_truncated(self, log: LocalLog) -> None:
        """See `LogListener`."""
        self._housekeeping.on_truncated(log)


class FutureLogs:
    """The future logs of a broker, at most one for each partition."""

    def __init__(
        self,
        file_system: FileSystem,
        table: LogTable,
        deletion: LogDeletion,
        listener: LogListener,
        new_uuid: Callable[[], UUID],
    ) -> None:
        self._file_system = file_system
        self._deletion = deletion
        self._listener = _CopyListener(listener)
        self._new_uuid = new_uuid
        self._logs = table.futures
        # Directory and name of those that are still to be opened.
        self._found: list[tuple[LogDirectory, str]] = []

    def __len__(self) -> int:
        return len(self._logs)

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """The future log of a partition, if there is one."""
        return self._logs.get(topic_partition)

    def all(self) -> list[Log]:
        """All future logs."""
        return list(self._logs.values())

    def create(self, directory: LogDirectory, current: Log, start_offset: int) -> Log:
        """A future log that begins at `start_offset`, with the settings of the current one.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """
        topic_partition = current.topic_partition
        assert topic_partition not in self._logs, f"{topic_partition} is on its way already"
        path = directory.file_path(names.future_directory(topic_partition, self._new_uuid()))
        try:
            log = create_log(
                directory, topic_partition, current.topic_id, current.config, path, start_offset
            )
        except OSError as error:
            raise directory.storage_error(error, f"creating {path}") from error
        self._adopt(log)
        return log

    def delete(self, topic_partition: TopicPartition) -> None:
        """Deletes a future log, if there is one, like any other log.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR; on a full disk it stays as it was.
        """
        log = self._logs.get(topic_partition)
        if log is not None:
            self._deletion.delete(log, self.forget)

    def abandon_in(self, directory: LogDirectory) -> None:
        """Forgets those of a directory whose disk has failed; their files stay as they are."""
        for log in self.all():
            if log.log_directory is directory:
                log.local.abandon()
                del self._logs[log.topic_partition]

    def forget(self, log: Log) -> None:
        """Forgets a future log that has become a current one."""
        del self._logs[log.topic_partition]

    # The start.

    def finish_swaps(self, directories: Sequence[LogDirectory]) -> None:
        """Looks for future logs, and finishes swaps that a crash has interrupted between two
        renames. Blocks.

        While a directory is offline none is changed: the current log may be in it.
        """
        try:
            found = {each: self._file_system.list_directory(each.path) for each in directories}
        except OSError:
            return  # the code that looks for logs finds the directory failing
        present = {name for listed in found.values() for name in listed}
        for directory, listed in found.items():
            for name in listed:
                topic_partition = names.parse_future_directory(name)
                if topic_partition is not None:
                    self._sort(directory, name, topic_partition, present)

    def _sort(
        self,
        directory: LogDirectory,
        name: str,
        topic_partition: TopicPartition,
        present: set[str],
    ) -> None:
        current = names.partition_directory(topic_partition)
        if current in present:
            self._found.append((directory, name))
        elif any(names.is_deleted_directory_of(each, topic_partition) for each in present):
            self._rename(directory, name, current)
            logger.info("%s: its move to %s is finished", topic_partition, directory.path)
        else:
            target = names.stray_directory(topic_partition, self._new_uuid())
            self._rename(directory, name, target)
            logger.warning("%s has no current log; %s is set aside", topic_partition, target)

    def _rename(self, directory: LogDirectory, name: str, target: str) -> None:
        # Synced before the log that was there is removed, which may lie on a quicker disk.
        directory.rename_synced(directory.file_path(name), directory.file_path(target))

    def load(self, config: LogConfig) -> None:
        """Opens what was found; a log that cannot be opened is given up. Blocks."""
        for directory, name in self._found:
            topic_partition = names.parse_future_directory(name)
            assert topic_partition is not None, f"{name} was found as a future log"
            if directory.failure is None:
                recovery_points = directory.read_offsets(names.RECOVERY_POINT_CHECKPOINT)
                parameters = LogLoadParameters(
                    recovery_point=recovery_points.get(topic_partition, 0),
                    was_clean=directory.was_clean,
                    on_finding=logger.warning,
                )
                path = directory.file_path(name)
                self._open(directory, topic_partition, path, config, parameters)
        self._found.clear()

    def _open(
        self,
        directory: LogDirectory,
        topic_partition: TopicPartition,
        path: str,
        config: LogConfig,
        parameters: LogLoadParameters,
    ) -> None:
        try:
            topic_id = read_topic_id(directory, path) or NO_TOPIC_ID
            log = open_log(directory, topic_partition, topic_id, config, parameters, path)
        except CorruptRecords as error:
            logger.warning("%s is given up: %s", path, error)
            self._delete_damaged(directory, path, topic_partition)
        except OSError as error:
            directory.fail(error)
        else:
            self._adopt(log)

    def _delete_damaged(
        self, directory: LogDirectory, path: str, topic_partition: TopicPartition
    ) -> None:
        try:
            self._deletion.delete_directory(directory, path, topic_partition, 0)
        except BrokerError as error:
            logger.warning("%s is left to the next start: %s", path, error)

    def _adopt(self, log: Log) -> None:
        log.local.listener = self._listener
        self._logs[log.topic_partition] = log
