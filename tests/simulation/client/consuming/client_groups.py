"""Whole consumers of ours in a group, over a real coordinator, a simulated network and a checker.

Everything of a client is real but its sockets and its clock; so is the coordinator, behind the
handlers of a broker. Logs are lists of numbers. Requests are lost, late, or answered in vain,
connections break or go silent, the coordinator is killed or moves, its log refuses what it writes,
members die or leave, come back, read slowly. The checker holds what must always hold; when the
trouble stops the group must settle.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from tests.simulation.virtual import Connection, LoopClock, Network, VirtualLoop
from tests.unit.coordinator.consumer.consumers import ConsumerWorld
from tests.unit.handlers.conftest import Cluster, RecordingExchange

from odradek.client import Consumer
from odradek.client.errors import GroupError, KafkaError, WokenUp
from odradek.errors import ErrorCode
from odradek.handlers.dispatcher import Dispatcher
from odradek.handlers.table import API_TABLE
from odradek.model import TopicPartition
from odradek.protocol import messages
from odradek.protocol.direct.fetch import (
    FetchPartitionResponse,
    FetchResponse,
    FetchTopicResponse,
    decode_fetch_request,
    encode_fetch_response,
)
from odradek.protocol.direct.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    decode_list_offsets_request,
    encode_list_offsets_response,
)
from odradek.protocol.header import (
    RequestHeader,
    decode_request_header,
    encode_response_header,
    response_header_version,
)
from odradek.records.batch import parse_header, stamp
from odradek.records.builder import RecordBatchBuilder

TOPIC, GROUP = "t", "g"
PARTITIONS = 4
BROKERS = (1, 2, 3)
TICK_MS = 50
FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR, API_VERSIONS = 1, 2, 3, 10, 18
OFFSET_FOR_LEADER_EPOCH = 23
# Nobody here does these: a test may say what becomes of them.
PRODUCE, CREATE_TOPICS = 0, 19
SHARE_FETCH, SHARE_ACKNOWLEDGE = 78, 79
BENT_APIS = frozenset({15, 20, 22, 25, 26, 30, 31, 32, 34, 37, 42, 43, 49, 55, 60, 65, 76}) | {
    PRODUCE,
    CREATE_TOPICS,
    SHARE_FETCH,
    SHARE_ACKNOWLEDGE,
}
FLEXIBLE_FROM = {api.key: api.flexible_from for api in API_TABLE.values()}
OFFSET_COMMIT = 8
GROUP_APIS = frozenset({OFFSET_COMMIT, 9, 11, 12, 13, 14, 28, 68})
SERVED = GROUP_APIS | {
    FETCH,
    LIST_OFFSETS,
    METADATA,
    FIND_COORDINATOR,
    API_VERSIONS,
    OFFSET_FOR_LEADER_EPOCH,
    *BENT_APIS,
}
RECORDS_A_FETCH = 5
SETTLING_S = 60
GHOSTS_LAST_MS = 10_000
REFUSALS = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)

SETTINGS = {
    "group.id": GROUP,
    "auto.offset.reset": "earliest",
    "heartbeat.interval.ms": 1_000,
    "session.timeout.ms": 6_000,
    "max.poll.interval.ms": 10_000,
    "request.timeout.ms": 3_000,
    "socket.connection.setup.timeout.ms": 2_000,
    "socket.connection.setup.timeout.max.ms": 2_000,
    "default.api.timeout.ms": 6_000,
    "auto.commit.interval.ms": 700,
    "metadata.max.age.ms": 5_000,
    "fetch.max.wait.ms": 500,
}


class _Exchange(RecordingExchange):
    """Passes its answer on."""

    def __init__(self, frame: bytes, on_sent: Callable[[bytes], None]) -> None:
        super().__init__(frame)
        self._on_sent = on_sent

    def send(self, buffers: list[Any]) -> None:
        self._on_sent(b"".join(map(bytes, buffers)))


class Brokers:
    """Three brokers: logs with a leader each, and one broker that coordinates the group."""

    flexible_from = FLEXIBLE_FROM

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        settings = {
            "group_min_session_timeout_ms": 1_000,
            "group_consumer_min_session_timeout_ms": 1_000,
            "group_consumer_session_timeout_ms": 6_000,
            "group_consumer_min_heartbeat_interval_ms": 100,
            "group_consumer_heartbeat_interval_ms": 1_000,
            "group_consumer_migration_policy": "bidirectional",
        }
        self.world = ConsumerWorld({TOPIC: PARTITIONS}, **settings)
        stranger = ConsumerWorld({TOPIC: PARTITIONS})
        stranger.runtime.shutdown()
        context = Cluster({}).context
        self._stranger = Dispatcher(
            replace(context, groups=stranger.groups, metadata=stranger.metadata)
        )
        # Every group is in every transaction.
        verifier = SimpleNamespace(verify=lambda _id, _writes, _ability, then: then({}))
        self._context = replace(context, verifier=verifier)
        self._dispatcher = self._new_dispatcher()
        self.coordinator = 1
        # Commits that came when their sender had given them up, and perhaps gone on: nothing in the
        # protocol tells them from those that are meant.
        self.ghost_ms = -GHOSTS_LAST_MS
        self.starts = dict.fromkeys(range(PARTITIONS), 0)
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self.topic_id = self.world.topic_id(TOPIC)
        # Who leads each partition, in which epoch; None while nobody does. An answer may have the
        # view from before the last change.
        self.leaders: dict[int, tuple[int | None, int]] = {
            index: (BROKERS[index % len(BROKERS)], 0) for index in self.ends
        }
        self._former_leaders = dict(self.leaders)
        # Where a log was cut off by a leader that lacked the rest: first offset of its epoch.
        self._cuts: dict[int, list[tuple[int, int]]] = {index: [] for index in self.ends}
        self.controller = 1
        self.topic_error = self.fetch_error = ErrorCode.NONE
        self.trouble = False

    def _new_dispatcher(self) -> Dispatcher:
        return Dispatcher(
            replace(self._context, groups=self.world.groups, metadata=self.world.metadata)
        )

    def restart(self, *, loses_tail: bool) -> None:
        """The coordinator is killed and comes back with its log."""
        self.world.restart(loses_tail=loses_tail)
        self._dispatcher = self._new_dispatcher()

    def move(self) -> None:
        """Another broker becomes the coordinator; whoever waits is told."""
        self.world.log.commit()
        self.world.runtime.shutdown()
        self.restart(loses_tail=False)
        self.coordinator = self.rng.choice([each for each in BROKERS if each != self.coordinator])

    def lead(self, index: int, leader: int | None) -> None:
        """Another leads a partition from now on, or nobody."""
        self._former_leaders = dict(self.leaders)
        self.leaders[index] = leader, self.leaders[index][1] + 1

    def cut_off(self, index: int, end: int) -> None:
        """A leader is elected that lacks what is behind `end`."""
        self.lead(index, self.leaders[index][0])
        self._cuts[index].append((end, self.leaders[index][1]))

    def make_anew(self, count: int) -> None:
        """The topic is deleted, and another of its name is there, with so many records a
        partition; nobody leads in a later epoch than before."""
        self.world.set_topics()
        self.world.set_topics(**{TOPIC: PARTITIONS})
        self.topic_id = self.world.topic_id(TOPIC)
        self.ends = dict.fromkeys(self.ends, count)

    def tick(self) -> None:
        self.world.advance(TICK_MS)
        self.world.run_deferred()

    # --- requests ---------------------------------------------------------------------------

    def serve(self, connection: Connection, frame: bytes, answer: Callable[[bytes], None]) -> None:
        """Serves a request to the broker that listens at the connection's port."""
        header = decode_request_header(memoryview(frame), FLEXIBLE_FROM)
        key, version = header.api_key, header.api_version
        if key == OFFSET_COMMIT and not connection.is_open:
            self.ghost_ms = self.world.clock.monotonic_ms()
        if key in GROUP_APIS:
            here = connection.port == self.coordinator
            dispatcher = self._dispatcher if here else self._stranger
            dispatcher.handle_frame(_Exchange(frame, answer))
            dispatcher.end_of_read()
            self.world.groups.flush()
            return
        body = memoryview(frame)
        header_version = response_header_version(key, version, FLEXIBLE_FROM[key])
        head = encode_response_header(header.correlation_id, header_version)

        def send(data: bytes) -> None:
            answer(head + data)

        if key == FETCH:
            self._fetch(connection.port, body, header, answer)
        elif key == LIST_OFFSETS:
            answer(self._list_offsets(connection.port, body, header))
        elif key == OFFSET_FOR_LEADER_EPOCH:
            request = messages.decode_request(key, version, body, header.body_position)
            send(messages.encode_response(key, version, self._epoch_ends(connection.port, request)))
        elif key == METADATA:
            send(messages.encode_response(key, version, self._metadata(connection.host)))
        elif key == FIND_COORDINATOR:
            send(messages.encode_response(key, version, self._find(connection.host)))
        else:
            ranges = [
                {"api_key": api.key, "min_version": api.min_version, "max_version": api.max_version}
                for api in API_TABLE.values()
                if api.key in SERVED
            ]
            send(messages.encode_response(key, version, {"api_keys": ranges}))

    def _metadata(self, host: str) -> dict[str, object]:
        is_behind = self.trouble and self.rng.random() < 0.3
        leaders = self._former_leaders if is_behind else self.leaders
        partitions = [
            {
                "error_code": ErrorCode.LEADER_NOT_AVAILABLE if leader is None else 0,
                "partition_index": index,
                "leader_id": -1 if leader is None else leader,
                "leader_epoch": epoch,
                "replica_nodes": list(BROKERS),
                "isr_nodes": list(BROKERS),
            }
            for index, (leader, epoch) in leaders.items()
        ]
        code = self.topic_error
        if self.trouble and self.rng.random() < 0.1:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        topic = {
            "error_code": code,
            "name": TOPIC,
            "topic_id": self.topic_id,
            "partitions": [] if code else partitions,
        }
        return {
            "brokers": [{"node_id": each, "host": host, "port": each} for each in BROKERS],
            "controller_id": self.controller,
            "topics": [topic],
        }

    def _refusal(self, broker: int, index: int, leader_epoch: int) -> ErrorCode:
        """The error with which a broker answers a client that takes it for a partition's leader in
        an epoch.
        """
        leader, epoch = self.leaders[index]
        if leader_epoch > epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if leader != broker:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if 0 <= leader_epoch < epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if self.fetch_error:
            return self.fetch_error
        if self.trouble and self.rng.random() < 0.02:
            return self.rng.choice([ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.OFFSET_NOT_AVAILABLE])
        return ErrorCode.NONE

    def _find(self, host: str) -> dict[str, object]:
        found = {"key": GROUP, "node_id": self.coordinator, "host": host, "port": self.coordinator}
        return {"coordinators": [found]}

    def _fetch(
        self, broker: int, frame: memoryview, header: RequestHeader, send: Callable[[bytes], None]
    ) -> None:
        request = decode_fetch_request(frame, header.api_version, header.body_position)

        def answer() -> None:
            topics = [
                FetchTopicResponse(
                    topic.name,
                    topic.topic_id,
                    [
                        self._read(broker, each)
                        if topic.topic_id == self.topic_id
                        else FetchPartitionResponse(each.index, ErrorCode.UNKNOWN_TOPIC_ID)
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
            response = FetchResponse(topics)
            parts = encode_fetch_response(response, header.api_version, header.correlation_id)
            send(b"".join(map(bytes, parts)))

        has_news = any(
            each.fetch_offset < self.ends[each.index]
            or self.leaders[each.index] != (broker, each.current_leader_epoch)
            for topic in request.topics
            for each in topic.partitions
        )
        if has_news:
            answer()
        else:
            asyncio.get_running_loop().call_later(request.max_wait_ms / 1000, answer)

    def _read(self, broker: int, asked: Any) -> FetchPartitionResponse:
        if refusal := self._refusal(broker, asked.index, asked.current_leader_epoch):
            return FetchPartitionResponse(asked.index, refusal)
        end = self.ends[asked.index]
        if not 0 <= asked.fetch_offset <= end:
            return FetchPartitionResponse(asked.index, ErrorCode.OFFSET_OUT_OF_RANGE)
        records: list[Any] = []
        if asked.fetch_offset < end:
            builder = RecordBatchBuilder(base_offset=asked.fetch_offset)
            last = min(end, asked.fetch_offset + self.rng.randint(1, RECORDS_A_FETCH))
            for offset in range(asked.fetch_offset, last):
                builder.append_at(offset, 0, None, b"%d" % offset)
            batch = bytearray(builder.build(last - 1))
            epoch = self._epoch_at(asked.index, last - 1)
            stamp(batch, parse_header(batch), asked.fetch_offset, epoch)
            records = [batch]
        return FetchPartitionResponse(asked.index, 0, end, end, 0, records=records)

    def _epoch_at(self, index: int, offset: int) -> int:
        """The epoch of the leader that wrote what is at an offset: another begins with every cut,
        and without one all that there is has come from the first."""
        return max([0, *(epoch for start, epoch in self._cuts[index] if start <= offset)])

    def _epoch_end(self, index: int, epoch: int) -> tuple[int, int]:
        """The latest epoch up to that one, and where it ends."""
        known = max([0, *(each for _, each in self._cuts[index] if each <= epoch)])
        later = [start for start, each in self._cuts[index] if each > known]
        return known, min([self.ends[index], *later])

    def _epoch_ends(self, broker: int, request: Any) -> dict[str, object]:
        topics = []
        for topic in request.topics:
            partitions = []
            for each in topic.partitions:
                refusal = self._refusal(broker, each.partition, each.current_leader_epoch)
                epoch, end = self._epoch_end(each.partition, each.leader_epoch)
                partitions.append(
                    {
                        "error_code": refusal,
                        "partition": each.partition,
                        "leader_epoch": -1 if refusal else epoch,
                        "end_offset": -1 if refusal else end,
                    }
                )
            topics.append({"topic": topic.topic, "partitions": partitions})
        return {"topics": topics}

    def _list_offsets(self, broker: int, frame: memoryview, header: RequestHeader) -> bytes:
        version = header.api_version
        request = decode_list_offsets_request(frame, version, header.body_position)
        topics = [
            ListOffsetsTopicResponse(
                topic.name,
                [
                    ListOffsetsPartitionResponse(
                        each.index,
                        self._refusal(broker, each.index, each.current_leader_epoch),
                        -1,
                        (self.starts if each.timestamp == -2 else self.ends)[each.index],
                        0,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        response = ListOffsetsResponse(topics)
        return encode_list_offsets_response(response, version, header.correlation_id)


class Upset(Exception):
    """An error that a user's code raises."""


class Life:
    """A process with a consumer, from its start to its end. In trouble its listener raises now and
    then, which a later read must tell, and so do callbacks of its commits.
    """

    def __init__(self, story: "Story", name: str, settings: dict[str, object]) -> None:
        self.story = story
        self.name = name
        self.rng = random.Random(story.rng.random())
        clock = LoopClock(asyncio.get_running_loop())
        servers = ",".join(f"{name}:{each}" for each in BROKERS)
        self.consumer = Consumer(
            servers, {**SETTINGS, **settings}, clock=clock, rng=random.Random(self.rng.random())
        )
        self.commits_itself = not settings.get("enable.auto.commit", True)
        # Where the next record of a partition has to be; None before the first since it came.
        self.held: dict[TopicPartition, int | None] = {}
        self.is_leaving = False
        self.is_dead = False
        # What the listener raised, and nobody has been told yet.
        self.untold: deque[Upset] = deque()
        self.task = asyncio.create_task(self._live())
        self._meddling = asyncio.create_task(self._meddle())

    async def _live(self) -> None:
        self.consumer.subscribe([TOPIC], listener=self)
        while not self.is_leaving:
            try:
                await self._read()
            except KafkaError as error:
                self._hear(error)
                await asyncio.sleep(0.1)
                continue
            except Upset:
                continue
            with suppress(Upset):
                await self._work()
        self._meddling.cancel()
        await asyncio.gather(self._meddling, return_exceptions=True)
        await self.consumer.close()
        self.held.clear()

    async def _read(self) -> None:
        """Reads records one by one or many at once; the read is often given up midway, or woken."""
        patience_s = self.rng.choice((0.001, 0.03, 0.2, 10))
        chance = self.rng.random()
        with suppress(TimeoutError, WokenUp):
            async with asyncio.timeout(patience_s):
                if chance < 0.1:
                    asyncio.get_running_loop().call_later(patience_s / 2, self.consumer.wakeup)
                if chance < 0.4:
                    for _ in range(self.rng.randint(1, 8)):
                        async with asyncio.timeout(0.4):
                            record = await self.consumer.getone()
                        partition = TopicPartition(record.topic, record.partition)
                        self.story.delivered(self, partition, [record.offset])
                    return
                found = await self.consumer.getmany(
                    timeout_ms=self.rng.choice((0, 50, 400)), max_records=self.rng.randint(1, 8)
                )
                for partition, records in found.items():
                    self.story.delivered(self, partition, [each.offset for each in records])

    async def _meddle(self) -> None:
        """A second task: it commits, looks, holds back and lets go while the first one reads."""
        while True:
            await asyncio.sleep(self.rng.random())
            try:
                async with asyncio.timeout(self.rng.choice((0.001, 0.05, 1))):
                    await self._meddle_once()
            except (TimeoutError, Upset):
                continue
            except KafkaError as error:
                self.story.check_error(self, error)

    def _hear(self, error: KafkaError) -> None:
        """Checks that each error of the listener is told once, in order."""
        if isinstance(error.__cause__, Upset):
            assert error.__cause__ is self.untold.popleft(), f"{self.name} is told {error!r}"
        else:
            self.story.check_error(self, error)

    def _maybe_raise(self) -> None:
        if self.rng.random() < self.story.upset:
            self.story.upsets += 1
            raised = Upset(f"{self.name} raises")
            self.untold.append(raised)
            raise raised

    def _on_committed(self, *_: object) -> None:
        if self.rng.random() < self.story.upset:
            self.story.upsets += 1
            raise Upset(f"{self.name} raises")

    async def _meddle_once(self) -> None:
        chance = self.rng.random()
        assigned = sorted(self.consumer.assignment())
        if chance < 0.3 and self.commits_itself:
            await self.consumer.commit()
        elif chance < 0.5:
            await self.consumer.committed(assigned)
        elif chance < 0.6:
            await self.consumer.end_offsets(assigned)
        elif assigned:
            partition = self.rng.choice(assigned)
            if chance < 0.7:
                self.consumer.pause(partition)
                await asyncio.sleep(0)
            elif chance < 0.8:
                await self.consumer.position(partition)
        self.consumer.resume(*self.consumer.paused())

    async def _work(self) -> None:
        """Takes its time, seldom too much; commits, if nobody else does."""
        if self.commits_itself and self.rng.random() < 0.5:
            if self.rng.random() < 0.5:
                self.consumer.commit_async(callback=self._on_committed)
            else:
                try:
                    await self.consumer.commit()
                except KafkaError as error:
                    self.story.check_error(self, error)
        slow = self.story.network.trouble and self.rng.random() < 0.005
        await asyncio.sleep(12 if slow else self.rng.random() * 0.1)

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.story.assigned(self, partitions)
        self._maybe_raise()

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            del self.held[each]
        self._maybe_raise()

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            del self.held[each]
        self._maybe_raise()

    @property
    def generation(self) -> int:
        return self.consumer.group_metadata().generation_id

    def kill(self) -> None:
        """`kill -9`: what it sends from now on goes nowhere, and nothing reaches it."""
        self.is_dead = True
        self.story.network.cut(self.name)
        self.held.clear()
        self.task.cancel()
        self._meddling.cancel()

    async def bury(self) -> None:
        """Ends what the simulation still has of it."""
        self._meddling.cancel()
        await asyncio.gather(self.task, self._meddling, return_exceptions=True)
        await self.consumer.close()


class Story:
    """The members of a group, what happens to them, and the checker."""

    def __init__(self, seed: int, kinds: list[dict[str, object]]) -> None:
        self.rng = random.Random(seed)
        self.brokers = Brokers(self.rng)
        self.network = Network(self.rng, self.brokers.serve)
        self.kinds = kinds
        self.lives: list[Life] = []
        self.buried: list[Life] = []
        self.numbers = 0
        self.readers: dict[tuple[int, TopicPartition], str] = {}
        self.read: dict[int, set[int]] = {index: set() for index in range(PARTITIONS)}
        self.read_again = 0
        self.committed: dict[int, int] = {}
        self.generation = 0
        self.faults: list[dict[str, Any]] = []
        self.deaths = self.moves = self.restarts = self.refusals = self.upsets = 0
        self.upset = 0.0
        self.refusing = 0.0
        self.brokers.world.log.refuses = self._refuses

    @property
    def living(self) -> list[Life]:
        return [each for each in self.lives if not each.is_dead and not each.is_leaving]

    def begin_life(self) -> None:
        self.numbers += 1
        kind = self.kinds[self.numbers % len(self.kinds)]
        automatic = self.rng.random() < 0.6
        settings = {**kind, "enable.auto.commit": automatic}
        self.lives.append(Life(self, f"m{self.numbers}", settings))

    async def run(self, troubled_s: int) -> None:
        """Trouble, then peace in which the group settles, and one comes and goes in good order."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.network = self.network
        loop.set_exception_handler(lambda _loop, context: self.faults.append(context))
        clock = asyncio.create_task(self._tick())
        try:
            for _ in range(3):
                self.begin_life()
            self.network.trouble = 0.03
            self.upset = 0.1
            self.brokers.trouble = True
            end_s = loop.time() + troubled_s
            while loop.time() < end_s:
                await asyncio.sleep(self.rng.random() * 2)
                self._look_at()
                self._write()
                self._misfortune()
            self.network.trouble = self.refusing = self.upset = 0.0
            self.brokers.trouble = False
            for index, (leader, _) in self.brokers.leaders.items():
                self.brokers.lead(index, leader or self.rng.choice(BROKERS))
            self.world_holds(False)
            await self._settle("after the trouble")
            await self._peace()
            await self._end()
        finally:
            clock.cancel()
            await asyncio.gather(clock, return_exceptions=True)
        for life in self.buried:
            if not life.is_dead:
                life.task.result()
        assert not self.faults, self.faults
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks are left: {left}"
        assert not self.network.connections, "connections are left"

    async def _peace(self) -> None:
        """Checks that members which join and leave in good order cause no record to be read twice,
        unless a commit of the trouble comes only now, and takes back a later one.
        """
        ghost_ms = self.brokers.ghost_ms
        manual = [each for each in self.living if each.commits_itself]
        for life in manual:
            life.is_leaving = True
        await asyncio.gather(*(life.task for life in manual))
        self.kinds = [{**kind} for kind in self.kinds]
        before = self.read_again
        for _ in range(2):
            self.numbers += 1
            kind = self.kinds[self.numbers % len(self.kinds)]
            self.lives.append(Life(self, f"m{self.numbers}", dict(kind)))
            self._write(20)
            await self._settle("with one more")
        leaver = self.living[0]
        leaver.is_leaving = True
        self._write(20)
        await leaver.task
        await self._settle("with one less")
        if not manual and self.brokers.ghost_ms == ghost_ms:
            assert self.read_again == before, "something was read twice in peace"

    async def _end(self) -> None:
        for life in self.lives:
            life.is_leaving = True
            await life.bury()
        self.buried, self.lives = self.lives, []

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            self.brokers.tick()
            try:
                self._check_generation()
                self._check_committed()
            except AssertionError as broken:
                self.faults.append({"message": str(broken)})
                return

    def _look_at(self) -> None:
        """Raises what went wrong in the background, which ends the story."""
        assert not self.faults, self.faults
        for life in self.lives:
            if life.task.done() and not life.task.cancelled():
                life.task.result()

    def _write(self, count: int = 4) -> None:
        for index in self.brokers.ends:
            self.brokers.ends[index] += self.rng.randrange(count)

    def world_holds(self, holds: bool) -> None:
        self.brokers.world.log.holds = holds
        self.brokers.world.log.commit()

    def _misfortune(self) -> None:
        chance = self.rng.random()
        world = self.brokers.world
        if chance < 0.05:
            self.restarts += 1
            loses_tail = self.rng.random() < 0.5
            self.network.kill_broker(self.brokers.coordinator)
            self.brokers.restart(loses_tail=loses_tail)
            asyncio.get_running_loop().call_later(
                self.rng.random() * 3, self.network.dead_brokers.clear
            )
        elif chance < 0.1:
            self.moves += 1
            self.brokers.move()
        elif chance < 0.2 and len(self.living) > 2:
            victim = self.rng.choice(self.living)
            if self.rng.random() < 0.6:
                self.deaths += 1
                victim.kill()
            else:
                victim.is_leaving = True
        elif chance < 0.35 and len(self.living) < 5:
            self.begin_life()
        elif chance < 0.4:
            self.world_holds(not world.log.holds)
        elif chance < 0.6:
            self.brokers.lead(
                self.rng.randrange(PARTITIONS), self.rng.choice([*BROKERS, *BROKERS, None])
            )
        elif chance < 0.7:
            self.refusing = self.rng.choice((0.0, 0.1, 0.9))
        if self.rng.random() < 0.5:
            world.log.commit()

    def _refuses(self) -> ErrorCode | None:
        if self.rng.random() >= self.refusing:
            return None
        self.refusals += 1
        return self.rng.choice(REFUSALS)

    # --- what must hold ---------------------------------------------------------------------

    def check_error(self, life: Life, error: KafkaError) -> None:
        """A member is told of nothing but what the documentation says."""
        assert isinstance(error, GroupError | WokenUp) or error.retriable, f"{life.name}: {error!r}"

    def assigned(self, life: Life, partitions: list[TopicPartition]) -> None:
        generation = life.generation
        for partition in partitions:
            assert partition not in life.held, f"{life.name} was given {partition} twice"
            life.held[partition] = None
            for other in self.lives:
                if other is life or partition not in other.held or other.is_dead:
                    continue
                # A coordinator that lost what it had not replicated counts generations once more:
                # who was only in the first of two of one number has yet to hear of it.
                if self._is_member(other):
                    assert other.generation != generation or generation < 0, (
                        f"{partition} belongs to {other.name} and to {life.name}, "
                        f"both in generation {generation}"
                    )

    def _is_member(self, life: Life) -> bool:
        """Whether the coordinator, too, has it in the generation in which it believes to be."""
        own = life.consumer.group_metadata()
        return any(
            own.member_id in group.members
            and getattr(group, "generation_id", own.generation_id) == own.generation_id
            for shard in self.brokers.world.runtime.shards()
            for group in shard.registry
        )

    def delivered(self, life: Life, partition: TopicPartition, offsets: list[int]) -> None:
        index = partition.partition
        assert partition in life.held, f"{life.name} reads {partition}, which it has not"
        expected = life.held[partition]
        if expected is None:
            missing = set(range(offsets[0])) - self.read[index]
            assert not missing, f"{life.name} passes over {sorted(missing)} of {partition}"
            expected = offsets[0]
        assert offsets == list(range(expected, expected + len(offsets))), (
            f"{life.name} reads {offsets} of {partition} where {expected} is due"
        )
        life.held[partition] = offsets[-1] + 1
        if self._is_member(life):
            reader = self.readers.setdefault((life.generation, partition), life.name)
            assert reader == life.name or life.generation < 0, (
                f"{partition} was read by {reader} and {life.name} in generation {life.generation}"
            )
        self.read_again += len(self.read[index] & set(offsets))
        self.read[index] |= set(offsets)

    def _check_generation(self) -> None:
        """A group that was empty and is made anew counts from the beginning."""
        for shard in self.brokers.world.runtime.shards():
            for group in shard.registry:
                generation = getattr(group, "generation_id", None) or getattr(group, "epoch", 0)
                if generation < self.generation:
                    self.readers.clear()
                self.generation = generation

    def _check_committed(self) -> None:
        """Commits do not go back, and say nothing of what nobody has read."""
        world = self.brokers.world
        is_haunted = world.clock.monotonic_ms() < self.brokers.ghost_ms + GHOSTS_LAST_MS
        if world.log.holds or is_haunted:
            self.committed = {}  # what is not replicated may be lost
        for (_, index), offset in self.brokers.world.committed(GROUP).items():
            before = self.committed.get(index, 0)
            assert offset >= before, f"the commit of {index} goes back from {before} to {offset}"
            unread = set(range(offset)) - self.read[index]
            assert not unread, f"{offset} is committed of {index}, where {sorted(unread)} is unread"
            self.committed[index] = offset

    async def _settle(self, when: str) -> None:
        for _ in range(SETTLING_S * 2):
            await asyncio.sleep(0.5)
            self._look_at()
            held = sorted(
                each.partition for life in self.living for each in life.consumer.assignment()
            )
            everything = all(
                self.read[index] == set(range(end)) for index, end in self.brokers.ends.items()
            )
            shares = [len(life.consumer.assignment()) for life in self.living]
            even = max(shares) - min(shares) <= 1
            all_told = not any(life.untold for life in self.living)
            if everything and held == list(range(PARTITIONS)) and even and all_told:
                return
        shares = {life.name: sorted(life.consumer.assignment()) for life in self.living}
        unread = {
            index: sorted(set(range(end)) - self.read[index])
            for index, end in self.brokers.ends.items()
        }
        untold = {life.name: list(life.untold) for life in self.living}
        raise AssertionError(f"not settled {when}: {shares}, unread {unread}, untold {untold}")


def play(seed: int, kinds: list[dict[str, object]], troubled_s: int = 30) -> Story:
    """A whole story; the same for the same seed."""

    async def scenario() -> Story:
        story = Story(seed, kinds)
        await story.run(troubled_s)
        return story

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(scenario())
