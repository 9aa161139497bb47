"""A simulated cluster (`brokers`) whose topic is one of schedules, which go into another topic.

Schedules are replaced and cancelled, also by transactions of several keys; they expire and repeat.
What a leader releases goes over the simulated network too: late, twice or never. Its target may
refuse it, so that it certainly has nothing, or may have it and tell of an error. Clocks are set
forward and back. At the end `check_delivered` holds the logs against `schedule_model`.
"""

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from tests.simulation.brokers import BROKERS, LOST_AFTER_MS, TP, Broker, World, _must
from tests.simulation.schedules.schedule_model import (
    NEVER,
    Delivery,
    ScheduleModel,
    batches,
    release_epoch,
)

from odradek.errors import BrokerError, ErrorCode
from odradek.metadata import ListenerStage
from odradek.metadata.store import NewTopic
from odradek.model import AppendOrigin, TopicPartition
from odradek.records.batch import split_batches
from odradek.records.builder import RecordBatchBuilder, build_end_marker
from odradek.records.reader import iter_records
from odradek.records.record import Record
from odradek.replication.append import ACKS_ALL, AppendRequest, AppendResult
from odradek.replication.schedule.manager import ScheduleManager
from odradek.replication.schedule.sender import NotAppended, OnSent, RecordSender, outcome_of
from odradek.replication.schedule.services import ReleaseServices
from odradek.storage.log.log import Log

OUT: Final = TopicPartition("out", 0)
CERTAIN: Final = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.LEADER_NOT_AVAILABLE,
)
IN_DOUBT: Final = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


class SimulatedSender(RecordSender):
    """The way of released records to the leader of their target."""

    def __init__(self, world: "ScheduleWorld", broker: "ScheduleBroker") -> None:
        self._world = world
        self._broker = broker

    def send(self, target: TopicPartition, batch: bytearray, on_done: OnSent) -> None:
        attempt = self._world.attempt(self._broker, bytes(batch))
        network, me = self._world.network, self._broker.id
        failure = self._world.failure()
        if failure == "before":
            raise ValueError("before it is sent")
        partition = self._broker.replicas.partitions.image.partition(target)
        leader = -1 if partition is None else partition.leader
        waiting = True

        is_refused = False

        def finish(error: BrokerError | None) -> None:
            nonlocal waiting
            if waiting:
                waiting = False
                if isinstance(error, NotAppended):
                    attempt.leaves_nothing()
                on_done(error)

        def answer(error: BrokerError | None) -> None:
            nonlocal is_refused
            is_refused = is_refused or isinstance(error, NotAppended)
            self._world.answer(leader, me, lambda: finish(error))

        def arrive() -> None:
            # What was refused does not come again; of what comes twice the first is answered.
            nonlocal has_arrived
            broker = self._world.brokers.get(leader)
            if broker is None or is_refused:
                return
            repeated, has_arrived = has_arrived, True
            if repeated:
                append(broker, target, batch, lambda error: None)
            else:
                self._world.arrive(broker, target, batch, answer)

        has_arrived = False

        network.send(me, leader, arrive)
        network.later(LOST_AFTER_MS, lambda: finish(BrokerError(ErrorCode.NETWORK_EXCEPTION)))
        if failure == "after":
            raise ValueError("after it is sent")


def append(
    broker: Broker, target: TopicPartition, batch: bytes | bytearray, on_done: OnSent
) -> None:
    """Appends a batch as a client's; what arrives twice is appended twice."""

    def on_appended(results: list[AppendResult]) -> None:
        result = results[0]
        on_done(outcome_of(result.error_code, result.error_message, result.base_offset))

    entries = [(target, memoryview(bytearray(batch)))]
    origin = AppendOrigin.CLIENT
    request = AppendRequest(ACKS_ALL, LOST_AFTER_MS, origin, entries, on_appended)
    broker.replicas.append_records([request])


class Attempt:
    """An attempt to send a release, which knows whether an earlier one may have arrived."""

    def __init__(self, world: "ScheduleWorld", release: tuple[int, int]) -> None:
        self._world = world
        self._release = release
        self._was_in_doubt = release in world.in_doubt
        world.in_doubt.add(release)

    def leaves_nothing(self) -> None:
        if not self._was_in_doubt:
            self._world.in_doubt.discard(self._release)


class Transaction(NamedTuple):
    """An open transaction; each has a producer of its own."""

    producer_id: int
    is_commit: bool


