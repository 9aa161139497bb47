"""Reassignments of one topic in requests of their own, at every moment of one another: what was
accepted stays, and no log is deleted that the newest assignment names."""

import json
from collections import deque
from collections.abc import Mapping, Sequence

import pytest
from tests.unit.metadata.zookeeper.zookeeper_cluster import Broker, Cluster

from odradek.controller.replicas.reassigner import Reassignment
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata import NewPartitions, NewTopic, PartitionChange
from odradek.metadata.control import StopReplica
from odradek.metadata.image import TopicImage
from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.client import Operation
from odradek.model import TopicPartition

TP, SECOND, THIRD = (TopicPartition("a", index) for index in range(3))
TOPIC = "/brokers/topics/a"
STATE = f"{TOPIC}/partitions/0/state"
REASSIGNMENTS = "/admin/reassign_partitions"
MOMENTS = [pytest.param(each, marks=pytest.mark.slow if each % 3 else ()) for each in range(40)]
"""Steps after a request: by the last of them everybody has heard of it. Two of three are slow,
since there are so many."""

Results = list[Mapping[TopicPartition, BrokerError | None]]


def create(cluster: Cluster, *assignment: tuple[int, ...]) -> None:
    (topic,) = cluster.controller.ask("create_topics", [NewTopic("a", assignment, {})])
    assert isinstance(topic, TopicImage), topic


def reassign(broker: Broker, where: TopicPartition, target: tuple[int, ...] | None) -> Results:
    """Where the answer will be."""
    answers: Results = []
    broker.controller.reassigner.alter([Reassignment(where, target)], answers.append)
    return answers


def catch_up(cluster: Cluster, *partitions: TopicPartition) -> None:
    """The leaders see all replicas in sync."""
    for where in partitions:
        state = cluster.controller.state(*where)
        change = PartitionChange(where, state.partition_epoch, state.leader, state.replicas)
        (changed,) = cluster.brokers[state.leader].ask("change_partitions", [change])
        assert not isinstance(changed, BrokerError), changed


def written(cluster: Cluster) -> list[tuple[int, ...]]:
    """The replicas of all partitions as ZooKeeper has them."""
    node = znodes.read_topic("a", cluster.tree.entries[TOPIC].data)
    return [each.replicas for each in node.assignments]


def step(cluster: Cluster, count: int) -> None:
    for _ in range(count):
        if not cluster.tree.step():
            cluster.timer.advance_clock(0)


