"""Every public call of our clients while something is wrong: what comes out is an error of Kafka's.

If these fail, a KeyError, an AssertionError or another error of our own making reaches a user, or a
part of a client that works in the background died of one. Every public call has a line here.
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from tests.deadlines import deadline_s

import odradek
from odradek.client import Admin, Consumer, Producer, ShareConsumer
from odradek.client.core.admin_types import (
    CommittedOffset,
    ConfigChange,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from odradek.client.core.groups.group_metadata import GroupMetadata
from odradek.client.errors import KafkaError
from odradek.model import TopicPartition

Run = Callable[[Coroutine[Any, Any, None]], None]
Call = tuple[str, Callable[[Any], Any]]
ALL = [TopicPartition("t", index) for index in range(3)]
LAST = ALL[-1]
PATIENCE_S = 0.2
SETTINGS: dict[str, object] = {
    "request_timeout_ms": 300,
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 20,
    "metadata_max_age_ms": 50,
}
CONSUMER_SETTINGS: dict[str, object] = {
    **SETTINGS,
    "default_api_timeout_ms": 300,
    "auto_offset_reset": "earliest",
    "heartbeat_interval_ms": 50,
    "session_timeout_ms": 6_000,
    "auto_commit_interval_ms": 20,
    "group_id": "g",
}


# --- what is called ------------------------------------------------------------------------------


async def _transaction(producer: Producer) -> None:
    async with producer.transaction():
        await producer.send("t", b"v", partition=2)


PRODUCER: list[Call] = [
    ("start", lambda p: p.start()),
    ("metrics", lambda p: p.metrics()),
    ("send", lambda p: p.send("t", b"v", partition=2)),
    ("send_and_wait", lambda p: p.send_and_wait("t", b"v", partition=2)),
    ("send_many", lambda p: p.send_many("t", [b"v", b"w"], partition=2)),
    ("send_many", lambda p: p.send_many("t", [b"v"] * 9, keys=[b"%d" % n for n in range(9)])),
    ("flush", lambda p: p.flush()),
    ("partitions_for", lambda p: p.partitions_for("t")),
]
TRANSACTIONAL: list[Call] = [
    ("init_transactions", lambda p: p.init_transactions()),
    ("begin_transaction", lambda p: p.begin_transaction()),
    *PRODUCER,
    (
        "send_offsets_to_transaction",
        lambda p: p.send_offsets_to_transaction({LAST: CommittedOffset(1)}, GroupMetadata("g")),
    ),
    ("commit_transaction", lambda p: p.commit_transaction()),
    ("abort_transaction", lambda p: p.abort_transaction()),
    ("transaction", _transaction),
    ("stop", lambda p: p.stop()),
    ("close", lambda p: p.close(100)),
]
CONSUMER: list[Call] = [
    ("start", lambda c: c.start()),
    ("metrics", lambda c: c.metrics()),
    ("getmany", lambda c: c.getmany(timeout_ms=100)),
    ("commit", lambda c: c.commit()),
    ("getone", lambda c: c.getone()),
    ("commit_async", lambda c: c.commit_async()),
    ("getmany", lambda c: c.getmany(timeout_ms=50, columns=True)),
    ("store_offsets", lambda c: c.store_offsets(offsets={LAST: 1})),
    ("commit", lambda c: c.commit({LAST: 1})),
    ("subscription", lambda c: c.subscription()),
    ("assignment", lambda c: c.assignment()),
    ("group_metadata", lambda c: c.group_metadata()),
    ("subscribe", lambda c: c.subscribe(["t", "u"])),
    ("getmany", lambda c: c.getmany(timeout_ms=100)),
    ("unsubscribe", lambda c: c.unsubscribe()),
    ("assign", lambda c: c.assign(ALL)),
    ("position", lambda c: c.position(LAST)),
    ("seek", lambda c: c.seek(LAST, 1)),
    ("getmany", lambda c: c.getmany(timeout_ms=100)),
    ("lag", lambda c: c.lag(LAST)),
    ("highwater", lambda c: c.highwater(LAST)),
    ("last_stable_offset", lambda c: c.last_stable_offset(LAST)),
    ("pause", lambda c: c.pause(LAST)),
    ("paused", lambda c: c.paused()),
    ("resume", lambda c: c.resume(LAST)),
    ("seek_to_beginning", lambda c: c.seek_to_beginning()),
    ("seek_to_end", lambda c: c.seek_to_end(LAST)),
    ("getmany", lambda c: c.getmany(timeout_ms=100)),
    ("beginning_offsets", lambda c: c.beginning_offsets(ALL)),
    ("end_offsets", lambda c: c.end_offsets(ALL)),
    ("offsets_for_times", lambda c: c.offsets_for_times(dict.fromkeys(ALL, 0))),
    ("partitions_for", lambda c: c.partitions_for("t")),
    ("committed", lambda c: c.committed(ALL)),
    ("commit", lambda c: c.commit()),
    ("wakeup", lambda c: c.wakeup()),
    ("stop", lambda c: c.stop()),
    ("close", lambda c: c.close(100)),
]
SHARE_CONSUMER: list[Call] = [
    ("start", lambda c: c.start()),
    ("metrics", lambda c: c.metrics()),
    ("set_acknowledgement_commit_callback", lambda c: c.set_acknowledgement_commit_callback(None)),
    ("getmany", lambda c: c.getmany(timeout_ms=100)),
    ("commit", lambda c: c.commit()),
    ("getone", lambda c: c.getone()),
    ("acknowledge", lambda c: c.acknowledge(c.read_before[0])),
    ("process", lambda c: c.process(c.read_before[1]).__aenter__()),
    ("commit_async", lambda c: c.commit_async()),
    ("acquisition_lock_timeout_ms", lambda c: c.acquisition_lock_timeout_ms),
    ("subscription", lambda c: c.subscription()),
    ("subscribe", lambda c: c.subscribe(["t", "u"])),
    ("getmany", lambda c: c.getmany(timeout_ms=100)),
    ("unsubscribe", lambda c: c.unsubscribe()),
    ("wakeup", lambda c: c.wakeup()),
    ("stop", lambda c: c.stop()),
    ("close", lambda c: c.close(100)),
]
RESOURCE = ConfigResource.topic("t")
ADMIN: list[Call] = [
    ("start", lambda a: a.start()),
    ("metrics", lambda a: a.metrics()),
    ("abort_transaction", lambda a: a.abort_transaction(LAST, 1, 0, 0)),
    ("alter_client_quotas", lambda a: a.alter_client_quotas({(("user", "a"),): {"x": None}})),
    ("alter_configs", lambda a: a.alter_configs({RESOURCE: [ConfigChange("retention.ms", "9")]})),
    ("alter_group_offsets", lambda a: a.alter_group_offsets("h", {LAST: CommittedOffset(0)})),
    ("alter_partition_reassignments", lambda a: a.alter_partition_reassignments({LAST: [1]})),
    ("alter_replica_log_dirs", lambda a: a.alter_replica_log_dirs({(1, LAST): "/none"})),
    ("alter_scram_users", lambda a: a.alter_scram_users(delete=[("a", "SCRAM-SHA-256")])),
    ("alter_share_group_offsets", lambda a: a.alter_share_group_offsets("s", {LAST: 0})),
    ("broker_versions", lambda a: a.broker_versions(1)),
    ("create_acls", lambda a: a.create_acls([])),
    ("create_delegation_token", lambda a: a.create_delegation_token()),
    ("create_partitions", lambda a: a.create_partitions({"t": NewPartitions(2)})),
    ("create_topics", lambda a: a.create_topics([NewTopic("t", 1), NewTopic("v", 1)])),
    ("delete_acls", lambda a: a.delete_acls([])),
    ("delete_group_offsets", lambda a: a.delete_group_offsets("h", ALL)),
    ("delete_groups", lambda a: a.delete_groups(["h"])),
    ("delete_records", lambda a: a.delete_records({LAST: 0})),
    ("delete_share_group_offsets", lambda a: a.delete_share_group_offsets("s", ["t"])),
    ("describe_acls", lambda a: a.describe_acls()),
    ("describe_client_quotas", lambda a: a.describe_client_quotas()),
    ("describe_cluster", lambda a: a.describe_cluster()),
    ("describe_configs", lambda a: a.describe_configs([RESOURCE])),
    ("describe_delegation_tokens", lambda a: a.describe_delegation_tokens()),
    ("describe_features", lambda a: a.describe_features()),
    ("describe_groups", lambda a: a.describe_groups(["g", "h"])),
    ("describe_log_dirs", lambda a: a.describe_log_dirs()),
    ("describe_producers", lambda a: a.describe_producers(ALL)),
    ("describe_quorum", lambda a: a.describe_quorum()),
    ("describe_scram_users", lambda a: a.describe_scram_users(["a"])),
    ("describe_topic", lambda a: a.describe_topic("t")),
    ("describe_topics", lambda a: a.describe_topics(["t", "u"])),
    ("describe_transactions", lambda a: a.describe_transactions(["x"])),
    ("elect_leaders", lambda a: a.elect_leaders(partitions=ALL)),
    ("eligible_leaders", lambda a: a.eligible_leaders(["t"])),
    ("expire_delegation_token", lambda a: a.expire_delegation_token(b"t")),
    ("force_terminate_transaction", lambda a: a.force_terminate_transaction("y")),
    ("list_config_resources", lambda a: a.list_config_resources()),
    ("list_group_offsets", lambda a: a.list_group_offsets(["g"], ALL)),
    ("list_groups", lambda a: a.list_groups()),
    ("list_offsets", lambda a: a.list_offsets(dict.fromkeys(ALL, -1))),
    ("list_partition_reassignments", lambda a: a.list_partition_reassignments(ALL)),
    ("list_share_group_offsets", lambda a: a.list_share_group_offsets(["s"], ALL)),
    ("list_topics", lambda a: a.list_topics()),
    ("list_transactions", lambda a: a.list_transactions()),
    ("remove_members", lambda a: a.remove_members("g", {"m": None})),
    ("renew_delegation_token", lambda a: a.renew_delegation_token(b"t")),
    ("unregister_broker", lambda a: a.unregister_broker(9)),
    ("delete_topics", lambda a: a.delete_topics(["t", "u"])),
    ("stop", lambda a: a.stop()),
    ("close", lambda a: a.close()),
]


# --- what is wrong meanwhile ---------------------------------------------------------------------


@asynccontextmanager
async def made_anew(broker: odradek.Broker) -> AsyncIterator[None]:
    """With fewer partitions, and fewer records."""
    await broker.delete_topic_async("t")
    await broker.create_topic_async("t", partitions=1)
    yield


@asynccontextmanager
async def deleted(broker: odradek.Broker) -> AsyncIterator[None]:
    await broker.delete_topic_async("t")
    yield


def refused(code: str) -> Any:
    """Whatever is asked; who is refused metadata gets no further."""

    @asynccontextmanager
    async def fault(broker: odradek.Broker) -> AsyncIterator[None]:
        with broker.fail(APIS, code):
            yield

    return fault


@asynccontextmanager
async def cut_off(broker: odradek.Broker) -> AsyncIterator[None]:
    with broker.cut():
        yield


@asynccontextmanager
async def gone(broker: odradek.Broker) -> AsyncIterator[None]:
    await broker.stop_async()
    yield
    await broker.start_async()


APIS = [
    *("Produce", "Fetch", "ListOffsets", "OffsetCommit", "OffsetFetch", "JoinGroup", "Heartbeat"),
    *("SyncGroup", "LeaveGroup", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn"),
    *("EndTxn", "TxnOffsetCommit", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "ShareFetch"),
    *("ShareAcknowledge", "DescribeGroups", "DeleteGroups", "DeleteTopics", "CreateTopics"),
]
FAULTS: dict[str, Callable[[odradek.Broker], Any]] = {
    "made anew": made_anew,
    "deleted": deleted,
    "a fault of the broker": refused("UNKNOWN_SERVER_ERROR"),
    "another id": refused("UNKNOWN_TOPIC_ID"),
    "another coordinator": refused("NOT_COORDINATOR"),
    "not allowed": refused("TOPIC_AUTHORIZATION_FAILED"),
    "a member that nobody knows": refused("UNKNOWN_MEMBER_ID"),
    "cut off": cut_off,
    "gone": gone,
}
QUICK = "made anew"
by_fault = pytest.mark.parametrize(
    "fault",
    [pytest.param(each, marks=() if each == QUICK else pytest.mark.slow) for each in FAULTS],
)


async def walk(client: Any, calls: list[Call]) -> None:
    """Makes the calls, one after the other, and holds what comes of them."""
    for name, call in calls:
        try:
            async with asyncio.timeout(PATIENCE_S) as limit:
                found = call(client)
                if inspect.isawaitable(found):
                    found = await found
                if isinstance(found, asyncio.Future):
                    await found
        except KafkaError:
            pass
        except TimeoutError:
            assert limit.expired(), f"{name} raised a TimeoutError of its own"
        except Exception as error:
            raise AssertionError(f"{name} raised {error!r}") from error


async def until_done(call: Callable[[], Any]) -> None:
    """As often as it takes: the limits are short, and the machine may be slow."""
    async with asyncio.timeout(deadline_s(60)):
        while True:
            with suppress(KafkaError):
                await call()
                return


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Any:
    """Work in the background does not fail either."""
    caplog.set_level(logging.ERROR, "odradek.client")
    yield
    said = [each.getMessage() for each in caplog.records if each.name.startswith("odradek.client")]
    assert not said


@asynccontextmanager
async def filled() -> AsyncIterator[odradek.Broker]:
    async with odradek.Broker() as broker:
        await broker.create_topic_async("t", partitions=3)
        await broker.create_topic_async("u", partitions=1)
        for partition in ALL:
            await broker.produce_many_async("t", [b"v"] * 9, partition=partition.partition)
        yield broker


@pytest.mark.parametrize(
    ("kind", "calls"),
    [
        (Producer, TRANSACTIONAL),
        (Consumer, CONSUMER),
        (ShareConsumer, SHARE_CONSUMER),
        (Admin, ADMIN),
    ],
)
def test_every_public_call_is_made(kind: type, calls: list[Call]) -> None:
    assert {name for name, _ in calls} == {each for each in dir(kind) if not each.startswith("_")}


@by_fault
@pytest.mark.parametrize("transactional_id", [None, "x"])
def test_a_producer(run: Run, fault: str, transactional_id: str | None) -> None:
    limits = {"delivery_timeout_ms": 300, "max_block_ms": 300, "linger_ms": 0}

    async def scenario() -> None:
        async with filled() as broker:
            if transactional_id is not None:
                limits["transactional_id"] = transactional_id  # type: ignore[assignment]
            producer = Producer(broker.bootstrap_servers, **SETTINGS, **limits)
            await until_done(lambda: producer.partitions_for("t"))
            if transactional_id is None:
                await until_done(lambda: producer.send_and_wait("t", b"v", partition=2))
            else:
                await until_done(producer.init_transactions)
                await until_done(lambda: _transaction(producer))
                producer.begin_transaction()
            async with FAULTS[fault](broker):
                await walk(producer, PRODUCER if transactional_id is None else TRANSACTIONAL[2:])
                await walk(producer, TRANSACTIONAL)

    run(scenario())


@by_fault
@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky", "consumer"])
def test_a_consumer(run: Run, fault: str, protocol: str) -> None:
    settings: dict[str, object] = {"partition_assignment_strategy": protocol}
    if protocol == "consumer":
        settings = {"group_protocol": "consumer"}

    async def scenario() -> None:
        async with filled() as broker:
            consumer = Consumer(broker.bootstrap_servers, **CONSUMER_SETTINGS, **settings)
            consumer.subscribe(["t"])
            async with asyncio.timeout(deadline_s(60)):
                while consumer.assignment() != set(ALL):
                    await until_done(lambda: consumer.getmany(timeout_ms=100, max_records=2))
                await until_done(consumer.getone)
            async with FAULTS[fault](broker):
                await walk(consumer, CONSUMER)

    run(scenario())


@by_fault
def test_a_share_consumer(run: Run, fault: str) -> None:
    async def scenario() -> None:
        async with filled() as broker:
            settings = {**SETTINGS, "default_api_timeout_ms": 300, "group_id": "s"}
            consumer: Any = ShareConsumer(broker.bootstrap_servers, **settings)
            consumer.subscribe(["t"])
            consumer.read_before = []

            async def read() -> None:
                # A share group begins at the end.
                await broker.produce_many_async("t", [b"v"] * 9, partition=0)
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    consumer.read_before += records

            while len(consumer.read_before) < 2:
                await until_done(read)
            async with FAULTS[fault](broker):
                await walk(consumer, SHARE_CONSUMER)

    run(scenario())


@by_fault
def test_an_admin(run: Run, fault: str) -> None:
    async def scenario() -> None:
        async with filled() as broker:
            settings = {**SETTINGS, "default_api_timeout_ms": 300}
            admin = Admin(broker.bootstrap_servers, **settings)
            await until_done(lambda: admin.describe_topic("t"))
            async with FAULTS[fault](broker):
                await walk(admin, ADMIN)

    run(scenario())
