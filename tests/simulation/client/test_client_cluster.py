"""Clients of ours before brokers that are silent, behind, or wrong, on a clock that jumps.

The brokers are those of `client_groups`; what they answer is bent here. If these fail, a client
asks in a storm, waits for one broker where others would answer, or tells of what passes by itself.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from tests.simulation.client.consuming.client_groups import (
    BROKERS,
    FIND_COORDINATOR,
    GROUP,
    METADATA,
    OFFSET_COMMIT,
    SETTINGS,
    TICK_MS,
    TOPIC,
    Brokers,
)
from tests.simulation.virtual import Connection, LoopClock, Network, VirtualLoop

from odradek.client import Admin, Assignor, Consumer, Producer
from odradek.client.addresses import Address
from odradek.client.aio.connection import open_connection
from odradek.client.core.admin_types import NewTopic
from odradek.client.errors import (
    KafkaError,
    LogTruncated,
    NetworkError,
    RequestTimedOut,
    UsageError,
    WokenUp,
)
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.protocol import messages
from odradek.protocol.header import (
    RequestHeader,
    decode_request_header,
    encode_response_header,
    response_header_version,
)

CREATE_TOPICS, HEARTBEAT, SYNC_GROUP, CONSUMER_HEARTBEAT = 19, 12, 14, 68
LIST_OFFSETS = 2
SERVERS = ",".join(f"client:{each}" for each in BROKERS)
ALL = [TopicPartition(TOPIC, index) for index in range(4)]
KNOWN_BROKERS = [{"node_id": each, "host": "client", "port": each} for each in BROKERS]
Answer = Callable[[bytes], None]
# Answers in the place of the brokers, and says so; else they do.
Bend = Callable[[Connection, RequestHeader, bytes, Answer], bool]
PROTOCOLS = ["range", "cooperative-sticky", "consumer"]


class Stage:
    """Brokers, what they were asked, and what is bent of their answers."""

    def __init__(self) -> None:
        self.brokers = Brokers(random.Random(7))
        self.network = Network(random.Random(7), self.serve)
        self.asked: list[tuple[int, int]] = []
        self.bends: list[Bend] = []
        self.silent: set[int] = set()
        self._seeds = count(7)  # members make their ids from them
        self.brokers.ends = dict.fromkeys(self.brokers.ends, 20)

    def serve(self, connection: Connection, frame: bytes, answer: Answer) -> None:
        header = decode_request_header(memoryview(frame), FLEXIBLE_FROM)
        self.asked.append((header.api_key, connection.port))
        if connection.port in self.silent:
            return
        for bend in self.bends:
            if bend(connection, header, frame, answer):
                return
        self.brokers.serve(connection, frame, answer)

    def count(self, key: int, port: int | None = None) -> int:
        """How often an API was asked for."""
        return sum(each == key and port in (None, of) for each, of in self.asked)

    def committed(self, partition: TopicPartition) -> int:
        """The offset that the group has committed, 0 before."""
        return self.brokers.world.committed(GROUP).get(partition, 0)

    @contextmanager
    def bent(self, bend: Bend) -> Iterator[None]:
        self.bends.append(bend)
        yield
        self.bends.remove(bend)

    def client(self, kind: Callable[..., Any], **settings: object) -> Any:
        clock = LoopClock(asyncio.get_running_loop())
        return kind(SERVERS, clock=clock, rng=random.Random(next(self._seeds)), **settings)

    def consumer(self, **settings: object) -> Consumer:
        return self.client(Consumer, config=SETTINGS | {"metadata.max.age.ms": 300_000}, **settings)

    def member(self, protocol: str, **settings: object) -> Consumer:
        if protocol == "consumer":
            return self.consumer(group_protocol="consumer", **settings)
        return self.consumer(partition_assignment_strategy=protocol, **settings)


FLEXIBLE_FROM = Brokers.flexible_from


def play(scenario: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    async def on_stage() -> None:
        stage = Stage()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.network = stage.network

        async def tick() -> None:
            while True:
                await asyncio.sleep(TICK_MS / 1000)
                stage.brokers.tick()

        ticking = asyncio.create_task(tick())
        try:
            async with asyncio.timeout(600):
                await scenario(stage)
        finally:
            ticking.cancel()
            await asyncio.gather(ticking, return_exceptions=True)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(on_stage())


def answering(key: int, values: Mapping[str, object], times: int = 1_000_000) -> Bend:
    """These values to an API, so many times."""
    left = [times]

    def bend(_: Connection, header: RequestHeader, __: bytes, answer: Answer) -> bool:
        if header.api_key != key or not left[0]:
            return False
        left[0] -= 1
        version = response_header_version(key, header.api_version, FLEXIBLE_FROM[key])
        body = messages.encode_response(key, header.api_version, values)
        answer(encode_response_header(header.correlation_id, version) + body)
        return True

    return bend


def silence(*keys: int) -> Bend:
    return lambda _, header, __, ___: header.api_key in keys


async def read(consumer: Consumer, count: int) -> dict[TopicPartition, list[int]]:
    """Reads so many records, or all that come within a minute."""
    found: dict[TopicPartition, list[int]] = {}
    with suppress(TimeoutError):
        async with asyncio.timeout(60):
            while sum(map(len, found.values())) < count:
                for partition, records in (await consumer.getmany(timeout_ms=500)).items():
                    found.setdefault(partition, []).extend(each.offset for each in records)
    return found


class Told:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[TopicPartition]]] = []

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.told.append(("assigned", partitions))

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.told.append(("revoked", partitions))

    async def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(0.01)
        self.told.append(("lost", partitions))

    @property
    def gone(self) -> list[tuple[str, list[TopicPartition]]]:
        return [each for each in self.told if each[0] != "assigned"]


# --- metadata -----------------------------------------------------------------------------------


def test_a_cancelled_caller_leaves_the_time_out_behind() -> None:
    """A broker that is silent stays the least loaded one for ever, and everything asks it."""

    async def scenario(stage: Stage) -> None:
        async with stage.client(Admin, request_timeout_ms=3_000) as admin:
            await admin.list_topics()
            [port] = {port for key, port in stage.asked if key == METADATA}
            stage.silent.add(port)
            asking = asyncio.create_task(admin.list_topics())
            await asyncio.sleep(1)
            asking.cancel()
            await asyncio.sleep(2.5)
            async with asyncio.timeout(1):
                assert TOPIC in await admin.list_topics()
            assert stage.asked[-1][1] != port

    play(scenario)


def test_a_connection_that_was_idle_for_long_is_not_asked_again() -> None:
    """Fails when a question waits for its whole time-out: a gateway may have forgotten it."""

    async def scenario(stage: Stage) -> None:
        forgotten = set()

        def forgets(connection: Connection, *_: object) -> bool:
            return connection in forgotten

        def remembers(connection: Connection, *_: object) -> bool:
            forgotten.add(connection)
            return False

        async with stage.client(Admin, connections_max_idle_ms=60_000) as admin:
            with stage.bent(remembers):
                await admin.list_topics()
            with stage.bent(forgets):
                await asyncio.sleep(61)
                async with asyncio.timeout(1):
                    assert TOPIC in await admin.list_topics()

    play(scenario)


def test_a_partition_without_leader_is_no_storm() -> None:
    async def scenario(stage: Stage) -> None:
        stage.brokers.lead(0, None)
        async with stage.consumer(group_id="", auto_offset_reset="earliest") as consumer:
            consumer.assign(ALL)
            found = await read(consumer, 60)
            assert {each.partition for each in found} == {1, 2, 3}
            before = stage.count(METADATA)
            await consumer.getmany(timeout_ms=10_000)
            assert 5 <= stage.count(METADATA) - before <= 15
            stage.brokers.lead(0, 3)
            assert list(await read(consumer, 20)) == [ALL[0]]

    play(scenario)


def test_many_first_sends_share_one_question() -> None:
    """And of a topic that is missing nobody asks without a pause, however many want it."""

    async def scenario(stage: Stage) -> None:
        missing = {
            "brokers": KNOWN_BROKERS,
            "topics": [{"error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "name": "missing"}],
        }
        with stage.bent(answering(METADATA, missing)):
            async with stage.client(Producer, max_block_ms=5_000) as producer:
                sending = [producer.send("missing", b"v") for _ in range(2_000)]
                outcomes = await asyncio.gather(*sending, return_exceptions=True)
        assert all(isinstance(each, RequestTimedOut) for each in outcomes)
        assert 4 <= stage.count(METADATA) <= 20

    play(scenario)


def test_many_who_get_no_answer_do_not_each_ask_again() -> None:
    """Nor at once: each of them would ask anew as soon as the pause of its own is over."""

    async def scenario(stage: Stage) -> None:
        def malformed(_: Connection, header: RequestHeader, __: bytes, answer: Answer) -> bool:
            if header.api_key == METADATA:
                answer(encode_response_header(header.correlation_id, 1))
            return header.api_key == METADATA

        with stage.bent(malformed):
            async with stage.client(Producer, max_block_ms=5_000) as producer:
                sending = []
                for _ in range(100):
                    sending.append(asyncio.create_task(producer.send("t", b"v")))
                    await asyncio.sleep(0.01)
                outcomes = await asyncio.gather(*sending, return_exceptions=True)
        assert all(isinstance(each, RequestTimedOut) for each in outcomes)
        assert 4 <= stage.count(METADATA) <= 25

    play(scenario)


def test_one_question_for_metadata_is_under_way_at_a_time() -> None:
    """The next one has all that was wanted meanwhile."""
    topics = [{"error_code": ErrorCode.INVALID_TOPIC_EXCEPTION, "name": each} for each in "abcd"]
    late = answering(METADATA, {"brokers": KNOWN_BROKERS, "topics": topics})

    async def scenario(stage: Stage) -> None:
        def after_a_second(*asked: Any) -> bool:
            asyncio.get_running_loop().call_later(1, late, *asked)
            return bool(asked[1].api_key == METADATA)

        with stage.bent(after_a_second):
            async with stage.client(Producer) as producer:
                sending = []
                for topic in "abcd":
                    sending.append(asyncio.create_task(producer.send(topic, b"v")))
                    await asyncio.sleep(0.1)
                assert stage.count(METADATA) == 1
                await asyncio.wait(sending)
                assert stage.count(METADATA) == 2

    play(scenario)


def test_an_answer_without_the_topic_is_an_error_that_says_so() -> None:
    """It would be a KeyError."""

    async def scenario(stage: Stage) -> None:
        with stage.bent(answering(METADATA, {"brokers": KNOWN_BROKERS, "topics": []})):
            async with stage.consumer() as consumer:
                with pytest.raises(NetworkError, match="says nothing of t"):
                    await consumer.partitions_for("t")

    play(scenario)


@pytest.mark.parametrize("kind", [Producer, Consumer])
def test_what_a_client_says_of_a_topic_grows_old(kind: Callable[..., Any]) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.client(kind, metadata_max_age_ms=10_000) as client:
            assert len((await client.partitions_for(TOPIC)).partitions) == 4
            stage.brokers.ends[4] = 0
            stage.brokers.leaders[4] = (1, 0)
            await asyncio.sleep(9)
            assert len((await client.partitions_for(TOPIC)).partitions) == 4
            await asyncio.sleep(1)
            assert len((await client.partitions_for(TOPIC)).partitions) == 5

    play(scenario)


def test_one_silent_broker_does_not_keep_the_partitions_of_others() -> None:
    async def scenario(stage: Stage) -> None:
        settings = {"group_id": "", "auto_offset_reset": "earliest", "request_timeout_ms": 3_000}
        async with stage.consumer(**settings) as consumer:
            consumer.assign(ALL)
            await read(consumer, 80)
            # Of all brokers the one that is asked for metadata.
            [port] = {port for key, port in stage.asked if key == METADATA}
            stage.silent.add(port)
            others = {each for each, (leader, _) in stage.brokers.leaders.items() if leader != port}
            for _ in range(40):
                # Whatever has been given up meanwhile, and asked of whom.
                stage.brokers.ends = {each: end + 1 for each, end in stage.brokers.ends.items()}
                async with asyncio.timeout(1):
                    found = await read(consumer, len(others))
                assert {each.partition for each in found} == others

    play(scenario)


def test_who_waits_for_a_record_has_those_of_the_brokers_that_have_answered() -> None:
    """It would wait for the end of the question to the silent one."""

    async def scenario(stage: Stage) -> None:
        def bend(connection: Connection, header: RequestHeader, *_: object) -> bool:
            return header.api_key == LIST_OFFSETS and connection.port == BROKERS[0]

        async with stage.consumer(group_id="", auto_offset_reset="earliest") as consumer:
            consumer.assign(ALL)
            with stage.bent(bend):
                async with asyncio.timeout(1):
                    assert (await consumer.getone()).offset == 0

    play(scenario)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_what_passes_is_not_told_and_asks_for_metadata(code: ErrorCode) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.consumer(group_id="", auto_offset_reset="earliest") as consumer:
            consumer.assign(ALL)
            await read(consumer, 80)
            before = stage.count(METADATA)
            stage.brokers.fetch_error = code
            assert await consumer.getmany(timeout_ms=2_000) == {}
            assert stage.count(METADATA) > before
            stage.brokers.fetch_error = ErrorCode.NONE
            stage.brokers.ends = dict.fromkeys(stage.brokers.ends, 21)
            assert len(await read(consumer, 4)) == 4

    play(scenario)


# --- admins -------------------------------------------------------------------------------------


def test_an_admin_finds_the_new_controller() -> None:
    """Whether the one before says so, or says nothing any more."""
    created = {"topics": [{"name": "new", "error_code": 0}]}
    refused = {"topics": [{"name": "new", "error_code": ErrorCode.NOT_CONTROLLER}]}

    async def scenario(stage: Stage) -> None:
        def bend(connection: Connection, *rest: Any) -> bool:
            is_controller = connection.port == stage.brokers.controller
            return answering(CREATE_TOPICS, created if is_controller else refused)(
                connection, *rest
            )

        settings = {"request_timeout_ms": 3_000, "default_api_timeout_ms": 20_000}
        with stage.bent(bend):
            async with stage.client(Admin, **settings) as admin:
                for controller in (1, 2, 3):
                    stage.brokers.controller = controller
                    found = await admin.create_topics([NewTopic("new", 1)])
                    assert not isinstance(found["new"], KafkaError), found
                stage.network.kill_broker(3)
                stage.brokers.controller = 1
                found = await admin.create_topics([NewTopic("new", 1)])
                assert not isinstance(found["new"], KafkaError), found

    play(scenario)


def test_an_admin_gives_up_after_its_retries() -> None:
    async def scenario(stage: Stage) -> None:
        values = {"coordinators": [{"key": GROUP, "error_code": 15}]}
        with stage.bent(answering(FIND_COORDINATOR, values)):
            async with stage.client(Admin, retries=3) as admin:
                found = await admin.list_group_offsets([GROUP])
                assert isinstance(found[GROUP], KafkaError)
        assert stage.count(FIND_COORDINATOR) == 4

    play(scenario)


# --- connections --------------------------------------------------------------------------------


def test_every_address_of_a_name_has_a_time_out_of_its_own() -> None:
    async def scenario(stage: Stage) -> None:
        stage.network.names["broker"] = ["silent", "alive"]
        stage.network.unreachable.add("silent")
        connection = await open_connection(Address("broker", 1), "me", 2_000)
        assert connection.is_ready
        connection.close()
        stage.network.names["broker"] = ["silent"]
        with pytest.raises(NetworkError, match="no connection within 2000 ms"):
            await open_connection(Address("broker", 1), "me", 2_000)

    play(scenario)


def test_who_is_cancelled_while_a_connection_comes_up_leaves_none() -> None:
    """Also who is when all has just gone well: nobody would close it any more."""

    async def scenario(stage: Stage) -> None:
        opening = asyncio.create_task(open_connection(Address("client", 1), "me", 2_000))
        while not stage.network.connections:
            await asyncio.sleep(0.001)
        [connection] = stage.network.connections
        ready: asyncio.Future[None] = connection._protocol._ready  # type: ignore[attr-defined]
        ready.add_done_callback(lambda _: opening.cancel())
        await asyncio.gather(opening, return_exceptions=True)
        assert opening.cancelled()
        assert not stage.network.connections

    play(scenario)


# --- members ------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_heartbeats_do_not_wait_for_metadata(protocol: str) -> None:
    """A member whose question for metadata is not answered is thrown out, though it lives."""

    async def scenario(stage: Stage) -> None:
        told = Told()
        config = {"metadata_max_age_ms": 1_000, "request_timeout_ms": 60_000}
        async with stage.client(
            Consumer,
            config=SETTINGS | {"max.poll.interval.ms": 300_000},
            **config,
            **(
                {"group_protocol": "consumer"}
                if protocol == "consumer"
                else {"partition_assignment_strategy": protocol}
            ),
        ) as consumer:
            consumer.subscribe(pattern=".*", listener=told)
            await read(consumer, 80)
            with stage.bent(silence(METADATA)):
                for _ in range(40):
                    await consumer.getmany(timeout_ms=500)
                assert told.gone == []
                assert len(consumer.assignment()) == 4
                [group] = [
                    each
                    for shard in stage.brokers.world.runtime.shards()
                    for each in shard.registry
                ]
                assert len(group.members) == 1, "the coordinator has heard of it all the time"

    play(scenario)


def test_a_topic_that_a_broker_does_not_know_for_a_while_takes_no_partition() -> None:
    """KIP-848: the coordinator, which assigns, knows it."""

    async def scenario(stage: Stage) -> None:
        told = Told()
        async with stage.member("consumer", metadata_max_age_ms=1_000) as consumer:
            consumer.subscribe([TOPIC], listener=told)
            await read(consumer, 80)
            for code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE):
                stage.brokers.topic_error = code
                for _ in range(10):
                    await consumer.getmany(timeout_ms=1_000)
            assert told.gone == []

    play(scenario)


@pytest.mark.parametrize(
    "known",
    [
        {"error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "name": TOPIC, "topic_id": None},
        {"error_code": 0, "name": TOPIC, "topic_id": UUID(int=7), "partitions": []},
    ],
    ids=["no", "another of its name"],
)
def test_an_assigned_topic_that_is_not_known_yet_is_asked_for_again(known: Any) -> None:
    """KIP-848: the broker that was asked heard of it later than the coordinator."""
    behind = {"brokers": KNOWN_BROKERS, "controller_id": 1, "topics": [known]}

    async def scenario(stage: Stage) -> None:
        async with stage.member("consumer") as consumer:
            with stage.bent(answering(METADATA, behind)):
                consumer.subscribe([TOPIC])
                assert await consumer.getmany(timeout_ms=5_000) == {}
            assert await read(consumer, 80) == {each: list(range(20)) for each in ALL}

    play(scenario)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("by_pattern", [True, False])
def test_a_passing_error_of_a_topic_takes_no_partition(protocol: str, by_pattern: bool) -> None:
    async def scenario(stage: Stage) -> None:
        told = Told()
        async with stage.client(
            Consumer,
            config=SETTINGS | {"metadata.max.age.ms": 1_000},
            **(
                {"group_protocol": "consumer"}
                if protocol == "consumer"
                else {"partition_assignment_strategy": protocol}
            ),
        ) as consumer:
            if by_pattern:
                consumer.subscribe(pattern=".*", listener=told)
            else:
                consumer.subscribe([TOPIC], listener=told)
            await read(consumer, 80)
            stage.brokers.topic_error = ErrorCode.LEADER_NOT_AVAILABLE
            for _ in range(10):
                await consumer.getmany(timeout_ms=1_000)
            stage.brokers.topic_error = ErrorCode.NONE
            for _ in range(10):
                await consumer.getmany(timeout_ms=1_000)
            assert told.gone == []

    play(scenario)


def test_a_cooperative_member_keeps_what_it_has_when_a_rebalance_begins_anew() -> None:
    """REBALANCE_IN_PROGRESS in SyncGroup: another has joined meanwhile, nobody is thrown out."""
    again = {"error_code": ErrorCode.REBALANCE_IN_PROGRESS, "assignment": b""}

    async def scenario(stage: Stage) -> None:
        told = Told()
        async with stage.member("cooperative-sticky") as consumer:
            consumer.subscribe([TOPIC], listener=told)
            await read(consumer, 80)
            with stage.bent(answering(SYNC_GROUP, again, times=2)):
                async with stage.member("cooperative-sticky") as other:
                    other.subscribe([TOPIC])
                    while len(other.assignment()) < 2:
                        await asyncio.gather(
                            consumer.getmany(timeout_ms=200), other.getmany(timeout_ms=200)
                        )
                    assert await other.getmany(timeout_ms=500) == {}
            assert [name for name, _ in told.gone] == ["revoked"]
            assert len(told.gone[0][1]) == 2, "it gave up what the other one got, and kept the rest"

    play(scenario)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_that_was_held_is_given_out_after_a_loss(protocol: str) -> None:
    """A partition that was lost and came back is read from its commit on, in order: `getone` has
    hundreds of records from before in hand."""
    key = CONSUMER_HEARTBEAT if protocol == "consumer" else HEARTBEAT
    thrown_out = {"error_code": ErrorCode.UNKNOWN_MEMBER_ID}

    async def scenario(stage: Stage) -> None:
        told = Told()
        config = {"enable_auto_commit": False, "max_poll_interval_ms": 300_000}
        async with stage.member(protocol, **config) as consumer:
            consumer.subscribe([TOPIC], listener=told)
            for _ in range(8):
                await consumer.getone()
            with stage.bent(answering(key, thrown_out, times=1)):
                await asyncio.sleep(8)
            found: dict[int, list[int]] = {index: [] for index in range(4)}
            # The reader gives up in the middle of a poll; the member goes on behind its back.
            for patience_s in (0.0001, 0.0001, 0.0001, *[60] * 80):
                with suppress(TimeoutError):
                    async with asyncio.timeout(patience_s):
                        record = await consumer.getone()
                        found[record.partition].append(record.offset)
                if patience_s < 1:
                    await asyncio.sleep(8)
                if sum(map(len, found.values())) == 80:
                    break
            assert told.gone, "it was lost"
            assert all(offsets == list(range(20)) for offsets in found.values()), found

    play(scenario)


# --- a reader -----------------------------------------------------------------------------------


def test_one_more_partition_keeps_what_is_held_of_the_others() -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.consumer(group_id="", auto_offset_reset="earliest") as consumer:
            consumer.assign(ALL[:1])
            found = []
            while len(found) < 20:
                record = await consumer.getone()
                if record.partition == 0:
                    found.append(record.offset)
                consumer.assign(ALL[: 2 + len(found) % 3])
            assert found == list(range(20))

    play(scenario)


def test_partitions_assigned_by_hand_are_committed_at_the_end() -> None:
    async def scenario(stage: Stage) -> None:
        consumer = stage.consumer(auto_commit_interval_ms=1_000_000)
        consumer.assign(ALL[:2])
        await read(consumer, 40)
        consumer.commit_async({ALL[1]: 3})  # one that is under way changes nothing
        consumer.assign(ALL[:1])
        await asyncio.sleep(1)
        committed = dict.fromkeys((0, 1), 20)
        assert {key[1]: value for key, value in stage.brokers.world.committed(GROUP).items()} == (
            committed
        )
        stage.brokers.ends[0] = 30
        await read(consumer, 10)
        await consumer.close()
        assert stage.brokers.world.committed(GROUP)[TOPIC, 0] == 30

    play(scenario)


def test_a_commit_that_is_cancelled_lets_no_later_one_overtake() -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.consumer(enable_auto_commit=False) as consumer:
            consumer.assign(ALL[:1])
            cut = [True]

            def cut_once(connection: Connection, header: RequestHeader, *_: Any) -> bool:
                is_cut = header.api_key == OFFSET_COMMIT and cut[0]
                if is_cut:
                    cut[0] = False
                    connection.break_off()
                return is_cut

            with stage.bent(cut_once):
                first, second, third = [
                    asyncio.create_task(consumer.commit({ALL[0]: offset})) for offset in (5, 7, 9)
                ]
                await asyncio.sleep(0.01)
                second.cancel()
                await asyncio.gather(first, third)
            assert stage.brokers.world.committed(GROUP)[TOPIC, 0] == 9
            assert second.cancelled()

    play(scenario)


def test_a_time_out_of_a_callback_is_told_and_is_not_the_reads_own() -> None:
    """A read whose time is over says nothing: the user's error would be gone."""

    async def scenario(stage: Stage) -> None:
        async with stage.consumer(enable_auto_commit=False) as consumer:
            consumer.assign(ALL[:1])

            def callback(*_: object) -> None:
                raise TimeoutError("the user's own")

            async def read_on() -> None:
                while True:
                    await consumer.getmany(timeout_ms=500)

            consumer.commit_async({ALL[0]: 5}, callback)
            with pytest.raises(TimeoutError, match="the user's own"):
                await read_on()
            assert await read(consumer, 1)

    play(scenario)