@pytest.fixture(params=[False, True], ids=["watches in order", "late watches"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    made = Cluster(3)
    made.tree.are_late = request.param
    return made


@pytest.mark.parametrize("moment", MOMENTS)
def test_two_reassignments_in_requests_of_their_own(cluster: Cluster, moment: int) -> None:
    """The second would take the first one back, and replicas that were just made be deleted."""
    create(cluster, (1, 2), (2, 3))
    first = reassign(cluster.brokers[1], TP, (1, 2, 3))
    step(cluster, moment)
    second = reassign(cluster.brokers[1], SECOND, (2, 3, 1))
    cluster.settle()
    assert [*first, *second] == [{TP: None}, {SECOND: None}]
    assert written(cluster) == [(1, 2, 3), (2, 3, 1)]
    assert [each.replicas.deleted for each in cluster.brokers.values()] == [[], [], []]
    catch_up(cluster, TP, SECOND)
    for broker in cluster.brokers.values():
        assert [broker.state(*each).isr for each in (TP, SECOND)] == [(1, 2, 3), (2, 3, 1)]
        assert {TP, SECOND} <= broker.replicas.logs.keys()


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_reassignment_while_partitions_are_added(cluster: Cluster, moment: int) -> None:
    """The controller would write the topic without partitions that it has not looked at yet, and
    the records in them be lost to everybody."""
    create(cluster, (1, 2))
    grown = cluster.brokers[2].begin("create_partitions", [NewPartitions("a", 1, ((2, 3),))])
    step(cluster, moment)
    answers = reassign(cluster.brokers[1], TP, (1, 2, 3))
    cluster.settle()
    assert answers == [{TP: None}]
    assert written(cluster) == [(1, 2, 3), (2, 3)]
    ((topic,),) = grown
    assert len(topic.partitions) == 2
    assert [each.state("a", 1).leader for each in cluster.brokers.values()] == [2, 2, 2]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_controller_that_ends_in_a_reassignment(cluster: Cluster, moment: int) -> None:
    """Changes that it had accepted would be undone by the next, or those that it was about to write
    be told."""
    create(cluster, (1, 2), (2, 3))
    first = reassign(cluster.brokers[1], TP, (2, 3))
    second = reassign(cluster.brokers[1], SECOND, (3, 2))
    step(cluster, moment)
    accepted = [
        where for answers, where in ((first, TP), (second, SECOND)) if answers == [{where: None}]
    ]
    cluster.stop(1)
    assert cluster.controller.id in (2, 3)
    for broker in cluster.brokers.values():
        assert [broker.state("a", index).replicas for index in range(2)] == written(cluster)
        assert broker.replicas.deleted == []
    targets = {TP: (2, 3), SECOND: (3, 2)}
    for where in accepted:
        assert written(cluster)[where.partition][:2] == targets[where]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_topic_that_is_written_while_a_controller_begins(cluster: Cluster, moment: int) -> None:
    """Old news of others would be put back in the place of what was accepted since, and added
    partitions be overlooked."""
    create(cluster, (1, 2))
    cluster.brokers[2].is_deaf = cluster.brokers[3].is_deaf = True
    reassign(cluster.brokers[1], TP, (2, 1))
    cluster.settle()
    assert (written(cluster), cluster.brokers[2].state().replicas) == ([(2, 1)], (1, 2))
    cluster.brokers.pop(1).store.close()
    cluster.brokers[2].is_deaf = cluster.brokers[3].is_deaf = False
    step(cluster, moment)
    node = json.loads(cluster.tree.text(TOPIC))
    node["partitions"]["1"] = [3]
    cluster.tree.put(TOPIC, json.dumps(node))
    cluster.settle()
    assert written(cluster) == [(2, 1), (3,)]
    assert [each.state("a", 1).leader for each in cluster.brokers.values()] == [3, 3]


@pytest.mark.parametrize("moment", range(12))
def test_a_connection_that_breaks_while_partitions_are_added(moment: int) -> None:
    """They would be there, and whoever asked for them be told that they were refused."""
    cluster = Cluster(3)
    create(cluster, (1, 2))
    grown = cluster.brokers[2].begin("create_partitions", [NewPartitions("a", 1, ((2, 3), (3,)))])
    step(cluster, moment)
    cluster.brokers[2].zookeeper.drop()
    cluster.settle()
    ((topic,),) = grown
    assert isinstance(topic, TopicImage), topic
    assert written(cluster) == [(1, 2), (2, 3), (3,)]


def test_new_partitions_that_cannot_be_written_stay(cluster: Cluster) -> None:
    """A reassignment would take partitions out of the topic that ZooKeeper refuses for now."""
    create(cluster, (1, 2))
    cluster.tree.unwritable.add(f"{TOPIC}/partitions/1/state")
    cluster.brokers[2].begin("create_partitions", [NewPartitions("a", 1, ((2, 3), (3,)))])
    cluster.settle()
    answers = reassign(cluster.brokers[1], TP, (1, 2, 3))
    cluster.settle()
    assert answers == [{TP: None}]
    assert written(cluster) == [(1, 2, 3), (2, 3), (3,)]
    cluster.tree.unwritable.clear()
    cluster.settle(80)
    assert [cluster.controller.state("a", index).leader for index in range(3)] == [1, 2, 3]


def test_replicas_that_somebody_else_writes_are_put_right(cluster: Cluster) -> None:
    """By hand, or by a tool that read the topic before: replicas would be given up that nobody has
    reassigned. Partitions that it adds are taken."""
    create(cluster, (1, 2), (2, 3))
    node = json.loads(cluster.tree.text(TOPIC))
    node["partitions"] = {"0": [3], "1": [2, 3], "2": [3, 1]}
    cluster.tree.put(TOPIC, json.dumps(node))
    cluster.settle()
    assert written(cluster) == [(1, 2), (2, 3), (3, 1)]
    cluster.stop(1)
    for broker in cluster.brokers.values():
        assert broker.replicas.deleted == []
        assert [broker.state("a", index).replicas for index in range(3)] == written(cluster)
        assert broker.state("a", 2).leader == 3


def test_partitions_that_somebody_else_takes_away_are_put_back(cluster: Cluster) -> None:
    """The next controller would have everybody give them up."""
    create(cluster, (1, 2), (2, 3))
    node = json.loads(cluster.tree.text(TOPIC))
    node["partitions"] = {"0": [1, 2]}
    cluster.tree.put(TOPIC, json.dumps(node))
    cluster.settle()
    assert written(cluster) == [(1, 2), (2, 3)]


def test_what_the_controller_wrote_is_no_news(cluster: Cluster) -> None:
    """Whatever it writes of a large topic would have it read all states of that again."""
    create(cluster, *((1, 2),) * 8)
    cluster.settle()
    cluster.tree.asked = deque()
    reassign(cluster.brokers[1], TP, (1, 2, 3))
    cluster.settle()
    assert f"read {TOPIC}" in cluster.tree.asked
    assert not [each for each in cluster.tree.asked if each.startswith(f"read {TOPIC}/")]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_state_that_was_read_before_it_was_written(cluster: Cluster, moment: int) -> None:
    """Its controller would go back to it, tell everybody, and have its next write refused."""
    create(cluster, (1, 2, 3))
    notification = '{"version":1,"partitions":[{"topic":"a","partition":0}]}'
    cluster.tree.put("/isr_change_notification/isr_change_1", notification)
    step(cluster, moment)
    change = PartitionChange(TP, cluster.controller.state().partition_epoch, 1, (1, 3))
    cluster.brokers[1].begin("change_partitions", [change])
    epochs: list[int] = []
    one = cluster.brokers[1]
    one.cache.on_published(lambda _delta: epochs.append(one.state().partition_epoch))
    cluster.settle()
    assert epochs[-1] == 1
    assert epochs == sorted(epochs)


def test_an_assignment_is_never_found_without_its_states() -> None:
    """A controller may be killed between two of its writes: the next would find in-sync replicas,
    or a leader, that are no replicas."""
    cluster = Cluster(3)
    create(cluster, *((1, 2),) * 130)
    pairs = 0

    def look(_operations: Sequence[Operation]) -> None:
        nonlocal pairs
        for index, replicas in enumerate(written(cluster)):
            where = TopicPartition("a", index)
            state = znodes.read_state(where, cluster.tree.entries[znodes.state_path(where)].data)
            assert {state.leader, *state.isr} <= {*replicas}
            pairs += 1

    cluster.tree.on_written = look
    requests = [Reassignment(TopicPartition("a", index), (2,)) for index in range(130)]
    answers: Results = []
    cluster.brokers[1].controller.reassigner.alter(requests, answers.append)
    cluster.settle(60)
    assert {each for result in answers for each in result.values()} == {None}
    assert set(written(cluster)) == {(2,)}
    assert pairs >= 2 * 130, "it was written at once: this test tries nothing"


@pytest.mark.parametrize("before", [(1, 2, 3), (2, 3, 1)])
def test_who_is_no_replica_is_not_in_sync_when_a_controller_begins(before: tuple[int, ...]) -> None:
    """A Kafka's controller writes replicas and states apart, and may end between: the listeners of
    the next one would break over it."""
    cluster = Cluster(3)
    create(cluster, before)
    node = json.loads(cluster.tree.text(TOPIC))
    node["partitions"] = {"0": [2, 3]}
    cluster.tree.put(TOPIC, json.dumps(node))
    cluster.tree.put(STATE, cluster.tree.text(STATE))
    # The next controller leads it itself.
    for broker_id in (1, 3):
        cluster.brokers[broker_id].zookeeper.is_connected = False
    cluster.tree.remove("/controller")
    cluster.tree.run()
    assert cluster.brokers[2].elected is not None
    for broker_id in (1, 3):
        cluster.brokers[broker_id].zookeeper.is_connected = True
    cluster.settle()
    assert written(cluster) == [(2, 3)]
    for broker in cluster.brokers.values():
        state = broker.state()
        assert (state.leader, state.replicas, state.isr) == (2, (2, 3), (2, 3))


@pytest.mark.parametrize("leader", [1, 3])
def test_who_is_no_replica_is_not_in_sync_by_a_leader_of_old(cluster: Cluster, leader: int) -> None:
    """Brokers of old write states themselves, and may be late with one that has a replica which
    was given up: the listeners would break over it."""
    create(cluster, (1, 2))
    told = {**json.loads(cluster.tree.text(STATE)), "isr": [1, 2, 3], "leader": leader}
    cluster.tree.put(STATE, json.dumps(told))
    cluster.tree.put(
        "/isr_change_notification/isr_change_1",
        '{"version":1,"partitions":[{"topic":"a","partition":0}]}',
    )
    cluster.settle()
    for broker in cluster.brokers.values():
        state = broker.state()
        assert (state.leader, state.replicas, state.isr) == (1, (1, 2), (1, 2))


# What brokers are told


def test_a_replica_that_is_given_back_while_it_is_given_up() -> None:
    """An order to delete that comes to nothing would be given again, after the replica was: what
    was acknowledged would be gone from an in-sync replica."""
    cluster = Cluster(3)
    create(cluster, (1, 2, 3))
    three, sent = cluster.brokers[3], cluster.brokers[1].plane.sent
    three.is_deaf = True
    reassign(cluster.brokers[1], TP, (1, 2))
    while not any(isinstance(each, StopReplica) for _, each in sent):
        assert cluster.tree.step()
    turns = cluster.turns_of(3)
    held = [*turns]
    turns.clear()
    reassign(cluster.brokers[1], TP, (1, 2, 3))
    cluster.tree.run()
    assert cluster.brokers[1].state().replicas == (1, 2, 3)
    turns.extend(held)
    cluster.tree.run()
    three.is_deaf = False
    cluster.settle()
    assert three.replicas.deleted == []
    assert three.state().replicas == (1, 2, 3)
    # Brokers that know a StopReplica without leader epochs only would obey a second one.
    assert len([each for _, each in sent if isinstance(each, StopReplica)]) == 1


def test_an_order_to_delete_that_comes_late(cluster: Cluster) -> None:
    """A slow broker reads what a connection that is over has left after what has come by the next:
    it would delete a replica that it was given back."""
    create(cluster, (1, 2, 3))
    three, sent = cluster.brokers[3], cluster.brokers[1].plane.sent
    reassign(cluster.brokers[1], TP, (1, 2))
    cluster.settle()
    (late,) = [each for _, each in sent if isinstance(each, StopReplica)]
    reassign(cluster.brokers[1], TP, (1, 2, 3))
    cluster.settle()
    catch_up(cluster, TP)
    three.replicas.deleted.clear()
    assert three.ask("on_stop_replica", late) == {TP: ErrorCode.FENCED_LEADER_EPOCH}
    assert three.replicas.deleted == []
    assert three.state().replicas == (1, 2, 3)


def test_what_comes_late_is_not_meant_for_a_topic_that_was_made_anew(cluster: Cluster) -> None:
    """An order to delete names no id: it would delete the records of the new topic."""
    create(cluster, (1, 2, 3))
    old = cluster.controller.image.topics["a"].topic_id
    cluster.chance_of_late_requests = 1.0
    cluster.brokers[1].begin("delete_topics", [old])
    cluster.settle(2)
    cluster.chance_of_late_requests = 0.0
    cluster.settle()
    create(cluster, (1, 2, 3))
    new = cluster.controller.image.topics["a"].topic_id
    assert cluster.late
    cluster.read_late()
    cluster.settle()
    for broker in cluster.brokers.values():
        assert broker.image.topics["a"].topic_id == broker.replicas.logs[TP].topic_id == new
        assert broker.state().replicas == (1, 2, 3)
        assert broker.replicas.deleted == [TP]


@pytest.mark.parametrize("is_only_deaf", [False, True])
@pytest.mark.parametrize("is_elected", [False, True])
def test_a_broker_that_was_away_as_its_replica_went(
    cluster: Cluster, *, is_only_deaf: bool, is_elected: bool
) -> None:
    """Its log would lie there for ever, and be read into memory at every start."""
    create(cluster, (1, 2, 3), (1, 2, 3))
    three = cluster.brokers[3]
    if is_only_deaf:
        three.is_deaf = True
        three.expire()
    else:
        cluster.stop(3)
    reassign(cluster.brokers[1], TP, (1, 2))
    cluster.settle()
    assert written(cluster)[0] == (1, 2)
    if is_elected:
        cluster.stop(1)
        cluster.stop(2)
    three.is_deaf = False
    if is_only_deaf:
        three.register()
    else:
        three = cluster.start(3)
    assert three.image.controller_id == (3 if is_elected else 1)
    assert sorted(cluster.logs[3]) == [SECOND]
    # Who knew that it had the replica is told that it has it no longer.
    assert three.replicas.deleted == ([TP] if is_only_deaf else [])
    assert three.replicas.set_aside == ([] if is_only_deaf else [TP])


@pytest.mark.parametrize("moment", MOMENTS)
def test_back_to_what_a_reassignment_is_about_to_change(cluster: Cluster, moment: int) -> None:
    """The partition has these replicas as long as nobody has heard of the other request: there
    would be nothing to do, and what was accepted be undone."""
    create(cluster, (1, 2))
    first = reassign(cluster.brokers[1], TP, (2, 1))
    step(cluster, moment)
    second = reassign(cluster.brokers[1], TP, (1, 2))
    cluster.settle()
    assert [*first, *second] == [{TP: None}, {TP: None}]
    assert written(cluster) == [(1, 2)]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_reassignment_is_taken_back_as_soon_as_it_was_asked_for(
    cluster: Cluster, moment: int
) -> None:
    """None would be in progress yet, and it begin behind that answer."""
    create(cluster, (1, 2))
    first = reassign(cluster.brokers[1], TP, (2, 3))
    step(cluster, moment)
    second = reassign(cluster.brokers[1], TP, None)
    cluster.settle()
    assert [*first, *second] == [{TP: None}, {TP: None}]
    assert written(cluster) in ([(1, 2)], [(2, 1)])


# What is asked for by a node


def requested(cluster: Cluster, *partitions: tuple[TopicPartition, Sequence[int]]) -> None:
    cluster.tree.put(REASSIGNMENTS, znodes.reassignments_json(dict(partitions)).decode())


def test_a_newer_request_overrules_the_node() -> None:
    """The next controller would find the node, and begin what it asked for anew."""
    cluster = Cluster(3)
    create(cluster, (1, 2))
    requested(cluster, (TP, (2, 3)))
    cluster.settle()
    assert reassign(cluster.brokers[1], TP, (1, 3)) is not None
    cluster.settle()
    assert REASSIGNMENTS not in cluster.tree.entries
    cluster.stop(1)
    assert cluster.controller.state().replicas == (1, 3, 2)


@pytest.mark.parametrize("moment", MOMENTS)
def test_back_to_what_the_node_is_about_to_change(cluster: Cluster, moment: int) -> None:
    """There would be nothing to do, and the node that was read before take effect behind it."""
    create(cluster, (1, 2))
    requested(cluster, (TP, (2, 1)))
    elected = cluster.brokers[1].elected
    assert elected is not None
    while TP not in elected._reassignments._requested:
        step(cluster, 1)
    step(cluster, moment)
    answers = reassign(cluster.brokers[1], TP, (1, 2))
    cluster.settle()
    assert answers == [{TP: None}]
    assert written(cluster) == [(1, 2)]


@pytest.mark.parametrize("path", [TOPIC, STATE])
def test_what_the_node_asks_for_is_begun_once_it_can_be_written(path: str) -> None:
    """It would be taken out of the node as if it had been done."""
    cluster = Cluster(3)
    create(cluster, (1, 2))
    cluster.tree.unwritable.add(path)
    requested(cluster, (TP, (1, 3)))
    cluster.settle()
    assert REASSIGNMENTS in cluster.tree.entries
    cluster.tree.unwritable.clear()
    cluster.settle(80)
    assert cluster.controller.state().replicas == (1, 3, 2)


@pytest.mark.parametrize("others", [(), ((THIRD, (2, 1)),)])
@pytest.mark.parametrize("moment", MOMENTS)
def test_what_a_tool_adds_to_the_node_is_begun(
    cluster: Cluster, moment: int, others: tuple[tuple[TopicPartition, Sequence[int]], ...]
) -> None:
    """The controller would write the node over, as a reassignment ends, and forget what a tool has
    added since it read it."""
    create(cluster, (1, 2), (2, 3), (2, 3))
    requested(cluster, (TP, (1, 3)), *others)
    cluster.settle()
    state = cluster.controller.state()
    change = PartitionChange(TP, state.partition_epoch, 1, state.replicas)
    cluster.brokers[1].begin("change_partitions", [change])
    step(cluster, moment)
    requested(cluster, (TP, (1, 3)), (SECOND, (2, 1)), *others)
    cluster.settle()
    catch_up(cluster, SECOND, THIRD)
    cluster.settle()
    assert written(cluster) == [(1, 3), (2, 1), (2, 1) if others else (2, 3)]
    assert REASSIGNMENTS not in cluster.tree.entries


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_controller_that_ends_as_the_node_is_overruled(cluster: Cluster, moment: int) -> None:
    """The next one would find the node, and undo what was accepted after it was written."""
    create(cluster, (1, 2))
    requested(cluster, (TP, (2, 3)))
    cluster.settle()
    answers = reassign(cluster.brokers[1], TP, (3, 2))
    step(cluster, moment)
    is_accepted = answers == [{TP: None}]
    cluster.stop(1)
    assert written(cluster)[0][:2] in ([(3, 2)] if is_accepted else [(3, 2), (2, 3)])


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_request_to_a_controller_that_begins_overrules_the_node(
    cluster: Cluster, moment: int
) -> None:
    """It would read the node after it has accepted the request, and undo that."""
    create(cluster, (2,))
    cluster.brokers.pop(1).store.close()
    requested(cluster, (TP, (2, 3)))
    while not (active := [b for b in cluster.brokers.values() if b.store._election.active]):
        step(cluster, 1)
    step(cluster, moment)
    answers = reassign(active[0], TP, (3, 2))
    cluster.settle()
    assert answers == [{TP: None}]
    assert written(cluster)[0][:2] == (3, 2)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_connection_that_breaks_in_a_reassignment(cluster: Cluster, moment: int) -> None:
    """A write during which the connection broke is written again, and refused: it would be taken
    back, or tried for ever."""
    create(cluster, (1, 2), (2, 3))
    first = reassign(cluster.brokers[1], TP, (2, 3))
    second = reassign(cluster.brokers[1], SECOND, (3, 1))
    step(cluster, moment)
    cluster.brokers[1].zookeeper.drop()
    cluster.settle()
    assert [*first, *second] == [{TP: None}, {SECOND: None}]
    catch_up(cluster, TP, SECOND)
    cluster.settle()
    assert written(cluster) == [(2, 3), (3, 1)]
    for broker in cluster.brokers.values():
        assert [broker.state("a", index).replicas for index in range(2)] == written(cluster)
