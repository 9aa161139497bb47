"""`CoordinatorRuntime`: replicated state machines, one for each partition of an internal topic.

    command(shard) -> records, response      looks at the state, changes nothing durable
    append                                   many commands share a batch
    committed -> replay(records)             the only thing that changes durable state
    response leaves

A partition that this broker comes to lead gets a shard, which is loaded by replaying the log
(`loader`). Until then its commands are answered with COORDINATOR_LOAD_IN_PROGRESS; if this broker
does not lead, with NOT_COORDINATOR. When the leadership is lost the shard is dropped: the log has
all of it. Upkeep that looks at everything (`sweep`) runs in slices.

Commands that may linger (offset commits) gather in one batch until `flush`, which the server
calls at the end of a socket read. Every other command is appended at once (`appender`).
`exclusive` commands of one key run one after another: each runs when the records of the one before
are replayed. With one replica an append is committed when it returns, so no command waits. A
command that `expires` waits for its turn no longer than for its answer.

Records of a transaction go the same way (`execute_transactional`), in batches of their
producer; they are replayed with its id and count when the end marker is replayed
(`complete_transaction`).

The answer to a request has a time-out: if the replicas are slow, `DelayedWrite` answers
REQUEST_TIMED_OUT for it, and the records are still replayed once they are committed.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Generic, TypeVar

from odradek.background import do_each, run_each
from odradek.clock import Clock
from odradek.coordinator.records.record import CoordinatorRecord, RecordCodec
from odradek.coordinator.runtime.appender import BatchAppender, not_coordinator
from odradek.coordinator.runtime.batches import Answer, EndMarker, Producer
from odradek.coordinator.runtime.context import ShardContext, ShardState
from odradek.coordinator.runtime.loader import CoordinatorLoader
from odradek.coordinator.runtime.partition_writer import PartitionWriter
from odradek.coordinator.runtime.partitioning import partition_for
from odradek.coordinator.runtime.response_errors import TOO_LARGE
from odradek.coordinator.runtime.settings import RuntimeSettings
from odradek.coordinator.runtime.shard import (
    Append,
    CoordinatorResult,
    CoordinatorShard,
    Execute,
    Uncommitted,
)
from odradek.errors import BrokerError, ErrorCode
from odradek.purgatory import DelayedOperationPurgatory

S = TypeVar("S", bound=CoordinatorShard)
R = TypeVar("R")

Sweep = Callable[[S, Uncommitted], Iterator[Sequence[CoordinatorRecord]]]
"""Upkeep of one shard, slice by slice; yields what each slice wants to write."""


class CoordinatorRuntime(Generic[S]):
    """Loads, finds and unloads shards, and runs their commands.

    `partition_count` is the topic's number of partitions, None while there is no topic;
    `make_shard` is given the partition, the epoch of the leadership, and the ways to the log;
    `defer` runs something at the loop's next turn; answers wait for replicas in `writes`.
    """

    def __init__(
        self,
        writer: PartitionWriter,
        codec: RecordCodec,
        clock: Clock,
        defer: Callable[[Callable[[], None]], None],
        partition_count: Callable[[], int | None],
        make_shard: Callable[[int, int, Append, Execute], S],
        settings: RuntimeSettings,
        writes: DelayedOperationPurgatory,
    ) -> None:
        self._defer = defer
        self._partition_count = partition_count
        self._make_shard = make_shard
        self._loader: CoordinatorLoader[S] = CoordinatorLoader(
            writer, codec, defer, settings.load_slice_bytes
        )
        self._appender: BatchAppender[S] = BatchAppender(
            writer, codec, clock, settings, writes, self._on_broken
        )
        self._contexts: dict[int, ShardContext[S]] = {}

    # Leadership

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """Loads a partition that this broker leads in that epoch, unless it has already.

        A small partition is loaded when this returns.
        """
        context = self._contexts.get(partition)
        if context is not None:
            if context.leader_epoch >= leader_epoch:
                return
            self.on_resigned(partition)
        elected: ShardContext[S] = ShardContext(partition, leader_epoch)
        elected.attach(
            self._make_shard(
                partition,
                leader_epoch,
                lambda records, on_committed, on_late=None: self._appender.append(
                    elected, records, on_committed, on_late=on_late
                ),
                self._execute_for_shard,
            )
        )
        self._contexts[partition] = elected
        self._loader.load(elected)

    def on_resigned(self, partition: int) -> None:
        """Drops a partition that this broker does not lead any more."""
        context = self._contexts.pop(partition, None)
        if context is None:
            return
        context.is_led = False
        busy, context.busy = context.busy, {}
        steps: list[Callable[[], None]] = [lambda: self._appender.drop(context)]
        steps.append(context.shard.on_unloaded)
        steps += chain.from_iterable(busy.values())
        run_each(steps)

    def _on_broken(self, context: ShardContext[S], error: Exception) -> BrokerError:
        """Fails a shard that cannot be replayed: it answers no request any more. The exception ends
        the broker at the loop's next turn, where no request handles it."""
        context.state = ShardState.FAILED
        broken = AssertionError(f"partition {context.partition} cannot be replayed: {error!r}")
        broken.__cause__ = error

        def resign() -> None:
            if self._leads(context):
                self.on_resigned(context.partition)

        def raise_broken() -> None:
            raise broken

        self._defer(lambda: run_each([resign, raise_broken]))
        return BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR)

    def shutdown(self) -> None:
        """Unloads everything."""
        do_each(list(self._contexts), self.on_resigned)

    # Finding

    def partition_of(self, key: str) -> int:
        """The partition that a group or transactional id belongs to.

        Raises:
            BrokerError: NOT_COORDINATOR, the topic does not exist yet.
        """
        count = self._partition_count()
        if not count:
            raise BrokerError(ErrorCode.NOT_COORDINATOR)
        return partition_for(key, count)

    def shard(self, key: str) -> S:
        """The shard of a group or transactional id.

        Raises:
            BrokerError: NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS.
        """
        return self._active(self.partition_of(key)).shard

    def uncommitted(self, key: str) -> Iterator[CoordinatorRecord]:
        """Returns the records on their way to the log of the key's shard, not replayed yet.

        Raises:
            BrokerError: as `shard`.
        """
        return self._active(self.partition_of(key)).uncommitted()

    def is_busy(self, key: str) -> bool:
        """Whether the records of an exclusive command of the key are not committed yet."""
        count = self._partition_count()
        context = self._contexts.get(partition_for(key, count)) if count else None
        return context is not None and key in context.busy

    def shards(self) -> Iterator[S]:
        """The shards that are in charge."""
        for context in self._active_contexts():
            yield context.shard

    @property
    def is_loading(self) -> bool:
        """Whether some partition is being loaded."""
        return any(context.state is ShardState.LOADING for context in self._contexts.values())

    def _active_contexts(self) -> list[ShardContext[S]]:
        return [each for each in self._contexts.values() if each.state is ShardState.ACTIVE]

    def _active(self, partition: int) -> ShardContext[S]:
        context = self._contexts.get(partition)
        if context is None or context.state is ShardState.FAILED:
            raise not_coordinator()
        if context.state is ShardState.LOADING:
            raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return context

    # Upkeep

    def sweep(self, work: Sweep[S], on_refused: Callable[[Exception], None]) -> None:
        """Runs long work over the shards in charge, letting the loop turn between two slices.

        `work` yields the records of each slice. They are appended before the next slice begins,
        which may find the shard changed by others; a lost shard gets no further slice. The records
        are written behind uncommitted ones, so `work` has to consider those. `on_refused` is called
        for records that were not written; each record of a slice is independent. If a slice raises,
        its shard is left: `on_refused` gets the exception before it is raised, and the other shards
        continue.
        """
        self._sweep_next(
            deque([self._sweep_shard(each, work, on_refused) for each in self._active_contexts()])
        )

    def _sweep_next(self, shards: deque[Iterator[bool]]) -> None:
        try:
            while shards and not next(shards[0], False):
                shards.popleft()
        except BaseException:
            shards.popleft()
            raise
        finally:
            if shards:
                self._defer(lambda: self._sweep_next(shards))

    def _sweep_shard(
        self, context: ShardContext[S], work: Sweep[S], on_refused: Callable[[Exception], None]
    ) -> Iterator[bool]:
        """Yields True after each slice."""
        if not self._leads(context):
            return
        try:
            for records in work(context.shard, context.uncommitted):
                if records:
                    self._append_slice(context, records, on_refused)
                yield True
                if not self._leads(context):
                    return
        except Exception as error:  # the shard's work: whoever waits for it is told
            on_refused(error)
            raise

    def _append_slice(
        self,
        context: ShardContext[S],
        records: Sequence[CoordinatorRecord],
        on_refused: Callable[[Exception], None],
    ) -> None:
        def on_committed(error: BrokerError | None) -> None:
            if error is None:
                return
            half = len(records) // 2
            if half and error.code in TOO_LARGE:
                self._append_slice(context, records[:half], on_refused)
                self._append_slice(context, records[half:], on_refused)
            else:
                on_refused(error)

        self._appender.append(context, records, on_committed)

    def _leads(self, context: ShardContext[S]) -> bool:
        return self._contexts.get(context.partition) is context

    # Commands

    def execute(
        self,
        key: str,
        command: Callable[[S], CoordinatorResult[R]],
        on_done: Callable[[R | BrokerError], None],
        *,
        linger: bool = False,
        exclusive: bool = False,
        expires: bool = False,
    ) -> None:
        """Runs a command on the shard of `key`; `on_done` gets its response when its records
        are committed, or a BrokerError: raised by the command, met by the append, or
        REQUEST_TIMED_OUT if the commit is not known in time.

        A command that may `linger` waits for `flush`; see the module for `exclusive` and `expires`.
        """
        try:
            context = self._active(self.partition_of(key))
        except BrokerError as error:
            on_done(error)
            return
        if exclusive and key in context.busy:
            self._queue(context, key, command, on_done, expires)
            return
        try:
            result = command(context.shard)
        except BrokerError as error:
            on_done(error)
            return
        except Exception:
            # Otherwise the caller would never be answered.
            on_done(BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR))
            raise
        if not result.records:
            on_done(result.response)
            return
        answer = Answer(result.response, on_done)
        if exclusive:
            self._append_exclusive(context, key, result, answer, linger)
        else:
            self._appender.append(
                context, result.records, answer.on_committed, linger, answer.on_late
            )

    # The three below make closures, which `execute` must not: it runs for every commit.

    def _execute_for_shard(
        self,
        key: str,
        command: Callable[[], CoordinatorResult[R]],
        on_done: Callable[[R | BrokerError], None],
    ) -> None:
        """See `Execute`."""
        self.execute(key, lambda _shard: command(), on_done, exclusive=True, expires=True)

    def _queue(
        self,
        context: ShardContext[S],
        key: str,
        command: Callable[[S], CoordinatorResult[R]],
        on_done: Callable[[R | BrokerError], None],
        expires: bool,
    ) -> None:
        """Runs the command after those of the key that are not committed yet."""
        turn = (
            self._appender.await_write(
                context.partition, lambda: on_done(BrokerError(ErrorCode.REQUEST_TIMED_OUT))
            )
            if expires
            else None
        )

        def run() -> None:
            if turn is None or self._appender.end_wait(turn):
                # Without linger: the command has waited already, and no flush may follow.
                self.execute(key, command, on_done, exclusive=True)

        context.busy[key].append(run)

    def _append_exclusive(
        self,
        context: ShardContext[S],
        key: str,
        result: CoordinatorResult[R],
        answer: Answer[R],
        linger: bool,
    ) -> None:
        def on_committed(error: BrokerError | None) -> None:
            steps: list[Callable[[], None]] = [
                lambda: answer.on_committed(error),
                lambda: _release(context, key),
            ]
            if error is None and result.follow_up is not None:
                steps.append(result.follow_up)
            run_each(steps)

        context.busy[key] = deque()
        self._appender.append(context, result.records, on_committed, linger, answer.on_late)

    def execute_transactional(
        self,
        key: str,
        producer: Producer,
        command: Callable[[S], CoordinatorResult[R]],
        on_done: Callable[[R | BrokerError], None],
    ) -> None:
        """Runs a command whose records belong to the transaction of `producer`.

        `on_done` gets its response when they are committed to the log; `complete_transaction`
        applies or drops them. The log checks the producer's epoch.
        """
        try:
            context = self._active(self.partition_of(key))
            result = command(context.shard)
        except BrokerError as error:
            on_done(error)
            return
        if not result.records:
            on_done(result.response)
            return
        answer = Answer(result.response, on_done)
        self._appender.append(
            context,
            result.records,
            answer.on_committed,
            on_late=answer.on_late,
            producer=producer,
        )

    def complete_transaction(
        self,
        partition: int,
        marker: EndMarker,
        timeout_ms: int,
        on_done: Callable[[BrokerError | None], None],
    ) -> None:
        """Writes the end marker of a transaction into one partition of the internal topic.

        `on_done` gets None when the marker is committed and applied, and REQUEST_TIMED_OUT if that
        is not known after `timeout_ms`: it may still be applied. A partition that is being loaded
        refuses it, since the log may have records that are not replayed yet. The sender of markers
        tries again after each error; a marker that is applied twice changes nothing more.
        """
        try:
            context = self._active(partition)
        except BrokerError as error:
            on_done(error)
            return
        self._appender.append_end_marker(context, marker, timeout_ms, on_done)

    def flush(self) -> None:
        """Appends everything that lingers."""
        self._appender.flush()


def _release(context: ShardContext[S], key: str) -> None:
    """Runs the commands that waited for the key, until one of them writes."""
    waiting = context.busy.pop(key, None)
    if waiting:
        run_each(_turns(context, key, waiting))


def _turns(
    context: ShardContext[S], key: str, waiting: deque[Callable[[], None]]
) -> Iterator[Callable[[], None]]:
    while waiting:
        yield waiting.popleft()
        again = context.busy.get(key)
        if again is not None:
            again.extend(waiting)
            return
