"""Carries out changes one after another, each planned on what its predecessor left.

A change that is planned on the published image while another is being committed would undo it, or
not see it: two settings appended to one list, two topics whose names collide. So the next change
begins when the one before it has been published.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

Release: TypeAlias = Callable[[], None]


class ChangeQueue:
    """Begins changes in the order that they came in; each says by `release` when it is done."""

    def __init__(self) -> None:
        self._waiting: Final[deque[Callable[[Release], None]]] = deque()
        self._busy = False
        self._draining = False

    def submit(self, begin: Callable[[Release], None]) -> None:
        """Calls `begin` now, or when its turn comes. It calls its argument when it is done, and
        the next one may begin; one that raises has had its turn."""
        self._waiting.append(begin)
        self._drain()

    def _drain(self) -> None:
        """A change that is released at once does not nest the next one in itself."""
        if self._draining:
            return
        self._draining = True
        try:
            while self._waiting and not self._busy:
                self._begin(self._waiting.popleft())
        finally:
            self._draining = False

    def _begin(self, begin: Callable[[Release], None]) -> None:
        self._busy = True
        try:
            begin(self._release)
        except BaseException:
            self._busy = False
            raise

    def _release(self) -> None:
        self._busy = False
        self._drain()
