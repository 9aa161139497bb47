"""`AcquisitionLock`: one acquisition's hold on its records, and the time-out that ends it.

A timer of the wheel that is nearly always cancelled. Its records share it: acknowledged records
leave it without touching the timer, and with the last one it is cancelled.
"""

from collections.abc import Callable

from odradek.timer.timer_task import TimerTask


class AcquisitionLock(TimerTask):
    """A member's lock on `held` of the records from `first` to `last`. Acknowledgements that are
    being stored remain valid after its time-out, or after the member is gone (`is_abandoned`)."""

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
        """Ends the lock: its time is over."""
        self.has_expired = True
        self._on_expired(self)

    def describe(self) -> str:
        """Describes the lock for people."""
        return f"{self.member_id} holds {self.held} records from {self.first} to {self.last}"

    def take(self, count: int) -> None:
        """Adds records to the lock."""
        self.held += count

    def let_go(self, count: int) -> None:
        """Takes records off the lock; with the last one it ends."""
        self.held -= count
        assert self.held >= 0, f"{-self.held} records more are let go than were held"
        if self.held == 0:
            self.cancel()
