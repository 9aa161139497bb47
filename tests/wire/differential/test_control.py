"""The commands of a controller, sent to an Apache Kafka 3.9 and to ours by the test itself.

Each stands alone in a ZooKeeper cluster of its own, is its own controller, and hears of commands
that are stale, senseless or broken. Epochs differ, so the test looks them up in ZooKeeper.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import NamedTuple
from uuid import UUID

import pytest
from kazoo.client import KazooClient
from tests.unit.protocol.controller_frames import REQUESTS
from tests.wire.differential.harness import Peer, Target, differences
from tools.kafka_node import zookeeper_kafka_node
from tools.peers import PeerUnavailable

from odradek.protocol import messages
from odradek.testing.processes import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

BROKER_ID = 1
TOPIC = "orders"
NOBODY = 99
CHROOT = "/ours"


class Site(NamedTuple):
    """A broker that is alone in its cluster, and what ZooKeeper knows of it."""

    peer: Peer
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    topic_id: UUID

    @property
    def header(self) -> dict[str, int]:
        """The content of a command of the controller."""
        return {
            "controller_id": self.controller_id,
            "controller_epoch": self.controller_epoch,
            "broker_epoch": self.broker_epoch,
        }


Scenario = Callable[[Site], None]
Check = Callable[[Scenario], None]


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Where the brokers are, each with its ZooKeeper, Kafka first."""
    home = tmp_path_factory.mktemp("control")
    with contextlib.ExitStack() as resources:
        try:
            kafka = resources.enter_context(zookeeper_kafka_node(home / "kafka"))
        except PeerUnavailable as error:
            pytest.skip(str(error))
        connect = kafka.zookeeper + CHROOT
        ours = resources.enter_context(
            BrokerProcess(home / "ours", "--zookeeper", connect, "--broker-id", str(BROKER_ID))
        )
        found = {kafka.bootstrap_servers: kafka.zookeeper, ours.bootstrap_servers: connect}
        for bootstrap in found:
            _make_topic(bootstrap)
        yield found


def _make_topic(bootstrap: str) -> None:
    wish = {"name": TOPIC, "num_partitions": 2, "replication_factor": 1}
    peer = Peer(Target(bootstrap))
    peer.prepare("create_topics", 7, topics=[wish], timeout_ms=30_000)
    peer.close()


def _site(bootstrap: str, connect: str) -> Site:
    zookeeper = KazooClient(connect)
    zookeeper.start(30)
    try:
        controller_id = json.loads(zookeeper.get("/controller")[0])["brokerid"]
        controller_epoch = int(zookeeper.get("/controller_epoch")[0])
        broker_epoch = zookeeper.get(f"/brokers/ids/{BROKER_ID}")[1].czxid
    finally:
        zookeeper.stop()
        zookeeper.close()
    peer = Peer(Target(bootstrap))
    # Whoever leads it: as the controller the test may have told otherwise.
    topics = peer.quietly("metadata", 12, topics=[{"name": TOPIC, "topic_id": None}]).topics
    assert topics[0].topic_id.int, topics
    return Site(peer, controller_id, controller_epoch, broker_epoch, topics[0].topic_id)


@pytest.fixture(scope="module")
def _controllership(addresses: dict[str, str]) -> Iterator[None]:
    """The test is the controller of both clusters from here on: it takes the node away, and
    nobody is elected in between."""
    sessions = [KazooClient(connect) for connect in addresses.values()]
    claim = {"version": 2, "brokerid": NOBODY, "timestamp": "1", "kraftControllerEpoch": -1}
    for session in sessions:
        session.start(30)
        epoch = int(session.get("/controller_epoch")[0])
        taking = session.transaction()
        taking.delete("/controller")
        taking.create("/controller", json.dumps(claim).encode(), ephemeral=True)
        taking.set_data("/controller_epoch", str(epoch + 1).encode())
        outcomes = taking.commit()
        assert not any(isinstance(each, Exception) for each in outcomes), outcomes
    yield
    for session in sessions:
        session.stop()
        session.close()


