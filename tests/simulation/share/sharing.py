"""Share groups in one thread, with whatever can go wrong between their members, the coordinator of
groups, the coordinator of states and the leaders of partitions.

All of them are the real ones. Requests and answers are late, lost or repeated, members send several
heartbeats and acknowledgements at a time, vanish and come back, operators set offsets and delete
them; both coordinators' logs refuse what is appended, are slow, or lose their uncommitted tail;
coordinators are killed or resign between any two steps, partitions move to another leader while the
one before goes on, and time passes.

What must always hold (`check`, and where answers come): what was accepted of a record stays so in
the stored state, whoever reads it; nobody is handed what another holds or what is done with; counts
of deliveries grow; the stored start and epochs do not fall; who was told that it is a member is
one; what is assigned has a state, and a group goes on reading what it reads unless an operator has
asked for something. In the end, when the trouble stops, every request has been answered once, and
what is left of the records is delivered to the end.

One sender's requests come in its order, or not at all: a connection keeps it.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tests.simulation.share.share_brokers import (
    DELIVERIES,
    LOCK_MS,
    PARTITIONS,
    TOPIC,
    Answered,
    Broker,
    GroupWorld,
    Held,
    StateCoordinator,
)
from tests.simulation.share.share_members import Reset, ShareMember

from odradek.coordinator.share.shard import SharePartitionState
from odradek.coordinator.share_groups.group import ShareGroup
from odradek.coordinator.share_groups.requests import ShareHeartbeatRequest
from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition
from odradek.replication.share.acknowledgements import AcknowledgementBatch
from odradek.replication.share.fetch import ShareFetchParams, ShareFetchPartition, ShareFetchResult
from odradek.replication.share.led_partition import LedSharePartition
from odradek.replication.share.persister import SharePartitionKey, StateBatch
from odradek.replication.share.states import FINAL_STATES, RecordEvent

RECORDS = 24
SESSION_MS = 45_000
REFUSALS = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
EVENTS = (
    RecordEvent.ACCEPT,
    RecordEvent.ACCEPT,
    RecordEvent.ACCEPT,
    RecordEvent.REJECT,
    RecordEvent.RELEASE,
    RecordEvent.RELEASE,
    RecordEvent.RENEW,
)
ENDS = (RecordEvent.ACCEPT, RecordEvent.REJECT)


class Seen(NamedTuple):
    """A stored state as it was when it was looked at."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    counts: dict[int, int]


