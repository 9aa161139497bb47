"""The bounds on the work of a share group on a partition; the group's settings, as they are now."""

from typing import Final, NamedTuple


class ShareLimits(NamedTuple):
    """A record is locked for `lock_duration_ms`, delivered `delivery_count_limit` times at most,
    and a partition's start and end are at most `max_record_locks` apart. A returned record is held
    back for `backoff_ms`, each time `backoff_multiplier` times as long, up to `backoff_max_ms`."""

    lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2_000
    may_renew: bool = True
    backoff_ms: int = 0
    backoff_multiplier: float = 2.0
    backoff_max_ms: int = 3_600_000

    def backoff_after(self, delivery_count: int) -> int:
        """The back-off of a record that comes back after so many deliveries, in milliseconds."""
        if self.backoff_ms <= 0:
            return 0
        try:
            delay_ms = self.backoff_ms * self.backoff_multiplier ** (delivery_count - 1)
        except OverflowError:
            return self.backoff_max_ms
        return min(round(min(delay_ms, float(self.backoff_max_ms))), self.backoff_max_ms)

    def isolates_from(self) -> int:
        """The delivery count from which on records are handed out in ever smaller parts, so that a
        record that cannot be processed takes ever fewer others to the limit."""
        return max(_LEAST_ISOLATED, -(-self.delivery_count_limit // 2))

    def part_size(self, size: int, delivery_count: int) -> int:
        """How many of `size` records with this delivery count are handed out together; on the last
        delivery one by one."""
        if delivery_count < self.isolates_from():
            return size
        if delivery_count + 1 >= self.delivery_count_limit:
            return 1
        return max(1, size >> (delivery_count - self.isolates_from() + 1))


_LEAST_ISOLATED: Final = 2
