"""Deletes logs: a log's directory is renamed now, and removed after `file.delete.delay.ms`.

The checkpoints forget the log before its directory is removed: until then the next start could
apply their entries to a recreated log.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from odradek.errors import BrokerError
from odradek.model import TopicPartition
from odradek.storage import names
from odradek.storage.files import FileSystem
from odradek.storage.log.log import Log
from odradek.storage.log_directory import LogDirectory
from odradek.storage.manager.offset_checkpoints import OffsetCheckpoints

logger = logging.getLogger(__name__)


class LogDeletion:
    """Deletes logs, under names that no log has had before.

    A log is dropped only when its directory has such a name: otherwise the partition's next log
    would begin with its records.
    """

    def __init__(
        self,
        file_system: FileSystem,
        checkpoints: OffsetCheckpoints,
        new_uuid: Callable[[], UUID],
    ) -> None:
        self._new_uuid = new_uuid
        self._file_system = file_system
        self._checkpoints = checkpoints

    def delete(self, log: Log, let_go: Callable[[Log], None]) -> None:
        """Deletes a log.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, the directory could not be renamed: the log stays.
        """
        directory = log.log_directory
        target = directory.file_path(names.deleted_directory(log.topic_partition, self._new_uuid()))
        if self._take_away(log, target, let_go):
            self._remove(directory, target, log.config.file_delete_delay_ms)

    def swap(self, current: Log, log: Log) -> None:
        """Gives `log`, in another directory, the name of the current one, which gets one of those
        that wait for their removal.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR; both are where they were, or the current one's
                directory has failed.
        """
        topic_partition = current.topic_partition
        directory, path = current.log_directory, current.local.path
        target = directory.file_path(names.deleted_directory(topic_partition, self._new_uuid()))
        new_path = log.log_directory.file_path(names.partition_directory(topic_partition))
        self._rename(directory, path, target)
        try:
            # First, as the other disk may be the quicker: a start would find the log in both.
            self._sync(directory)
            self._rename(log.log_directory, log.local.path, new_path)
        except BrokerError:
            # Else records appended to it from now on would be deleted at the next start.
            directory.rename_synced(target, path)
            raise
        current.local.abandon()
        current.local.moved(target)
        log.local.moved(new_path)
        log.leader_epochs.moved(f"{new_path}/{names.LEADER_EPOCH_CHECKPOINT}")

    def delete_swapped(self, log: Log, successor: Log) -> None:
        """Removes a log in whose place there is another, after a delay, and not before the name of
        its successor is on the disk: a start after a power failure would find neither."""
        directory, path = log.log_directory, log.local.path
        delay_ms = log.config.file_delete_delay_ms
        self._checkpoints.write_all_of(directory)
        successor.log_directory.when_synced(lambda: self._remove(directory, path, delay_ms))

    def delete_directory(
        self, directory: LogDirectory, path: str, topic_partition: TopicPartition, delay_ms: int
    ) -> None:
        """Deletes the directory of a log that could not be opened; raises as `delete`."""
        target = directory.file_path(names.deleted_directory(topic_partition, self._new_uuid()))
        self._rename(directory, path, target)
        self._checkpoints.write_all_of(directory)
        self._remove(directory, target, delay_ms)

    def set_aside(self, log: Log, reason: str, let_go: Callable[[Log], None]) -> None:
        """Keeps a log's files, under a name that no log has; raises as `delete`."""
        topic_partition = log.topic_partition
        directory = log.log_directory
        target = directory.file_path(names.stray_directory(topic_partition, self._new_uuid()))
        if self._take_away(log, target, let_go):
            logger.warning("the log of %s is %s; set aside as %s", topic_partition, reason, target)

    def finish(
        self, directory: LogDirectory, deleted: Sequence[str], *, is_any_offline: bool
    ) -> None:
        """Continues the removal of logs that a crash, or an end, has interrupted.

        While another directory is offline the files stay, and the checkpoints alone forget the
        logs: the move of one of them to that directory may be unfinished.
        """
        if deleted:
            self._checkpoints.write_all_of(directory)
        for path in deleted:
            if is_any_offline:
                self._checkpoints.when_idle(directory, partial(directory.forget_deleted, path))
            else:
                self._remove(directory, path, 0)

    def _take_away(self, log: Log, target: str, let_go: Callable[[Log], None]) -> bool:
        """Renames the directory of a log; False where the disk has failed before."""
        directory = log.log_directory
        has_failed = directory.failure is not None
        if not has_failed:
            log.local.release_files()
            self._rename(directory, log.local.path, target)
            log.local.moved(target)
        log.local.abandon()
        let_go(log)
        if not has_failed:
            self._checkpoints.write_all_of(directory)
        return not has_failed

    def _remove(self, directory: LogDirectory, path: str, delay_ms: int) -> None:
        self._checkpoints.when_idle(
            directory,
            lambda is_forgotten: directory.remove_deleted(
                path, delay_ms, is_forgotten=is_forgotten
            ),
        )

    def _rename(self, directory: LogDirectory, path: str, target: str) -> None:
        try:
            self._file_system.rename(path, target)
        except OSError as error:
            raise directory.storage_error(error, f"renaming {path}") from error

    def _sync(self, directory: LogDirectory) -> None:
        try:
            self._file_system.sync(directory.path)
        except OSError as error:
            raise directory.storage_error(error, f"syncing {directory.path}") from error
