"""Partition states that ZooKeeper does not take: what was decided is decided again, not at once for
ever and not never."""

import json

import pytest
from tests.unit.metadata.zookeeper.zookeeper_cluster import Cluster

from odradek.controller.elected.topic_reader import RETRY_MAX_MS, RETRY_MS
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata import NewPartitions, NewTopic, PartitionChange
from odradek.metadata.image import TopicImage
from odradek.model import TopicPartition

TP = TopicPartition("a", 0)
PARTITIONS = "/brokers/topics/a/partitions"
STATE = f"{PARTITIONS}/0/state"
TOPIC = '{"version":1,"partitions":{"0":[2,3],"1":[3,2]}}'
ROUND_MS = 50
ROUNDS = RETRY_MAX_MS // ROUND_MS + 1
"""After these the longest wait is over."""
RETRIES = ROUNDS * ROUND_MS // RETRY_MS + 1


def create(cluster: Cluster, *assignment: tuple[int, ...]) -> None:
    (topic,) = cluster.controller.ask("create_topics", [NewTopic("a", assignment, {})])
    assert isinstance(topic, TopicImage), topic


def bounded(cluster: Cluster, rounds: int = ROUNDS) -> int:
    """Lets a cluster go on for 50 ms a round; answers how often something was to be written."""
    before = cluster.tree.attempts
    for _ in range(rounds):
        cluster.tree.run(20_000)
        cluster.clock.advance(ROUND_MS)
        cluster.timer.advance_clock(0)
    return cluster.tree.attempts - before


def test_a_cluster_that_never_comes_to_rest_says_what_it_does() -> None:
    """A test of a fault like that would run for ever, and say nothing."""
    cluster = Cluster(2)
    two = cluster.brokers[2].zookeeper

    def again(_: object = None) -> None:
        two.get("/somewhere", again)

    again()
    with pytest.raises(AssertionError, match=r"client 2 1.*asked last: read /somewhere"):
        cluster.settle()


def test_an_election_that_is_refused_is_held_again() -> None:
    """The partition would have no leader until something else happens to it."""
    cluster = Cluster(3)
    create(cluster, (3, 2), (3, 1))
    cluster.tree.unwritable.add(STATE)
    cluster.brokers.pop(3).store.close()
    assert 0 < bounded(cluster) <= 5 * RETRIES
    assert cluster.controller.state()[1:3] == (3, 0)
    assert cluster.controller.state("a", 1).leader == 1, "one state holds no other up"
    cluster.tree.unwritable.clear()
    bounded(cluster)
    assert {broker.state().leader for broker in cluster.brokers.values()} == {2}
    assert bounded(cluster) == 0, "nothing is tried for ever"


