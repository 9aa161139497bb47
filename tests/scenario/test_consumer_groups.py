"""Consumer groups of the newer protocol, told heartbeat by heartbeat on a moved clock.

A file of `testdata/consumer_groups/` is a story: comments, blocks of commands, and after `----`
what they caused. Commands:

    topics NAME=N...       there are exactly these topics, with so many partitions
    rest ms=N              a coordinator whose assignments rest so long after one another
    member NAME [topics=t,u] [regex=R] [instance=I] [assignor=A] [rebalance_ms=R]
    join NAME...           beat NAME...      a heartbeat, with what the member owns
    cling NAME...          does not give back what it is told to      let_go NAME...
    leave NAME...          pause NAME...     a static member goes and says that it will be back
    process NAME new=N     a static member's next process
    wait ms=N              the clock is moved; what is due happens
    restart                the broker is killed and comes back with its log
    show                   the group         waiting   what waits, and until when
"""

from pathlib import Path

import pytest
from tests.scenario.golden import Story, check, stories
from tests.unit.coordinator.consumer.consumers import Consumer, ConsumerWorld, Named


class GroupStory(Story):
    """A coordinator, its members, and what happened since the last block."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}
        self.rest("0")

    def rest(self, ms: str) -> None:
        self.world = ConsumerWorld(self.counts, group_consumer_assignment_interval_ms=ms)
        self.consumers: dict[str, Consumer] = {}

    def topics(self, **counts: str) -> None:
        self.counts = {name: int(count) for name, count in counts.items()}
        self.world.set_topics(**self.counts)

    def member(
        self,
        name: str,
        topics: str | None = None,
        regex: str | None = None,
        instance: str | None = None,
        assignor: str | None = None,
        rebalance_ms: str = "60000",
    ) -> None:
        self.consumers[name] = Consumer(
            self.world,
            name,
            None if topics is None else topics.split(","),
            regex=regex,
            instance_id=instance,
            assignor=assignor,
            rebalance_timeout_ms=int(rebalance_ms),
        )

    def join(self, *names: str) -> None:
        for name in names:
            self.consumers[name].join()
            self._tell(name, "joins")

    def beat(self, *names: str) -> None:
        for name in names:
            self.consumers[name].beat()
            self._tell(name, "beats")

    def leave(self, *names: str) -> None:
        for name in names:
            self.consumers[name].leave()
            self._tell(name, "leaves")

    def pause(self, *names: str) -> None:
        for name in names:
            self.consumers[name].leave(-2)
            self._tell(name, "pauses")

    def process(self, name: str, new: str) -> None:
        old = self.consumers[name]
        self.consumers[new] = Consumer(
            self.world, new, old.topics, instance_id=old.instance_id, regex=old.regex
        )

    def cling(self, *names: str) -> None:
        for name in names:
            self.consumers[name].clings = True

    def let_go(self, *names: str) -> None:
        for name in names:
            self.consumers[name].clings = False
            self.consumers[name].owned = self.consumers[name].assigned

    def wait(self, ms: str) -> None:
        self.world.advance(int(ms))

    def restart(self) -> None:
        self.world.restart()

    def show(self) -> None:
        group = self.world.groups.describe_consumer_group("g")
        self.lines.append(
            f"{group.state} epoch={group.group_epoch} assignment={group.assignment_epoch} "
            f"assignor={group.assignor_name}"
        )
        for member in group.members:
            has = text_of(self.world.named(member.assignment))
            wanted = text_of(self.world.named(member.target_assignment))
            line = f"  {member.member_id} epoch={member.member_epoch} has {has}"
            self.lines.append(line if has == wanted else f"{line}, shall have {wanted}")

    def waiting(self) -> None:
        now_ms = self.world.timer.now_ms
        for purgatory in (self.world.rebalances, self.world.heartbeats):
            for each in purgatory.waiting():
                (key,) = each.keys
                who = getattr(key, "member_id", "")
                self.lines.append(
                    f"{each.kind} in {each.deadline_ms - now_ms} ms: {who}, {each.missing}"
                )

    def _tell(self, name: str, does: str) -> None:
        consumer = self.consumers[name]
        if consumer.error is not None:
            self.lines.append(f"{name} {does}: {consumer.error.code.name}")
            return
        assigned = text_of(self.world.named(consumer.assigned))
        self.lines.append(f"{name} {does}: epoch={consumer.epoch} {assigned}")


def text_of(partitions: Named) -> str:
    """Partitions in a few letters: "t-0,1 u-3"; "nothing"."""
    parts = [f"{topic}-{','.join(map(str, indexes))}" for topic, indexes in partitions.items()]
    return " ".join(parts) or "nothing"


@pytest.mark.parametrize("path", stories(__file__, "consumer_groups"), ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    """Fails when a member is told something else, or something happens at another time."""
    check(path, GroupStory())
