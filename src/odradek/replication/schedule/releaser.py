"""`Releaser`: the leader of a schedule partition, which delivers what is due.

It reads its own log like a consumer and replays it (`state`); it writes its decisions there as
marks, and acts only once they are committed and replayed. So it releases exactly once: see `marks`.

Schedules wait on the broker's timer. Due records wait in one queue per target partition, in the
order of their due times; one batch is in flight to each, so a target that refuses does not delay
the others. The wall clock decides whether something is due, looked at when the timer says so: never
early, even when clocks are put back.
"""

import logging
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from odradek.clock import LONG_AGO_MS
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import MetadataImage
from odradek.model import UNKNOWN_OFFSET, AppendOrigin, TopicPartition
from odradek.replication.append import ACKS_ALL, AppendRequest, AppendResult
from odradek.replication.delayed.fetch import DelayedFetch
from odradek.replication.fetch import CONSUMER_REPLICA_ID, FetchInfo, FetchParams, FetchResult
from odradek.replication.partition import Partition
from odradek.replication.schedule.admission import is_schedule_topic
from odradek.replication.schedule.delivery import RETRY_MS, Delivery
from odradek.replication.schedule.marks import Entry, Mark, MarkKind, Target, build_marks
from odradek.replication.schedule.services import ReleaseServices
from odradek.replication.schedule.state import (
    NO_PRODUCER,
    Release,
    ScheduledRecord,
    ScheduleListener,
    ScheduleState,
)
from odradek.storage.log.log import Log
from odradek.timer import TimerTask

logger = logging.getLogger(__name__)

FETCH_BYTES: Final = 1 << 18
MOST_RECORDS: Final = 1000
MOST_BYTES: Final = 1 << 18
READ_RETRY_MS: Final = 1000
_NEVER_MS: Final = 2**31 - 1
_LONGEST_DELAY_MS: Final = 2**53
_NO_PARTITION: Final = -1
_ENTRY_BYTES: Final = 24
_MARK_ENTRIES: Final = 20
"""How many entries a mark takes up besides its own, with the name of its topic."""


