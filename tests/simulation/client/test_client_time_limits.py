"""Every public call of our clients before brokers that do not answer, on a clock that jumps.

Each ends in the time that its settings give it, also of several tasks that make it at once. What it
raises when the time is over names the setting, with its value. If these fail, a call hangs, or its
user is sent to the wrong setting.
"""

import asyncio
import inspect
import random
import re
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from tests.simulation.client.producing.client_producers import PRODUCE
from tests.simulation.client.producing.client_producers import SETTINGS as PRODUCER_SETTINGS
from tests.simulation.client.producing.test_client_sequences import play as play_producer
from tests.simulation.client.producing.test_client_transactions import Coordinator, send_offsets
from tests.simulation.client.test_client_cluster import BROKERS, PROTOCOLS, SERVERS, Stage, read
from tests.simulation.client.test_client_cluster import play as play_members
from tests.simulation.virtual import Connection, LoopClock, Network, VirtualLoop
from tests.wire.client.faults.test_inner_errors import (
    ADMIN,
    CONSUMER,
    PRODUCER,
    SHARE_CONSUMER,
    TRANSACTIONAL,
    Call,
)

from odradek.client import Admin, Consumer, ConsumerRecord, Producer, ShareConsumer, settings
from odradek.client.errors import KafkaError, RequestTimedOut
from odradek.handlers.table import API_TABLE
from odradek.protocol import messages
from odradek.protocol.header import (
    decode_request_header,
    encode_response_header,
    response_header_version,
)

METADATA, FIND_COORDINATOR, API_VERSIONS = 3, 10, 18
FLEXIBLE_FROM = {api.key: api.flexible_from for api in API_TABLE.values()}
SLACK_MS = 100
# A call that took so long was ended by a limit.
LONG_MS = 1_000
# Who waits for a record waits for ever, and is cancelled here.
PATIENCE_S = {"getone": 1.0}
NAMED = re.compile(r"(\d+) ms \(([a-z.]+\.ms)\)")

# No two of them alike: what is named is seen to be what has ended a call.
SETTINGS: dict[str, int] = {
    "request.timeout.ms": 3_000,
    "default.api.timeout.ms": 7_000,
    "max.block.ms": 5_000,
    "delivery.timeout.ms": 9_000,
    "session.timeout.ms": 6_000,
    "max.poll.interval.ms": 20_000,
    "socket.connection.setup.timeout.ms": 2_000,
    "socket.connection.setup.timeout.max.ms": 2_000,
}
START_MS = len(BROKERS) * SETTINGS["socket.connection.setup.timeout.ms"] + 3_000  # between them
# What a call may take: the sum of these settings, or so many ms.
Limit = tuple[str, ...] | int
API, BLOCK, DELIVERY = "default.api.timeout.ms", "max.block.ms", "delivery.timeout.ms"
COMMIT: Limit = (DELIVERY, BLOCK)
OF_PRODUCERS: dict[str, Limit] = {
    "start": START_MS,
    "send": (BLOCK, DELIVERY),
    "send_and_wait": (BLOCK, DELIVERY),
    "send_many": (BLOCK, DELIVERY),
    "flush": (DELIVERY,),
    "partitions_for": (BLOCK,),
    "init_transactions": (BLOCK,),
    "send_offsets_to_transaction": (BLOCK,),
    "commit_transaction": COMMIT,
    "abort_transaction": (BLOCK,),
    "transaction": (BLOCK, *COMMIT, BLOCK),  # a send, the commit, and the abort that follows
    "stop": COMMIT,
}
OF_CONSUMERS: dict[str, Limit] = {
    "start": START_MS,
    "getone": 1_000,
    "unsubscribe": (API, "request.timeout.ms"),
    "stop": 30_000,
    **dict.fromkeys(
        (
            *("commit", "committed", "position", "partitions_for"),
            *("beginning_offsets", "end_offsets", "offsets_for_times"),
        ),
        (API,),
    ),
}
OF_ADMINS: dict[str, Limit] = {"start": START_MS, "stop": 0, "close": 0}


def limit_ms(limit: Limit, given: Mapping[str, Any]) -> int:
    if isinstance(limit, int):
        return limit + SLACK_MS
    return sum(given[name] for name in limit) + SLACK_MS


def assert_named(error: KafkaError, name: str, given: Mapping[str, Any]) -> None:
    """The setting that has ended the call is named, and no other."""
    named = NAMED.findall(str(error))
    assert named, f"{name} names no setting: {error}"
    for value_ms, setting in named:
        assert given[setting] == int(value_ms), f"{name}: {error}"


