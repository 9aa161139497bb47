"""Runs `odradek.Broker` and `odradek.Cluster` on a separate thread or the caller's loop.

`with` and `start` make the thread, `async with` and `start_async` need none.
"""

from types import TracebackType
from typing import Final, Self

from odradek.event_loop import LoopThread
from odradek.server.in_process.calls.changes import STOPPED
from odradek.server.in_process.calls.time_calls import TimeCalls

NOT_RUNNING: Final = "the broker is not running: it does inside its `with` block, or after start()"
RUNS_ALREADY: Final = "it runs already; stop it before it is started again"


class OwnThread(TimeCalls):
    """A base class whose subclass says how it starts and stops on a running loop."""

    def start(self) -> Self:
        """Starts on a separate thread; returns when clients can be served.

        Raises:
            StartError: it cannot be started; nothing runs then.
            RuntimeError: it runs already.
        """
        if self._thread is not None:
            raise RuntimeError(RUNS_ALREADY)
        thread = LoopThread("odradek-broker", STOPPED)
        try:
            thread.run(self.start_async())
        except BaseException:
            thread.close()
            raise
        self._own_thread = thread
        self._follow_clock()
        return self

    def stop(self) -> None:
        """Stops, and its thread. `start` has a broker serve again, on the same ports and with the
        same records. Stopping what does not run does nothing."""
        thread, self._own_thread = self._thread, None
        if thread is None:
            return
        self._unfollow_clock()
        try:
            thread.run(self.stop_async())
        finally:
            thread.close()

    async def start_async(self) -> Self:
        """`start` on the running loop."""
        raise NotImplementedError

    async def stop_async(self) -> None:
        """`stop` on the running loop."""
        raise NotImplementedError

    def _forget(self) -> None:
        """The block is over: removes what a stop leaves for another start."""

    def _is_left_by_child(self, error: BaseException | None) -> bool:
        # A forked child that ends, for example by sys.exit, can only say this.
        if error is None:
            self.check_process()
        return self._is_forked

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_left_by_child(error):
            return
        self._on_left(error)
        try:
            self.stop()
        finally:
            self._forget()

    async def __aenter__(self) -> Self:
        return await self.start_async()

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_left_by_child(error):
            return
        self._on_left(error)
        try:
            await self.stop_async()
        finally:
            self._forget()
