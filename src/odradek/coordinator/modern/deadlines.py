"""Deadlines of members, which lose their place when they miss one: by default, the next heartbeat.

Deadlines are delayed operations. `DelayedSession` ends with the member's next heartbeat, which
begins another.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from odradek.purgatory import DelayedOperation, DelayedOperationPurgatory


@dataclass(frozen=True, slots=True)
class SessionKey:
    """The session of a member, which waits for its next heartbeat."""

    group_id: str
    member_id: str


class MemberDeadline(DelayedOperation):
    """Something that a member must do in time."""

    def __init__(self, delay_ms: int, on_late: Callable[[MemberDeadline], None]) -> None:
        super().__init__(delay_ms)
        self.is_met = False
        self._on_late = on_late

    def again(self, delay_ms: int) -> MemberDeadline:
        """The same deadline, started again."""
        return type(self)(delay_ms, self._on_late)

    def try_complete(self) -> bool:
        """Completes when the member has met the deadline."""
        return self.is_met and self.force_complete()

    def on_complete(self) -> None:
        """Does nothing: the code that met the deadline continues."""

    def on_expiration(self) -> None:
        """Reports that the member is late."""
        self._on_late(self)


class DelayedSession(MemberDeadline):
    """A member must send a heartbeat before its session is over."""

    def missing(self) -> str:
        """The conditions still awaited."""
        return "a heartbeat"

    def is_routine(self) -> bool:
        """True: every live member has one."""
        return True


class Deadlines:
    """The deadlines of one kind, at most one for each key. A missed deadline stays until its
    consequence is known: until then the member may still meet it."""

    def __init__(self, purgatory: DelayedOperationPurgatory) -> None:
        self._purgatory = purgatory
        self._pending: dict[Hashable, MemberDeadline] = {}

    def start(self, key: Hashable, deadline: MemberDeadline) -> None:
        """Starts a deadline, which replaces an earlier one."""
        self.met(key)
        self._pending[key] = deadline
        self._purgatory.try_complete_else_watch(deadline, [key])

    def awaits(self, key: Hashable) -> bool:
        """Whether the key has a deadline."""
        return key in self._pending

    def is_late(self, key: Hashable, deadline: MemberDeadline) -> bool:
        """Whether this deadline has neither been met nor been replaced."""
        return self._pending.get(key) is deadline

    def met(self, key: Hashable) -> None:
        """Ends a deadline: it was met, or does not hold any more."""
        deadline = self._pending.pop(key, None)
        if deadline is not None:
            deadline.is_met = True
            self._purgatory.check_and_complete(key, "heartbeat")

    def clear(self) -> None:
        """Ends all deadlines."""
        for key in list(self._pending):
            self.met(key)
