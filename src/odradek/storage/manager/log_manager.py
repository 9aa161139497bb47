"""`LogManager`: all logs of a broker, over all directories of `log.dirs`.

It finds and creates them, and delegates the rest: the start to `logs_loader` (recovery included),
the end to `closing`; meanwhile deletion to `log_deletion`, retention and the like to
`housekeeping`, syncing to `log_flusher`, checkpoints to `offset_checkpoints`, compaction to
`log_cleaner`. Blocking work runs in the background.

A new log is created in the directory with the fewest. A directory whose disk fails goes offline
alone: its logs answer KAFKA_STORAGE_ERROR, the others continue.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from odradek.background import Background, InlineWorkers, Workers, do_each
from odradek.clock import Clock
from odradek.config.broker import BrokerConfig
from odradek.config.topic import LogConfig
from odradek.errors import BrokerError, ErrorCode, text_of
from odradek.model import UNKNOWN_OFFSET, TopicPartition
from odradek.storage.cleaner.log_cleaner import LogCleaner
from odradek.storage.files import FileSystem, OsFileSystem
from odradek.storage.log.log import Log
from odradek.storage.log_directory import LogDirectory
from odradek.storage.manager.closing import close_directory, flush_logs
from odradek.storage.manager.future_logs import FutureLogs
from odradek.storage.manager.housekeeping import Housekeeping
from odradek.storage.manager.loading import create_log, write_topic_id
from odradek.storage.manager.log_deletion import LogDeletion
from odradek.storage.manager.log_flusher import LogFlusher
from odradek.storage.manager.log_table import LogTable
from odradek.storage.manager.logs_loader import (
    NO_TOPIC_ID,
    LogsLoader,
    OnProgress,
    UnreadableLog,
)
from odradek.storage.manager.offset_checkpoints import OffsetCheckpoints
from odradek.timer.timer import Timer

logger = logging.getLogger(__name__)

_BITS_OF_A_BYTE: Final = 8
# A client may name partitions that will never exist.
_MOST_PREFERENCES: Final = 10_000


class LogManager:
    """The logs of one broker. Call `start` before anything else, `shutdown` at the end."""

    def __init__(
        self,
        log_dirs: Sequence[str],
        broker_config: BrokerConfig,
        clock: Clock,
        timer: Timer,
        background: Background,
        *,
        new_uuid: Callable[[], UUID],
        on_log_dir_failure: Callable[[str], None],
        file_system: FileSystem | None = None,
        workers: Workers | None = None,
    ) -> None:
        self._config = broker_config
        self._workers: Workers = workers if workers is not None else InlineWorkers()
        self._new_uuid = new_uuid
        self._on_log_dir_failure = on_log_dir_failure
        self._file_system = file_system if file_system is not None else OsFileSystem()
        self.directories = [
            LogDirectory(path, self._file_system, clock, timer, background, self._on_failure)
            for path in log_dirs
        ]
        self._logs = LogTable()
        self._unreadable: dict[TopicPartition, UnreadableLog] = {}
        self.is_missing_logs = False
        """Whether a directory was offline at the start, so that nobody knows its logs."""
        self.flusher = LogFlusher(background, timer)
        self.checkpoints = OffsetCheckpoints(self.directories, self._logs)
        self.cleaner = LogCleaner(
            self._logs.working,
            broker_config,
            clock,
            timer,
            background,
            lambda log: self.checkpoints.write_cleaned_offsets_of(log.log_directory),
            lambda each: each in self._logs.futures,
        )
        self.housekeeping = Housekeeping(
            broker_config, clock, timer, self._logs, self.flusher, self.checkpoints
        )
        self._deletion = LogDeletion(self._file_system, self.checkpoints, new_uuid)
        self.futures = FutureLogs(
            self._file_system, self._logs, self._deletion, self.housekeeping, new_uuid
        )
        # The directories in which logs that do not exist yet are to be created.
        self._preferred: dict[TopicPartition, LogDirectory] = {}
        self._is_shut_down = False

    # The start.

    def start(
        self,
        on_progress: OnProgress | None = None,
        *,
        cluster_id: str | None = None,
        node_id: int | None = None,
    ) -> None:
        """Opens the directories and all logs in them, and begins the housekeeping. Blocks.

        With `cluster_id` given, `meta.properties` is checked, or written where it is missing.
        `on_progress` is called on the caller's thread, after each log and, in recovery, each
        segment.

        Raises:
            BlockingIOError: another broker uses one of the directories.
            ValueError: a directory belongs to another broker, or two hold the same log.
            LogDirFailure: no directory can be used.
        """
        for directory in self.directories:
            self._open_directory(directory)
        if cluster_id is not None:
            self._identify(cluster_id, self._config.broker_id if node_id is None else node_id)
        self._check_any_online()
        if not self.offline_dirs:
            self.futures.finish_swaps(self.directories)
        loader = LogsLoader(self._config, self._file_system, self._workers, self._adopt)
        found = loader.load(self._online(), on_progress)
        self._unreadable = loader.unreadable
        self._check_any_online()
        self.is_missing_logs = bool(self.offline_dirs)
        self.futures.load(self._config.log_defaults)
        for each in found:
            self._deletion.finish(each.directory, each.deleted, is_any_offline=self.is_missing_logs)
        self.housekeeping.start(self.cleaner)

    def _identify(self, cluster_id: str, node_id: int) -> None:
        """Checks all directories before it writes to the first: a refused broker leaves its id in
        none of them."""
        for directory in self._online():
            _use(directory, partial(directory.check_identity, cluster_id, node_id))
        for directory in self._online():
            _use(directory, partial(directory.identify, cluster_id, node_id, self._new_uuid()))

    def _open_directory(self, directory: LogDirectory) -> None:
        try:
            directory.open()
        except BlockingIOError as error:
            raise BlockingIOError(
                error.errno, f"{directory.path} is in use by another broker"
            ) from error
        except OSError as error:
            directory.fail(error)

    def _adopt(self, log: Log) -> None:
        log.local.listener = self.housekeeping
        self._logs.add(log)

    # Finding, making, deleting.

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """The log of a partition, None when there is none here."""
        return self._logs.get(topic_partition)

    def logs(self) -> list[Log]:
        """All logs, those of failed directories included."""
        return self._logs.all()

    @property
    def topic_ids(self) -> dict[str, UUID]:
        """The ids of topics, by the majority of their logs here, also of those that could not be
        opened."""
        logs = [(log.topic_partition.topic, log.topic_id) for log in self._logs.all()]
        unreadable = [
            (log.topic_partition.topic, log.topic_id) for log in self._unreadable.values()
        ]
        counts = Counter(each for each in logs + unreadable if each[1] != NO_TOPIC_ID)
        return dict(each for each, _ in reversed(counts.most_common()))

    def get_or_create(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        *,
        is_new: bool = True,
    ) -> Log:
        """The log of a partition, made when there is none, with these settings.

        A log of another topic of the same name is renamed first: its `partition.metadata` may be
        wrong, so it must not be deleted. Without `is_new` the partition had a log before: none is
        made while that may be in an offline directory.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, the directory has failed or is full, or the log
                was there at the start but could not be opened.
        """
        log = self._logs.get(topic_partition)
        if log is not None and not _is_same_topic(log.topic_id, topic_id):
            self._set_aside(log, f"of a topic with the id {log.topic_id}, not {topic_id}")
            log = None
        if log is None:
            self._check_absent(topic_partition, is_new=is_new)
            return self._create(topic_partition, topic_id, config)
        log.log_directory.check()
        log.update_config(config)
        if log.topic_id != topic_id:
            log.topic_id = topic_id
            self._write_topic_id(log)
            log.log_directory.check()
        return log

    def delete(self, topic_partition: TopicPartition) -> None:
        """Deletes a log: its directory is renamed now and removed after a delay.

        Does nothing if there is no such log.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR; the log stays, and is to be deleted again.
        """
        # First: without the current log it would pass for one whose swap was interrupted.
        self.futures.delete(topic_partition)
        log = self._logs.get(topic_partition)
        if log is not None:
            self._deletion.delete(log, self._logs.remove)
            return
        unreadable = self._unreadable.get(topic_partition)
        if unreadable is not None and unreadable.directory.failure is None:
            delay_ms = self._config.log_defaults.file_delete_delay_ms
            self._deletion.delete_directory(
                unreadable.directory, unreadable.path, topic_partition, delay_ms
            )
        self._unreadable.pop(topic_partition, None)

    def set_aside(self, topic_partition: TopicPartition) -> None:
        """Keeps a log's files under another name: its replica is on other brokers. A log in a
        failed directory stays as it is.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR; the log stays what it was.
        """
        log = self._logs.get(topic_partition)
        if log is not None and log.log_directory.failure is None:
            self._set_aside(log, "of no replica of this broker")

    def _set_aside(self, log: Log, reason: str) -> None:
        self.futures.delete(log.topic_partition)
        self._deletion.set_aside(log, reason, self._logs.remove)

    def prefer(self, topic_partition: TopicPartition, directory: LogDirectory) -> None:
        """Chooses the directory for the partition's log, if it is created later."""
        self._preferred.pop(topic_partition, None)
        self._preferred[topic_partition] = directory
        if len(self._preferred) > _MOST_PREFERENCES:
            del self._preferred[next(iter(self._preferred))]

    def replace_current_with_future(self, topic_partition: TopicPartition) -> Log:
        """Replaces the current log by a future log that has become equal.

        The future log takes over the current log's producer state, which knows more than the
        records, unless damaged ones have kept it from following a truncation.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR; the current log stays where it is, and has a future.
        """
        current, future = self._logs.get(topic_partition), self.futures.get(topic_partition)
        assert current is not None, f"{topic_partition} is not here"
        assert future is not None, f"{topic_partition} does not move"
        assert current.log_end_offset == future.log_end_offset, (
            f"{topic_partition} ends at {current.log_end_offset}, "
            f"its future log at {future.log_end_offset}"
        )
        is_known = current.producers.map_end_offset == current.log_end_offset
        producers = (current if is_known else future).producers
        log = Log(future.local, current.topic_id, future.leader_epochs, producers)
        log.update_config(current.config)
        log.cleaned_offset = current.cleaned_offset
        log.update_high_watermark(current.high_watermark)
        self._deletion.swap(current, log)
        # There is no snapshot of them where they are now.
        log.producers.snapshot_offset = UNKNOWN_OFFSET
        self.futures.forget(future)
        self._adopt(log)
        self._deletion.delete_swapped(current, log)
        self.checkpoints.write_all_of(log.log_directory)
        return log

    def finish_deletions_of(self, topic_ids: Collection[UUID]) -> None:
        """Deletes the logs of topics whose deletion a crash has interrupted. Blocks.

        Afterwards none of them comes back, unless it lies in a directory that is offline.
        """
        for log in self._logs.working():
            if log.topic_id in topic_ids:
                self._delete_or_warn(log.topic_partition)
        for topic_partition, unreadable in list(self._unreadable.items()):
            if unreadable.topic_id in topic_ids:
                self._delete_or_warn(topic_partition)
        for directory in self._online() if topic_ids else ():
            directory.sync_names()

    def _delete_or_warn(self, topic_partition: TopicPartition) -> None:
        try:
            self.delete(topic_partition)
        except BrokerError as error:
            logger.warning("deleting %s: %s", topic_partition, error)

    @property
    def offline_dirs(self) -> list[str]:
        """The directories whose disk has failed."""
        return [d.path for d in self.directories if d.failure is not None]

    @property
    def has_working_directory(self) -> bool:
        """Whether there is a directory in which a log could be made."""
        return bool(self._online())

    def _check_absent(self, topic_partition: TopicPartition, *, is_new: bool) -> None:
        """Raises if the log was there: an empty one in the place of one that cannot be read now
        would lose data."""
        unreadable = self._unreadable.get(topic_partition)
        if unreadable is not None:
            raise BrokerError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{unreadable.path} could not be opened: {unreadable.error}",
            )
        if not is_new and self.offline_dirs:
            raise BrokerError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{topic_partition} may lie in {', '.join(self.offline_dirs)}, which is offline",
            )

    def _create(self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig) -> Log:
        directory = self._preferred.pop(topic_partition, None)
        if directory is None or directory.failure is not None:
            directory = self._emptiest()
        try:
            log = create_log(directory, topic_partition, topic_id, config)
        except OSError as error:
            raise directory.storage_error(error, f"creating {topic_partition}") from error
        self._adopt(log)
        return log

    def _write_topic_id(self, log: Log) -> None:
        try:
            write_topic_id(log.log_directory, log.local.path, log.topic_id)
        except OSError as error:
            # The metadata store knows the id; the file is for readers without the store.
            log.log_directory.storage_error(error, f"writing in {log.local.path}")

    def _emptiest(self) -> LogDirectory:
        online = self._online()
        if not online:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "every log directory is offline")
        return min(online, key=self._logs.count_of)

    # Failure and the end.

    def shutdown(self, broker_epoch: int = -1) -> None:
        """Closes all logs and marks the directories as closed in order. Blocks."""
        if self._is_shut_down:
            return
        self._is_shut_down = True
        self.cleaner.stop()
        self.housekeeping.stop()
        threads = self._config["num.recovery.threads.per.data.dir"]
        rows = [self._logs.of(directory) for directory in self._online()]
        flush_logs(rows, self._file_system, self._workers, threads)
        do_each(self.directories, lambda directory: self._close(directory, broker_epoch))

    def _close(self, directory: LogDirectory, broker_epoch: int) -> None:
        try:
            if directory.failure is None:
                close_directory(directory, self._logs.of(directory), broker_epoch)
        finally:
            directory.release_lock()

    def _on_failure(self, directory: LogDirectory) -> None:
        cause = directory.failure.cause if directory.failure is not None else None
        reason = "it failed" if cause is None else text_of(cause)
        logger.error("%s is offline: %s", directory.path, reason)
        try:
            self.futures.abandon_in(directory)
        finally:
            self._on_log_dir_failure(directory.path)

    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.failure is None]

    def _check_any_online(self) -> None:
        if not self._online():
            failure = self.directories[0].failure
            assert failure is not None, "no directory is online and the first has not failed"
            raise failure


def _use(directory: LogDirectory, action: Callable[[], None]) -> None:
    try:
        action()
    except OSError as error:
        directory.fail(error)


def _is_same_topic(found: UUID, topic_id: UUID) -> bool:
    """Whether a log's id is the topic's, unknown, or the topic's with a damaged byte.

    Ids are drawn by chance: those of two topics differ in many more bits.
    """
    return found == NO_TOPIC_ID or (found.int ^ topic_id.int).bit_count() <= _BITS_OF_A_BYTE
