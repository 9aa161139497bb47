"""An admin before brokers of which some fail, and answers that lack what was asked for.

What several brokers are asked about fails or succeeds item by item, and a change that may have been
made is not made again. If these fail, an admin forgets what it has done, or tells of it wrongly.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest
from tests.simulation.client.consuming.client_groups import (
    BROKERS,
    CREATE_TOPICS,
    FIND_COORDINATOR,
    METADATA,
    TOPIC,
)
from tests.simulation.client.test_client_cluster import (
    FLEXIBLE_FROM,
    Answer,
    Stage,
    answering,
    play,
)
from tests.simulation.virtual import Connection, LoopClock

from odradek.acl import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    PatternType,
    PermissionType,
    ResourcePattern,
)
from odradek.client import Admin, NewPartitions
from odradek.client.core.admin_types import CommittedOffset, ConfigResource, NewTopic
from odradek.client.errors import KafkaError, NetworkError, RequestError
from odradek.errors import ErrorCode
from odradek.model import AclOperation, ResourceType, TopicPartition
from odradek.protocol import messages
from odradek.protocol.header import RequestHeader, decode_request_header

DELETE_GROUPS, DESCRIBE_CONFIGS, ALTER_REPLICA_LOG_DIRS = 42, 32, 34
CREATE_ACLS, DELETE_ACLS, ALTER_CLIENT_QUOTAS, DESCRIBE_TRANSACTIONS = 30, 31, 49, 65
DELETE_TOPICS, CREATE_PARTITIONS, OFFSET_FETCH, DESCRIBE_GROUPS = 20, 37, 9, 15
API_VERSIONS, DESCRIBE_CLUSTER, DESCRIBE_QUORUM, ELECT_LEADERS = 18, 60, 55, 43
TOO_LARGE = 1 << 70
Ask = Callable[[Admin], Coroutine[Any, Any, Any]]


def body(header: RequestHeader, frame: bytes) -> Any:
    position = decode_request_header(memoryview(frame), FLEXIBLE_FROM).body_position
    return messages.decode_request(header.api_key, header.api_version, memoryview(frame), position)


def coordinators(connection: Connection, header: RequestHeader, frame: bytes, send: Answer) -> bool:
    """Group or transactional id `g2` is broker 2's."""
    if header.api_key != FIND_COORDINATOR:
        return False
    [key] = body(header, frame).coordinator_keys
    node_id = int(key[1:])
    found = {"key": key, "node_id": node_id, "host": connection.host, "port": node_id}
    return answering(FIND_COORDINATOR, {"coordinators": [found]})(connection, header, frame, send)


def at(port: int, key: int, values: dict[str, object], times: int = 1_000_000) -> Any:
    """Answers as `answering` does, by one broker."""
    bend = answering(key, values, times)
    return lambda connection, *rest: connection.port == port and bend(connection, *rest)


SETTINGS: dict[str, Any] = {"request_timeout_ms": 3_000, "default_api_timeout_ms": 10_000}


def on_stage(scenario: Callable[[Stage, Admin], Coroutine[Any, Any, None]]) -> None:
    async def with_admin(stage: Stage) -> None:
        with stage.bent(coordinators):
            async with stage.client(Admin, **SETTINGS) as admin:
                await scenario(stage, admin)

    play(with_admin)


def test_what_one_coordinator_did_is_told_though_another_fails() -> None:
    """The retry would be told that the group is not there, of one that it deleted."""

    def deleted(group_id: str, code: int = 0) -> dict[str, object]:
        return {"results": [{"group_id": group_id, "error_code": code}]}

    async def scenario(stage: Stage, admin: Admin) -> None:
        gone = deleted("g1", ErrorCode.GROUP_ID_NOT_FOUND)
        with (
            stage.bent(at(1, DELETE_GROUPS, deleted("g1"), times=1)),
            stage.bent(at(1, DELETE_GROUPS, gone)),
            stage.bent(at(2, DELETE_GROUPS, deleted("g2", ErrorCode.NOT_COORDINATOR), times=1)),
            stage.bent(at(2, DELETE_GROUPS, deleted("g2"))),
        ):
            stage.network.kill_broker(2)
            asyncio.get_running_loop().call_later(2, stage.network.dead_brokers.clear)
            assert await admin.delete_groups(["g1", "g2"]) == {"g1": None, "g2": None}

    on_stage(scenario)


