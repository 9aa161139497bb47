"""The listeners to a record's end: the holder of its future, its callback, the callback of all
records, interceptors; and the log, since perhaps nobody waits."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from odradek.client.core.producing.accumulator import ProducerBatch
from odradek.client.core.producing.deliveries import BulkDelivery
from odradek.client.core.producing.preparing import ProducerInterceptor
from odradek.client.errors import KafkaError, NotDelivered, TransactionAborted
from odradek.client.record_metadata import RecordMetadata
from odradek.clock import Clock
from odradek.log_limit import LimitedLog
from odradek.model import UNKNOWN_OFFSET
from odradek.protocol.direct.produce import ProducePartitionResponse

_LOGGER: Final = logging.getLogger(__name__)
_LOG_INTERVAL_MS: Final = 30_000
# No task is cancelled while it calls: that is of a future that the function has looked at.
_RAISED: Final = (Exception, asyncio.CancelledError)
# Told of an error, or of None, and of where the record is: at -1 when it is not in the log.
OnDelivery = Callable[[KafkaError | None, RecordMetadata], object]


class DeliveryReports:
    """Belongs to one producer."""

    def __init__(
        self,
        interceptors: Sequence[ProducerInterceptor],
        on_delivery: OnDelivery | None,
        clock: Clock,
    ) -> None:
        self._interceptors = interceptors
        self._on_delivery = on_delivery
        self._tells = bool(interceptors) or on_delivery is not None
        self._undelivered = LimitedLog(_LOGGER, clock, _LOG_INTERVAL_MS)

    def tell_batch(
        self,
        batch: ProducerBatch,
        answer: ProducePartitionResponse | None,
        error: KafkaError | None,
    ) -> None:
        """Reports the result of a batch to all waiters for its records."""
        base_offset, append_time_ms = UNKNOWN_OFFSET, -1
        if answer is not None and error is None:
            base_offset, append_time_ms = answer.base_offset, answer.log_append_time_ms
        if error is None:
            batch.deliver(base_offset, append_time_ms)
        else:
            if not isinstance(error, TransactionAborted):
                self.log_undelivered(batch.record_count, str(batch.partition), error)
            for index, context in zip(batch.indexes, batch.contexts, strict=True):
                if isinstance(context, BulkDelivery):
                    context.failed(index, error)
                else:
                    assert isinstance(context, asyncio.Future), f"{context!r} is no future"
                    fail(context, error)
        if self._tells:
            for metadata in batch.metadata(base_offset, append_time_ms):
                self.tell(metadata, error)

    def log_undelivered(self, count: int, where: str, error: KafkaError) -> None:
        """Logs undelivered records: their futures may have no waiter."""
        self._undelivered.warning(f"{count} records for {where} were not delivered: {error}")

    def tell(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        """Reports one record to interceptors, and to the callback of all records."""
        for interceptor in self._interceptors:
            try:
                interceptor.on_acknowledgement(metadata, error)
            except _RAISED:
                _LOGGER.warning("an interceptor failed on an acknowledgement", exc_info=True)
        if self._on_delivery is not None:
            call(self._on_delivery, error, metadata)


def nowhere(topic: str, partition: int | None) -> RecordMetadata:
    """The place of a record that is not in the log."""
    return RecordMetadata(topic, -1 if partition is None else partition, UNKNOWN_OFFSET, -1)


def call_back(
    on_delivery: OnDelivery,
    topic: str,
    partition: int | None,
    delivery: asyncio.Future[RecordMetadata],
) -> None:
    """Reports the end of a delivery to the record's callback."""
    if delivery.cancelled():
        return
    error = delivery.exception()
    if error is None:
        call(on_delivery, None, delivery.result())
    else:
        assert isinstance(error, KafkaError), f"{error!r} is the end of a record"
        call(on_delivery, error, nowhere(topic, partition))


def call(on_delivery: OnDelivery, error: KafkaError | None, metadata: RecordMetadata) -> None:
    """Calls a user's function, whose exceptions are logged."""
    try:
        on_delivery(error, metadata)
    except _RAISED:
        _LOGGER.warning("the callback of a delivery failed", exc_info=True)


def tell_together(delivery: asyncio.Future[list[RecordMetadata]], bulk: BulkDelivery) -> None:
    """Reports the end of a `send_many` to its caller."""
    if bulk.errors:
        fail(delivery, NotDelivered(bulk.errors, bulk.places))
    elif not delivery.done():
        delivery.set_result(cast(list[RecordMetadata], bulk.places))


def fail(delivery: asyncio.Future[Any], error: KafkaError) -> None:
    """Fails the delivery of a record, or of many."""
    if not delivery.done():
        delivery.set_exception(error)
        delivery.exception()  # a caller that does not await the future does not want the error
