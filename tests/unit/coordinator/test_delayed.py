"""Joins, syncs and heartbeats that wait, against a group that the test plays."""

import pytest

from odradek.coordinator.classic.delayed import (
    DelayedHeartbeat,
    DelayedJoin,
    DelayedSync,
    GroupJoinKey,
    GroupSyncKey,
    InitialDelayedJoin,
    MemberKey,
)
from odradek.coordinator.runtime.delayed_write import DelayedWrite, WriteKey
from odradek.purgatory import DelayedOperation, DelayedOperationPurgatory
from odradek.timer import MockTimer

KEY = WriteKey(0, 1)


class FakeGroup:
    """A group as far as waiting is concerned."""

    group_id = "g"

    def __init__(self) -> None:
        self.timer = MockTimer()
        self.purgatory = DelayedOperationPurgatory("group", self.timer)
        self.generation_id = 1
        self.absent: set[str] = set()
        self.unsynced: set[str] = set()
        self.satisfied: set[str] = set()
        self.syncing = True
        self.new_member_added = False
        self.events: list[tuple[str, int]] = []

    def wait(self, operation: DelayedOperation, key: object) -> bool:
        return self.purgatory.try_complete_else_watch(operation, [key])

    def note(self, event: str) -> None:
        self.events.append((event, self.timer.now_ms))

    def members_to_join(self) -> int:
        return len(self.absent)

    def take_new_member_added(self) -> bool:
        added, self.new_member_added = self.new_member_added, False
        return added

    def on_join_complete(self) -> None:
        self.note(f"join complete without {sorted(self.absent)}")

    def members_to_sync(self) -> int:
        return len(self.unsynced)

    def awaits_sync(self) -> bool:
        return self.syncing

    def on_sync_expired(self, generation_id: int) -> None:
        self.note(f"sync of {generation_id} expired without {sorted(self.unsynced)}")

    def is_heartbeat_satisfied(self, member_id: str) -> bool:
        return member_id in self.satisfied

    def on_heartbeat_expired(self, member_id: str) -> None:
        self.note(f"{member_id} expired")


@pytest.fixture
def group() -> FakeGroup:
    return FakeGroup()


def test_keys_of_different_kinds_differ() -> None:
    """A sync would wake joins, and a member called like the group its group."""
    assert len({GroupJoinKey("g"), GroupSyncKey("g"), MemberKey("g", "m")}) == 3
    assert GroupJoinKey("g") == GroupJoinKey("g")


def test_a_join_is_over_when_the_last_member_is_back(group: FakeGroup) -> None:
    """A rebalance must neither start without somebody nor wait for nobody."""
    group.absent = {"a", "b"}
    join = DelayedJoin(group, 300)
    assert not group.wait(join, GroupJoinKey("g"))
    assert join.missing() == "2 members to join"
    group.absent = {"b"}
    assert group.purgatory.check_and_complete(GroupJoinKey("g")) == 0
    group.absent = set()
    assert group.purgatory.check_and_complete(GroupJoinKey("g")) == 1
    assert group.events == [("join complete without []", 0)]
    assert group.timer.size == 0


def test_a_join_goes_on_without_who_is_late(group: FakeGroup) -> None:
    """One dead consumer would stop its whole group."""
    group.absent = {"b"}
    group.wait(DelayedJoin(group, 300), GroupJoinKey("g"))
    group.timer.advance_clock(299)
    assert group.events == []
    group.timer.advance_clock(1)
    assert group.events == [("join complete without ['b']", 300)]


def test_a_first_join_lasts_its_delay_whoever_is_there(group: FakeGroup) -> None:
    """Members of one deployment start together; a rebalance for each would take long."""
    join = InitialDelayedJoin(group, group.purgatory, 3000, 7000)
    assert not group.wait(join, GroupJoinKey("g"))
    assert group.purgatory.check_and_complete(GroupJoinKey("g")) == 0
    group.timer.advance_clock(3000)
    assert group.events == [("join complete without []", 3000)]
    assert join.missing() == "time for more members to come"