async def outcome_of(call: Callable[[Any], Any], client: Any, patience_s: float) -> list[Any]:
    """The results or errors of a call; of an admin's, those of each item."""
    try:
        async with asyncio.timeout(patience_s):
            found = call(client)
            if inspect.isawaitable(found):
                found = await found
            if isinstance(found, asyncio.Future):
                found = await found
    except KafkaError as error:
        return [error]
    except TimeoutError:
        return []
    return list(found.values()) if isinstance(found, dict) else [found]


async def measure(
    client: Any, name: str, call: Callable[[Any], Any], limit: int, given: Mapping[str, Any]
) -> None:
    """Makes a call, and holds how long that takes and what it tells."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    told = await outcome_of(call, client, PATIENCE_S.get(name, 300))
    took_ms = (loop.time() - begun_s) * 1000
    assert took_ms <= limit, f"{name} took {took_ms} ms"
    if took_ms >= LONG_MS:
        for error in told:
            if isinstance(error, KafkaError):
                assert_named(error, name, given)


# --- before brokers that never answered ---------------------------------------------------------


class Brokers:
    """They accept and say nothing, or say who is who and nothing else, or are not there."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.network = Network(random.Random(7), self.serve)
        if kind == "absent":
            self.network.dead_brokers |= set(BROKERS)
        elif kind == "unreachable":
            self.network.unreachable.add("client")

    def serve(self, connection: Connection, frame: bytes, answer: Callable[[bytes], None]) -> None:
        header = decode_request_header(memoryview(frame), FLEXIBLE_FROM)
        key, version = header.api_key, header.api_version
        if self.kind == "closing":
            connection.break_off()
        elif self.kind == "swallowing" and key in WHO_IS_WHO:
            head_version = response_header_version(key, version, FLEXIBLE_FROM[key])
            body = messages.encode_response(key, version, WHO_IS_WHO[key])
            answer(encode_response_header(header.correlation_id, head_version) + body)


def _topic(number: int, name: str, count: int) -> dict[str, object]:
    partitions = [
        {"partition_index": index, "leader_id": 1, "leader_epoch": 0, "isr_nodes": [1]}
        for index in range(count)
    ]
    return {"name": name, "topic_id": UUID(int=number), "partitions": partitions}


WHO_IS_WHO: dict[int, dict[str, object]] = {
    API_VERSIONS: {
        "api_keys": [
            {"api_key": api.key, "min_version": api.min_version, "max_version": api.max_version}
            for api in API_TABLE.values()
        ]
    },
    METADATA: {
        "brokers": [{"node_id": each, "host": "client", "port": each} for each in BROKERS],
        "controller_id": 1,
        "topics": [_topic(1, "t", 3), _topic(2, "u", 1)],
    },
    FIND_COORDINATOR: {"coordinators": [{"key": "any", "node_id": 2, "host": "client", "port": 2}]},
}
NEVER_READ = ConsumerRecord("t", 0, 7, 0, 0, None, b"v", None, 0)


class Walk(NamedTuple):
    """A client, its calls, and what each may take; those that are not named take no time."""

    make: Any
    table: Mapping[str, object]
    calls: list[Call]
    limits: dict[str, Limit]
    settings: dict[str, object]
    otherwise: Limit = 100


WALKS = {
    "producer": Walk(
        Producer,
        settings.PRODUCER_SETTINGS,
        [*PRODUCER, *TRANSACTIONAL[-2:]],
        OF_PRODUCERS,
        {"linger.ms": 0},
    ),
    "transactional producer": Walk(
        Producer,
        settings.PRODUCER_SETTINGS,
        TRANSACTIONAL,
        OF_PRODUCERS,
        {"linger.ms": 0, "transactional.id": "x"},
    ),
    "consumer": Walk(
        Consumer, settings.CONSUMER_SETTINGS, CONSUMER, OF_CONSUMERS, {"group.id": "g"}
    ),
    "consumer of the newer protocol": Walk(
        Consumer,
        settings.CONSUMER_SETTINGS,
        CONSUMER,
        OF_CONSUMERS,
        {"group.id": "g", "group.protocol": "consumer"},
    ),
    "share consumer": Walk(
        ShareConsumer,
        settings.SHARE_CONSUMER_SETTINGS,
        SHARE_CONSUMER,
        {**OF_CONSUMERS, "unsubscribe": ("request.timeout.ms",)},
        {"group.id": "s"},
    ),
    "admin": Walk(Admin, settings.ADMIN_SETTINGS, ADMIN, OF_ADMINS, {}, (API,)),
}


