"""Incremental fetch sessions: a client names its partitions once, then only what changed.

A session remembers the partitions that a client fetches, and its last response about each. An
incremental request carries changes, an incremental response carries the partitions that have
something new. Both sides count epochs, so that a lost request or answer is noticed and the client
starts over with a full request.

How a request is understood, by session id and epoch:

    id   epoch    meaning
    any  -1       no session; an open one of that id is closed
    any  0        open a session with the partitions named (an old one of that id is closed)
    id   n > 0    the n-th incremental request of that session

Epochs run 1, 2, ... and after the largest 32-bit integer 1 again. Sessions cost memory, so there
are `max.incremental.fetch.session.cache.slots` of them. A new session replaces one that has been
idle for two minutes; a follower's replaces the smallest consumer's; and a larger one replaces a
smaller one that was opened more than two minutes ago. If there is no such slot, the client is
answered without a session and continues with full requests.

Within a session, partitions that gave records go to the end of the line: with a limited
response every partition has its turn.
"""

from typing import Final
from uuid import UUID

from odradek.clock import Clock
from odradek.errors import ErrorCode
from odradek.metadata.image import ZERO_UUID
from odradek.model import TopicPartition
from odradek.protocol.direct.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
)
from odradek.replication.fetch import FetchInfo

NO_SESSION_ID: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_EPOCH: Final = 0x7FFFFFFF
EVICTION_MS: Final = 120_000

_ID_STRIDE: Final = 0x9E3779B1  # odd, so that successive ids are spread and do not repeat
_ID_MASK: Final = 0x7FFFFFFF

_PartitionKey = tuple[str | UUID, int]


class SessionPartition:
    """One partition of a fetch, and the last response about it.

    The topic is named as the request named it: by name or by id. `info` is the request to the
    replicas, None while an id cannot be resolved to a name. A session remembers the `topic_name` of
    an id: so it notices when the topic is deleted, or another has taken the name.
    """

    def __init__(self, name: str | None, topic_id: UUID | None, partition: FetchPartition) -> None:
        self.name = name
        self.topic_id = topic_id
        self.index = partition.index
        self.asked = partition
        self.info: FetchInfo | None = None
        self.topic_name = name
        self.told_high_watermark = -1
        self.told_log_start_offset = -1

    def update(self, partition: FetchPartition) -> None:
        """Takes over the changes of an incremental request."""
        self.asked = partition
        self.info = None

    def resolve(self, name: str) -> FetchInfo:
        """Creates the request to the replicas; `name` is the topic's name."""
        info = self.info
        if info is None or info.topic_partition.topic != name:
            asked = self.asked
            self.topic_name = name
            self.info = info = FetchInfo(
                TopicPartition(name, asked.index),
                asked.fetch_offset,
                asked.partition_max_bytes,
                asked.log_start_offset,
                asked.current_leader_epoch,
                asked.last_fetched_epoch,
                self.topic_id,
            )
        return info

    def note_answer(self, answer: FetchPartitionResponse) -> bool:
        """Remembers the response; True if any of it is new to the client.

        After an error the partition is sent again as soon as the error has gone, even if nothing
        else has changed: therefore the high watermark is forgotten.
        """
        is_new = (
            answer.error_code != ErrorCode.NONE
            or bool(answer.records)
            or answer.high_watermark != self.told_high_watermark
            or answer.log_start_offset != self.told_log_start_offset
            or answer.preferred_read_replica >= 0
            or answer.diverging_epoch >= 0
        )
        self.told_high_watermark = answer.high_watermark if answer.error_code == 0 else -1
        self.told_log_start_offset = answer.log_start_offset
        return is_new


