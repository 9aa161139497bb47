"""Every cause is made by a real client, or by what a real broker can come to, and told."""

from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.deadlines import deadline_s

import odradek
from odradek import ManualClock
from odradek.client import sync as blocking
from odradek.server.explain.causes import CAUSES

READ_OR_NOT = (
    "billing has committed nothing of orders-0, and biller waits at its end, 3: it has read the 3 "
    "records there, or auto.offset.reset is latest and it has begun behind them"
)


def causes(explanation):
    return [each.cause for each in explanation]


def the(explanation, cause):
    """The one text of a cause."""
    [text] = [each.text for each in explanation if each.cause == cause]
    return text


@pytest.fixture
def broker():
    with odradek.Broker(clock=ManualClock()) as broker:
        broker.create_topic("orders")
        yield broker


@contextmanager
def consumer(broker, *topics, group="billing", ready=True, **settings):
    """A consumer of a group that polls until it has what it can have."""
    made = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "client.id": "biller",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **settings,
        }
    )
    made.subscribe(list(topics))
    try:
        until(lambda: made.assignment() or not ready, lambda: made.poll(0.05))
        yield made
    finally:
        made.close()


def until(holds, go_on):
    """Goes on until something holds, as a client's requests are on their way."""
    for _ in range(400):
        found = holds()
        if found:
            return found
        go_on()
    raise AssertionError("it has not come to that")


def explained(broker, client, cause):
    """The explanation once it has that cause: the client's next request is on its way."""

    def holds():
        found = broker.explain("billing")
        return found if cause in causes(found) else None

    return until(holds, lambda: client.poll(0.05))


def test_a_group_that_is_none(broker):
    """Fails when a mistyped name looks like a group that waits."""
    with consumer(broker, "orders"):
        found = broker.explain("bililng")
    assert the(found, "missing") == "there is no group bililng (did you mean billing?)"


def test_a_topic_that_is_none(broker):
    """Fails when a mistyped name looks like a topic without records."""
    assert the(broker.explain(topic="order"), "missing") == (
        "there is no topic order (did you mean orders?)"
    )


def test_a_transactional_id_and_a_client_that_are_none(broker):
    """Fails when a mistyped name looks as if it held nothing up."""
    assert "there is no transactional id" in the(broker.explain(transaction="x"), "missing")
    assert "it is not connected" in the(broker.explain(client="nobody"), "missing")


def test_a_subscription_to_a_topic_that_is_none():
    """Fails when a consumer waits for a topic that nobody will write."""
    with odradek.Broker(config={"auto.create.topics.enable": False}) as broker:
        # librdkafka does not tell of topics that it does not find.
        servers = broker.bootstrap_servers
        with blocking.Consumer(servers, topics=["ordres"], group_id="billing") as waiting:
            until(lambda: broker.group("billing").state == "Stable", lambda: waiting.poll(50))
            found = broker.explain("billing")
    assert the(found, "no topic") == "there is no topic ordres, which billing subscribes to"


def test_a_group_that_nobody_is_in(broker):
    """Fails when a service that has not been started looks slow."""
    broker.produce("orders", "x")
    broker.reset("billing", to="earliest", topics=["orders"])
    assert "no consumer has joined" in the(broker.explain("billing"), "no members")


def test_more_members_than_partitions(broker):
    """Fails when an idle consumer is taken for a broken one."""
    with (
        consumer(broker, "orders") as first,
        consumer(broker, "orders", ready=False, **{"client.id": "spare"}) as second,
    ):

        def both_are_in():
            group = broker.group("billing")
            return group.state == "Stable" and len(group.members) == 2

        until(both_are_in, lambda: (first.poll(0.05), second.poll(0.05)))
        found = broker.explain("billing")
    text = the(found, "no partitions")
    assert "2 members share 1 partition, and each partition has one member" in text


