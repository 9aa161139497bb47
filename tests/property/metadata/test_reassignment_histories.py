"""Random histories of reassignments, each in a request of its own: begun, taken back, finished,
while brokers stop and lose sessions, controllers are unseated, watches come late, partitions are
added, and tools ask by the node and write the topic back as they have read it. What was accepted is
never undone, what is written was asked for, and no log is deleted that the newest assignment
names. Where tools write other replicas as well, an in-sync replica always keeps its log."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.metadata.test_zookeeper_histories import History
from tests.rounds import rounds
from tests.unit.metadata.fake_replicas import FakeLog
from tests.unit.metadata.zookeeper.zookeeper_cluster import Broker

from odradek.controller.replicas.reassigner import Reassignment
from odradek.errors import BrokerError
from odradek.metadata import NewTopic
from odradek.metadata.image import ReplicaAssignment
from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.client import Operation
from odradek.model import TopicPartition

Replicas = tuple[int, ...]
NEW = NewTopic("a", ((1, 2), (2, 3), (3, 1), (1, 2, 3)), {})
EXAMPLES = rounds(40)


class Written(NamedTuple):
    """An assignment, and the version of the state that was written with it."""

    version: int
    assignment: ReplicaAssignment


class Reassignments(History):
    """Three brokers and one topic; `requested` are the targets that may take effect, None for
    one that is taken back."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        tree = self.cluster.tree
        self.kinds = [
            *(self.reassign,) * 5,
            *(self.catch_up, self.flip, self.cluster.read_late) * 3,
            *(self.take_back, self.grow, self.stop, self.start, self.expire, self.drop),
            *(self.deafen, self.wait, self.unseat, self.depose, self.repeat_isr_change),
            *(self.ask_by_node, self.ask_by_node, self.write_back),
        ]
        self.written: dict[TopicPartition, list[Written]] = {}
        self.requested: dict[TopicPartition, list[Replicas | None]] = {}
        # Where partitions are to be by what was accepted last.
        self.accepted: dict[TopicPartition, Replicas] = {}
        self.open: set[TopicPartition] = set()
        # Asked for by the node, and not read yet.
        self.unread: set[TopicPartition] = set()
        self.is_tool = False
        self.ask(self.cluster.brokers[1], "create_topics", [NEW])
        self.cluster.settle()
        self.look(())
        tree.are_late = True
        tree.on_written = self.look
        self.cluster.on_log_deleted = self.on_log_deleted

    def go_on(self) -> None:
        self.random.choice(self.kinds)()
        for _ in range(self.random.randrange(30)):
            self.step()

    def check(self) -> None:
        super().check()
        self.note_read()

    # --- what happens -------------------------------------------------------------------------

    def reassign(self) -> None:
        """Several partitions at once, each in a request of its own."""
        for _ in range(self.random.randrange(1, 4)):
            target = tuple(self.random.sample((1, 2, 3), self.random.randrange(1, 4)))
            self.request(target)

    def flip(self) -> None:
        """Replicas are taken away, and given back at once."""
        few = tuple(self.random.sample((1, 2, 3), 2))
        for target in (few, (*few, 6 - sum(few))):
            self.request(target, TopicPartition("a", 0))
            self.wait()

    def take_back(self) -> None:
        self.request(None)

    def ask_by_node(self) -> None:
        """A tool adds to the node of reassignments, if a controller has read what is there."""
        tree = self.cluster.tree
        entry = tree.entries.get(znodes.REASSIGNMENTS)
        asked = {} if entry is None else dict(znodes.read_reassignments(entry.data))
        free = sorted(self.written.keys() - self.open - asked.keys())
        if free and self.controllers():
            where = self.random.choice(free)
            asked[where] = tuple(self.random.sample((1, 2, 3), self.random.randrange(1, 4)))
            self.requested.setdefault(where, []).append(asked[where])
            self.unread.add(where)
            tree.put(znodes.REASSIGNMENTS, znodes.reassignments_json(asked).decode())

    def note_read(self) -> None:
        """Notes which requests of the node a controller has begun: newer ones overrule them."""
        for broker in self.controllers():
            elected = broker.elected
            assert elected is not None
            self.unread -= elected._reassignments._requested.keys()

    def write_back(self) -> None:
        """A tool of old reads the topic, and writes it back later, without its id."""
        tree = self.cluster.tree
        node = json.loads(tree.text("/brokers/topics/a"))
        later = {"version": 2, "partitions": node["partitions"]}
        self.wait()
        if self.controllers() and len(self.written) == len(node["partitions"]):
            self.is_tool = True
            tree.put("/brokers/topics/a", json.dumps(later))
            self.is_tool = False
            self.wait()

    def controllers(self) -> list[Broker]:
        brokers = self.cluster.brokers.values()
        return [each for each in brokers if each.store._election.active is not None]

    def request(self, target: Replicas | None, of: TopicPartition | None = None) -> None:
        known = sorted(self.written.keys() - self.open - self.unread)
        free = [each for each in known if of in (None, each)]
        controllers = self.controllers()
        if not free or not controllers:
            return
        where = self.random.choice(free)
        self.open.add(where)
        self.requested.setdefault(where, []).append(target)
        controllers[0].controller.reassigner.alter(
            [Reassignment(where, target)], partial(self.on_answer, where, target)
        )

    def on_answer(
        self,
        where: TopicPartition,
        target: Replicas | None,
        results: Mapping[TopicPartition, BrokerError | None],
    ) -> None:
        self.open.discard(where)
        if results[where] is None:
            self.requested[where] = []
            self.accepted[where] = target_of(self.written[where][-1].assignment)
            assert target in (None, self.accepted[where])

    def catch_up(self) -> None:
        """Some leaders see all live replicas in sync."""
        for broker in self.cluster.brokers.values():
            for topic in broker.image.topics.values():
                for each in topic.partitions:
                    if each.leader == broker.id and self.random.random() < 0.5:
                        live = [r for r in each.replicas if r not in each.offline]
                        self.ask_for_isr(broker, TopicPartition(topic.name, each.partition), live)

    def repeat_isr_change(self) -> None:
        """A broker of old says that it has changed an ISR: the states are read."""
        path = f"/isr_change_notification/isr_change_{self.random.randrange(1 << 30)}"
        self.cluster.tree.put(path, '{"version":1,"partitions":[{"topic":"a","partition":0}]}')

    def depose(self) -> None:
        """Somebody removes the node of the controller."""
        if znodes.CONTROLLER in self.cluster.tree.entries:
            self.cluster.tree.remove(znodes.CONTROLLER)

    # --- what must hold -----------------------------------------------------------------------

    def look(self, _operations: Sequence[Operation]) -> None:
        """Whatever has been written: only what was asked for changes where a partition is to be."""
        if self.is_tool:
            return
        tree = self.cluster.tree
        node = znodes.read_topic("a", tree.entries["/brokers/topics/a"].data)
        for index, assignment in enumerate(node.assignments):
            where = TopicPartition("a", index)
            state = tree.entries.get(znodes.state_path(where))
            version = -1 if state is None else state.version
            history = self.written.setdefault(where, [])
            if history and history[-1].assignment != assignment:
                self.check_asked_for(where, history[-1].assignment, assignment)
            if not history:
                self.accepted[where] = target_of(assignment)
            if not history or history[-1].assignment != assignment:
                history.append(Written(version, assignment))
        assert len(node.assignments) == len(self.written), "partitions are gone"

    def check_asked_for(
        self, where: TopicPartition, before: ReplicaAssignment, after: ReplicaAssignment
    ) -> None:
        if target_of(after) == target_of(before):
            return
        # Back to what it was: the controller could not know that it had written what it had.
        possible = [self.accepted[where]]
        possible += [
            tuple(each for each in before.replicas if each not in before.adding)
            if target is None
            else target
            for target in self.requested.get(where, [])
        ]
        assert target_of(after) in possible, f"{where}: {before} was undone: {after}"

    def on_log_deleted(self, broker_id: int, where: TopicPartition, log: FakeLog) -> None:
        """Only what the broker was no replica of since it was told to have it."""
        since = [each for each in self.written[where] if each.version > log.partition_epoch]
        assert any(broker_id not in each.assignment.replicas for each in since), (
            f"broker {broker_id} deletes {where}: {self.written[where]}"
        )

    def check_all_agree(self) -> None:
        super().check_all_agree()
        topic = self.cluster.controller.image.topics["a"]
        for broker in self.cluster.brokers.values():
            mine = [each for each in topic.partitions if broker.id in each.replicas]
            assert {each.partition for each in mine} == {
                each.partition for each in broker.replicas.logs
            }