class FetchSession:
    """The fetch session of one client. `epoch` is the epoch of the client's next request."""

    def __init__(self, session_id: int, by_id: bool, privileged: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.by_id = by_id
        self.privileged = privileged
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = 1
        self.partitions: dict[_PartitionKey, SessionPartition] = {}

    def update(self, request: FetchRequest) -> None:
        """Adds, changes and forgets partitions as an incremental request says."""
        for topic in request.topics:
            for partition in topic.partitions:
                key = _key(topic.name, topic.topic_id, partition.index)
                known = self.partitions.get(key)
                if known is None:
                    self.partitions[key] = SessionPartition(topic.name, topic.topic_id, partition)
                else:
                    known.update(partition)
        for forgotten in request.forgotten:
            for index in forgotten.partitions:
                self.partitions.pop(_key(forgotten.name, forgotten.topic_id, index), None)

    def move_to_end(self, partition: SessionPartition) -> None:
        """Moves a partition behind the others, unless it was forgotten meanwhile."""
        key = _key(partition.name, partition.topic_id, partition.index)
        if self.partitions.pop(key, None) is not None:
            self.partitions[key] = partition

    def next_epoch(self) -> None:
        """Advances the epoch by a request."""
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1


class FetchContext:
    """One fetch request, understood: the partitions to read, and how to answer."""

    def __init__(
        self,
        partitions: list[SessionPartition],
        *,
        error_code: ErrorCode = ErrorCode.NONE,
        session: FetchSession | None = None,
        opens_session: bool = False,
    ) -> None:
        self.partitions = partitions
        self.error_code = error_code
        self.session = session  # set for incremental requests only
        self.opens_session = opens_session


class FetchSessionCache:
    """All fetch sessions of a broker. Called on the broker's loop only."""

    def __init__(self, max_slots: int, clock: Clock) -> None:
        self._max_slots = max_slots
        self._clock = clock
        self._last_id = clock.wall_ms() & _ID_MASK
        self.evictions = 0
        # In the order of their last use, the least recently used first.
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """How many partitions all sessions remember together."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def find(self, session_id: int) -> FetchSession | None:
        """The session of that id, if it is open."""
        return self._sessions.get(session_id)

    def open(self, request: FetchRequest, by_id: bool) -> FetchContext:
        """Interprets a request; a context with an error code is answered with that alone."""
        if request.session_epoch == FINAL_EPOCH or request.session_epoch == INITIAL_EPOCH:
            if request.session_id != NO_SESSION_ID:
                self._sessions.pop(request.session_id, None)
            return FetchContext(
                _all_partitions(request), opens_session=request.session_epoch == INITIAL_EPOCH
            )
        return self._resume(request, by_id)

    def _resume(self, request: FetchRequest, by_id: bool) -> FetchContext:
        session = self._sessions.get(request.session_id)
        if session is None:
            return FetchContext([], error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return FetchContext([], error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            return FetchContext([], error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(request)
        del self._sessions[session.session_id]
        if not session.partitions:
            return FetchContext([])  # the session is gone: the response has id 0
        session.last_used_ms = self._clock.monotonic_ms()
        self._sessions[session.session_id] = session
        session.next_epoch()
        return FetchContext(list(session.partitions.values()), session=session)

    def answered(
        self,
        context: FetchContext,
        answers: list[FetchPartitionResponse],
        *,
        by_id: bool,
        privileged: bool,
    ) -> int:
        """Opens the requested session after a full response; returns its id or 0."""
        if not context.opens_session:
            return NO_SESSION_ID
        session = self._create(len(context.partitions), by_id, privileged)
        if session is None:
            return NO_SESSION_ID
        for partition, answer in zip(context.partitions, answers, strict=True):
            partition.note_answer(answer)
            key = _key(partition.name, partition.topic_id, partition.index)
            session.partitions[key] = partition
        return session.session_id

    def _create(self, size: int, by_id: bool, privileged: bool) -> FetchSession | None:
        now_ms = self._clock.monotonic_ms()
        if len(self._sessions) >= self._max_slots and not self._evict(size, privileged, now_ms):
            return None
        session = FetchSession(self._new_id(), by_id, privileged, now_ms)
        self._sessions[session.session_id] = session
        return session

    def _new_id(self) -> int:
        while True:
            self._last_id = (self._last_id + _ID_STRIDE) & _ID_MASK
            if self._last_id != NO_SESSION_ID and self._last_id not in self._sessions:
                return self._last_id

    def _evict(self, size: int, privileged: bool, now_ms: int) -> bool:
        """Makes room for a session of `size` partitions, if the rules allow it."""
        victim = self._find_victim(size, privileged, now_ms)
        if victim is None:
            return False
        del self._sessions[victim.session_id]
        self.evictions += 1
        return True

    def _find_victim(self, size: int, privileged: bool, now_ms: int) -> FetchSession | None:
        idlest = next(iter(self._sessions.values()), None)
        if idlest is None or now_ms - idlest.last_used_ms > EVICTION_MS:
            return idlest
        candidates = [
            session
            for session in self._sessions.values()
            if (privileged and not session.privileged)
            or (
                now_ms - session.created_ms > EVICTION_MS and (privileged or not session.privileged)
            )
        ]
        if not candidates:
            return None
        smallest = min(candidates, key=_eviction_order)
        if (smallest.privileged, len(smallest.partitions)) < (privileged, size):
            return smallest
        return None


def _eviction_order(session: FetchSession) -> tuple[bool, int, int]:
    return session.privileged, len(session.partitions), session.session_id


def _key(name: str | None, topic_id: UUID | None, index: int) -> _PartitionKey:
    if name is not None:
        return name, index
    return ZERO_UUID if topic_id is None else topic_id, index


def _all_partitions(request: FetchRequest) -> list[SessionPartition]:
    return [
        SessionPartition(topic.name, topic.topic_id, partition)
        for topic in request.topics
        for partition in topic.partitions
    ]
