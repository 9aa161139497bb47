"""What a member must do in time, or it loses its place: by default, send its next heartbeat.

Deadlines are delayed operations. `DelayedSession` ends with the member's next heartbeat, which
begins another.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from odradek.purgatory import DelayedOperation, DelayedOperationPurgatory


@dataclass(frozen=True, slots=True)
class SessionKey:
    """A member's next heartbeat is awaited here."""

    group_id: str
    member_id: str


class MemberDeadline(DelayedOperation):
    """Something that a member must do in time."""

    def __init__(self, delay_ms: int, on_late: Callable[[], None]) -> None:
        super().__init__(delay_ms)
        self.is_met = False
        self._on_late = on_late

    def try_complete(self) -> bool:
        """Over when the member has done it."""
        return self.is_met and self.force_complete()

    def on_complete(self) -> None:
        """Nothing: who met the deadline knows what comes next."""

    def on_expiration(self) -> None:
        """The member is late."""
        self._on_late()


class DelayedSession(MemberDeadline):
    """A member must send a heartbeat before its session is over."""

    def missing(self) -> str:
        """What is awaited."""
        return "a heartbeat"


class Deadlines:
    """The deadlines of one kind, at most one for each key."""

    def __init__(self, purgatory: DelayedOperationPurgatory) -> None:
        self._purgatory = purgatory
        self._pending: dict[Hashable, MemberDeadline] = {}

    def start(self, key: Hashable, deadline: MemberDeadline) -> None:
        """Awaits something, in place of what was awaited there before."""
        self.met(key)
        self._pending[key] = deadline
        self._purgatory.try_complete_else_watch(deadline, [key])

    def awaits(self, key: Hashable) -> bool:
        """Whether something is awaited there."""
        return key in self._pending

    def met(self, key: Hashable) -> None:
        """The member has done it, or need not any more."""
        deadline = self._pending.pop(key, None)
        if deadline is not None:
            deadline.is_met = True
            self._purgatory.check_and_complete(key, "heartbeat")

    def clear(self) -> None:
        """Awaits nothing any more."""
        for key in list(self._pending):
            self.met(key)
