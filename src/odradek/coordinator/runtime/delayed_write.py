"""`DelayedWrite`: requests that wait until the replicas of the internal topic have their records,
or those of requests before them.

Woken under `WriteKey` by the append, when the batch is committed or has failed.
"""

from collections.abc import Callable
from dataclasses import dataclass

from odradek.purgatory import DelayedOperation


@dataclass(frozen=True, slots=True)
class WriteKey:
    """The requests of one batch: the broker's `number`-th that had to wait."""

    partition: int
    number: int


class DelayedWrite(DelayedOperation):
    """A batch that the replicas have not got yet, or a command that waits behind one: the waiters
    are answered in time.

    The code that handles the commit, or a failure, sets `is_written` and wakes it.
    """

    def __init__(self, key: WriteKey, timeout_ms: int, on_late: Callable[[], None]) -> None:
        super().__init__(timeout_ms)
        self.key = key
        self.is_written = False
        self._on_late = on_late

    def try_complete(self) -> bool:
        """Completes when the outcome of the batch is known."""
        return self.is_written and self.force_complete()

    def on_complete(self) -> None:
        """Does nothing: each request is answered by the commit."""

    def on_expiration(self) -> None:
        """Answers the requests with a time-out."""
        self._on_late()

    def missing(self) -> str:
        """The conditions still awaited."""
        return "replicas of the internal topic"
