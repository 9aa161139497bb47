"""A cluster of simulated brokers on one seeded scheduler: what is real, and what is made up.

Real: replica managers, partitions, logs on files, followers, the shared metadata and its leader
elections. Made up: the network, which delays, loses and repeats what is sent, and the clocks, of
which some are slow and some are fast. A broker may die at any moment, with junk behind its last
write, and comes back with its files. It may hear nothing of the metadata for a while, and be taken
for dead meanwhile, when its peers and its clients still reach it.

Appends are refused at any step, a leader's and a follower's: a disk is full for a while or for one
write, too few replicas are in sync, another broker leads. A disk that fails ends its broker. One
kind of producers sends each record once, perhaps in vain; the others (`broker_producers`) number
theirs, have several on their way, and go on until they are in.

Everything follows from the seed. `Checker` holds, after every step, what must always hold.
"""

import errno
import heapq
import itertools
import os
import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from tests.simulation.broker_producers import SimulatedProducer
from tests.unit.replication.fakes import batch

from odradek.background import InlineBackground
from odradek.clock import ManualClock
from odradek.config.broker import BrokerConfig
from odradek.controller.replicas.reassigner import Reassigner, Reassignment
from odradek.controller.replicas.replication_control import ReplicationControl
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata import ListenerStage, MetadataCache
from odradek.metadata.engine import BrokerView, Defer, MetadataEngine
from odradek.metadata.fail_stop import OnBroken
from odradek.metadata.image import BrokerRegistration, MetadataDelta, PartitionImage
from odradek.metadata.sqlite import EmbeddedMetadataStore, SharedMetadata
from odradek.metadata.sqlite.shared import UNREGISTERED
from odradek.metadata.store import NewTopic, OnDone, PartitionChange
from odradek.model import NO_LEADER, AppendOrigin, TopicPartition
from odradek.protocol.direct.fetch import (
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)
from odradek.records.batch import split_batches
from odradek.records.reader import read_batch
from odradek.replication.append import ACKS_ALL, AppendRequest, AppendResult
from odradek.replication.fetch import FetchInfo, FetchParams, FetchResult
from odradek.replication.follower.fetcher_manager import ReplicaFetcherManager
from odradek.replication.follower.leader_channel import LeaderChannel, OnFetched, OnOffset
from odradek.replication.offset_lookup import find_offset
from odradek.replication.partition import Partition
from odradek.replication.quota import ReplicationQuotas
from odradek.replication.replica_manager import ReplicaManager
from odradek.server.randomness import random_uuid
from odradek.storage.files import OsFileSystem
from odradek.storage.log.log import Log
from odradek.storage.manager.log_manager import LogManager
from odradek.timer import MockTimer

TP: Final = TopicPartition("t", 0)
BROKERS: Final = (1, 2, 3, 4)
REPLICAS: Final = 3
SETTINGS: Final = {
    "replica.lag.time.max.ms": "500",
    "replica.fetch.wait.max.ms": "100",
    "replica.fetch.backoff.ms": "50",
    "log.cleaner.enable": "false",
}
TICK_MS: Final = 10
STALLED_MAX_MS: Final = 1_200
LOST_AFTER_MS: Final = 200


class Network:
    """Carries messages in its own time, or does not."""

    def __init__(self, rng: random.Random, clock: ManualClock) -> None:
        self._rng = rng
        self._clock = clock
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.cut: set[frozenset[int]] = set()
        self.calm = False

    def later(self, delay_ms: int, act: Callable[[], None]) -> None:
        """Does something when the clock has come so far."""
        due_ms = self._clock.monotonic_ms() + delay_ms
        heapq.heappush(self._queue, (due_ms, next(self._numbers), act))

    def send(self, sender: int, receiver: int, deliver: Callable[[], None]) -> None:
        """Delivers a message late, twice or never; one after another in no order."""
        if frozenset((sender, receiver)) in self.cut:
            return
        chance = 1.0 if self.calm else self._rng.random()
        if chance < 0.05:
            return
        self.later(self._rng.randint(0, 3 if self.calm else 40), deliver)
        if chance < 0.1:
            self.later(self._rng.randint(0, 400), deliver)

    def run_until(self, now_ms: int) -> None:
        """Delivers what is due, one message at a time."""
        while self._queue and self._queue[0][0] <= now_ms:
            heapq.heappop(self._queue)[2]()


