"""`CallingBack`: a blocking reader that calls its user's functions on the reading thread.

The loop's calls for that thread wait in a queue; every blocking call works through it while it
waits for its own result.
"""

import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, Protocol, Self, TypeAlias, TypeVar

from odradek.client.aio.consuming.handout import Records
from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.client.errors import ClientClosed, KafkaError
from odradek.client.sync.shell import Client, Shell
from odradek.model import TopicPartition

_LOGGER: Final = logging.getLogger(__name__)
_CALLBACK_FAILED: Final = "the callback of a commit failed"
Found = TypeVar("Found")
T = TypeVar("T")
# None wakes a call that waits for a task, to look at its own outcome.
Todo: TypeAlias = "SimpleQueue[Callable[[], None] | None]"


class _Reader(Client, Protocol):
    async def getone(self) -> ConsumerRecord: ...

    def wakeup(self) -> None: ...


R = TypeVar("R", bound=_Reader)


class CallingBack(Shell[R]):
    """Its calls raise the exception of a callback, unless they have read records, which would be
    lost: then the next call raises it, instead of its work. On closing it is logged."""

    def __init__(self, make: Callable[[], R]) -> None:
        """See `Shell`."""
        self._todo: Todo = SimpleQueue()
        self._depth = 0  # of the calls that are under way, one inside of a callback of the other
        self._is_ending = False
        self._raised: Exception | None = None
        super().__init__(make)

    def wakeup(self) -> None:
        """Ends a call that waits, or the next one, with `WokenUp`; for other threads and handlers
        of signals."""

        async def woken() -> None:
            self._client.wakeup()

        # Not like the other calls: only a reader runs queued callbacks.
        Shell._wait(self, woken())

    def getone(self) -> ConsumerRecord:
        """The next record, as soon as there is one.

        Raises:
            KafkaError: as `getmany`.
        """

        async def one() -> Records:
            record = await self._client.getone()
            return {TopicPartition(record.topic, record.partition): [record]}

        [[record]] = self._read(one).values()
        return record

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        """The next record; the iteration ends when the consumer is closed."""
        try:
            return self.getone()
        except ClientClosed:
            if self._is_ending:
                raise StopIteration from None
            raise  # a callback did, with another client
        except StopIteration as error:
            raise RuntimeError("a callback raised StopIteration") from error

    def _close(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        super()._close(partial(self._end, work))

    def _end(self, work: Callable[[], Coroutine[Any, Any, None]]) -> Coroutine[Any, Any, None]:
        self._is_ending = True
        if self._raised is not None:
            _LOGGER.warning(_CALLBACK_FAILED, exc_info=self._raised)
            self._raised = None
        return work()

    # --- what was read is not lost ----------------------------------------------------------

    def _read(self, read: Callable[[], Coroutine[Any, Any, Found]]) -> Found:
        """Waits for a read; raises the exception of a callback in it if no record was found."""
        self._tell_failure()
        found = self._unless_interrupted(read)
        if not found:
            self._tell_failure()
        return found

    def _unless_interrupted(self, read: Callable[[], Coroutine[Any, Any, Found]]) -> Found:
        """Waits for a read. A result that arrives when this thread is interrupted comes again."""
        unclaimed: list[Found] = []

        async def reading() -> Found:
            unclaimed.append(await read())
            return unclaimed[0]

        async def put_back() -> None:
            for found in unclaimed:
                self._put_back(found)

        try:
            return self._called_back(reading())
        except BaseException:
            # Behind whatever ends the read, and before any other call.
            with suppress(KafkaError):
                self._submit(put_back())
            raise

    def _put_back(self, found: Any) -> None:
        """Gives back to the client the records of a read that no caller got."""
        raise NotImplementedError

    # --- waiting, and doing what there is to do ---------------------------------------------

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            self._tell_failure()
        except BaseException:
            work.close()
            raise
        outcome = self._called_back(work)
        self._tell_failure()
        return outcome

    @contextmanager
    def _within(self, scope: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Like `Shell._within`. An entered block is left, whatever callbacks raise."""
        self._tell_failure()
        entered = self._called_back(scope.__aenter__())
        try:
            yield entered
        except BaseException as error:
            if not self._thread.is_forked:
                self._called_back(scope.__aexit__(type(error), error, error.__traceback__))
            raise
        self._called_back(scope.__aexit__(None, None, None))
        self._tell_failure()

    def _called_back(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for work, and meanwhile runs this thread's queued callbacks."""
        future = self._submit(work)
        future.add_done_callback(lambda _: self._todo.put(None))
        self._depth += 1
        try:
            while True:
                task = self._todo.get()
                if task is not None:
                    self._do(task)
                elif future.done():
                    break
        except BaseException:
            future.cancel()
            raise
        finally:
            self._depth -= 1
            if self._depth:
                # A listener's call, which may have taken what was to wake the one around it.
                self._todo.put(None)
        return future.result()

    def _call_later(self, callback: Callable[..., None], *args: object) -> None:
        self._todo.put(partial(callback, *args))

    def _do(self, task: Callable[[], None]) -> None:
        try:
            task()
        except Exception as error:  # a user's callback: `_tell_failure` raises it to the caller
            if not self._is_ending and self._raised is None:
                self._raised = error
            else:
                _LOGGER.warning(_CALLBACK_FAILED, exc_info=True)

    def _tell_failure(self) -> None:
        """Raises the exception of a callback; not inside of another one's call, which is not at
        fault."""
        if self._raised is not None and not self._depth and not self._is_ending:
            error, self._raised = self._raised, None
            raise error
