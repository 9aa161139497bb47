"""`AcquisitionLock`: one acquisition's hold on its records, and the time-out that ends it.

A timer of the wheel that is nearly always cancelled. Its records share it: acknowledged records
leave it without touching the timer, and with the last one it is cancelled.
"""

from collections.abc import Callable

from odradek.timer.timer_task import TimerTask


class AcquisitionLock(TimerTask):
    """Held by a member on `held` of the records from `first` to `last`. What is being stored of
    them outlives its time, and a member that is gone and has `is_abandoned` it."""

    __slots__ = (
        "_on_expired",
        "first",
        "has_expired",
        "held",
        "is_abandoned",
        "last",
        "member_id",
    )

    def __init__(
        self,
        delay_ms: int,
        member_id: str,
        first: int,
        last: int,
        on_expired: "Callable[[AcquisitionLock], None]",
    ) -> None:
        super().__init__(delay_ms)
        self.member_id = member_id
        self.first = first
        self.last = last
        self.held = 0
        self.has_expired = False
        self.is_abandoned = False
        self._on_expired = on_expired

    def run(self) -> None:
        """The time is over."""
        self.has_expired = True
        self._on_expired(self)

    def describe(self) -> str:
        """Describes the lock for people."""
        return f"{self.member_id} holds {self.held} records from {self.first} to {self.last}"

    def take(self, count: int) -> None:
        """More records are held."""
        self.held += count

    def let_go(self, count: int) -> None:
        """So many records are held no more; with the last one the lock ends."""
        self.held -= count
        assert self.held >= 0, f"{-self.held} records more are let go than were held"
        if self.held == 0:
            self.cancel()