@pytest.mark.parametrize("one_by_one", [True, False])
def test_a_blocked_reader_is_woken(one_by_one: bool) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.consumer(group_id="", auto_offset_reset="earliest") as consumer:
            consumer.assign(ALL)
            await read(consumer, 80)

            async def blocked() -> object:
                if one_by_one:
                    return await consumer.getone()
                return await consumer.getmany(timeout_ms=1_000_000)

            reading = asyncio.create_task(blocked())
            await asyncio.sleep(5)
            consumer.wakeup()
            with pytest.raises(WokenUp):
                await reading
            consumer.wakeup()  # before: the next one is
            with pytest.raises(WokenUp):
                await blocked()
            stage.brokers.ends[0] += 1
            assert await blocked()

    play(scenario)


WAITING: dict[str, Callable[[Consumer], Coroutine[Any, Any, object]]] = {
    "position": lambda consumer: consumer.position(ALL[0]),
    "committed": lambda consumer: consumer.committed(ALL),
    "commit": lambda consumer: consumer.commit({ALL[0]: 1}),
    "beginning_offsets": lambda consumer: consumer.beginning_offsets(ALL),
    "end_offsets": lambda consumer: consumer.end_offsets(ALL),
    "offsets_for_times": lambda consumer: consumer.offsets_for_times({ALL[0]: 0}),
    "partitions_for": lambda consumer: consumer.partitions_for("unheard-of"),
}


