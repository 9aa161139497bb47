"""The memory of answers that clients have not read yet, over all connections of a broker.

A fetch answer may be tens of megabytes, and the client decides how fast it is read. Two bounds
protect the broker from ten thousand slow readers:

- from a client that does not read nothing is read: a connection handles no frame while the
  transport holds more of its answers than it likes (`Connection`), so each has one at most;
- all of them together have a budget. While it is used up, a fetch is answered with as little as the
  protocol allows (one batch for the whole request, `Exchange.answer_bytes`), and a client that has
  read nothing for `stuck_after_ms` loses its connection, the longest stuck first: it has given the
  request up by then.

Only connections whose transport is over its limit are counted, so a client that reads costs nothing
here.
"""

from collections.abc import Callable
from typing import Final, Protocol, final

from odradek.clock import Clock

RESPONSE_MEMORY_BYTES: Final = 256 * 1024 * 1024
STUCK_AFTER_MS: Final = 30_000  # the default of a client's request.timeout.ms


class Debtor(Protocol):
    """A connection with unread answers."""

    def unread_bytes(self) -> int:
        """The bytes the transport holds now."""
        ...

    def drop(self) -> None:
        """Ends the connection at once."""
        ...


class _Debt:
    """The unread bytes of one connection, and the time since which it has read nothing."""

    def __init__(self, unread_bytes: int, since_ms: int) -> None:
        self.unread_bytes = unread_bytes
        self.since_ms = since_ms


@final
class ResponseMemory:
    """Counts what is unread; a broker has one."""

    def __init__(
        self,
        clock: Clock,
        on_dropped: Callable[[int], object],
        max_bytes: int = RESPONSE_MEMORY_BYTES,
        stuck_after_ms: int = STUCK_AFTER_MS,
    ) -> None:
        """`on_dropped` is called for each dropped connection, with its unread bytes."""
        self.used_bytes = 0
        self._clock = clock
        self._on_dropped = on_dropped
        self._max_bytes = max_bytes
        self._stuck_after_ms = stuck_after_ms
        # In the order in which they were seen to read nothing, the longest first.
        self._debts: dict[Debtor, _Debt] = {}

    @property
    def left_bytes(self) -> int:
        """The bytes that may still be answered; at least 0."""
        return max(0, self._max_bytes - self.used_bytes)

    def owe(self, debtor: Debtor, unread_bytes: int) -> None:
        """Adds a connection whose transport is over its limit; called again when it gets more."""
        self._put(debtor, unread_bytes)
        if self.used_bytes > self._max_bytes:
            self._drop_stuck()

    def paid(self, debtor: Debtor) -> None:
        """Removes a connection whose transport has drained, or that has ended."""
        debt = self._debts.pop(debtor, None)
        if debt is not None:
            self.used_bytes -= debt.unread_bytes

    def _put(self, debtor: Debtor, unread_bytes: int) -> None:
        self.paid(debtor)
        self.used_bytes += unread_bytes
        self._debts[debtor] = _Debt(unread_bytes, self._clock.monotonic_ms())

    def _drop_stuck(self) -> None:
        """Checks the connections that seem stuck; those that have read meanwhile move to the
        end."""
        latest_ms = self._clock.monotonic_ms() - self._stuck_after_ms
        for debtor, debt in tuple(self._debts.items()):
            if debt.since_ms > latest_ms or self.used_bytes <= self._max_bytes:
                return
            unread_bytes = debtor.unread_bytes()
            if unread_bytes < debt.unread_bytes:
                self._put(debtor, unread_bytes)
            else:
                self.paid(debtor)
                debtor.drop()
                self._on_dropped(unread_bytes)