class Simulation:
    """A run of one seed."""

    def __init__(self, seed: int, brokers: list[Broker]) -> None:
        self.random = random.Random(seed)
        self.calm = False
        self.is_refusing = False
        self.operations: dict[str, int] = defaultdict(int)
        self.deferred: list[Callable[[], None]] = []
        self.late: list[Callable[[], None]] = []
        self.unanswered: dict[str, int] = defaultdict(int)
        self.beats = 0
        self.arrived: dict[str, int] = defaultdict(int)
        self.world = GroupWorld(self)
        self.world.log.refuses = self.refuses
        self.topic_id = self.world.topic_id(TOPIC)
        self.states = StateCoordinator(self)
        self.brokers = brokers
        for index, broker in enumerate(brokers):
            broker.begin(self, index)
        self.leaders = dict.fromkeys(range(PARTITIONS), brokers[0])
        self.members = [ShareMember(self, f"m{index}", f"g{index % 2}") for index in range(6)]
        groups = sorted({each.group_id for each in self.members})
        self.keys = [
            SharePartitionKey(group_id, self.topic_id, partition)
            for group_id in groups
            for partition in range(PARTITIONS)
        ]
        self.done: dict[SharePartitionKey, set[int]] = defaultdict(set)
        self.came_back: dict[SharePartitionKey, dict[int, int]] = defaultdict(dict)
        self.seen: dict[SharePartitionKey, Seen] = {}
        self.resets: list[Reset] = []
        self.read: set[SharePartitionKey] = set()
        self.unread: set[SharePartitionKey] = set()
        self.mixed: set[SharePartitionKey] = set()
        for partition in range(PARTITIONS):
            self.move(partition)

    # Helps

    @property
    def now_ms(self) -> int:
        return self.world.timer.now_ms

    def chance(self, probability: float) -> bool:
        return not self.calm and self.random.random() < probability

    def defer(self, action: Callable[[], None]) -> None:
        self.deferred.append(action)

    def turn(self) -> None:
        while self.deferred or self.world.deferred:
            self.world.run_deferred()
            if self.deferred:
                self.deferred.pop(0)()

    def refuses(self) -> ErrorCode | None:
        """A log: for a while it takes hardly anything, and seldom it refuses out of the blue."""
        if not self.chance(0.7 if self.is_refusing else 0.05):
            return None
        self.operations["refused"] += 1
        return self.random.choice(REFUSALS)

    def maybe_late(self, work: Callable[[], None]) -> None:
        if self.chance(0.15):
            self.late.append(work)
        else:
            work()

    # Requests

    def beat(self, request: ShareHeartbeatRequest, take: Answered) -> None:
        if self.chance(0.05):
            return
        share = self.world.share
        self.beats += 1
        number = self.beats

        def answer(outcome: object) -> None:
            self.unanswered["heartbeat"] -= 1
            if not self.chance(0.05):
                self.maybe_late(lambda: take(outcome))

        def arrive() -> None:
            # Else it came to a broker that is no more, or its connection was given up.
            if self.world.share is share and self.arrived[request.member_id] < number:
                self.arrived[request.member_id] = number
                self.unanswered["heartbeat"] += 1
                share.heartbeat(request, answer)

        self.maybe_late(arrive)

    def fetch(self, member: ShareMember, partition: int) -> None:
        broker = self.leaders[partition]
        if self.chance(0.1):
            broker = self.random.choice(self.brokers)
        broker.sessions.add(member)
        key = SharePartitionKey(member.group_id, self.topic_id, partition)
        wanted = [ShareFetchPartition(key, TopicPartition(TOPIC, partition))]
        count = self.random.randrange(1, 12)
        params = ShareFetchParams(
            *(member.group_id, member.member_id, 0, 1, 1 << 20, count, count),
            limits_records=self.random.random() < 0.5,
        )
        results: list[ShareFetchResult] = []
        broker.manager.fetch(params, wanted, results.extend)
        (result,) = results
        for first, last, deliveries in result.acquired:
            self._on_handed_out(broker, key, member, range(first, last + 1), deliveries)

    def _on_handed_out(
        self,
        broker: Broker,
        key: SharePartitionKey,
        member: ShareMember,
        offsets: Iterable[int],
        count: int,
    ) -> None:
        led = broker.led(key)
        assert led is not None, f"nobody leads {key}, of which something is handed out"
        held = broker.held[led]
        for offset in offsets:
            before = held.get(offset)
            what = f"record {offset} of {key}, handed out to {member.name} for the {count}th time"
            if before is not None:
                assert not before.is_held(self.now_ms), f"{what}: {before.member.name} holds it"
                assert count > before.count, f"{what}: it was for the {before.count}th time before"
            assert count <= DELIVERIES, f"{what}: that is too often"
            if broker is self.leaders[key.partition] and not self.may_begin_anew(key):
                assert offset not in self.done[key], f"{what}: it was done with"
                back = self.came_back[key].get(offset, 0)
                assert count > back, f"{what}: it came back from the {back}th"
            held[offset] = Held(member, count, self.now_ms + LOCK_MS)
            self.operations["handed out"] += 1

    def acknowledge(self, member: ShareMember, partition: int) -> None:
        """Of a few records that follow one another; now and then of some that it does not hold."""
        key = SharePartitionKey(member.group_id, self.topic_id, partition)
        places = [
            (broker, led, held)
            for broker in self.brokers
            for led, held in list(broker.held.items())
            if led.key == key and broker.led(key) is led
        ]
        if not places:
            return
        broker, led, held = self.random.choice(places)
        mine = [at for at, each in held.items() if each.member is member and not each.is_over]
        if not mine or self.chance(0.05):
            first = self.random.randrange(RECORDS)
        else:
            first = self.random.choice(mine)
        last = first
        while last + 1 in mine and self.random.random() < 0.7:
            last += 1
        event = RecordEvent.ACCEPT if self.calm else self.random.choice(EVENTS)
        self._say(broker, led, member, (first, last), event)

    def _say(
        self,
        broker: Broker,
        led: LedSharePartition,
        member: ShareMember,
        span: tuple[int, int],
        event: RecordEvent,
    ) -> None:
        held, key = broker.held[led], led.key
        start = led.records.start_offset
        offsets = [each for each in range(span[0], span[1] + 1) if each >= start]
        may = [
            each in held
            and held[each].member is member
            and held[each].is_held(self.now_ms)
            and not held[each].is_said
            for each in offsets
        ]
        if all(may):
            for each in offsets:
                held[each].is_said = True
        self.unanswered["acknowledgement"] += 1
        self.operations[event.name] += 1

        def on_done(error: BrokerError | None) -> None:
            self.unanswered["acknowledgement"] -= 1
            if not all(may):
                assert error is not None, f"{member.name} gives {span} of {key}, not its own"
                return
            for each in offsets:
                held[each].is_said = False
                held[each].is_over = held[each].is_over or held[each].is_abandoned
            if error is None:
                self._on_accepted(led, [(at, held[at]) for at in offsets], event)

        batch = AcknowledgementBatch(*span, (event,))
        tp = TopicPartition(TOPIC, key.partition)
        broker.manager.acknowledge(ShareFetchPartition(key, tp), member.member_id, [batch], on_done)

    def _on_accepted(
        self, led: LedSharePartition, records: list[tuple[int, Held]], event: RecordEvent
    ) -> None:
        self.operations["accepted"] += 1
        key, ended = led.key, set[int]()
        for offset, held in records:
            if event is RecordEvent.RENEW:
                held.deadline_ms = self.now_ms + LOCK_MS
                continue
            held.is_over = True
            if event in ENDS or held.count >= DELIVERIES:
                ended.add(offset)
            else:
                self.came_back[key][offset] = max(self.came_back[key].get(offset, 0), held.count)
        self.done[key] |= ended
        if ended:
            state = self.states.states.get(key)
            assert state is not None, f"{ended} of {key} are done with, and it has no state"
            _check_done(key, state, ended)

    # Operators

    def operate(self) -> None:
        """Sets or deletes what a group has, or the group: mostly one without members, since of
        others that is refused."""
        groups = sorted({each.group_id for each in self.keys})
        found = [(each, self.group(each)) for each in groups]
        wanted = [each for each, group in found if group is not None and group.is_empty]
        if self.chance(0.05):
            wanted = groups
        if not wanted:
            return
        group_id = self.random.choice(wanted)
        self.ask(group_id, self.random.choice(("alter", "forget", "delete")))

    def ask(self, group_id: str, kind: str) -> Reset:
        share = self.world.share
        reset = Reset([each for each in self.keys if each.group_id == group_id], self.world)
        self.resets.append(reset)

        def on_done(outcome: object) -> None:
            assert not reset.is_answered, f"{kind} is answered twice"
            reset.on_answer(outcome)
            self.operations[f"{kind} refused" if isinstance(outcome, BrokerError) else kind] += 1

        if kind == "alter":
            starts = {each[1:]: self.random.randrange(RECORDS) for each in reset.keys}
            share.alter_offsets(group_id, starts, on_done)
        elif kind == "forget":
            share.delete_offsets(group_id, [self.topic_id], on_done)
        else:
            share.delete_group(group_id, on_done)
        return reset

    # Steps

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
        self.settle()

    def step(self) -> None:
        for _ in range(3):
            member = self.random.choice(self.members)
            if not member.is_gone:
                member.step()
                self.turn()
        self.go_on()
        self.misfortune()
        self.advance(self.random.choice((1, 100, 1_000, 3_000)))
        self.check()

    def go_on(self) -> None:
        """Lets late answers and writes arrive, by chance."""
        for route in (self.world.route, *(each.route for each in self.brokers)):
            route.go_on()
            self.turn()
        while self.late and not self.chance(0.6):
            self.late.pop(self.random.randrange(len(self.late)))()
            self.turn()
        for log in (self.world.log, self.states.log):
            if log.held and not self.chance(0.5):
                log.commit()
                self.turn()

    def advance(self, duration_ms: int) -> None:
        self.world.advance(duration_ms)
        self.turn()
        for broker in self.brokers:
            broker.cluster.wait(duration_ms)
            self.turn()

    def misfortune(self) -> None:
        kinds = (
            (0.05, self.hold_or_not),
            (0.05, self.refuse_or_not),
            (0.03, self.lose_a_coordinator),
            (0.04, lambda: self.move(self.random.randrange(PARTITIONS))),
            (0.06, lambda: self.vanish_or_return(self.random.choice(self.members))),
            (0.03, self.everybody_leaves),
            (0.15, self.operate),
            (0.1, self.states.coordinator.prune),
            (0.01, lambda: self.advance(SESSION_MS)),
        )
        for probability, happens in kinds:
            if self.chance(probability):
                happens()
                self.turn()

    def hold_or_not(self) -> None:
        log = self.random.choice((self.world.log, self.states.log))
        log.holds = not log.holds

    def refuse_or_not(self) -> None:
        self.is_refusing = not self.is_refusing

    def lose_a_coordinator(self) -> None:
        loses_tail = self.random.random() < 0.5
        lose: Callable[..., None] = self.random.choice(
            (self.world.restart, self.world.resign, self.states.kill, self.states.resign)
        )
        if lose == self.world.restart:
            self.unanswered["heartbeat"] = 0
        lose(loses_tail=loses_tail)

    def move(self, partition: int) -> None:
        """Another broker leads the partition, or the same anew; the one before hears of it, perhaps
        later."""
        before, broker = self.leaders[partition], self.random.choice(self.brokers)
        images = [each.cluster.image.topics[TOPIC] for each in self.brokers]
        epoch = 1 + max(each.partitions[partition].leader_epoch for each in images)
        self.leaders[partition] = broker
        broker.take_role(partition, leads=True, epoch=epoch)

        def hear() -> None:
            if self.leaders[partition] is not before:
                before.take_role(partition, leads=False, epoch=epoch)

        self.maybe_late(hear)

    def vanish_or_return(self, member: ShareMember) -> None:
        if member.is_gone:
            member.begin_anew()
        elif self.random.random() < 0.5:
            member.vanish()
        else:
            member.leave()

    def everybody_leaves(self) -> None:
        group_id = self.random.choice(self.members).group_id
        for member in self.members:
            if member.group_id == group_id and not member.is_gone:
                member.leave()

    # What must always hold

    def group(self, group_id: str) -> ShareGroup | None:
        (shard,) = self.world.runtime.shards()
        return shard.share.find(group_id)

    def is_assigned(self, key: SharePartitionKey) -> bool:
        """Whether the members of the group may read the partition."""
        group = self.group(key.group_id)
        return group is not None and key.partition in group.initialized.get(key.topic_id, ())

    def is_known(self, member: ShareMember) -> bool:
        """Whether the coordinator has confirmed a member within its session timeout."""
        at_ms = member.known_at_ms
        return not member.is_gone and at_ms is not None and self.now_ms - at_ms < SESSION_MS

    def check_refused(self, member: ShareMember, error: BrokerError) -> None:
        if error.code is not ErrorCode.FENCED_MEMBER_EPOCH:
            assert not self.is_known(member), f"{member.name} was told that it lives: {error}"

    def check_assigned(self, member: ShareMember) -> None:
        keys = [each for each in self.keys if each.group_id == member.group_id]
        for key in keys:
            is_told = self.is_known(member) and key.partition in member.assigned
            if is_told and self.states.is_in_charge:
                assert key in self.states.states, f"{member.name} reads {key}: it has no state"

    def check(self) -> None:
        self.check_read()
        for key in self.keys:
            self.check_state(key)
        for member in self.members:
            if self.is_known(member):
                group = self.group(member.group_id)
                known = None if group is None else group.members.get(member.member_id)
                assert known is not None, f"{member.name} was told that it is a member"
                assert known.member_epoch >= member.epoch, f"{member.name} is ahead of {known}"

    def check_read(self) -> None:
        """Forgets what began anew. What a group reads stays so, unless an operator has asked."""
        read = {each for each in self.keys if self.is_assigned(each)}
        for key in self.read - read:
            assert self.is_reset(key), f"{key} is not read any more: no operator has asked for that"
        unread = set(self.states.states) - read
        for key in self.keys:
            if key in unread or self.may_begin_anew(key):
                self.forget(key)
        self.resets = [each for each in self.resets if not each.is_through(self.states)]
        self.read, self.unread = read, unread

    def forget(self, key: SharePartitionKey) -> None:
        self.done[key].clear()
        self.came_back[key].clear()
        self.seen.pop(key, None)

    def on_mixed(self, key: SharePartitionKey) -> None:
        """A leader has read a state that was deleted or made anew since, and may have written to
        the one after. Nothing fences it, as in Kafka: a deleted state leaves no epochs behind, and
        another may have the same. The leader does not know what that has changed, until it reads
        the state again.
        """
        self.operations["mixed"] += 1
        self.mixed.add(key)

    def on_read(self, key: SharePartitionKey) -> None:
        """A leader begins with the state as it is."""
        if key in self.mixed:
            self.mixed.remove(key)
            self.forget(key)

    def is_reset(self, key: SharePartitionKey) -> bool:
        return any(key in each.keys for each in self.resets)

    def may_begin_anew(self, key: SharePartitionKey) -> bool:
        """Whether an operator is about to set its state, or the next member has it made although
        it is there: where nobody heard that it was made, and where an operator's deletion stopped
        half-way or was written after its time had passed; or whether its state is mixed."""
        return self.is_reset(key) or key in self.unread or key in self.mixed

    def check_state(self, key: SharePartitionKey) -> None:
        state, before = self.states.states.get(key), self.seen.get(key)
        if state is None:
            assert before is None, f"the state of {key} is gone"
            assert not self.done[key], f"the state of {key} is gone"
            return
        _check_done(key, state, self.done[key])
        counts = {offset: each.delivery_count for offset, each in _by_offset(state).items()}
        now = Seen(state.state_epoch, state.leader_epoch, state.start_offset, counts)
        if before is not None:
            assert now[:3] >= before[:3] or now.state_epoch > before.state_epoch, f"{before}, {now}"
            assert now.leader_epoch >= before.leader_epoch, f"{key}: {before}, {now}"
            if now.state_epoch == before.state_epoch:
                self._check_same_life(key, before, now)
        self.seen[key] = now
        self._check_told(key, now)

    def _check_told(self, key: SharePartitionKey, now: Seen) -> None:
        """Checks that returned records are stored, though not at once: with the next accepted
        write.
        """
        broker = self.leaders[key.partition]
        led = broker.led(key)
        is_of_state = led is not None and led.records.state_epoch == now.state_epoch
        if led is None or not is_of_state or not led.is_active or self.may_begin_anew(key):
            return
        if broker.route.has_stored(key):
            for offset, held in broker.held[led].items():
                if offset >= now.start_offset:
                    found = now.counts.get(offset, 0)
                    assert found >= held.count - 1, f"{key}: {offset} came back untold, {held}"

    def _check_same_life(self, key: SharePartitionKey, before: Seen, now: Seen) -> None:
        assert now.start_offset >= before.start_offset, f"{key} goes back: {before}, {now}"
        for offset, count in before.counts.items():
            if offset >= now.start_offset:
                found = now.counts.get(offset, 0)
                assert found >= count, f"{key}: {offset} came for the {count}th time, now {found}"

    # The end

    def end(self) -> None:
        """The brokers may be used again."""
        for broker in self.brokers:
            broker.manager.shutdown()

    def settle(self) -> None:
        """Peace: what is under way ends, and what is left of the records is delivered."""
        self.calm = True
        for log in (self.world.log, self.states.log):
            log.holds = False
        for member in self.members:
            if member.is_gone:
                member.begin_anew()
        for _ in range(600):
            self.step()
            if self.is_settled():
                return
        raise AssertionError(f"not settled: {list(self.left())}")

    def is_settled(self) -> bool:
        return not any(True for _ in self.left())

    def left(self) -> Iterator[str]:
        """The work that is still under way."""
        yield from (f"{count} {what}s" for what, count in self.unanswered.items() if count)
        yield from ("an operation" for _ in self.resets)
        for key in self.keys:
            if self.states.is_busy(key) or self.world.runtime.is_busy(key.group_id):
                yield f"{key} is busy"
            led = self.leaders[key.partition].led(key)
            if led is None or led.records.start_offset < RECORDS:
                start = "nowhere" if led is None else f"{led.records.start_offset}, {led.status}"
                yield f"{key} stands at {start}"
        for member in self.members:
            group = self.group(member.group_id)
            if group is None or group.epoch != member.epoch:
                yield f"{member.name} at {member.epoch} of {group and group.epoch}"


def _by_offset(state: SharePartitionState) -> dict[int, StateBatch]:
    return {
        offset: each
        for each in state.batches.to_tuple()
        for offset in range(each.first_offset, each.last_offset + 1)
    }


def _check_done(key: SharePartitionKey, state: SharePartitionState, done: Iterable[int]) -> None:
    batches = _by_offset(state)
    for offset in done:
        if offset >= state.start_offset:
            assert offset in batches, f"{key}: {offset} was done with and is unknown"
            assert batches[offset].state in FINAL_STATES, f"{key}: {batches[offset]} came back"
