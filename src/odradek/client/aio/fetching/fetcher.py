"""Fetches ahead of the reader: one request per broker at a time, for the partitions that want more.

`pump` is the one decision: it looks at every partition and starts what is missing, a fetch, the
lookup of a position, fresh metadata. It is called whenever something changed. A partition has the
chunk that is being given out and the one behind it, and is not fetched further, so memory is
bounded by twice `max.partition.fetch.bytes` a partition.

A partition that has both is not in a request. The others are then fetched without waiting at the
broker, and again only after a chunk was used up, or a moment later: a long wait for idle partitions
would delay the busy one.

The next request to a broker leaves before the reader sees the records of the one before, so that
the broker works while the reader does. Nothing is fetched while an error waits for the reader: it
would only come again.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from odradek.client.aio.cluster import ClusterClient
from odradek.client.aio.fetching.placing import Committed, Placing
from odradek.client.aio.fetching.requests import FETCH_METRICS, FetchRequests, Wanted
from odradek.client.core.consuming.fetched import FetchedChunk
from odradek.client.core.consuming.positions import (
    PREFERRED_REPLICA_AGE_MS,
    Fetched,
    PartitionPosition,
    Positions,
)
from odradek.client.core.consuming.reset_policy import ResetPolicy
from odradek.client.core.metadata import Node
from odradek.client.core.retries import ExponentialBackoff
from odradek.client.errors import (
    KafkaError,
    OffsetOutOfRange,
    RecordTooLarge,
    error_for,
)
from odradek.clock import LONG_AGO_MS
from odradek.errors import ErrorCode
from odradek.model import NO_LEADER_EPOCH, TopicPartition
from odradek.protocol.direct.fetch import (
    FetchPartitionResponse,
    FetchResponse,
)

_LOGGER: Final = logging.getLogger(__name__)
# Transient errors that are not part of a leader's move.
_WARNED_OF: Final = frozenset(
    {
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
# Between looks at the other partitions of a broker while one has all that it may have.
LOOK_AGAIN_MS: Final = 100
# The end of its back-off and the failures of a broker that has not failed.
_NEVER_FAILED: Final = (LONG_AGO_MS, 0)
# The transient error that the reader gets: it has to choose where to continue.
_TOLD: Final = ErrorCode.CORRUPT_MESSAGE


class _Asked(NamedTuple):
    """A request's partitions for one broker, and how long it may wait until it has something."""

    wanted: dict[TopicPartition, Wanted]
    max_wait_ms: int