@pytest.fixture
def same_answers(addresses: dict[str, str]) -> Check:
    """Asks both the same, and expects no difference without a reason."""

    def check(scenario: Scenario) -> None:
        sites = [_site(*address) for address in addresses.items()]
        for site in sites:
            try:
                scenario(site)
            finally:
                site.peer.close()
        found = differences(*(site.peer.answers for site in sites))
        assert not found, "\n".join(found)

    return check


def state(index: int = 0, **changes: object) -> dict[str, object]:
    """A partition that this broker is to lead."""
    return {
        "partition_index": index,
        "controller_epoch": 1,
        "leader": BROKER_ID,
        "leader_epoch": 0,
        "isr": [BROKER_ID],
        "partition_epoch": 0,
        "replicas": [BROKER_ID],
        **changes,
    }


def partitions(topic_id: UUID | None, *states: dict[str, object], topic: str = TOPIC) -> dict:
    """Partitions as all versions take them."""
    return {
        "ungrouped_partition_states": [{**each, "topic_name": topic} for each in states],
        "topic_states": [
            {"topic_name": topic, "topic_id": topic_id, "partition_states": list(states)}
        ],
    }


def test_controlled_shutdown(same_answers: Check) -> None:
    """A broker would stop before others lead, or never."""

    def scenario(site: Site) -> None:
        for version in range(4):
            for broker_id in (NOBODY, -1):
                site.peer.ask("controlled_shutdown", version, broker_id=broker_id, broker_epoch=-1)
        for epoch in (site.broker_epoch - 1, 0):
            site.peer.ask("controlled_shutdown", 3, broker_id=BROKER_ID, broker_epoch=epoch)

    same_answers(scenario)


def test_alter_partition(same_answers: Check) -> None:
    """A leader would go on with an ISR that nobody has written down."""

    def scenario(site: Site) -> None:
        own = site.topic_id

        def ask(version: int, topic_id: UUID, broker_epoch: int = site.broker_epoch, **change):
            isr = change.pop("isr", [BROKER_ID])
            wish = {
                "partition_index": 0,
                "leader_epoch": 0,
                "partition_epoch": 0,
                "new_isr": isr,
                "new_isr_with_epochs": [{"broker_id": each} for each in isr],
                **change,
            }
            site.peer.ask(
                "alter_partition",
                version,
                broker_id=BROKER_ID,
                broker_epoch=broker_epoch,
                topics=[{"topic_id": topic_id, "partitions": [wish]}],
            )

        for version in (2, 3):
            ask(version, own, broker_epoch=site.broker_epoch - 1)
            ask(version, UUID(int=77))
            ask(version, own, partition_index=7)
            ask(version, own, leader_epoch=5)
            ask(version, own, leader_epoch=-1)
            ask(version, own, partition_epoch=9)
            ask(version, own, partition_epoch=-1)
            ask(version, own, isr=[BROKER_ID, NOBODY])
            ask(version, own, isr=[NOBODY])
            ask(version, own)

    same_answers(scenario)


