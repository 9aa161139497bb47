"""Whole consumers of ours in a group, over a real coordinator, a simulated network and a checker.

Everything of a client is real but its sockets and its clock; so is the coordinator, behind the
handlers of a broker. Logs are lists of numbers. Requests are lost, late, or answered in vain,
connections break or go silent, the coordinator is killed or moves, members die or leave, come back,
read slowly. The checker holds what must always hold; when the trouble stops the group must settle.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.simulation.virtual import Connection, LoopClock, Network, VirtualLoop
from tests.unit.coordinator.consumers import ConsumerWorld
from tests.unit.handlers.conftest import Cluster, RecordingExchange

from odradek.client import Consumer
from odradek.client.errors import GroupError, KafkaError
from odradek.errors import ErrorCode
from odradek.handlers.dispatcher import Dispatcher
from odradek.handlers.table import API_TABLE
from odradek.model import TopicPartition
from odradek.protocol import messages
from odradek.protocol.fetch import (
    FetchPartitionResponse,
    FetchResponse,
    FetchTopicResponse,
    decode_fetch_request,
    encode_fetch_response,
)
from odradek.protocol.header import (
    RequestHeader,
    decode_request_header,
    encode_response_header,
    response_header_version,
)
from odradek.protocol.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    decode_list_offsets_request,
    encode_list_offsets_response,
)
from odradek.records.builder import RecordBatchBuilder

TOPIC, GROUP = "t", "g"
PARTITIONS = 4
BROKERS = (1, 2, 3)
TICK_MS = 50
FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR, API_VERSIONS = 1, 2, 3, 10, 18
FLEXIBLE_FROM = {api.key: api.flexible_from for api in API_TABLE.values()}
OFFSET_COMMIT = 8
GROUP_APIS = frozenset({OFFSET_COMMIT, 9, 11, 12, 13, 14, 68})
SERVED = GROUP_APIS | {FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR, API_VERSIONS}
RECORDS_A_FETCH = 5
SETTLING_S = 60
GHOSTS_LAST_MS = 10_000

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
    """Three brokers: logs that all of them serve, and one that coordinates the group."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
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
        self._context = context
        self._dispatcher = self._new_dispatcher()
        self.coordinator = 1
        # Commits that came when their sender had given them up, and perhaps gone on: nothing in the
        # protocol tells them from those that are meant.
        self.ghost_ms = -GHOSTS_LAST_MS
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self.topic_id = self.world.topic_id(TOPIC)

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
        self.coordinator = self.dice.choice([each for each in BROKERS if each != self.coordinator])

    def tick(self) -> None:
        self.world.advance(TICK_MS)
        self.world.run_deferred()

    # --- requests ---------------------------------------------------------------------------

    def serve(self, connection: Connection, frame: bytes, answer: Callable[[bytes], None]) -> None:
        """One request to the broker that listens at the connection's port."""
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
            self._fetch(body, header, answer)
        elif key == LIST_OFFSETS:
            answer(self._list_offsets(body, header))
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
        partitions = [
            {
                "partition_index": index,
                "leader_id": BROKERS[index % len(BROKERS)],
                "leader_epoch": 0,
                "replica_nodes": list(BROKERS),
                "isr_nodes": list(BROKERS),
            }
            for index in self.ends
        ]
        return {
            "brokers": [{"node_id": each, "host": host, "port": each} for each in BROKERS],
            "controller_id": 1,
            "topics": [{"name": TOPIC, "topic_id": self.topic_id, "partitions": partitions}],
        }

    def _find(self, host: str) -> dict[str, object]:
        found = {"key": GROUP, "node_id": self.coordinator, "host": host, "port": self.coordinator}
        return {"coordinators": [found]}

    def _fetch(
        self, frame: memoryview, header: RequestHeader, send: Callable[[bytes], None]
    ) -> None:
        request = decode_fetch_request(frame, header.api_version, header.body_position)

        def answer() -> None:
            topics = [
                FetchTopicResponse(
                    topic.name, topic.topic_id, [self._read(each) for each in topic.partitions]
                )
                for topic in request.topics
            ]
            response = FetchResponse(topics)
            parts = encode_fetch_response(response, header.api_version, header.correlation_id)
            send(b"".join(map(bytes, parts)))

        has_news = any(
            each.fetch_offset < self.ends[each.index]
            for topic in request.topics
            for each in topic.partitions
        )
        if has_news:
            answer()
        else:
            asyncio.get_running_loop().call_later(request.max_wait_ms / 1000, answer)

    def _read(self, asked: Any) -> FetchPartitionResponse:
        end = self.ends[asked.index]
        if not 0 <= asked.fetch_offset <= end:
            return FetchPartitionResponse(asked.index, ErrorCode.OFFSET_OUT_OF_RANGE)
        records: list[Any] = []
        if asked.fetch_offset < end:
            builder = RecordBatchBuilder(base_offset=asked.fetch_offset)
            last = min(end, asked.fetch_offset + self.dice.randint(1, RECORDS_A_FETCH))
            for offset in range(asked.fetch_offset, last):
                builder.append_at(offset, 0, None, b"%d" % offset)
            records = [builder.build(last - 1)]
        return FetchPartitionResponse(asked.index, 0, end, end, 0, records=records)

    def _list_offsets(self, frame: memoryview, header: RequestHeader) -> bytes:
        version = header.api_version
        request = decode_list_offsets_request(frame, version, header.body_position)
        topics = [
            ListOffsetsTopicResponse(
                topic.name,
                [
                    ListOffsetsPartitionResponse(
                        each.index, 0, -1, 0 if each.timestamp == -2 else self.ends[each.index], 0
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        response = ListOffsetsResponse(topics)
        return encode_list_offsets_response(response, version, header.correlation_id)


class Life:
    """One process with a consumer, from its start to its end."""

    def __init__(self, story: "Story", name: str, settings: dict[str, object]) -> None:
        self.story = story
        self.name = name
        self.dice = random.Random(story.dice.random())
        clock = LoopClock(asyncio.get_running_loop())
        servers = ",".join(f"{name}:{each}" for each in BROKERS)
        self.consumer = Consumer(
            servers, {**SETTINGS, **settings}, clock=clock, dice=random.Random(self.dice.random())
        )
        self.commits_itself = not settings.get("enable.auto.commit", True)
        # Where the next record of a partition has to be; None before the first since it came.
        self.held: dict[TopicPartition, int | None] = {}
        self.is_leaving = False
        self.is_dead = False
        self.task = asyncio.create_task(self._live())

    async def _live(self) -> None:
        self.consumer.subscribe([TOPIC], listener=self)
        while not self.is_leaving:
            try:
                found = await self.consumer.getmany(
                    timeout_ms=self.dice.choice((0, 50, 400)), max_records=self.dice.randint(1, 8)
                )
            except KafkaError as error:
                self.story.check_error(self, error)
                await asyncio.sleep(0.1)
                continue
            for partition, records in found.items():
                self.story.delivered(self, partition, [each.offset for each in records])
            await self._work()
        await self.consumer.close()
        self.held.clear()

    async def _work(self) -> None:
        """Takes its time, seldom too much; commits, if nobody else does."""
        if self.commits_itself and self.dice.random() < 0.5:
            if self.dice.random() < 0.5:
                self.consumer.commit_async()
            else:
                try:
                    await self.consumer.commit()
                except KafkaError as error:
                    self.story.check_error(self, error)
        slow = self.story.network.trouble and self.dice.random() < 0.005
        await asyncio.sleep(12 if slow else self.dice.random() * 0.1)

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.story.assigned(self, partitions)

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            del self.held[each]

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            del self.held[each]

    @property
    def generation(self) -> int:
        return self.consumer.group_metadata().generation_id

    def kill(self) -> None:
        """`kill -9`: what it sends from now on goes nowhere, and nothing reaches it."""
        self.is_dead = True
        self.story.network.cut(self.name)
        self.held.clear()
        self.task.cancel()

    async def bury(self) -> None:
        """Ends what the simulation still has of it."""
        await asyncio.gather(self.task, return_exceptions=True)
        await self.consumer.close()


class Story:
    """The members of a group, what happens to them, and the checker."""

    def __init__(self, seed: int, kinds: list[dict[str, object]]) -> None:
        self.dice = random.Random(seed)
        self.brokers = Brokers(self.dice)
        self.network = Network(self.dice, self.brokers.serve)
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
        self.deaths = self.moves = self.restarts = 0

    @property
    def living(self) -> list[Life]:
        return [each for each in self.lives if not each.is_dead and not each.is_leaving]

    def begin_life(self) -> None:
        self.numbers += 1
        kind = self.kinds[self.numbers % len(self.kinds)]
        automatic = self.dice.random() < 0.6
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
            end_s = loop.time() + troubled_s
            while loop.time() < end_s:
                await asyncio.sleep(self.dice.random() * 2)
                self._look_at()
                self._write()
                self._misfortune()
            self.network.trouble = 0.0
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
        """Who comes and goes in good order makes nobody read anything twice."""
        before = self.read_again
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
        if not manual:
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
        """What went wrong in the background is the story's end."""
        assert not self.faults, self.faults
        for life in self.lives:
            if life.task.done() and not life.task.cancelled():
                life.task.result()

    def _write(self, count: int = 4) -> None:
        for index in self.brokers.ends:
            self.brokers.ends[index] += self.dice.randrange(count)

    def world_holds(self, holds: bool) -> None:
        self.brokers.world.log.holds = holds
        self.brokers.world.log.commit()

    def _misfortune(self) -> None:
        chance = self.dice.random()
        world = self.brokers.world
        if chance < 0.05:
            self.restarts += 1
            loses_tail = self.dice.random() < 0.5
            self.network.kill_broker(self.brokers.coordinator)
            self.brokers.restart(loses_tail=loses_tail)
            asyncio.get_running_loop().call_later(
                self.dice.random() * 3, self.network.dead_brokers.clear
            )
        elif chance < 0.1:
            self.moves += 1
            self.brokers.move()
        elif chance < 0.2 and len(self.living) > 2:
            victim = self.dice.choice(self.living)
            if self.dice.random() < 0.6:
                self.deaths += 1
                victim.kill()
            else:
                victim.is_leaving = True
        elif chance < 0.35 and len(self.living) < 5:
            self.begin_life()
        elif chance < 0.4:
            self.world_holds(not world.log.holds)
        if self.dice.random() < 0.5:
            world.log.commit()

    # --- what must hold ---------------------------------------------------------------------

    def check_error(self, life: Life, error: KafkaError) -> None:
        """A member is told of nothing but what the documentation says."""
        assert isinstance(error, GroupError) or error.retriable, f"{life.name}: {error!r}"

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
            if everything and held == list(range(PARTITIONS)) and even:
                return
        shares = {life.name: sorted(life.consumer.assignment()) for life in self.living}
        unread = {
            index: sorted(set(range(end)) - self.read[index])
            for index, end in self.brokers.ends.items()
        }
        raise AssertionError(f"not settled {when}: {shares}, unread {unread}")


def play(seed: int, kinds: list[dict[str, object]], troubled_s: int = 30) -> Story:
    """A whole story; the same for the same seed."""

    async def scenario() -> Story:
        story = Story(seed, kinds)
        await story.run(troubled_s)
        return story

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(scenario())
