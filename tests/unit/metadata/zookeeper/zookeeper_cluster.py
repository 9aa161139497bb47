"""Stores of several brokers over one ZooKeeper, and a control plane from memory to memory."""

from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Any

from tests.outcomes import whatever
from tests.unit.metadata.fake_replicas import FakeLog, FakeReplicas
from tests.unit.metadata.zookeeper.zookeeper_tree import Tree, TreeClient

from odradek.clock import ManualClock
from odradek.config import BrokerConfig
from odradek.controller import Controller
from odradek.controller.elected.elected_controller import ElectedController
from odradek.controller.zookeeper_store import ZooKeeperMetadataStore
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.replicas.control_connections import ControlConnections
from odradek.metadata import ListenerStage, MetadataCache, MetadataDelta
from odradek.metadata.control import (
    AlterPartition,
    ControlPlane,
    LeaderAndIsr,
    StopReplica,
    UpdateMetadata,
)
from odradek.metadata.image import BrokerRegistration, MetadataImage, PartitionImage, TopicImage
from odradek.metadata.zookeeper import znodes
from odradek.model import EndPoint, TopicPartition
from odradek.purgatory import DelayedOperationPurgatory
from odradek.replication.quota import ReplicationQuotas
from odradek.timer import SystemTimer


class Plane(ControlPlane):
    """Calls the other broker's store in its turn; who does not live refuses, and who stands still
    leaves whoever asks without an answer."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self.sent: list[tuple[int, Any]] = []
        self._connections: Counter[int] = Counter()

    def leader_and_isr(
        self, broker: BrokerRegistration, request: LeaderAndIsr, on_done: Any
    ) -> None:
        self._send(broker, request, "on_leader_and_isr", (request,), on_done)

    def update_metadata(
        self, broker: BrokerRegistration, request: UpdateMetadata, on_done: Any
    ) -> None:
        self._send(broker, request, "on_update_metadata", (request,), on_done)

    def stop_replica(self, broker: BrokerRegistration, request: StopReplica, on_done: Any) -> None:
        self._send(broker, request, "on_stop_replica", (request,), on_done)

    def alter_partition(
        self, controller: BrokerRegistration, request: AlterPartition, on_done: Any
    ) -> None:
        self._send(controller, request, "on_alter_partition", (request,), on_done)

    def controlled_shutdown(
        self, controller: BrokerRegistration, broker_id: int, broker_epoch: int, on_done: Any
    ) -> None:
        arguments = (broker_id, broker_epoch)
        self._send(controller, None, "on_controlled_shutdown", arguments, on_done)

    def close(self) -> None:
        """Holds no log."""

    def _send(
        self,
        broker: BrokerRegistration,
        request: Any,
        operation: str,
        arguments: tuple[Any, ...],
        on_done: Callable[[Any], None],
    ) -> None:
        self.sent.append((broker.id, request))
        turns = self._cluster.turns_of(broker.id)
        is_over = False

        def answer(outcome: Any) -> None:
            nonlocal is_over
            assert not is_over, f"{operation} was answered twice"
            is_over = True
            if isinstance(outcome, BrokerError) and outcome.code is ErrorCode.NETWORK_EXCEPTION:
                self._connections[broker.id] += 1
            turns.append(lambda: on_done(outcome))

        def deliver() -> None:
            hand_over(self._connections[broker.id], answer)

        def hand_over(number: int, on_answer: Callable[[Any], None]) -> None:
            target = self._cluster.brokers.get(broker.id)
            if target is not None and target.is_paused:
                return
            if target is None or target.is_deaf:
                on_answer(BrokerError(ErrorCode.NETWORK_EXCEPTION))
            elif self._cluster.is_late():
                on_answer(BrokerError(ErrorCode.NETWORK_EXCEPTION))
                self._cluster.late.append((broker.id, lambda: hand_over(number, whatever)))
            elif not target.is_late(request, number):
                getattr(target.store, operation)(*arguments, on_answer)

        turns.append(deliver)


class Broker:
    """A store of one broker, its real controller and quotas, and replicas that have no logs."""

    def __init__(
        self,
        cluster: "Cluster",
        broker_id: int,
        zookeeper: TreeClient,
        broken: list[Exception],
        *,
        unclean: bool,
    ) -> None:
        self.id = broker_id
        self.cluster = cluster
        self.zookeeper = zookeeper
        self.cache = MetadataCache()
        self.plane = Plane(cluster)
        self.connections = ControlConnections()
        self.is_deaf = False
        self.is_paused = False
        self.is_missing_logs = False
        self.losses = 0
        self.leads: set[TopicPartition] = set()
        self.hosts: set[TopicPartition] = set()
        self.largest_step = 0
        self.raises: Exception | None = None
        self.broken = broken
        self.store = ZooKeeperMetadataStore(
            self.cache,
            broker_id,
            zookeeper,
            self.plane,
            cluster.timer,
            cluster.clock,
            cluster.random.randbytes,
            self.broken.append,
            ids_in_logs=lambda: self.replicas.topic_ids,
            is_missing_logs=lambda: self.is_missing_logs,
            keeps_acls=cluster.keeps_acls,
            keeps_tokens=cluster.keeps_tokens,
        )
        self.store.on_session_lost(self._lost)
        config = BrokerConfig({"unclean.leader.election.enable": str(unclean)})
        logs = cluster.logs.setdefault(broker_id, {})
        self.replicas = FakeReplicas(broker_id, config, logs, self._on_deleted)
        self.unserved = self.replicas.unserved
        self.removed = self.replicas.removed
        self.store.subscribe(ListenerStage.REPLICAS, self._apply)
        self.quotas = ReplicationQuotas(broker_id, config, cluster.clock)
        self.store.subscribe(ListenerStage.REPLICAS, self.quotas.apply_delta)
        self.controller = Controller(
            self.store,
            self.cache,
            config,
            broker_id,
            DelayedOperationPurgatory("Topic", cluster.timer),
            cluster.random.randrange,
        )
        self.store.load()

    @property
    def image(self) -> MetadataImage:
        return self.cache.image

    @property
    def elected(self) -> ElectedController | None:
        """From its election on, before it has read anything."""
        return self.store._election.controller

    def has_commanded(self, controller_epoch: int) -> bool:
        headers = [request.header for _, request in self.plane.sent if hasattr(request, "header")]
        return any(each.controller_epoch == controller_epoch for each in headers)

    def is_late(self, request: Any, number: int) -> bool:
        """See `handlers.replicas.control_values`."""
        if not isinstance(request, LeaderAndIsr | UpdateMetadata | StopReplica):
            return False
        epoch = request.header.controller_epoch
        return self.connections.is_earlier(epoch, number)

    def expire(self) -> None:
        self.zookeeper.expire()

    def pause(self) -> None:
        """Stands still from here on, and answers nobody."""
        self.is_paused = True
        self.zookeeper.is_connected = False
        self.cluster.turns_of(self.id).clear()

    def close(self) -> None:
        del self.cluster.brokers[self.id]
        self.store.close()

    def register(self) -> Any:
        endpoints = (EndPoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9000 + self.id),)
        return self.ask("register_broker", self.id, endpoints, None)

    def begin(self, operation: str, *arguments: Any) -> list[Any]:
        """Where the answer will be."""
        answers: list[Any] = []
        getattr(self.store, operation)(*arguments, answers.append)
        return answers

    def ask(self, operation: str, *arguments: Any) -> Any:
        answers = self.begin(operation, *arguments)
        self.cluster.settle()
        assert len(answers) == 1, f"{operation} was answered {len(answers)} times"
        return answers[0]

    def state(self, topic: str = "a", index: int = 0) -> PartitionImage:
        partition = self.image.partition(TopicPartition(topic, index))
        assert partition is not None
        return partition

    def _lost(self) -> None:
        self.losses += 1
        self.leads.clear()

    def _apply(self, delta: MetadataDelta) -> list[TopicPartition]:
        if self.raises is not None:
            raise self.raises
        if delta.are_deleted:
            for topic in delta.topics_removed:
                self._check_deleted(topic)
        states = {TopicPartition(t.name, p.partition): p for t, p in delta.partitions()}
        concerned = states.keys()
        self.largest_step = max(self.largest_step, len(states))
        self.leads -= concerned
        self.hosts.update(each for each, state in states.items() if self.id in state.replicas)
        self.leads.update(each for each, state in states.items() if state.leader == self.id)
        return self.replicas.apply_delta(delta)

    def _on_deleted(self, where: TopicPartition, log: FakeLog) -> None:
        self.cluster.on_log_deleted(self.id, where, log)

    def _check_deleted(self, topic: TopicImage) -> None:
        """Code that forgets what belongs to a topic must know that it is no more."""
        tree = self.cluster.tree
        path = znodes.topic_path(topic.name)
        if path in tree.entries and znodes.deletion_path(topic.name) not in tree.entries:
            there = znodes.read_topic(topic.name, tree.entries[path].data).topic_id
            assert there != topic.topic_id, f"broker {self.id} takes {topic.name} for deleted"


class Cluster:
    """Brokers over one tree; nothing happens but in `settle` and `step`."""

    def __init__(
        self,
        count: int = 0,
        *,
        seed: int = 0,
        unclean: bool = False,
        keeps_acls: bool = False,
        keeps_tokens: bool = False,
    ) -> None:
        self.keeps_acls = keeps_acls
        self.keeps_tokens = keeps_tokens
        self.random = Random(seed)
        self.clock = ManualClock(wall_ms=1_000)
        self.timer = SystemTimer(self.clock)
        self.tree = Tree(self.random, self.timer)
        self.brokers: dict[int, Broker] = {}
        self.logs: dict[int, dict[TopicPartition, FakeLog]] = {}
        self.on_log_deleted: Callable[[int, TopicPartition, FakeLog], None] = whatever
        self.chance_of_late_requests = 0.0
        self.late: list[tuple[int, Callable[[], None]]] = []
        """Requests whose connections have ended before their brokers read them, which they do yet
        (`read_late`)."""
        self._unclean = unclean
        self._turns: dict[int, deque[Callable[[], None]]] = {}
        for broker_id in range(1, count + 1):
            self.start(broker_id)

    def start(self, broker_id: int) -> Broker:
        broker = self.add(broker_id)
        registered = broker.register()
        assert isinstance(registered, BrokerRegistration), registered
        assert broker.ask("sync") is None
        return broker

    def add(self, broker_id: int) -> Broker:
        broken: list[Exception] = []
        client = TreeClient(self.tree, broken.append)
        broker = Broker(self, broker_id, client, broken, unclean=self._unclean)
        self.brokers[broker_id] = broker
        return broker

    def stop(self, broker_id: int) -> None:
        self.brokers.pop(broker_id).store.close()
        self.settle()

    def is_late(self) -> bool:
        """Whether a request is read after its connection has ended; a history without such ones
        is the same as ever."""
        chance = self.chance_of_late_requests
        return chance > 0 and self.random.random() < chance

    def read_late(self) -> None:
        late, self.late = self.late, []
        for broker_id, deliver in late:
            self.turns_of(broker_id).append(deliver)

    def turns_of(self, broker_id: int) -> deque[Callable[[], None]]:
        if broker_id not in self._turns:
            self._turns[broker_id] = deque()
            self.tree.others.append(self._turns[broker_id])
        return self._turns[broker_id]

    def settle(self, rounds: int = 20) -> None:
        """Until nothing is left to do now, and what is tried again has been; fails where something
        is tried as fast as it can be."""
        for _ in range(rounds):
            self.tree.run()
            self.clock.advance(50)
            self.timer.advance_clock(0)
        self.tree.run()
        for broker in self.brokers.values():
            assert broker.raises is not None or not broker.broken, broker.broken

    @property
    def controller(self) -> Broker:
        (controller,) = [b for b in self.brokers.values() if b.image.controller_id == b.id]
        return controller
