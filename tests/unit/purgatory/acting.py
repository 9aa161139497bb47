"""A purgatory over a timer that the test moves, and operations whose callbacks it writes."""

from collections.abc import Callable

from odradek.purgatory import DelayedOperation, DelayedOperationPurgatory
from odradek.timer import MockTimer

DEEP = 3000
"""More than the interpreter's stack holds."""


def nothing() -> None:
    """Does what a callback does if a test says nothing else."""


class Acting(DelayedOperation):
    """An operation whose three callbacks a test writes."""

    def __init__(self, delay_ms: int = 1000, ready: bool = False) -> None:
        super().__init__(delay_ms)
        self.ready = ready
        self.events: list[str] = []
        self.when_tried: Callable[[], object] = nothing
        self.when_completed: Callable[[], object] = nothing
        self.when_expired: Callable[[], object] = nothing

    def try_complete(self) -> bool:
        self.events.append("look")
        self.when_tried()
        return self.ready and self.force_complete()

    def on_complete(self) -> None:
        self.events.append("complete")
        self.when_completed()

    def on_expiration(self) -> None:
        self.events.append("expired")
        self.when_expired()

    @property
    def looks(self) -> int:
        return self.events.count("look")

    @property
    def completions(self) -> int:
        return self.events.count("complete")


class Hall:
    """A purgatory over a timer that the test moves, and what the timer was told of."""

    def __init__(self) -> None:
        self.told: list[BaseException] = []
        self.timer = MockTimer(on_error=lambda task, error: self.told.append(error))
        self.purgatory = DelayedOperationPurgatory("test", self.timer)

    def watch(self, *keys: object, delay_ms: int = 1000) -> Acting:
        operation = Acting(delay_ms)
        assert not self.purgatory.try_complete_else_watch(operation, keys)
        operation.events.clear()
        return operation

    def is_empty(self) -> bool:
        self.purgatory.purge()
        return (self.purgatory.watched, self.purgatory.delayed, self.timer.size) == (0, 0, 0)