def test_a_dead_broker_is_an_error_of_what_it_was_asked_for() -> None:
    async def scenario(stage: Stage, admin: Admin) -> None:
        one, two = ConfigResource.broker(1), ConfigResource.broker(2)
        result = {"error_code": 0, "resource_type": int(one.type), "resource_name": "1"}
        with stage.bent(at(1, DESCRIBE_CONFIGS, {"results": [{**result, "configs": []}]})):
            await admin.list_topics()
            stage.network.kill_broker(2)
            found = await admin.describe_configs([two, one])
            assert found[one] == {}
            assert isinstance(found[two], NetworkError)

    on_stage(scenario)


@pytest.mark.parametrize("order", [("new", "gone"), ("gone", "new")])
def test_the_order_of_items_does_not_decide_how_long_is_waited(order: tuple[str, str]) -> None:
    """An unknown topic is told after two seconds, whatever it is asked with."""

    async def scenario(stage: Stage, admin: Admin) -> None:
        loop = asyncio.get_running_loop()
        codes = {
            "gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "new": ErrorCode.LEADER_NOT_AVAILABLE,
        }
        asked: list[set[str]] = []

        def bend(_: Connection, header: RequestHeader, frame: bytes, send: Answer) -> bool:
            if header.api_key != CREATE_TOPICS:
                return False
            names = [each.name for each in body(header, frame).topics]
            asked.append(set(names))
            is_over = loop.time() > 6
            topics = [
                {"name": each, "error_code": 0 if is_over and each == "new" else codes[each]}
                for each in names
            ]
            return answering(CREATE_TOPICS, {"topics": topics})(_, header, frame, send)

        with stage.bent(bend):
            found = await admin.create_topics([NewTopic(each, 1) for each in order])
        assert not isinstance(found["new"], KafkaError)
        error = found["gone"]
        assert isinstance(error, KafkaError)
        assert error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert asked[-1] == {"new"}, "nobody asks for the other one any more"

    on_stage(scenario)


def test_a_refusal_of_any_item_has_the_controller_looked_up() -> None:
    created = {"topics": [{"name": each, "error_code": 0} for each in "ab"]}
    refused = {
        "topics": [
            {"name": "a", "error_code": ErrorCode.LEADER_NOT_AVAILABLE},
            {"name": "b", "error_code": ErrorCode.NOT_CONTROLLER},
        ]
    }

    async def scenario(stage: Stage, admin: Admin) -> None:
        await admin.list_topics()
        stage.brokers.controller = 2
        with (
            stage.bent(at(1, CREATE_TOPICS, refused)),
            stage.bent(at(2, CREATE_TOPICS, created)),
        ):
            found = await admin.create_topics([NewTopic(each, 1) for each in "ab"])
        assert not any(isinstance(each, KafkaError) for each in found.values()), found

    on_stage(scenario)


PATTERN = ResourcePattern(ResourceType.TOPIC, "t", PatternType.LITERAL)
ENTRY = AccessControlEntry("User:a", "*", AclOperation.READ, PermissionType.ALLOW)
OFFSETS = {TopicPartition("t", 0): CommittedOffset(1)}
LACKING: dict[str, tuple[int, dict[str, object], Ask]] = {
    "create_acls": (
        CREATE_ACLS,
        {"results": []},
        lambda admin: admin.create_acls([AclBinding(PATTERN, ENTRY)]),
    ),
    "delete_acls": (
        DELETE_ACLS,
        {"filter_results": []},
        lambda admin: admin.delete_acls([AclFilter()]),
    ),
    "alter_client_quotas": (
        ALTER_CLIENT_QUOTAS,
        {"entries": []},
        lambda admin: admin.alter_client_quotas({(("user", "a"),): {"request_percentage": 1.0}}),
    ),
    "describe_transactions": (
        DESCRIBE_TRANSACTIONS,
        {"transaction_states": []},
        lambda admin: admin.describe_transactions(["g1"]),
    ),
    "list_group_offsets": (
        OFFSET_FETCH,
        {"groups": []},
        lambda admin: admin.list_group_offsets(["g1"]),
    ),
    "describe_groups": (
        DESCRIBE_GROUPS,
        {"groups": []},
        lambda admin: admin.describe_groups(["g1"]),
    ),
    "describe_configs": (
        DESCRIBE_CONFIGS,
        {"results": [{"resource_type": 99, "resource_name": "t", "configs": []}]},
        lambda admin: admin.describe_configs([ConfigResource.topic("t")]),
    ),
    "alter_replica_log_dirs": (
        ALTER_REPLICA_LOG_DIRS,
        {"results": []},
        lambda admin: admin.alter_replica_log_dirs({(1, TopicPartition("t", 0)): "/d"}),
    ),
}