@pytest.mark.parametrize("kind", ["silent", "swallowing", "closing", "absent", "unreachable"])
@pytest.mark.parametrize("client", WALKS)
def test_every_call_ends_in_its_time(client: str, kind: str) -> None:
    walk = WALKS[client]

    async def scenario(loop: VirtualLoop) -> None:
        given = {name: each for name, each in SETTINGS.items() if name in walk.table}
        clock, rng = LoopClock(loop), random.Random(7)
        made = walk.make(SERVERS, given | walk.settings, clock=clock, rng=rng)
        if walk.make in (Consumer, ShareConsumer):
            made.subscribe(["t"])
            made.read_before = [NEVER_READ, NEVER_READ]
        for name, call in walk.calls:
            limit = limit_ms(walk.limits.get(name, walk.otherwise), SETTINGS)
            await measure(made, name, call, limit, SETTINGS)

    on_network(Brokers(kind).network, scenario)


def on_network(
    network: Network, scenario: Callable[[VirtualLoop], Coroutine[Any, Any, None]]
) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.network = network
        await scenario(loop)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())


# --- in the midst of something ------------------------------------------------------------------


class Failing(Coordinator):
    """A coordinator that works until `trouble`: then its brokers never answer, or close
    connections.
    """

    trouble = ""

    def serve(self, connection: Connection, frame: bytes, answer: Callable[[bytes], None]) -> None:
        if self.trouble == "closing":
            connection.break_off()
        elif not self.trouble:
            super().serve(connection, frame, answer)


def _at_once(call: Callable[[Any], Any], count: int) -> Callable[[Any], Any]:
    """Makes a call in `count` tasks."""

    async def make(client: Any, index: int) -> Any:
        await asyncio.sleep(index / 10)
        return await call(client)

    async def all_of_them(client: Any) -> None:
        found = await asyncio.gather(
            *(make(client, index) for index in range(count)), return_exceptions=True
        )
        for each in found:
            if isinstance(each, BaseException):
                raise each

    return all_of_them


IN_TRANSACTIONS: list[Call] = [
    ("flush", lambda p: p.flush()),
    ("send_and_wait", lambda p: p.send_and_wait("t", b"more", partition=0)),
    ("send_offsets_to_transaction", lambda p: send_offsets(p, 7)),
    ("commit_transaction", lambda p: p.commit_transaction()),
    ("abort_transaction", lambda p: p.abort_transaction()),
    ("stop", lambda p: p.stop()),
    ("stop", lambda p: p.close()),
    ("close", lambda p: p.close(timeout_ms=50)),
]


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("trouble", ["silent", "closing"])
@pytest.mark.parametrize("index", range(len(IN_TRANSACTIONS)))
def test_a_transaction_ends_in_its_time(index: int, trouble: str, count: int) -> None:
    """Also when several tasks end it at once: who comes last does not wait for all before."""
    name, call = IN_TRANSACTIONS[index]

    async def scenario(stage: Failing) -> None:
        producer = await stage.ready()
        producer.begin_transaction()
        await producer.send_and_wait("t", b"a", partition=0)
        await producer.send("t", b"b", partition=0)
        stage.trouble = trouble
        limit = limit_ms(OF_PRODUCERS.get(name, 50), PRODUCER_SETTINGS) + 100 * count
        await measure(producer, name, _at_once(call, count), limit, PRODUCER_SETTINGS)
        await producer.close(timeout_ms=0)

    play_producer(scenario, Failing)


async def _until_aborted(producer: Producer) -> None:
    """Aborts again after each time-out, as an application does on a retriable error."""
    while True:
        with suppress(RequestTimedOut):
            return await producer.abort_transaction()


def test_many_records_wait_for_room_as_often_as_there_is_none() -> None:
    """`max.block.ms` is the time of one wait: nothing is refused while some leave."""

    async def scenario(stage: Coordinator) -> None:
        async with stage.producer(buffer_memory=200, max_block_ms=500) as producer:
            await producer.partitions_for("t")
            stage.late_s[PRODUCE] = 0.3
            begun_s = asyncio.get_running_loop().time()
            delivery = await producer.send_many("t", [b"v" * 100] * 10)
            assert asyncio.get_running_loop().time() - begun_s > 1
            assert len(await delivery) == 10

    play_producer(scenario, Coordinator)


