"""Opens the logs of a broker, and says in its log how far a start is that takes long."""

import logging
from typing import Final

from odradek.clock import Clock
from odradek.server.errors import StartError
from odradek.storage.manager.log_manager import LogManager
from odradek.storage.manager.logs_loader import LoadingProgress

logger = logging.getLogger("odradek.server")

# A start that is shorter than this says nothing of how far it is.
_INTERVAL_MS: Final = 5_000


class LoadingReport:
    """A line every five seconds: logs opened, and bytes checked by recovery, with their rate.

    At the end one more, if anything had to be recovered.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_ms = clock.monotonic_ms()
        self._said_ms = self._began_ms
        self._progress: LoadingProgress | None = None

    def __call__(self, progress: LoadingProgress) -> None:
        """Takes in the state of the start."""
        self._progress = progress
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._said_ms < _INTERVAL_MS:
            return
        self._said_ms = now_ms
        megabytes = progress.checked_bytes / 1e6
        logger.info(
            "opening logs: %d of %d, %.0f MB checked, %.0f MB/s",
            progress.loaded_logs,
            progress.total_logs,
            megabytes,
            megabytes / (now_ms - self._began_ms) * 1000,
        )

    def finish(self) -> None:
        """All logs are open: says what recovery has taken and checked, if there was any."""
        progress = self._progress
        if progress is None or not progress.checked_bytes:
            return
        logger.info(
            "recovered after an unclean end: %d of %d logs opened in %.1f s, %.1f MB checked",
            progress.loaded_logs,
            progress.total_logs,
            (self._clock.monotonic_ms() - self._began_ms) / 1000,
            progress.checked_bytes / 1e6,
        )


def start_logs(logs: LogManager, clock: Clock, cluster_id: str, node_id: int) -> None:
    """Opens all logs, recovering them if need be, and says how far it is. Blocks.

    Raises:
        StartError: the directories do not belong to this broker, or not together.
    """
    report = LoadingReport(clock)
    try:
        logs.start(report, cluster_id=cluster_id, node_id=node_id)
    except ValueError as error:
        raise StartError(str(error)) from error
    report.finish()
