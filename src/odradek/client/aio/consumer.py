"""`Consumer`: reads records, alone or as a member of a group, on an event loop.

`getmany`, `getone` and `async for` give records out; the fetcher is ahead in the background.
Partitions come and go only inside these calls, and auto-commit commits only what earlier calls gave
out: whatever was read before a call is taken to be dealt with.
"""

import asyncio
import logging
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Protocol, Self

from odradek.client.aio.cluster import ClusterClient
from odradek.client.aio.fetcher import Fetcher
from odradek.client.aio.group import (
    ClassicMembership,
    ConsumerProtocolMembership,
    Membership,
    RebalanceListener,
)
from odradek.client.aio.offsets import list_offsets
from odradek.client.core.admin_types import CommittedOffset, OffsetAndTimestamp
from odradek.client.core.fetched import BadRecord, ConsumerRecord, Deserializer
from odradek.client.core.group_metadata import GroupMetadata
from odradek.client.core.list_offsets import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
)
from odradek.client.core.metadata import TopicMetadata
from odradek.client.core.positions import PartitionPosition, Positions
from odradek.client.core.reset_policy import ResetPolicy
from odradek.client.core.retries import Dice
from odradek.client.errors import (
    ClientClosed,
    KafkaError,
    RequestTimedOut,
    UsageError,
    error_for,
)
from odradek.client.settings import CONSUMER_SETTINGS, ClientSettings
from odradek.clock import Clock
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.records.columnar import ColumnBuffers

_LOGGER: Final = logging.getLogger(__name__)
Records = dict[TopicPartition, list[ConsumerRecord]]
Offsets = Mapping[TopicPartition, CommittedOffset | int]
CommitCallback = Callable[[Mapping[TopicPartition, CommittedOffset], KafkaError | None], None]


class ConsumerInterceptor(Protocol):
    """Sees records before they are given out, and offsets that were committed."""

    def on_consume(self, records: Records) -> Records:
        """May change what is given out."""
        ...

    def on_commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """These are committed."""
        ...