class ScheduleBroker(Broker):
    """A broker that releases."""

    def furnish(self, world: "ScheduleWorld") -> None:
        self.schedules = ScheduleManager(
            ReleaseServices(
                self.clock,
                self.timer,
                self.replicas,
                SimulatedSender(world, self),
                lambda on_done: on_done(next(world.producer_ids)),
                lambda key, count: 0,
            )
        )
        self.store.subscribe(ListenerStage.COORDINATORS, self.schedules.apply_delta)

    def die(self) -> None:
        self.schedules.shutdown()
        super().die()


class ScheduleWorld(World):
    """Few ids, so that many schedules are replaced and cancelled. `failing` is the chance that a
    step of a releaser raises; `failures` counts how often one did. `refusing` is what the target
    answers for a while."""

    failing = 0.0

    skew_ms = 500
    make_broker = ScheduleBroker
    settings = {"min.insync.replicas": "2", "schedule.target.topic": "out"}

    def __init__(self, seed: int, directory: str) -> None:
        self.producer_ids = itertools.count(1)
        self.failures = 0
        self.loses_answers = False
        # Not raised where it is seen: a releaser that fails only begins anew.
        self.untimely: list[str] = []
        self.in_doubt: set[tuple[int, int]] = set()
        self.refusing: ErrorCode | None = None
        self.tried: Counter[str] = Counter()
        self.transactions: list[Transaction] = []
        self._transaction_ids = itertools.count(1_000_000)
        super().__init__(seed, directory)
        self.producers = []  # what they write says nothing of a time
        topic = NewTopic("out", (BROKERS[1:],), {"min.insync.replicas": "2"})
        self.brokers[1].store.create_topics([topic], _must)

    def failure(self) -> str:
        """When sending is to raise, if at all."""
        if self.network.calm or self.failing == 0 or self.rng.random() >= self.failing:
            return ""
        self.failures += 1
        return self.rng.choice(("before", "after"))

    def answer(self, sender: int, receiver: int, deliver: Callable[[], None]) -> None:
        """Brings the answer of a target, or does not."""
        if not self.loses_answers:
            self.network.send(sender, receiver, deliver)

    def attempt(self, broker: ScheduleBroker, batch: bytes) -> Attempt:
        """Looks at what a leader sends: nothing early, and nothing that has expired, unless it may
        have arrived before."""
        now_ms = broker.clock.wall_ms()
        header = split_batches(batch)[0]
        release = (header.producer_id, header.base_sequence)
        for record in iter_records(batch):
            if record.timestamp > now_ms:
                self.untimely.append(f"due at {record.timestamp}, sent at {now_ms}")
            expires_ms = self._expires_ms(record)
            if 0 <= expires_ms < now_ms:
                self.tried["expired"] += 1
                if not self._may_have_arrived(broker, release):
                    self.untimely.append(f"expires at {expires_ms}, sent at {now_ms}")
        return Attempt(self, release)

    def _expires_ms(self, record: Record) -> int:
        told = dict(record.headers)
        if "expire-after" not in told:
            return NEVER
        offset = int(told["scheduled-offset"])
        return self.scheduled[offset] + int(told["expire-after"])

    def _may_have_arrived(self, broker: ScheduleBroker, release: tuple[int, int]) -> bool:
        """Another leader has begun it, or this one does not know what became of it."""
        partition = broker.replicas.partition(TP)
        epoch = release_epoch(partition.log, *release)
        return release in self.in_doubt or epoch != partition.leader_epoch

    def arrive(
        self, broker: Broker, target: TopicPartition, batch: bytearray, on_done: OnSent
    ) -> None:
        """At the leader of the target, which may be in no mood for it."""
        chance = 1.0 if self.network.calm else self.rng.random()
        code = None if self.network.calm else self.refusing
        if code is None and chance < 0.1:
            code = self.rng.choice(CERTAIN)
        if code is not None:
            self.tried["refused"] += 1
            on_done(NotAppended(code))
        elif chance < 0.3:
            self.tried["in doubt"] += 1
            error = BrokerError(self.rng.choice(IN_DOUBT))
            if self.rng.random() < 0.5:
                append(broker, target, batch, lambda _: on_done(error))
            else:
                on_done(error)
        else:
            append(broker, target, batch, on_done)

    def produce(self) -> None:
        """Schedules something, or takes it back."""
        self._append(RecordBatchBuilder(), 1)

    def _append(self, builder: RecordBatchBuilder, count: int) -> None:
        broker = self.brokers.get(self.leader_id)
        if broker is None:
            return
        for _ in range(count):
            key = self.rng.choice((None, b"a", b"b", b"c"))
            value = b"%d" % next(self._values)
            delay_ms = self.rng.choice((0, 5, 50, 400))
            headers = [("deliver-after", b"%d" % delay_ms)]
            chance = self.rng.random()
            if key is not None and chance < 0.2:
                value, headers = None, []
            elif chance < 0.4:
                expires_ms = delay_ms + self.rng.choice((0, 50, 300))
                headers.append(("expire-after", b"%d" % expires_ms))
                if chance < 0.25:
                    headers.append(("repeat", b"@every %dms" % self.rng.choice((20, 150))))
            builder.append(0, key, value, headers)
        append(broker, TP, builder.build(), lambda error: None)

    def act_in_transactions(self) -> None:
        """Begins one with several records, or ends one."""
        if self.rng.random() < 0.5 and len(self.transactions) < 3:
            producer_id = next(self._transaction_ids)
            builder = RecordBatchBuilder(
                producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
            )
            self.transactions.append(Transaction(producer_id, self.rng.random() < 0.7))
            self._append(builder, self.rng.randint(1, 4))
        elif self.transactions:
            self.end(self.rng.choice(self.transactions))

    def end(self, transaction: Transaction) -> None:
        """Writes the end marker; again another time, if that was not heard of."""

        def on_done(results: list[AppendResult]) -> None:
            if results[0].error_code is ErrorCode.NONE and transaction in self.transactions:
                self.transactions.remove(transaction)
                self.tried["transactions"] += 1

        broker = self.brokers.get(self.leader_id)
        if broker is None:
            return
        marker = build_end_marker(
            commit=transaction.is_commit,
            base_offset=0,
            timestamp_ms=broker.clock.wall_ms(),
            producer_id=transaction.producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
        )
        entries = [(TP, memoryview(bytearray(marker)))]
        origin = AppendOrigin.COORDINATOR
        request = AppendRequest(ACKS_ALL, LOST_AFTER_MS, origin, entries, on_done)
        broker.replicas.append_records([request])

    def set_clock(self) -> None:
        """Somebody sets the date of a broker, which is seen at once or later."""
        broker = self.brokers.get(self.rng.choice(BROKERS))
        if broker is not None:
            broker.clock._wall_ms += self.rng.choice((-2_000, -300, -40, 40, 300, 2_000))
            if self.rng.random() < 0.5:
                broker.schedules.check_clock()

    def step(self) -> None:
        """Causes one more event."""
        event = self.rng.random()
        if event < 0.1:
            self.set_clock()
        elif event < 0.2:
            self.refusing = self.rng.choice((None,) * 9 + CERTAIN)
        elif event < 0.5:
            self.act_in_transactions()
        super().step()

    def calm_down(self) -> None:
        """Ends all trouble: at last all that was due is delivered."""
        self.network.cut.clear()
        self.network.calm = True
        for broker_id in BROKERS:
            self.start(broker_id)
            broker = self.brokers[broker_id]
            broker.clock._wall_ms = self.clock.wall_ms()
            broker.schedules.check_clock()
        for _ in range(80):  # what was refused is tried again after a minute
            for transaction in list(self.transactions):
                self.end(transaction)
            self.pass_time(1_000)
            if self._is_settled():
                break
        self.check_delivered()

    def _leader_log(self, where: TopicPartition) -> Log:
        image = self.shared.image.partition(where)
        partition = self.brokers[image.leader].replicas.partitions.find(where)
        return partition.log

    def _is_settled(self) -> bool:
        leaders = {self.shared.image.partition(each).leader for each in (TP, OUT)}
        if not leaders <= self.brokers.keys():
            return False
        model = ScheduleModel(self._leader_log(TP))
        return not (model.pending or model.in_flight or self.transactions)

    @property
    def scheduled(self) -> dict[int, int]:
        """When each record was scheduled, by its offset."""
        leader = self.brokers[self.leader_id]
        found = batches(leader.replicas.partition(TP).log)
        return {each.offset: each.timestamp for _, records, _ in found for each in records}

    def deliveries(self) -> list[Delivery]:
        """The values that the target has, each with its timestamp."""
        found = batches(self._leader_log(OUT))
        return [(each.value, each.timestamp) for _, records, _ in found for each in records]

    def released(self) -> list[bytes]:
        """The values that the target has."""
        return [value for value, _ in self.deliveries()]

    def check_delivered(self) -> None:
        """See `ScheduleModel.check_settled`; and nothing was sent at the wrong time."""
        assert not self.untimely, self.untimely
        assert not self.transactions, f"{self.transactions} do not end"
        found = self.deliveries()
        ScheduleModel(self._leader_log(TP)).check_settled(found)
        self.delivered = len(found)
