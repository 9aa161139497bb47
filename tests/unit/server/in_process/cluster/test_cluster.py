"""`odradek.Cluster`: records survive the loss of a broker, and clients find the next leader."""

import asyncio
import re
from contextlib import suppress

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import odradek
from odradek import model
from odradek.client import Admin
from odradek.client import Consumer as OurConsumer
from odradek.errors import BrokerError, ErrorCode
from odradek.server.in_process.calls.running_brokers import RunningBrokers
from odradek.server.in_process.calls.topic_reader import TopicReader

FOREVER_S = 60


def produce(cluster: odradek.Cluster, topic: str, *values: str) -> list[int]:
    """Sends values to partition 0 with acks=all; the offsets that were acknowledged."""
    offsets: list[int] = []

    def delivered(error: object, message: object) -> None:
        assert error is None, error
        offsets.append(message.offset())  # type: ignore[attr-defined]

    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=delivered)
    assert producer.flush(FOREVER_S) == 0
    return offsets


def read(cluster: odradek.Cluster, topic: str, count: int, **settings: str) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "readers",
            "enable.auto.commit": False,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(count, FOREVER_S)
        return [message.value().decode() for message in messages]
    finally:
        consumer.close()


def roles(cluster: odradek.Cluster, topic: str) -> tuple[int, ...]:
    """The ids of the replicas, the leader's first."""
    state = cluster.partition_state(topic, 0)
    return (state.leader, *(each for each in state.replicas if each != state.leader))


def until(cluster: odradek.Cluster, topic: str, *isr: int) -> None:
    """Waits for an ISR to be what is expected: followers come back in their own time."""

    async def wait() -> None:
        async with asyncio.timeout(FOREVER_S):
            while set(cluster.partition_state(topic, 0).isr) != set(isr):
                await asyncio.sleep(0.01)

    cluster.run(wait())


def test_what_all_replicas_acknowledged_outlives_the_leader() -> None:
    """The very point of replication."""
    with odradek.Cluster(3) as cluster:
        cluster.create_topic("a", config={"min.insync.replicas": 2})
        assert produce(cluster, "a", "one", "two") == [0, 1]
        assert set(cluster.partition_state("a", 0).isr) == {1, 2, 3}
        leader, second, third = roles(cluster, "a")
        cluster.kill(leader)
        after = cluster.partition_state("a", 0)
        assert (after.leader, after.leader_epoch, after.isr) == (second, 1, (second, third))
        assert produce(cluster, "a", "three") == [2]
        assert read(cluster, "a", 3) == ["one", "two", "three"]


def test_a_broker_that_comes_back_catches_up_and_leads_again() -> None:
    """A replica that stays behind for ever is none."""
    with odradek.Cluster(3) as cluster:
        cluster.create_topic("a")
        produce(cluster, "a", "one")
        first, *others = roles(cluster, "a")
        cluster.kill(first)
        produce(cluster, "a", "two")
        cluster.broker(first).start()
        until(cluster, "a", 1, 2, 3)
        for broker_id in others:
            cluster.broker(broker_id).stop()
        assert cluster.partition_state("a", 0).leader == first
        assert read(cluster, "a", 2) == ["one", "two"]


def test_a_stop_in_good_order_hands_over_first() -> None:
    """A rolling restart would be a row of failures."""
    with odradek.Cluster(2) as cluster:
        cluster.create_topic("a")
        produce(cluster, "a", "one")
        controller = cluster.controller
        assert controller is not None
        controller.stop()
        assert cluster.partition_state("a", 0).leader == 2
        successor = cluster.controller
        assert successor is not None
        assert successor.id == 2
        assert produce(cluster, "a", "two") == [1]


