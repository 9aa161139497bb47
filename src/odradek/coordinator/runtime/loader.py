"""`CoordinatorLoader`: replays the logs of partitions that this broker has come to lead.

In slices, one per turn of the loop however many partitions wait, so the broker keeps serving.
Records of a transaction are replayed with their producer's id, and end markers tell the shard
whether they were committed. An unreadable record or batch is skipped, with a line in the log: the
partition's other records still count. If a slice of a partition raises, this broker does not
coordinate it, and the others are still loaded; the error reaches the caller that runs the turn.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from odradek.coordinator.records.record import RecordCodec, RecordError
from odradek.coordinator.runtime.context import ShardContext, ShardState
from odradek.coordinator.runtime.partition_writer import PartitionWriter
from odradek.coordinator.runtime.shard import CoordinatorShard
from odradek.errors import BrokerError
from odradek.model import TransactionResult
from odradek.records.batch import BatchHeader, split_batches
from odradek.records.reader import read_batch
from odradek.records.record import Record
from odradek.storage.producers.end_marker import parse_end_marker

logger = logging.getLogger(__name__)

FIRST_SLICE_BYTES: Final = 16 * 1024

S = TypeVar("S", bound=CoordinatorShard)


class CoordinatorLoader(Generic[S]):
    """`defer` runs something at the loop's next turn."""

    def __init__(
        self,
        writer: PartitionWriter,
        codec: RecordCodec,
        defer: Callable[[Callable[[], None]], None],
        slice_bytes: int,
    ) -> None:
        self._writer = writer
        self._codec = codec
        self._defer = defer
        self._slice_bytes = slice_bytes
        self._loading: deque[ShardContext[S]] = deque()

    def load(self, context: ShardContext[S]) -> None:
        """Brings the shard to the end of its log: before this returns if that is small."""
        try:
            context.next_offset, context.end_offset = self._writer.bounds(context.partition)
        except BrokerError as error:
            _fail(context, error)
            return
        if not self._load_slice(context, min(FIRST_SLICE_BYTES, self._slice_bytes)):
            self._loading.append(context)
            if len(self._loading) == 1:
                self._defer(self._load_next)

    def _load_next(self) -> None:
        """Replays one slice of the partition whose turn it is; then the loop turns."""
        context = self._loading.popleft()
        try:
            if context.is_led and not self._load_slice(context, self._slice_bytes):
                self._loading.append(context)
        finally:
            if self._loading:
                self._defer(self._load_next)

    def _load_slice(self, context: ShardContext[S], max_bytes: int) -> bool:
        """Replays a part of the log; whether loading is over."""
        try:
            if context.next_offset < context.end_offset:
                self._replay_slice(context, max_bytes)
            if context.next_offset < context.end_offset:
                return False
            context.state = ShardState.ACTIVE
            context.shard.on_loaded()
        except Exception as error:  # a shard that was not replayed whole must not answer
            _fail(context, error)
            if not isinstance(error, BrokerError):
                raise
        return True

    def _replay_slice(self, context: ShardContext[S], max_bytes: int) -> None:
        data = self._writer.read(context.partition, context.next_offset, max_bytes)
        headers = split_batches(data, drop_partial_tail=True)
        if not headers:
            context.next_offset = context.end_offset
        for header in headers:
            context.next_offset = header.last_offset + 1
            try:
                self._replay_batch(context, data, header)
            except BrokerError as error:
                logger.error(
                    "partition %d, offsets %d to %d are skipped: %s",
                    context.partition,
                    header.base_offset,
                    header.last_offset,
                    error,
                )

    def _replay_batch(self, context: ShardContext[S], data: bytes, header: BatchHeader) -> None:
        if header.is_control:
            _replay_marker(context.shard, data, header)
            return
        for record in read_batch(data, header):
            self._replay(context, record, header.producer_id)

    def _replay(self, context: ShardContext[S], stored: Record, producer_id: int) -> None:
        try:
            record = self._codec.decode(stored.key or b"", stored.value)
        except RecordError as error:
            logger.error(
                "partition %d, offset %d is skipped: %s",
                context.partition,
                stored.offset,
                error,
            )
            return
        if record is not None:
            context.shard.replay(record, producer_id)


def _replay_marker(shard: CoordinatorShard, data: bytes, header: BatchHeader) -> None:
    """Replays a control batch that ends a transaction; other kinds are skipped.

    A batch that compaction has emptied ends no transaction that is left in the log.
    """
    if header.record_count == 0:
        return
    marker = parse_end_marker(memoryview(data)[header.position : header.end_position])
    if marker is not None:
        result = TransactionResult.COMMIT if marker.is_commit else TransactionResult.ABORT
        shard.replay_end_transaction_marker(header.producer_id, header.producer_epoch, result)


def _fail(context: ShardContext[S], error: Exception) -> None:
    reason = error if isinstance(error, BrokerError) else repr(error)
    logger.error("partition %d cannot be loaded: %s", context.partition, reason)
    context.state = ShardState.FAILED
