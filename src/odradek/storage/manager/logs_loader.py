"""Opens all logs of a broker at its start, several at a time.

Each log is opened by itself, on any thread of the `Workers`; its result, and the progress of
recovery, are handed over to the waiting thread, which alone changes the manager and the
directories. Threads help while the disk works and checksums are computed, both of which release the
interpreter.

Meanwhile the pool of descriptors closes nothing, since it cannot know what another thread is about
to read; each load closes what it has opened instead.

A log that cannot be read, even by recovery, is left as it is and reported; the others are opened. A
disk that fails takes its directory offline.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from odradek.background import Work, Workers
from odradek.config.broker import BrokerConfig
from odradek.model import TopicPartition
from odradek.protocol.uuids import uuid_text
from odradek.records.errors import CorruptRecords
from odradek.storage import names
from odradek.storage.files import FileSystem, shared
from odradek.storage.log.log import Log
from odradek.storage.log_directory import LogDirectory
from odradek.storage.manager.loading import LogLoadParameters, open_log, read_topic_id

logger = logging.getLogger(__name__)

NO_TOPIC_ID: Final = UUID(int=0)


class LoadingProgress:
    """The progress of the start: opened logs, their total, and bytes checked by recovery."""

    def __init__(self, total_logs: int) -> None:
        self.total_logs = total_logs
        self.loaded_logs = 0
        self.checked_bytes = 0


OnProgress = Callable[[LoadingProgress], None]


class FoundLogs(NamedTuple):
    """The contents of a log directory.

    `deleted` are the paths of logs that wait for their removal. After a crash the checkpoints may
    still have entries of a log that was deleted just before: for the partitions in `remade`, which
    have such a log, they prove nothing.
    """

    directory: LogDirectory
    partitions: Sequence[TopicPartition]
    remade: frozenset[TopicPartition]
    deleted: Sequence[str]


def find_logs(directory: LogDirectory) -> FoundLogs:
    """Lists the logs of an open directory.

    Raises:
        OSError: the disk failed.
    """
    partitions = []
    deleted = []
    stale = []
    for name in directory.file_system.list_directory(directory.path):
        path = directory.file_path(name)
        topic_partition = names.parse_partition_directory(name)
        if names.is_deleted_directory(name):
            deleted.append(path)
            # A clean shutdown has rewritten the checkpoints.
            if not directory.was_clean and directory.is_in_checkpoints(path):
                stale.append(name)
        elif topic_partition is not None and directory.file_system.is_directory(path):
            partitions.append(topic_partition)
    remade = frozenset(tp for tp in partitions if _has_deleted(tp, stale)) if stale else frozenset()
    return FoundLogs(directory, partitions, remade, deleted)


class UnreadableLog(NamedTuple):
    """A log that could not be opened."""

    topic_partition: TopicPartition
    directory: LogDirectory
    error: OSError | CorruptRecords

    @property
    def path(self) -> str:
        """The directory of its files."""
        return self.directory.file_path(names.partition_directory(self.topic_partition))

    @property
    def topic_id(self) -> UUID:
        """The id of its topic; NO_TOPIC_ID if that cannot be read either."""
        try:
            return read_topic_id(self.directory, self.path) or NO_TOPIC_ID
        except OSError:
            return NO_TOPIC_ID


# The messages of a load: numbers of bytes checked, and finally the log.
_Result = int | Log | UnreadableLog


class LogsLoader:
    """Opens what lies in directories; `adopt` gets each log, on the caller's thread.

    Afterwards `unreadable` has those that were left as they are.
    """

    def __init__(
        self,
        config: BrokerConfig,
        file_system: FileSystem,
        workers: Workers,
        adopt: Callable[[Log], None],
    ) -> None:
        self._config = config
        self._file_system = file_system
        self._workers = workers
        self._adopt = adopt
        self.unreadable: dict[TopicPartition, UnreadableLog] = {}

    def load(
        self, directories: Sequence[LogDirectory], on_progress: OnProgress | None
    ) -> list[FoundLogs]:
        """Blocks until every log is opened that can be; returns what was found.

        Raises:
            ValueError: two directories hold the same log.
        """
        found = self._find(directories)
        _check_single(found)
        progress = LoadingProgress(sum(len(each.partitions) for each in found))
        rows = [self._row(each) for each in found]
        threads = self._config["num.recovery.threads.per.data.dir"]
        with shared(self._file_system.pool):
            for result in self._workers.run(rows, threads):
                self._take(result, progress)
                if on_progress is not None:
                    on_progress(progress)
        return found

    def _find(self, directories: Sequence[LogDirectory]) -> list[FoundLogs]:
        found = []
        for directory in directories:
            try:
                found.append(find_logs(directory))
            except OSError as error:
                directory.fail(error)
        return found

    def _row(self, found: FoundLogs) -> list[Work[_Result]]:
        try:
            return self._work_on(found)
        except OSError as error:
            found.directory.fail(error)
            return []

    def _work_on(self, found: FoundLogs) -> list[Work[_Result]]:
        directory = found.directory
        recovery_points = directory.read_offsets(names.RECOVERY_POINT_CHECKPOINT)
        log_starts = directory.read_offsets(names.LOG_START_OFFSET_CHECKPOINT)
        high_watermarks = directory.read_offsets(names.HIGH_WATERMARK_CHECKPOINT)
        cleaned = directory.read_offsets(names.CLEANER_CHECKPOINT)
        row: list[Work[_Result]] = []
        for topic_partition in found.remade:
            for offsets in (recovery_points, log_starts, high_watermarks, cleaned):
                offsets.pop(topic_partition, None)
        for topic_partition in found.partitions:
            parameters = LogLoadParameters(
                log_start_offset=log_starts.get(topic_partition, 0),
                recovery_point=recovery_points.get(topic_partition, 0),
                high_watermark=high_watermarks.get(topic_partition, 0),
                cleaned_offset=cleaned.get(topic_partition, 0),
                was_clean=directory.was_clean,
                on_finding=logger.warning,
            )
            row.append(partial(self._open, directory, topic_partition, parameters))
        return row

    def _open(
        self,
        directory: LogDirectory,
        topic_partition: TopicPartition,
        parameters: LogLoadParameters,
        hand_over: Callable[[_Result], None],
    ) -> None:
        """Opens one log; runs on any thread."""
        if directory.failure is not None:
            return
        parameters.on_bytes = hand_over
        path = directory.file_path(names.partition_directory(topic_partition))
        try:
            log = self._open_or_recover(directory, path, topic_partition, parameters)
        except (OSError, CorruptRecords) as error:
            hand_over(UnreadableLog(topic_partition, directory, error))
            return
        log.local.release_files()
        hand_over(log)

    def _open_or_recover(
        self,
        directory: LogDirectory,
        path: str,
        topic_partition: TopicPartition,
        parameters: LogLoadParameters,
    ) -> Log:
        topic_id = read_topic_id(directory, path) or NO_TOPIC_ID
        config = self._config.log_defaults
        try:
            return open_log(directory, topic_partition, topic_id, config, parameters)
        except CorruptRecords as error:
            # Closed cleanly and damaged since: recovered like a log after a crash.
            logger.warning("%s: %s; recovering", path, error)
            parameters.was_clean = False
            parameters.recovery_point = 0
            log = open_log(directory, topic_partition, topic_id, config, parameters)
            # The checkpoint says more.
            log.local.is_overstated = True
            return log

    def _take(self, result: _Result, progress: LoadingProgress) -> None:
        if isinstance(result, int):
            progress.checked_bytes += result
        elif isinstance(result, Log):
            progress.loaded_logs += 1
            self._adopt(result)
        elif isinstance(result.error, OSError):
            result.directory.fail(result.error)
        else:
            logger.error("%s cannot be opened and is left as it is: %s", result.path, result.error)
            self.unreadable[result.topic_partition] = result


def _has_deleted(topic_partition: TopicPartition, deleted: Sequence[str]) -> bool:
    return any(names.is_deleted_directory_of(name, topic_partition) for name in deleted)


def _check_single(found: Sequence[FoundLogs]) -> None:
    homes: dict[TopicPartition, LogDirectory] = {}
    for each in found:
        for topic_partition in each.partitions:
            home = homes.setdefault(topic_partition, each.directory)
            if home is not each.directory:
                raise ValueError(_which_to_move(topic_partition, home, each.directory))


def _which_to_move(
    topic_partition: TopicPartition, first: LogDirectory, second: LogDirectory
) -> str:
    """The error about two logs of a partition: both may have unique records, so a person has to
    decide."""
    found = [_find_topic_id(each, topic_partition) for each in (first, second)]
    advice = "the one of the directory that has failed recently"
    if found[0] != found[1]:
        advice = "the one whose topic id is not the topic's (kafka-topics --describe tells it)"
    return (
        f"{topic_partition} lies in both {first.path} (topic id {found[0]}) and {second.path} "
        f"(topic id {found[1]}): it was made in one of them while the other was offline. Move one "
        f"of the two folders away: {advice}"
    )


def _find_topic_id(directory: LogDirectory, topic_partition: TopicPartition) -> str:
    path = directory.file_path(names.partition_directory(topic_partition))
    try:
        topic_id = read_topic_id(directory, path)
    except OSError as error:
        return f"unreadable: {error}"
    return "unknown" if topic_id is None else uuid_text(topic_id)
