"""ExpiredOperationReaper: the thread that drives a purgatory without an event loop."""

from __future__ import annotations

import logging
import threading
from typing import Final

from odradek.purgatory.purgatory import DelayedOperationPurgatory
from odradek.timer.system_timer import is_interrupt

REAPER_WAIT_MS: Final = 200

_log = logging.getLogger(__name__)


class ExpiredOperationReaper:
    """Expires due operations, and purges if that pays, turn by turn, on its own thread.

    From `start` to `stop` (also a context manager; once only) that thread is the owner of the
    purgatory and of its timer. All other threads hand over: `Timer.call_threadsafe`,
    `DelayedOperationPurgatory.check_and_complete_threadsafe`. The thread is a daemon: it does not
    keep a program alive. It ends by itself when the timer is closed, and when a callback raises
    SystemExit or KeyboardInterrupt, which it logs.

    A broker needs no reaper: its loop has `AsyncioDriver`, which sleeps until something is due,
    and its purgatories purge when operations come and go.
    """

    def __init__(self, purgatory: DelayedOperationPurgatory) -> None:
        self._purgatory = purgatory
        self._stopping = False
        self._thread = threading.Thread(
            target=self._work, name=f"reaper-{purgatory.name}", daemon=True
        )

    def do_work(self) -> bool:
        """One turn: waits at most 200 ms for something to expire; True when a bucket was due."""
        any_due = self._purgatory.timer.advance_clock(REAPER_WAIT_MS)
        self._purgatory.maybe_purge()
        return any_due

    def start(self) -> None:
        """Hands purgatory and timer over to the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread and waits for it; both belong to the caller again.

        Waiting operations keep waiting. To be called by another thread than the reaper's.
        """
        self._stopping = True
        self._purgatory.timer.call_threadsafe(_wake)
        self._thread.join()

    def _work(self) -> None:
        while not self._stopping and not self._purgatory.timer.closed:
            try:
                self.do_work()
            except BaseException as error:
                if is_interrupt(error):
                    # Of SystemExit Python prints nothing in a thread.
                    _log.exception(
                        "the reaper %s ends, nothing expires any more", self._purgatory.name
                    )
                    raise
                # From `on_error`, for example; the next turn does the rest.
                _log.exception("a turn of the reaper %s failed", self._purgatory.name)

    def __enter__(self) -> ExpiredOperationReaper:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()


def _wake() -> None:
    """Does nothing: the call itself wakes the thread."""