def test_an_abort_does_not_wait_for_answers_beyond_its_time() -> None:
    """Requests that are under way may take longer than it, and connections longer yet."""
    slow = {"request.timeout.ms": 20_000, "delivery.timeout.ms": 30_000}

    async def scenario(stage: Failing) -> None:
        producer = await stage.ready(**{name.replace(".", "_"): ms for name, ms in slow.items()})
        producer.begin_transaction()
        await producer.send_and_wait("t", b"a", partition=0)
        stage.trouble = "silent"
        await producer.send("t", b"b", partition=0)
        await asyncio.sleep(0.1)
        given = PRODUCER_SETTINGS | slow
        limit = limit_ms((BLOCK,), given)
        await measure(producer, "abort", lambda p: p.abort_transaction(), limit, given)
        stage.trouble = ""
        await _until_aborted(producer)
        async with producer.transaction():
            await producer.send("t", b"next", partition=0)
        assert stage.committed() == [b"next"]
        await producer.close()

    play_producer(scenario, Failing)


@pytest.mark.parametrize("trouble", ["silent", "killed"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_call_of_a_member_ends_in_its_time(protocol: str, trouble: str) -> None:
    async def scenario(stage: Stage) -> None:
        member = stage.member(protocol)
        member.subscribe(["t"])
        await read(member, 20)
        given = member._cluster.settings._values
        if trouble == "silent":
            stage.silent |= set(BROKERS)
        else:
            for port in BROKERS:
                stage.network.kill_broker(port)
        for name, call in CONSUMER:
            limit = limit_ms(OF_CONSUMERS.get(name, 100), given)
            await measure(member, name, call, limit, given)

    play_members(scenario)


ASKED_BY_SEVERAL: dict[str, Callable[[Any], Any]] = {
    "commit": lambda c: c.commit(),
    "committed": lambda c: c.committed(c.assignment()),
    "unsubscribe": lambda c: c.unsubscribe(),
    "stop": lambda c: c.stop(),
}


@pytest.mark.parametrize("name", ASKED_BY_SEVERAL)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_several_tasks_ask_of_a_member_ends_in_its_time(protocol: str, name: str) -> None:
    call = _at_once(ASKED_BY_SEVERAL[name], 4)

    async def scenario(stage: Stage) -> None:
        member = stage.member(protocol)
        member.subscribe(["t"])
        await read(member, 20)
        given = member._cluster.settings._values
        stage.silent |= set(BROKERS)
        limit = limit_ms(OF_CONSUMERS[name], given) + 400
        await measure(member, name, call, limit, given)
        await member.close(timeout_ms=0)

    play_members(scenario)


class NeverReturns:
    """A listener that one of its calls never comes back from."""

    def __init__(self, name: str) -> None:
        self.called = asyncio.Event()
        setattr(self, name, self._hang)

    async def _hang(self, _: object) -> None:
        self.called.set()
        await asyncio.Event().wait()


ASKED_BESIDE_A_LISTENER: dict[str, Callable[[Any], Any]] = {
    "getmany": lambda c: c.getmany(timeout_ms=500),
    "commit": lambda c: c.commit(),
    "committed": lambda c: c.committed(c.assignment()),
    "position": lambda c: c.position(min(c.assignment())),
    "close": lambda c: c.close(timeout_ms=500),
}


@pytest.mark.parametrize("name", ["on_partitions_assigned", "on_partitions_revoked"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nobody_but_unsubscribe_waits_for_a_listener_that_never_returns(
    protocol: str, name: str
) -> None:
    async def scenario(stage: Stage) -> None:
        async def come_in() -> None:
            async with stage.member(protocol) as other:
                other.subscribe(["t"])
                while True:
                    await other.getmany(timeout_ms=500)

        listener = NeverReturns(name)
        member = stage.member(protocol)
        member.subscribe(["t"], listener=listener)
        coming = asyncio.create_task(come_in())
        while not listener.called.is_set():
            await member.getmany(timeout_ms=500)
        for call_name, call in ASKED_BESIDE_A_LISTENER.items():
            await measure(member, call_name, call, 500 + SLACK_MS, member._cluster.settings._values)
        coming.cancel()
        await asyncio.wait([coming])

    play_members(scenario)
