"""`CallingBack`: a blocking reader, which calls its user's functions on the thread that reads."""

import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

from odradek.client.errors import KafkaError
from odradek.client.sync.shell import Client, Shell

_LOGGER: Final = logging.getLogger(__name__)
_CALLBACK_FAILED: Final = "the callback of a commit failed"
Found = TypeVar("Found")


class _Reader(Client, Protocol):
    def wakeup(self) -> None: ...


R = TypeVar("R", bound=_Reader)


class CallingBack(Shell[R]):
    """Its calls raise what a callback raises in them, unless they have read something, which would
    be lost: then a later one does. On closing it is logged."""

    def __init__(self, make: Callable[[], R]) -> None:
        """See `Shell`."""
        self._depth = 0  # of the calls that are under way, one inside of a callback of the other
        self._is_ending = False
        self._raised: Exception | None = None
        super().__init__(make)

    def wakeup(self) -> None:
        """Ends a call that waits, or the next one, with `WokenUp`; for other threads and handlers
        of signals."""

        async def woken() -> None:
            self._client.wakeup()

        # Not as the other calls are made: what there is to do is the reader's.
        Shell._wait(self, woken())

    def _close(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._is_ending = True
        if self._raised is not None:
            _LOGGER.warning(_CALLBACK_FAILED, exc_info=self._raised)
        super()._close(work)

    def _unless_interrupted(
        self,
        read: Callable[[], Coroutine[Any, Any, Found]],
        wait: Callable[[Coroutine[Any, Any, Found]], Found],
    ) -> Found:
        """Waits for a read. What it has brought when this thread is interrupted comes again."""
        unclaimed: list[Found] = []

        async def reading() -> Found:
            unclaimed.append(await read())
            return unclaimed[0]

        async def put_back() -> None:
            for found in unclaimed:
                self._put_back(found)

        try:
            return wait(reading())
        except BaseException:
            # Behind whatever ends the read, and before any other call.
            with suppress(KafkaError):
                self._submit(put_back())
            raise

    def _put_back(self, found: Any) -> None:
        """Gives the client what a read has brought to nobody."""
        raise NotImplementedError

    def _do(self, task: Callable[[], None]) -> None:
        try:
            task()
        except Exception as error:
            if not self._is_ending and self._raised is None:
                self._raised = error
            else:
                _LOGGER.warning(_CALLBACK_FAILED, exc_info=True)

    def _tell_failure(self) -> None:
        """Raises what a callback raised; not inside of another's call, which is not to blame."""
        if self._raised is not None and not self._depth and not self._is_ending:
            error, self._raised = self._raised, None
            raise error
