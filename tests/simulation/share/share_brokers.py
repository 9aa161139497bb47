"""The brokers of the simulation of share groups (`sharing`): both coordinators over lists, which
may be killed or resign, the way to that of states, and brokers that lead partitions."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tests.unit.coordinator.consumer.consumers import ConsumerWorld
from tests.unit.coordinator.fakes import ListLog
from tests.unit.replication.fakes import Cluster

from odradek.config import BrokerConfig
from odradek.coordinator.records.share_state_records import ShareSnapshotKey, ShareStateRecordCodec
from odradek.coordinator.runtime.partition_writer import OnCommitted
from odradek.coordinator.runtime.runtime import CoordinatorRuntime
from odradek.coordinator.runtime.settings import RuntimeSettings
from odradek.coordinator.share.shard import SharePartitionState, ShareShard
from odradek.coordinator.share.share_coordinator import ShareCoordinator, coordinator_key
from odradek.coordinator.share_groups.share_group_coordinator import ShareGroupCoordinator
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import ConfigResource, MetadataDelta
from odradek.model import ConfigResourceType, TopicPartition
from odradek.purgatory import DelayedOperationPurgatory
from odradek.records.batch import parse_header
from odradek.records.reader import read_batch
from odradek.replication.share.led_partition import LedSharePartition
from odradek.replication.share.manager import SharePartitionManager
from odradek.replication.share.persister import SharePartitionKey, SharePersister, ShareState

if TYPE_CHECKING:
    from tests.simulation.share.share_members import ShareMember
    from tests.simulation.share.sharing import Simulation

TOPIC = "t"
PARTITIONS = 2
LOCK_MS = 15_000
DELIVERIES = 5
LOST = BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
FENCED = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.FENCED_STATE_EPOCH,
    ErrorCode.INVALID_REQUEST,
)
"""What says for sure that a write is not stored."""

Answered = Callable[[Any], None]


class StateLog(ListLog):
    """The log of the states; `lives` changes for a state with each deletion that gets there, and
    when it is made anew."""

    def __init__(self) -> None:
        super().__init__()
        self.lives: Counter[SharePartitionKey] = Counter()

    def append(
        self,
        partition: int,
        batch: bytearray,
        on_committed: OnCommitted,
        transaction_version: int = 0,
    ) -> None:
        deleted = list(_deleted(batch))

        def on_written(error: BrokerError | None) -> None:
            if error is None:
                self.lives.update(deleted)
            on_committed(error)

        super().append(partition, batch, on_written, transaction_version)
        if self.holds:
            self.lives.update(deleted)


def _deleted(batch: bytearray) -> Iterator[SharePartitionKey]:
    codec = ShareStateRecordCodec()
    for each in read_batch(batch, parse_header(batch, 0)):
        record = codec.decode(each.key or b"", each.value)
        if isinstance(record.key, ShareSnapshotKey) and record.value is None:
            yield record.key.partition


class StateCoordinator:
    """The share coordinator over a list, which may be killed or resign."""

    def __init__(self, simulation: "Simulation") -> None:
        self._simulation = simulation
        self._epoch = 0
        self.log = StateLog()
        self.log.refuses = simulation.refuses
        self.asked: dict[int, Answered] = {}
        self._number = 0
        self._build()

    def _build(self) -> None:
        world = self._simulation.world
        life = self._life = object()

        def defer(action: Callable[[], None]) -> None:
            """A broker that was killed does nothing any more."""
            self._simulation.defer(lambda: action() if self._life is life else None)

        config = BrokerConfig({"share.coordinator.snapshot.update.records.per.snapshot": "4"})
        self.runtime = CoordinatorRuntime[ShareShard](
            self.log,
            ShareStateRecordCodec(),
            world.clock,
            defer,
            lambda: 1,
            lambda partition, *_: ShareShard(partition, config, world.clock, self._count_of),
            RuntimeSettings(),
            DelayedOperationPurgatory("states", world.timer, 0),
        )
        self.coordinator = ShareCoordinator(
            self.runtime,
            defer,
            lambda partition: self.log.bounds(partition).end_offset,
            self._delete_before,
        )
        self.runtime.on_elected(0, self._epoch)

    def _count_of(self, topic_id: object) -> int | None:
        return PARTITIONS if topic_id == self._simulation.topic_id else None

    def _delete_before(self, partition: int, offset: int) -> None:
        batches = self.log.batches[partition]
        self.log.batches[partition] = [each for each in batches if each[0] >= offset]

    def ask(self, question: Callable[[ShareCoordinator, Answered], None], take: Answered) -> None:
        """A request that has come; its connection breaks when the broker is killed."""
        self._number += 1
        number = self._number
        self.asked[number] = take

        def answer(outcome: Any) -> None:
            taker = self.asked.pop(number, None)
            if taker is not None:
                taker(outcome)

        question(self.coordinator, answer)

    def kill(self, *, loses_tail: bool) -> None:
        if loses_tail:
            self.log.cut()
        self.log.held.clear()
        self.asked, asked = {}, self.asked
        # First: whoever hears of it may ask again at once, and not the broker that is dead.
        self._build()
        for take in asked.values():
            take(LOST)

    def resign(self, *, loses_tail: bool) -> None:
        """Another broker leads for a moment, and this one again."""
        self.runtime.on_resigned(0)
        refuse_held(self.log, loses_tail=loses_tail)
        self._epoch += 1
        self.runtime.on_elected(0, self._epoch)

    @property
    def is_in_charge(self) -> bool:
        """Whether this broker leads: as it resigns it does not, while it tells who waited."""
        return any(True for _ in self.runtime.shards())

    @property
    def states(self) -> dict[SharePartitionKey, SharePartitionState]:
        (shard,) = self.runtime.shards()
        return shard.states

    def epoch_of(self, key: SharePartitionKey) -> int:
        """The epoch of a state, or -1."""
        state = self.states.get(key) if self.is_in_charge else None
        return -1 if state is None else state.state_epoch

    def is_busy(self, key: SharePartitionKey) -> bool:
        return self.runtime.is_busy(coordinator_key(key))


def refuse_held(log: ListLog, *, loses_tail: bool) -> None:
    """Answers the writes that wait for the log: another broker leads. Its tail may be gone."""
    held = list(log.held)
    if loses_tail:
        log.cut()
    log.held.clear()
    for _, on_committed in held:
        on_committed(BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER))


class Route(SharePersister):
    """The way of one sender to the coordinator of states: late, and not always. What is said of one
    state arrives in order; it is overtaken by what is said of others, which may be quicker."""

    def __init__(self, simulation: "Simulation") -> None:
        self._simulation = simulation
        self._on_their_way: dict[SharePartitionKey, deque[Callable[[], None]]] = {}
        self.is_dead = False

    def initialize(self, key, state_epoch, start_offset, on_done) -> None:
        lives = self._simulation.states.log.lives

        def ask(to: ShareCoordinator, take: Answered) -> None:
            def on_made(outcome: BrokerError | None) -> None:
                lives[key] += 1
                take(outcome)

            lives[key] += 1  # it may be made, and nobody hear of it
            to.initialize(key, state_epoch, start_offset, on_made)

        self._send(key, ask, on_done)

    def delete(self, key, on_done) -> None:
        self._send(key, lambda to, take: to.delete(key, take), on_done)

    def summarize(self, key, leader_epoch, on_done) -> None:
        self._send(key, lambda to, take: to.summarize(key, leader_epoch, take), on_done)

    def read(self, key, leader_epoch, on_done) -> None:
        self._send(key, lambda to, take: to.read(key, leader_epoch, take), on_done)

    def write(self, key, leader_epoch, state, on_done) -> None:
        self._send(key, lambda to, take: to.write(key, leader_epoch, state, take), on_done)

    def _send(
        self, key: SharePartitionKey, question: Callable[..., None], on_done: Answered
    ) -> None:
        def take(outcome: Any) -> None:
            if not self.is_dead:
                is_lost = self._simulation.chance(0.02)
                on_done(LOST if is_lost else outcome)

        def arrive() -> None:
            if self._simulation.chance(0.02):
                take(LOST)
            else:
                self._simulation.states.ask(question, take)

        waiting = self._on_their_way.setdefault(key, deque())
        if waiting or self._simulation.chance(0.5):
            waiting.append(arrive)
        else:
            arrive()

    def go_on(self) -> None:
        """Something of what is on its way arrives."""
        for waiting in list(self._on_their_way.values()):
            while waiting and not self._simulation.chance(0.9):
                waiting.popleft()()


class LeaderRoute(Route):
    """That of a leader, by which it can be told what it knows of its writes; and which of them were
    for a state that has been deleted or made anew since."""

    def __init__(self, simulation: "Simulation") -> None:
        super().__init__(simulation)
        self._under_way: Counter[SharePartitionKey] = Counter()
        self._refused: set[SharePartitionKey] = set()
        self._read_in: Counter[SharePartitionKey] = Counter()

    def has_stored(self, key: SharePartitionKey) -> bool:
        """Whether nothing is under way, and the last write was not refused, of the state that was
        read."""
        is_same = self._read_in[key] == self._simulation.states.log.lives[key]
        return is_same and not self._under_way[key] and key not in self._refused

    def read(self, key, leader_epoch, on_done) -> None:
        def ask(to: ShareCoordinator, take: Answered) -> None:
            def on_read(outcome: ShareState | BrokerError) -> None:
                if not isinstance(outcome, BrokerError):
                    self._read_in[key] = self._simulation.states.log.lives[key]
                    self._simulation.on_read(key)
                take(outcome)

            to.read(key, leader_epoch, on_read)

        self._send(key, ask, on_done)

    def write(self, key, leader_epoch, state, on_done) -> None:
        self._under_way[key] += 1
        read_in, states = self._read_in[key], self._simulation.states

        def ask(to: ShareCoordinator, take: Answered) -> None:
            is_late = states.epoch_of(key) > state.state_epoch

            def check(outcome: BrokerError | None) -> None:
                is_taken = outcome is None and is_late
                is_newer = states.epoch_of(key) > state.state_epoch
                assert not (is_taken and is_newer), f"{key} takes what was of an earlier state"
                take(outcome)

            to.write(key, leader_epoch, state, check)

        def take(outcome: BrokerError | None) -> None:
            self._under_way[key] -= 1
            self._refused.discard(key)
            if outcome is not None:
                self._refused.add(key)
            may_be_stored = outcome is None or outcome.code not in FENCED
            if may_be_stored and read_in != states.log.lives[key]:
                self._simulation.on_mixed(key)
            on_done(outcome)

        self._send(key, ask, take)


class GroupWorld(ConsumerWorld):
    """The coordinator of groups."""

    def __init__(self, simulation: "Simulation") -> None:
        self._simulation = simulation
        self.route = Route(simulation)
        self.leader_epoch = 0
        super().__init__({TOPIC: PARTITIONS}, group_share_assignment_interval_ms=0)

    def _build(self) -> None:
        self.route.is_dead = True
        self.route = Route(self._simulation)
        super()._build()
        self.share = ShareGroupCoordinator(self.runtime, self.route)

    def resign(self, *, loses_tail: bool) -> None:
        self.runtime.on_resigned(0)
        refuse_held(self.log, loses_tail=loses_tail)
        self.leader_epoch += 1
        self.elect(self.leader_epoch)


class Held:
    """A record that a leader has handed out, as its member may know."""

    def __init__(self, member: "ShareMember", count: int, deadline_ms: int) -> None:
        self.member = member
        self.count = count
        self.deadline_ms = deadline_ms
        self.is_said = False
        self.is_abandoned = False
        self.is_over = False

    def is_held(self, now_ms: int) -> bool:
        return not self.is_over and (self.is_said or now_ms < self.deadline_ms)


class Broker:
    """A broker that may lead partitions. Its logs outlive a simulation."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.held: dict[LedSharePartition, dict[int, Held]] = {}

    def begin(self, simulation: "Simulation", index: int) -> None:
        self.index = index
        self.simulation = simulation
        self.route = LeaderRoute(simulation)
        self.sessions: set[ShareMember] = set()
        self.held = defaultdict(dict)
        cluster = self.cluster
        self.manager = SharePartitionManager(
            cluster.config, cluster.clock, cluster.timer, cluster.replicas, self.route
        )

    def take_role(self, partition: int, *, leads: bool, epoch: int) -> None:
        before = self.cluster.image
        self.cluster.change(TOPIC, partition, leader=1 if leads else 2, leader_epoch=epoch)
        topic = self.cluster.image.topics[TOPIC]
        self.manager.apply_delta(MetadataDelta(before, self.cluster.image, changed=[topic]))

    def led(self, key: SharePartitionKey) -> LedSharePartition | None:
        return self.manager.partitions.get(key)

    def end_session(self, member: "ShareMember") -> None:
        """The member's connection is closed."""
        if member not in self.sessions:
            return
        self.sessions.remove(member)
        for led, held in self.held.items():
            if led.key.group_id == member.group_id and led.is_active:
                for each in held.values():
                    if each.member is member:
                        each.is_abandoned = True
                        each.is_over = each.is_over or not each.is_said
        self.manager.release_member(member.group_id, member.member_id)
        if all(each.group_id != member.group_id for each in self.sessions):
            self.manager.suspend_group(member.group_id)


def new_brokers(directories: Iterable[str]) -> list[Broker]:
    """Brokers with the same records, which may be used for many simulations."""
    return [Broker(_new_cluster(each)) for each in directories]


def _new_cluster(directory: str) -> Cluster:
    settings = {
        "group.share.record.lock.duration.ms": str(LOCK_MS),
        "group.share.delivery.count.limit": str(DELIVERIES),
    }
    cluster = Cluster(directory, settings=settings)
    cluster.create(TOPIC, partitions=PARTITIONS, topic_id=UUID(int=1))
    for group_id in ("g0", "g1"):
        resource = ConfigResource(ConfigResourceType.GROUP, group_id)
        image = cluster.image.with_configs({resource: {"share.auto.offset.reset": "earliest"}})
        cluster._apply(image, configs=[resource])
    for partition in range(PARTITIONS):
        for count in (1, 5, 2, 8, 1, 1, 6):
            cluster.produce(TopicPartition(TOPIC, partition), *[b"x"] * count)
    return cluster