@pytest.mark.parametrize("name", WAITING)
def test_whatever_waits_is_woken(name: str) -> None:
    """A handler of a signal could end a read, and nothing else."""

    async def scenario(stage: Stage) -> None:
        async with stage.consumer() as consumer:
            consumer.assign(ALL)
            stage.silent.update(BROKERS)
            waiting = [asyncio.create_task(WAITING[name](consumer)) for _ in range(2)]
            await asyncio.sleep(5)
            assert not any(each.done() for each in waiting)
            consumer.wakeup()
            found = await asyncio.gather(*waiting, return_exceptions=True)
            assert [type(each) for each in found] == [WokenUp, WokenUp]
            stage.silent.clear()
            # Who has been woken is so once: the next call waits as ever.
            assert await consumer.end_offsets(ALL)

    play(scenario)


def test_a_broker_that_throttles_is_asked_nothing_meanwhile() -> None:
    """KIP-219: it has answered, and reads nothing more for so long."""
    throttled = {
        "throttle_time_ms": 5_000,
        "topics": [{"name": "new", "topic_id": None, "error_code": 0}],
    }

    async def scenario(stage: Stage) -> None:
        loop = asyncio.get_running_loop()
        async with stage.client(Admin) as admin:
            with stage.bent(answering(CREATE_TOPICS, throttled)):
                await admin.create_topics([NewTopic("new", 1)])
            before_s = loop.time()
            assert TOPIC in await admin.list_topics()
            assert loop.time() - before_s >= 4.9

    play(scenario)


