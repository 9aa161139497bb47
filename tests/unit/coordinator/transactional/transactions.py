"""A transaction coordinator over a list instead of a log, and leaders that do as they are told."""

import itertools

from tests.unit.coordinator.fakes import ListLog

from odradek.clock import ManualClock
from odradek.config import BrokerConfig
from odradek.coordinator.records.transaction_codec import TransactionRecordCodec
from odradek.coordinator.runtime.runtime import CoordinatorRuntime
from odradek.coordinator.runtime.settings import RuntimeSettings
from odradek.coordinator.transactions.markers import MarkerWriter
from odradek.coordinator.transactions.requests import (
    AddPartitionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProducerIdAndEpoch,
)
from odradek.coordinator.transactions.shard import TransactionServices, TransactionShard
from odradek.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from odradek.errors import BrokerError, ErrorCode
from odradek.model import AppendOrigin, TopicPartition, TransactionResult
from odradek.purgatory import DelayedOperationPurgatory
from odradek.records.batch import parse_header
from odradek.storage.producers.end_marker import parse_end_marker
from odradek.storage.producers.producer_state import ProducerStateManager
from odradek.timer import MockTimer

ORDERS = TopicPartition("orders", 0)
BILLS = TopicPartition("bills", 3)
COMMIT, ABORT = TransactionResult.COMMIT, TransactionResult.ABORT


class Leaders(MarkerWriter):
    """Keeps the markers that were written, which it checks as logs do; a contract test holds it to
    the real one. While it `holds`, `release` answers them; `refusals` are what partitions answer,
    once for each entry, or raise. If it `raises`, the fault is ours.
    """

    def __init__(self):
        self.written = []
        self._producers = {}
        self.holds = False
        self.held = []
        self.refusals = {}
        self.raises = None

    def write(self, marker, partitions, on_done):
        if self.raises is not None:
            raise self.raises
        for each in partitions:
            if self.holds:
                self.held.append((marker, each, on_done))
            else:
                self._answer(marker, each, on_done)

    def release(self):
        held, self.held = self.held, []
        for marker, each, on_done in held:
            self._answer(marker, each, on_done)

    def _answer(self, marker, partition, on_done):
        refusals = self.refusals.get(partition)
        code = refusals.pop(0) if refusals else self._take_in(marker, partition)
        if isinstance(code, Exception):
            raise code
        if code is ErrorCode.NONE:
            self.written.append((partition, marker))
        on_done(partition, code)

    def _take_in(self, marker, partition):
        producers = self._producers.setdefault(partition, ProducerStateManager(str(partition)))
        version = marker.transaction_version
        try:
            take_in(
                producers, marker.batch(0), len(self.written), AppendOrigin.COORDINATOR, version
            )
        except BrokerError as error:
            return error.code
        return ErrorCode.NONE


def take_in(producers, data, offset, origin, version, refusal=None):
    """The checks of a log before it takes a batch; False when it has had it before. A full disk is
    found last."""
    if refusal not in (None, ErrorCode.KAFKA_STORAGE_ERROR):
        raise BrokerError(refusal)
    header = parse_header(data, 0)
    header.base_offset = offset
    if header.is_control:
        end = parse_end_marker(memoryview(data))
        producers.check_marker(header, end.coordinator_epoch, origin, version)
        producers.complete(header, end.is_commit, end.coordinator_epoch)
    elif producers.check(header, origin) is not None:
        return False
    else:
        producers.update(header)
    if refusal is not None:
        producers.rollback()
        raise BrokerError(refusal)
    producers.commit()
    return True


class TransactionWorld:
    """A coordinator with a clock that the test moves."""

    def __init__(self, partitions=1, version=2, **settings):
        texts = {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.config = BrokerConfig({"broker.id": "1", **texts})
        self.clock = ManualClock(wall_ms=1_700_000_000_000)
        self.timer = MockTimer(clock=self.clock)
        self.log = ListLog()
        self.leaders = Leaders()
        self.partitions = partitions
        self.version = version
        self.epoch = 0
        self.id_refusal = None
        self._ids = itertools.count(1000)
        self._build()

    def _build(self):
        self.markers = DelayedOperationPurgatory("TransactionMarkers", self.timer)
        services = TransactionServices(
            self.leaders,
            self.markers,
            self.timer.call_threadsafe,
            self.clock,
        )
        self.runtime = CoordinatorRuntime(
            self.log,
            TransactionRecordCodec(lambda: self.version),
            self.clock,
            self.timer.call_threadsafe,
            lambda: self.partitions,
            lambda partition, epoch, append, _execute: TransactionShard(
                partition, epoch, services, append, self.runtime.is_busy
            ),
            RuntimeSettings(),
            DelayedOperationPurgatory("TransactionWrite", self.timer),
        )
        self.coordinator = TransactionCoordinator(
            self.runtime, self.clock, self.config, self._next_id, lambda: self.version
        )
        for partition in range(self.partitions or 0):
            self.runtime.on_elected(partition, self.epoch)
        self.timer.advance_clock(0)

    def _next_id(self, on_done):
        on_done(next(self._ids) if self.id_refusal is None else self.id_refusal)

    def restart(self):
        """The broker dies, and comes back with what the log has."""
        self.runtime.shutdown()
        self.epoch += 1
        self._build()

    def advance(self, milliseconds):
        self.clock.advance(milliseconds)
        self.timer.advance_clock(0)

    # What producers ask

    def init(self, name="t", timeout_ms=60_000, expected=None):
        answers = []
        request = InitProducerIdRequest(name, timeout_ms, expected)
        self.coordinator.init_producer_id(request, answers.append)
        return _only(answers)

    def add(self, producer, *partitions, name="t", version=0):
        codes = []
        request = AddPartitionsRequest(name, producer, partitions or (ORDERS,), version)
        self.coordinator.add_partitions(request, codes.append)
        return _only(codes)

    def end(self, producer, result=COMMIT, name="t", version=0):
        answers = []
        self.coordinator.end(EndTxnRequest(name, producer, result, version), answers.append)
        return _only(answers)

    def producer(self, name="t", **options):
        answer = self.init(name, **options)
        assert answer.error_code is ErrorCode.NONE, answer
        return answer.producer

    def value(self, name="t"):
        return self.coordinator.describe(name)

    def state(self, name="t"):
        return self.value(name).state.name


def _only(answers):
    """The one answer; None while there is none."""
    assert len(answers) <= 1, answers
    return answers[0] if answers else None


def raised(producer, by=1):
    """The producer with a higher epoch."""
    return ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch + by)
