"""`ImageWaiters`: callers that wait until this broker's image shows what they asked for."""

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from odradek.errors import BrokerError
from odradek.metadata.engine import BrokerView
from odradek.metadata.image import MetadataImage
from odradek.metadata.store import OnDone

T = TypeVar("T")


class _Waiter(NamedTuple):
    """`look` answers None until the image shows it."""

    look: Callable[[MetadataImage], object]
    on_done: Callable[[object], None]


class ImageWaiters:
    """Calls the waiters' `look` for every published image of `view`."""

    def __init__(self, view: BrokerView) -> None:
        self._view: Final = view
        self._waiters: list[_Waiter] = []

    def wait(
        self, look: Callable[[MetadataImage], T | BrokerError | None], on_done: OnDone[T]
    ) -> None:
        """Answers with the result of `look`, as soon as it is not None."""
        waiter = _Waiter(look, on_done)  # type: ignore[arg-type]  # one type in both
        if not self._is_answered(waiter):
            self._waiters.append(waiter)

    def is_waited_for(self, look: Callable[[MetadataImage], object]) -> bool:
        """Whether the waiter of `look` is still waiting."""
        return any(waiter.look is look for waiter in self._waiters)

    def look(self) -> None:
        """Answers the waiters whose `look` succeeds in the present image."""
        waiters, self._waiters = self._waiters, []
        self._waiters = [each for each in waiters if not self._is_answered(each)] + self._waiters

    def refuse_all(self, error: BrokerError) -> None:
        """Answers every waiter with an error."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.on_done(error)

    def _is_answered(self, waiter: _Waiter) -> bool:
        seen = waiter.look(self._view.image)
        if seen is not None:
            waiter.on_done(seen)
        return seen is not None