def test_a_read_without_subscription_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.consumer() as consumer:
            for _ in range(5):
                assert await consumer.getmany(timeout_ms=10) == {}

    play(scenario)
    assert [each for each in caplog.messages if "without subscription" in each] == [
        "a read without subscription or assignment brings nothing"
    ]


def test_topics_of_the_constructor_are_subscribed_to() -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.consumer(topics=[TOPIC]) as consumer:
            assert consumer.subscription() == {TOPIC}
            assert await read(consumer, 80) == {each: list(range(20)) for each in ALL}
        with pytest.raises(UsageError, match=r"group\.id"):
            stage.consumer(topics=[TOPIC], group_id="")

    play(scenario)


def test_what_was_dealt_with_is_committed() -> None:
    async def scenario(stage: Stage) -> None:
        consumer = stage.consumer(enable_auto_offset_store=False)
        consumer.assign(ALL[:2])
        records = [await consumer.getone() for _ in range(30)]
        done = [each for each in records if each.partition == 0][:4]
        consumer.store_offsets(*done)
        await consumer.close()
        committed = stage.brokers.world.committed(GROUP)
        assert committed == {(TOPIC, 0): 4}

    play(scenario)


def test_what_cannot_be_marked_as_dealt_with_is_refused() -> None:
    """It would be committed, or not be, and nobody would know."""

    async def scenario(stage: Stage) -> None:
        async with stage.consumer() as consumer:
            consumer.assign(ALL[:1])
            record = await consumer.getone()
            with pytest.raises(UsageError, match=r"enable\.auto\.offset\.store is true"):
                consumer.store_offsets(record)
        async with stage.consumer(enable_auto_offset_store=False) as consumer:
            consumer.assign(ALL[1:2])
            with pytest.raises(UsageError, match="not assigned"):
                consumer.store_offsets(record, offsets={ALL[1]: 1})
        assert (TOPIC, 1) not in stage.brokers.world.committed(GROUP)

    play(scenario)


