"""`Consumer`: reads records, alone or as a member of a group, on an event loop.

`getmany`, `getone` and `async for` give records out; the fetcher is ahead in the background.
Partitions come and go only inside these calls, and auto-commit commits only records of earlier
calls: records returned before a call count as processed.

This is the public class; it uses `subscription` (topics and membership), `fetcher` (fetches),
`reading` (steps before records), `handout` (returned records) and `commits`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Final, Literal, overload

from odradek.client.aio.closing import AsyncClosing, ClosingTimeout
from odradek.client.aio.cluster import ClusterClient
from odradek.client.aio.consuming.commits import CommitCallback, Commits
from odradek.client.aio.consuming.handout import Columns, ConsumerInterceptor, Handout, Records
from odradek.client.aio.consuming.reading import Reading
from odradek.client.aio.consuming.subscription import Subscription
from odradek.client.aio.fetching.fetcher import Fetcher
from odradek.client.aio.group import (
    ClassicMembership,
    CommitsInTurn,
    ConsumerProtocolMembership,
    Membership,
    RebalanceListener,
)
from odradek.client.aio.offsets import list_all_offsets
from odradek.client.aio.waking import Waking
from odradek.client.core.admin_types import CommittedOffset, OffsetAndTimestamp
from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.client.core.consuming.deserializers import Deserializer
from odradek.client.core.consuming.list_offsets import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
)
from odradek.client.core.consuming.positions import PartitionPosition, Positions
from odradek.client.core.consuming.reset_policy import ResetPolicy
from odradek.client.core.groups.assignors import Assignor
from odradek.client.core.groups.commits import Offsets, with_metadata
from odradek.client.core.groups.group_metadata import GroupMetadata
from odradek.client.core.listed import listed
from odradek.client.core.metadata import TopicMetadata
from odradek.client.core.retries import Rng
from odradek.client.errors import (
    ClientClosed,
    KafkaError,
    RequestTimedOut,
    UsageError,
    raise_for,
    unanswered,
)
from odradek.client.settings import CONSUMER_SETTINGS, ClientSettings
from odradek.clock import Clock
from odradek.errors import ErrorCode
from odradek.model import TopicPartition

_LOGGER: Final = logging.getLogger(__name__)
# The longest single wait of `getone`.
_READ_MS: Final = 60_000


class Consumer(AsyncClosing):
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
        bootstrap_servers: str | Mapping[str, object] = "",
        config: Mapping[str, object] = {},
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        topics: Iterable[str] = (),
        assignors: Sequence[Assignor] = (),
        clock: Clock | None = None,
        rng: Rng | None = None,
        **settings: object,
    ) -> None:
        """Does not connect yet. `topics` are subscribed to; `assignors` come before those of
        `partition.assignment.strategy`.

        Raises:
            ValueError: a setting is illegal, or there are assignors where the coordinator assigns.
            UsageError: there are topics and no group.
        """
        self._settings = ClientSettings(CONSUMER_SETTINGS, config, settings, bootstrap_servers)
        group_id = self._settings.text("group.id")
        kind = f"consumer-{group_id}" if group_id else "consumer"
        self._cluster = ClusterClient(self._settings, kind=kind, clock=clock, rng=rng)
        self._positions = Positions(stores_itself=self._settings.flag("enable.auto.offset.store"))
        self._max_records = self._settings.number("max.poll.records")
        self._commits_in_turn = CommitsInTurn()
        self._subscription = Subscription(self._cluster, self._new_membership)
        self._fetcher = Fetcher(
            self._cluster,
            self._positions,
            ResetPolicy(self._settings.text("auto.offset.reset")),
            self._committed_offsets if group_id else None,
        )
        self._handout = Handout(
            self._positions,
            self._fetcher,
            key_deserializer,
            value_deserializer,
            interceptors,
        )
        self._commits = Commits(
            self._settings,
            self._cluster.clock,
            lambda: self._subscription.membership,
            self._positions.committable,
            interceptors,
            self._fetcher.news.set,
        )
        self._assignors = assignors
        if assignors and not self._is_classic:
            raise ValueError("assignors are for group.protocol=classic alone")
        self._waking = Waking()
        self._reading = Reading(
            self._cluster.clock,
            self._positions,
            self._subscription,
            self._fetcher,
            self._commits,
            self._waking,
        )
        if topics:
            self.subscribe(topics)

    async def close(self, timeout_ms: int = 30_000) -> None:
        """Commits what auto-commit owes, leaves the group, disconnects.

        Without an answer within `timeout_ms` the group notices by the missing heartbeats. Waiting
        reads get `ClientClosed`.
        """
        self._reading.end()
        await self._close_once(self._close, timeout_ms)

    @property
    def _is_waited_for(self) -> bool:
        return self._subscription.is_called_by_listener

    async def _close(self, timeout: ClosingTimeout) -> None:
        try:
            async with timeout.limit():
                await self._commits.await_pending()
                await self._commit_before_dropping()
                await self._subscription.end()
        except KafkaError as error:
            _LOGGER.warning("on leaving the group: %s", error)
        except TimeoutError:
            _LOGGER.warning("the group could not be left in time")
        finally:
            await self._subscription.abandon()
            await self._commits.give_up()
            await self._fetcher.close()
            await self._cluster.close()
        self._commits.run_last_callbacks()

    # --- what is read -----------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Reads topics, or those whose whole names match a pattern, as a member of the group. As in
        Kafka's own client the pattern is Java's; RE2 matches it.

        Raises:
            UsageError: there is no group, or partitions are assigned by hand, or RE2 does not
                support a part of the pattern (look-around, intersections of classes).
        """
        self._subscription.check_group()
        if self._positions.assigned and not self._subscription.is_member:
            raise UsageError("partitions are assigned by hand", ErrorCode.INVALID_REQUEST)
        self._subscription.subscribe(topics, pattern, listener)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads these partitions, without a group's assignment.

        Raises:
            UsageError: topics are subscribed to.
            TypeError: it is one partition, and no list of them.
        """
        if self._subscription.is_member:
            raise UsageError("topics are subscribed to", ErrorCode.INVALID_REQUEST)
        wanted = [TopicPartition(*each) for each in listed(partitions)]
        if self._positions.assigned - set(wanted):
            self._commits.before_dropping()
        self._positions.assign(wanted)
        self._fetcher.pump()

    async def unsubscribe(self) -> None:
        """Stops reading, and leaves the group.

        Raises:
            KafkaError: the listener failed; the group is left.
        """
        await self._commit_before_dropping()
        if not self._subscription.is_member:
            self._positions.assign(())
        await self._subscription.unsubscribe()

    def subscription(self) -> frozenset[str]:
        """The subscribed topics that are named or have been matched."""
        return self._subscription.topics

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer has at present."""
        return self._positions.assigned

    # --- reading ----------------------------------------------------------------------------

    @overload
    async def getmany(
        self,
        *partitions: TopicPartition,
        timeout_ms: int = 0,
        max_records: int | None = None,
        columns: Literal[False] = False,
    ) -> Records: ...

    @overload
    async def getmany(
        self,
        *partitions: TopicPartition,
        timeout_ms: int = 0,
        columns: Literal[True],
        headers: bool = True,
        views: bool = False,
    ) -> Columns: ...

    async def getmany(
        self,
        *partitions: TopicPartition,
        timeout_ms: int = 0,
        max_records: int | None = None,
        columns: bool = False,
        headers: bool = True,
        views: bool = False,
    ) -> Records | Columns:
        """Returns the records at hand, of some partitions or all, by partition; waits for them up
        to a time.

        With `columns` whole chunks come as columns, laid out as Arrow does it, without an object a
        record; deserializers and interceptors do not see them. `headers` False leaves those out.
        With `views` values are not copied: there are `value_views` in the place of `value`.

        Raises:
            BadRecord: a record cannot be read; `seek` behind it to continue. KafkaError: reading
                cannot continue as it is.
        """
        handout = self._handout
        if columns:
            handout.give_back(partitions)
        await self._reading.wait_until(lambda: bool(handout.ready(partitions)), timeout_ms)
        if self._subscription.needs_poll:
            return {}  # another member may have them by now; or a listener has moved them
        if columns:
            return handout.take_columns(partitions, headers=headers, views=views)
        return handout.take(partitions, self._max_records if max_records is None else max_records)

    def wakeup(self) -> None:
        """Ends every call that waits for records, offsets, metadata or a commit, or the next one,
        with `WokenUp`. It loses nothing; a commit may have been done."""
        self._waking.wake()
        self._fetcher.news.set()

    async def getone(self) -> ConsumerRecord:
        """The next record, as soon as there is one.

        Raises:
            KafkaError: as `getmany`.
        """
        if self._commits.are_under_way:
            await asyncio.sleep(0)  # without a look at all partitions, for each of hundreds
        record = None if self._reading.must_look else self._handout.take_one(self._max_records)
        while record is None:
            # A rebalance comes first, even if there are hundreds of records left.
            await self._reading.wait_until(lambda: bool(self._handout.ready()), _READ_MS)
            if not self._subscription.needs_poll:
                record = self._handout.take_one(self._max_records)
        self._subscription.was_read()
        return record

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record; the iteration ends when the consumer is closed."""
        try:
            return await self.getone()
        except ClientClosed:
            raise StopAsyncIteration from None

    # --- where it stands --------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Moves to an offset.

        Raises:
            UsageError: the partition is not assigned, or the offset negative or of over 63 bits.
        """
        if not 0 <= offset < 1 << 63:
            raise UsageError(f"there is no offset {offset}", ErrorCode.INVALID_REQUEST)
        self._assigned(partition).seek(offset)
        self._after_seeking()

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Moves to the beginning of some partitions, or all."""
        self._seek_by(partitions, EARLIEST)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Moves to the end of some partitions, or all."""
        self._seek_by(partitions, LATEST)

    async def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """The offset of the next record to return. A listener may call it, too.

        Raises:
            UsageError: the partition is not assigned, or is revoked meanwhile.
            KafkaError: it cannot be found within `default.api.timeout.ms`.
        """
        limit = self._cluster.time_limit(given_ms=timeout_ms)
        try:
            async with self._waking.waited(limit.ms):
                # Looked up each time: a rebalance revokes and assigns partitions.
                while (position := self._assigned(partition).position) is None:
                    self._reading.check_open()
                    self._fetcher.news.clear()
                    self._fetcher.pump()
                    self._reading.raise_error()
                    await self._fetcher.news.wait()
        except TimeoutError:
            text = f"the position in {partition} was not found within {limit}"
            raise RequestTimedOut(text) from None
        return position

    def pause(self, *partitions: TopicPartition) -> None:
        """Returns no records of these until `resume`; they stay assigned."""
        for partition in partitions:
            self._assigned(partition).is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Returns records of these again."""
        for partition in partitions:
            self._assigned(partition).is_paused = False
        self._fetcher.pump()
        self._fetcher.news.set()

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return frozenset(each for each, state in self._positions.items() if state.is_paused)

    def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets are ahead, according to the last fetch; None before the first."""
        state = self._assigned(partition)
        is_committed = self._isolation_level == READ_COMMITTED
        end = state.last_stable_offset if is_committed else state.high_watermark
        return None if state.position is None or end < 0 else max(0, end - state.position)

    def highwater(self, partition: TopicPartition) -> int | None:
        """The high watermark, according to the last fetch; None before the first."""
        return _known(self._assigned(partition).high_watermark)

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """The last stable offset, according to the last fetch; None before the first."""
        return _known(self._assigned(partition).last_stable_offset)

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The log start offsets of partitions.

        Raises:
            KafkaError: one cannot be asked.
        """
        found = await self._list_offsets(dict.fromkeys(listed(partitions), EARLIEST))
        return {partition: each.offset for partition, each in found.items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end offsets of partitions for this consumer's isolation level.

        Raises:
            KafkaError: one cannot be asked.
        """
        found = await self._list_offsets(dict.fromkeys(listed(partitions), LATEST))
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
            if self._cluster.outdated([topic]):
                answer = await self._cluster.refresh([topic])
                found = answer.topics.get(topic)
                if found is None:
                    raise unanswered(topic)
                raise_for(found.error_code, topic)
            return self._cluster.metadata.topics[topic]

        async with self._waking.waited():
            return await self._cluster.retrying(attempt)

    # --- committing -------------------------------------------------------------------------

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commits offsets, by default the consumer's positions: behind the records that it has
        returned.

        Raises:
            CommitFailed: the group has continued without this member. KafkaError: anything else.
        """
        self._subscription.check_group()
        async with self._waking.waited():
            await self._commits.commit(offsets)
        self._commits.run_callbacks()

    def commit_async(
        self, offsets: Offsets | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Commits without waiting; the callback is called by a later read, commit or close."""
        self._subscription.check_group()
        self._commits.commit_async(offsets, callback)

    def store_offsets(
        self,
        *records: ConsumerRecord,
        offsets: Offsets = {},  # noqa: B006 - it is only read
    ) -> None:
        """Marks these records as processed: auto-commit, and `commit` without offsets, commit the
        offsets behind them. For consumers with `enable.auto.offset.store` false.

        Raises:
            UsageError: it is true, or a partition is not assigned.
        """
        if self._settings.flag("enable.auto.offset.store"):
            raise UsageError("enable.auto.offset.store is true", ErrorCode.INVALID_REQUEST)
        behind = {
            TopicPartition(each.topic, each.partition): CommittedOffset(
                each.offset + 1, "", each.leader_epoch
            )
            for each in records
        }
        stored = behind | with_metadata(offsets)
        states = {partition: self._assigned(partition) for partition in stored}
        for partition, state in states.items():
            state.stored = stored[partition]

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """The group's committed offset; None without one.

        Raises:
            KafkaError: it cannot be had.
        """
        wanted = list(listed(partitions))
        async with self._waking.waited():
            found = await self._subscription.membership.committed(wanted)
        return {partition: found.get(partition) for partition in wanted}

    def group_metadata(self) -> GroupMetadata:
        """The identity of this consumer in its group, for a producer's transaction; of one that the
        group has removed the last that it had, with which offsets are refused."""
        return self._subscription.membership.last_metadata

    # --- inside: positions ------------------------------------------------------------------

    async def _commit_before_dropping(self) -> None:
        """With auto-commit commits pending offsets of partitions that are assigned by hand; a
        member commits when its own are revoked."""
        if self._positions.assigned and not self._subscription.is_member:
            await self._commits.before_revoking()

    def _assigned(self, partition: TopicPartition) -> PartitionPosition:
        state = self._positions.get(partition)
        if state is None:
            raise UsageError(f"{partition} is not assigned", ErrorCode.INVALID_REQUEST)
        return state

    def _seek_by(self, partitions: Sequence[TopicPartition], reset: int) -> None:
        wanted = set(partitions) or set(self._positions.assigned)
        for partition in wanted:
            self._assigned(partition).seek_by(reset)
        self._after_seeking()

    def _after_seeking(self) -> None:
        """Forgets the error at the reader's position; other errors come again."""
        self._fetcher.error = None
        self._fetcher.pump()

    # --- inside: group and offsets ----------------------------------------------------------

    def _new_membership(self, subscription: Subscription) -> Membership:
        parts = (
            self._cluster,
            self._positions,
            subscription,
            subscription.listener,
            self._commits.before_revoking,
            self._fetcher.news.set,
            lambda: self._reading.is_going_on,
            self._commits_in_turn,
        )
        if self._is_classic:
            return ClassicMembership(*parts, assignors=self._assignors)
        return ConsumerProtocolMembership(*parts)

    @property
    def _is_classic(self) -> bool:
        return self._settings.text("group.protocol").lower() == "classic"

    async def _committed_offsets(
        self, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        return await self._subscription.membership.committed(partitions)

    @property
    def _isolation_level(self) -> int:
        is_committed = self._settings.text("isolation.level").lower() == "read_committed"
        return READ_COMMITTED if is_committed else READ_UNCOMMITTED

    async def _list_offsets(
        self, questions: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        async with self._waking.waited():
            return await list_all_offsets(self._cluster, questions, self._isolation_level)


def _known(offset: int) -> int | None:
    return None if offset < 0 else offset
