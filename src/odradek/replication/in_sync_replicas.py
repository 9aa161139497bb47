"""The arithmetic of in-sync replicas: which replicas count, and the log end of each.

A leader knows each follower only by its fetches: a fetch at offset N means that everything below N
has been written there. Two things follow from that:

* the high watermark, the smallest log end of all replicas that count: no record below it can be
  lost while one of them lives;
* the in-sync replicas: the followers that have been at the leader's log end within the last
  `replica.lag.time.max.ms`. Time decides and not distance, because a burst puts every follower
  behind at once without any of them being slow.

A change of the ISR takes effect only when the metadata store has accepted it. Until then the
set is uncertain, and both the old and the new members count (the *maximal* ISR): whichever set
turns out to be valid, each of its members has every record that was called committed.

Pure: no log, no clock, no store; times in milliseconds are handed in.
"""

from collections.abc import Collection, Iterable
from typing import Final

from odradek.model import UNKNOWN_OFFSET

NEVER_MS: Final = -(1 << 60)  # longer ago than any lag


class Follower:
    """The leader's view of another replica. Created at the start of each leadership."""

    def __init__(
        self, broker_id: int, in_sync: bool, now_ms: int, leader_log_end_offset: int
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = -1
        # Whether its broker is gone or its log directory failed, as the metadata says.
        self.is_offline = False
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        # A new leadership starts the lag of its ISR: no member is out of sync at once.
        self.last_caught_up_ms = now_ms if in_sync else NEVER_MS
        self._last_fetch_ms = now_ms
        self._leader_log_end_offset_at_last_fetch = leader_log_end_offset

    def record_fetch(
        self, fetch_offset: int, log_start_offset: int, leader_log_end_offset: int, now_ms: int
    ) -> None:
        """Takes over the follower's state from a fetch at `fetch_offset`.

        A fetch that begins where the leader's log ended at the fetch before shows that the
        follower had caught up then, even if records have been appended meanwhile.
        """
        if fetch_offset >= leader_log_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif fetch_offset >= self._leader_log_end_offset_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self._last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self._leader_log_end_offset_at_last_fetch = leader_log_end_offset
        self._last_fetch_ms = now_ms

    def is_caught_up(self, leader_log_end_offset: int, now_ms: int, lag_max_ms: int) -> bool:
        """Whether the follower is at the leader's log end, or was within the last `lag_max_ms`."""
        return (
            self.log_end_offset == leader_log_end_offset
            or now_ms - self.last_caught_up_ms <= lag_max_ms
        )


class InSyncReplicas:
    """The replicas of a partition as its leader sees them.

    `committed` is the ISR that the store holds, `proposed` the one it was asked for, if any.
    Invariants: the leader is in both; one proposal at a time; only assigned replicas.
    """

    def __init__(
        self,
        leader_id: int,
        replicas: Iterable[int],
        committed: Iterable[int],
        now_ms: int,
        leader_log_end_offset: int,
    ) -> None:
        self.leader_id = leader_id
        self.committed: frozenset[int] = frozenset(committed)
        self.followers: dict[int, Follower] = {}
        self._add_followers(replicas, now_ms, leader_log_end_offset)
        self.proposed: frozenset[int] | None = None
        self._check()

    def _add_followers(
        self, replicas: Iterable[int], now_ms: int, leader_log_end_offset: int
    ) -> None:
        for broker_id in replicas:
            if broker_id != self.leader_id and broker_id not in self.followers:
                in_sync = broker_id in self.committed
                self.followers[broker_id] = Follower(
                    broker_id, in_sync, now_ms, leader_log_end_offset
                )

    def assign(
        self,
        replicas: Collection[int],
        committed: Iterable[int],
        now_ms: int,
        leader_log_end_offset: int,
        *,
        is_same_state: bool = False,
    ) -> None:
        """Takes over the store's state within one leadership; known followers stay known. A
        proposal on the same state stays open: it may still be accepted."""
        for broker_id in [each for each in self.followers if each not in replicas]:
            del self.followers[broker_id]
        if not is_same_state or not (self.proposed or frozenset()) <= {*replicas}:
            self.proposed = None
        self.committed = frozenset(committed)
        self._add_followers(replicas, now_ms, leader_log_end_offset)
        self._check()

    def note_offline(self, offline: Collection[int]) -> None:
        """Takes over which followers' replicas are offline."""
        for follower in self.followers.values():
            follower.is_offline = follower.broker_id in offline

    @property
    def replica_count(self) -> int:
        """How many replicas the partition has, this one included."""
        return len(self.followers) + 1

    @property
    def maximal(self) -> frozenset[int]:
        """Every replica that is, or may by now be, in sync."""
        return self.committed if self.proposed is None else self.committed | self.proposed

    def effective_min_in_sync(self, min_insync_replicas: int) -> int:
        """`min.insync.replicas`, which cannot ask for more replicas than there are."""
        return min(min_insync_replicas, self.replica_count)

    def high_watermark(self, leader_log_end_offset: int, now_ms: int, lag_max_ms: int) -> int:
        """The smallest log end among the replicas that count; -1 when one has not fetched yet.

        A caught-up follower outside the ISR counts too. Otherwise a leader alone in its ISR
        would move the high watermark with every append, and a follower that is always one
        fetch behind could never reach it and rejoin. An offline follower outside the ISR does not
        count.
        """
        smallest = leader_log_end_offset
        if not self.followers:
            return smallest
        maximal = self.maximal
        for follower in self.followers.values():
            if follower.log_end_offset < smallest and (
                follower.broker_id in maximal
                or (
                    not follower.is_offline
                    and follower.is_caught_up(leader_log_end_offset, now_ms, lag_max_ms)
                )
            ):
                smallest = follower.log_end_offset
        return smallest

    def low_watermark(self, leader_log_start_offset: int, alive: Iterable[int] | None) -> int:
        """The smallest log start among the leader and the followers that are alive.

        `alive` None counts every follower. -1 when one of them has not fetched yet.
        """
        followers = self.followers.values()
        counted = [f for f in followers if alive is None or f.broker_id in alive]
        return min([leader_log_start_offset, *(f.log_start_offset for f in counted)])

    def out_of_sync(
        self, leader_log_end_offset: int, now_ms: int, lag_max_ms: int
    ) -> frozenset[int]:
        """Members of the ISR that have been behind for longer than `lag_max_ms`.

        Empty while a proposal is open: its outcome decides what can be removed.
        """
        if self.proposed is not None:
            return frozenset()
        return frozenset(
            follower.broker_id
            for follower in self.followers.values()
            if follower.broker_id in self.committed
            and not follower.is_caught_up(leader_log_end_offset, now_ms, lag_max_ms)
        )

    def may_join(self, broker_id: int, high_watermark: int, leader_epoch_start_offset: int) -> bool:
        """Whether a follower may be proposed for the ISR.

        The follower must have every committed record, and its log end must have reached the start
        of this leader's epoch: before that its log may hold records of another history.
        """
        follower = self.followers.get(broker_id)
        return (
            follower is not None
            and self.proposed is None
            and broker_id not in self.committed
            and not follower.is_offline
            and follower.log_end_offset >= high_watermark
            and follower.log_end_offset >= leader_epoch_start_offset
        )

    def propose(self, members: frozenset[int]) -> None:
        """Opens a proposal; both sets count until it is completed."""
        assert self.proposed is None, f"{sorted(self.proposed or ())} is still being proposed"
        self.proposed = members
        self._check()

    def complete_proposal(self, committed: Iterable[int]) -> None:
        """Ends a proposal with the store's current state."""
        self.proposed = None
        self.committed = frozenset(committed)
        self._check()

    def _check(self) -> None:
        assigned = {self.leader_id, *self.followers}
        for members in (self.committed, self.proposed or self.committed):
            assert self.leader_id in members, (
                f"leader {self.leader_id} is not in its ISR {sorted(members)}"
            )
            assert members <= assigned, f"ISR {sorted(members)} outside of {sorted(assigned)}"