def test_the_log_ends_are_told_as_the_last_fetch_had_them() -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.consumer(group_id="", auto_offset_reset="earliest") as consumer:
            consumer.assign(ALL[:1])
            assert consumer.highwater(ALL[0]) is consumer.last_stable_offset(ALL[0]) is None
            await read(consumer, 20)
            assert consumer.highwater(ALL[0]) == consumer.last_stable_offset(ALL[0]) == 20
            measured = consumer.metrics()["consumer-fetch-manager-metrics"]
            assert measured["records-consumed-total"] == 20
            assert measured["records-lag-max"] == 0
            assert measured["fetch-total"] > 0

    play(scenario)


class ToTheFirst(Assignor):
    """Assigns all partitions to one member."""

    name = "first"

    def assign(
        self, members: Mapping[str, Any], partition_counts: Mapping[str, int]
    ) -> dict[str, tuple[TopicPartition, ...]]:
        everything = [
            TopicPartition(topic, index)
            for topic, count in partition_counts.items()
            for index in range(count)
        ]
        return dict.fromkeys(members, ()) | {min(members): tuple(everything)}


def test_an_assignor_of_ones_own_shares_out() -> None:
    async def scenario(stage: Stage) -> None:
        settings = {"assignors": [ToTheFirst()], "topics": [TOPIC]}
        async with stage.consumer(**settings) as one, stage.consumer(**settings) as other:
            for _ in range(40):
                await asyncio.gather(one.getmany(timeout_ms=200), other.getmany(timeout_ms=200))
            assert {len(one.assignment()), len(other.assignment())} == {0, 4}
            measured = one.metrics()["consumer-coordinator-metrics"]
            assert measured["assigned-partitions"] == len(one.assignment())
            assert measured["join-total"] >= 1
            assert measured["heartbeat-total"] >= 1

    play(scenario)


