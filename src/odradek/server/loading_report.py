"""Says in the broker's log how far a start is that takes long."""

import logging
from typing import Final

from odradek.clock import Clock
from odradek.storage.manager.logs_loader import LoadingProgress

logger = logging.getLogger("odradek.server")

# A start that is shorter than this says nothing.
_INTERVAL_MS: Final = 5_000


class LoadingReport:
    """A line every five seconds: logs opened, and what recovery has checked, with its rate."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_ms = clock.monotonic_ms()
        self._said_ms = self._began_ms

    def __call__(self, progress: LoadingProgress) -> None:
        """Takes in the state of the start."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._said_ms < _INTERVAL_MS:
            return
        self._said_ms = now_ms
        megabytes = progress.checked_bytes / 1e6
        logger.info(
            "opening logs: %d of %d, %.0f MB checked, %.0f MB/s",
            *(progress.loaded_logs, progress.total_logs),
            *(megabytes, megabytes / (now_ms - self._began_ms) * 1000),
        )
