"""Periodic upkeep of all logs: retention, checkpoints, compaction, forgetting.

Each piece is a `PeriodicTask` on the broker's timer, so that a clock that is moved by hand drives
it, and its interval is asked for each time. A task that looks at every log takes a few of them in
each turn of the loop. As a `LogListener` it also does what a log asks for.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from odradek.background import SlicedRound
from odradek.clock import Clock
from odradek.config.broker import BrokerConfig
from odradek.errors import BrokerError
from odradek.storage.cleaner.log_cleaner import LogCleaner
from odradek.storage.log.local_log import LocalLog, LogListener
from odradek.storage.log.log import SLICE_LOGS, Log
from odradek.storage.manager.log_flusher import LogFlusher
from odradek.storage.manager.log_table import LogTable
from odradek.storage.manager.offset_checkpoints import OffsetCheckpoints
from odradek.timer.periodic_task import PeriodicTask
from odradek.timer.timer import Timer

# Kafka has an undocumented setting for it.
_EXPIRATION_CHECK_MS: Final = 600_000


class Housekeeping(LogListener):
    """The housekeeping of `logs`. `stop` ends it."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        timer: Timer,
        logs: LogTable,
        flusher: LogFlusher,
        checkpoints: OffsetCheckpoints,
    ) -> None:
        self._config = config
        self._clock = clock
        self._timer = timer
        self._logs = logs
        self._flusher = flusher
        self._checkpoints = checkpoints
        self._tasks: list[PeriodicTask] = []
        self._retention = self._round(self._delete_old_segments_of)
        self._expiration = self._round(self._remove_expired_producers_of)

    def _round(self, work: Callable[[Log], None]) -> SlicedRound[Log]:
        def look(log: Log) -> None:
            if log.local.is_usable:
                work(log)

        return SlicedRound(self._logs.working, look, SLICE_LOGS, self._timer.call_threadsafe)

    def start(self, cleaner: LogCleaner) -> None:
        """Begins the rounds."""
        checkpoints = self._checkpoints
        self._every("log.retention.check.interval.ms", self.delete_old_segments)
        self._every("log.flush.offset.checkpoint.interval.ms", checkpoints.write_recovery_points)
        self._every(
            "log.flush.start.offset.checkpoint.interval.ms", checkpoints.write_log_start_offsets
        )
        self._every(
            "replica.high.watermark.checkpoint.interval.ms", checkpoints.write_high_watermarks
        )
        if self._config["log.cleaner.enable"]:
            self._every("log.cleaner.backoff.ms", cleaner.look)
        self._repeat(lambda: _EXPIRATION_CHECK_MS, self.remove_expired_producers)

    def stop(self) -> None:
        """Ends the rounds."""
        for task in self._tasks:
            task.cancel()

    def _every(self, setting: str, action: Callable[[], None]) -> None:
        self._repeat(lambda: self._config[setting], action)

    def _repeat(self, interval_ms: Callable[[], int], action: Callable[[], None]) -> None:
        self._tasks.append(PeriodicTask(self._timer, interval_ms, action))

    def delete_old_segments(self) -> None:
        """Applies retention to every log."""
        self._retention.begin()

    def _delete_old_segments_of(self, log: Log) -> None:
        log.try_to_finish_truncation()
        with suppress(BrokerError):  # the directory of the log has told
            log.delete_old_segments(self._clock.wall_ms())

    def remove_expired_producers(self) -> None:
        """Forgets the producers that have been silent for `producer.id.expiration.ms`."""
        self._expiration.begin()

    def _remove_expired_producers_of(self, log: Log) -> None:
        expiration_ms = self._config["producer.id.expiration.ms"]
        log.producers.remove_expired(self._clock.wall_ms(), expiration_ms)

    def on_unflushed(self, log: LocalLog) -> None:
        """See `LogListener`."""
        self._flusher.flush_later(log)

    def on_flush_due(self, log: LocalLog) -> None:
        """See `LogListener`."""
        self._flusher.flush(log)

    def on_rolled(self, log: LocalLog) -> None:
        """See `LogListener`."""
        self._flusher.flush(log)

    def on_log_start_offset(self, log: LocalLog) -> None:
        """See `LogListener`."""
        self._checkpoints.write_log_starts_of(log.log_directory)

    def on_truncated(self, log: LocalLog) -> None:
        """See `LogListener`."""
        self._checkpoints.write_all_of(log.log_directory)