def test_a_follower_that_is_cut_off_leaves_the_isr_and_joins_again() -> None:
    """acks=all would wait for it as long as it is away."""
    config = {"replica.lag.time.max.ms": 500, "replica.fetch.wait.max.ms": 100}
    with odradek.Cluster(3, config={**config, "replica.fetch.backoff.ms": 50}) as cluster:
        cluster.create_topic("a")
        leader, second, third = roles(cluster, "a")
        cluster.partition(leader, third)
        assert produce(cluster, "a", "one") == [0]
        assert set(cluster.partition_state("a", 0).isr) == {leader, second}
        cluster.heal()
        until(cluster, "a", 1, 2, 3)


def test_groups_go_on_when_their_coordinator_dies() -> None:
    """A consumer would lose its place with a broker."""
    with odradek.Cluster(3) as cluster:
        cluster.create_topic("a")
        produce(cluster, "a", "one", "two")
        settings = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        consumer = Consumer(settings)
        consumer.subscribe(["a"])
        (message,) = consumer.consume(1, FOREVER_S)
        consumer.commit(message, asynchronous=False)
        coordinator = cluster.leader("__consumer_offsets", 3)  # of "g", as Kafka computes it
        assert coordinator is not None
        coordinator.kill()
        (committed,) = consumer.committed([TopicPartition("a", 0)], FOREVER_S)
        consumer.close()
        assert committed.offset == 1


def test_a_broker_taken_for_dead_leads_nothing_until_it_is_back() -> None:
    """Two leaders would acknowledge different records for one offset."""
    with odradek.Cluster(2) as cluster:
        cluster.create_topic("a")
        produce(cluster, "a", "one")
        leader, other = roles(cluster, "a")
        cluster.expire_session(leader)
        assert cluster.partition_state("a", 0).leader == other
        assert produce(cluster, "a", "two") == [1]
        until(cluster, "a", 1, 2)


def test_a_follower_has_what_its_leader_acknowledged() -> None:
    """Else nothing would be left when the leader goes."""
    with odradek.Cluster(2) as cluster:
        cluster.create_topic("a")
        produce(cluster, "a", "one")
        follower = cluster.broker(roles(cluster, "a")[1]).server.replicas
        (partition,) = follower.partitions
        assert not partition.is_leader
        assert partition.log is not None
        assert partition.log.log_end_offset == 1


def test_mistakes_are_told_where_they_are_made() -> None:
    """And not as a traceback from inside."""
    with pytest.raises(ValueError, match="at least one broker"):
        odradek.Cluster(0)
    with pytest.raises(ValueError, match=r"num\.partitions"):
        odradek.Cluster(config={"num.partitions": "x"})
    cluster = odradek.Cluster(2)
    with pytest.raises(RuntimeError, match="runs on your event loop"):
        cluster.create_topic("a")
    with cluster:
        with pytest.raises(ValueError, match="there is no broker 3, only 1 to 2"):
            cluster.kill(3)
        with pytest.raises(BrokerError) as refused:
            cluster.create_topic("a", replication_factor=3)
        assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        cluster.kill(2)
        cluster.kill(2)
        assert not cluster.broker(2).is_running


def test_waiting_for_records_while_nobody_leads() -> None:
    """A broker that is away for a moment would end the wait, and its topic be missing in the
    report."""

    async def main() -> None:
        async with odradek.Cluster(2) as cluster:
            await cluster.create_topic_async("orders", replication_factor=1)
            leader = cluster.leader("orders")
            assert leader is not None
            await cluster.produce_async("orders", "one")
            waiting = asyncio.create_task(cluster.wait_for_async("orders", 2, FOREVER_S))
            await asyncio.sleep(0)  # it has read the first
            await leader.stop_async()
            assert "topics  orders: no leader of partitions 0\n" in cluster.report()
            told = r"^orders has 0 of 2 records \(there is no leader of orders-0\) after 0 s$"
            with pytest.raises(TimeoutError, match=told):
                await cluster.wait_for_async("orders", 2, timeout=0)
            await leader.start_async()
            await cluster.produce_async("orders", "two")
            assert [record.value for record in await waiting] == [b"one", b"two"]

    asyncio.run(main())


