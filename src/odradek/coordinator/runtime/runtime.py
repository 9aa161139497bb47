"""`CoordinatorRuntime`: replicated state machines, one for each partition of an internal topic.

    command(shard) -> records, response      looks at the state, changes nothing durable
    append                                   many commands share a batch
    committed -> replay(records)             the only thing that changes durable state
    response leaves

A partition that this broker comes to lead gets a shard, which is loaded by replaying the log:
in slices, one in a turn of the event loop however many partitions wait, so that it goes on
serving. Until then its commands are answered with COORDINATOR_LOAD_IN_PROGRESS; where this
broker does not lead, with NOT_COORDINATOR. When the leadership is lost the shard is dropped,
whatever it knew: the log knows it too. Upkeep that looks at everything (`sweep`) is sliced too.

Commands that may linger (offset commits) gather in one batch until `flush`, which the server
calls at the end of a socket read. Every other command is appended at once, behind what has
gathered before. `exclusive` commands of one key run one after another: the next looks at the
state only when the records of the one before are replayed. With one replica an append is
committed when it returns, and nothing ever waits.

What is appended cannot be taken back, so a write itself has no time-out. The answer to a request
has one: when the replicas are slow, `DelayedWrite` answers REQUEST_TIMED_OUT for it, and what
was written is replayed all the same once it is committed.
"""

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from typing import Final, Generic, NamedTuple, TypeVar, final

from mypy_extensions import mypyc_attr

from odradek.clock import Clock
from odradek.coordinator.classic.delayed import DelayedWrite, WriteKey
from odradek.coordinator.records.record import CoordinatorRecord, RecordCodec, RecordError
from odradek.coordinator.runtime.partition_writer import OnCommitted, PartitionWriter
from odradek.coordinator.runtime.partitioning import partition_for
from odradek.errors import BrokerError, ErrorCode
from odradek.purgatory import DelayedOperationPurgatory
from odradek.records.batch import split_batches
from odradek.records.builder import RecordBatchBuilder
from odradek.records.reader import read_batch

logger = logging.getLogger(__name__)

LOAD_SLICE_BYTES: Final = 256 * 1024
FIRST_SLICE_BYTES: Final = 16 * 1024
_RECORD_OVERHEAD_BYTES: Final = 32

Append = Callable[[Sequence[CoordinatorRecord], OnCommitted], None]
"""How a shard writes of its own accord, when a time-out and not a request is the reason."""


@mypyc_attr(allow_interpreted_subclasses=True)
class CoordinatorShard(ABC):
    """The state of one partition. Called on the broker's loop only."""

    @abstractmethod
    def replay(self, record: CoordinatorRecord) -> None:
        """Applies a committed record. Must not fail, must not append, must not answer."""

    @abstractmethod
    def on_loaded(self) -> None:
        """The log has been replayed to its end: the shard is in charge from here on."""

    @abstractmethod
    def on_unloaded(self) -> None:
        """The shard is dropped: ends its time-outs and answers whoever waits in it."""


S = TypeVar("S", bound=CoordinatorShard)
R = TypeVar("R")


@final
class CoordinatorResult(Generic[R]):
    """What a command decided: what to write, and the answer once that is committed."""

    def __init__(self, records: Sequence[CoordinatorRecord], response: R) -> None:
        self.records = records
        self.response = response


class _State(Enum):
    LOADING = auto()
    ACTIVE = auto()
    FAILED = auto()


class RuntimeSettings(NamedTuple):
    """How a runtime deals with its log.

    `max_batch_bytes` bounds a batch, which is compressed with `compression` (Kafka's number);
    `load_slice_bytes` are replayed before the loop turns; a request that writes is answered
    after `write_timeout_ms` at the latest.
    """

    max_batch_bytes: Callable[[], int]
    compression: int = 0
    load_slice_bytes: int = LOAD_SLICE_BYTES
    write_timeout_ms: int = 5_000


class _Answer(Generic[R]):
    """The answer to a request, given once: by the commit, a failure, or the time-out."""

    def __init__(self, response: R, on_done: Callable[[R | BrokerError], None]) -> None:
        self._response = response
        self._on_done: Callable[[R | BrokerError], None] | None = on_done

    def on_committed(self, error: BrokerError | None) -> None:
        self._give(self._response if error is None else error)

    def on_late(self) -> None:
        self._give(BrokerError(ErrorCode.REQUEST_TIMED_OUT))

    def _give(self, outcome: R | BrokerError) -> None:
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            on_done(outcome)


