"""`Consumer`, blocking: listeners and callbacks are called by the thread that reads."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, cast, overload

from odradek.client.aio import consumer as aio
from odradek.client.aio.consuming.commits import CommitCallback
from odradek.client.aio.consuming.handout import Columns, ConsumerInterceptor, Records
from odradek.client.aio.consuming.subscription import listener_reads
from odradek.client.aio.group import RebalanceListener
from odradek.client.aio.group.membership import Partitions
from odradek.client.core.consuming.deserializers import Deserializer
from odradek.client.core.groups.assignors import Assignor
from odradek.client.core.groups.commits import Offsets
from odradek.client.sync.callbacks import CallingBack, Found
from odradek.client.sync.shell import asks
from odradek.event_loop import waits_for
from odradek.model import TopicPartition


class Consumer(CallingBack[aio.Consumer]):
    """Reads records, for one thread.

        with Consumer("localhost:9092", group_id="readers") as consumer:
            consumer.subscribe(["orders"])
            for record in consumer:
                ...

    A record of the iteration is a call to the loop's thread; `poll` brings many by one. Listeners
    and the callbacks of `commit_async` are called inside of this consumer's calls; deserializers
    and interceptors by the loop's thread.
    """

    def __init__(
        self,
        bootstrap_servers: str | Mapping[str, object] = "",
        config: Mapping[str, object] = {},
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        topics: Iterable[str] = (),
        assignors: Sequence[Assignor] = (),
        **settings: Any,
    ) -> None:
        """Does not connect yet. `topics` are subscribed to; `assignors` come before those of
        `partition.assignment.strategy`.

        Raises:
            ValueError: a setting is illegal, or there are assignors where the coordinator assigns.
            UsageError: there are topics and no group.
        """
        self._is_telling = False
        self._closing_ms: int | None = None
        super().__init__(
            lambda: aio.Consumer(
                bootstrap_servers,
                config,
                key_deserializer=key_deserializer,
                value_deserializer=value_deserializer,
                interceptors=interceptors,
                topics=topics,
                assignors=assignors,
                **settings,
            )
        )

    def close(self, timeout_ms: int = 30_000) -> None:
        """Commits what auto-commit owes, leaves the group, disconnects.

        Without an answer within `timeout_ms` the group notices by the missing heartbeats. A
        listener does not wait for it: the call that it is called in does.
        """
        if self._is_telling and not self._is_closing:
            self._closing_ms = timeout_ms
            self._submit(self._client.close(timeout_ms))
        else:
            self._close(lambda: self._client.close(timeout_ms))

    # --- what is read -----------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Reads topics, or those whose whole names match a pattern, as a member of the group.

        Raises:
            UsageError: there is no group, or partitions are assigned by hand.
        """
        told = None if listener is None else _OnCallersSide(listener, self)

        async def subscribed() -> None:
            self._client.subscribe(
                topics, pattern=pattern, listener=cast(RebalanceListener | None, told)
            )

        self._wait(subscribed())

    assign = asks(aio.Consumer.assign)

    def unsubscribe(self) -> None:
        """Reads nothing any more, and leaves the group. A listener does not wait for it.

        Raises:
            KafkaError: the listener failed; the group is left.
        """
        if self._is_telling:
            self._submit(self._begin_to_leave())
        else:
            self._wait(self._client.unsubscribe())

    subscription = asks(aio.Consumer.subscription)
    assignment = asks(aio.Consumer.assignment)

    # --- reading ----------------------------------------------------------------------------

    def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> Records:
        """Returns the records at hand, by partition; waits for them up to a time.

        Raises:
            BadRecord: a record cannot be read; `seek` behind it to continue. KafkaError: reading
                cannot continue as it is.
        """
        return self.getmany(timeout_ms=timeout_ms, max_records=max_records)

    @overload
    def getmany(
        self,
        *partitions: TopicPartition,
        timeout_ms: int = 0,
        max_records: int | None = None,
        columns: Literal[False] = False,
    ) -> Records: ...

    @overload
    def getmany(
        self,
        *partitions: TopicPartition,
        timeout_ms: int = 0,
        columns: Literal[True],
        headers: bool = True,
        views: bool = False,
    ) -> Columns: ...

    def getmany(
        self,
        *partitions: TopicPartition,
        timeout_ms: int = 0,
        max_records: int | None = None,
        columns: bool = False,
        headers: bool = True,
        views: bool = False,
    ) -> Records | Columns:
        """Like `poll`, for some partitions or all; with `columns` as the asyncio consumer's.

        Raises:
            BadRecord: a record cannot be read; `seek` behind it to continue. KafkaError: reading
                cannot continue as it is.
        """
        if columns:
            return self._read(
                lambda: self._client.getmany(
                    *partitions, timeout_ms=timeout_ms, columns=True, headers=headers, views=views
                )
            )
        return self._read(
            lambda: self._client.getmany(
                *partitions, timeout_ms=timeout_ms, max_records=max_records
            )
        )

    # --- where it stands --------------------------------------------------------------------

    seek = asks(aio.Consumer.seek)
    seek_to_beginning = waits_for(aio.Consumer.seek_to_beginning)
    seek_to_end = waits_for(aio.Consumer.seek_to_end)
    position = waits_for(aio.Consumer.position)
    pause = asks(aio.Consumer.pause)
    resume = asks(aio.Consumer.resume)
    paused = asks(aio.Consumer.paused)
    lag = asks(aio.Consumer.lag)
    highwater = asks(aio.Consumer.highwater)
    last_stable_offset = asks(aio.Consumer.last_stable_offset)
    beginning_offsets = waits_for(aio.Consumer.beginning_offsets)
    end_offsets = waits_for(aio.Consumer.end_offsets)
    offsets_for_times = waits_for(aio.Consumer.offsets_for_times)
    partitions_for = waits_for(aio.Consumer.partitions_for)

    # --- committing -------------------------------------------------------------------------

    commit = waits_for(aio.Consumer.commit)
    store_offsets = asks(aio.Consumer.store_offsets)
    committed = waits_for(aio.Consumer.committed)
    group_metadata = asks(aio.Consumer.group_metadata)

    def commit_async(
        self, offsets: Offsets | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Commits without waiting; the callback is called by a later read, commit or close."""
        told: CommitCallback | None = None
        if callback is not None:
            told = partial(self._call_later, callback)

        async def committing() -> None:
            self._client.commit_async(offsets, told)

        self._wait(committing())

    # --- inside -----------------------------------------------------------------------------

    def _read(self, read: Callable[[], Coroutine[Any, Any, Found]]) -> Found:
        if self._is_telling:
            raise listener_reads()
        return super()._read(read)

    def _called_back(self, work: Coroutine[Any, Any, Found]) -> Found:
        try:
            return super()._called_back(work)
        finally:
            # A listener has closed this consumer, inside of the call that ends here.
            if self._closing_ms is not None and not self._depth:
                timeout_ms, self._closing_ms = self._closing_ms, None
                self.close(timeout_ms)

    async def _begin_to_leave(self) -> None:
        # A call that waits for the end, and is not waited for, would lose a failure.
        self._client._subscription.begin_to_leave()

    def _put_back(self, found: Records | Columns) -> None:
        self._client._handout.put_back(found)

    def _tell(self, callback: Callable[[Partitions], object], partitions: Partitions) -> None:
        """Calls a listener; a rebalance waits for it, so it cannot wait for that."""
        was_telling, self._is_telling = self._is_telling, True
        try:
            callback(partitions)
        finally:
            self._is_telling = was_telling


class _OnCallersSide:
    """A listener as the asyncio consumer sees it: each call goes to the reader's thread, and is
    waited for."""

    def __init__(self, listener: RebalanceListener, consumer: Consumer) -> None:
        self._listener = listener
        self._consumer = consumer

    def __getattr__(self, name: str) -> Callable[[Partitions], Awaitable[None]]:
        return partial(self._ask, getattr(self._listener, name))

    async def _ask(self, callback: Callable[[Partitions], object], partitions: Partitions) -> None:
        loop = asyncio.get_running_loop()
        # As a result: a future takes no StopIteration for an exception.
        answered: asyncio.Future[Exception | None] = loop.create_future()

        def answer(failure: Exception | None) -> None:
            if not answered.done():
                answered.set_result(failure)

        def on_callers_side() -> None:
            failure: Exception | None = RuntimeError("the listener was interrupted")
            try:
                self._consumer._tell(callback, partitions)
                failure = None
            except Exception as error:  # noqa: BLE001 - a user's code may raise anything
                failure = error
            finally:
                loop.call_soon_threadsafe(answer, failure)

        self._consumer._todo.put(on_callers_side)
        if (failed := await answered) is not None:
            raise failed