class StallingView(BrokerView):
    """A view that may stall: what happens meanwhile is acted on and shown, and what is asked for
    meanwhile is done, when it goes on, in that order."""

    is_stalled = False

    def __init__(self, engine: MetadataEngine, cache: MetadataCache, on_broken: OnBroken) -> None:
        super().__init__(engine, cache, UNREGISTERED, on_broken)
        self._later: deque[Callable[[], object]] = deque()

    def act(self, stage: ListenerStage, delta: MetadataDelta) -> Collection[TopicPartition]:
        if not self.is_stalled:
            return super().act(stage, delta)
        self._later.append(partial(self._act_late, stage, delta))
        return ()

    def _act_late(self, stage: ListenerStage, delta: MetadataDelta) -> None:
        """Says itself which replicas are not served: the change that told of them is over."""
        unserved = super().act(stage, delta)
        if unserved:
            self.on_unserved(unserved)

    def on_unserved(self, partitions: Collection[TopicPartition]) -> None:
        """Replaced by the store."""

    def show(self, delta: MetadataDelta) -> None:
        self.do(partial(super().show, delta))

    def do(self, act: Callable[[], object]) -> None:
        """Does something now, or when the view goes on."""
        if self.is_stalled:
            self._later.append(act)
        else:
            act()

    def do_first(self, act: Callable[[], object]) -> None:
        """Does something before all else that waits for a view that has stalled."""
        self._later.appendleft(act)

    def resume(self) -> None:
        while self._later:
            self._later.popleft()()
        self.is_stalled = False

    def forget(self) -> None:
        self._later.clear()
        self.is_stalled = False


class StallingMetadata(SharedMetadata):
    """A memory whose brokers may stall."""

    def view(
        self, cache: MetadataCache, on_broken: OnBroken, defer: Defer | None = None
    ) -> StallingView:
        assert defer is None, "a stalled session acts in whole changes"
        return StallingView(self._engine, cache, on_broken)


class StallingStore(EmbeddedMetadataStore):
    """A session that may stall; others may have taken its broker for dead when it goes on."""

    _view: StallingView

    def __init__(self, cache: MetadataCache, shared: StallingMetadata) -> None:
        super().__init__(cache, shared)
        self._view.on_unserved = lambda lost: self.report_offline(list(lost), self._view.broker_id)

    @property
    def is_stalled(self) -> bool:
        return self._view.is_stalled

    def stall(self) -> None:
        self._view.is_stalled = True

    def resume(self) -> None:
        self._view.resume()

    def forget(self) -> None:
        """The broker ends: nothing that waits is done."""
        self._view.forget()

    def change_partitions(
        self,
        changed: Sequence[PartitionChange],
        on_done: OnDone[list[PartitionImage | BrokerError]],
    ) -> None:
        def answer(outcome: list[PartitionImage | BrokerError] | BrokerError) -> None:
            self._view.do(partial(on_done, outcome))

        self._view.do(partial(super().change_partitions, changed, answer))

    def expire(self) -> None:
        """The broker hears of it when it hears of anything again, and first of all of this."""
        if not self.is_stalled:
            super().expire()
            return
        self._end_session()
        self._view.do_first(self._tell)

    def _tell(self) -> None:
        for listener in tuple(self._session_listeners):
            listener()


class SimulatedChannel(LeaderChannel):
    """A follower's way to a leader over the simulated network."""

    def __init__(self, world: "World", follower: "Broker", leader: BrokerRegistration) -> None:
        self._world = world
        self._follower = follower
        self._leader = leader
        self._closed = False

    def fetch(self, request: FetchRequest, on_done: OnFetched) -> None:
        self._ask(lambda broker, answer: broker.fetch(request, answer), on_done)

    def find_offset(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        current_leader_epoch: int,
        on_done: OnOffset,
    ) -> None:
        def ask(broker: "Broker", answer: Callable[[int | BrokerError], None]) -> None:
            try:
                partition = broker.replicas.partition(topic_partition)
                found = find_offset(partition, timestamp, 0, current_leader_epoch, True)
            except BrokerError as error:
                answer(error)
            else:
                answer(found.offset)

        self._ask(ask, on_done)

    def close(self) -> None:
        self._closed = True

    def _ask(self, ask, on_done) -> None:
        """Asks the life of the leader that was found, and gives up after a while."""
        network, me, leader_id = self._world.network, self._follower.id, self._leader.id
        waiting = True

        def finish(outcome) -> None:
            nonlocal waiting
            if waiting and not self._closed:
                waiting = False
                on_done(outcome)

        def arrive() -> None:
            broker = self._world.brokers.get(leader_id)
            if broker is not None and broker.epoch == self._leader.epoch:
                ask(broker, lambda outcome: network.send(leader_id, me, lambda: finish(outcome)))

        network.send(me, leader_id, arrive)
        network.later(LOST_AFTER_MS, lambda: finish(BrokerError(ErrorCode.NETWORK_EXCEPTION)))


