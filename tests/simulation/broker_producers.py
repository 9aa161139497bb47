"""Idempotent producers of the simulated cluster: several requests are on their way at a time.

Each has up to five batches unanswered. What is refused, or not answered in time, is sent again, in
its order, to whichever broker is taken for the leader. Requests and answers cross the network, so
some come twice, late, or in another order. The first batch goes alone: as with Kafka, a log that
knows nothing of a producer takes whichever number comes first.
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from odradek.errors import ErrorCode
from odradek.model import AppendOrigin, TopicPartition
from odradek.records.builder import RecordBatchBuilder
from odradek.replication.append import ACKS_ALL, AppendRequest, AppendResult

if TYPE_CHECKING:
    from tests.simulation.brokers import Broker, World

IN_FLIGHT: Final = 5
PATIENCE_MS: Final = 700
CLIENT: Final = 0


class Batch:
    """A batch of one record, and the time until which its answer is awaited."""

    def __init__(self, sequence: int, value: bytes) -> None:
        self.sequence = sequence
        self.value = value
        self.attempt = 0
        self.deadline_ms = 0


class SimulatedProducer:
    """Numbers its batches; the answers of earlier attempts count as well."""

    def __init__(self, world: "World", producer_id: int, partition: TopicPartition) -> None:
        self._world = world
        self._id = producer_id
        self._partition = partition
        self._next = 0
        self._leader = 1
        self._is_known = False
        self._unanswered: deque[Batch] = deque()

    def act(self) -> None:
        """Numbers some more, and sends what is due in one go."""
        world = self._world
        now_ms = world.clock.monotonic_ms()
        allowed = IN_FLIGHT if self._is_known else 1
        for _ in range(world.rng.randint(0, allowed - len(self._unanswered))):
            value = b"p%d-%d" % (self._id, self._next)
            self._unanswered.append(Batch(self._next, value))
            self._next += 1
        due = [each for each in self._unanswered if each.deadline_ms <= now_ms]
        for each in due:
            each.attempt += 1
            each.deadline_ms = now_ms + PATIENCE_MS
        if due:
            attempts = [(each, each.attempt) for each in due]
            leader = self._leader
            world.network.send(CLIENT, leader, lambda: self._arrive(leader, attempts))

    def _arrive(self, broker_id: int, attempts: Sequence[tuple[Batch, int]]) -> None:
        """A broker appends what one read of its socket brought together."""
        broker = self._world.brokers.get(broker_id)
        if broker is None:
            self._lead_elsewhere()
            return
        broker.replicas.append_records(
            [self._request(broker, each, attempt) for each, attempt in attempts]
        )

    def _request(self, broker: "Broker", batch: Batch, attempt: int) -> AppendRequest:
        builder = RecordBatchBuilder(
            producer_id=self._id, producer_epoch=0, base_sequence=batch.sequence
        )
        builder.append(0, None, batch.value)

        def on_done(results: list[AppendResult]) -> None:
            (result,) = results
            if result.error_code == ErrorCode.NONE:
                self._world.acknowledge(broker, result.base_offset, batch.value)
            self._world.note(result.error_code)
            self._world.network.send(
                broker.id, CLIENT, lambda: self._answered(batch, attempt, result.error_code)
            )

        entries = [(self._partition, memoryview(bytearray(builder.build())))]
        return AppendRequest(ACKS_ALL, 300, AppendOrigin.CLIENT, entries, on_done)

    def _answered(self, batch: Batch, attempt: int, code: ErrorCode) -> None:
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._is_known = True
            if batch in self._unanswered:
                self._unanswered.remove(batch)
        elif attempt == batch.attempt:
            batch.deadline_ms = 0
            if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._lead_elsewhere()

    def _lead_elsewhere(self) -> None:
        leader = self._world.leader_id
        self._leader = leader if leader > 0 else self._world.rng.choice((1, 2, 3, 4))