def test_garbage(same_answers: Check) -> None:
    """A broken command would be carried out in part, or end the broker."""

    def scenario(site: Site) -> None:
        for key, values in REQUESTS.items():
            name = messages.name_of(key)
            for version in messages.versions(key):
                whole = messages.encode_request(key, version, values)
                for length in (0, 1, len(whole) // 2, len(whole) - 1):
                    site.peer.ask_raw(name, version, whole[:length])

    same_answers(scenario)


@pytest.mark.usefixtures("_controllership")
def test_leader_and_isr(same_answers: Check) -> None:
    """Kafka's controller would misunderstand what became of its command."""

    def scenario(site: Site) -> None:
        ask, own = site.peer.ask, site.topic_id
        stale = site.header | {"controller_epoch": site.controller_epoch - 1}
        past = site.header | {"broker_epoch": site.broker_epoch - 1}
        for version in range(8):
            ask("leader_and_isr", version, **stale, **partitions(own, state(0), state(1)))
            ask("leader_and_isr", version, **past, **partitions(own, state(0), state(1)))
            ask("leader_and_isr", version, **site.header, **partitions(own, state(0)))
        for epoch in (3, 2, 4, 4):
            later = state(0, leader_epoch=epoch, partition_epoch=10 + epoch)
            ask("leader_and_isr", 7, **site.header, **partitions(own, later))
        ask("leader_and_isr", 7, **site.header, **partitions(own, state(0), state(0)))
        ask("leader_and_isr", 7, **site.header, topic_states=[], live_leaders=[])
        ask("leader_and_isr", 7, **site.header, **partitions(UUID(int=77), state(0)))
        elsewhere = state(0, replicas=[NOBODY], isr=[NOBODY], leader=NOBODY)
        ask("leader_and_isr", 7, **site.header, **partitions(UUID(int=78), elsewhere, topic="a"))

    same_answers(scenario)


@pytest.mark.usefixtures("_controllership")
def test_update_metadata(same_answers: Check) -> None:
    """A controller that was succeeded would go on."""

    def scenario(site: Site) -> None:
        ask = site.peer.ask
        stale = site.header | {"controller_epoch": site.controller_epoch - 1}
        past = site.header | {"broker_epoch": site.broker_epoch - 1}
        for version in range(9):
            ask("update_metadata", version, **stale)
            ask("update_metadata", version, **past, topic_states=[], live_brokers=[])

    same_answers(scenario)


@pytest.mark.usefixtures("_controllership")
def test_stop_replica(same_answers: Check) -> None:
    """A replica would be taken for gone, or for kept."""

    def scenario(site: Site) -> None:
        ask = site.peer.ask
        stale = site.header | {"controller_epoch": site.controller_epoch - 1}
        past = site.header | {"broker_epoch": site.broker_epoch - 1}
        unknown = {
            "ungrouped_partitions": [{"topic_name": "no", "partition_index": 0}],
            "topics": [{"name": "no", "partition_indexes": [0, 1]}],
            "topic_states": [
                {
                    "topic_name": "no",
                    "partition_states": [
                        {"partition_index": 0, "leader_epoch": 3},
                        {"partition_index": 1, "leader_epoch": -2, "delete_partition": True},
                    ],
                }
            ],
        }
        for version in range(5):
            for header in (stale, past, site.header):
                ask("stop_replica", version, **header, **unknown)
            ask("stop_replica", version, **site.header)
        lead = state(1, leader_epoch=9, partition_epoch=99)
        ask("leader_and_isr", 7, **site.header, **partitions(site.topic_id, lead))
        for epoch in (8, 0, 9, 9):
            given_up = {"partition_index": 1, "leader_epoch": epoch}
            states = [{"topic_name": TOPIC, "partition_states": [given_up]}]
            ask("stop_replica", 4, **site.header, topic_states=states)

    same_answers(scenario)


def test_where_a_broker_says_that_it_can_be_reached(same_answers: Check) -> None:
    """Fails when a setting that nobody has made is shown as made, or the other way round."""
    seen: list[list[tuple[object, ...]]] = []

    def scenario(site: Site) -> None:
        keys = ["advertised.listeners", "listeners", "inter.broker.listener.name"]
        asked = {"resource_type": 4, "resource_name": str(BROKER_ID), "configuration_keys": keys}
        values = {"resources": [asked], "include_synonyms": True}
        (found,) = site.peer.quietly("describe_configs", 4, **values).results
        seen.append(
            [
                # Whether they change while a broker runs is of a later Kafka.
                (
                    *(each.name, each.value is None, each.config_source),
                    *((other.name, other.value is None, other.source) for other in each.synonyms),
                )
                for each in sorted(found.configs, key=lambda each: each.name)
            ]
        )

    same_answers(scenario)
    assert seen[0] == seen[1]