def test_a_rebalance_that_waits_for_a_member(broker):
    """Fails when nobody is told which member holds up all others."""
    with (
        consumer(broker, "orders"),
        consumer(broker, "orders", ready=False, **{"client.id": "late"}) as late,
    ):
        rebalances = "PreparingRebalance"
        until(lambda: broker.group("billing").state == rebalances, lambda: late.poll(0.05))
        found = broker.explain("billing")
    text = the(found, "rebalance")
    assert "the group billing rebalances since" in text
    assert "waits for the member biller (/127.0.0.1, biller-" in text
    assert text.endswith("to rejoin")


def test_reset_to_latest(broker):
    """Fails when records that are older than the consumer are searched for on the network."""
    for number in range(3):
        broker.produce("orders", f"old {number}")
    with consumer(broker, "orders", **{"auto.offset.reset": "latest"}) as late:
        found = explained(broker, late, "reset to latest")
    assert the(found, "reset to latest") == READ_OR_NOT


def test_records_that_are_read_and_never_committed(broker):
    """Fails when a consumer that has read all is said to have begun at the end."""
    for number in range(3):
        broker.produce("orders", f"old {number}")
    with consumer(broker, "orders") as reading:
        read = []
        until(lambda: len(read) == 3, lambda: read.extend(reading.consume(3, 0.05)))
        found = explained(broker, reading, "reset to latest")
    assert the(found, "reset to latest") == READ_OR_NOT


def test_records_that_are_read_and_not_committed(broker):
    """Fails when a lag that is none is taken for a slow consumer."""
    broker.produce("orders", "first")
    broker.produce("orders", "second")
    with consumer(broker, "orders") as reading:
        read = []
        until(lambda: read, lambda: read.extend(reading.consume(1, 0.05)))
        reading.commit(read[0], asynchronous=False)
        found = explained(broker, reading, "not committed")
    text = the(found, "not committed")
    assert text.startswith("biller has read 1 record of orders-0 and not committed them")


def test_a_consumer_that_does_not_poll(broker):
    """Fails when a consumer that is stuck in its own work looks like a broker that is."""
    broker.produce("orders", "x")
    with consumer(broker, "orders") as paused:
        paused.pause([TopicPartition("orders", 0)])
        found = explained(broker, paused, "no poll")
    text = the(found, "no poll")
    assert "asks for none of the 1 record that wait there" in text


def test_a_fetch_that_waits_for_more_bytes(broker):
    """Fails when `fetch.min.bytes` of one client is searched for in the broker."""
    settings = {"fetch.min.bytes": 100_000, "fetch.wait.max.ms": 60_000}
    with consumer(broker, "orders", **settings, **{"socket.timeout.ms": 70_000}) as greedy:
        found = explained(broker, greedy, "min bytes")
        of_client = broker.explain(client="biller")
    text = the(found, "min bytes")
    assert "fetch.min.bytes is 100000" in text
    assert the(of_client, "min bytes").startswith("biller waits since")


def test_a_committed_offset_that_is_out_of_range(broker):
    """Fails when a consumer that jumps is taken for one that loses records."""
    for _ in range(5):
        broker.produce("orders", "x")
    broker.reset("billing", to={("orders", 0): 1})
    with blocking.Admin(broker.bootstrap_servers) as admin:
        admin.delete_records({odradek.TopicPartition("orders", 0): 4})
    text = the(broker.explain("billing"), "out of range")
    assert "billing has committed 1 of orders-0" in text
    assert "begin at 4 and end at 5" in text


def test_an_open_transaction(broker):
    """Fails when a producer that hangs stops all who read what is committed, unnamed."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "payer"}
    )
    producer.init_transactions(deadline_s(30))
    producer.begin_transaction()
    producer.produce("orders", b"paid")
    assert producer.flush(deadline_s(30)) == 0
    broker.produce("orders", "behind it")
    found = broker.explain(topic="orders")
    text = the(found, "open transaction")
    assert "an open transaction of payer (producer" in text
    assert "does not get the 2 records behind it" in text
    of_id = the(broker.explain(transaction="payer"), "transaction")
    assert "is open since" in of_id
    assert "with orders-0" in of_id
    producer.abort_transaction(deadline_s(30))
    assert "has no open transaction" in the(broker.explain(transaction="payer"), "transaction")
    assert "open transaction" not in causes(broker.explain(topic="orders"))


def test_a_paused_broker(broker):
    """Fails when a test that pauses its broker does not know it any more."""
    broker.pause()
    try:
        assert causes(broker.explain(topic="orders"))[0] == "paused"
    finally:
        broker.resume()


def test_a_fault_in_force(broker):
    """Fails when a fault of the test's own is taken for one of the broker."""
    with broker.faults.refuse("Fetch", "NOT_LEADER_OR_FOLLOWER"):
        assert "Fetch" in the(broker.explain(topic="orders"), "fault")