class Consumer:
    """Reads records.

        async with Consumer("localhost:9092", group_id="readers") as consumer:
            consumer.subscribe(["orders"])
            async for record in consumer:
                ...

    Settings have Kafka's names, in `config` or with underscores as keywords. Keys and values are
    bytes unless deserializers are given. One task reads at a time.
    """

    def __init__(
        self,
        bootstrap_servers: str = "",
        config: Mapping[str, object] = {},
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        clock: Clock | None = None,
        dice: Dice | None = None,
        **settings: object,
    ) -> None:
        """Connects to nobody yet.

        Raises:
            ValueError: a setting is illegal.
        """
        if bootstrap_servers:
            settings["bootstrap_servers"] = bootstrap_servers
        self._settings = ClientSettings(CONSUMER_SETTINGS, config, settings)
        group_id = self._settings.text("group.id")
        kind = f"consumer-{group_id}" if group_id else "consumer"
        self._cluster = ClusterClient(self._settings, kind=kind, clock=clock, dice=dice)
        self._key = key_deserializer
        self._value = value_deserializer
        self._interceptors = tuple(interceptors)
        self._positions = Positions()
        self._has_group = bool(group_id)
        self._max_records = self._settings.number("max.poll.records")
        self._auto_commits = self._has_group and self._settings.flag("enable.auto.commit")
        self._auto_commit_ms = self._settings.number("auto.commit.interval.ms")
        self._committed_ms = self._cluster.clock.monotonic_ms()
        self._fetcher = Fetcher(
            self._cluster,
            self._positions,
            ResetPolicy(self._settings.text("auto.offset.reset")),
            self._committed_offsets if self._has_group else None,
        )
        self._topics: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self._listener: RebalanceListener | None = None
        self._membership: Membership | None = None
        self._is_member = False
        self._polling: asyncio.Task[None] | None = None
        self._single: deque[ConsumerRecord] = deque()
        self._commits: set[asyncio.Task[None]] = set()
        self._callbacks: deque[Callable[[], None]] = deque()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Commits what auto-commit owes, leaves the group, disconnects."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self._leave()
            await asyncio.gather(*self._commits, return_exceptions=True)
            self._run_callbacks()
        finally:
            await self._fetcher.close()
            await self._cluster.close()

    # --- what is read -----------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Reads topics, or those whose whole names match a pattern, as a member of the group.

        Raises:
            UsageError: there is no group, or partitions are assigned by hand.
        """
        self._check_group()
        if self._positions.assigned and not self._is_member:
            raise UsageError("partitions are assigned by hand", ErrorCode.INVALID_REQUEST)
        if isinstance(topics, str):
            raise TypeError("topics is a list of names, not one name")
        self._topics = frozenset(topics)
        self._pattern = None if pattern is None else re.compile(pattern)
        self._listener = listener
        if not self._topics and self._pattern is None:
            raise UsageError("no topic is named; see `unsubscribe`", ErrorCode.INVALID_REQUEST)
        if self._membership is None or not self._is_member:
            self._membership = self._new_membership()
            self._is_member = True
        else:
            self._membership.subscription_changed()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads these partitions, whatever a group may say.

        Raises:
            UsageError: topics are subscribed to.
        """
        if self._is_member:
            raise UsageError("topics are subscribed to", ErrorCode.INVALID_REQUEST)
        self._positions.assign(TopicPartition(*each) for each in partitions)
        self._single.clear()
        self._fetcher.pump()

    async def unsubscribe(self) -> None:
        """Reads nothing any more, and leaves the group."""
        await self._leave()
        self._positions.assign(())
        self._topics, self._pattern = frozenset(), None

    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to, as far as they are named or were matched."""
        return self._topics

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer has at present."""
        return self._positions.assigned

    # --- reading ----------------------------------------------------------------------------

    async def getmany(
        self,
        *partitions: TopicPartition,
        timeout_ms: int = 0,
        max_records: int | None = None,
    ) -> Records:
        """What is there, of some partitions or all, by partition; waits for it up to a time.

        Raises:
            BadRecord: a record cannot be read; `seek` behind it to go on.
            KafkaError: reading cannot go on as it is.
        """
        limit = self._max_records if max_records is None else max_records
        records: Records = {}
        for record in self._single:
            records.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        self._single.clear()
        if records:
            return records
        await self._wait_until(lambda: self._has_news(partitions), timeout_ms)
        taken = self._take(partitions, limit)
        return self._intercept(taken) if taken else taken

    async def getcolumns(
        self, *partitions: TopicPartition, timeout_ms: int = 0, headers: bool = True
    ) -> dict[TopicPartition, ColumnBuffers]:
        """As `getmany`, but whole chunks in columns as Arrow lays them out, without objects.

        Raises:
            BadRecord: a batch cannot be read.
            KafkaError: reading cannot go on as it is.
        """
        await self._wait_until(lambda: self._has_news(partitions), timeout_ms)
        found = {}
        for partition in self._ready(partitions):
            state = self._state(partition)
            assert state.chunk is not None, "it is ready"
            columns = state.chunk.columns(headers=headers)
            self._after_taking(partition, state)
            if columns.row_count:
                found[partition] = columns
        self._fetcher.pump()
        return found

    async def getone(self) -> ConsumerRecord:
        """The next record, as soon as there is one.

        Raises:
            KafkaError: as `getmany`.
        """
        while not self._single:
            for records in (await self.getmany(timeout_ms=60_000)).values():
                self._single.extend(records)
        return self._single.popleft()

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record; the iteration ends when the consumer is closed."""
        if self._is_closed:
            raise StopAsyncIteration
        return await self.getone()

    # --- where it stands --------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Goes to an offset.

        Raises:
            UsageError: the partition is not assigned, or the offset negative.
        """
        if offset < 0:
            raise UsageError(f"there is no offset {offset}", ErrorCode.INVALID_REQUEST)
        self._assigned(partition).seek(offset)
        self._after_seeking({partition})

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Goes to the beginning of some partitions, or all."""
        self._seek_by(partitions, EARLIEST)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Goes to the end of some partitions, or all."""
        self._seek_by(partitions, LATEST)

    async def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """The offset of the next record to be given out.

        Raises:
            KafkaError: it cannot be found within `default.api.timeout.ms`.
        """
        state = self._assigned(partition)
        pending = [each.offset for each in self._single if each[:2] == tuple(partition)]
        if pending:
            return pending[0]
        limit_ms = self._api_timeout_ms if timeout_ms is None else timeout_ms
        await self._wait_until(lambda: state.position is not None, limit_ms)
        if state.position is None:
            raise RequestTimedOut(f"the position in {partition} was not found in {limit_ms} ms")
        return state.position

    def pause(self, *partitions: TopicPartition) -> None:
        """Gives nothing out of these until `resume`; they stay this consumer's."""
        for partition in partitions:
            self._assigned(partition).is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Gives records of these out again."""
        for partition in partitions:
            self._assigned(partition).is_paused = False
        self._fetcher.pump()
        self._fetcher.news.set()

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return frozenset(each for each, state in self._positions.items() if state.is_paused)

    def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets are ahead, as far as the last fetch told; None before the first."""
        state = self._assigned(partition)
        is_committed = self._isolation_level == READ_COMMITTED
        end = state.last_stable_offset if is_committed else state.high_watermark
        return None if state.position is None or end < 0 else max(0, end - state.position)

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Where partitions begin.

        Raises:
            KafkaError: one cannot be asked.
        """
        found = await self._list_offsets(dict.fromkeys(partitions, EARLIEST))
        return {partition: each.offset for partition, each in found.items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where partitions end for this consumer's isolation level.

        Raises:
            KafkaError: one cannot be asked.
        """
        found = await self._list_offsets(dict.fromkeys(partitions, LATEST))
        return {partition: each.offset for partition, each in found.items()}

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first records at or after times; None where there is none.

        Raises:
            KafkaError: a partition cannot be asked.
        """
        found = await self._list_offsets(times_ms)
        return {partition: each if each.offset >= 0 else None for partition, each in found.items()}

    async def partitions_for(self, topic: str) -> TopicMetadata:
        """A topic with its partitions.

        Raises:
            KafkaError: it is not there.
        """

        async def attempt() -> TopicMetadata:
            answer = await self._cluster.refresh([topic])
            found = answer.topics[topic]
            if found.error_code:
                raise error_for(found.error_code, topic)
            return found

        return await self._cluster.retrying(attempt)

    # --- committing -------------------------------------------------------------------------

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commits offsets, or where the consumer stands: behind what it has given out.

        Raises:
            CommitFailed: the group went on without this member.
            KafkaError: anything else.
        """
        wanted = self._consumed() if offsets is None else _with_metadata(offsets)
        self._check_group()
        if wanted:
            await self._group.commit(wanted)
            self._tell_committed(wanted)

    def commit_async(
        self, offsets: Offsets | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Commits without waiting; the callback is called by a later read, commit or close."""
        wanted = self._consumed() if offsets is None else _with_metadata(offsets)
        self._check_group()
        if wanted:
            task = asyncio.create_task(self._commit_in_background(wanted, callback))
            self._commits.add(task)
            task.add_done_callback(self._commits.discard)

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """What the group has committed; None where it has not.

        Raises:
            KafkaError: it cannot be had.
        """
        self._check_group()
        wanted = list(partitions)
        found = await self._group.committed(wanted)
        return {partition: found.get(partition) for partition in wanted}

    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group, for a producer's transaction."""
        self._check_group()
        return self._group.metadata

    # --- inside: reading --------------------------------------------------------------------

    async def _wait_until(self, is_there: Callable[[], bool], timeout_ms: int) -> None:
        """Keeps membership and fetches going until there is something, or the time is over."""
        if self._is_closed:
            raise ClientClosed("the consumer was closed")
        try:
            async with asyncio.timeout(max(timeout_ms, 1) / 1000):
                while True:
                    self._fetcher.news.clear()
                    self._run_callbacks()
                    await self._poll_group()
                    self._auto_commit_if_due()
                    self._fetcher.pump()
                    if self._fetcher.error is not None:
                        error, self._fetcher.error = self._fetcher.error, None
                        raise error
                    if is_there() or not timeout_ms:
                        return
                    await self._fetcher.news.wait()
        except TimeoutError:
            return

    async def _poll_group(self) -> None:
        """Lets the membership give up and take partitions, which it does nowhere else.

        When the time of a read ends meanwhile, the work goes on: such a read gives nothing out, so
        all that was given out before has been dealt with. The next read waits for it first.
        """
        membership = self._membership
        if membership is None or not self._is_member:
            return
        membership.polled()
        while self._polling is not None or membership.needs_poll:
            if self._polling is None:
                self._polling = asyncio.create_task(membership.poll())
            before = self._positions.assigned
            try:
                await asyncio.shield(self._polling)
            finally:
                if self._polling.done():
                    self._polling = None
            if self._positions.assigned != before:
                self._drop_foreign_records()

    def _has_news(self, partitions: Sequence[TopicPartition]) -> bool:
        return bool(self._ready(partitions))

    def _ready(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """The partitions that have something to give out, in turn."""
        wanted = frozenset(partitions)
        ready = []
        for partition in self._positions.in_turn():
            state = self._state(partition)
            is_wanted = not wanted or partition in wanted
            if is_wanted and state.chunk and not state.is_paused and not state.is_revoking:
                ready.append(partition)
        return ready

    def _take(self, partitions: Sequence[TopicPartition], limit: int) -> Records:
        records: Records = {}
        left = limit
        for partition in self._ready(partitions):
            if left <= 0:
                break
            state = self._state(partition)
            assert state.chunk is not None, "it is ready"
            try:
                taken = state.chunk.take(left, self._key, self._value)
            except BadRecord as error:
                if records:
                    break  # those of the others first; it comes again
                state.position = error.offset
                raise
            self._after_taking(partition, state)
            if taken:
                records[partition] = taken
                left -= len(taken)
        self._fetcher.pump()
        return records

    def _after_taking(self, partition: TopicPartition, state: PartitionPosition) -> None:
        assert state.chunk is not None, "something was taken from it"
        if state.chunk.is_used_up:
            state.position, state.chunk = state.chunk.position, None
            self._positions.had_turn(partition)
        else:
            state.position = state.chunk.position

    def _state(self, partition: TopicPartition) -> PartitionPosition:
        state = self._positions.get(partition)
        assert state is not None, f"{partition} is assigned"
        return state

    def _assigned(self, partition: TopicPartition) -> PartitionPosition:
        state = self._positions.get(partition)
        if state is None:
            raise UsageError(f"{partition} is not assigned", ErrorCode.INVALID_REQUEST)
        return state

    def _seek_by(self, partitions: Sequence[TopicPartition], reset: int) -> None:
        wanted = set(partitions) or set(self._positions.assigned)
        for partition in wanted:
            self._assigned(partition).seek_by(reset)
        self._after_seeking(wanted)

    def _after_seeking(self, partitions: set[TopicPartition]) -> None:
        """Records of these that `getone` has ready are not wanted any more."""
        self._single = deque(
            each
            for each in self._single
            if TopicPartition(each.topic, each.partition) not in partitions
        )
        self._fetcher.pump()

    def _drop_foreign_records(self) -> None:
        assigned = self._positions.assigned
        self._single = deque(
            each for each in self._single if TopicPartition(each.topic, each.partition) in assigned
        )

    def _intercept(self, records: Records) -> Records:
        for interceptor in self._interceptors:
            try:
                records = interceptor.on_consume(records)
            except Exception:
                _LOGGER.warning("an interceptor failed; the records go on", exc_info=True)
        return records

    # --- inside: the group ------------------------------------------------------------------

    @property
    def _group(self) -> Membership:
        """The membership, or one that only knows the group, for offsets."""
        if self._membership is None:
            self._membership = self._new_membership()
        return self._membership

    def _new_membership(self) -> Membership:
        is_classic = self._settings.text("group.protocol").lower() == "classic"
        kind = ClassicMembership if is_classic else ConsumerProtocolMembership
        return kind(
            self._cluster,
            self._positions,
            self._wanted_topics,
            self._listener,
            self._commit_before_revoking,
            self._fetcher.news.set,
        )

    async def _wanted_topics(self) -> frozenset[str]:
        """The topics to read, by name or by pattern."""
        pattern = self._pattern
        if pattern is None:
            unknown = self._topics - self._cluster.metadata.topics.keys()
            if unknown or self._cluster.is_metadata_old:
                await self._cluster.refresh(
                    self._topics,
                    allow_auto_topic_creation=self._settings.flag("allow.auto.create.topics"),
                )
            return self._topics
        answer = await self._cluster.refresh(None)
        skips_internal = self._settings.flag("exclude.internal.topics")
        self._topics = frozenset(
            name
            for name, topic in answer.topics.items()
            if pattern.fullmatch(name)
            and not topic.error_code
            and not (topic.is_internal and skips_internal)
        )
        return self._topics

    async def _leave(self) -> None:
        polling, self._polling = self._polling, None
        if polling is not None:
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
        if self._membership is not None and self._is_member:
            await self._membership.leave()
            self._is_member = False
        self._membership = None

    def _check_group(self) -> None:
        if not self._has_group:
            raise UsageError("this needs a group.id", ErrorCode.INVALID_GROUP_ID)

    # --- inside: offsets --------------------------------------------------------------------

    def _consumed(self) -> dict[TopicPartition, CommittedOffset]:
        consumed = self._positions.consumed()
        for record in reversed(self._single):  # fetched for `getone`, not given out yet
            consumed[TopicPartition(record.topic, record.partition)] = record.offset
        return {partition: CommittedOffset(offset) for partition, offset in consumed.items()}

    async def _commit_before_revoking(self) -> None:
        if not self._auto_commits:
            return
        try:
            await self.commit()
        except KafkaError as error:
            _LOGGER.warning("the offsets could not be committed: %s", error)

    def _auto_commit_if_due(self) -> None:
        now_ms = self._cluster.clock.monotonic_ms()
        if not self._auto_commits or now_ms - self._committed_ms < self._auto_commit_ms:
            return
        self._committed_ms = now_ms
        if not self._commits:
            self.commit_async()

    async def _commit_in_background(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset],
        callback: CommitCallback | None,
    ) -> None:
        error: KafkaError | None = None
        try:
            await self._group.commit(offsets)
            self._tell_committed(offsets)
        except KafkaError as failure:
            error = failure
            _LOGGER.warning("the offsets could not be committed: %s", failure)
        if callback is not None:
            self._callbacks.append(lambda: callback(offsets, error))
            self._fetcher.news.set()

    def _run_callbacks(self) -> None:
        while self._callbacks:
            self._callbacks.popleft()()

    def _tell_committed(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.on_commit(offsets)
            except Exception:
                _LOGGER.warning("an interceptor failed on a commit", exc_info=True)

    async def _committed_offsets(
        self, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        return await self._group.committed(partitions)

    @property
    def _isolation_level(self) -> int:
        is_committed = self._settings.text("isolation.level").lower() == "read_committed"
        return READ_COMMITTED if is_committed else READ_UNCOMMITTED

    @property
    def _api_timeout_ms(self) -> int:
        return self._settings.number("default.api.timeout.ms")

    async def _list_offsets(
        self, questions: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        found: dict[TopicPartition, OffsetAndTimestamp] = {}

        async def attempt() -> None:
            missing = {each: at for each, at in questions.items() if each not in found}
            failed: KafkaError | None = None
            answers = await list_offsets(self._cluster, missing, self._isolation_level)
            for partition, answer in answers.items():
                if isinstance(answer, KafkaError):
                    failed = answer
                else:
                    found[partition] = answer
            if failed is not None:
                raise failed

        if questions:
            await self._cluster.retrying(attempt)
        return {partition: found[partition] for partition in questions}


def _with_metadata(offsets: Offsets) -> dict[TopicPartition, CommittedOffset]:
    return {
        TopicPartition(*partition): CommittedOffset(each) if isinstance(each, int) else each
        for partition, each in offsets.items()
    }
