"""Which replica a consumer is sent to, and how its leader tells it."""

from pathlib import Path

import pytest
from tests.unit.replication.fakes import Cluster

from odradek.errors import ErrorCode
from odradek.metadata import BrokerRegistration
from odradek.model import TopicPartition
from odradek.replication.fetch import CONSUMER_REPLICA_ID, FetchInfo, FetchParams, FetchResult
from odradek.replication.replica_selector import ReplicaView, rack_aware, replica_selector

TP = TopicPartition("a", 0)
LEADER = ReplicaView(1, "here", 100, 0)


@pytest.mark.parametrize(
    ("rack", "followers", "chosen"),
    [
        ("there", [ReplicaView(2, "there", 90, 5), ReplicaView(3, "there", 95, 9)], 3),
        ("there", [ReplicaView(2, "there", 90, 5), ReplicaView(3, "there", 90, 9)], 2),
        ("there", [ReplicaView(2, "there", 90, 5), ReplicaView(3, "there", 90, 5)], 3),
        ("there", [ReplicaView(2, "else", 100, 0), ReplicaView(3, None, 100, 0)], 1),
        ("here", [ReplicaView(2, "here", 100, 0)], 1),
        ("there", [], 1),
    ],
)
def test_the_nearest_is_chosen(rack: str, followers: list[ReplicaView], chosen: int) -> None:
    """In the rack, as far as possible; the leader where it is as near, or nobody is nearer."""
    assert rack_aware(rack, LEADER, followers) == chosen


def test_the_classes_of_the_setting() -> None:
    """With the package, as Kafka wants it, or without."""
    package = "org.apache.kafka.common.replica."
    assert replica_selector(f"{package}RackAwareReplicaSelector") is rack_aware
    assert replica_selector("RackAwareReplicaSelector") is rack_aware
    assert replica_selector(f"{package}LeaderSelector") is None
    assert replica_selector(None) is None


@pytest.fixture
def cluster(tmp_path: Path):
    """Broker 1, which leads a partition that broker 2, in another rack, follows."""
    settings = {"replica.selector.class": "RackAwareReplicaSelector"}
    made = Cluster(str(tmp_path / "data"), settings=settings)
    racks = {1: "here", 2: "there", 3: None}
    brokers = {each: BrokerRegistration(each, (), rack, 1) for each, rack in racks.items()}
    made.image = made.image.with_brokers(brokers, 1)
    made.create("a", (1, 2))
    made.produce(TP, b"one", b"two", b"three")
    yield made
    made.close()


def fetch(
    cluster: Cluster, offset: int, rack: str = "", replica_id: int = CONSUMER_REPLICA_ID
) -> FetchResult:
    params = FetchParams(replica_id, 0, 1, 1 << 20, fetch_only_leader=False, rack_id=rack)
    answers: list[FetchResult] = []
    cluster.replicas.fetch_messages(params, [FetchInfo(TP, offset, 1 << 20, 0)], answers.extend)
    (answer,) = answers
    return answer


def test_a_consumer_is_sent_to_a_replica_that_has_what_it_asks_for(cluster: Cluster) -> None:
    """Sent to one that is behind it would be told that its offset is out of range, and reset."""
    fetch(cluster, 1, replica_id=2)
    for offset, preferred in ((0, 2), (1, 2), (2, -1)):
        answer = fetch(cluster, offset, "there")
        assert answer.error_code == ErrorCode.NONE
        assert answer.preferred_read_replica == preferred, offset
        assert answer.high_watermark == 1
        assert not answer.records or preferred < 0
    assert fetch(cluster, 0, "here").preferred_read_replica == -1
    assert fetch(cluster, 0, "").preferred_read_replica == -1


def test_a_consumer_that_is_sent_away_does_not_wait_first(cluster: Cluster) -> None:
    """It could have read elsewhere all the while."""
    fetch(cluster, 3, replica_id=2)
    answers: list[FetchResult] = []
    params = FetchParams(
        CONSUMER_REPLICA_ID, 60_000, 1, 1 << 20, fetch_only_leader=False, rack_id="there"
    )
    cluster.replicas.fetch_messages(params, [FetchInfo(TP, 3, 1 << 20)], answers.extend)
    assert [answer.preferred_read_replica for answer in answers] == [2]


def test_a_follower_and_a_leader_without_a_selector_send_nobody(cluster: Cluster) -> None:
    """A consumer would be sent round in a circle."""
    fetch(cluster, 3, replica_id=2)
    cluster.change("a", 0, leader=2, leader_epoch=1)
    assert fetch(cluster, 0, "there").preferred_read_replica == -1