class Broker:
    """A broker from a start to its end."""

    def __init__(self, world: "World", broker_id: int) -> None:
        self.id = broker_id
        self.epoch = -1
        skew_ms = world.rng.randint(-world.skew_ms, world.skew_ms)
        self.clock = ManualClock(world.clock.wall_ms() + skew_ms)
        # How far its clock comes in a tick of the world's.
        self.pace = world.rng.choice((8, 10, 10, 12))
        self.timer = MockTimer()
        self.cache = MetadataCache()
        self.config = BrokerConfig({**SETTINGS, "broker.id": str(broker_id)})
        self.store = StallingStore(self.cache, world.shared)
        self.files = files = OsFileSystem(durable=False)
        self.logs = LogManager(
            [world.directory_of(broker_id)],
            self.config,
            self.clock,
            self.timer,
            InlineBackground(),
            new_uuid=lambda: random_uuid(world.rng),
            on_log_dir_failure=lambda path: world.on_disk_failed(self),
            file_system=files,
        )
        self.logs.start()
        # From here on: whoever starts on a full disk is tested with the log manager.
        files.pool.trouble = lambda path: world.write(self, path)
        quotas = ReplicationQuotas(broker_id, self.config, self.clock)
        self.replicas = ReplicaManager(
            broker_id, self.config, self.clock, self.timer, self.logs, self.store, quotas.leader
        )
        self.fetchers = ReplicaFetcherManager(
            broker_id,
            self.config,
            self.timer,
            lambda leader: SimulatedChannel(world, self, leader),
            self.replicas.partitions.find,
            self.replicas.on_committed,
            quotas.follower,
        )
        self.store.subscribe(ListenerStage.REPLICAS, self.replicas.apply_delta)
        self.store.subscribe(ListenerStage.REPLICAS, self.fetchers.apply_delta)
        self.store.on_session_lost(self.replicas.resign)
        ReplicationControl(self.store, broker_id, lambda image, topic: False)
        self.furnish(world)
        self.store.load()
        self.register()

    def furnish(self, world: "World") -> None:
        """Adds more to the broker, before it hears of the metadata."""

    @property
    def log(self) -> Log | None:
        partition = self.replicas.partitions.find(TP)
        return None if partition is None else partition.log

    def register(self) -> None:
        def registered(outcome: BrokerRegistration | BrokerError) -> None:
            assert isinstance(outcome, BrokerRegistration), outcome
            self.epoch = outcome.epoch

        self.store.register_broker(self.id, (), None, registered)

    def expire_if_stalled(self) -> None:
        if self.store.is_stalled:
            self.store.expire()

    def die(self) -> None:
        """Ends where it stands: nothing is flushed, nothing is said."""
        self.store.forget()
        self.fetchers.close()
        self.replicas.shutdown()
        for directory in self.logs.directories:
            directory.release_lock()
        self.files.pool.release_all()
        self.store.close()

    def fetch(self, request: FetchRequest, on_done: OnFetched) -> None:
        """Serves a follower without a session, as a leader does that has no room for one."""
        infos = [
            FetchInfo(
                TopicPartition(self._name_of(topic.topic_id), wanted.index),
                *(wanted.fetch_offset, wanted.partition_max_bytes, wanted.log_start_offset),
                *(wanted.current_leader_epoch, wanted.last_fetched_epoch, topic.topic_id),
            )
            for topic in request.topics
            for wanted in topic.partitions
        ]
        params = FetchParams(
            request.replica_id,
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
            replica_epoch=request.replica_epoch,
        )

        def on_fetched(results: list[FetchResult]) -> None:
            answers = map(_answer, results)
            topics = [
                FetchTopicResponse(None, topic.topic_id, [next(answers) for _ in topic.partitions])
                for topic in request.topics
            ]
            on_done(FetchResponse(topics))

        self.replicas.fetch_messages(params, infos, on_fetched)

    def _name_of(self, topic_id: UUID) -> str:
        topic = self.replicas.partitions.image.topic_by_id(topic_id)
        return "" if topic is None else topic.name