@pytest.mark.parametrize("name", LACKING)
def test_an_answer_that_lacks_an_item_is_an_error_of_the_item(name: str) -> None:
    key, values, ask = LACKING[name]

    async def scenario(stage: Stage, admin: Admin) -> None:
        with stage.bent(answering(key, values)):
            [error] = (await ask(admin)).values()
        assert isinstance(error, KafkaError)
        assert "says nothing of" in error.message

    on_stage(scenario)


def test_a_quorum_that_is_left_out_is_an_error_that_says_so() -> None:
    async def scenario(stage: Stage, admin: Admin) -> None:
        with (
            stage.bent(answering(DESCRIBE_QUORUM, {"topics": []})),
            pytest.raises(NetworkError, match="says nothing of __cluster_metadata"),
        ):
            await admin.describe_quorum()

    on_stage(scenario)


def test_a_coordinator_that_nobody_looks_up_is_an_error_of_its_group() -> None:
    async def scenario(stage: Stage, admin: Admin) -> None:
        with stage.bent(answering(FIND_COORDINATOR, {"coordinators": []})):
            stage.bends.reverse()
            [error] = (await admin.list_group_offsets(["g1"])).values()
            stage.bends.reverse()
        assert isinstance(error, NetworkError)

    on_stage(scenario)


def test_a_coordinator_that_left_the_metadata_is_no_fault() -> None:
    """The answer to a question for metadata that was on its way does not have it any more."""
    brokers = [{"node_id": each, "host": "client", "port": each} for each in BROKERS if each != 2]
    group = {"group_id": "g2", "error_code": 0, "group_state": "Empty", "members": []}

    async def scenario(stage: Stage, admin: Admin) -> None:
        def bend(connection: Connection, header: RequestHeader, frame: bytes, send: Answer) -> bool:
            if header.api_key != DESCRIBE_GROUPS:
                return False
            admin._cluster.metadata = admin._cluster.metadata.merged(
                type(admin._cluster.metadata)(), is_complete=True
            )
            return answering(DESCRIBE_GROUPS, {"groups": [group]})(connection, header, frame, send)

        with stage.bent(answering(METADATA, {"brokers": brokers, "topics": []})), stage.bent(bend):
            found = (await admin.describe_groups(["g2"]))["g2"]
        assert not isinstance(found, KafkaError), found
        assert found.coordinator is not None
        assert found.coordinator.id == 2

    on_stage(scenario)


