"""ExpiredOperationReaper: what moves a purgatory on where no event loop does."""

from __future__ import annotations

from odradek.purgatory.purgatory import DelayedOperationPurgatory

REAPER_WAIT_MS = 200


class ExpiredOperationReaper:
    """One turn at a time: expires what is due, then purges if that pays.

    On an event loop `AsyncioDriver` has the first part and watching the second, so no reaper
    is needed there. Elsewhere a thread that owns the timer calls `do_work` in a loop.
    """

    def __init__(self, purgatory: DelayedOperationPurgatory) -> None:
        self._purgatory = purgatory

    def do_work(self) -> bool:
        """Waits at most 200 ms for something to expire; True when a bucket was due."""
        any_due = self._purgatory.timer.advance_clock(REAPER_WAIT_MS)
        self._purgatory.maybe_purge()
        return any_due
