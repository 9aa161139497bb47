"""Quotas of clients from the request that sets them to the connection that is muted."""

import socket
import threading

import pytest
from tests.wire.differential.harness import Peer, Target

import odradek
from odradek.client.sync import Admin, Producer

FETCH, ALTER, DESCRIBE = "fetch", "alter_client_quotas", "describe_client_quotas"


def quota(entity, **values):
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [
            {"key": key, "value": value or 0.0, "remove": value is None}
            for key, value in values.items()
        ],
    }


def alter(peer, *entries, validate_only=False):
    answer = peer.quietly(ALTER, 1, entries=list(entries), validate_only=validate_only)
    return [each.error_code.name for each in answer.entries]


def described(peer, components=(), strict=False):
    answer = peer.quietly(DESCRIBE, 1, components=list(components), strict=strict)
    return {
        tuple((each.entity_type, each.entity_name) for each in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries
    }


def test_quotas_are_set_found_and_taken_away(tmp_path):
    """`kafka-configs --entity-type clients` could do none of the three."""
    with odradek.Broker(data_dir=tmp_path / "data") as broker:
        peer = Peer(Target(broker.bootstrap_servers))
        both = {"user": "alice", "client-id": None}
        assert (
            alter(
                peer,
                quota({"user": "alice"}, producer_byte_rate=1000.0),
                quota({"client-id": None}, consumer_byte_rate=5.0),
                quota(both, producer_byte_rate=7.0, consumer_byte_rate=8.0),
            )
            == ["none"] * 3
        )
        assert alter(peer, quota(both, consumer_byte_rate=None)) == ["none"]
        expected = {
            (("user", "alice"),): {"producer_byte_rate": 1000.0},
            (("client-id", None),): {"consumer_byte_rate": 5.0},
            (("user", "alice"), ("client-id", None)): {"producer_byte_rate": 7.0},
        }
        assert described(peer) == expected
        of_alice = [{"entity_type": "user", "match_type": 0, "match": "alice"}]
        assert len(described(peer, of_alice)) == 2
        assert list(described(peer, of_alice, strict=True)) == [(("user", "alice"),)]
        by_default = [{"entity_type": "client-id", "match_type": 1, "match": None}]
        assert list(described(peer, by_default, strict=True)) == [(("client-id", None),)]
        peer.close()
        broker.restart()
        peer = Peer(Target(broker.bootstrap_servers))
        assert described(peer) == expected
        peer.close()


def test_quotas_that_cannot_be_are_refused():
    """One would believe in a bound that nobody keeps."""
    with odradek.Broker() as broker:
        peer = Peer(Target(broker.bootstrap_servers))
        bytes_a_second = {"producer_byte_rate": 5.0}
        assert (
            alter(
                peer,
                quota({}, **bytes_a_second),
                quota({"user": ""}, **bytes_a_second),
                quota({"group": "g"}, **bytes_a_second),
                quota({"user": "a"}, no_such_rate=5.0),
                quota({"user": "b"}, producer_byte_rate=0.5),
                quota({"user": "c"}, producer_byte_rate=-1.0),
                quota({"user": "d"}, producer_byte_rate=float("nan")),
                quota({"user": "e", "ip": "10.0.0.1"}, **bytes_a_second),
                quota({"ip": "10.0.0.1"}, **bytes_a_second),
                quota({"ip": "10.0.0.1"}, connection_creation_rate=5.5),
                quota({"ip": "10.0.0.1"}, connection_creation_rate=2.0**31),
                quota({"ip": "10.0.0.0/8"}, connection_creation_rate=5.0),
                quota({"user": "f"}, connection_creation_rate=5.0),
            )
            == ["invalid_request"] * 13
        )
        assert alter(peer, quota({"user": "a"}, **bytes_a_second), validate_only=True) == ["none"]
        assert described(peer) == {}
        peer.close()


def test_a_producer_over_its_quota_waits_for_the_clock():
    """A producer that sends more than its share would take everybody's; on a clock that stands
    still it would never be let in again."""
    clock = odradek.ManualClock()
    with odradek.Broker(clock=clock) as broker:
        broker.create_topic("t")
        peer = Peer(Target(broker.bootstrap_servers))
        # Over it by little: the client waits as long on the machine's clock before it sends again.
        assert alter(peer, quota({"client-id": "greedy"}, producer_byte_rate=5900.0)) == ["none"]
        peer.close()
        with Producer(broker.bootstrap_servers, client_id="greedy") as producer:
            # The answer comes at once; the connection is muted behind it.
            producer.send("t", b"x" * 60_000).result()
            late = producer.send("t", b"y")
            with Producer(broker.bootstrap_servers, client_id="modest") as other:
                other.send("t", b"z" * 60_000).result()
            assert len(broker.records("t")) == 2
            clock.advance(60_000)
            late.result()
        assert len(broker.records("t")) == 3


def test_a_quota_of_a_byte_is_answered():
    """A client that sends three megabytes is throttled for a month, and told so: the time has 32
    bits in its answer."""
    quotas = {"client-id:*": {"producer_byte_rate": 1, "controller_mutation_rate": 1e-9}}
    config = {"message.max.bytes": "4000000"}
    clock = odradek.ManualClock()
    with odradek.Broker(clock=clock, quotas=quotas, config=config) as broker:
        broker.create_topic("t")
        settings = {"max.request.size": 4_000_000}
        with Producer(broker.bootstrap_servers, config=settings) as producer:
            assert producer.send("t", b"x" * 3_000_000).result().offset == 0
        for code in ("none", "throttling_quota_exceeded"):
            peer = Peer(Target(broker.bootstrap_servers))
            topics = [{"name": code, "num_partitions": 3, "replication_factor": 1}]
            answer = peer.quietly("create_topics", 7, topics=topics, timeout_ms=30_000)
            assert answer.topics[0].error_code.name == code
            peer.close()
        assert answer.throttle_time.total_seconds() * 1000 == 2**31 - 1


def test_a_consumer_over_its_quota_gets_nothing_for_a_while():
    """Kafka answers without records and says for how long; what is left out is not charged."""
    clock = odradek.ManualClock()
    with odradek.Broker(clock=clock) as broker:
        broker.create_topic("t")
        for _ in range(4):
            broker.produce("t", b"x" * 6_000)
        peer = Peer(Target(broker.bootstrap_servers), client_id="greedy")
        assert alter(peer, quota({"client-id": "greedy"}, consumer_byte_rate=1000.0)) == ["none"]

        def fetch(offset):
            partition = {
                "partition": 0,
                "fetch_offset": offset,
                "partition_max_bytes": 1 << 20,
                "current_leader_epoch": -1,
            }
            topics = [{"topic": "t", "partitions": [partition]}]
            values = {"topics": topics, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20}
            return peer.quietly(FETCH, 12, session_id=0, session_epoch=-1, **values)

        first = fetch(0)
        # Ten windows' worth, and no more, though the client asked for a megabyte.
        assert 6_000 <= len(first.responses[0].partitions[0].records) <= 12_200
        second = fetch(2)
        assert second.responses == ()
        wait_ms = second.throttle_time.total_seconds() * 1000
        assert wait_ms > 0
        done = threading.Event()
        answers = []

        def ask_again():
            answers.append(fetch(2))
            done.set()

        asking = threading.Thread(target=ask_again, daemon=True)
        asking.start()
        assert len(broker.records("t")) == 4
        assert not done.is_set(), "the connection is muted"
        clock.advance(20_000)
        assert done.wait(20)
        asking.join()
        assert answers[0].responses[0].partitions[0].records
        peer.close()


def test_an_address_that_connects_too_often_is_turned_away():
    """A client that connects in a loop would use up what the broker has for all; who it is, and
    how its address is spelt, is nothing to it."""
    clock = odradek.ManualClock()
    quotas = {"ip:*": {"connection_creation_rate": 1000}}
    with odradek.Broker(clock=clock, quotas=quotas) as broker:
        peer = Peer(Target(broker.bootstrap_servers))
        mine = quota({"ip": "::ffff:127.0.0.1"}, connection_creation_rate=1.0)
        assert alter(peer, mine) == ["none"]
        clock.advance(60_000)
        host, port = broker.bootstrap_servers.split(":")
        let_in = [socket.create_connection((host, int(port))) for _ in range(10)]
        turned_away = socket.create_connection((host, int(port)))
        assert described(peer)[("ip", "::ffff:127.0.0.1"),] == {"connection_creation_rate": 1}
        clock.advance(1_000)
        assert turned_away.recv(1) == b""
        for each in let_in:
            each.setblocking(False)
            with pytest.raises(BlockingIOError):
                each.recv(1)
        for each in (*let_in, turned_away):
            each.close()
        peer.close()


def test_without_quotas_no_request_is_charged():
    """Everybody would pay for what nobody has set."""
    with odradek.Broker() as broker:
        dispatcher = broker._servers[0].dispatcher
        assert dispatcher._quotas is None
        peer = Peer(Target(broker.bootstrap_servers))
        alter(peer, quota({"user": "a"}, producer_byte_rate=5.0))
        assert dispatcher._quotas is not None
        alter(peer, quota({"user": "a"}, producer_byte_rate=None))
        assert dispatcher._quotas is None
        peer.close()
        with Admin(broker.bootstrap_servers) as admin:
            assert admin.describe_cluster().nodes


def test_a_broker_of_quotas_has_them_from_the_start():
    """A test of a throttled client would begin with an admin client."""
    quotas = {"client-id:greedy": {"producer_byte_rate": 10}, "user:*": {"consumer_byte_rate": 20}}
    with odradek.Broker(quotas=quotas) as broker, Admin(broker.bootstrap_servers) as admin:
        greedy, everybody = (("client-id", "greedy"),), (("user", None),)
        expected = {greedy: {"producer_byte_rate": 10}, everybody: {"consumer_byte_rate": 20}}
        assert admin.describe_client_quotas() == expected
        assert admin.describe_client_quotas([("user", None)]) == {everybody: expected[everybody]}
        nobody = (("user", "nobody"),)
        altered = admin.alter_client_quotas(
            {greedy: {"producer_byte_rate": None}, nobody: {"no_such_rate": 1}}
        )
        assert altered[greedy] is None
        assert altered[nobody].code.name == "INVALID_REQUEST"
        assert set(admin.describe_client_quotas()) == {everybody}


@pytest.mark.parametrize("entity", ["alice", "users:alice", "user:", "user:a,b"])
def test_an_entity_that_is_none_is_refused(entity):
    """A mistake in a test would be a broker without the quota."""
    with pytest.raises(ValueError, match="quotas are of user:NAME"):
        odradek.Broker(quotas={entity: {"producer_byte_rate": 1}})


@pytest.mark.parametrize(
    ("entity", "key", "value", "text"),
    [
        ("user:alice", "producer_byte_rat", 1, r"did you mean producer_byte_rate\?"),
        ("user:alice", "producer_byte_rate", 0, "must be greater than 0"),
        ("user:alice", "connection_creation_rate", 1, "Invalid configuration key"),
        ("ip:nowhere", "connection_creation_rate", 1, "not a valid IP"),
        ("ip:::1,user:alice", "connection_creation_rate", 1, "Invalid empty client quota entity"),
    ],
)
def test_a_quota_that_is_none_is_refused(entity, key, value, text):
    """It would be told when the broker starts, far from where it was written."""
    with pytest.raises(ValueError, match=text):
        odradek.Broker(quotas={entity: {key: value}})


@pytest.mark.parametrize(
    ("wanted", "times", "code"),
    [
        ({"num_partitions": 10_001}, 1, "policy_violation"),
        ({"num_partitions": 10_000}, 1, "policy_violation"),
        ({"num_partitions": 9_000, "replication_factor": 2}, 1, "invalid_replication_factor"),
        ({"num_partitions": 9_000, "name": "a b"}, 1, "invalid_topic_exception"),
        ({"num_partitions": 9_000, "name": "there"}, 1, "topic_already_exists"),
        ({"num_partitions": 9_000}, 2, "invalid_request"),
    ],
)
def test_a_topic_that_is_not_created_costs_nothing(wanted, times, code):
    """If this fails, a client whose request is refused pays for it with a pause."""
    quotas = {"client-id:maker": {"controller_mutation_rate": 0.5}}
    with odradek.Broker(clock=odradek.ManualClock(), quotas=quotas) as broker:
        broker.create_topic("there")
        peer = Peer(Target(broker.bootstrap_servers), client_id="maker")
        topic = {"name": "a", "num_partitions": 1, "replication_factor": 1}
        for topics, expected in (([topic | wanted] * times, code), ([topic], "none")):
            answer = peer.quietly("create_topics", 7, topics=topics, timeout_ms=1000)
            assert [each.error_code.name for each in answer.topics] == [expected]
            assert not answer.throttle_time
        peer.close()


@pytest.mark.parametrize("count", [1, 10_002])
def test_a_topic_that_does_not_grow_costs_nothing(count):
    """If this fails, a client whose request is refused pays for it with a pause."""
    quotas = {"client-id:maker": {"controller_mutation_rate": 0.5}}
    with odradek.Broker(clock=odradek.ManualClock(), quotas=quotas) as broker:
        broker.create_topic("a")
        peer = Peer(Target(broker.bootstrap_servers), client_id="maker")
        for wanted in (count, 2):
            topic = {"name": "a", "count": wanted, "assignments": None}
            answer = peer.quietly("create_partitions", 3, topics=[topic], timeout_ms=1000)
            assert (answer.results[0].error_code.name == "none") == (wanted == 2)
            assert not answer.throttle_time
        peer.close()


def test_topics_over_the_quota_are_refused_one_by_one():
    """Kafka 4's clients try those again; older ones are let through and throttled afterwards."""
    clock = odradek.ManualClock()
    quotas = {"client-id:maker": {"controller_mutation_rate": 0.5}}
    with odradek.Broker(clock=clock, quotas=quotas) as broker:
        peer = Peer(Target(broker.bootstrap_servers), client_id="maker")

        def create(version, *names):
            topics = [
                {"name": name, "num_partitions": 4, "replication_factor": 1} for name in names
            ]
            answer = peer.quietly("create_topics", version, topics=topics, timeout_ms=1000)
            codes = [each.error_code.name for each in answer.topics]
            return codes, answer.throttle_time.total_seconds()

        # 5.5 tokens: the second topic overdraws them.
        over = "throttling_quota_exceeded"
        assert create(7, "a", "b", "c") == (["none", "none", over], 5.0)
        assert set(broker.topics()) == {"a", "b"}
        peer.close()
        codes, throttled_s = create(5, "c")
        assert (codes, throttled_s) == (["none"], 13.0)
        peer.close()
        clock.advance(13_000)
        deleted = peer.quietly("delete_topics", 5, topic_names=["a", "none", "b"], timeout_ms=1000)
        codes = {each.name: each.error_code.name for each in deleted.responses}
        assert codes == {"a": "none", "none": "unknown_topic_or_partition", "b": over}
        peer.close()
