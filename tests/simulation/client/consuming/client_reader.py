"""A consumer of ours that does what a user may do, in any order, beside a naive reader.

It is assigned partitions or subscribes, goes elsewhere, pauses, commits, is cancelled and woken;
its listener raises; it is fenced, late, and shares with a rival. `Naive` knows only where it
stands, and says after every step what may be read next, what may be committed, and how far it is
behind.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

from tests.simulation.client.consuming.client_groups import GROUP, TOPIC
from tests.simulation.client.test_client_cluster import (
    ALL,
    CONSUMER_HEARTBEAT,
    HEARTBEAT,
    Stage,
    answering,
)

from odradek.client import Consumer
from odradek.client.errors import GroupError, KafkaError, UsageError, WokenUp
from odradek.errors import ErrorCode
from odradek.model import TopicPartition

STEPS = 60
LAST_READS = 600
GHOSTS_LAST_S = 20
Found = dict[TopicPartition, list[int]]


class Upset(Exception):
    """An error that a listener raises."""


class Naive:
    """Where the reader stands in each partition that it has; None until it has read of one."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.places: dict[TopicPartition, int | None] = {}
        self.paused: set[TopicPartition] = set()
        # Lost, as the member knows, and its listener is yet to be told.
        self.lost: set[TopicPartition] = set()
        self._came_at: dict[TopicPartition, int] = {}
        # Where anybody has stood: nothing else may be committed.
        self._stood: dict[TopicPartition, set[int]] = {each: {0} for each in ALL}
        # What the rival has committed of partitions that this reader has not.
        self._rivals: dict[TopicPartition, int] = {}

    def committed(self, partition: TopicPartition) -> int:
        """The offset in the coordinator."""
        return self._stage.brokers.world.committed(GROUP).get(partition, 0)

    def has_come(self, partition: TopicPartition) -> None:
        assert partition not in self.places, f"{partition} comes, and is here"
        self.places[partition] = None
        self._came_at[partition] = self.committed(partition)
        self._rivals.pop(partition, None)

    def has_gone(self, partition: TopicPartition) -> None:
        del self.places[partition]
        self.paused.discard(partition)
        self.lost.discard(partition)

    def goes_to(self, partition: TopicPartition, offset: int) -> None:
        self.places[partition] = offset
        self._stood[partition].add(offset)

    def due(self, partition: TopicPartition) -> set[int]:
        """The next offset; of a partition that has come what was committed of it then, or since: a
        commit of before may have been on its way."""
        place = self.places[partition]
        if place is not None:
            return {place}
        return {self._came_at[partition], self.committed(partition)}

    def reads(self, found: Found) -> None:
        for partition, offsets in found.items():
            assert partition in self.places, f"{partition} is read, and is somebody else's"
            assert partition not in self.paused, f"{partition} is read, and is paused"
            assert partition not in self.lost, f"{partition} is read, and was lost"
            due = self.due(partition)
            assert offsets[0] in due, f"{offsets} of {partition} is read where {due} is due"
            assert offsets == list(range(offsets[0], offsets[0] + len(offsets))), offsets
            self.goes_to(partition, offsets[-1] + 1)

    def rival_reads(self, partition: TopicPartition, offset: int) -> None:
        self._stood[partition].add(offset + 1)

    def rival_commits(self, offsets: dict[TopicPartition, int]) -> None:
        for partition, offset in offsets.items():
            if partition not in self.places:
                self._rivals[partition] = offset

    def check(self, consumer: Consumer) -> None:
        """Checks what must hold after every step."""
        assert consumer.assignment() == self.places.keys()
        assert consumer.paused() == self.paused
        for partition, place in self.places.items():
            end, lag = consumer.highwater(partition), consumer.lag(partition)
            if place is not None and end is not None and lag is not None:
                assert lag == max(0, end - place), f"the lag of {partition} at {place} of {end}"
        for partition in ALL:
            offset = self.committed(partition)
            assert offset in self._stood[partition], f"{partition}: nobody stood at {offset}"
            least = self._rivals.get(partition, 0)
            assert offset >= least, f"the rival's commit of {partition} goes back from {least}"


class Rival:
    """Another member of the group, which reads a little and commits it."""

    def __init__(self, consumer: Consumer, naive: Naive) -> None:
        self._consumer = consumer
        self._naive = naive
        self._is_leaving = False
        self._task = asyncio.create_task(self._live())

    async def _live(self) -> None:
        self._consumer.subscribe([TOPIC])
        while not self._is_leaving:
            with suppress(KafkaError):
                found = await self._consumer.getmany(timeout_ms=200, max_records=3)
                behind = {each: records[-1].offset + 1 for each, records in found.items()}
                for partition, offset in behind.items():
                    self._naive.rival_reads(partition, offset - 1)
                await self._consumer.commit()
                self._naive.rival_commits(behind)
            await asyncio.sleep(0.1)

    async def leave(self) -> None:
        self._is_leaving = True
        await self._task
        await self._consumer.close()