def test_assignors_are_not_for_a_coordinator_that_assigns() -> None:
    with pytest.raises(ValueError, match=r"group\.protocol=classic"):
        Consumer(SERVERS, group_id="g", group_protocol="consumer", assignors=[ToTheFirst()])


# --- a log that was cut off (KIP-320) -----------------------------------------------------------


@pytest.mark.parametrize("policy", ["earliest", "none"])
def test_a_log_that_was_cut_off_is_noticed(policy: str) -> None:
    """A leader that was elected uncleanly has other records where this reader stands."""

    async def scenario(stage: Stage) -> None:
        async with stage.consumer(group_id="", auto_offset_reset=policy) as consumer:
            consumer.assign(ALL[:1])
            consumer.seek(ALL[0], 0)
            assert await read(consumer, 20) == {ALL[0]: list(range(20))}
            stage.brokers.cut_off(0, 12)
            stage.brokers.ends[0] = 25
            if policy == "none":
                with pytest.raises(LogTruncated, match="from offset 12 on") as raised:
                    await read(consumer, 1)
                assert raised.value.offset == 12
                consumer.seek(ALL[0], 12)
            assert await read(consumer, 13) == {ALL[0]: list(range(12, 25))}

    play(scenario)


def test_what_was_read_ahead_of_a_cut_is_dropped() -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.consumer(group_id="", auto_offset_reset="earliest") as consumer:
            consumer.assign(ALL[:1])
            found = await consumer.getmany(timeout_ms=5_000, max_records=2)
            assert [each.offset for each in found[ALL[0]]] == [0, 1]
            await asyncio.sleep(1)
            stage.brokers.cut_off(0, 2)
            stage.brokers.ends[0] = 9
            await asyncio.sleep(10)
            # What was in hand, and then what there is from the cut on.
            assert await read(consumer, 10) == {ALL[0]: [2, 3, 4, *range(2, 9)]}

    play(scenario)
