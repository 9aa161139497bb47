"""What `odradek.Broker` and `odradek.Cluster` offer a test about time; see docs/time-in-tests.md.

The brokers follow their clock: who moves it by hand, from any thread but theirs, goes on when they
are at rest again (`settling`). They also come to rest before the move, so that what clients sent
before it is handled at the time at which it was sent.
"""

from collections.abc import Callable

from odradek.clock import Clock
from odradek.server.broker_calls import BrokerCalls
from odradek.server.settling import settle


class TimeCalls(BrokerCalls):
    """The calls. What derives from it has the running brokers and their clock."""

    _clock: Clock
    _unfollow: Callable[[], None] | None = None

    def settle(self) -> None:
        """Returns when the broker is at rest: what clients have sent is handled and answered, what
        is due has been done, and nothing is under way in the background. A clock that is moved does
        this by itself."""
        self._run(self.settle_async(), "settle_async")

    async def settle_async(self) -> None:
        """`settle` for a broker on the running loop, after its clock was moved there."""
        self._check_running()
        await settle(self._servers)

    def _follow_clock(self) -> None:
        self._unfollow = self._clock.subscribe(self._come_to_rest, self._come_to_rest)

    def _unfollow_clock(self) -> None:
        if self._unfollow is not None:
            self._unfollow()
            self._unfollow = None

    def _come_to_rest(self) -> None:
        # The loop's own thread cannot wait for itself. None runs while they are just restarted.
        if self._thread is not None and not self._thread.is_current:
            self._thread.run(settle(self._servers))
