"""The checkpoints of all log directories: the contents of each file, and when it is written.

Recovery points, log start offsets and high watermarks are written at their intervals (see
`housekeeping`), and at once if an entry has become wrong: a log was cut, or deleted. All of it
happens in the background (`checkpoint_writer`), but for the last time.
"""

from collections.abc import Callable, Sequence

from odradek.storage import names
from odradek.storage.checkpoint_file import Offsets
from odradek.storage.log.log import Log
from odradek.storage.log_directory import LogDirectory
from odradek.storage.manager.checkpoint_writer import CheckpointWriter
from odradek.storage.manager.log_table import LogTable


class OffsetCheckpoints:
    """The checkpoints of `directories`, for the offsets of `logs`."""

    def __init__(self, directories: Sequence[LogDirectory], logs: LogTable) -> None:
        self._writers = {directory: CheckpointWriter(directory) for directory in directories}
        self._logs = logs

    def write_recovery_points(self) -> None:
        """Writes the recovery points that have changed."""
        for directory in self._writers:
            self._write(directory, names.RECOVERY_POINT_CHECKPOINT, _recovery_points)

    def write_log_start_offsets(self) -> None:
        """Writes the log start offsets that have changed."""
        for directory in self._writers:
            self.write_log_starts_of(directory)

    def write_high_watermarks(self) -> None:
        """Writes the high watermarks that have changed."""
        for directory in self._writers:
            self._write(directory, names.HIGH_WATERMARK_CHECKPOINT, _high_watermarks)

    def write_log_starts_of(self, directory: LogDirectory) -> None:
        """Writes the log start offsets of one directory, if any has changed."""
        self._write(directory, names.LOG_START_OFFSET_CHECKPOINT, _log_starts)

    def write_cleaned_offsets_of(self, directory: LogDirectory) -> None:
        """Writes the offsets up to which the logs of one directory are compacted."""
        self._write(directory, names.CLEANER_CHECKPOINT, _cleaned_offsets)

    def write_all_of(self, directory: LogDirectory) -> None:
        """Corrects the checkpoints of a directory, after a log was cut or deleted."""
        self._write(directory, names.RECOVERY_POINT_CHECKPOINT, _recovery_points)
        self.write_log_starts_of(directory)
        self._write(directory, names.HIGH_WATERMARK_CHECKPOINT, _high_watermarks)
        self.write_cleaned_offsets_of(directory)

    def when_idle(self, directory: LogDirectory, action: Callable[[bool], None]) -> None:
        """Calls `action` once nothing is left to write, with whether all of it was written."""
        self._writers[directory].when_idle(action)

    def _write(
        self, directory: LogDirectory, name: str, offsets_of: Callable[[Sequence[Log]], Offsets]
    ) -> None:
        self._writers[directory].write(name, lambda: offsets_of(self._logs.of(directory)))


class FinalOffsets:
    """The offsets of logs that are about to be closed, for the last checkpoints of a directory."""

    def __init__(self, logs: Sequence[Log]) -> None:
        self._logs = logs
        # Closing changes the other offsets, which are read after it.
        self._high_watermarks = _high_watermarks(logs)

    def write(self, directory: LogDirectory) -> None:
        """Writes them, once the logs are closed. Blocks.

        Raises:
            OSError: the disk refused.
        """
        directory.write_offsets(names.RECOVERY_POINT_CHECKPOINT, _recovery_points(self._logs))
        directory.write_offsets(names.LOG_START_OFFSET_CHECKPOINT, _log_starts(self._logs))
        directory.write_offsets(names.HIGH_WATERMARK_CHECKPOINT, self._high_watermarks)
        if directory.checkpoint(names.CLEANER_CHECKPOINT).is_unsure:
            directory.write_offsets(names.CLEANER_CHECKPOINT, _cleaned_offsets(self._logs))


def _high_watermarks(logs: Sequence[Log]) -> Offsets:
    return {log.topic_partition: log.high_watermark for log in logs}


def _recovery_points(logs: Sequence[Log]) -> Offsets:
    return {log.topic_partition: log.local.recovery_point for log in logs}


def _cleaned_offsets(logs: Sequence[Log]) -> Offsets:
    return {log.topic_partition: log.cleaned_offset for log in logs if log.cleaned_offset > 0}


def _log_starts(logs: Sequence[Log]) -> Offsets:
    """The log start offsets that differ from the base of their first segment."""
    return {
        log.topic_partition: log.log_start_offset
        for log in logs
        if log.log_start_offset > log.segments.first.base_offset
    }