def test_a_first_join_waits_on_while_members_keep_coming(group: FakeGroup) -> None:
    """It may be prolonged as long as somebody came, and by the rebalance time-out in all."""
    group.wait(InitialDelayedJoin(group, group.purgatory, 3000, 4000), GroupJoinKey("g"))
    group.new_member_added = True
    group.timer.advance_clock(3000)
    assert group.events == []
    group.new_member_added = True
    group.timer.advance_clock(3000)
    assert group.events == []
    group.new_member_added = True
    group.timer.advance_clock(1000)
    assert group.events == [("join complete without []", 7000)]
    assert group.purgatory.delayed == 0


def test_a_sync_is_over_when_everybody_has_synced(group: FakeGroup) -> None:
    """The members that came must not be dropped with a time-out later."""
    group.unsynced = {"a"}
    sync = DelayedSync(group, 1, 300)
    assert not group.wait(sync, GroupSyncKey("g"))
    assert sync.missing() == "1 members to sync"
    group.unsynced = set()
    assert group.purgatory.check_and_complete(GroupSyncKey("g")) == 1
    group.timer.advance_clock(1000)
    assert group.events == []


def test_members_that_do_not_sync_are_told_to_the_group(group: FakeGroup) -> None:
    """A member that joined and then died would keep its partitions until its session ends."""
    group.unsynced = {"a"}
    group.wait(DelayedSync(group, 1, 300), GroupSyncKey("g"))
    group.timer.advance_clock(300)
    assert group.events == [("sync of 1 expired without ['a']", 300)]


@pytest.mark.parametrize("moved_on", ["generation", "state"])
def test_a_sync_ends_with_its_generation(group: FakeGroup, moved_on: str) -> None:
    """The members of the next generation have not had their time yet."""
    group.unsynced = {"a"}
    sync = DelayedSync(group, 1, 300)
    group.wait(sync, GroupSyncKey("g"))
    if moved_on == "generation":
        group.generation_id = 2
    else:
        group.syncing = False
    group.timer.advance_clock(300)
    assert sync.is_completed
    assert group.events == []
    assert group.wait(DelayedSync(group, 1, 300), GroupSyncKey("g"))


def test_a_sign_of_life_completes_the_heartbeat(group: FakeGroup) -> None:
    """The next heartbeat is a new operation; the old one must be out of the timer."""
    key = MemberKey("g", "m")
    group.wait(DelayedHeartbeat(group, "m", 100), key)
    group.timer.advance_clock(99)
    group.satisfied = {"m"}
    assert group.purgatory.check_and_complete(key) == 1
    group.timer.advance_clock(500)
    assert group.events == []


def test_a_silent_member_expires_and_only_that_one(group: FakeGroup) -> None:
    """A dead consumer's partitions go to the others."""
    beat = DelayedHeartbeat(group, "m", 100)
    group.wait(beat, MemberKey("g", "m"))
    group.wait(DelayedHeartbeat(group, "n", 200), MemberKey("g", "n"))
    assert beat.missing() == "a sign of life of m"
    assert beat.is_routine()
    group.timer.advance_clock(150)
    assert group.events == [("m expired", 100)]


def test_a_member_that_waits_for_our_answer_does_not_expire(group: FakeGroup) -> None:
    """It cannot send heartbeats while its join hangs with us; nothing checked its key since."""
    group.wait(DelayedHeartbeat(group, "m", 100), MemberKey("g", "m"))
    group.satisfied = {"m"}
    group.timer.advance_clock(100)
    assert group.events == []


def test_a_write_is_over_when_its_fate_is_known(group: FakeGroup) -> None:
    """Commits that were written must not be answered a second time, as late."""
    late: list[int] = []
    write = DelayedWrite(KEY, 5000, lambda: late.append(group.timer.now_ms))
    assert not group.wait(write, KEY)
    assert group.purgatory.waiting()[0].missing == "replicas of the internal topic"
    write.is_written = True
    assert group.purgatory.check_and_complete(KEY) == 1
    group.timer.advance_clock(9000)
    assert late == []


def test_a_write_that_stays_with_the_leader_is_late(group: FakeGroup) -> None:
    """Its requests are answered in time, whatever becomes of the batch."""
    late: list[int] = []
    group.wait(DelayedWrite(KEY, 5000, lambda: late.append(group.timer.now_ms)), KEY)
    group.timer.advance_clock(9000)
    assert late == [5000]