class Fetcher:
    """The background of a consumer. `committed` looks up the offsets of its group, if it has
    one."""

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
        self._fetch_requests = FetchRequests(cluster)
        self._places = Placing(
            cluster,
            positions,
            reset_policy,
            committed,
            on_placed=self._on_placed,
            on_error=self._on_error,
            tell_reader=self._raise,
        )
        self._is_committed_only = settings.text("isolation.level").lower() == "read_committed"
        self._max_wait_ms = settings.number("fetch.max.wait.ms")
        self._backoff = ExponentialBackoff(
            settings.number("retry.backoff.ms"),
            settings.number("retry.backoff.max.ms"),
            cluster.rng,
        )
        self.metrics = cluster.metrics
        self.metrics.gauge("records-lag-max", positions.largest_lag, FETCH_METRICS)
        self._fetches: dict[int, asyncio.Task[None]] = {}
        self._validating: set[TopicPartition] = set()
        # The ends of brokers' back-offs, and their failures in a row.
        self._resting: dict[int, tuple[int, int]] = {}
        # When brokers were asked without waiting, since a chunk was last used up.
        self._looked_ms: dict[int, int] = {}
        self._placing: set[TopicPartition] = set()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._failures = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        # Set when there is something for the reader: a chunk, or an error.
        self.news = asyncio.Event()
        self.error: KafkaError | None = None
        # What was assigned when it came.
        self._assigned_then: frozenset[TopicPartition] = frozenset()
        # Set until the loop's next turn when a broker is to be asked for more.
        self.has_unsent = False

    async def close(self) -> None:
        """Ends all requests under way."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def pump(self) -> None:
        """Starts missing requests."""
        self._start_missing()

    def _start_missing(self, answered_id: int | None = None) -> _Asked | None:
        """Like `pump`; returns the next request to the broker that has just answered."""
        self._drop_old_error()
        if self._is_closed or self.error is not None:
            return None
        now_ms = self._cluster.clock.monotonic_ms()
        unvalidated: dict[int, dict[TopicPartition, Fetched]] = {}
        fetchable = self._fetchable(now_ms, unvalidated)
        unplaced = [each for each in self._positions.unplaced() if each not in self._placing]
        if unplaced:
            self._placing.update(unplaced)
            self._start(
                self._places.place(unplaced), lambda _: self._placing.difference_update(unplaced)
            )
        if self._refreshing is None and (outdated := self._outdated()):
            self._refreshing = self._start(self._refresh(outdated))
        for node_id, fetched in unvalidated.items():
            self._validating.update(fetched)
            self._start(self._places.validate(node_id, fetched), partial(self._validated, fetched))
        following: _Asked | None = None
        for node_id, (wanted, is_full) in fetchable.items():
            if node_id in self._fetches and node_id != answered_id:
                continue
            rest_ms = self._resting.get(node_id, _NEVER_FAILED)[0] - now_ms
            if rest_ms > 0:
                self._pump_at(rest_ms)
                continue
            max_wait_ms = self._max_wait_ms
            if is_full:
                if now_ms < self._looked_ms.get(node_id, LONG_AGO_MS) + LOOK_AGAIN_MS:
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
        """Lets `pump` ask for more at once, since the reader has used up a chunk."""
        self._looked_ms.clear()

    def _start(
        self,
        work: Coroutine[None, None, None],
        on_end: Callable[[asyncio.Task[None]], None] | None = None,
    ) -> asyncio.Task[None]:
        """Begins work of the background; `on_end` is called before `pump`, also if somebody has
        cancelled it before its first step."""
        task = asyncio.create_task(work)
        if on_end is not None:
            task.add_done_callback(on_end)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        self._fetches = {key: each for key, each in self._fetches.items() if each is not task}
        self._refreshing = None if self._refreshing is task else self._refreshing
        if task.cancelled():
            self._pump_later()  # by a program that cancels all tasks: its reader may wait
            return
        fault = task.exception()
        if fault is None:
            self._failures = 0
            self.pump()
        elif isinstance(fault, KafkaError) and fault.retriable:
            _LOGGER.debug("fetching is retried: %s", fault)
            self._warn_of(fault)
            self._pump_later()
        else:
            if not isinstance(fault, KafkaError):
                _LOGGER.error("fetching failed unexpectedly", exc_info=fault)
                fault = KafkaError(f"the consumer failed: {fault!r}")
            self._raise(fault)

    def _raise(self, error: KafkaError) -> None:
        """Leaves an error for the reader, which asks for more after it."""
        self.error = error
        self._assigned_then = self._positions.assigned
        self.news.set()

    def _drop_old_error(self) -> None:
        """Drops the error of an assignment that is over: the partition may be another member's.
        What is still wrong comes again."""
        if self.error is not None and self._assigned_then != self._positions.assigned:
            self.error = None

    def _pump_later(self) -> None:
        self._pump_at(self._backoff.wait_ms(self._failures))
        self._failures += 1

    def _pump_at(self, wait_ms: float) -> None:
        """Looks again after this time, or earlier if that is due already."""
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

    def _outdated(self) -> set[str]:
        """The topics to ask for, including those of partitions without a known leader."""
        assigned = self._positions.assigned
        metadata = self._cluster.metadata
        leaderless = {each.topic for each in assigned if metadata.leader_of(each) is None}
        return leaderless | self._cluster.outdated({each.topic for each in assigned})

    async def _refresh(self, topics: set[str]) -> None:
        answer = await self._cluster.refresh(topics)
        # Nobody is told of topics that are not read any more.
        answer.raise_refused(topics & {each.topic for each in self._positions.assigned})

    def _doubt(self, partitions: Iterable[TopicPartition]) -> None:
        """Marks the leaders and nearest replicas of these partitions as doubtful: their broker does
        not answer."""
        self._cluster.doubt(each.topic for each in partitions)
        for partition in partitions:
            state = self._positions.get(partition)
            if state is not None:
                state.preferred_replica = None

    def _on_placed(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetches these now, though others still wait for a silent broker."""
        self._placing.difference_update(partitions)
        self.news.set()
        self.pump()

    def _validated(self, asked: Iterable[TopicPartition], _: asyncio.Task[None]) -> None:
        self._validating.difference_update(asked)

    # --- fetching ---------------------------------------------------------------------------

    def _fetchable(
        self, now_ms: int, unvalidated: dict[int, dict[TopicPartition, Fetched]]
    ) -> dict[int, tuple[dict[TopicPartition, Wanted], bool]]:
        """Picks what to fetch, by the broker that has it, and says whether buffers of other brokers
        are full. Partitions whose leader has to be asked about an epoch first go into
        `unvalidated`."""
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
            if state.needs_validation(known.leader_epoch):
                if partition not in self._validating:
                    fetched = Fetched(offset, state.fetch_leader_epoch, known.leader_epoch)
                    unvalidated.setdefault(known.leader, {})[partition] = fetched
                continue
            topic_id = metadata.topic_id(partition.topic)
            if metadata.has_other(partition.topic, state.topic_id):
                self._on_topic_made_anew(partition, state)
                continue
            state.topic_id = topic_id
            wanted = Wanted(offset, known.leader_epoch, topic_id, node_id == known.leader)
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
        """Asks a broker as long as it has wanted partitions."""
        self.has_unsent = False
        while asked is not None:
            try:
                response = await self._fetch_requests.fetch(
                    node_id, asked.wanted, asked.max_wait_ms
                )
            except KafkaError as error:
                if error.retriable:
                    self._rest(node_id)
                    self._doubt(asked.wanted)
                raise
            if response.error_code:
                self._rest(node_id)
                raise error_for(response.error_code)
            self._resting.pop(node_id, None)
            self._on_response(response, asked.wanted)
            self._failures = 0
            asked = self._start_missing(node_id)

    def _rest(self, node_id: int) -> None:
        """Backs off from a failed broker, whatever other brokers answer."""
        _, failures = self._resting.get(node_id, _NEVER_FAILED)
        until_ms = self._cluster.clock.monotonic_ms() + self._backoff.wait_ms(failures)
        self._resting[node_id] = until_ms, failures + 1

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
                if state is None or asked is None:
                    continue
                # A partition that `seek` has moved meanwhile does not need these records, nor one
                # that has the same position in a recreated topic.
                if (state.fetch_offset, state.topic_id) == (asked.offset, asked.topic_id):
                    self._on_answer(partition, state, asked, answer)

    def _on_answer(
        self,
        partition: TopicPartition,
        state: PartitionPosition,
        asked: Wanted,
        answer: FetchPartitionResponse,
    ) -> None:
        if answer.error_code:
            if answer.current_leader_id >= 0 and answer.current_leader_epoch > NO_LEADER_EPOCH:
                self._cluster.metadata = self._cluster.metadata.with_leader(
                    partition,
                    asked.topic_id,
                    answer.current_leader_id,
                    answer.current_leader_epoch,
                )
            error = error_for(answer.error_code, str(partition))
            if isinstance(error, OffsetOutOfRange) and not asked.is_at_leader:
                state.preferred_replica = None  # a follower may lag behind; its leader knows
            else:
                self._on_error(partition, state, error)
            return
        state.high_watermark = answer.high_watermark
        state.last_stable_offset = answer.last_stable_offset
        state.log_start_offset = answer.log_start_offset
        now_ms = self._cluster.clock.monotonic_ms()
        if answer.preferred_read_replica >= 0:
            state.preferred_replica = answer.preferred_read_replica
            state.preferred_until_ms = now_ms + PREFERRED_REPLICA_AGE_MS
            if state.preferred_replica not in self._cluster.metadata.nodes:
                # A broker that is newer than the known metadata.
                self._cluster.doubt([partition.topic])
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
                raise self._cut_off(partition, asked.offset, len(data))
        except KafkaError as error:
            self._on_fault(state, error)
            return
        state.fetched(chunk)
        self.news.set()

    def _cut_off(self, partition: TopicPartition, offset: int, size: int) -> RecordTooLarge:
        """The error of a batch of which a broker has sent the beginning: one of the limits, which
        the request states both, was in the way."""
        limits = " or ".join(
            f"{name} ({self._cluster.settings.number(name)})"
            for name in ("max.partition.fetch.bytes", "fetch.max.bytes")
        )
        return RecordTooLarge(
            f"{partition} has a batch at offset {offset} that was cut off behind {size} bytes: "
            f"it is larger than {limits}",
            ErrorCode.RECORD_LIST_TOO_LARGE,
        )

    def _on_error(
        self, partition: TopicPartition, state: PartitionPosition, error: KafkaError
    ) -> None:
        if isinstance(error, OffsetOutOfRange) and not state.has_records:
            text = f"{partition} has no records at offset {state.position}"
            self._places.begin_anew(state, text)
        elif self._may_pass(error):
            self._warn_of(error)
            state.preferred_replica = None
            self._cluster.doubt([partition.topic])
            self._wait_a_moment(state)
        else:
            self._on_fault(state, error)

    def _warn_of(self, error: KafkaError) -> None:
        if error.code in _WARNED_OF:
            self._cluster.warn(f"a partition cannot be read now: {error}")

    def _may_pass(self, error: KafkaError) -> bool:
        """Whether a retry may help, which Kafka's consumer does silently."""
        if error.code == ErrorCode.UNKNOWN_SERVER_ERROR:
            return True
        return error.retriable and error.code != _TOLD

    def _wait_a_moment(self, state: PartitionPosition) -> None:
        now_ms = self._cluster.clock.monotonic_ms()
        state.not_before_ms = now_ms + self._backoff.wait_ms(self._failures)
        self._pump_later()

    def _on_fault(self, state: PartitionPosition, error: KafkaError) -> None:
        """Leaves the error for the reader; a reader that still has earlier records gets it when it
        occurs again."""
        if not state.has_records:
            self._raise(error)
            return
        state.not_before_ms = self._cluster.clock.monotonic_ms() + LOOK_AGAIN_MS
        self._pump_at(LOOK_AGAIN_MS)

    def _on_topic_made_anew(self, partition: TopicPartition, state: PartitionPosition) -> None:
        """Handles a recreated topic: offsets of the deleted one are not valid in it. Records read
        before it are returned first."""
        if not state.has_records:
            state.stored = None
            self._places.begin_anew(state, f"the topic of {partition} was deleted and recreated")