class Releaser(ScheduleListener):
    """Delivers the schedules of one partition that is led here, until it is stopped."""

    def __init__(
        self,
        partition: Partition,
        log: Log,
        services: ReleaseServices,
        on_failed: "Callable[[Releaser], None]",
    ) -> None:
        self.topic_partition: Final = partition.topic_partition
        self.name = str(self.topic_partition)
        self.leader_epoch: Final = partition.leader_epoch
        self.log: Final = log
        self.state: Final = ScheduleState(self)
        self._services: Final = services
        self._on_failed: Final = on_failed
        self._reading: DelayedFetch | None = None
        self._is_closed = False
        # Everything below was in the log when this broker was elected, including earlier leaders'
        # marks.
        self._load_end = log.log_end_offset
        self._is_loaded = False
        self._queues: dict[TopicPartition, list[tuple[int, int]]] = {}
        # Marks to be written, and the end offset of those that are being written.
        self._ended: list[Mark] = []
        self._is_marking = False
        self._marks_end: int | None = None
        self._is_round_due = False
        self._asks_for_id = False
        self._fresh_id = NO_PRODUCER
        self._rate_free_ms = LONG_AGO_MS
        self._alarm = TimerTask(0, self.request_round)
        self._next_read = TimerTask(READ_RETRY_MS, lambda: self._attempt(self._read_on))
        attempt, on_ended = self._attempt, self._on_ended
        self._delivery: Final = Delivery(log, self.state, services, attempt, on_ended)

    # Its life

    def start(self) -> None:
        """Begins to read, at the next turn of the loop."""
        self.state.position = self.log.log_start_offset
        self.log.first_needed_offset = self.state.first_needed_offset
        self._soon(self._read_on)

    def stop(self) -> None:
        """Stops reading and delivering; the log keeps all of its records again."""
        self._is_closed = True
        self.log.first_needed_offset = None
        if self._reading is not None:
            self._reading.abandon()
        self._alarm.cancel()
        self._next_read.cancel()
        self._delivery.stop()
        for pending in self.state.pending.values():
            pending.cancel()

    def _soon(self, step: Callable[[], None]) -> None:
        """Takes a step at the next turn of the loop."""
        self._services.timer.call_threadsafe(lambda: self._attempt(step))

    def _attempt(self, step: Callable[[], None]) -> None:
        """Takes a step. The step handles the expected errors; after any other one only the log can
        be trusted, and not this state."""
        if self._is_closed:
            return
        try:
            step()
        except Exception:  # see above
            logger.exception("%s: releasing failed, and begins anew", self.topic_partition)
            self.stop()
            self._on_failed(self)

    @property
    def is_loaded(self) -> bool:
        """Whether the releaser has read all pending schedules."""
        return self._is_loaded

    # Reading its own log

    def _read_on(self) -> None:
        self.state.position = max(self.state.position, self.log.log_start_offset)
        self._after_replay()
        params = FetchParams(CONSUMER_REPLICA_ID, _NEVER_MS, 1, FETCH_BYTES)
        info = FetchInfo(self.topic_partition, self.state.position, FETCH_BYTES)
        self._reading = self._services.replicas.fetch_messages(params, [info], self._on_read)

    def _on_read(self, results: list[FetchResult]) -> None:
        # At the next turn: this may be in the middle of an append.
        self._reading = None
        self._soon(lambda: self._take_in(results[0]))

    def _take_in(self, result: FetchResult) -> None:
        try:
            if result.error_code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
                raise BrokerError(result.error_code)
            self.state.replay(b"".join(result.records))
        except BrokerError as error:
            # The leadership is over, as the metadata will say, or a disk has failed.
            logger.info("%s: reading schedules: %s", self.topic_partition, error)
            self._services.timer.add(self._next_read)
            return
        self._read_on()

    def _after_replay(self) -> None:
        if not self._is_loaded and self.state.position >= self._load_end:
            self._on_loaded()
        if self._marks_end is not None and self.state.position >= self._marks_end:
            self._marks_end = None
            self._is_marking = False
            self.request_round()

    def _on_loaded(self) -> None:
        self._is_loaded = True
        if self.log.log_start_offset > 0:
            # Marks were deleted, and the last sequences with them. A target would take a sequence
            # that begins again for a repetition, and the records would be lost.
            self.state.producer_id = NO_PRODUCER
        logger.info("%s: %d schedules pending", self.topic_partition, len(self.state.pending))
        for pending in self.state.pending.values():
            self._place(pending)
        for release in list(self.state.in_flight.values()):
            self._delivery.send(release)
        self.request_round()

    # Called by the replay

    def on_pending(self, pending: ScheduledRecord) -> None:
        """See `ScheduleListener`."""
        if self._is_loaded:
            self._place(pending)

    def on_gone(self, pending: ScheduledRecord) -> None:
        """See `ScheduleListener`."""
        pending.cancel()

    def on_release(self, release: Release) -> None:
        """See `ScheduleListener`."""
        if self._is_loaded:
            release.is_in_doubt = False
            self._delivery.send(release)

    def on_due(self, pending: ScheduledRecord) -> None:
        """See `ScheduleListener`."""
        self._attempt(lambda: self._place(pending))

    def _place(self, pending: ScheduledRecord) -> None:
        """Puts a schedule on the timer, or into its queue when it is due."""
        remaining_ms = self._remaining_ms(pending)
        if remaining_ms > 0:
            pending.delay_ms = min(remaining_ms, _LONGEST_DELAY_MS)
            self._services.timer.add(pending)
            return
        queue = self._queues.setdefault(self._destination(pending), [])
        heappush(queue, (pending.due_ms, pending.offset))
        self.request_round()

    def _remaining_ms(self, pending: ScheduledRecord) -> int:
        """The time until it is due by the present clock; 0 or less when it may be released."""
        clock = self._services.clock
        return max(pending.due_ms - clock.wall_ms(), pending.not_before_ms - clock.monotonic_ms())

    def place_again(self) -> None:
        """Places all schedules again, since the wall clock was set."""
        self._attempt(self._place_all)

    def _place_all(self) -> None:
        for pending in list(self.state.pending.values()):
            if pending.is_pending:
                self._place(pending)
        self._delivery.try_again_now()

    def _destination(self, pending: ScheduledRecord) -> TopicPartition:
        name = pending.instructions.target or self.log.config.schedule_target_topic or ""
        topic = self._image.topic(name)
        if topic is None:
            return TopicPartition(name, _NO_PARTITION)
        if pending.instructions.partition >= 0:
            return TopicPartition(name, pending.instructions.partition)
        count = len(topic.partitions)
        if pending.delivered_key is None:
            return TopicPartition(name, pending.offset % count)
        partition = self._services.partition_for_key(pending.delivered_key, count)
        return TopicPartition(name, partition)

    @property
    def _image(self) -> MetadataImage:
        return self._services.replicas.partitions.image

    # Deciding

    def request_round(self) -> None:
        """Looks at what is due, at the next turn of the loop."""
        if not self._is_round_due and not self._is_closed:
            self._is_round_due = True
            self._soon(self._round)

    def on_topics_changed(self) -> None:
        """Checks the targets again: a missing one may exist now, or have been recreated with fewer
        partitions."""
        self._attempt(self._look_for_targets)

    def _look_for_targets(self) -> None:
        for where in [each for each in self._queues if not self._is_there(each)]:
            if self._image.topic(where.topic) is not None:
                for _, offset in self._queues.pop(where):
                    pending = self.state.pending.get(offset)
                    if pending is not None:
                        self._place(pending)
        self.request_round()

    def _round(self) -> None:
        """Writes marks for the releases that have ended and for the next ones."""
        self._is_round_due = False
        if not self._is_loaded or self._is_marking:
            return
        marks, self._ended = self._ended, []
        # After a return another producer continues.
        if all(mark.kind is not MarkKind.RETURNED for mark in marks):
            marks += self._releases()
        if marks:
            self._write(marks)

    def _releases(self) -> list[Mark]:
        now_ms = self._services.clock.wall_ms()
        allowed = self._allowed()
        busy = {each.topic_partition for each in self.state.in_flight}
        free = [where for where in self._queues if where not in busy and self._is_there(where)]
        if allowed == 0 or not free:
            return []
        producer_id = self._producer_id()
        if producer_id == NO_PRODUCER:
            return []
        marks: list[Mark] = []
        picked = 0
        # All marks of a round are one batch.
        room = max(1, self.log.config.max_message_bytes // 2 // _ENTRY_BYTES)
        for where in free:
            entries, expired = self._pick(where, min(allowed - picked, room), now_ms)
            picked += len(entries)
            room -= len(entries) + len(expired) + _MARK_ENTRIES
            if entries:
                target = self._target(where)
                sequence = self.state.next_sequence(producer_id, target)
                marks.append(Mark(MarkKind.RELEASE, target, producer_id, sequence, entries))
            if expired:
                marks.append(Mark(MarkKind.EXPIRED, entries=expired))
            if picked >= allowed or room <= 0:
                break
        self._spend(picked)
        return marks

    def _is_there(self, where: TopicPartition) -> bool:
        image = self._image
        if where.partition < 0 or image.partition(where) is None:
            return False
        return not is_schedule_topic(image, where.topic)

    def _target(self, where: TopicPartition) -> Target:
        topic = self._image.topic(where.topic)
        assert topic is not None, f"{where} was there a moment ago"
        return Target(where.topic, topic.topic_id, where.partition)

    def _pick(
        self, where: TopicPartition, most: int, now_ms: int
    ) -> tuple[list[Entry], list[Entry]]:
        """Takes a partition's next records out of its queue, and the expired ones in front."""
        queue = self._queues[where]
        entries: list[Entry] = []
        expired: list[Entry] = []
        early: list[ScheduledRecord] = []
        size_bytes = 0
        most = min(most, MOST_RECORDS)
        while queue and len(entries) + len(expired) < most:
            due_ms, offset = queue[0]
            pending = self.state.pending.get(offset)
            if pending is None or pending.due_ms != due_ms:
                heappop(queue)  # released, replaced or cancelled meanwhile
                continue
            if self._remaining_ms(pending) > 0:
                heappop(queue)  # the clock was put back
                early.append(pending)
                continue
            if pending.is_expired(now_ms) or offset < self.log.log_start_offset:
                expired.append(Entry(offset, due_ms, -1))
                heappop(queue)
                continue
            size_bytes += pending.size_bytes
            if entries and (size_bytes > MOST_BYTES or pending.alone):
                break
            heappop(queue)
            entries.append(Entry(offset, due_ms, pending.next_due_ms(now_ms)))
            if pending.alone:
                break
        if not queue:
            del self._queues[where]
        for pending in early:
            self._place(pending)
        return entries, expired

    def _allowed(self) -> int:
        """The number of records that may be released now; if there is none yet, sets a timer."""
        rate = self.log.config.schedule_release_max_rate
        now_ms = self._services.clock.monotonic_ms()
        if rate < 0:
            return _NEVER_MS
        if rate > 0 and now_ms >= self._rate_free_ms:
            return max(1, rate // 10)
        if rate > 0:
            self._wake_in(self._rate_free_ms - now_ms)
        return 0

    def _spend(self, count: int) -> None:
        rate = self.log.config.schedule_release_max_rate
        now_ms = self._services.clock.monotonic_ms()
        if rate > 0 and count:
            self._rate_free_ms = now_ms + -(-count * 1000 // rate)
            self._wake_in(self._rate_free_ms - now_ms)

    def _wake_in(self, delay_ms: int) -> None:
        self._alarm.delay_ms = delay_ms
        self._services.timer.add(self._alarm)

    def _producer_id(self) -> int:
        if self.state.producer_id != NO_PRODUCER:
            self._fresh_id = NO_PRODUCER
            return self.state.producer_id
        if self._fresh_id == NO_PRODUCER and not self._asks_for_id:
            self._asks_for_id = True
            self._services.next_producer_id(self._on_producer_id)
        return self._fresh_id

    def _on_producer_id(self, outcome: int | BrokerError) -> None:
        self._asks_for_id = False
        if self._is_closed:
            return
        if isinstance(outcome, BrokerError):
            logger.warning("%s: no producer id: %s", self.topic_partition, outcome)
            self._wake_in(RETRY_MS)
            return
        self._fresh_id = outcome
        self.request_round()

    # Writing marks

    def _on_ended(self, mark: Mark) -> None:
        if mark.kind is MarkKind.RETURNED:
            self._fresh_id = NO_PRODUCER
        self._ended.append(mark)
        self.request_round()

    def _write(self, marks: list[Mark]) -> None:
        self._is_marking = True

        def on_done(results: list[AppendResult]) -> None:
            self._attempt(lambda: self._on_written(marks, results[0]))

        batch = build_marks(marks, self._services.clock.wall_ms())
        entries = [(self.topic_partition, memoryview(batch))]
        origin = AppendOrigin.COORDINATOR
        request = AppendRequest(ACKS_ALL, _NEVER_MS, origin, entries, on_done)
        self._services.replicas.append_records([request])

    def _on_written(self, marks: list[Mark], result: AppendResult) -> None:
        if result.last_offset != UNKNOWN_OFFSET:
            # The marks are in the log, even after an error: if they are not committed, another
            # broker leads.
            self._marks_end = result.last_offset + 1
            self._after_replay()
            return
        logger.warning(
            "%s: marks of schedules cannot be written: %s %s",
            self.topic_partition,
            result.error_code.name,
            result.error_message,
        )
        self._is_marking = False
        for mark in marks:
            if mark.kind in (MarkKind.RELEASED, MarkKind.RETURNED):
                self._ended.append(mark)
            self._put_back(mark)
        self._wake_in(RETRY_MS)

    def _put_back(self, mark: Mark) -> None:
        if mark.kind not in (MarkKind.RELEASE, MarkKind.EXPIRED):
            return
        for entry in mark.entries:
            pending = self.state.pending.get(entry.offset)
            if pending is not None and pending.due_ms == entry.due_ms:
                queue = self._queues.setdefault(self._destination(pending), [])
                heappush(queue, (pending.due_ms, pending.offset))
