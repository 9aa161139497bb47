"""One of `log.dirs`: its lock, its identity, its checkpoints, and whether it still works.

Every log lives in a `LogDirectory` and does its file work through it. A disk that fails takes the
whole directory out of service, once: `failure` is set, every log in it answers KAFKA_STORAGE_ERROR
from then on, and the owner of the directory is notified. A full disk is no failure of the
directory: it refuses one append, and the next may find room.

Files that are not needed any more are renamed at once and removed by `delete_later`, so that a
reader that just found them can finish.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import UUID

from odradek.background import Background
from odradek.clock import Clock
from odradek.errors import BrokerError, ErrorCode, LogDirFailure, reason_of, text_of
from odradek.log_limit import LimitedLog
from odradek.model import TopicPartition
from odradek.storage import checkpoints, names
from odradek.storage.checkpoint_file import CheckpointFile, Offsets
from odradek.storage.errors import FULL
from odradek.storage.files import FileLock, FileSystem
from odradek.timer.timer import Timer
from odradek.timer.timer_task import TimerTask

logger = logging.getLogger(__name__)

_REFUSALS_MS: Final = 10_000


class LogDirectory:
    """A directory of logs. `failure` is None as long as its disk works.

    `was_clean` says, once it is open, whether it was closed in order last time.
    """

    def __init__(
        self,
        path: str,
        file_system: FileSystem,
        clock: Clock,
        timer: Timer,
        background: Background,
        on_failure: Callable[["LogDirectory"], None],
    ) -> None:
        self.path = path
        self.file_system = file_system
        self.clock = clock
        self.timer = timer
        self.background = background
        self.failure: LogDirFailure | None = None
        self.directory_id: UUID | None = None
        self.was_clean = False
        self._on_failure = on_failure
        self._lock: FileLock | None = None
        self._checkpoints: Final[dict[str, CheckpointFile]] = {}
        self._refusals: Final = LimitedLog(logger, clock, _REFUSALS_MS)

    def open(self) -> None:
        """Makes and locks the directory, and finds out whether it was closed in order.

        Removes the marker of an orderly end, since a crash is possible from now on, and the rest of
        a checkpoint whose write a crash has interrupted.

        Raises:
            BlockingIOError: another broker uses the directory.
            OSError: the directory cannot be used.
        """
        self.file_system.make_directory(self.path)
        self._lock = self.file_system.lock(self.file_path(names.LOCK_FILE))
        for name in self.file_system.list_directory(self.path):
            path = self.file_path(name)
            # A folder is of an import that was interrupted, for the next one.
            if name.endswith(names.TEMPORARY_SUFFIX) and not self.file_system.is_directory(path):
                self.file_system.remove(path)
        marker = self.file_path(names.CLEAN_SHUTDOWN_FILE)
        self.was_clean = self.file_system.size(marker) >= 0
        if self.was_clean:
            self.file_system.remove(marker)
        # What is read from now on must not change any more, as the names may that a process which
        # was killed has not synced.
        self.file_system.sync(self.path)

    def mark_clean(self, broker_epoch: int) -> None:
        """Writes the marker; every log has been flushed and closed."""
        marker = self.file_path(names.CLEAN_SHUTDOWN_FILE)
        self.file_system.replace(marker, checkpoints.encode_clean_shutdown(broker_epoch), sync=True)

    def release_lock(self) -> None:
        """Releases the lock, so that another broker can use the directory."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def identify(self, cluster_id: str, node_id: int, new_id: UUID) -> None:
        """Writes `meta.properties` into a new directory; one that has it was checked."""
        path = self.file_path(names.META_PROPERTIES)
        if self.file_system.size(path) < 0:
            self.directory_id = new_id
            data = checkpoints.encode_meta_properties(cluster_id, node_id, new_id)
            self.file_system.replace(path, data, sync=True)

    def check_identity(self, cluster_id: str, node_id: int) -> None:
        """Checks `meta.properties` against the broker; a new directory has none.

        Raises:
            ValueError: the directory belongs to another cluster or broker, or the file, which
                is named, is damaged.
        """
        path = self.file_path(names.META_PROPERTIES)
        if self.file_system.size(path) < 0:
            return
        try:
            found = checkpoints.parse_meta_properties(self.file_system.read_bytes(path))
            if "directory.id" in found:
                self.directory_id = checkpoints.decode_uuid(found["directory.id"])
        except checkpoints.CorruptCheckpoint as error:
            raise ValueError(f"{path}: {error}") from error
        held = (found.get("cluster.id"), found.get("node.id", found.get("broker.id")))
        if None in held:
            raise ValueError(f"{path}: it does not name its cluster and broker")
        if held != (cluster_id, str(node_id)):
            raise ValueError(
                f"{path} belongs to broker {held[1]} of cluster {held[0]}, "
                f"this is broker {node_id} of cluster {cluster_id}; put back the files that belong "
                "together, or give another directory"
            )

    def file_path(self, name: str) -> str:
        """The path of a file of this directory."""
        return f"{self.path}/{name}"

    def checkpoint(self, name: str) -> CheckpointFile:
        """The offset checkpoint of that name."""
        if name not in self._checkpoints:
            self._checkpoints[name] = CheckpointFile(self.file_system, self.path, name)
        return self._checkpoints[name]

    def read_offsets(self, name: str) -> Offsets:
        """The offsets of a checkpoint; see `CheckpointFile.read`."""
        return self.checkpoint(name).read()

    def write_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replaces a checkpoint. Blocks on the disk.

        Raises:
            OSError: the old checkpoint is still there.
        """
        self.checkpoint(name).prepare(dict(offsets))()

    def limit_offset(self, name: str, topic_partition: TopicPartition, offset: int) -> None:
        """Lowers a log's entry in a checkpoint; see `CheckpointFile.limit`."""
        self.checkpoint(name).limit(topic_partition, offset)

    def delete_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Removes files or directories, which are renamed already, after a delay."""
        self.timer.add(TimerTask(delay_ms, lambda: self._remove(list(paths))))

    def remove_deleted(self, path: str, delay_ms: int, *, is_forgotten: bool) -> None:
        """Removes the renamed directory of a deleted log after a delay.

        Its `partition.metadata` is removed as soon as the log `is_forgotten`, that is, no
        checkpoint has it. Until then it tells the next start that the checkpoints' entries are not
        about a recreated log. On a full disk they cannot be written; the records go then.
        """
        metadata = f"{path}/{names.PARTITION_METADATA}"
        try:
            if is_forgotten:
                self.file_system.remove(metadata)
                self.delete_later([path], delay_ms)
                return
            present = [f"{path}/{name}" for name in self.file_system.list_directory(path)]
            self.delete_later([each for each in present if each != metadata], delay_ms)
        except OSError as error:
            self.storage_error(error, f"deleting {path}")

    def forget_deleted(self, path: str, is_forgotten: bool) -> None:
        """Notes of a deleted log that stays for now whether the checkpoints have it no longer; see
        `remove_deleted`."""
        if is_forgotten:
            metadata = f"{path}/{names.PARTITION_METADATA}"
            self.attempt(lambda: self.file_system.remove(metadata), f"deleting {metadata}")

    def is_in_checkpoints(self, path: str) -> bool:
        """Whether checkpoints may have entries of a deleted log.

        Raises:
            OSError: the disk failed.
        """
        return self.file_system.size(f"{path}/{names.PARTITION_METADATA}") >= 0

    def sync_names(self) -> None:
        """Syncs the directory's list of logs to the disk; a failing disk goes offline. Blocks."""
        try:
            self.file_system.sync(self.path)
        except OSError as error:
            self.fail(error)

    def rename_synced(self, path: str, target: str) -> None:
        """Gives a log another name, which is then on the disk; a failing disk goes offline.
        Blocks."""
        try:
            self.file_system.rename(path, target)
            self.file_system.sync(self.path)
        except OSError as error:
            self.fail(error)

    def when_synced(self, action: Callable[[], None]) -> None:
        """Syncs the directory's list of logs in the background, then calls `action`; never if the
        disk refuses, and one that fails goes offline."""
        self.background.submit(
            lambda: self.file_system.sync(self.path),
            lambda _: action(),
            self._on_background_error,
        )

    def check(self) -> None:
        """Raises the error of every log in a failed directory.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """
        if self.failure is not None:
            reason = reason_of(self.failure.cause)
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path} is offline: {reason}")

    def storage_error(self, error: OSError, doing: str) -> BrokerError:
        """The error to answer when the disk refused something; a failing disk goes offline, a full
        one is logged: producers try again for minutes without a word."""
        is_named = bool(error.filename) and str(error.filename) in doing
        reason = f"{doing} failed: {reason_of(error) if is_named else text_of(error)}"
        if error.errno in FULL:
            self._refusals.warning(reason)
        else:
            self.fail(error)
        return BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, reason)

    def attempt(self, change: Callable[[], None], doing: str) -> None:
        """Runs an action whose failure can be made good later; a failing disk goes offline all the
        same."""
        try:
            change()
        except OSError as error:
            self.storage_error(error, doing)

    def fail(self, error: OSError) -> None:
        """Takes the directory out of service; only the first failure counts."""
        if self.failure is None:
            self.failure = LogDirFailure(self.path, error)
            self._on_failure(self)

    def _remove(self, paths: list[str]) -> None:
        def work() -> None:
            for path in paths:
                if self.file_system.is_directory(path):
                    self.file_system.remove_tree(path)
                else:
                    self.file_system.remove(path)

        self.background.submit(work, _on_removed, self._on_background_error)

    def _on_background_error(self, error: BaseException) -> None:
        if isinstance(error, OSError) and error.errno not in FULL:
            self.fail(error)


def _on_removed(_nothing: None) -> None:
    """The files are gone, and nobody has waited for that."""
