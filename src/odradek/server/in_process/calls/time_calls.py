"""The calls about time that `odradek.Broker` and `odradek.Cluster` offer a test; see
docs/time-in-tests.md.

The brokers follow their clock: a call that moves it by hand, from any thread but theirs, returns
when they are at rest again (`settling`). They also come to rest before the move, so that what
clients sent before it is handled at the time at which it was sent.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import cast

from odradek.clock import Clock, ManualClock
from odradek.errors import BrokerError, ErrorCode
from odradek.event_loop import LoopEnded, waits_for
from odradek.server.in_process.calls.broker_calls import BrokerCalls
from odradek.server.in_process.calls.time_helpers import (
    UPKEEP,
    Deadline,
    check_kind,
    deadlines,
    member_called,
)
from odradek.server.in_process.settling import settle


class TimeCalls(BrokerCalls):
    """The calls. A derived class has the running brokers and their clock."""

    _clock: Clock
    _unfollow: Callable[[], None] | None = None

    async def settle_async(self) -> None:
        """Returns when the broker is at rest: clients' requests are handled and answered, due tasks
        have run, and no work runs in the background. A clock that is moved does this by itself."""
        self._check_running()
        await self._there(settle(self._servers))

    settle = waits_for(settle_async)

    def next_deadline(self, kind: str | None = None) -> Deadline | None:
        """The next task that fires when the clock moves on, in how many ms, and why; None if only
        periodic upkeep waits for the clock.

        With a `kind`, what of that kind does: `"DelayedFetch"`, or `"PeriodicTask"` for upkeep.

        Raises:
            ValueError: there is no such kind.
        """
        return self._now(lambda: self._next_deadline(kind))

    def advance_to_next_deadline(self, kind: str | None = None) -> Deadline:
        """Moves the clock to the next task, or the next of that `kind`, which has fired when this
        returns. To be called where `clock.advance` is.

        Raises:
            RuntimeError: nothing of the kind waits, or the clock goes by itself.
            ValueError: there is no such kind.
        """
        if self._clock.keeps_pace:
            raise RuntimeError("the clock goes by itself: give the broker an odradek.ManualClock()")
        deadline = self.next_deadline(kind)
        if deadline is None:
            raise RuntimeError(f"nothing waits for the clock{f': no {kind}' if kind else ''}")
        cast(ManualClock, self._clock).advance(deadline.in_ms)
        return deadline

    async def expire_member_async(self, group: str, member: str) -> None:
        """Expires a member's session, as if it had fallen silent for its session time-out. Its
        client, if it lives, learns of it by its next heartbeat, and rejoins.

        `member` is its client id, or its member id where several have the same.

        Raises:
            BrokerError: there is no such member (UNKNOWN_MEMBER_ID); or a rebalance owes it an
                answer at this moment, so that it is not silent (REBALANCE_IN_PROGRESS).
            ValueError: several members have this client id.
        """
        self._check_running()
        await self._there(self._expire_member(group, member))

    expire_member = waits_for(expire_member_async)

    async def _expire_member(self, group: str, member: str) -> None:
        await settle(self._servers)
        member_id = member_called(self._helpers.groups.describe(group), member)
        server = self._helpers.brokers.coordinator(group)
        server.presence.forget(group, member_id)
        server.coordinators.groups.expire_session(group, member_id)
        await settle(self._servers)
        left = self._helpers.groups.describe(group)
        if any(one.member_id == member_id for one in left.members):
            raise BrokerError(
                ErrorCode.REBALANCE_IN_PROGRESS, f"{member_id} waits for the rebalance of {group!r}"
            )

    def _next_deadline(self, kind: str | None) -> Deadline | None:
        self._check_running()
        if kind is not None:
            check_kind(kind)
        for one in deadlines(self._servers):
            if one.kind == kind or (kind is None and one.kind != UPKEEP):
                return one
        return None

    def _follow_clock(self) -> None:
        self._unfollow = self._clock.subscribe(self._come_to_rest, self._come_to_rest)

    def _unfollow_clock(self) -> None:
        if self._unfollow is not None:
            self._unfollow()
            self._unfollow = None

    def _come_to_rest(self) -> None:
        # The loop's own thread cannot wait for itself. None runs while they are just restarted.
        thread = self._thread
        if thread is not None and not thread.is_current:
            with suppress(LoopEnded):  # somebody stops the brokers at this moment
                thread.run(settle(self._servers))
