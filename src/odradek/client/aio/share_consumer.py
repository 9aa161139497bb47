"""`ShareConsumer`: reads records as a member of a share group, one by one answered (KIP-932).

Members of a share group read the same partitions together. A record is handed to one of them, which
acknowledges it before its lock ends: accepted, released for another attempt, or rejected.

It does not fetch ahead: a record's lock runs from the moment it was acquired. This is the face;
`sharing.membership` keeps the member alive, `sharing.broker_shares` has a session with each broker.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from odradek.client.aio.closing import AsyncClosing, ClosingTimeout
from odradek.client.aio.cluster import ClusterClient
from odradek.client.aio.consuming.handout import Records
from odradek.client.aio.sharing.broker_shares import BrokerShares, Brought, Said
from odradek.client.aio.sharing.membership import ShareMembership
from odradek.client.aio.waking import Waking
from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.client.core.consuming.deserializers import Deserializer, deserializing
from odradek.client.core.listed import each_once
from odradek.client.core.processes import tell_of_forks
from odradek.client.core.retries import ExponentialBackoff, Rng
from odradek.client.core.sharing.acknowledgements import (
    GAP,
    Acknowledgements,
    AcknowledgeType,
    SharePartition,
)
from odradek.client.core.sharing.acquired import AcquiredRange, read_acquired
from odradek.client.core.sharing.given import GivenRecords, Source
from odradek.client.core.sharing.untold import UntoldErrors
from odradek.client.errors import (
    ClientClosed,
    KafkaError,
    RequestTimedOut,
    StaleMetadata,
    UsageError,
    error_for,
)
from odradek.client.settings import SHARE_CONSUMER_SETTINGS, ClientSettings
from odradek.clock import Clock
from odradek.errors import ErrorCode
from odradek.model import TopicPartition

_LOGGER: Final = logging.getLogger(__name__)
# How long `getone` waits at a time.
_READ_MS: Final = 60_000
# How long acknowledgements wait for a fetch to go with.
_LINGER_S: Final = 1.0
AcknowledgementCallback = Callable[
    [Mapping[TopicPartition, frozenset[int]], KafkaError | None], None
]


class _Batch(NamedTuple):
    """Records of one source that have not been given out."""

    source: Source
    records: deque[ConsumerRecord]


class ShareConsumer(AsyncClosing):
    """Reads records of a share group.

        async with ShareConsumer("localhost:9092", group_id="workers", topics=["jobs"],
                                 share_acknowledgement_mode="explicit") as consumer:
            async for record in consumer:
                async with consumer.process(record):
                    ...

    `process` accepts the record, or releases it when the block raises. With implicit
    acknowledgement, the default, the next read accepts the records of the one before.

    Settings have Kafka's names, in `config` or with underscores as keywords. Keys and values are
    bytes unless deserializers are given. One task reads at a time; any may acknowledge.
    """

    def __init__(
        self,
        bootstrap_servers: str | Mapping[str, object] = "",
        config: Mapping[str, object] = {},
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        topics: Iterable[str] = (),
        clock: Clock | None = None,
        rng: Rng | None = None,
        **settings: object,
    ) -> None:
        """Connects to nobody yet.

        Raises:
            ValueError: a setting is illegal.
            UsageError: there is no group.
        """
        self._settings = ClientSettings(
            SHARE_CONSUMER_SETTINGS, config, settings, bootstrap_servers
        )
        group_id = self._settings.text("group.id")
        if not group_id:
            raise UsageError("a share consumer needs a group.id", ErrorCode.INVALID_GROUP_ID)
        kind = f"consumer-{group_id}"
        self._cluster = ClusterClient(self._settings, kind=kind, clock=clock, rng=rng)
        self._deserializers = deserializing(key_deserializer), deserializing(value_deserializer)
        mode = self._settings.text("share.acknowledgement.mode").lower()
        self._is_explicit = mode == "explicit"
        self._max_records = self._settings.number("max.poll.records")
        self._topics: frozenset[str] = frozenset()
        self._news = asyncio.Event()
        self._membership = ShareMembership(self._cluster, self._news.set)
        self._waking = Waking()
        self._backoff = ExponentialBackoff(
            self._settings.number("retry.backoff.ms"),
            self._settings.number("retry.backoff.max.ms"),
            self._cluster.rng,
        )
        self._is_closed = False
        tell_of_forks(self, ShareConsumer._on_forked)
        # Nothing is asked for while some wait: they would come again.
        self._untold = UntoldErrors()
        self._brokers: dict[int, BrokerShares] = {}
        # By broker the task that asks it, and its failures in a row.
        self._asking: dict[int, asyncio.Task[None]] = {}
        self._failures: dict[int, int] = {}
        self._looking: asyncio.Task[None] | None = None
        self._here: deque[_Batch] = deque()
        self._given = GivenRecords()
        self._said: dict[int, Said] = {}  # acknowledgements still to be sent
        self._linger: asyncio.TimerHandle | None = None
        self._unanswered = 0
        self._commits: list[dict[TopicPartition, KafkaError | None]] = []
        self._callback: AcknowledgementCallback | None = None
        self._outcomes: deque[tuple[SharePartition, frozenset[int], KafkaError | None]] = deque()
        if topics:
            self.subscribe(topics)

    def _on_forked(self) -> None:
        """Returns nothing any more: the fetched records are the parent process's."""
        self._is_closed = True

    async def close(self, timeout_ms: int = 30_000) -> None:
        """Sends acknowledgements, releases the other records, leaves the group, disconnects.

        Without an answer within `timeout_ms` brokers and group notice by themselves. Waiting reads
        get `ClientClosed`.
        """
        self._is_closed = True
        self._stop_lingering()
        self._news.set()
        await self._close_once(self._close, timeout_ms)

    async def _close(self, timeout: ClosingTimeout) -> None:
        try:
            async with timeout.limit():
                ending = [each.close(self._said_to(each)) for each in self._brokers.values()]
                await asyncio.gather(*ending)
                await self._membership.leave()
        except TimeoutError:
            _LOGGER.warning("the share group could not be left in time")
        finally:
            await self._membership.end()
            tasks = [*self._asking.values(), *([self._looking] if self._looking else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._cluster.close()
        while self._outcomes:
            try:
                self._run_callbacks()
            except Exception:
                # The consumer is closed all the same.
                _LOGGER.warning("the callback of an acknowledgement failed", exc_info=True)

    # --- what is read -----------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> None:
        """Reads these topics, instead of earlier ones.

        Raises:
            UsageError: there are none.
            TypeError: it is one name, and no list of them.
        """
        wanted = frozenset(each_once(topics))
        if not wanted:
            raise UsageError("no topic is named", ErrorCode.INVALID_REQUEST)
        self._read(wanted)
        self._membership.subscribe(wanted)

    async def unsubscribe(self) -> None:
        """Stops reading, and leaves the group; returned records can still be acknowledged."""
        self._read(frozenset())
        self._send()
        await self._membership.leave()

    def _read(self, topics: frozenset[str]) -> None:
        self._topics = topics
        self._untold.reads(topics)
        self._release_unwanted()

    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to."""
        return self._topics

    # --- reading ----------------------------------------------------------------------------

    async def getmany(self, *, timeout_ms: int = 0, max_records: int | None = None) -> Records:
        """Returns the records at hand, by partition; waits for them up to a time.

        Raises:
            UsageError: with explicit acknowledgement, records of the last call were not answered.
                BadRecord: a record cannot be read; it has been released or rejected. KafkaError:
                reading cannot continue as it is.
        """
        if self._is_explicit and self._given.are_unanswered:
            raise UsageError(
                "not all records of the last read were acknowledged", ErrorCode.INVALID_RECORD_STATE
            )
        self._accept_given()
        await self._wait_for_records(timeout_ms)
        found: Records = {}
        for _ in range(self._max_records if max_records is None else max_records):
            if not self._here:
                break
            record = self._take()
            found.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        return found

    async def getone(self) -> ConsumerRecord:
        """The next record, as soon as there is one. With explicit acknowledgement others may be
        dealt with at the same time.

        Raises:
            KafkaError: as `getmany`.
        """
        self._accept_given()
        while not self._here or self._must_look:
            await self._wait_for_records(_READ_MS)
        return self._take()

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record; the iteration ends when the consumer is closed."""
        try:
            return await self.getone()
        except ClientClosed:
            raise StopAsyncIteration from None

    def wakeup(self) -> None:
        """Ends every call that waits, or the next one, with `WokenUp`. It loses nothing."""
        self._waking.wake()
        self._news.set()

    # --- acknowledging ----------------------------------------------------------------------

    def acknowledge(
        self, record: ConsumerRecord, type: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """Acknowledges a record; sent with the next read or commit. A renewed record has to be
        acknowledged again.

        Raises:
            UsageError: acknowledgement is implicit, or the record is not this consumer's to answer.
        """
        self._check_explicit()
        if not self._given.has(record):
            where = TopicPartition(record.topic, record.partition)
            raise UsageError(
                f"{where} at offset {record.offset} was not given out, or is answered",
                ErrorCode.INVALID_RECORD_STATE,
            )
        self._say(record, AcknowledgeType(type))

    @asynccontextmanager
    async def process(self, record: ConsumerRecord) -> AsyncIterator[ConsumerRecord]:
        """Accepts the record at the end of an `async with` block; releases it, for another attempt,
        when the block raises or is cancelled. Explicit acknowledgements of the block stay.

        Raises:
            UsageError: acknowledgement is implicit.
        """
        self._check_explicit()
        try:
            yield record
        except BaseException:
            self._acknowledge_unless_done(record, AcknowledgeType.RELEASE)
            raise
        self._acknowledge_unless_done(record, AcknowledgeType.ACCEPT)

    def _check_explicit(self) -> None:
        if not self._is_explicit:
            raise UsageError(
                "share.acknowledgement.mode is implicit: the next read accepts what was given out",
                ErrorCode.INVALID_REQUEST,
            )

    def _acknowledge_unless_done(self, record: ConsumerRecord, type: AcknowledgeType) -> None:
        if self._given.has(record):
            self.acknowledge(record, type)

    async def commit(
        self, timeout_ms: int | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Sends acknowledgements, with implicit acknowledgement of all returned records, and
        returns the outcome of each partition.

        Raises:
            RequestTimedOut: the time is over; acknowledgements may have arrived.
        """
        self._accept_given()
        limit = self._cluster.time_limit(given_ms=timeout_ms)
        found: dict[TopicPartition, KafkaError | None] = {}
        self._commits.append(found)
        try:
            async with self._waking.waited(limit.ms):
                while self._said or self._unanswered:
                    self._send()
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise RequestTimedOut(f"brokers did not answer within {limit}") from None
        finally:
            # Not by `remove`: another commit may have equal results so far.
            self._commits = [each for each in self._commits if each is not found]
        self._run_callbacks()
        return found

    def commit_async(self) -> None:
        """Like `commit`, without waiting; the callback gets the outcome."""
        self._accept_given()
        self._send()

    def set_acknowledgement_commit_callback(self, callback: AcknowledgementCallback | None) -> None:
        """The callback gets, inside a later read, commit or close, the offsets of each partition
        that a broker has accepted, or the error."""
        self._callback = callback

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """The lock duration by the last response of a broker; None before."""
        known = [each.lock_timeout_ms for each in self._brokers.values() if each.lock_timeout_ms]
        return known[-1] if known else None

    # --- inside: giving out -----------------------------------------------------------------

    async def _wait_for_records(self, timeout_ms: int) -> None:
        """Keeps the membership and fetches going until there are records, or until the time-out."""
        if not self._topics:
            raise UsageError("no topic is subscribed to", ErrorCode.INVALID_REQUEST)
        waited = self._waking.waited(max(timeout_ms, 1))
        try:
            async with waited:
                while True:
                    self._check_open()
                    self._news.clear()
                    self._run_callbacks()
                    self._membership.poll()
                    if not self._untold:
                        self._pump()
                    await asyncio.sleep(0)  # a caller that only polls lets the loop receive
                    if self._here:
                        return  # before any error: their locks run
                    if self._untold:
                        raise self._untold.take()
                    if not timeout_ms:
                        return
                    await self._news.wait()
        except TimeoutError:
            if not waited.is_over:
                raise  # by the callback
            self._check_open()

    @property
    def _must_look(self) -> bool:
        return self._is_closed or self._waking.is_due

    def _check_open(self) -> None:
        if self._is_closed:
            self._cluster.check_process()
            raise ClientClosed("the consumer was closed")

    def _take(self) -> ConsumerRecord:
        source, records = self._here[0]
        record = records.popleft()
        if not records:
            self._here.popleft()
        self._given.add(record, source)
        return record

    def _put_back(self, found: Records) -> None:
        """Takes back records that no caller got: the next read returns them."""
        for record in reversed([each for records in found.values() for each in records]):
            source = self._given.take_back(record)
            if source is not None:
                self._here.appendleft(_Batch(source, deque([record])))
        self._release_unwanted()

    def _release_unwanted(self) -> None:
        """Leaves records of topics that are not subscribed to any more to others."""
        here, self._here = self._here, deque()
        for batch in here:
            if batch.source.partition.where.topic in self._topics:
                self._here.append(batch)
            else:
                released = AcknowledgeType.RELEASE
                self._say_of(batch.source, {each.offset: released for each in batch.records})

    def _accept_given(self) -> None:
        if not self._is_explicit:
            for record in self._given.records():
                self._say(record, AcknowledgeType.ACCEPT)

    def _say(self, record: ConsumerRecord, type: AcknowledgeType) -> None:
        self._say_of(self._given.acknowledged(record, type), {record.offset: type})

    def _say_of(self, source: Source, types: Acknowledgements) -> None:
        if types:
            said = self._said.setdefault(source.node_id, {})
            said.setdefault(source.partition, {}).update(types)
            self._send_later()

    # --- inside: asking ---------------------------------------------------------------------

    def _pump(self) -> None:
        """Asks every leader of assigned partitions, unless it is asked already or there are enough
        records."""
        by_node = self._wanted()
        for node_id in by_node.keys() | self._said.keys():
            if node_id not in self._asking:
                wanted = None if self._here else by_node.get(node_id)
                self._begin(node_id, wanted)

    def _send_later(self) -> None:
        """The next read may be far away, and locks must not expire meanwhile."""
        if self._linger is None and not self._is_closed:
            self._linger = asyncio.get_running_loop().call_later(_LINGER_S, self._send)

    def _send(self) -> None:
        self._stop_lingering()
        for node_id in list(self._said):
            if node_id not in self._asking:
                self._begin(node_id, None)

    def _stop_lingering(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None

    def _begin(self, node_id: int, wanted: frozenset[SharePartition] | None) -> None:
        if not wanted and node_id not in self._said:
            return
        broker = self._brokers.get(node_id)
        if broker is None:
            member = self._membership
            broker = self._brokers[node_id] = BrokerShares(
                self._cluster, node_id, member.group_id, member.member_id, self._on_answered
            )
        task = asyncio.create_task(self._ask(broker, wanted))
        self._asking[node_id] = task
        task.add_done_callback(lambda _: self._asked(node_id))

    def _asked(self, node_id: int) -> None:
        self._asking.pop(node_id, None)
        if node_id in self._said:
            self._send_later()
        self._news.set()

    async def _ask(self, broker: BrokerShares, wanted: frozenset[SharePartition] | None) -> None:
        """Fetches, and sends acknowledgements; those that come meanwhile follow at once."""
        try:
            if wanted:
                for each in await broker.fetch(wanted, self._said_to(broker)):
                    self._receive(broker.node_id, each)
                self._news.set()
            while broker.node_id in self._said:
                await broker.acknowledge(self._said_to(broker))
        except KafkaError as error:
            await self._after_failure(broker.node_id, wanted or frozenset(), error)
        except Exception as error:
            # The reader gets the error, or it would wait for ever.
            _LOGGER.exception("a share fetch failed")
            self._untold.add(KafkaError(f"the consumer failed: {error!r}"))
        else:
            self._failures.pop(broker.node_id, None)

    async def _after_failure(
        self, node_id: int, wanted: frozenset[SharePartition], error: KafkaError
    ) -> None:
        self._cluster.doubt({each.where.topic for each in wanted})
        if not error.retriable:
            self._untold.add(error)
            self._news.set()
        failures = self._failures.get(node_id, 0)
        self._failures[node_id] = failures + 1
        await asyncio.sleep(self._backoff.wait_ms(failures) / 1000)

    def _said_to(self, broker: BrokerShares) -> Said:
        said = self._said.pop(broker.node_id, {})
        self._unanswered += len(said)
        return said

    def _receive(self, node_id: int, brought: Brought) -> None:
        partition, part = brought
        code = int(part.error_code)
        if code:
            error = error_for(code, part.error_message or str(partition.where))
            self._cluster.doubt([partition.where.topic])
            if not (error.retriable or isinstance(error, StaleMetadata)):
                self._untold.add(error, partition.where.topic)
        ranges = [
            AcquiredRange(each.first_offset, each.last_offset, each.delivery_count)
            for each in part.acquired_records
        ]
        check_crcs = self._settings.flag("check.crcs")
        data = memoryview(part.records or b"")
        found = read_acquired(
            partition.where, data, ranges, *self._deserializers, check_crcs=check_crcs
        )
        source = Source(node_id, partition)
        self._say_of(source, found.answers)
        if found.error is not None:
            self._untold.add(found.error, partition.where.topic)
        if found.records:
            self._here.append(_Batch(source, deque(found.records)))
            self._release_unwanted()  # the subscription may be another by now

    def _wanted(self) -> dict[int, frozenset[SharePartition]]:
        """The partitions that this member is to read, by their leaders."""
        metadata = self._cluster.metadata
        found: dict[int, set[SharePartition]] = {}
        for topic_id, indexes in self._membership.assignment.items():
            topic = metadata.topics_by_id.get(topic_id)
            if topic is None:
                self._cluster.doubt(self._topics)
                continue
            if topic.name not in self._topics:
                continue  # each attempt counts, and would be for others: the assignment is outdated
            for index in indexes:
                where = TopicPartition(topic.name, index)
                leader = metadata.leader_of(where)
                if leader is None:
                    self._cluster.doubt([topic.name])
                else:
                    found.setdefault(leader.id, set()).add(SharePartition(topic_id, where))
        self._look_if_outdated()
        return {node_id: frozenset(partitions) for node_id, partitions in found.items()}

    def _look_if_outdated(self) -> None:
        outdated = self._cluster.outdated(self._topics)
        if outdated and self._looking is None:
            self._looking = asyncio.create_task(self._look(outdated))
            self._looking.add_done_callback(self._looked)

    async def _look(self, topics: set[str]) -> None:
        try:
            answer = await self._cluster.refresh(topics)
        except KafkaError as error:
            if not error.retriable:
                self._untold.add(error)
            return
        for topic in sorted(topics):
            try:
                answer.raise_refused([topic])
            except KafkaError as error:
                self._untold.add(error, topic)

    def _looked(self, _: asyncio.Task[None]) -> None:
        self._looking = None
        self._news.set()

    # --- inside: outcomes -------------------------------------------------------------------

    def _on_answered(
        self, partition: SharePartition, types: Acknowledgements, error: KafkaError | None
    ) -> None:
        self._unanswered -= 1
        self._news.set()
        offsets = frozenset([each for each, kind in types.items() if kind != GAP])
        if offsets:
            self._outcomes.append((partition, offsets, error))
            for found in self._commits:
                found[partition.where] = found.get(partition.where) or error

    def _run_callbacks(self) -> None:
        """Reports the results of acknowledgements. An exception of the callback is raised here; it
        gets the other outcomes the next time."""
        while self._outcomes:
            partition, offsets, error = self._outcomes.popleft()
            if self._callback is not None:
                self._callback({partition.where: offsets}, error)
