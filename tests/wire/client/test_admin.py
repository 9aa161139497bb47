"""The admin against brokers: what the command line and a console stand on.

If these fail, a tool shows what is not so, or changes something else than it says.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest
from tests.streams import serving
from tests.wire.replicas import REPLICAS, await_forgotten, await_known, only_of_one

import odradek
from odradek.client import Admin
from odradek.client.core.admin_types import (
    CommittedOffset,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    CreatedTopic,
    NewPartitions,
    NewTopic,
)
from odradek.client.core.consuming.list_offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from odradek.client.errors import (
    AuthorizationError,
    ClientClosed,
    GroupError,
    KafkaError,
    NetworkError,
    RequestError,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from odradek.errors import ErrorCode
from odradek.model import TopicPartition

Run = Callable[[Any], Any]


def test_topics_are_made_shown_grown_and_deleted(servers: str, topic: str, run: Run) -> None:
    async def scenario() -> None:
        async with Admin(servers) as admin:
            new = NewTopic(topic, 2, REPLICAS, {"retention.ms": "60000"})
            dry = await admin.create_topics([new], validate_only=True)
            assert isinstance(dry[topic], CreatedTopic)
            assert topic not in await admin.list_topics()
            bad = NewTopic(f"{topic}!", 1, 1)
            made = await admin.create_topics([new, bad])
            await_known(servers, topic, 2)
            created = made[topic]
            assert isinstance(created, CreatedTopic)
            assert (created.partitions, created.replication_factor) == (2, REPLICAS)
            assert created.config["retention.ms"].value == "60000"
            assert isinstance(made[bad.name], RequestError)
            again = (await admin.create_topics([new]))[topic]
            assert isinstance(again, KafkaError)
            assert again.code == ErrorCode.TOPIC_ALREADY_EXISTS
            assert again.message == f"Topic '{topic}' already exists."
            [grown, gone] = (
                await admin.create_partitions(
                    {topic: NewPartitions(3), f"{topic}-gone": NewPartitions(3)}
                )
            ).values()
            assert grown is None
            assert isinstance(gone, UnknownTopicOrPartition)
            await_known(servers, topic, 3)
            while len((described := await admin.describe_topic(topic)).partitions) < 3:
                await asyncio.sleep(0.05)
            assert described.topic_id == created.topic_id
            leaders = [each.leader for each in described.partition_metadata.values()]
            assert all(leader in range(1, REPLICAS + 1) for leader in leaders)
            deleted = await admin.delete_topics([topic, f"{topic}-gone"])
            assert deleted[topic] is None
            assert isinstance(deleted[f"{topic}-gone"], UnknownTopicOrPartition)
            while topic in await admin.list_topics():
                await asyncio.sleep(0.05)
            await_forgotten(servers, topic)
            with pytest.raises(UnknownTopicOrPartition):
                await admin.describe_topic(topic)

    run(scenario())


def test_settings_are_changed_one_by_one(servers: str, topic: str, run: Run) -> None:
    async def scenario() -> None:
        async with Admin(servers) as admin:
            await admin.create_topics([NewTopic(topic, 1, REPLICAS, {"cleanup.policy": "delete"})])
            await_known(servers, topic)
            resource = ConfigResource.topic(topic)
            changes = [
                ConfigChange("retention.ms", "5000"),
                ConfigChange("cleanup.policy", "compact", ConfigOperation.APPEND),
            ]
            assert await admin.alter_configs({resource: changes}) == {resource: None}
            entries = (await admin.describe_configs([resource], include_synonyms=True))[resource]
            while entries["retention.ms"].value != "5000":
                await asyncio.sleep(0.05)
                entries = (await admin.describe_configs([resource], include_synonyms=True))[
                    resource
                ]
            assert entries["cleanup.policy"].value == "delete,compact"
            assert entries["retention.ms"].synonyms[0].name == "retention.ms"
            back = [ConfigChange("retention.ms", None, ConfigOperation.DELETE)]
            assert await admin.alter_configs({resource: back}) == {resource: None}
            broker = ConfigResource.broker(1)
            gone = ConfigResource.topic(f"{topic}-gone")
            found = await admin.describe_configs([broker, gone])
            assert found[broker]["log.segment.bytes"].value == "1073741824"
            assert isinstance(found[gone], UnknownTopicOrPartition)
            wrong = [ConfigChange("retention.ms", "soon")]
            assert isinstance((await admin.alter_configs({resource: wrong}))[resource], KafkaError)

    run(scenario())


def test_offsets_and_records(servers: str, topic: str, run: Run) -> None:
    empty, unknown = TopicPartition(topic, 0), TopicPartition(topic, 7)

    async def scenario() -> None:
        async with Admin(servers, default_api_timeout_ms=20_000) as admin:
            await admin.create_topics([NewTopic(topic, 1, REPLICAS)])
            await_known(servers, topic)
            found = await admin.list_offsets({empty: LATEST, unknown: EARLIEST})
            assert found[empty].offset == 0
            assert isinstance(found[unknown], UnknownTopicOrPartition)
            assert (await admin.list_offsets({empty: MAX_TIMESTAMP}))[empty].offset == -1
            deleted = await admin.delete_records({empty: 0})
            assert deleted == {empty: 0}
            too_far = (await admin.delete_records({empty: 5}))[empty]
            assert isinstance(too_far, KafkaError)
            assert too_far.code == ErrorCode.OFFSET_OUT_OF_RANGE

    run(scenario())


def test_offsets_of_groups(servers: str, topic: str, names: Callable[[str], str], run: Run) -> None:
    group = names("group")
    one, unknown = TopicPartition(topic, 0), TopicPartition(topic, 7)

    async def scenario() -> None:
        async with Admin(servers) as admin:
            await admin.create_topics([NewTopic(topic, 1, REPLICAS)])
            await_known(servers, topic)
            committed = CommittedOffset(3, "here")
            altered = await admin.alter_group_offsets(group, {one: committed, unknown: committed})
            assert altered[one] is None
            assert isinstance(altered[unknown], UnknownTopicOrPartition)
            assert (await admin.list_group_offsets([group]))[group] == {one: committed}
            some = await admin.list_group_offsets([group], [one, unknown])
            assert some[group] == {one: committed}
            [listed] = [each for each in await admin.list_groups() if each.group_id == group]
            assert (listed.state, listed.type.lower()) == ("Empty", "classic")
            assert group not in [each.group_id for each in await admin.list_groups(["Stable"])]
            described = (await admin.describe_groups([group]))[group]
            assert (described.state, described.type, described.members) == ("Empty", "Classic", ())
            assert described.coordinator.id in range(1, REPLICAS + 1)
            assert await admin.delete_group_offsets(group, [one]) == {one: None}
            assert (await admin.list_group_offsets([group]))[group] == {}
            await admin.alter_group_offsets(group, {one: committed})
            assert await admin.delete_groups([group]) == {group: None}
            gone = (await admin.delete_groups([group]))[group]
            assert isinstance(gone, GroupError)

    run(scenario())


def test_a_group_that_is_refused_keeps_nothing_of_the_others_back(run: Run) -> None:
    async def scenario(servers: str) -> None:
        async with Admin(servers) as admin:
            await admin.create_topics([NewTopic("t", 1, 1)])
            await admin.alter_group_offsets("ours", {TopicPartition("t", 0): CommittedOffset(0)})
            described = await admin.describe_groups(["theirs", "ours"])
            assert isinstance(described["theirs"], AuthorizationError)
            assert "FindCoordinator" in described["theirs"].message
            assert described["ours"].state == "Empty"
            deleted = await admin.delete_groups(["theirs", "ours"])
            assert isinstance(deleted["theirs"], AuthorizationError)
            assert deleted["ours"] is None

    with (
        odradek.Broker() as broker,
        broker.fail("FindCoordinator", "GROUP_AUTHORIZATION_FAILED", group="theirs"),
    ):
        run(scenario(broker.bootstrap_servers))


@only_of_one
def test_the_cluster_is_described(servers: str, topic: str, run: Run) -> None:
    async def scenario() -> None:
        async with Admin(servers) as admin:
            await admin.create_topics([NewTopic(topic, 1, REPLICAS)])
            cluster = await admin.describe_cluster()
            [node] = cluster.nodes
            assert (node.id, f"{node.host}:{node.port}") == (1, servers)
            assert cluster.cluster_id
            # Kafka's brokers hear of a topic a moment after it was created; a leader has its log.
            await admin.list_offsets({TopicPartition(topic, 0): -1})
            [directory] = (await admin.describe_log_dirs())[1]
            assert directory.replicas[TopicPartition(topic, 0)].size_bytes == 0
            assert (await admin.broker_versions(1))[18][0] == 0
            elected = await admin.elect_leaders(partitions=[TopicPartition(topic, 0)])
            [result] = elected.values()
            assert isinstance(result, KafkaError)
            assert result.code == ErrorCode.ELECTION_NOT_NEEDED
            assert await admin.elect_leaders() == {}
            producers = await admin.describe_producers([TopicPartition(topic, 0)])
            assert producers == {TopicPartition(topic, 0): []}

    run(scenario())


def test_a_broker_that_is_not_there_is_named_in_time(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    async def scenario() -> None:
        async with Admin(f"127.0.0.1:{port}", default_api_timeout_ms=200) as admin:
            with pytest.raises(NetworkError, match=str(port)):
                await admin.list_topics()

    run(scenario())


def test_a_broker_that_never_answers_costs_the_request_its_time(run: Run) -> None:
    """The connection comes up at the kernel's backlog, and nobody reads."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        async def scenario() -> None:
            settings = {
                "default_api_timeout_ms": 100,
                "socket_connection_setup_timeout_ms": 50,
            }
            async with Admin(f"127.0.0.1:{port}", **settings) as admin:
                with pytest.raises((NetworkError, RequestTimedOut), match="no connection within"):
                    await admin.list_topics()

        run(scenario())


@pytest.mark.parametrize("answer", [b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\0\0\0\4\0\0\0\x2a", b""])
def test_a_broker_that_lies_is_a_network_error(answer: bytes, run: Run) -> None:
    async def lie(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.write(answer)

    async def scenario() -> None:
        settings = {"default_api_timeout_ms": 100}
        async with serving(lie) as port, Admin(f"127.0.0.1:{port}", **settings) as admin:
            with pytest.raises(NetworkError):
                await admin.list_topics()

    run(scenario())


def test_closing_ends_the_calls_under_way(bootstrap: str, run: Run) -> None:
    async def scenario() -> None:
        admin = Admin(bootstrap)
        call = asyncio.create_task(admin.list_topics())
        await asyncio.sleep(0)
        await admin.close()
        with pytest.raises(ClientClosed):
            await call
        with pytest.raises(ClientClosed):
            await admin.list_topics()

    run(scenario())