def test_waiting_for_records_of_one_that_has_just_ceased_to_lead() -> None:
    """The metadata names it for some turns of the loop yet. Its refusals would wake the wait again
    and again, and the loop never take these turns."""

    async def main() -> None:
        async with odradek.Cluster(1) as cluster:
            await cluster.produce_async("orders", "one")
            server = cluster.broker(1).server
            reader = TopicReader(RunningBrokers([server]), "orders", None, False)
            await reader.read_on()
            server.replicas.resign()
            await reader.read_what_is_led()
            assert reader.unread_in_words
            woken: list[bool] = []
            assert reader.park(lambda: woken.append(True)) == []
            assert woken == []
            assert "topics  orders: no leader of partitions 0\n" in cluster.report()
            assert await cluster.end_offsets_async() == {}
            told = r"^orders has 0 of 1 records \("
            with pytest.raises(TimeoutError, match=told):
                await cluster.wait_for_async("orders", 1, timeout=0)

    asyncio.run(main())


def test_waiting_for_a_group_that_nobody_coordinates() -> None:
    """The time-out would be the error of a broker that is asked for the group's state."""
    internal = {"offsets.topic.replication.factor": 1, "offsets.topic.num.partitions": 1}

    async def main() -> None:
        async with odradek.Cluster(2, config=internal) as cluster:
            await cluster.create_topic_async("orders")
            await cluster.reset_async("billing", {("orders", 0): 0})
            coordinator = cluster.leader("__consumer_offsets")
            assert coordinator is not None
            await coordinator.stop_async()
            told = r"^there is no leader of __consumer_offsets-0 after 0 s$"
            with pytest.raises(TimeoutError, match=told):
                await cluster.wait_for_group_async("billing", "Empty", timeout=0)

    asyncio.run(main())


def test_waiting_for_records_while_a_session_expires() -> None:
    """Of more partitions than change their leader in one turn of the loop."""

    async def main() -> None:
        async with odradek.Cluster(2) as cluster:
            await cluster.create_topic_async("orders", 60, 2)
            await cluster.produce_many_async("orders", ["x"] * 60)
            waiting = asyncio.create_task(cluster.wait_for_async("orders", 61, FOREVER_S))
            await asyncio.sleep(0)  # it has read these
            cluster.broker(1).server.embedded.store.expire()
            while not waiting.done():
                with suppress(BrokerError):
                    await cluster.produce_async("orders", "last")
                await asyncio.sleep(0)
            assert len(await waiting) >= 61

    asyncio.run(main())


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("listeners", "PLAINTEXT://127.0.0.1:{}"),
        ("listeners", "PLAINTEXT://127.0.0.1:0 , EXTERNAL://[::1]:{}"),
        ("advertised.listeners", "PLAINTEXT://127.0.0.1:{}"),
        ("metrics.listener", "http://127.0.0.1:{}"),
        ("metrics.listener", "http://127.0.0.1:{}/"),
    ],
)
def test_one_port_for_several_brokers(name: str, address: str) -> None:
    """The second broker would find it in use, or clients would be told of one broker three times.
    A broker that is alone may have it."""
    given = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT"}
    refusal = rf"^{re.escape(name)} gives port 9392 to each of 3 brokers, .* give port 0, and each "
    with pytest.raises(ValueError, match=refusal):
        odradek.Cluster(config={**given, name: address.format(9392)})
    odradek.Cluster(1, config={**given, name: address.format(9392)})
    with odradek.Cluster(2, config={**given, name: address.format(0)}) as cluster:
        addresses = cluster.bootstrap_servers.split(",")
        assert len(set(addresses)) == len(addresses)


def test_on_the_running_loop() -> None:
    """Where a test is a coroutine, there is no second thread."""

    async def main() -> None:
        async with odradek.Cluster(2) as cluster:
            await cluster.create_topic_async("a", 2)
            leader, other = roles(cluster, "a")
            await cluster.broker(leader).stop_async()
            assert cluster.partition_state("a", 0).leader == other

    asyncio.run(main())


