"""A fetch that found too little, waiting for `min_bytes` or `max_wait_ms`.

It remembers where in the log each partition's read began and measures from there to the
reader's end: the log end for followers, the high watermark or last stable offset for
consumers. It completes when

* a partition cannot be read here any more (leadership, deletion, a failed directory, an
  epoch that is over): the client should hear of it at once;
* the log was truncated to before the read's start: the reader must learn of it;
* the log rolled, so that the start lies on an older segment: a position difference means
  nothing across files, and there is something to read (unless the replica is throttled);
* the reader's history has parted from this replica's;
* the bytes that can be read reach `min_bytes`.

Bytes are counted as the difference of positions on the active segment, without reading.
"""

from typing import Final

from mypy_extensions import i64

from odradek.errors import BrokerError
from odradek.purgatory import DelayedOperation
from odradek.replication.delayed.replica_states import ReplicaStates
from odradek.replication.fetch import FetchInfo, FetchParams, OnFetched
from odradek.storage.log.offset_metadata import LogOffsetMetadata

_ANSWER_NOW: Final = -1


class AwaitedFetch:
    """One partition of a parked fetch and where its read began, if that is known."""

    def __init__(self, info: FetchInfo, start: LogOffsetMetadata | None) -> None:
        self.info = info
        self.start = start


class DelayedFetch(DelayedOperation):
    """Waits under the key of every partition that it asks for."""

    def __init__(
        self,
        params: FetchParams,
        awaited: list[AwaitedFetch],
        replicas: ReplicaStates,
        on_done: OnFetched,
    ) -> None:
        super().__init__(params.max_wait_ms)
        self.params = params
        self._awaited = awaited
        self._replicas = replicas
        self._on_done: OnFetched | None = on_done
        self._available_bytes = 0

    @property
    def infos(self) -> list[FetchInfo]:
        """The partitions that it asks for, and from where."""
        return [each.info for each in self._awaited]

    def try_complete(self) -> bool:
        """Adds up what can be read now; completes when a reason of the module's list holds."""
        available: i64 = 0
        for awaited in self._awaited:
            try:
                found = self._available(awaited)
            except BrokerError:
                return self.force_complete()
            if found < 0:
                return self.force_complete()
            available += found
        self._available_bytes = available
        return available >= self.params.min_bytes and self.force_complete()

    def _available(self, awaited: AwaitedFetch) -> int:
        """Bytes to be had from one partition, or `_ANSWER_NOW`."""
        info = awaited.info
        kept = info.kept
        if kept is not None and kept.holds(self.params):
            return 0
        readable = self._replicas.readable_end(info, self.params)
        start = awaited.start
        if start is None or start.message_offset_only:
            return 0
        end = readable.offset
        if readable.log_end_offset < start.message_offset:
            return _ANSWER_NOW
        if info.last_fetched_epoch >= 0 and self._diverges(info):
            return _ANSWER_NOW
        if end.message_offset <= start.message_offset or end.message_offset_only:
            return 0
        if self.params.is_from_follower and self._is_throttled(info):
            return 0
        if start.on_older_segment(end):
            return _ANSWER_NOW
        return min(end.position_diff(start), info.max_bytes)

    def _is_throttled(self, info: FetchInfo) -> bool:
        return self._replicas.is_throttled(info.topic_partition, self.params)

    def _diverges(self, info: FetchInfo) -> bool:
        return self._replicas.diverging_end(info, self.params) is not None

    def abandon(self) -> None:
        """Ends the wait without reading or answering: the client has gone."""
        self._on_done = None
        self.force_complete()

    def on_complete(self) -> None:
        """Reads everything as it is now and answers."""
        on_done, self._on_done = self._on_done, None
        awaited, self._awaited = self._awaited, []
        # From here on nothing of the request is kept: lists of watchers hold what has completed
        # until they are purged.
        if on_done is not None:
            on_done(self._replicas.read(self.params, [each.info for each in awaited]))

    def on_expiration(self) -> None:
        """Does nothing: `on_complete` has answered."""

    def missing(self) -> str:
        """Names what it waits for, in words."""
        return f"{self.params.min_bytes - self._available_bytes} of {self.params.min_bytes} bytes"

    def is_routine(self) -> bool:
        """A follower that has everything always waits for more."""
        return self.params.is_from_follower and self._available_bytes == 0