@final
class _Write:
    """One command's records in a batch."""

    def __init__(
        self,
        records: Sequence[CoordinatorRecord],
        on_committed: OnCommitted,
        on_late: Callable[[], None],
    ) -> None:
        self.records = records
        self.on_committed = on_committed
        self.on_late = on_late


class _Batch:
    """Writes that are appended together."""

    def __init__(self, compression: int) -> None:
        self.builder = RecordBatchBuilder(compression)
        self.writes: list[_Write] = []
        self.is_done = False
        self.delayed: DelayedWrite | None = None
        self.key: WriteKey | None = None


class _Context(Generic[S]):
    """A partition that is led here."""

    def __init__(self, partition: int, leader_epoch: int) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.state = _State.LOADING
        self.shard: S | None = None
        self.next_offset = 0
        self.end_offset = 0
        self.open_batch: _Batch | None = None
        self.busy: dict[str, deque[Callable[[], None]]] = {}
        """Keys with uncommitted exclusive records, and the commands that wait for them."""


class CoordinatorRuntime(Generic[S]):
    """Loads, finds and unloads shards, and carries their commands out.

    `partition_count` is the topic's number of partitions, None while there is no topic;
    `defer` runs something at the loop's next turn; answers wait for replicas in `writes`.
    """

    def __init__(
        self,
        writer: PartitionWriter,
        codec: RecordCodec,
        clock: Clock,
        defer: Callable[[Callable[[], None]], None],
        partition_count: Callable[[], int | None],
        make_shard: Callable[[int, Append], S],
        settings: RuntimeSettings,
        writes: DelayedOperationPurgatory,
    ) -> None:
        self._writer = writer
        self._codec = codec
        self._clock = clock
        self._defer = defer
        self._partition_count = partition_count
        self._make_shard = make_shard
        self._settings = settings
        self._writes = writes
        self._write_number = 0
        self._contexts: dict[int, _Context[S]] = {}
        self._lingering: dict[int, _Context[S]] = {}
        self._loading: deque[_Context[S]] = deque()

    # Leadership

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """This broker leads the partition in that epoch: loads it, unless it has already.

        A small partition is loaded when this returns.
        """
        context = self._contexts.get(partition)
        if context is not None:
            if context.leader_epoch >= leader_epoch:
                return
            self.on_resigned(partition)
        context = _Context(partition, leader_epoch)
        self._contexts[partition] = context
        context.shard = self._make_shard(partition, lambda *write: self._append(context, *write))
        try:
            context.next_offset, context.end_offset = self._writer.bounds(partition)
        except BrokerError as error:
            self._fail_load(context, error)
            return
        slice_bytes = min(FIRST_SLICE_BYTES, self._settings.load_slice_bytes)
        if not self._load_slice(context, slice_bytes):
            self._loading.append(context)
            if len(self._loading) == 1:
                self._defer(self._load_next)

    def on_resigned(self, partition: int) -> None:
        """This broker does not lead the partition any more."""
        context = self._contexts.pop(partition, None)
        self._lingering.pop(partition, None)
        if context is None or context.shard is None:
            return
        refusal = not_coordinator()
        lost, context.open_batch = context.open_batch, None
        for write in lost.writes if lost is not None else ():
            write.on_committed(refusal)
        context.shard.on_unloaded()
        busy, context.busy = context.busy, {}
        for waiting in busy.values():
            for command in waiting:
                command()

    def shutdown(self) -> None:
        """Unloads everything."""
        for partition in list(self._contexts):
            self.on_resigned(partition)

    def _load_next(self) -> None:
        """Replays one slice of the partition whose turn it is; then the loop turns."""
        context = self._loading.popleft()
        if self._leads(context) and not self._load_slice(context, self._settings.load_slice_bytes):
            self._loading.append(context)
        if self._loading:
            self._defer(self._load_next)

    def _leads(self, context: _Context[S]) -> bool:
        return self._contexts.get(context.partition) is context

    def _load_slice(self, context: _Context[S], max_bytes: int) -> bool:
        """Replays a part of the log; whether loading is over."""
        if context.next_offset < context.end_offset:
            try:
                self._replay_slice(context, max_bytes)
            except BrokerError as error:
                self._fail_load(context, error)
                return True
        if context.next_offset < context.end_offset:
            return False
        context.state = _State.ACTIVE
        assert context.shard is not None
        context.shard.on_loaded()
        return True

    def _replay_slice(self, context: _Context[S], max_bytes: int) -> None:
        data = self._writer.read(context.partition, context.next_offset, max_bytes)
        headers = split_batches(data, drop_partial_tail=True)
        if not headers:
            context.next_offset = context.end_offset
        for header in headers:
            context.next_offset = header.last_offset + 1
            if header.is_control:
                continue
            for record in read_batch(data, header):
                self._replay_stored(context, record.offset, record.key, record.value)

    def _replay_stored(
        self, context: _Context[S], offset: int, key: bytes | None, value: bytes | None
    ) -> None:
        assert context.shard is not None
        try:
            record = self._codec.decode(key or b"", value)
        except RecordError as error:
            logger.error(
                "partition %d, offset %d is passed over: %s", context.partition, offset, error
            )
            return
        if record is not None:
            context.shard.replay(record)

    def _fail_load(self, context: _Context[S], error: BrokerError) -> None:
        logger.error("partition %d cannot be loaded: %s", context.partition, error)
        context.state = _State.FAILED

    # Finding

    def partition_of(self, key: str) -> int:
        """The partition that a group or transactional id belongs to.

        Raises:
            BrokerError: COORDINATOR_NOT_AVAILABLE, the topic does not exist yet.
        """
        count = self._partition_count()
        if not count:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return partition_for(key, count)

    def shard(self, key: str) -> S:
        """The shard of a group or transactional id.

        Raises:
            BrokerError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS or
                COORDINATOR_NOT_AVAILABLE.
        """
        shard = self._active(key).shard
        assert shard is not None
        return shard

    def sweep(self, work: Callable[[S], Iterator[Sequence[CoordinatorRecord]]]) -> None:
        """Runs long work over the shards in charge, letting the loop turn between two slices.

        `work` yields what each slice wants to write. That is appended before the next slice is
        asked for, which may find the shard changed by others; a lost shard is asked no more.
        """
        self._sweep_slice(self._sweep_slices(work))

    def _sweep_slice(self, slices: Iterator[None]) -> None:
        for _ in slices:
            self._defer(lambda: self._sweep_slice(slices))
            return

    def _sweep_slices(
        self, work: Callable[[S], Iterator[Sequence[CoordinatorRecord]]]
    ) -> Iterator[None]:
        for context in list(self._contexts.values()):
            if context.state is not _State.ACTIVE or context.shard is None:
                continue
            for records in work(context.shard):
                if records:
                    self._append(context, records, _ignore)
                yield
                if not self._leads(context):
                    break

    def shards(self) -> Iterator[S]:
        """The shards that are in charge."""
        for context in list(self._contexts.values()):
            if context.state is _State.ACTIVE and context.shard is not None:
                yield context.shard

    @property
    def is_loading(self) -> bool:
        """Whether some partition is being loaded."""
        return any(context.state is _State.LOADING for context in self._contexts.values())

    def _active(self, key: str) -> _Context[S]:
        context = self._contexts.get(self.partition_of(key))
        if context is None or context.state is _State.FAILED:
            raise not_coordinator()
        if context.state is _State.LOADING:
            raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return context

    # Commands

    def execute(
        self,
        key: str,
        command: Callable[[S], CoordinatorResult[R]],
        on_done: Callable[[R | BrokerError], None],
        *,
        linger: bool = False,
        exclusive: bool = False,
    ) -> None:
        """Runs a command on the shard of `key`; `on_done` gets its response when its records
        are committed, or a BrokerError: raised by the command, met by the append, or
        REQUEST_TIMED_OUT when it is not known in time whether they are.

        A command that may `linger` waits for `flush`; see the module for `exclusive`.
        """
        try:
            context = self._active(key)
        except BrokerError as error:
            on_done(error)
            return
        if exclusive and key in context.busy:
            self._queue(context, key, command, on_done, linger)
            return
        assert context.shard is not None
        try:
            result = command(context.shard)
        except BrokerError as error:
            on_done(error)
            return
        if not result.records:
            on_done(result.response)
            return
        answer = _Answer(result.response, on_done)
        if exclusive:
            self._append_exclusive(context, key, result.records, answer, linger)
        else:
            self._append(context, result.records, answer.on_committed, linger, answer.on_late)

    # The two below make closures, which `execute` must not: it runs for every commit.

    def _queue(
        self,
        context: _Context[S],
        key: str,
        command: Callable[[S], CoordinatorResult[R]],
        on_done: Callable[[R | BrokerError], None],
        linger: bool,
    ) -> None:
        """Runs the command behind the one whose records are not committed yet."""
        context.busy[key].append(
            lambda: self.execute(key, command, on_done, linger=linger, exclusive=True)
        )

    def _append_exclusive(
        self,
        context: _Context[S],
        key: str,
        records: Sequence[CoordinatorRecord],
        answer: _Answer[R],
        linger: bool,
    ) -> None:
        def on_committed(error: BrokerError | None) -> None:
            answer.on_committed(error)
            self._release(context, key)

        context.busy[key] = deque()
        self._append(context, records, on_committed, linger, answer.on_late)

    def _release(self, context: _Context[S], key: str) -> None:
        """Runs what waited for the key, until one of it writes again."""
        waiting = context.busy.pop(key, None)
        while waiting:
            waiting.popleft()()
            again = context.busy.get(key)
            if again is not None:
                again.extend(waiting)
                return

    def flush(self) -> None:
        """Appends everything that lingers."""
        lingering, self._lingering = self._lingering, {}
        for context in lingering.values():
            self._flush(context)

    def _append(
        self,
        context: _Context[S],
        records: Sequence[CoordinatorRecord],
        on_committed: OnCommitted,
        linger: bool = False,
        on_late: Callable[[], None] | None = None,
    ) -> None:
        if not self._leads(context):
            on_committed(not_coordinator())
            return
        try:
            encoded = [self._codec.encode(record) for record in records]
        except ValueError as error:
            on_committed(BrokerError(ErrorCode.INVALID_REQUEST, str(error)))
            return
        limit = self._settings.max_batch_bytes()
        if context.open_batch is None:
            context.open_batch = _Batch(self._settings.compression)
        first = 0
        for index, (key, value) in enumerate(encoded):
            size = len(key) + len(value or b"") + _RECORD_OVERHEAD_BYTES
            batch = context.open_batch
            if batch.builder.record_count and batch.builder.size_bytes + size > limit:
                batch.writes.append(_Write(records[first:index], _ignore, _nobody_waits))
                first = index
                self._flush(context)
                context.open_batch = batch = _Batch(self._settings.compression)
            batch.builder.append(self._clock.wall_ms(), key, value)
        context.open_batch.writes.append(
            _Write(records[first:] if first else records, on_committed, on_late or _nobody_waits)
        )
        if linger:
            self._lingering[context.partition] = context
        else:
            self._flush(context)

    def _flush(self, context: _Context[S]) -> None:
        batch, context.open_batch = context.open_batch, None
        if batch is None:
            return
        self._writer.append(
            context.partition,
            bytearray(batch.builder.build()),
            lambda error: self._on_committed(context, batch, error),
        )
        if not batch.is_done:
            self._limit_answers(context.partition, batch)

    def _limit_answers(self, partition: int, batch: _Batch) -> None:
        """The replicas take their time: those who wait for the batch do not wait for ever."""

        def on_late() -> None:
            for write in batch.writes:
                write.on_late()

        self._write_number += 1
        batch.key = WriteKey(partition, self._write_number)
        batch.delayed = DelayedWrite(self._settings.write_timeout_ms, on_late)
        self._writes.try_complete_else_watch(batch.delayed, [batch.key])

    def _on_committed(self, context: _Context[S], batch: _Batch, error: BrokerError | None) -> None:
        batch.is_done = True
        if batch.delayed is not None and batch.key is not None:
            batch.delayed.is_written = True
            self._writes.check_and_complete(batch.key, "committed")
        if error is None and not self._leads(context):
            error = not_coordinator()
        for write in batch.writes:
            if error is None:
                assert context.shard is not None
                for record in write.records:
                    context.shard.replay(record)
            write.on_committed(error)


def not_coordinator() -> BrokerError:
    """The refusal of a broker that does not lead the partition."""
    return BrokerError(ErrorCode.NOT_COORDINATOR)


def _ignore(_error: BrokerError | None) -> None:
    """The outcome of upkeep, which looks again, and of the first part of a write that takes
    several batches: its last part's outcome is the whole's, since a later batch is never
    committed without the earlier."""


def _nobody_waits() -> None:
    """A shard's own write is late: nobody is told, since what it says happens all the same."""
