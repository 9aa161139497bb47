"""Unpacks heavy batches off the loop, before their append (`before_append`).

Every compressed batch is unpacked to be validated, and compressed again if its topic has another
codec. For most that takes less than handing them to a thread would. But a batch may unpack to 256
MiB, which would stop all others for a third of a second; with zstd a few kilobytes are enough. So
batches that are or may become large are validated on a helper thread; the result then only needs
its offset. The order of a connection is kept: it waits.

Heavy, by measurement (docs/performance/log.md), is half a millisecond of the loop. zstd has a bound
of the unpacked size in the heads of its blocks; the other codecs cannot grow by more than a factor.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from odradek.background import Background
from odradek.clock import Clock
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.records.before_append import BeforeAppend, PendingAppend, Refusals
from odradek.model import TopicPartition
from odradek.records.compression import Compression, zstd_bound
from odradek.records.validate import BatchRules, PreparedRecords, prepare_produced
from odradek.replication.replica_manager import ReplicaManager

HEAVY_BYTES: Final = 64 * 1024  # compressed, of any codec
HEAVY_GZIP_BYTES: Final = 32 * 1024
HEAVY_UNPACKED_BYTES: Final = 1024 * 1024

_MAGIC_POSITION: Final = 16
_CODEC_MASK: Final = 0x07
_HEADER_BYTES: Final = 61
_GZIP: Final = int(Compression.GZIP)
_ZSTD: Final = int(Compression.ZSTD)

Outcomes = list[tuple[int, PreparedRecords | BrokerError]]


class Unpacking(BeforeAppend):
    """The step for heavy batches."""

    def __init__(self, replicas: ReplicaManager, background: Background, clock: Clock) -> None:
        self._replicas = replicas
        self._background = background
        self._clock = clock

    def concerns(self, append: PendingAppend) -> bool:
        """Whether any of the batches is heavy."""
        return any(is_heavy(records) for _, records in append.sources())

    def start(self, append: PendingAppend, on_done: Callable[[Refusals], None]) -> None:
        """Starts validating the heavy batches by their topic's rules; the others stay as they
        are."""
        heavy: list[tuple[int, memoryview, BatchRules]] = []
        for position, (topic_partition, records) in enumerate(append.sources()):
            if is_heavy(records):
                rules = self._rules(topic_partition)
                if rules is not None:
                    heavy.append((position, records, rules))
        if not heavy:
            on_done({})
            return
        now_ms = self._clock.wall_ms()
        self._background.submit(
            partial(_prepare_all, heavy, now_ms),
            lambda outcomes: on_done(_take_over(append, outcomes)),
            lambda _: on_done(_all_refused(append, heavy)),
        )

    def _rules(self, topic_partition: TopicPartition) -> BatchRules | None:
        """The rules of the partition's log; None if the append will be refused anyway."""
        try:
            return self._replicas.partition(topic_partition).leader_log().appender.rules
        except BrokerError:
            return None


def is_heavy(records: memoryview) -> bool:
    """Whether unpacking may hold up the loop. The result for a damaged batch does not matter: the
    log refuses it."""
    size_bytes = len(records)
    if size_bytes <= _HEADER_BYTES:
        return False
    is_batch = records[_MAGIC_POSITION] == 2
    codec = records[22 if is_batch else 17] & _CODEC_MASK
    if codec == 0:
        return False
    if codec == _ZSTD and is_batch and size_bytes < HEAVY_BYTES:
        return _zstd_is_heavy(records[_HEADER_BYTES:])
    return size_bytes >= (HEAVY_GZIP_BYTES if codec == _GZIP else HEAVY_BYTES)


def _zstd_is_heavy(packed: memoryview) -> bool:
    try:
        return zstd_bound(packed) >= HEAVY_UNPACKED_BYTES
    except EOFError:
        return False  # damaged: the log refuses it after a few bytes


def _prepare_all(heavy: list[tuple[int, memoryview, BatchRules]], now_ms: int) -> Outcomes:
    """Validates batches, on a helper thread; a refusal is a value."""
    outcomes: Outcomes = []
    for position, records, rules in heavy:
        try:
            outcomes.append((position, prepare_produced(records, rules, now_ms)))
        except BrokerError as error:
            outcomes.append((position, error))
    return outcomes


def _take_over(append: PendingAppend, outcomes: Outcomes) -> Refusals:
    refused: dict[TopicPartition, BrokerError] = {}
    for position, outcome in outcomes:
        if isinstance(outcome, PreparedRecords):
            append.prepare(position, outcome)
        else:
            refused[append.entries[position][0]] = outcome
    return refused


def _all_refused(
    append: PendingAppend, heavy: list[tuple[int, memoryview, BatchRules]]
) -> Refusals:
    """Refuses all batches after a fault of ours, which `Background` has logged."""
    error = BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return {append.entries[position][0]: error for position, _, _ in heavy}
