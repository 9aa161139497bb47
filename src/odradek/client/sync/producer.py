"""`Producer`, blocking: its futures are those of `concurrent.futures`."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from odradek.client.aio import producer as aio
from odradek.client.record_metadata import RecordMetadata
from odradek.client.sync.shell import Shell, asks, waits_for
from odradek.records.builder import Headers

T = TypeVar("T")


class Producer(Shell[aio.Producer]):
    """Sends records; may be shared by threads.

        with Producer("localhost:9092") as producer:
            delivery = producer.send("orders", b"value", key=b"key")
            metadata = delivery.result()

    Each call waits for the loop's thread: whoever has many records sends them by `send_many`.
    Callbacks of deliveries, interceptors and serializers are called by that thread.
    """

    def __init__(
        self,
        bootstrap_servers: str = "",
        config: Mapping[str, object] = {},
        *,
        key_serializer: aio.Serializer | None = None,
        value_serializer: aio.Serializer | None = None,
        interceptors: Sequence[aio.ProducerInterceptor] = (),
        **settings: Any,
    ) -> None:
        """Connects to nobody yet.

        Raises:
            ValueError: a setting is illegal, or contradicts another.
        """
        super().__init__(
            lambda: aio.Producer(
                bootstrap_servers,
                config,
                key_serializer=key_serializer,
                value_serializer=value_serializer,
                interceptors=interceptors,
                **settings,
            )
        )

    def close(self, timeout_ms: int | None = None) -> None:
        """Sends what waits, and aborts a transaction that is open, then disconnects.

        That takes `timeout_ms` at most; what remains fails.
        """
        self._close(lambda: self._client.close(timeout_ms))

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> "Future[RecordMetadata]":
        """Puts a record into a batch; the future is of its delivery.

        Raises:
            KafkaError: it cannot be put into a batch: too large, no such partition, no room or
                no metadata for `max.block.ms`, not in a transaction.
        """
        sending = partial(
            self._client.send,
            topic,
            value,
            key=key,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=headers,
        )
        return self._wait(_delivery(sending))

    def send_many(
        self,
        topic: str,
        values: Sequence[Any],
        *,
        keys: Sequence[Any] | None = None,
        headers: Sequence[Headers] | None = None,
        timestamps_ms: Sequence[int | None] | None = None,
        partition: int | None = None,
    ) -> "Future[list[RecordMetadata]]":
        """Puts many records into batches; the future is of the delivery of all.

        Errors are those of the asyncio producer's `send_many`.
        """
        sending = partial(
            self._client.send_many,
            topic,
            values,
            keys=keys,
            headers=headers,
            timestamps_ms=timestamps_ms,
            partition=partition,
        )
        return self._wait(_delivery(sending))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction for the length of a `with` block: aborted if the block raises."""
        scope = self._client.transaction()
        self._wait(scope.__aenter__())
        try:
            yield
        except BaseException as error:
            self._wait(scope.__aexit__(type(error), error, error.__traceback__))
            raise
        self._wait(scope.__aexit__(None, None, None))

    send_and_wait = waits_for(aio.Producer.send_and_wait)
    flush = waits_for(aio.Producer.flush)
    partitions_for = waits_for(aio.Producer.partitions_for)
    init_transactions = waits_for(aio.Producer.init_transactions)
    begin_transaction = asks(aio.Producer.begin_transaction)
    send_offsets_to_transaction = waits_for(aio.Producer.send_offsets_to_transaction)
    commit_transaction = waits_for(aio.Producer.commit_transaction)
    abort_transaction = waits_for(aio.Producer.abort_transaction)


async def _delivery(
    sending: Callable[[], Coroutine[Any, Any, asyncio.Future[T]]],
) -> "Future[T]":
    delivery = await sending()
    told: Future[T] = Future()
    delivery.add_done_callback(partial(_tell, told))
    return told


def _tell(told: "Future[T]", delivery: asyncio.Future[T]) -> None:
    if delivery.cancelled():
        told.cancel()
    elif told.set_running_or_notify_cancel():
        error = delivery.exception()
        if error is None:
            told.set_result(delivery.result())
        else:
            told.set_exception(error)