def test_a_client_that_a_quota_holds_back():
    """Fails when a throttled client looks like a slow broker."""
    quotas = {"client-id:biller": {"producer_byte_rate": 10}}
    with odradek.Broker(clock=ManualClock(), quotas=quotas) as broker:
        broker.create_topic("orders")
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "biller"})
        producer.produce("orders", bytes(10_000))
        assert producer.flush(deadline_s(30)) == 0
        found = broker.explain(client="biller")
    assert "the client biller is held back by a quota" in the(found, "throttled")


def test_an_error_that_was_answered(broker):
    """Fails when what the broker has said itself is not in its own explanation."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "biller"})
    with broker.faults.refuse("Metadata", "TOPIC_AUTHORIZATION_FAILED", times=1):
        producer.list_topics("orders", timeout=deadline_s(5))
    # An answer that names the topic says so beside its own error; one on connecting names none.
    told = [each.text for each in broker.explain(client="biller") if each.cause == "error"]
    assert told
    assert all("Metadata from biller: TOPIC_AUTHORIZATION_FAILED" in text for text in told)


def test_topics_without_records_or_readers(broker):
    """Fails when the silence of a producer is taken for that of the broker."""
    found = broker.explain(topic="orders")
    assert causes(found) == ["never written", "nobody reads"]
    broker.produce("orders", "x")
    with blocking.Admin(broker.bootstrap_servers) as admin:
        admin.delete_records({odradek.TopicPartition("orders", 0): 1})
    found = broker.explain(topic="orders")
    assert "has had 1 record, and all are deleted" in the(found, "deleted")


def test_a_group_that_has_read_everything(broker):
    """Fails when a group that keeps up is said to be in trouble."""
    broker.produce("orders", "x")
    with consumer(broker, "orders") as reading:
        read = []
        until(lambda: read, lambda: read.extend(reading.consume(1, 0.05)))
        reading.commit(read[0], asynchronous=False)
        found = broker.explain("billing")
        assert causes(found) == ["nothing new"]
    assert "nothing new has been written" in the(found, "nothing new")


def test_replicas_that_are_gone():
    """Fails when a cluster that has lost brokers gives no reason for refusing."""
    with odradek.Cluster(clock=ManualClock(), config={"min.insync.replicas": 3}) as cluster:
        cluster.create_topic("orders", 1)
        cluster.kill(3)
        text = the(cluster.explain(topic="orders"), "few replicas")
    assert "min.insync.replicas asks for 3" in text


def test_a_partition_without_a_leader():
    """Fails when a partition whose brokers are gone looks empty."""
    with odradek.Cluster(brokers=2, config={"default.replication.factor": 1}) as cluster:
        cluster.create_topic("orders", 2)
        cluster.kill(2)
        text = the(cluster.explain(topic="orders"), "no leader")
    assert "has no leader: the brokers of its replicas are gone" in text


def test_it_is_asked_about_one_thing(broker):
    """Fails when a question without a name is answered."""
    with pytest.raises(ValueError, match="ask about one of group, topic, client, transaction"):
        broker.explain()
    with pytest.raises(ValueError, match="ask about one of"):
        broker.explain("billing", topic="orders")


def test_a_failed_tests_report_says_why(broker):
    """Fails when one has to ask although the report could have said."""
    broker.produce("orders", "x")
    broker.reset("billing", to="earliest", topics=["orders"])
    assert "why     billing: no member is in the group billing" in broker.report()


def test_each_cause_has_a_name_of_its_own():
    """Fails when two causes cannot be told apart by a program."""
    assert len({each.name for each in CAUSES}) == len(CAUSES)
