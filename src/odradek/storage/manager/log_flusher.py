"""Syncs logs in the background, one flush of a log at a time; `recovery_point` follows.

Three things request a flush: `flush.messages` records wait, the oldest of them has waited
`flush.ms`, or a segment was closed. A flush requested while one of the same log is running comes
after it: the records of the running one were fixed before.
"""

from odradek.background import Background
from odradek.storage.log.local_log import NEVER_MS, LocalLog
from odradek.timer.timer import Timer
from odradek.timer.timer_task import TimerTask


class LogFlusher:
    """The flushes of a broker's logs."""

    def __init__(self, background: Background, timer: Timer) -> None:
        self._background = background
        self._timer = timer
        # The logs that are being synced, and whether each has to be again.
        self._under_way: dict[LocalLog, bool] = {}

    def flush(self, log: LocalLog) -> None:
        """Syncs a log; a failing disk takes its directory offline."""
        if log.is_closed:
            return
        if log in self._under_way:
            self._under_way[log] = True
            return
        directory = log.log_directory
        try:
            target, work = log.prepare_flush()
        except OSError as error:
            directory.storage_error(error, f"syncing {log.path}")
            return
        self._under_way[log] = False
        self._background.submit(
            work,
            lambda _: self._on_flushed(log, target),
            lambda error: self._on_error(log, error),
        )

    def is_flushing(self, log: LocalLog) -> bool:
        """Whether a flush of the log is under way, during which its files must keep their names."""
        return log in self._under_way

    def flush_later(self, log: LocalLog) -> None:
        """Syncs a log `flush.ms` from now."""
        self._timer.add(TimerTask(log.config.flush_ms, lambda: self.flush(log)))

    def _on_flushed(self, log: LocalLog, offset: int) -> None:
        is_due = self._under_way.pop(log)
        log.on_flushed(offset)
        if not log.needs_flush:
            return
        if is_due or log.unflushed_records >= log.config.flush_messages:
            self.flush(log)
        elif log.config.flush_ms < NEVER_MS:
            # Records appended meanwhile wait for the disk too.
            self.flush_later(log)

    def _on_error(self, log: LocalLog, error: BaseException) -> None:
        del self._under_way[log]
        # The log may be deleted; any other log that cannot be synced cannot be trusted.
        if isinstance(error, OSError) and not log.is_closed:
            log.log_directory.fail(error)