class Sent(NamedTuple):
    """A record that was acknowledged: where it is said to be."""

    offset: int
    value: bytes


class World:
    """Four brokers, one partition with three replicas of which two must be in sync, and which move
    from broker to broker. `refusals` counts the answers to appends, and the writes refused."""

    skew_ms = 5_000
    make_broker = Broker
    settings: Mapping[str, str] = MappingProxyType({"min.insync.replicas": "2"})

    def __init__(self, seed: int, directory: str) -> None:
        self.rng = random.Random(seed)
        self.clock = ManualClock(wall_ms=1_700_000_000_000)
        self.network = Network(self.rng, self.clock)
        self.directory = directory
        self.shared = StallingMetadata(InlineBackground(), self.rng.randbytes)
        self.brokers: dict[int, Broker] = {}
        self.acknowledged: list[Sent] = []
        # Acknowledged as a disk failed, of which nobody reads: the next leader has to show them.
        self.unread: list[Sent] = []
        self.full: set[int] = set()
        self.refusals: Counter[str] = Counter()
        self._values = itertools.count()
        for broker_id in BROKERS:
            self.start(broker_id)
        topic = NewTopic("t", (BROKERS[:REPLICAS],), self.settings)
        self.brokers[1].store.create_topics([topic], _must)
        self.checker = Checker(self)
        self.producers = [SimulatedProducer(self, number, TP) for number in (1, 2)]

    @property
    def leader_id(self) -> int:
        partition = self.shared.image.partition(TP)
        return NO_LEADER if partition is None else partition.leader

    def write(self, broker: "Broker", path: str) -> None:
        """A disk that is full for a while takes nothing, others refuse a write now and then; and
        seldom one fails."""
        chance = 1.0 if self.network.calm else self.rng.random()
        if (broker.id in self.full and not self.network.calm) or chance < 0.02:
            self.refusals["full"] += 1
            raise OSError(errno.ENOSPC, "no space left", path)
        if chance < 0.022:
            self.refusals["failed"] += 1
            raise OSError(errno.EIO, "input/output error", path)

    def on_disk_failed(self, broker: "Broker") -> None:
        """It was the only one: the broker ends as soon as it can."""

        def end() -> None:
            if self.brokers.get(broker.id) is broker:
                self.kill(broker.id)

        self.network.later(0, end)

    def note(self, code: ErrorCode) -> None:
        if code != ErrorCode.NONE:
            self.refusals[ErrorCode(code).name] += 1

    def acknowledge(self, broker: "Broker", offset: int, value: bytes) -> None:
        # Now: in the next moment the log may be another broker's, and this one gone.
        self.checker.check_log(broker)
        sent = Sent(offset, value)
        self.acknowledged.append(sent)
        if broker.log is not None and broker.log.log_directory.failure is not None:
            self.unread.append(sent)

    def directory_of(self, broker_id: int) -> str:
        return os.path.join(self.directory, str(broker_id))

    def start(self, broker_id: int) -> None:
        if broker_id not in self.brokers:
            self.brokers[broker_id] = self.make_broker(self, broker_id)

    def kill(self, broker_id: int) -> None:
        """A death; sometimes in the middle of a write, of which nobody was told yet."""
        broker = self.brokers.pop(broker_id, None)
        if broker is None:
            return
        log = broker.log
        broker.die()
        if log is not None and self.rng.random() < 0.5:
            junk = self.rng.randbytes(self.rng.randint(1, 90))
            path = next(each for each in log.segments.active.paths() if each.endswith(".log"))
            with open(path, "ab") as stream:
                stream.write(junk)

    def expire(self, broker_id: int) -> None:
        """The others take a broker for dead that is not."""
        broker = self.brokers.get(broker_id)
        if broker is not None and not broker.store.is_stalled:
            broker.store.expire()
            self.network.later(self.rng.randint(0, 300), lambda: self._come_back(broker))

    def stall(self, broker_id: int) -> None:
        """A broker hears nothing of the metadata for a while, which may cost it its session."""
        broker = self.brokers.get(broker_id)
        if broker is None or broker.store.is_stalled:
            return
        broker.store.stall()
        if expires := self.rng.random() < 0.5:
            self.network.later(self.rng.randint(0, 300), broker.expire_if_stalled)
        self.network.later(
            self.rng.randint(300, STALLED_MAX_MS), lambda: self._resume(broker, expires)
        )

    def _resume(self, broker: Broker, has_expired: bool) -> None:
        if self.brokers.get(broker.id) is broker and broker.store.is_stalled:
            broker.store.resume()
            if has_expired:
                broker.register()

    def _come_back(self, broker: Broker) -> None:
        if self.brokers.get(broker.id) is broker:
            broker.register()

    def reassign(self) -> None:
        """Gives the partition other replicas, or takes back what is in progress."""
        broker = self.brokers.get(self.shared.image.controller_id)
        if broker is None:
            return
        target = tuple(self.rng.sample(BROKERS, REPLICAS))
        wish = Reassignment(TP, None if self.rng.random() < 0.2 else target)
        Reassigner(broker.store, broker.cache).alter([wish], lambda results: None)

    def produce(self) -> None:
        """Sends a record to a broker that may lead; it is sent once, and perhaps in vain."""
        broker = self.brokers.get(self.rng.choice(BROKERS))
        if broker is None:
            return
        value = b"%d" % next(self._values)

        def on_done(results: list[AppendResult]) -> None:
            self.note(results[0].error_code)
            if results[0].error_code == ErrorCode.NONE:
                self.acknowledge(broker, results[0].base_offset, value)

        request = AppendRequest(ACKS_ALL, 300, AppendOrigin.CLIENT, [(TP, batch(value))], on_done)
        broker.replicas.append_records([request])

    def pass_time(self, duration_ms: int) -> None:
        """Moves every clock, a little at a time, so that messages and timers mix."""
        for _ in range(duration_ms // TICK_MS):
            self.clock.advance(TICK_MS)
            self.network.run_until(self.clock.monotonic_ms())
            for broker in list(self.brokers.values()):
                broker.clock.advance(broker.pace)
                broker.timer.advance_clock(broker.pace)
            self.checker.check()

    def step(self) -> None:
        """Causes a random event, and lets some time pass."""
        rng = self.rng
        broker_id = rng.choice(BROKERS)
        event = rng.random()
        for producer in self.producers:
            producer.act()
        if event < 0.51:
            for _ in range(rng.randint(1, 3)):
                self.produce()
        elif event < 0.55:
            self.full ^= {broker_id}
        elif event < 0.63:
            self.kill(broker_id)
        elif event < 0.78:
            self.start(broker_id)
        elif event < 0.81:
            self.expire(broker_id)
        elif event < 0.84:
            self.stall(broker_id)
        elif event < 0.87:
            self.reassign()
        elif event < 0.9:
            self.network.cut.add(frozenset(rng.sample(BROKERS, 2)))
        else:
            self.network.cut.clear()
        self.checker.check()
        self.pass_time(rng.choice((TICK_MS, 20, 60, 200)))

    def calm_down(self) -> None:
        """Ends all trouble: at last the replicas are where they should be, alike, and hold every
        record.
        """
        self.network.cut.clear()
        self.network.calm = True
        for broker_id in BROKERS:
            self.start(broker_id)
        self.pass_time(STALLED_MAX_MS)
        for _ in range(25):
            self.pass_time(100)
            if self.checker.is_settled():
                break
        for producer in self.producers:
            producer.act()
        self.pass_time(300)
        self.checker.check_settled()

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.die()


class Checker:
    """Checks what must hold, whatever happens."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._committed: list[bytes] = []
        self._verified = 0
        self._numbered: defaultdict[bytes, int] = defaultdict(int)
        self._seen: dict[Log, int] = {}
        self._leaders: dict[int, int] = {}

    def check(self) -> None:
        for broker in self._world.brokers.values():
            partition = broker.replicas.partitions.find(TP)
            if partition is None:
                continue
            if partition.is_leader:
                self._check_leader(broker, partition)
            log = partition.log
            if log is not None and log.high_watermark != self._seen.get(log):
                self.check_log(broker)
        self._check_acknowledged()

    def _check_leader(self, broker: Broker, partition: Partition) -> None:
        other = self._leaders.setdefault(partition.leader_epoch, broker.id)
        assert other == broker.id, (
            f"{other} and {broker.id} both lead in epoch {partition.leader_epoch}"
        )

    def check_log(self, broker: Broker) -> None:
        """The high watermark does not fall, and below it all logs agree for ever."""
        log = broker.log
        if log is None or log.log_directory.failure is not None:
            return  # nobody reads of a disk that has failed
        before = self._seen.get(log, 0)
        assert log.high_watermark >= before, (
            f"the high watermark of {broker.id} fell from {before} to {log.high_watermark}"
        )
        if log.high_watermark > before:
            found = values(log, before, log.high_watermark)
            known = self._committed[before : log.high_watermark]
            assert found[: len(known)] == known, (
                f"{broker.id} has {found} at {before}, committed was {known}"
            )
            self._commit(found[len(known) :])
            self._seen[log] = log.high_watermark

    def _check_acknowledged(self) -> None:
        acknowledged, unread = self._world.acknowledged, self._world.unread
        due = acknowledged[self._verified :] + unread
        unread[:] = [each for each in unread if each.offset >= len(self._committed)]
        for offset, value in due:
            if Sent(offset, value) in unread:
                continue
            assert offset < len(self._committed), f"{value!r} at {offset} was never committed"
            assert self._committed[offset] == value, (
                f"{value!r} was acknowledged at {offset}, where {self._committed[offset]!r} is"
            )
        # What is committed is committed for ever: `check_log` sees to that.
        self._verified = len(acknowledged)

    def _commit(self, found: list[bytes]) -> None:
        """Checks that the records a producer has numbered come once, and in order."""
        self._committed += found
        for value in found:
            producer, numbers, number = value.partition(b"-")
            if numbers and producer.startswith(b"p"):
                due = self._numbered[producer]
                assert int(number) == due, f"{value!r} was committed where {due} was due"
                self._numbered[producer] = due + 1

    def is_settled(self) -> bool:
        """Whether all replicas are in sync, and stand where they should."""
        partition = self._world.shared.image.partition(TP)
        brokers = self._world.brokers
        return (
            partition is not None
            and partition.leader != NO_LEADER
            and set(partition.isr) == set(partition.replicas)
            and not partition.is_reassigning
            and {x.id for x in brokers.values() if x.log is not None} == set(partition.replicas)
        )

    def check_settled(self) -> None:
        assert not self._world.unread, f"acknowledged and never committed: {self._world.unread}"
        partition = self._world.shared.image.partition(TP)
        assert partition is not None
        assert partition.leader != NO_LEADER, f"nobody leads: {partition}"
        assert set(partition.isr) == set(partition.replicas), f"out of sync: {partition}"
        assert not partition.is_reassigning, f"the reassignment does not end: {partition}"
        logs = {broker.id: broker.log for broker in self._world.brokers.values()}
        assert {one for one, log in logs.items() if log is not None} == set(partition.replicas)
        contents = [values(log, 0, log.log_end_offset) for log in logs.values() if log is not None]
        assert len(contents) == REPLICAS
        assert contents[0] == contents[1] == contents[2], "the replicas differ"
        assert contents[0][: len(self._committed)] == self._committed, "committed records are gone"


def values(log: Log, start: int, end: int) -> list[bytes]:
    """The values of the records from `start` to `end`."""
    found: list[bytes] = []
    offset = start
    while offset < end:
        read = log.read(offset, 1 << 20, end, True)
        for records in read.records:
            for header in split_batches(records):
                for record in read_batch(records, header):
                    if start <= record.offset < end:
                        found.append(b"" if record.is_control else bytes(record.value or b""))
                    offset = record.offset + 1
    return found


def _answer(result: FetchResult) -> FetchPartitionResponse:
    answer = FetchPartitionResponse(
        result.topic_partition.partition,
        result.error_code,
        result.high_watermark,
        result.last_stable_offset,
        result.log_start_offset,
    )
    # What is sent is a copy: the log may be cut before it arrives.
    answer.records = [memoryview(bytearray(b"".join(result.records)))] if result.records else []
    answer.diverging_epoch = result.diverging_epoch
    answer.diverging_end_offset = result.diverging_end_offset
    return answer


def _must(outcome: object) -> None:
    assert not isinstance(outcome, BrokerError), outcome