def target_of(assignment: ReplicaAssignment) -> Replicas:
    """The replicas that a partition has in the end."""
    return tuple(each for each in assignment.replicas if each not in assignment.removing)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 40))
def test_no_reassignment_is_undone(seed: int, length: int) -> None:
    history = Reassignments(seed)
    for _ in range(length):
        history.go_on()
    history.finish()


class Overwrites(Reassignments):
    """A tool writes the topic with replicas of its own as well, and the controller goes before it
    may have read that. What was accepted may be undone by it; no record may be lost."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.kinds += [self.write_over] * 4
        # Which in-sync replicas have deleted their logs, since the state of that version.
        self.gone: dict[TopicPartition, tuple[int, set[int]]] = {}

    def write_over(self) -> None:
        tree = self.cluster.tree
        node = json.loads(tree.text("/brokers/topics/a"))
        if len(node["partitions"]) != len(self.written):
            return
        replicas = {
            index: self.random.sample((1, 2, 3), self.random.randrange(1, 4))
            for index in node["partitions"]
        }
        keeps_id = self.random.random() < 0.5 and "topic_id" in node
        kept = {"topic_id": node["topic_id"]} if keeps_id else {}
        version = 3 if kept else 2
        self.is_tool = True
        tree.put(
            "/brokers/topics/a", json.dumps({"version": version, **kept, "partitions": replicas})
        )
        self.is_tool = False
        for _ in range(self.random.randrange(12)):
            self.step()
        self.random.choice((self.depose, self.unseat, self.wait))()

    def check_asked_for(
        self, where: TopicPartition, before: ReplicaAssignment, after: ReplicaAssignment
    ) -> None:
        """The tool has asked for anything."""

    def on_answer(
        self,
        where: TopicPartition,
        target: Replicas | None,
        results: Mapping[TopicPartition, BrokerError | None],
    ) -> None:
        del target, results
        self.open.discard(where)

    def on_log_deleted(self, broker_id: int, where: TopicPartition, log: FakeLog) -> None:
        """Another that has all records is left."""
        entry = self.cluster.tree.entries[znodes.state_path(where)]
        state = znodes.read_state(where, entry.data)
        version, gone = self.gone.get(where, (-1, set()))
        if version != entry.version:
            gone = set()
        gone.add(broker_id)
        self.gone[where] = (entry.version, gone)
        assert {*state.isr} - gone, f"all records of {where} are gone: {state}"


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 40))
def test_no_record_is_lost_where_a_tool_writes_over_the_topic(seed: int, length: int) -> None:
    history = Overwrites(seed)
    for _ in range(length):
        history.go_on()
    history.finish()
