"""The waits between attempts, and the time to give up.

Waits double from `retry.backoff.ms` to `retry.backoff.max.ms`, each up to a fifth longer or shorter
at random, so that many clients that failed together do not come back together.
"""

from typing import Final, Protocol

from odradek.client.errors import KafkaError, RequestTimedOut, error_for
from odradek.clock import Clock
from odradek.errors import BrokerError, ErrorCode

_MULTIPLIER: Final = 2
_JITTER: Final = 0.2
# A topic that was just created may not be known everywhere yet; one that does not exist
# should not make its user wait for the whole request time-out.
UNKNOWN_TOPIC_PATIENCE_MS: Final = 2_000
NO_LIMIT: Final = 0x7FFFFFFF


class Rng(Protocol):
    """The source of randomness: a `random.Random`, seeded in tests."""

    def uniform(self, a: float, b: float, /) -> float:
        """A number between `a` and `b`."""
        ...

    def getrandbits(self, k: int, /) -> int:
        """A number of so many bits."""
        ...


class ExponentialBackoff:
    """Waits that grow with the number of failures in a row, from 0."""

    def __init__(self, initial_ms: int, max_ms: int, rng: Rng) -> None:
        self._initial_ms = initial_ms
        self.max_ms: Final = max(initial_ms, max_ms)
        self._rng = rng

    def wait_ms(self, failures: int) -> int:
        """How long to wait after that many failures before this one."""
        # Beyond thirty doublings any wait is at its maximum.
        term: float = min(self._initial_ms * _MULTIPLIER ** min(failures, 30), self.max_ms)
        if term < self.max_ms:
            term = min(term * self._rng.uniform(1 - _JITTER, 1 + _JITTER), self.max_ms)
        return round(term)


def patience_ms(code: ErrorCode, timeout_ms: int) -> int:
    """How long an error may last until it is raised, if the call may take so long."""
    is_unknown = code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
    return min(timeout_ms, UNKNOWN_TOPIC_PATIENCE_MS) if is_unknown else timeout_ms


class TimeLimit:
    """The time limit of a call from now on, and the setting, or the argument, that it comes
    from; "" if users have none for it."""

    def __init__(self, clock: Clock, limit_ms: int, named: str) -> None:
        self.ms: Final = limit_ms
        self._named = named
        self._clock = clock
        self._until_ms = clock.monotonic_ms() + limit_ms

    @property
    def left_ms(self) -> int:
        """The time that is left; 0 when it is over."""
        return max(0, self._until_ms - self._clock.monotonic_ms())

    def patience_ms(self, error: BrokerError) -> int:
        """How long an error may last until it is raised."""
        return patience_ms(error.code, self.ms)

    def allows_retry(self, error: BrokerError) -> bool:
        """Whether there is time for another attempt after this error."""
        return self.ms - self.left_ms < self.patience_ms(error)

    def has_ended(self, error: BrokerError) -> bool:
        """Whether there is no attempt after this error because the time is over."""
        is_whole = self.patience_ms(error) == self.ms
        return error.code.retriable and is_whole and not self.left_ms

    def overdue(self, last: BrokerError | None) -> KafkaError:
        """The error of a call whose time is over: that of the last attempt which had one."""
        if last is None:
            return RequestTimedOut(f"no answer within {self}")
        return error_for(last.code, f"{last.message}; no other outcome within {self}")

    def __str__(self) -> str:
        return f"{self.ms} ms ({self._named})" if self._named else f"{self.ms} ms"


class Attempts:
    """The attempts of one call: `after_failure` returns how long to wait, or that it is over."""

    def __init__(
        self, backoff: ExponentialBackoff, started_ms: int, timeout_ms: int, retries: int = NO_LIMIT
    ) -> None:
        self._backoff = backoff
        self._retries = retries
        self._started_ms = started_ms
        self._timeout_ms = timeout_ms
        self._failures = 0

    def after_failure(self, code: ErrorCode, now_ms: int) -> int | None:
        """How long to wait before the next attempt; None when there is none.

        The wait does not exceed the remaining time: the last attempt is at its end.
        """
        left_ms = self._started_ms + patience_ms(code, self._timeout_ms) - now_ms
        if not code.retriable or left_ms <= 0 or self._failures >= self._retries:
            return None
        wait_ms = min(self._backoff.wait_ms(self._failures), left_ms)
        self._failures += 1
        return wait_ms