def test_deleted_records_are_gone_from_every_replica() -> None:
    """A deletion that waits for what followers never tell ends with its time-out."""

    async def delete(servers: str) -> None:
        async with Admin(servers) as admin:
            partition = model.TopicPartition("a", 0)
            assert await admin.delete_records({partition: 2}) == {partition: 2}

    with odradek.Cluster(3) as cluster:
        cluster.create_topic("a")
        produce(cluster, "a", "one", "two", "three")
        asyncio.run(delete(cluster.bootstrap_servers))
        cluster.kill(roles(cluster, "a")[0])
        assert read(cluster, "a", 1, auto_offset_reset="earliest") == ["three"]


def test_replicas_move_to_other_brokers_while_records_come() -> None:
    """A broker could never be emptied, nor a new one filled."""

    async def move(cluster: odradek.Cluster, *replicas: int) -> None:
        async with Admin(cluster.bootstrap_servers) as admin:
            partition = model.TopicPartition("a", 0)
            answer = await admin.alter_partition_reassignments({partition: replicas})
            assert answer == {partition: None}
            async with asyncio.timeout(FOREVER_S):
                while await admin.list_partition_reassignments([partition]):
                    await asyncio.sleep(0.01)

    with odradek.Cluster(4) as cluster:
        cluster.create_topic("a", replication_factor=2, config={"min.insync.replicas": 2})
        produce(cluster, "a", *map(str, range(100)))
        before = cluster.partition_state("a", 0)
        target = [each for each in (1, 2, 3, 4) if each not in before.replicas]
        asyncio.run(move(cluster, *target))
        state = cluster.partition_state("a", 0)
        assert (state.replicas, set(state.isr), state.leader) == (
            tuple(target),
            set(target),
            target[0],
        )
        assert produce(cluster, "a", "100") == [100]
        for broker_id in before.replicas:
            cluster.kill(broker_id)
        assert read(cluster, "a", 101) == [str(number) for number in range(101)]


def test_leaderships_go_back_to_preferred_replicas_by_themselves() -> None:
    """A restarted broker would serve nobody any more."""
    settings = {"leader.imbalance.check.interval.seconds": 1}
    with odradek.Cluster(2, config=settings) as cluster:
        cluster.create_topic("a")
        first, other = roles(cluster, "a")
        cluster.broker(first).stop()
        assert roles(cluster, "a")[0] == other
        cluster.broker(first).start()

        async def led_again() -> None:
            async with asyncio.timeout(FOREVER_S):
                while cluster.partition_state("a", 0).leader != first:
                    await asyncio.sleep(0.01)

        cluster.run(led_again())


@pytest.mark.parametrize("reader", ["confluent-kafka", "our own"])
def test_a_consumer_reads_from_the_replica_in_its_rack(reader: str) -> None:
    """Traffic between racks is what clusters on several of them pay for."""

    async def read_by_ours(servers: str, rack: str) -> list[str]:
        settings = {"client.rack": rack, "client.id": "near", "auto.offset.reset": "earliest"}
        async with OurConsumer(servers, settings) as ours:
            ours.assign([model.TopicPartition("a", 0)])
            found = []
            async with asyncio.timeout(FOREVER_S):
                while len(found) < 3:
                    found.append((await ours.getone()).value.decode())
            return found

    racks = ("one", "two", "three")
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    with odradek.Cluster(3, racks=racks, config={"replica.selector.class": selector}) as cluster:
        cluster.create_topic("a")
        produce(cluster, "a", "one", "two", "three")
        leader, near, _ = roles(cluster, "a")
        rack = racks[near - 1]
        # A fault that does nothing, to count by.
        with cluster.delay(0, "Fetch", broker_id=near, client_id="near") as asked:
            if reader == "our own":
                found = asyncio.run(read_by_ours(cluster.bootstrap_servers, rack))
            else:
                found = read(cluster, "a", 3, client_id="near", client_rack=rack)
            assert found == ["one", "two", "three"]
            assert asked.struck > 0, f"all of it came from {leader}"