CHANGES: dict[str, tuple[int, dict[str, object], Ask]] = {
    "create_topics": (
        CREATE_TOPICS,
        {"topics": [{"name": "t", "topic_id": UUID(int=0)}]},
        lambda admin: admin.create_topics([NewTopic("t", 1)]),
    ),
    "delete_topics": (
        DELETE_TOPICS,
        {"responses": [{"name": "t", "topic_id": UUID(int=0)}]},
        lambda admin: admin.delete_topics(["t"]),
    ),
    "create_partitions": (
        CREATE_PARTITIONS,
        {"results": [{"name": "t"}]},
        lambda admin: admin.create_partitions({"t": NewPartitions(3)}),
    ),
    "delete_groups": (
        DELETE_GROUPS,
        {"results": [{"group_id": "g1"}]},
        lambda admin: admin.delete_groups(["g1"]),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("is_answered", [True, False])
def test_a_change_that_may_have_been_made_is_not_made_again(name: str, is_answered: bool) -> None:
    """The second attempt would say that the topic is there already."""
    key, values, ask = CHANGES[name]
    [(field, [item])] = values.items()  # type: ignore[misc]
    timed_out = {field: [{**item, "error_code": ErrorCode.REQUEST_TIMED_OUT}]}

    async def scenario(stage: Stage, admin: Admin) -> None:
        def silent(_: Connection, header: RequestHeader, *__: Any) -> bool:
            return header.api_key == key

        with stage.bent(answering(key, timed_out) if is_answered else silent):
            [error] = (await ask(admin)).values()
        assert isinstance(error, KafkaError)
        assert error.code == ErrorCode.REQUEST_TIMED_OUT
        assert stage.count(key) == 1

    on_stage(scenario)


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("is_answered", [True, False])
def test_who_timed_out_is_not_asked_for_the_next_change(name: str, is_answered: bool) -> None:
    """It may be cut off, and another be controller or coordinator: each change would time out."""
    key, values, ask = CHANGES[name]
    [(field, [item])] = values.items()  # type: ignore[misc]
    timed_out = {field: [{**item, "error_code": ErrorCode.REQUEST_TIMED_OUT}]}

    async def scenario(stage: Stage, admin: Admin) -> None:
        def silent(connection: Connection, header: RequestHeader, *_: Any) -> bool:
            return header.api_key == key and connection.port == 1

        await admin.list_topics()
        bends = at(1, key, timed_out) if is_answered else silent
        with stage.bent(bends):
            [error] = (await ask(admin)).values()
            assert isinstance(error, KafkaError)
            stage.brokers.controller = 2

            def moved(connection: Connection, header: RequestHeader, *rest: Any) -> bool:
                found = {"key": "g1", "node_id": 2, "host": connection.host, "port": 2}
                bend = answering(FIND_COORDINATOR, {"coordinators": [found]})
                return bend(connection, header, *rest)

            stage.bends.insert(0, moved)
            with stage.bent(at(2, key, values)):
                [done] = (await ask(admin)).values()
            stage.bends.remove(moved)
        assert not isinstance(done, KafkaError), done
        assert stage.count(key, 2) == 1

    on_stage(scenario)


@pytest.mark.parametrize("is_answered", [True, False])
def test_an_election_that_may_have_been_held_is_not_held_again(is_answered: bool) -> None:
    """The second attempt would not say who has been elected."""
    timed_out = {"error_code": ErrorCode.REQUEST_TIMED_OUT, "replica_election_results": []}

    async def scenario(stage: Stage, admin: Admin) -> None:
        def silent(_: Connection, header: RequestHeader, *__: Any) -> bool:
            return header.api_key == ELECT_LEADERS

        bend = answering(ELECT_LEADERS, timed_out) if is_answered else silent
        with stage.bent(bend), pytest.raises(KafkaError) as refused:
            await admin.elect_leaders()
        assert refused.value.code == ErrorCode.REQUEST_TIMED_OUT
        assert stage.count(ELECT_LEADERS) == 1

    on_stage(scenario)


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_controller_that_is_none_any_more_is_left(code: ErrorCode) -> None:
    """KRaft's controllers (KIP-919): for some of them the leader of the quorum is meant."""

    async def scenario(stage: Stage) -> None:
        active = [1]

        def cluster(connection: Connection, *rest: Any) -> bool:
            nodes = [{"broker_id": each, "host": "client", "port": each} for each in BROKERS]
            values = {"endpoint_type": 2, "controller_id": active[0], "brokers": nodes}
            return answering(DESCRIBE_CLUSTER, values)(connection, *rest)

        def create(connection: Connection, *rest: Any) -> bool:
            is_active = connection.port == active[0]
            topic = {"name": "t", "error_code": 0 if is_active else code}
            return answering(CREATE_TOPICS, {"topics": [topic]})(connection, *rest)

        clock = LoopClock(asyncio.get_running_loop())
        servers = {"bootstrap.controllers": "client:1,client:2"}
        with stage.bent(cluster), stage.bent(create):
            async with Admin(config=servers, clock=clock, **SETTINGS) as admin:
                for node_id in (1, 2):
                    active[0] = node_id
                    found = (await admin.create_topics([NewTopic("t", 1)]))["t"]
                    assert not isinstance(found, KafkaError), found

    play(scenario)


@pytest.mark.parametrize(
    "ask",
    [
        lambda admin: admin.list_topics(),  # by Metadata, which no controller needs
        lambda admin: admin.list_groups(),  # by an API that controllers lack
    ],
)
def test_what_controllers_do_not_take_is_refused_with_kafka_s_code(ask: Ask) -> None:
    """As Kafka's tools do with `--bootstrap-controller`."""

    async def scenario(stage: Stage) -> None:
        values = {
            "endpoint_type": 2,
            "controller_id": 1,
            "brokers": [{"broker_id": 1, "host": "client", "port": 1}],
        }
        served = [
            {"api_key": key, "min_version": 0, "max_version": 1}
            for key in (API_VERSIONS, DESCRIBE_CLUSTER)
        ]
        clock = LoopClock(asyncio.get_running_loop())
        servers = {"bootstrap.controllers": "client:1"}
        with (
            stage.bent(answering(API_VERSIONS, {"api_keys": served})),
            stage.bent(answering(DESCRIBE_CLUSTER, values)),
        ):
            async with Admin(config=servers, clock=clock, **SETTINGS) as admin:
                with pytest.raises(KafkaError, match="not yet supported") as refused:
                    await ask(admin)
        assert refused.value.code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE

    play(scenario)


NAMED: dict[str, Ask] = {
    "delete_topics": lambda admin: admin.delete_topics("ab"),
    "describe_topics": lambda admin: admin.describe_topics("ab"),
    "eligible_leaders": lambda admin: admin.eligible_leaders("ab"),
    "delete_groups": lambda admin: admin.delete_groups("ab"),
    "describe_groups": lambda admin: admin.describe_groups("ab"),
    "list_groups": lambda admin: admin.list_groups("Empty"),
    "list_group_offsets": lambda admin: admin.list_group_offsets("ab"),
    "list_share_group_offsets": lambda admin: admin.list_share_group_offsets("ab"),
    "delete_share_group_offsets": lambda admin: admin.delete_share_group_offsets("g1", "ab"),
    "list_transactions": lambda admin: admin.list_transactions("Ongoing"),
    "describe_transactions": lambda admin: admin.describe_transactions("ab"),
    "describe_scram_users": lambda admin: admin.describe_scram_users("ab"),
}


@pytest.mark.parametrize("name", NAMED)
def test_one_name_is_no_list_of_letters(name: str) -> None:
    """Fails when a name is taken for a list of letters: deleting `ab` would delete `a` and `b`."""

    async def scenario(_stage: Stage, admin: Admin) -> None:
        with pytest.raises(TypeError, match="is one name, where a list of names is asked for"):
            await NAMED[name](admin)

    on_stage(scenario)


ONE: Any = TopicPartition("ab", 0)
OF_ONE_PARTITION: dict[str, Ask] = {
    "describe_producers": lambda admin: admin.describe_producers(ONE),
    "elect_leaders": lambda admin: admin.elect_leaders(partitions=ONE),
    "list_group_offsets": lambda admin: admin.list_group_offsets(["g1"], ONE),
    "delete_group_offsets": lambda admin: admin.delete_group_offsets("g1", ONE),
    "list_share_group_offsets": lambda admin: admin.list_share_group_offsets(["g1"], ONE),
    "list_partition_reassignments": lambda admin: admin.list_partition_reassignments(ONE),
}


@pytest.mark.parametrize("name", OF_ONE_PARTITION)
def test_one_partition_is_no_list_of_them(name: str) -> None:
    """It is a topic and a number: the one would be unpacked, and the other be no partition."""

    async def scenario(_stage: Stage, admin: Admin) -> None:
        with pytest.raises(TypeError, match="is one partition, where a list of partitions"):
            await OF_ONE_PARTITION[name](admin)

    on_stage(scenario)


NUMBERS: list[Any] = [
    (lambda admin: admin.create_topics([NewTopic("new", TOO_LARGE)]), "CreateTopics"),
    (lambda admin: admin.create_topics([NewTopic("new", 1, 1 << 15)]), "CreateTopics"),
    (lambda admin: admin.create_partitions({TOPIC: NewPartitions(1 << 31)}), "CreatePartitions"),
]


@pytest.mark.parametrize(("ask", "api"), NUMBERS)
def test_a_number_that_does_not_fit_into_a_request_is_told(ask: Ask, api: str) -> None:
    async def scenario(_stage: Stage, admin: Admin) -> None:
        with pytest.raises(RequestError, match=f"does not fit into its field of {api}"):
            await ask(admin)

    on_stage(scenario)


def test_a_number_that_does_not_fit_is_the_error_of_the_partition_it_is_for() -> None:
    partition = TopicPartition(TOPIC, 0)

    async def scenario(_stage: Stage, admin: Admin) -> None:
        found = await admin.list_offsets({partition: TOO_LARGE})
        assert "does not fit into its field of ListOffsets" in str(found[partition])

    on_stage(scenario)
