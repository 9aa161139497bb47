"""Rebalances, told step by step on a moved clock and compared to the letter.

A file of `testdata/rebalances/` is a story: comments, blocks of commands, and after `----` what
they caused. Commands:

    group initial_delay_ms=D max_size=N        a coordinator; the broker's other settings default
    member NAME [instance=I] [protocols=a,b] [session_ms=S] [rebalance_ms=R] [version=V]
    join NAME...     sends JoinGroup, once more with the id that it is given
    sync NAME...     sends SyncGroup; the leader assigns to everyone who has joined its name
    beat NAME...     heartbeat        leave NAME...        process NAME  a new process of it
    commit NAME n=O  commits offset O of partition n
    wait ms=N        the clock is moved; what is due happens
    restart          the broker is killed and comes back with its log
    show             the group            waiting   what waits, and until when
"""

from pathlib import Path

import pytest
from tests.scenario.golden import Story, check, stories
from tests.unit.coordinator.fakes import Member, World

from odradek.coordinator.classic.group import ClassicGroup
from odradek.coordinator.classic.requests import JoinResult, SyncResult
from odradek.errors import BrokerError, ErrorCode


class GroupStory(Story):
    """A coordinator, its members, and what happened since the last block."""

    def __init__(self) -> None:
        super().__init__()
        self.group()

    def group(self, initial_delay_ms: str = "0", max_size: str = "1000") -> None:
        self.world = World(
            group_initial_rebalance_delay_ms=initial_delay_ms, group_max_size=max_size
        )
        self.members: dict[str, Member] = {}

    def member(
        self,
        name: str,
        instance: str | None = None,
        protocols: str = "range",
        session_ms: str = "10000",
        rebalance_ms: str = "60000",
        version: str = "9",
    ) -> None:
        self.members[name] = Teller(
            self,
            name,
            instance_id=instance,
            protocols=tuple((each, each.encode()) for each in protocols.split(",")),
            session_timeout_ms=int(session_ms),
            rebalance_timeout_ms=int(rebalance_ms),
            version=int(version),
        )

    def join(self, *names: str) -> None:
        for name in names:
            self.members[name].join()

    def sync(self, *names: str) -> None:
        for name in names:
            member = self.members[name]
            group = self._group()
            ids = list(group.members) if group is not None and member.leads else []
            member.sync({member_id: self.name_of(member_id).encode() for member_id in ids})

    def beat(self, *names: str) -> None:
        for name in names:
            self.lines.append(f"{name} beats: {self.members[name].beat().name}")

    def leave(self, *names: str) -> None:
        for name in names:
            self.lines.append(f"{name} leaves: {self.members[name].leave().name}")

    def process(self, name: str) -> None:
        """A static member comes back as a new process, which does not know its old id."""
        old = self.members[name]
        self.members[f"old-{name}"] = old
        self.members[name] = Teller(
            self, name, instance_id=old.instance_id, protocols=old.protocols, version=old.version
        )

    def commit(self, name: str, **offsets: str) -> None:
        ((partition, offset),) = offsets.items()
        key = ("t", int(partition))
        outcome = self.world.commit("g", {key: int(offset)}, self.members[name])
        code = outcome.code if isinstance(outcome, BrokerError) else ErrorCode.NONE
        self.lines.append(f"{name} commits: {code.name}")

    def wait(self, ms: str) -> None:
        self.world.advance(int(ms))

    def restart(self) -> None:
        self.world.restart()

    def show(self) -> None:
        group = self._group()
        if group is None:
            self.lines.append("no group")
            return
        names = " ".join(map(self.name_of, group.members))
        leader = self.name_of(group.leader_id or "")
        self.lines.append(
            f"{group.state} generation={group.generation_id} leader={leader or '-'} "
            f"members={names or '-'}"
        )

    def waiting(self) -> None:
        now_ms = self.world.timer.now_ms
        for purgatory in (self.world.rebalances, self.world.heartbeats):
            for each in purgatory.waiting():
                missing = each.missing
                for member in self.members.values():
                    if member.member_id:
                        missing = missing.replace(member.member_id, member.name)
                self.lines.append(f"{each.kind} in {each.deadline_ms - now_ms} ms: {missing}")

    def name_of(self, member_id: str) -> str:
        for name, member in self.members.items():
            if member.member_id == member_id:
                return name
        return member_id

    def _group(self) -> ClassicGroup | None:
        group = self.world.runtime.shard("g").registry.get("g")
        assert group is None or isinstance(group, ClassicGroup)
        return group


class Teller(Member):
    """A member that tells the story what it is answered."""

    def __init__(self, story: GroupStory, name: str, **parts: object) -> None:
        super().__init__(story.world, name, **parts)  # type: ignore[arg-type]
        self.story = story

    def _on_joined(self, result: JoinResult) -> None:
        super()._on_joined(result)
        line = f"{self.name} joins: {result.error_code.name}"
        if result.error_code is ErrorCode.NONE:
            leader = self.story.name_of(result.leader_id)
            line += f" generation={result.generation_id} leader={leader}"
            line += f" protocol={result.protocol_name}"
            if result.members:
                ids = (member.member_id for member in result.members)
                line += f" members={','.join(map(self.story.name_of, ids))}"
            if result.skip_assignment:
                line += " skip_assignment"
        self.story.lines.append(line)

    def sync(self, assignments: object = None) -> None:
        self.synced = _Telling(self)
        super().sync(assignments)  # type: ignore[arg-type]


class _Telling(list[SyncResult]):
    def __init__(self, member: Teller) -> None:
        super().__init__()
        self.member = member

    def append(self, result: SyncResult) -> None:
        line = f"{self.member.name} syncs: {result.error_code.name}"
        if result.error_code is ErrorCode.NONE:
            line += f" assignment={result.assignment.decode() or '-'}"
        self.member.story.lines.append(line)


@pytest.mark.parametrize("path", stories(__file__, "rebalances"), ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    """Fails when a member is told something else, or something happens at another time."""
    check(path, GroupStory())
