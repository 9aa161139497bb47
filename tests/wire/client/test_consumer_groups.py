"""The consumer as a member of groups, against brokers. If these fail, partitions are owned twice or
by nobody, or listeners are told what is not so."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.deadlines import deadline_s
from tests.wire.client.consuming import fill, keep_reading, read, until, write

import odradek
from odradek.client import Admin, Consumer
from odradek.client.core.admin_types import CommittedOffset, NewPartitions
from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.client.errors import CommitFailed, KafkaError
from odradek.model import TopicPartition

Run = Callable[[Any], Any]
# Members of the newer protocol send a heartbeat every five seconds.
SLOW = pytest.mark.slow
ASSIGNORS = ["range", "roundrobin", "sticky", "cooperative-sticky"]


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=SLOW)])
def test_a_group_goes_on_where_it_was(
    modern_servers: str, topic: str, names: Callable[[str], str], run: Run, protocol: str
) -> None:
    group = names("group")
    settings = {
        "group_id": group,
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
        "client_id": "reader",
    }

    async def scenario() -> None:
        await fill(modern_servers, topic, [10, 10])
        async with Consumer(modern_servers, **settings) as consumer:
            consumer.subscribe([topic])
            first = [await consumer.getone() for _ in range(7)]
            await consumer.commit()
            committed = await consumer.committed(
                [TopicPartition(topic, 0), TopicPartition(topic, 1)]
            )
            total = sum(each.offset for each in committed.values() if each is not None)
            assert total == 7
            assert consumer.group_metadata().generation_id > 0
            async with Admin(modern_servers) as admin:
                found = (await admin.describe_groups([group]))[group]
                assert (found.state, found.type.lower()) == ("Stable", protocol)
                [member] = found.members
                assert member.client_id == "reader"
                assert set(member.partitions) == consumer.assignment()
        async with Consumer(modern_servers, **settings) as consumer:
            consumer.subscribe(pattern=f"{topic}.*")
            rest = await read(consumer, 13)
            seen: list[object] = []
            consumer.commit_async(callback=lambda offsets, error: seen.append((offsets, error)))
            while not seen:
                await consumer.getmany(timeout_ms=50)
            # With the epoch of the leader that wrote the record before (KIP-320).
            expected = {TopicPartition(topic, each): CommittedOffset(10, "", 0) for each in (0, 1)}
            assert seen == [(expected, None)]
        places = [(each.partition, each.offset) for each in (*first, *rest)]
        assert sorted(places) == [(p, o) for p in (0, 1) for o in range(10)]
        async with Admin(modern_servers) as admin:
            assert (await admin.describe_groups([group]))[group].members == ()

    run(scenario())


class Listener:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.told.append(("assigned", len(partitions)))

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(0)
        self.told.append(("revoked", len(partitions)))


async def hand_over(
    servers: str, topic: str, count: int, listener: object = None, **settings: Any
) -> None:
    """One member reads four partitions, shares them with another and leaves them to it: nothing is
    owned twice, nothing is lost, and each record is read once, as all is committed."""
    await fill(servers, topic, [count] * 4)
    found: list[ConsumerRecord] = []
    one, two = Consumer(servers, **settings), Consumer(servers, **settings)
    one.subscribe([topic], listener=listener)
    two.subscribe([topic])
    first = asyncio.create_task(keep_reading(one, found))
    await until(lambda: len(one.assignment()) == 4 and len(found) == 4 * count)
    second = asyncio.create_task(keep_reading(two, found))
    await until(lambda: len(one.assignment()) == len(two.assignment()) == 2)
    assert not one.assignment() & two.assignment()
    await write(servers, topic, [1] * 4)
    await until(lambda: len(found) >= 4 * (count + 1))
    await leave(one, first)
    await until(lambda: len(two.assignment()) == 4)
    await leave(two, second)
    places = sorted((each.partition, each.offset) for each in found)
    assert places == [(p, o) for p in range(4) for o in range(count + 1)]


async def leave(consumer: Consumer, reader: asyncio.Task[None]) -> None:
    """Ends a member and who reads by it."""
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    await consumer.close()


@pytest.mark.parametrize("assignor", [*ASSIGNORS, pytest.param("consumer", marks=SLOW)])
def test_members_share_and_hand_over(
    modern_servers: str, topic: str, names: Callable[[str], str], run: Run, assignor: str
) -> None:
    """Fails when members of a group of this client and its brokers lose or repeat a record."""
    settings: dict[str, object] = {
        "group_id": names("group"),
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 100,
        "auto_commit_interval_ms": 100,
    }
    if assignor == "consumer":
        settings["group_protocol"] = "consumer"
    else:
        settings["partition_assignment_strategy"] = assignor
    listener = Listener()
    run(hand_over(modern_servers, topic, 20, listener, **settings))
    eager = assignor in ("range", "roundrobin", "sticky")
    begin = [("assigned", 4), ("revoked", 4), ("assigned", 2)] if eager else [("assigned", 4)]
    assert listener.told[: len(begin)] == begin
    assert listener.told[-1] == ("revoked", 2)


def test_a_group_of_the_newer_protocol_hands_over(topic: str, run: Run) -> None:
    """As above, on a broker whose members need not wait for their heartbeats."""
    settings = {"group_id": "g", "group_protocol": "consumer", "auto_offset_reset": "earliest"}

    async def scenario() -> None:
        async with odradek.Broker() as broker:
            await hand_over(broker.bootstrap_servers, topic, 3, **settings)

    run(scenario())


def test_members_of_other_clients_are_in_the_same_group(
    bootstrap: str, topic: str, names: Callable[[str], str], run: Run
) -> None:
    """librdkafka and we share out to each other, whoever leads."""
    from confluent_kafka import Consumer as Theirs

    group = names("group")

    async def scenario() -> None:
        await fill(bootstrap, topic, [0] * 4)
        for assignor in ("range", "roundrobin", "cooperative-sticky"):
            settings = {
                "group_id": f"{group}-{assignor}",
                "partition_assignment_strategy": assignor,
                "heartbeat_interval_ms": 100,
            }
            theirs = Theirs(
                {
                    "bootstrap.servers": bootstrap,
                    "group.id": f"{group}-{assignor}",
                    "partition.assignment.strategy": assignor,
                    "heartbeat.interval.ms": 100,
                }
            )
            async with Consumer(bootstrap, **settings) as ours:
                ours.subscribe([topic])
                await asyncio.to_thread(theirs.subscribe, [topic])
                while not len(ours.assignment()) == len(theirs.assignment()) == 2:
                    await ours.getmany(timeout_ms=20)
                    await asyncio.to_thread(theirs.poll, 0.02)
                their_partitions = {each.partition for each in theirs.assignment()}
                assert {0, 1, 2, 3} == their_partitions | {
                    each.partition for each in ours.assignment()
                }
                await asyncio.to_thread(theirs.close)
                while len(ours.assignment()) < 4:
                    await ours.getmany(timeout_ms=20)

    run(scenario())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_listener_may_ask_where_it_stands_and_go_elsewhere(
    modern_servers: str, topic: str, names: Callable[[str], str], run: Run, protocol: str
) -> None:
    """Records are given out before it is known where to begin, or the two wait for each other."""
    one = TopicPartition(topic, 0)
    settings = {"group_protocol": protocol, "auto_offset_reset": "earliest"}

    async def scenario() -> None:
        await fill(modern_servers, topic, [4])
        may_go = asyncio.Event()
        positions: list[int] = []

        class Choosing:
            async def on_partitions_assigned(self, _: list[TopicPartition]) -> None:
                positions.append(await consumer.position(one))
                await may_go.wait()
                consumer.seek(one, 2)

            async def on_partitions_revoked(self, _: list[TopicPartition]) -> None:
                positions.append(await consumer.position(one))

        async with Consumer(modern_servers, group_id=names("group"), **settings) as consumer:
            consumer.subscribe([topic], listener=Choosing())
            while not positions:
                await consumer.getmany(timeout_ms=50)
            for columns in (False, True):
                for _ in range(5):
                    assert not await consumer.getmany(timeout_ms=50, columns=columns)
            may_go.set()
            assert [each.offset for each in await read(consumer, 2)] == [2, 3]
        assert positions == [0, 4]

    run(scenario())


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky", "consumer"])
def test_a_listener_that_raises_is_told_of_and_stops_nothing(
    bootstrap: str, topic: str, names: Callable[[str], str], run: Run, assignor: str
) -> None:
    """Partitions would stay with somebody who has lost them, or go to nobody."""

    class Failing:
        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            raise RuntimeError("assigned")

        async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            raise RuntimeError("revoked")

    settings: dict[str, object] = {"group_id": names("group"), "heartbeat_interval_ms": 100}
    if assignor == "consumer":
        settings["group_protocol"] = "consumer"
    else:
        settings["partition_assignment_strategy"] = assignor
    told: list[str] = []

    async def read(consumer: Consumer) -> None:
        while True:
            try:
                await consumer.getmany(timeout_ms=50)
            except KafkaError as error:
                told.append(str(error.__cause__))

    async def scenario() -> None:
        await fill(bootstrap, topic, [0] * 4)
        async with Consumer(bootstrap, **settings) as one:
            one.subscribe([topic], listener=Failing())
            first = asyncio.create_task(read(one))
            await until(lambda: len(one.assignment()) == 4)
            async with Consumer(bootstrap, **settings) as two:
                two.subscribe([topic])
                second = asyncio.create_task(read(two))
                await until(lambda: len(one.assignment()) == len(two.assignment()) == 2)
                assert not one.assignment() & two.assignment()
                second.cancel()
                await asyncio.gather(second, return_exceptions=True)
            await until(lambda: len(one.assignment()) == 4)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)

    run(scenario())
    assert told[0] == "assigned"
    assert "revoked" in told


def test_a_reader_that_is_late_leaves_and_comes_back(
    bootstrap: str, topic: str, names: Callable[[str], str], run: Run
) -> None:
    async def scenario() -> None:
        await fill(bootstrap, topic, [3])
        settings = {
            "group_id": names("group"),
            "max_poll_interval_ms": 1000 * deadline_s(1),
            "heartbeat_interval_ms": 50,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
        }
        async with Consumer(bootstrap, **settings) as consumer:
            consumer.subscribe([topic])
            await read(consumer, 3)
            membership = consumer._subscription.membership
            await until(lambda: membership.metadata.generation_id < 0)
            with pytest.raises(CommitFailed):
                await consumer.commit()
            assert len(await read(consumer, 3)) == 3, "nothing was committed"
            await consumer.commit()

    run(scenario())


def test_a_static_leader_that_came_back_looks_for_new_partitions(
    servers: str, topic: str, names: Callable[[str], str], run: Run
) -> None:
    """It shares out nothing when it comes back; partitions that are added then are its to find."""
    settings: dict[str, object] = {
        "group_id": names("group"),
        "group_instance_id": "leader",
        "metadata_max_age_ms": 100,
        "heartbeat_interval_ms": 100,
    }

    async def scenario() -> None:
        await fill(servers, topic, [0])
        for partitions in (1, 2):
            async with Consumer(servers, **settings) as consumer:
                consumer.subscribe([topic])
                while not consumer.assignment():
                    await consumer.getmany(timeout_ms=50)
                async with Admin(servers) as admin:
                    await admin.create_partitions({topic: NewPartitions(partitions)})
                while len(consumer.assignment()) < partitions:
                    await consumer.getmany(timeout_ms=50)

    run(scenario())
