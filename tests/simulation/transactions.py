"""Producers, coordinators and logs in one thread, with whatever can go wrong between them.

Answers are lost and asked for again, producers send several writes before the first is answered,
die and come back as zombies, questions to the coordinator and their answers take their time,
leaders hold markers back, every log refuses what is appended for a while (too few replicas, a full
disk, another leader), replicas of the coordinator's log are slow or lose its uncommitted tail,
brokers are killed, time passes.

A transaction writes records to some partitions and moves an offset of a group, which a real
group coordinator keeps.

What must hold (`Simulation.check`): a transaction is read whole or not at all, once; what was
acknowledged as committed is read, and what was not, is not; no log has a gap in the sequences of a
producer; the group stands where the last transaction that counts has put it; and one time-out after
all producers are gone no log holds its readers up.

One thing is left out, since nothing in Kafka's older protocol keeps it out: a TxnOffsetCommit has
no sequence, so when it was sent again, and the first one comes in the producer's next transaction,
it is taken for a part of that. The newer protocol's epochs end it.
"""

import random
from collections import Counter, defaultdict, deque

from tests.unit.coordinator.fakes import ListLog, World
from tests.unit.coordinator.transactional.transactions import Leaders, TransactionWorld, take_in

from odradek.coordinator.offsets.requests import (
    CommittedPartition,
    CommittedTopic,
    OffsetCommitRequest,
)
from odradek.coordinator.runtime.batches import Producer
from odradek.coordinator.transactions.requests import (
    AddPartitionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from odradek.coordinator.transactions.states import may_expire
from odradek.coordinator.transactions.writes import TransactionWrites
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.transactions.transaction_verification import (
    ClientAbility,
    TransactionVerifier,
    Write,
)
from odradek.model import AppendOrigin, TopicPartition, TransactionResult
from odradek.records.builder import RecordBatchBuilder
from odradek.storage.producers.producer_state import ProducerStateManager

E = ErrorCode
OFFSETS = TopicPartition("__consumer_offsets", 0)
GROUP = "g"
TIMEOUT_MS = 20_000
IN_FLIGHT = 3
REFUSALS = [E.NOT_ENOUGH_REPLICAS, E.KAFKA_STORAGE_ERROR, E.NOT_LEADER_OR_FOLLOWER]
FENCED = {
    E.PRODUCER_FENCED,
    E.INVALID_PRODUCER_EPOCH,
    E.INVALID_PRODUCER_ID_MAPPING,
    E.INVALID_TXN_STATE,
    E.TRANSACTION_ABORTABLE,
}


class SimulatedLog:
    """A partition: the real producer state over a list of (producer id, tag, marker). A contract
    test holds it to a real one."""

    def __init__(self, name):
        self.name = name
        self.refusal = None
        self.entries = []
        self.sequences = defaultdict(list)
        self.producers = ProducerStateManager(name)

    def write(self, append, on_done):
        """A record of a producer."""
        builder = RecordBatchBuilder(
            producer_id=append.identity.producer_id,
            producer_epoch=append.identity.producer_epoch,
            base_sequence=append.sequence,
            is_transactional=True,
        )
        builder.append(0, None, b"v")
        data = bytearray(builder.build())
        try:
            is_new = self._take_in(data, AppendOrigin.CLIENT)
        except BrokerError as error:
            on_done(error.code)
            return
        if is_new:
            tag = append.transaction.tag, append.sequence
            self.entries.append((append.identity.producer_id, tag, None))
            self.sequences[append.identity].append(append.sequence)
            self.producers.on_high_watermark(len(self.entries))
        on_done(E.NONE)

    def mark(self, marker, now_ms, on_done):
        """An end marker of a coordinator."""
        origin, version = AppendOrigin.COORDINATOR, marker.transaction_version
        try:
            self._take_in(marker.batch(now_ms), origin, version)
        except BrokerError as error:
            on_done(error.code)
            return
        self.entries.append((marker.producer_id, None, marker))
        self.producers.on_high_watermark(len(self.entries))
        on_done(E.NONE)

    def _take_in(self, data, origin, version=0):
        end = len(self.entries)
        return take_in(self.producers, data, end, origin, version, self.refusal)

    def kill(self):
        """Drops what is only in memory; a snapshot brings the rest back."""
        self.producers = reloaded(self.producers, self.name, len(self.entries))

    def committed(self):
        """The tags that readers of committed records see, by the markers alone."""
        pending = defaultdict(list)
        seen = Counter()
        for producer_id, tag, marker in self.entries:
            if marker is None:
                pending[producer_id].append(tag)
                continue
            tags = pending.pop(producer_id, [])
            if marker.result is TransactionResult.COMMIT:
                seen.update(tags)
        return seen, pending


def reloaded(producers, name, end):
    """The producers that a snapshot at the end of the log brings back."""
    again = ProducerStateManager(name)
    again.load(producers.active(), end)
    return again


class OffsetsLog(ListLog):
    """The log of a group coordinator, which checks producers as every log does."""

    def __init__(self):
        super().__init__()
        self.producers = ProducerStateManager(str(OFFSETS))

    def append(self, partition, batch, on_committed, transaction_version=0):
        offset, origin = self.ends.get(partition, 0), AppendOrigin.COORDINATOR
        try:
            take_in(self.producers, batch, offset, origin, transaction_version, self.refusal)
        except BrokerError as error:
            on_committed(error)
            return
        super().append(partition, batch, on_committed)
        self.producers.on_high_watermark(self.ends[partition])

    def reload_producers(self):
        self.producers = reloaded(self.producers, str(OFFSETS), self.ends.get(0, 0))


class SimulatedOffsets:
    """A real group coordinator; each transactional id has an offset of its own in the group."""

    def __init__(self):
        self._world = World()
        self._world.log = OffsetsLog()
        self._world.restart()

    @property
    def producers(self):
        return self._world.log.producers

    @property
    def refusal(self):
        return self._world.log.refusal

    @refusal.setter
    def refusal(self, code):
        self._world.log.refusal = code

    def write(self, append, on_done):
        """A TxnOffsetCommit, which carries no sequence."""

        def on_committed(outcome):
            on_done(outcome.code if isinstance(outcome, BrokerError) else outcome[0][1][0][1])

        offset = CommittedPartition(0, append.transaction.number, -1, "")
        topics = [CommittedTopic(append.name, None, [offset])]
        request = OffsetCommitRequest(GROUP, "", None, -1, -1, topics, 3, is_transactional=True)
        groups, producer = self._world.groups, Producer(*append.identity)
        groups.commit_offsets_in_transaction(request, producer, on_committed)

    def mark(self, marker, _now_ms, on_done):
        """See `SimulatedLog`."""

        def on_written(error):
            on_done(E.NONE if error is None else error.code)

        self._world.groups.complete_transaction(OFFSETS.partition, marker, TIMEOUT_MS, on_written)

    def kill(self):
        """The group coordinator is loaded again."""
        self._world.log.reload_producers()
        self._world.restart()

    def committed(self):
        """Where the group stands, by transactional id."""
        return {name: offset for (name, _), offset in self._world.committed(GROUP).items()}


class SimulatedLeaders(Leaders):
    """Writes markers into the simulated logs, sometimes late, sometimes at the second try."""

    def __init__(self, simulation):
        super().__init__()
        self._simulation = simulation

    def _answer(self, marker, partition, on_done):
        simulation = self._simulation
        if simulation.chance(0.05):
            on_done(partition, E.NOT_LEADER_OR_FOLLOWER)
            return

        def on_marked(code):
            # Written, but the answer may be lost: the coordinator has to send it again.
            is_lost = code is E.NONE and simulation.chance(0.05)
            on_done(partition, E.NOT_LEADER_OR_FOLLOWER if is_lost else code)

        simulation.places[partition].mark(marker, simulation.world.clock.wall_ms(), on_marked)


class SimulatedQuestions(TransactionWrites):
    """The way from leaders to the coordinator, on which questions and answers may be late."""

    def __init__(self, simulation):
        self._simulation = simulation

    def add_or_verify(self, request, verify_only, on_done):
        simulation = self._simulation

        def ask():
            coordinator = simulation.world.coordinator
            coordinator.add_or_verify(request, verify_only, answer)

        def answer(codes):
            simulation.maybe_late(lambda: on_done(codes))

        simulation.maybe_late(ask)


class Transaction:
    """A transaction as its producer knows it."""

    def __init__(self, name, tag, number):
        self.name = name
        self.tag = tag
        self.number = number  # rises from one transaction of an id to the next
        self.written = Counter()
        self.asked_commit = False
        self.outcome = None  # what was acknowledged


class SimulatedProducer:
    """An instance of a transactional producer; up to three writes to a partition are under way, and
    nothing else, as with clients.
    """

    def __init__(self, simulation, name, number):
        self.simulation = simulation
        self.name = name
        self.number = number
        self.version = simulation.random.choice((0, 2)) if simulation.world.version == 2 else 0
        self.identity = None
        self.sequences = Counter()
        self.added = set()
        self.transaction = None
        self.must_abort = False
        # A partition with writes whose answers have not come, and their sequences: they are sent
        # again until they have, or the end is abort.
        self.unanswered = None
        self.pending = []
        self.waits = False
        self.is_dead = False
        self.count = 0
        self.asked = 0

    def _answered(self, handle):
        """A callback that may be lost on the way, and counts only for the last request."""
        self.waits = True
        self.asked += 1
        number = self.asked
        is_lost = self.simulation.chance(0.1)

        def on_answer(answer):
            if number == self.asked and not self.is_dead:
                self.waits = False
                if not is_lost:
                    handle(answer)

        return on_answer

    def give_up_waiting(self):
        """The request has timed out at the client; its answer is ignored when it comes."""
        self.asked += 1
        self.waits = False

    def step(self):
        if self.waits:
            if self.simulation.chance(0.1):
                self.give_up_waiting()
        elif self.identity is None:
            self._init()
        elif self.transaction is None:
            self.count += 1
            tag = f"{self.name}/{self.number}/{self.count}"
            transactions = self.simulation.transactions
            self.transaction = Transaction(self.name, tag, len(transactions))
            transactions.append(self.transaction)
        elif self._wants_to_end():
            self._end()
        else:
            self._write()

    def _wants_to_end(self):
        if self.transaction.asked_commit or self.must_abort:
            return True
        if self.unanswered is not None:
            # Its delivery takes too long, as a client says.
            self.must_abort = self.simulation.chance(0.2)
            return self.must_abort
        return self.simulation.chance(0.25)

    def _init(self):
        def on_answer(answer):
            if answer.error_code is E.NONE:
                self.identity = answer.producer

        request = InitProducerIdRequest(self.name, TIMEOUT_MS)
        self.simulation.world.coordinator.init_producer_id(request, self._answered(on_answer))

    def _write(self):
        partition = self.unanswered or self.simulation.random.choice(list(self.simulation.places))
        if self.version == 0 and partition not in self.added:
            self._add(partition)
            return
        if self.unanswered is None:
            self.unanswered = partition
            count = 1 if partition == OFFSETS else self.simulation.random.randint(1, IN_FLIGHT)
            self.pending = [self.sequences[partition] + each for each in range(count)]
            self.sequences[partition] += count
        self.waits = True
        self.asked += 1
        number = self.asked

        def on_sent(sequence, code):
            if number == self.asked and not self.is_dead:
                if not self.simulation.chance(0.1):
                    self._on_written(partition, sequence, code)
                self.waits = sequence != sent[-1]

        sent = list(self.pending)
        Requests(self, partition, sent, on_sent).next()

    def _add(self, partition):
        def on_answer(code):
            if code is E.NONE:
                self.added.add(partition)
            else:
                self._on_error(code)

        request = AddPartitionsRequest(self.name, self.identity, [partition], 0)
        self.simulation.world.coordinator.add_partitions(request, self._answered(on_answer))

    def _on_written(self, partition, sequence, code):
        if self.unanswered != partition or sequence not in self.pending:
            return
        if code is E.NONE:
            self.pending.remove(sequence)
            self.transaction.written[partition] += 1
            if not self.pending:
                self.unanswered = None
        elif code is E.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # Behind another that has failed it is sent again with that.
            self.must_abort = self.must_abort or sequence == self.pending[0]
        else:
            self._on_error(code)

    def _on_error(self, code):
        if code in (E.TRANSACTION_ABORTABLE, E.INVALID_TXN_STATE):
            self.must_abort = True
        elif code in FENCED:
            self.die()

    def _end(self):
        transaction = self.transaction
        aborts = self.must_abort or (not transaction.asked_commit and self.simulation.chance(0.3))
        if not transaction.written and not transaction.asked_commit:
            aborts = True
        self.must_abort = aborts
        transaction.asked_commit = transaction.asked_commit or not aborts
        result = TransactionResult.ABORT if aborts else TransactionResult.COMMIT
        request = EndTxnRequest(self.name, self.identity, result, self.version)
        on_answer = self._answered(lambda answer: self._on_ended(result, answer))
        if self.version == 0 and not self.added:
            on_answer(None)  # such a producer has nothing to end
            self._finish(result, self.identity)
            return
        self.simulation.world.coordinator.end(request, on_answer)

    def _on_ended(self, result, answer):
        if answer is None or self.transaction is None:
            return
        if answer.error_code is E.NONE:
            self._finish(result, answer.producer if self.version == 2 else self.identity)
        elif answer.error_code in FENCED:
            self.die()

    def _finish(self, result, identity):
        if self.transaction is not None:
            self.transaction.outcome = result
        if identity != self.identity:
            self.sequences.clear()
        elif self.must_abort:
            # Sequences of writes whose answers were lost are not known: a new epoch knows none.
            self.identity = None
            self.sequences.clear()
            identity = None
        self.identity = identity
        self.added.clear()
        self.transaction = None
        self.unanswered = None
        self.pending = []
        self.must_abort = False

    def die(self):
        self.is_dead = True


class Requests:
    """Writes that came on one connection: its broker handles one after the other."""

    def __init__(self, producer, partition, sequences, on_sent):
        self._appends = deque(Append(producer, partition, each) for each in sequences)
        self._on_sent = on_sent
        self._simulation = producer.simulation
        self._kills = producer.simulation.kills

    def next(self):
        if self._appends and self._kills == self._simulation.kills:
            append = self._appends.popleft()
            append.begin(lambda code: self._answered(append.sequence, code))

    def _answered(self, sequence, code):
        self._on_sent(sequence, code)
        self.next()


class Append:
    """A record on its way into a log."""

    def __init__(self, producer, partition, sequence):
        self._simulation = producer.simulation
        self._producer = producer
        self._partition = partition
        self._place = producer.simulation.places[partition]
        self.name = producer.name
        self.transaction = producer.transaction
        self.sequence = sequence
        self.identity = producer.identity

    def begin(self, on_done):
        """Verifies the transaction, and then writes, as a leader does."""
        sequence = -1 if self._partition == OFFSETS else self.sequence
        adds = self._producer.version == 2
        client = ClientAbility.IMPLICIT_ADD if adds else ClientAbility.ABORTABLE_ERROR
        write = Write(self._partition, self.identity, sequence)

        def on_verified(refused):
            if refused:
                on_done(refused[self._partition])
            elif self._is_lost_offset():
                on_done(E.INVALID_TXN_STATE)
            else:
                self._place.write(self, on_done)

        self._simulation.verifier.verify(self.name, [write], client, on_verified)

    def _is_lost_offset(self):
        """Whether the write is an offset commit that the older protocol lets into the next
        transaction.
        """
        producer = self._producer
        return (
            producer.version == 0
            and producer.transaction is not self.transaction
            and self._partition == OFFSETS
        )


class Simulation:
    """A run of one seed."""

    def __init__(self, seed, names=2, partitions=3):
        self.random = random.Random(seed)
        self.world = TransactionWorld(version=self.random.choice((1, 2, 2, 2)))
        self.logs = {
            each: SimulatedLog(str(each))
            for each in (TopicPartition("t", index) for index in range(partitions))
        }
        self.offsets = SimulatedOffsets()
        self.places = {**self.logs, OFFSETS: self.offsets}
        self.calm = False
        self.kills = 0
        self.late = []
        self.verifier = TransactionVerifier(
            SimulatedQuestions(self),
            lambda topic_partition: self.places[topic_partition].producers,
            self.world.config,
            self.world.clock,
        )
        self.transactions = []
        self._births = Counter()
        self.world.leaders = SimulatedLeaders(self)
        self.world.restart()
        self.producers = [self._born(f"id-{index}") for index in range(names)]

    def chance(self, probability):
        return not self.calm and self.random.random() < probability

    def maybe_late(self, work):
        """On the way from one broker to another."""
        if self.chance(0.1):
            self.late.append(work)
        else:
            work()

    def _born(self, name):
        self._births[name] += 1
        return SimulatedProducer(self, name, self._births[name])

    def run(self, steps):
        for _ in range(steps):
            self._step()
        self._settle()

    def _step(self):
        roll = self.random.random()
        if roll < 0.76:
            self._let_one_act()
        elif roll < 0.80 and self.late:
            self.late.pop(self.random.randrange(len(self.late)))()
        elif roll < 0.83:
            place = self.random.choice([self.world.log, *self.places.values()])
            place.refusal = self.random.choice(REFUSALS) if place.refusal is None else None
        elif roll < 0.87:
            self.world.log.holds = not self.world.log.holds
            if not self.world.log.holds:
                self.world.log.commit()
        elif roll < 0.91:
            self.world.leaders.holds = not self.world.leaders.holds
            if not self.world.leaders.holds:
                self.world.leaders.release()
        elif roll < 0.96:
            self.world.advance(self.random.choice((1, 100, 3_000, 8_000)))
            self.world.coordinator.abort_timed_out()
        elif roll < 0.98:
            self._replace_a_producer()
        else:
            self._kill_the_broker()

    def _let_one_act(self):
        alive = [each for each in self.producers if not each.is_dead]
        if alive:
            self.random.choice(alive).step()

    def _replace_a_producer(self):
        """A new instance takes an id over; the old one is dead, or a zombie that goes on."""
        old = self.random.choice(self.producers)
        if self.chance(0.6):
            old.die()
        self.producers.append(self._born(old.name))
        self.producers = [each for each in self.producers if not each.is_dead]

    def _kill_the_broker(self):
        self.kills += 1
        self.late.clear()
        self._heal()
        if self.chance(0.5):
            self.world.log.cut()
        self.world.log.held.clear()
        self.world.log.holds = False
        self.world.leaders.held.clear()
        self.world.leaders.holds = False
        for place in self.places.values():
            place.kill()
        self.world.restart()

    def _heal(self):
        for place in (self.world.log, *self.places.values()):
            place.refusal = None

    def _settle(self):
        """Ends all producers, lets what is on its way arrive, and passes the time-outs."""
        self.calm = True
        for each in self.producers:
            each.die()
        self.world.log.holds = self.world.leaders.holds = False
        self._heal()
        self.world.log.commit()
        self.world.leaders.release()
        while self.late:
            self.late.pop(0)()
        self.world.advance(TIMEOUT_MS + 1)
        self.world.coordinator.abort_timed_out()
        self.world.advance(1_000)

    def check(self):
        """Raises AssertionError where something that must hold does not."""
        seen = Counter()
        for partition, place in self.places.items():
            assert place.producers.first_unstable_offset < 0, f"{partition} holds its readers up"
        for partition, log in self.logs.items():
            for identity, sequences in log.sequences.items():
                gap = f"{partition} has {sequences} of {identity}"
                assert sequences == list(range(len(sequences))), gap
            committed, pending = log.committed()
            assert not any(pending.values()), f"{partition} has undecided records: {pending}"
            for (tag, sequence), times in committed.items():
                assert times == 1, f"{tag}, sequence {sequence} is {times} times in {partition}"
                seen[tag, partition] += 1
        assert not self.world.markers.waiting(), "somebody waits for markers"
        for shard in self.world.runtime.shards():
            for name, value in shard.transactions.items():
                assert may_expire(value.state), f"{name} is {value.state.name} for ever"
        offsets = {}
        for transaction in self.transactions:
            self._check_transaction(transaction, seen, offsets)
        found = self.offsets.committed()
        assert found.keys() <= offsets.keys(), f"{found} was never committed, only {offsets}"
        for name, possible in offsets.items():
            assert found.get(name) in possible, f"{name} stands at {found.get(name)}, {possible}"

    def _check_transaction(self, transaction, seen, offsets):
        """`offsets` are those at which the group may stand, by transactional id."""
        read = {
            partition: seen[transaction.tag, partition]
            for partition in self.logs
            if seen[transaction.tag, partition]
        }
        wanted = {each: transaction.written[each] for each in self.logs}
        wanted = {each: count for each, count in wanted.items() if count}
        known = transaction.outcome
        if known is TransactionResult.COMMIT:
            assert read == wanted, f"{transaction.tag} was committed: {wanted}, read: {read}"
        elif known is TransactionResult.ABORT or not transaction.asked_commit:
            assert not read, f"{transaction.tag} was never committed, read: {read}"
        else:
            assert read in ({}, wanted), f"{transaction.tag}: {wanted}, read: {read}"
        if not transaction.written[OFFSETS]:
            return
        if known is TransactionResult.COMMIT or read:
            offsets[transaction.name] = {transaction.number}
        elif known is None and transaction.asked_commit and not wanted:
            offsets.setdefault(transaction.name, {None}).add(transaction.number)