class Story:
    """The steps of one consumer, and of its listener."""

    def __init__(self, stage: Stage, seed: int, protocol: str) -> None:
        self.rng = random.Random(seed)
        self.stage = stage
        self.protocol = protocol
        self.naive = Naive(stage)
        self.commits_itself = self.rng.random() < 0.5
        self.consumer = stage.member(
            protocol,
            enable_auto_commit=not self.commits_itself,
            max_poll_records=self.rng.choice((3, 10, 500)),
            metadata_max_age_ms=self.rng.choice((500, 300_000)),
        )
        self.is_member = self.is_told = False
        self.upset = 0.1
        self.untold: deque[BaseException] = deque()
        self.rival: Rival | None = None
        self.done: list[str] = []

    # --- the listener -----------------------------------------------------------------------

    async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self.naive.has_come(each)
        await self._work()
        for each in partitions:
            if self.rng.random() < 0.1:
                self._seek(each)
        self._maybe_raise()

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        await self._work()
        for each in partitions:
            self.naive.has_gone(each)
        self._maybe_raise()

    on_partitions_lost = on_partitions_revoked

    async def _work(self) -> None:
        """Sometimes longer than the read waits that it is called in."""
        self.is_told = True
        if self.rng.random() < 0.3:
            await asyncio.sleep(self.rng.random())
        self.is_told = False

    def _maybe_raise(self) -> None:
        if self.rng.random() < self.upset:
            self.untold.append(self.rng.choice((Upset, asyncio.CancelledError))())
            raise self.untold[-1]

    def _check(self) -> None:
        if not self.is_told:
            self.naive.check(self.consumer)

    def _hear(self, error: KafkaError) -> None:
        """Checks that each error of the listener is told once, in order, and else only errors that
        may happen.
        """
        if self.untold and error.__cause__ is self.untold[0]:
            self.untold.popleft()
        else:
            is_known = isinstance(error, GroupError | WokenUp) or error.retriable
            assert is_known, repr(error)
            assert not isinstance(error.__cause__, Upset), repr(error)

    # --- steps ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Does all steps, and then reads in peace to the end of every partition."""
        await self.subscribe() if self.rng.random() < 0.5 else await self.assign()
        steps: list[Callable[[], Awaitable[None]]] = [
            *([self.read] * 12),
            *([self.seek, self.pause, self.resume, self.commit, self.write, self.idle] * 2),
            *(self.assign, self.subscribe, self.unsubscribe, self.wake),
            *(self.be_fenced, self.share, self.be_alone),
        ]
        for _ in range(STEPS):
            step = self.rng.choice(steps)
            self.done.append(step.__name__)
            try:
                await step()
            except KafkaError as error:
                self._hear(error)
            self._check()
        await self._end()

    async def read(self) -> None:
        """In any way, often given up in the middle."""
        reads = (self._one, self._next, self._many, self._few, self._of_one, self._columns)
        patience_s = self.rng.choice((0.001, 0.03, 0.3, 5, 5))
        with suppress(TimeoutError, WokenUp):
            for _ in range(self.rng.randint(1, 4)):
                async with asyncio.timeout(patience_s):
                    self.naive.reads(await self.rng.choice(reads)())

    async def _one(self) -> Found:
        record = await self.consumer.getone()
        assert record.value == b"%d" % record.offset
        return {TopicPartition(record.topic, record.partition): [record.offset]}

    async def _next(self) -> Found:
        record = await anext(self.consumer)
        return {TopicPartition(record.topic, record.partition): [record.offset]}

    async def _many(self, *partitions: TopicPartition, count: int | None = None) -> Found:
        timeout_ms = self.rng.choice((0, 50, 400))
        found = await self.consumer.getmany(*partitions, timeout_ms=timeout_ms, max_records=count)
        return {each: [record.offset for record in records] for each, records in found.items()}

    async def _few(self) -> Found:
        return await self._many(count=self.rng.randint(1, 3))

    async def _of_one(self) -> Found:
        return await self._many(self.rng.choice(ALL))

    async def _columns(self) -> Found:
        found = await self.consumer.getmany(timeout_ms=300, columns=True)
        return {
            each: list(memoryview(columns.offset or b"").cast("q"))
            for each, columns in found.items()
        }

    def _some(self) -> list[TopicPartition]:
        here = sorted(self.naive.places)
        return self.rng.sample(here, self.rng.randint(0, len(here)))

    def _seek(self, partition: TopicPartition) -> None:
        offset = self.rng.randint(0, self.stage.brokers.ends[partition.partition])
        self.consumer.seek(partition, offset)
        self.naive.goes_to(partition, offset)

    async def seek(self) -> None:
        for each in self._some():
            if each not in self.naive.places:
                continue  # a rebalance took it while the one in front was waited for
            chance = self.rng.random()
            if chance < 0.6:
                self._seek(each)
            elif chance < 0.8:
                await self.consumer.seek_to_beginning(each)
                await self._arrive(each, 0)
            else:
                await self.consumer.seek_to_end(each)
                await self._arrive(each, self.stage.brokers.ends[each.partition])

    async def _arrive(self, partition: TopicPartition, offset: int) -> None:
        """Only who asks for its position goes there, unless a rebalance takes it meanwhile, or a
        listener goes elsewhere."""
        self.naive.goes_to(partition, offset)
        try:
            found = await self._position(partition)
        except UsageError:
            assert partition not in self.naive.places, f"{partition} is here, and has no position"
        else:
            due = self.naive.due(partition)
            assert found in due, f"{partition} is at {found} where {due} is due"

    async def _position(self, partition: TopicPartition) -> int:
        with suppress(WokenUp):
            return await self.consumer.position(partition)
        return await self.consumer.position(partition)

    async def pause(self) -> None:
        some = self._some()
        self.consumer.pause(*some)
        self.naive.paused.update(some)

    async def resume(self) -> None:
        some = self._some()
        self.consumer.resume(*some)
        self.naive.paused.difference_update(some)

    async def commit(self) -> None:
        if self.rng.random() < 0.4:
            self.consumer.commit_async()
            return
        before = {each: self.naive.due(each) for each in self.naive.places}
        await self.consumer.commit()
        for each in self.naive.places:
            # A listener may have gone elsewhere meanwhile.
            due = self.naive.due(each) | before.get(each, set())
            assert self.naive.committed(each) in due, f"the commit of {each}"

    async def write(self) -> None:
        for each in self.stage.brokers.ends:
            self.stage.brokers.ends[each] += self.rng.randrange(8)

    async def idle(self) -> None:
        await asyncio.sleep(self.rng.choice((0.05, 0.5, 2, 12)))

    async def assign(self) -> None:
        if self.is_member:
            return
        before = set(self.naive.places)
        wanted = set(self.rng.sample(ALL, self.rng.randint(1, 4)))
        if self.rng.random() < 0.5:
            wanted |= before
        self.consumer.assign(sorted(wanted))
        for each in before - wanted:
            self.naive.has_gone(each)
        for each in wanted - before:
            self.naive.has_come(each)

    async def subscribe(self) -> None:
        if self.is_member or self.naive.places:
            return
        self.consumer.subscribe([TOPIC], listener=self)
        self.is_member = True

    async def unsubscribe(self) -> None:
        if self.is_member:
            await self.be_alone()
        by_hand = {} if self.is_member else dict(self.naive.places)
        was_member, self.is_member = self.is_member, False
        try:
            await self.consumer.unsubscribe()
        finally:
            for each in by_hand:
                self.naive.has_gone(each)
            if was_member:
                # One that was thrown out by a lie is no member for the coordinator only by then,
                # and who assigns by hand may not commit to a group that has members.
                await asyncio.sleep(GHOSTS_LAST_S)
        if not self.commits_itself:
            for each, place in by_hand.items():
                assert place in (None, self.naive.committed(each)), f"{each} was not committed"

    async def wake(self) -> None:
        self.consumer.wakeup()

    async def be_fenced(self) -> None:
        """Between two reads, or while nobody reads for long."""
        if self.is_member:
            key = CONSUMER_HEARTBEAT if self.protocol == "consumer" else HEARTBEAT
            thrown_out = {"error_code": ErrorCode.UNKNOWN_MEMBER_ID}
            with self.stage.bent(answering(key, thrown_out, times=1)):
                await asyncio.sleep(self.rng.choice((1.5, 4, 8)))
            if self.consumer._subscription.membership.metadata.generation_id < 0:
                self.naive.lost.update(self.naive.places)

    async def share(self) -> None:
        if self.is_member and self.rival is None:
            consumer = self.stage.member(self.protocol, enable_auto_commit=False)
            self.rival = Rival(consumer, self.naive)

    async def be_alone(self) -> None:
        if self.rival is not None:
            rival, self.rival = self.rival, None
            await rival.leave()

    async def _end(self) -> None:
        """In peace everything is read from where the reader stands, and committed at the end."""
        await self.be_alone()
        self.upset = 0
        for _ in range(LAST_READS):
            try:
                self.consumer.resume(*self.naive.places)
                self.naive.paused.clear()
                self.naive.reads(await self._many())
            except KafkaError as error:
                self._hear(error)
            self._check()
            if self._is_at_end:
                break
        assert self._is_at_end, f"at {self.naive.places} of {self.stage.brokers.ends}"
        assert not self.untold, "the listener's errors are told"
        here = set(self.naive.places)
        await self.consumer.close()
        if not self.commits_itself:
            ends = {each: self.stage.brokers.ends[each.partition] for each in here}
            assert {each: self.naive.committed(each) for each in here} == ends

    @property
    def _is_at_end(self) -> bool:
        places = self.naive.places
        # A member that was thrown out owes no commit, and has to come back first.
        is_complete = (len(places) == len(ALL) or not self.is_member) and not self.naive.lost
        return is_complete and all(
            self.stage.brokers.ends[each.partition] in self.naive.due(each) for each in places
        )
