"""Fetches ahead of whoever reads: one request a broker at a time, for what wants more.

`pump` is the one decision: it looks at every partition and starts what is missing, a fetch, the
lookup of a position, fresh metadata. It is called whenever something changed. A partition has the
chunk that is being given out and the one behind it, and is not fetched further, so memory is
bounded by twice `fetch.max.bytes` a broker.

A partition that has both is not in a request. The others are asked for without waiting then, and
not again before something was used up, or a moment later: a long wait for idle partitions would
keep the busy one waiting.

The next request to a broker leaves before the reader sees what the one before has brought, so that
the broker works while the reader does. Nothing is asked for while there is an error to be told: it
would only come again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Final, NamedTuple
from uuid import UUID

from odradek.client.aio.cluster import FETCH_CHANNEL, ClusterClient
from odradek.client.aio.offsets import list_offsets
from odradek.client.apis import FETCH
from odradek.client.core.admin_types import CommittedOffset
from odradek.client.core.consuming.fetch_session import FetchSession, SessionRequest, Wanted
from odradek.client.core.consuming.fetched import FetchedChunk
from odradek.client.core.consuming.list_offsets import CONSUMER, READ_COMMITTED, READ_UNCOMMITTED
from odradek.client.core.consuming.positions import (
    PREFERRED_REPLICA_AGE_MS,
    PartitionPosition,
    Positions,
)
from odradek.client.core.consuming.reset_policy import ResetPolicy
from odradek.client.core.metadata import Node
from odradek.client.core.retries import ExponentialBackoff
from odradek.client.errors import (
    KafkaError,
    NoOffsetForPartition,
    OffsetOutOfRange,
    RecordTooLarge,
    StaleMetadata,
    error_for,
)
from odradek.errors import ErrorCode
from odradek.model import NO_LEADER_EPOCH, TopicPartition
from odradek.protocol.fetch import (
    TOPIC_ID_VERSION,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    decode_fetch_response,
    encode_fetch_request,
)
from odradek.protocol.primitives import Buffer

_LOGGER: Final = logging.getLogger(__name__)
Committed = Callable[[list[TopicPartition]], Awaitable[dict[TopicPartition, CommittedOffset]]]
# Between looks at the other partitions of a broker while one has all that it may have.
LOOK_AGAIN_MS: Final = 100
_RETRY_SOON: Final = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR})


class _Asked(NamedTuple):
    """What a broker is asked for, and how long it may wait until it has something."""

    wanted: dict[TopicPartition, Wanted]
    max_wait_ms: int


class Fetcher:
    """The background of a consumer. `committed` looks up where its group stands, if it has one."""

    def __init__(
        self,
        cluster: ClusterClient,
        positions: Positions,
        reset_policy: ResetPolicy,
        committed: Committed | None,
    ) -> None:
        settings = cluster.settings
        self._cluster = cluster
        self._positions = positions
        self._reset_policy = reset_policy
        self._committed = committed
        self._is_committed_only = settings.text("isolation.level").lower() == "read_committed"
        self._max_wait_ms = settings.number("fetch.max.wait.ms")
        self._backoff = ExponentialBackoff(
            settings.number("retry.backoff.ms"),
            settings.number("retry.backoff.max.ms"),
            cluster.dice,
        )
        self._sessions: dict[int, FetchSession] = {}
        self._fetches: dict[int, asyncio.Task[None]] = {}
        # When brokers were asked without waiting, since something was used up last.
        self._looked_ms: dict[int, int] = {}
        self._placing: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._failures = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        # Set when there is something for the reader: a chunk, or an error.
        self.news = asyncio.Event()
        self.error: KafkaError | None = None
        # Set until the loop's next turn when a broker is to be asked for more.
        self.has_unsent = False

    async def close(self) -> None:
        """Ends everything that is under way."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        under_way = [*self._fetches.values(), self._placing, self._refreshing]
        tasks = [task for task in under_way if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def pump(self) -> None:
        """Starts what is missing and not under way."""
        self._start_missing()

    def _start_missing(self, answered_id: int | None = None) -> _Asked | None:
        """As `pump`; what the broker that has just answered is to be asked for next."""
        if self._is_closed or self.error is not None:
            return None
        now_ms = self._cluster.clock.monotonic_ms()
        fetchable = self._fetchable(now_ms)
        if self._positions.unplaced() and self._placing is None:
            self._placing = self._start(self._place())
        if self._needs_metadata() and self._refreshing is None:
            self._refreshing = self._start(self._refresh())
        following: _Asked | None = None
        for node_id, (wanted, is_full) in fetchable.items():
            if node_id in self._fetches and node_id != answered_id:
                continue
            max_wait_ms = self._max_wait_ms
            if is_full:
                if now_ms < self._looked_ms.get(node_id, -LOOK_AGAIN_MS) + LOOK_AGAIN_MS:
                    self._pump_at(LOOK_AGAIN_MS)
                    continue
                self._looked_ms[node_id] = now_ms
                max_wait_ms = 0
            asked = _Asked(wanted, max_wait_ms)
            if node_id == answered_id:
                following = asked
            else:
                self._fetches[node_id] = self._start(self._fetch_from(node_id, asked))
                self.has_unsent = True
        return following

    def used_up(self) -> None:
        """A partition wants more: its broker may be asked at once."""
        self._looked_ms.clear()

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._fetches = {key: each for key, each in self._fetches.items() if each is not task}
        self._placing = None if self._placing is task else self._placing
        self._refreshing = None if self._refreshing is task else self._refreshing
        if task.cancelled():
            return
        fault = task.exception()
        if fault is None:
            self._failures = 0
            self.pump()
        elif isinstance(fault, KafkaError) and fault.retriable:
            _LOGGER.debug("fetching is retried: %s", fault)
            self._pump_later()
        else:
            if not isinstance(fault, KafkaError):
                _LOGGER.error("fetching failed unexpectedly", exc_info=fault)
                fault = KafkaError(f"the consumer failed: {fault!r}")
            self._raise(fault)

    def _raise(self, error: KafkaError) -> None:
        """Leaves an error for the reader, who asks for more after it."""
        self.error = error
        self.news.set()

    def _pump_later(self) -> None:
        self._pump_at(self._backoff.wait_ms(self._failures))
        self._failures += 1

    def _pump_at(self, wait_ms: float) -> None:
        """Looks again after so long, or earlier where that is due before."""
        if self._is_closed:
            return
        loop = asyncio.get_running_loop()
        at_s = loop.time() + wait_ms / 1000
        if self._timer is not None:
            if self._timer.when() <= at_s:
                return
            self._timer.cancel()
        self._timer = loop.call_at(at_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.pump()

    # --- metadata ---------------------------------------------------------------------------

    def _needs_metadata(self) -> bool:
        topics = {each.topic for each in self._positions.assigned}
        known = self._cluster.metadata.topics
        return bool(topics) and (self._cluster.is_metadata_old or not topics <= known.keys())

    async def _refresh(self) -> None:
        topics = {each.topic for each in self._positions.assigned}
        answer = await self._cluster.refresh(topics)
        answer.raise_refused()
        missing = sorted(topics - self._cluster.metadata.topics.keys())
        if missing:
            raise StaleMetadata(", ".join(missing), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _doubt(self, partitions: Iterable[TopicPartition]) -> None:
        """Their broker does not answer: others may lead them by now, or be nearer."""
        for topic in {each.topic for each in partitions}:
            self._forget_topic(topic)
        for partition in partitions:
            state = self._positions.get(partition)
            if state is not None:
                state.preferred_replica = None

    def _forget_topic(self, name: str) -> None:
        self._cluster.metadata = self._cluster.metadata.without_topics([name])

    # --- where to begin ---------------------------------------------------------------------

    async def _place(self) -> None:
        """Finds positions: what somebody asked for, else what is committed, else the policy's."""
        unplaced = self._positions.unplaced()
        fresh = {each: self._state(each) for each in unplaced if self._state(each).reset is None}
        if fresh and self._committed is not None:
            for partition, committed in (await self._committed(list(fresh))).items():
                state = self._positions.get(partition)
                # A partition that went and came back meanwhile may have other commits by now.
                if state is None or state is not fresh.get(partition):
                    continue
                if state.position is None and state.reset is None:
                    state.seek(committed.offset)
        left = [
            each
            for each in self._positions.unplaced()
            if self._state(each).reset is not None or self._state(each) is fresh.get(each)
        ]
        questions = {each: self._reset_of(each) for each in left}
        if questions:
            await self._reset(questions)
        self.news.set()

    def _state(self, partition: TopicPartition) -> PartitionPosition:
        state = self._positions.get(partition)
        assert state is not None, f"{partition} is not assigned"
        return state

    def _reset_of(self, partition: TopicPartition) -> int:
        asked = self._state(partition).reset
        if asked is not None:
            return asked
        timestamp = self._reset_policy.question(self._cluster.clock.wall_ms())
        if timestamp is None:
            raise NoOffsetForPartition(
                f"{partition} has no committed offset, and auto.offset.reset is none",
                ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        return timestamp

    async def _reset(self, questions: dict[TopicPartition, int]) -> None:
        level = READ_COMMITTED if self._is_committed_only else READ_UNCOMMITTED
        answers = await list_offsets(self._cluster, questions, level)
        failed: KafkaError | None = None
        for partition, answer in answers.items():
            state = self._positions.get(partition)
            if isinstance(answer, KafkaError):
                failed = answer
            elif state is not None and self._is_still(state, questions[partition]):
                if answer.offset >= 0:
                    state.seek(answer.offset)
                else:
                    state.seek_by(-1)  # nothing is that young: the end
        if failed is not None:
            raise failed

    def _is_still(self, state: PartitionPosition, question: int) -> bool:
        return state.position is None and state.reset in (None, question)

    # --- fetching ---------------------------------------------------------------------------

    def _fetchable(self, now_ms: int) -> dict[int, tuple[dict[TopicPartition, Wanted], bool]]:
        """What is to be fetched, by the broker that has it, and whether others of it are full."""
        metadata = self._cluster.metadata
        found: dict[int, dict[TopicPartition, Wanted]] = {}
        full: set[int] = set()
        for partition, state in self._positions.items():
            offset = state.fetch_offset
            if offset is None or state.is_withheld:
                continue
            if state.not_before_ms > now_ms:
                self._pump_at(state.not_before_ms - now_ms)
                continue
            known = metadata.partition(partition)
            node_id = self._node_for(partition, state, now_ms)
            if known is None or node_id is None:
                continue
            if state.is_full:
                full.add(node_id)
                continue
            topic_id = metadata.topics[partition.topic].topic_id
            if state.topic_id not in (None, topic_id) and topic_id is not None:
                self._on_topic_made_anew(partition, state)
                continue
            state.topic_id = topic_id
            wanted = Wanted(offset, known.leader_epoch, topic_id)
            found.setdefault(node_id, {})[partition] = wanted
        return {node_id: (wanted, node_id in full) for node_id, wanted in found.items()}

    def _node_for(
        self, partition: TopicPartition, state: PartitionPosition, now_ms: int
    ) -> int | None:
        metadata = self._cluster.metadata
        preferred = state.preferred_replica
        if preferred in metadata.nodes and now_ms < state.preferred_until_ms:
            return preferred
        leader = metadata.leader_of(partition)
        return None if leader is None else leader.id

    async def _fetch_from(self, node_id: int, asked: _Asked | None) -> None:
        """Asks a broker for as long as something of it is wanted."""
        self.has_unsent = False
        while asked is not None:
            await self._fetch(node_id, asked.wanted, asked.max_wait_ms)
            self._failures = 0
            asked = self._start_missing(node_id)

    async def _fetch(
        self, node_id: int, wanted: dict[TopicPartition, Wanted], max_wait_ms: int
    ) -> None:
        settings = self._cluster.settings
        session = self._sessions.get(node_id)
        if session is None:
            session = FetchSession(settings.number("max.partition.fetch.bytes"))
            self._sessions[node_id] = session
        by_id = False

        def encode(version: int) -> list[Buffer]:
            nonlocal by_id
            by_id = version >= TOPIC_ID_VERSION and all(
                each.topic_id is not None for each in wanted.values()
            )
            request = self._request(session.request(wanted, by_id=by_id), max_wait_ms)
            return encode_fetch_request(request, version)

        try:
            response = await self._cluster.exchange(
                node_id,
                FETCH,
                encode,
                decode_fetch_response,
                channel=FETCH_CHANNEL,
                timeout_ms=self._cluster.request_timeout_ms + max_wait_ms,
            )
        except KafkaError as error:
            session.reset()
            if error.retriable:
                self._doubt(wanted)
            raise
        except asyncio.CancelledError:
            session.reset()
            raise
        session.on_response(response.error_code, response.session_id)
        if response.error_code:
            raise error_for(response.error_code)
        self._on_response(response, wanted)

    def _request(self, session: SessionRequest, max_wait_ms: int) -> FetchRequest:
        settings = self._cluster.settings
        return FetchRequest(
            CONSUMER,
            max_wait_ms,
            settings.number("fetch.min.bytes"),
            session.topics,
            settings.number("fetch.max.bytes"),
            READ_COMMITTED if self._is_committed_only else READ_UNCOMMITTED,
            session.session_id,
            session.epoch,
            session.forgotten,
            settings.text("client.rack"),
        )

    def _on_response(self, response: FetchResponse, wanted: dict[TopicPartition, Wanted]) -> None:
        nodes = [
            Node(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints
        ]
        self._cluster.metadata = self._cluster.metadata.with_nodes(nodes)
        names: dict[UUID | None, str] = {
            each.topic_id: partition.topic for partition, each in wanted.items()
        }
        for topic in response.topics:
            name = names.get(topic.topic_id) if topic.name is None else topic.name
            for answer in topic.partitions:
                partition = TopicPartition(name or "", answer.index)
                state = self._positions.get(partition)
                asked = wanted.get(partition)
                # Whoever went elsewhere meanwhile does not want this any more.
                if state is not None and asked is not None and state.fetch_offset == asked.offset:
                    self._on_answer(partition, state, asked, answer)

    def _on_answer(
        self,
        partition: TopicPartition,
        state: PartitionPosition,
        asked: Wanted,
        answer: FetchPartitionResponse,
    ) -> None:
        if answer.error_code:
            self._on_error(partition, state, answer)
            return
        state.high_watermark = answer.high_watermark
        state.last_stable_offset = answer.last_stable_offset
        state.log_start_offset = answer.log_start_offset
        now_ms = self._cluster.clock.monotonic_ms()
        if answer.preferred_read_replica >= 0:
            state.preferred_replica = answer.preferred_read_replica
            state.preferred_until_ms = now_ms + PREFERRED_REPLICA_AGE_MS
            if state.preferred_replica not in self._cluster.metadata.nodes:
                # A broker that is newer than what is known of the cluster.
                self._forget_topic(partition.topic)
                self._wait_a_moment(state)
        if not answer.records or state.is_withheld or state.is_full:
            return
        buffers = answer.records
        data = memoryview(buffers[0] if len(buffers) == 1 else b"".join(buffers))
        aborted = answer.aborted if self._is_committed_only else None
        check_crcs = self._cluster.settings.flag("check.crcs")
        try:
            chunk = FetchedChunk(partition, asked.offset, data, aborted, check_crcs=check_crcs)
            if chunk.is_cut_off:
                raise RecordTooLarge(
                    f"{partition} has a batch at offset {asked.offset} that is larger than "
                    "fetch.max.bytes",
                    ErrorCode.RECORD_LIST_TOO_LARGE,
                )
        except KafkaError as error:
            self._on_fault(state, error)
            return
        state.fetched(chunk)
        self.news.set()

    def _on_error(
        self, partition: TopicPartition, state: PartitionPosition, answer: FetchPartitionResponse
    ) -> None:
        error = error_for(answer.error_code, str(partition))
        if isinstance(error, OffsetOutOfRange) and state.chunk is None:
            self._on_out_of_range(partition, state)
        elif isinstance(error, StaleMetadata) or error.code in _RETRY_SOON:
            state.preferred_replica = None
            if answer.current_leader_id >= 0 and answer.current_leader_epoch > NO_LEADER_EPOCH:
                self._cluster.metadata = self._cluster.metadata.with_leader(
                    partition, answer.current_leader_id, answer.current_leader_epoch
                )
            else:
                self._forget_topic(partition.topic)
            self._wait_a_moment(state)
        else:
            self._on_fault(state, error)

    def _wait_a_moment(self, state: PartitionPosition) -> None:
        now_ms = self._cluster.clock.monotonic_ms()
        state.not_before_ms = now_ms + self._backoff.wait_ms(self._failures)
        self._pump_later()

    def _on_fault(self, state: PartitionPosition, error: KafkaError) -> None:
        """Tells the reader; who still has records before the fault is told when it comes again."""
        if state.chunk is None:
            self._raise(error)
            return
        state.not_before_ms = self._cluster.clock.monotonic_ms() + LOOK_AGAIN_MS
        self._pump_at(LOOK_AGAIN_MS)

    def _on_out_of_range(self, partition: TopicPartition, state: PartitionPosition) -> None:
        if state.preferred_replica is not None:
            state.preferred_replica = None  # a follower may lag behind; its leader knows
            return
        self._begin_anew(state, f"{partition} has no records at offset {state.position}")

    def _on_topic_made_anew(self, partition: TopicPartition, state: PartitionPosition) -> None:
        """Offsets of the topic that was deleted say nothing about this one of its name. What was
        read of it is given out first."""
        if state.chunk is None:
            self._begin_anew(state, f"the topic of {partition} was deleted and made anew")

    def _begin_anew(self, state: PartitionPosition, reason: str) -> None:
        question = self._reset_policy.question(self._cluster.clock.wall_ms())
        if question is None:
            text = f"{reason}, and auto.offset.reset is none"
            self._raise(OffsetOutOfRange(text, ErrorCode.OFFSET_OUT_OF_RANGE))
            return
        _LOGGER.info("%s: reset", reason)
        state.seek_by(question)
