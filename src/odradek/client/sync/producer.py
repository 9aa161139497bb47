"""`Producer`, blocking: its futures are those of `concurrent.futures`."""

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from odradek.client.aio import producer as aio
from odradek.client.aio.producing.delivery_reports import OnDelivery
from odradek.client.core.producing.intake import Partitioner
from odradek.client.core.producing.preparing import ProducerInterceptor, Serializer
from odradek.client.sync.shell import Shell, asks
from odradek.event_loop import waits_for

P = ParamSpec("P")
T = TypeVar("T")


def _delivers(
    method: Callable[Concatenate[aio.Producer, P], Coroutine[Any, Any, asyncio.Future[T]]],
) -> Callable[Concatenate[Shell[aio.Producer], P], "Future[T]"]:
    """The blocking twin of a method whose outcome is a future, which becomes one of threads."""

    @functools.wraps(method)
    def delivering(shell: Shell[aio.Producer], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        async def sent() -> Future[T]:
            told: Future[T] = Future()
            delivery = await method(shell._client, *args, **kwargs)
            delivery.add_done_callback(partial(_tell, told))
            return told

        return shell._wait(sent())

    return delivering


def _tell(told: "Future[T]", delivery: asyncio.Future[T]) -> None:
    if delivery.cancelled():
        told.cancel()
    elif told.set_running_or_notify_cancel():
        error = delivery.exception()
        if error is None:
            told.set_result(delivery.result())
        else:
            told.set_exception(error)


class Producer(Shell[aio.Producer]):
    """Sends records; may be shared by threads.

        with Producer("localhost:9092") as producer:
            delivery = producer.send("orders", b"value", key=b"key")
            metadata = delivery.result()

    Each call waits for the loop's thread: send many records with `send_many`. Callbacks of
    deliveries, interceptors, serializers and partitioners are called by that thread.
    """

    def __init__(
        self,
        bootstrap_servers: str | Mapping[str, object] = "",
        config: Mapping[str, object] = {},
        *,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        partitioner: Partitioner | None = None,
        on_delivery: OnDelivery | None = None,
        **settings: Any,
    ) -> None:
        """Does not connect yet.

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
                partitioner=partitioner,
                on_delivery=on_delivery,
                **settings,
            )
        )

    def close(self, timeout_ms: int | None = None) -> None:
        """Sends the waiting records, and aborts an open transaction, then disconnects.

        That takes `timeout_ms` at most; the remaining records fail. Without it the last record is
        decided after `delivery.timeout.ms` at the latest; the transaction may take `max.block.ms`
        more.
        """
        self._close(lambda: self._client.close(timeout_ms))

    def transaction(self) -> AbstractContextManager[None]:
        """A transaction for the length of a `with` block: aborted if the block raises."""
        return self._within(self._client.transaction())

    send = _delivers(aio.Producer.send)
    send_and_wait = waits_for(aio.Producer.send_and_wait)
    send_many = _delivers(aio.Producer.send_many)
    flush = waits_for(aio.Producer.flush)
    partitions_for = waits_for(aio.Producer.partitions_for)
    init_transactions = waits_for(aio.Producer.init_transactions)
    begin_transaction = asks(aio.Producer.begin_transaction)
    send_offsets_to_transaction = waits_for(aio.Producer.send_offsets_to_transaction)
    commit_transaction = waits_for(aio.Producer.commit_transaction)
    abort_transaction = waits_for(aio.Producer.abort_transaction)