def test_what_stays_refused_is_tried_ever_more_seldom() -> None:
    """All states of a full ensemble would be read and decided five times a second."""
    cluster = Cluster(3)
    create(cluster, (3, 2, 1))
    cluster.tree.unwritable.add(STATE)
    cluster.brokers.pop(3).store.close()
    bounded(cluster, 2 * ROUNDS)
    assert 0 < bounded(cluster, 4 * ROUNDS) <= 5 * 8
    cluster.tree.unwritable.clear()
    bounded(cluster, 2 * ROUNDS)
    assert cluster.controller.state().leader == 2
    cluster.tree.unwritable.add(STATE)
    cluster.brokers.pop(2).store.close()
    bounded(cluster, 2)
    cluster.tree.unwritable.clear()
    assert bounded(cluster, RETRY_MS // ROUND_MS + 1) > 0, "another fault is tried soon"


def test_an_election_over_a_state_that_another_has_written() -> None:
    """A version was passed that nobody had been told of; the next election is over that one."""
    cluster = Cluster(3)
    create(cluster, (3, 2))
    cluster.tree.put(STATE, cluster.tree.text(STATE))
    cluster.stop(3)
    assert cluster.controller.state()[1:4] == (2, 1, 2)
    assert json.loads(cluster.tree.text(STATE))["leader"] == 2


@pytest.mark.parametrize("place", [PARTITIONS, f"{PARTITIONS}/0", STATE])
def test_a_new_topic_whose_states_are_refused(place: str) -> None:
    """It would be begun anew as fast as ZooKeeper can answer."""
    cluster = Cluster(2)
    cluster.tree.unwritable.add(place)
    answers = cluster.brokers[2].begin("create_topics", [NewTopic("a", ((2, 1), (1, 2)), {})])
    assert 0 < bounded(cluster) <= 10 * RETRIES
    cluster.tree.unwritable.clear()
    bounded(cluster)
    ((topic,),) = answers
    assert topic.name == "a"
    for broker in cluster.brokers.values():
        assert [broker.state("a", index).leader for index in range(2)] == [2, 1]
    assert bounded(cluster) == 0, "nothing is tried for ever"


def test_new_partitions_whose_states_are_refused() -> None:
    """One of many that cannot be written holds no other up, and is led once it can."""
    cluster = Cluster(2)
    create(cluster, (1,))
    cluster.tree.unwritable.add(f"{PARTITIONS}/2/state")
    more = NewPartitions("a", 1, ((1,), (2,), (1,)))
    answers = cluster.brokers[2].begin("create_partitions", [more])
    assert 0 < bounded(cluster) <= 10 * RETRIES
    assert cluster.controller.state("a", 1).leader == 1
    cluster.tree.unwritable.clear()
    bounded(cluster)
    ((topic,),) = answers
    assert len(topic.partitions) == 4
    for broker in cluster.brokers.values():
        assert [broker.state("a", index).leader for index in range(4)] == [1, 1, 2, 1]


def test_a_reassignment_that_is_refused_is_answered() -> None:
    """The asking code would plan it again as fast as ZooKeeper refuses it."""
    cluster = Cluster(3)
    create(cluster, (1, 2))
    cluster.tree.unwritable.add(STATE)
    state = cluster.controller.state()
    change = PartitionChange(TP, state.partition_epoch, 2, (1, 2))
    answers = cluster.brokers[1].begin("change_partitions", [change])
    bounded(cluster, 2)
    ((refused,),) = answers
    assert isinstance(refused, BrokerError)
    assert refused.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_the_last_epochs_are_not_passed() -> None:
    """The next one has room in no request and no log: the controller would end over it."""
    cluster = Cluster(3)
    create(cluster, (3, 2), (3, 1))
    last = '{"controller_epoch":1,"leader":3,"version":1,"leader_epoch":2147483647,"isr":[3,2]}'
    cluster.tree.put(STATE, last)
    cluster.brokers[1].store._election.controller._topics.read("a")  # type: ignore[union-attr]
    cluster.settle()
    assert cluster.controller.state().leader_epoch == 2**31 - 1
    cluster.stop(3)
    assert cluster.controller.state().leader_epoch == 2**31 - 1
    assert json.loads(cluster.tree.text(STATE)) == json.loads(last)
    assert cluster.controller.state("a", 1).leader == 1
    change = PartitionChange(TP, cluster.controller.state().partition_epoch, 2, (2,))
    (refused,) = cluster.controller.ask("change_partitions", [change])
    assert refused.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "begun",
    [
        (),
        (PARTITIONS,),
        (PARTITIONS, f"{PARTITIONS}/0"),
        (PARTITIONS, f"{PARTITIONS}/0", f"{PARTITIONS}/1"),
        (PARTITIONS, f"{PARTITIONS}/0", STATE),
    ],
)
@pytest.mark.parametrize("is_taken_over", [False, True])
def test_a_topic_that_was_begun_is_finished(begun: tuple[str, ...], is_taken_over: bool) -> None:
    """A controller of Apache Kafka makes folders and states one after another, and may be killed
    between any two: its topic would never be led."""
    cluster = Cluster(3)
    if is_taken_over:
        cluster.tree.unreadable.add("/brokers/topics/a")  # the first controller sees none of it
    state = '{"controller_epoch":1,"leader":3,"version":1,"leader_epoch":4,"isr":[3]}'
    others = [(path, state if path == STATE else "") for path in begun]
    for path, data in [("/brokers/topics/a", TOPIC), *others]:
        cluster.tree.put(path, data)
    bounded(cluster)
    if is_taken_over:
        cluster.tree.unreadable.clear()
        cluster.brokers.pop(1).store.close()
        bounded(cluster)
    first = 3 if STATE in begun else 2
    for broker in cluster.brokers.values():
        assert [broker.state("a", index).leader for index in range(2)] == [first, 3]
    assert bounded(cluster) == 0


def test_a_topic_of_which_some_states_were_written_is_finished() -> None:
    """States are written a hundred at a time, and a controller may be killed between."""
    cluster = Cluster(2)
    cluster.tree.unreadable.add("/brokers/topics/a")
    partitions = {str(index): [2, 1] for index in range(130)}
    cluster.tree.put("/brokers/topics/a", json.dumps({"version": 1, "partitions": partitions}))
    cluster.tree.put(PARTITIONS)
    state = '{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":0,"isr":[2,1]}'
    for index in range(100):
        cluster.tree.put(f"{PARTITIONS}/{index}")
        cluster.tree.put(f"{PARTITIONS}/{index}/state", state)
    cluster.tree.unreadable.clear()
    cluster.brokers.pop(1).store.close()
    bounded(cluster)
    assert {cluster.brokers[2].state("a", index).leader for index in range(130)} == {2}
