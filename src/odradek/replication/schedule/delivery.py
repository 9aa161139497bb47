"""`Delivery`: sends the releases in flight of a schedule partition to their targets.

Each release ends with a mark, which the releaser writes: its target has the records, or they are
returned and released again. Refused records are tried again, one by one if a single record may
cause the error.
"""

import logging
from collections.abc import Callable
from typing import Final

from odradek.clock import LONG_AGO_MS
from odradek.errors import BrokerError, ErrorCode
from odradek.records.batch import split_batches
from odradek.records.builder import RecordBatchBuilder
from odradek.records.reader import read_batch
from odradek.records.record import Record
from odradek.replication.schedule.marks import Mark, MarkKind, Target
from odradek.replication.schedule.sender import NotAppended
from odradek.replication.schedule.services import ReleaseServices
from odradek.replication.schedule.state import Release, ScheduleState
from odradek.storage.log.log import Log
from odradek.timer import TimerTask

logger = logging.getLogger(__name__)

RETRY_MS: Final = 100
LONGEST_RETRY_MS: Final = 10_000
REFUSED_RETRY_MS: Final = 60_000
"""After what time a record is tried again that its target does not take as it is."""
_OURS: Final = ("scheduled-topic", "scheduled-partition", "scheduled-offset", "scheduled-for")

_REFUSED: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
"""Permanent errors of a target; other errors are retried."""

_SETTLED: Final = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)
"""Errors that exclude that the target has the batch; with others it may have it, and refuse it
again."""

_GONE_BEFORE: Final = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,)
"""Errors for a batch that the target has with more records, which were deleted since."""


class Delivery:
    """See the module. Later steps run through `attempt`, which does nothing once the releaser was
    stopped."""

    def __init__(
        self,
        log: Log,
        state: ScheduleState,
        services: ReleaseServices,
        attempt: Callable[[Callable[[], None]], None],
        on_ended: Callable[[Mark], None],
    ) -> None:
        self._log: Final = log
        self._state: Final = state
        self._services: Final = services
        self._attempt: Final = attempt
        self._on_ended: Final = on_ended
        self._retries: dict[Target, TimerTask] = {}
        # The batch that was read last: records that are due together are often in one batch.
        self._last_batch: dict[int, Record] = {}

    def stop(self) -> None:
        """Cancels all retries."""
        for retry in self._retries.values():
            retry.cancel()

    def try_again_now(self) -> None:
        """Runs the pending retries at once, since the wall clock was set."""
        for retry in list(self._retries.values()):
            retry.delay_ms = 0
            self._services.timer.add(retry)

    def send(self, release: Release, attempt: int = 0) -> None:
        """Sends a release, or returns it if it must not be delivered any more."""
        self._retries.pop(release.target, None)
        if self._state.in_flight.get(release.target) is not release:
            return
        topic = self._services.replicas.partitions.image.topic(release.target.topic)
        if topic is None or topic.topic_id != release.target.topic_id:
            # The target's records are gone with it, perhaps because it was recreated.
            self._return(release)
            return
        now_ms = self._services.clock.wall_ms()
        # Another leader's clock, or this one's before it was put back, may have been ahead.
        wait_ms = max(due_ms for _, due_ms in release.items) - now_ms
        if not release.is_in_doubt and (wait_ms > 0 or release.has_expired(now_ms)):
            self._return(release)
            return
        if wait_ms > 0:
            self._send_later(release, attempt, wait_ms)
            return
        self._send_batch(release, attempt)

    def _send_batch(self, release: Release, attempt: int) -> None:
        try:
            batch = self._batch(release)
        except BrokerError as error:
            unread = BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, error.message)
            self._on_sent(release, attempt, unread)
            return
        is_thinned = batch.record_count < len(release.items)
        was_in_doubt = release.is_in_doubt
        release.is_in_doubt = True

        def on_sent(error: BrokerError | None) -> None:
            if isinstance(error, NotAppended):
                release.is_in_doubt = was_in_doubt and error.code not in _SETTLED
            is_gone = was_in_doubt and error is not None and error.code in _GONE_BEFORE
            if is_thinned and (error is None or is_gone):
                self._attempt(lambda: self._finish_thinned(release))
            else:
                self._attempt(lambda: self._on_sent(release, attempt, error))

        if batch.record_count == 0:
            on_sent(None)
            return
        self._services.sender.send(
            release.target.topic_partition, bytearray(batch.build()), on_sent
        )

    def _on_sent(self, release: Release, attempt: int, error: BrokerError | None) -> None:
        if self._state.in_flight.get(release.target) is not release:
            return
        if error is None:
            self._finish(release)
        elif error.code not in _REFUSED:
            self._try_again(release, attempt, error)
        elif release.is_in_doubt:
            self._look(release, attempt, error)
        else:
            self._on_refused(release, error)

    def _try_again(self, release: Release, attempt: int, error: BrokerError) -> None:
        """A release in doubt keeps its sequence until its target has answered: returned records
        might arrive twice, and records given up as expired might have arrived."""
        if attempt == 0 or error.code in _REFUSED:
            logger.info("%s waits: %s", release.target.topic_partition, error)
        delay_ms = min(RETRY_MS << min(attempt, 10), LONGEST_RETRY_MS)
        self._send_later(release, attempt + 1, delay_ms)

    def _look(self, release: Release, attempt: int, error: BrokerError) -> None:
        """Asks whether the target has the batch already: targets refuse before they look for
        repetitions, so the refusal could block the release for ever."""

        def on_looked(found: int | BrokerError) -> None:
            self._attempt(lambda: self._on_looked(release, attempt, error, found))

        where, producer_id = release.target.topic_partition, release.producer_id
        self._services.sender.look(where, producer_id, on_looked)

    def _on_looked(
        self, release: Release, attempt: int, error: BrokerError, found: int | BrokerError
    ) -> None:
        if self._state.in_flight.get(release.target) is not release:
            return
        if isinstance(found, BrokerError) or release.has_sequence(found):
            self._try_again(release, attempt, error)
        else:
            release.is_in_doubt = False
            self._on_refused(release, error)

    def _send_later(self, release: Release, attempt: int, delay_ms: int) -> None:
        retry = TimerTask(delay_ms, lambda: self._attempt(lambda: self.send(release, attempt)))
        self._retries[release.target] = retry
        self._services.timer.add(retry)

    def _on_refused(self, release: Release, error: BrokerError) -> None:
        """Tries the records one by one, since a single one may have caused the refusal."""
        not_before_ms = LONG_AGO_MS
        if len(release.items) == 1:
            not_before_ms = self._services.clock.monotonic_ms() + REFUSED_RETRY_MS
            logger.warning(
                "%s does not take the record at offset %d of %s: %s",
                release.target.topic_partition,
                release.items[0][0].offset,
                self._log.topic_partition,
                error,
            )
        for pending, _ in release.items:
            pending.alone = True
            pending.not_before_ms = not_before_ms
        self._return(release)

    def _finish(self, release: Release) -> None:
        kind, sequence = MarkKind.RELEASED, release.next_sequence
        self._on_ended(Mark(kind, release.target, release.producer_id, sequence))

    def _finish_thinned(self, release: Release) -> None:
        """Ends a release of which records were deleted, perhaps after it had been sent with them:
        the last sequence of its producer is unknown."""
        if self._state.in_flight.get(release.target) is release:
            self._finish(release)
            self._return(release)

    def _return(self, release: Release) -> None:
        self._on_ended(Mark(MarkKind.RETURNED, release.target, release.producer_id))

    def _batch(self, release: Release) -> RecordBatchBuilder:
        """The records of a release for their target, those that the log still has.

        Raises:
            BrokerError: the log cannot be read.
        """
        builder = RecordBatchBuilder(
            producer_id=release.producer_id, producer_epoch=0, base_sequence=release.sequence
        )
        for pending, due_ms in release.items:
            record = self._record(pending.offset)
            if record is not None:
                headers = self._headers(record, due_ms)
                builder.append(due_ms, pending.delivered_key, record.value, headers)
        return builder

    def _record(self, offset: int) -> Record | None:
        found = self._last_batch.get(offset)
        if found is None and offset >= self._log.log_start_offset:
            self._read_batch_of(offset)
            found = self._last_batch.get(offset)
        return found

    def _read_batch_of(self, offset: int) -> None:
        read = self._log.read(offset, 1, self._log.high_watermark, True)
        data = b"".join(bytes(each) for each in read.records)
        self._last_batch = {
            record.offset: record
            for header in split_batches(data, drop_partial_tail=True)[:1]
            for record in read_batch(data, header)
        }

    def _headers(self, record: Record, due_ms: int) -> list[tuple[str, bytes | None]]:
        given = [each for each in record.headers if each[0] not in _OURS]
        topic, partition = self._log.topic_partition
        told = (topic, partition, record.offset, due_ms)
        return given + [
            (name, str(content).encode()) for name, content in zip(_OURS, told, strict=True)
        ]
