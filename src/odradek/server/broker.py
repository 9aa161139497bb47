"""The composition root: builds the floors of one broker, wires them, starts and stops them.

No rule of Kafka's lives here. What is started is pushed on a stack together with its end, so
that a stop, and a start that fails half-way, undo exactly what was done, in reverse:

    threads, timer, addresses, metadata, logs, replicas and controller, registration, sockets

A client can connect only when everything below is ready; a stop closes the sockets first.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from itertools import chain
from operator import attrgetter
from random import Random, SystemRandom
from typing import Final

from odradek.background import InlineWorkers
from odradek.clock import Clock
from odradek.config import BrokerConfig
from odradek.config.features import TRANSACTION_VERSION
from odradek.controller import Controller, CreatableTopic, CreateTopicResult, ProducerIdManager
from odradek.errors import BrokerError, ErrorCode, LogDirFailure
from odradek.handlers.context import HandlerContext
from odradek.handlers.dispatcher import Dispatcher
from odradek.handlers.fetch_sessions import FetchSessionCache
from odradek.handlers.request import RequestObserver
from odradek.handlers.telemetry.client_metrics import ClientMetricsManager
from odradek.handlers.transactions.transaction_verification import TransactionVerification
from odradek.handlers.unpacking import Unpacking
from odradek.metadata.cache import MetadataCache
from odradek.metadata.embedded import SharedMetadata
from odradek.metadata.store import ListenerStage, MetadataStoreError
from odradek.model import EndPoint
from odradek.network import ListenerError, SocketServer, format_host_port
from odradek.purgatory import DelayedOperationPurgatory, WaitingOperation
from odradek.replication.follower.fetcher_manager import ReplicaFetcherManager
from odradek.replication.quota import ReplicationQuotas
from odradek.replication.replica_manager import ReplicaManager
from odradek.server.awaiting import outcome
from odradek.server.background import ThreadPoolBackground, ThreadWorkers
from odradek.server.controlled_shutdown import ControlledShutdown
from odradek.server.coordination.groups import GroupCoordination
from odradek.server.coordination.transactions import TransactionCoordination
from odradek.server.dice import random_uuid
from odradek.server.errors import StartError
from odradek.server.lifecycle import BrokerEvent, BrokerState, Lifecycle
from odradek.server.loading_report import LoadingReport
from odradek.server.metadata_store import (
    EmbeddedMetadata,
    ZooKeeperMetadata,
    embedded_metadata,
    zookeeper_metadata,
)
from odradek.server.network_settings import advertised_endpoints, network_limits
from odradek.server.observers import Observers
from odradek.server.peers.channels import PeerChannels
from odradek.server.peers.links import Links
from odradek.server.presence import Presence
from odradek.server.registration import Registration
from odradek.server.statistics import write_statistics
from odradek.storage.files import OsFileSystem
from odradek.storage.manager.log_manager import LogManager
from odradek.timer import AsyncioDriver, PeriodicTask, SystemTimer, TimerTask
from odradek.timer.system_timer import log_error

logger = logging.getLogger(__name__)

CREATE_TOPIC_TIMEOUT_MS: Final = 30_000
SLICE_TASKS: Final = 10_000


class BrokerServer:
    """A broker on the running event loop; `start`, serve, `stop`. All calls are the loop's.

    An ephemeral one keeps its metadata in memory and forces nothing to the disk. `on_halt` is
    what ends the process when the broker cannot go on; see `halt`. Without `dice` its ids are the
    operating system's randomness.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        *,
        dice: Random | None = None,
        observer: RequestObserver | None = None,
        ephemeral: bool = False,
        on_halt: Callable[[str], None] | None = None,
        shared: SharedMetadata | None = None,
        links: Links | None = None,
    ) -> None:
        self.config = config
        self.halted: str | None = None
        self._on_halt = on_halt
        self.lifecycle = Lifecycle()
        self.clock = clock
        self._dice = SystemRandom() if dice is None else dice
        self._new_uuid: Final = partial(random_uuid, self._dice)
        self._ephemeral = ephemeral
        self._observer = observer
        self._shared = shared
        self._links = links
        self._resources = AsyncExitStack()

    # --- start and stop -----------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when every listener accepts and every partition can be used.

        Raises:
            StartError: a port, the data directory or the metadata cannot be had; everything
                that was opened is closed again.
        """
        self.lifecycle.transition(BrokerEvent.START)
        try:
            await self._start()
        except BaseException as error:
            self.lifecycle.transition(BrokerEvent.FAIL)
            await self._close()
            if isinstance(error, ListenerError | MetadataStoreError | LogDirFailure | OSError):
                raise StartError(str(error)) from error
            raise
        self.lifecycle.transition(BrokerEvent.SERVE)
        self._halt_without_directories()

    async def stop(self) -> None:
        """Controlled shutdown: other brokers take over, answers given leave, logs are flushed
        and marked as clean."""
        self.lifecycle.transition(BrokerEvent.STOP)
        if self.config["controlled.shutdown.enable"] and self.halted is None:
            await self._hand_over()
        self.lifecycle.transition(BrokerEvent.LEAVE)
        await self._close()

    def halt(self, reason: str) -> None:
        """Ends the broker where it stands, as Kafka does when going on could do harm.

        Nothing is flushed or marked as clean, so the next start recovers. A broker that is a
        process ends by `on_halt`; one inside another program drops its clients, serves nothing
        any more, and its `stop` lets go of what it holds. Only the first reason counts.
        """
        if self.halted is not None:
            return
        self.halted = reason
        logger.critical("Halting: %s", reason)
        if self._on_halt is not None:
            self._on_halt(reason)
        if self.lifecycle.state is BrokerState.RUNNING:
            self.sockets.abort()

    def _on_broken_invariant(self, error: AssertionError) -> None:
        self.halt(f"a broken invariant: {error}")

    def _on_task_failed(self, task: TimerTask, error: Exception) -> None:
        log_error(task, error)
        if isinstance(error, AssertionError):
            self._on_broken_invariant(error)

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self.background = ThreadPoolBackground(loop, self._on_broken_invariant)
        self._resources.callback(self.background.close)
        self.timer = SystemTimer(self.clock, on_error=self._on_task_failed)
        self._start_timer()
        self.peers = PeerChannels(self.config, self.clock, self.timer, self._links, self.halt)
        self._build_metadata()
        self._build_storage()
        self._build_rules()
        self._build_network(loop)
        self.sockets.bind()
        self._resources.callback(self.sockets.stop_accepting)
        self.lifecycle.transition(BrokerEvent.RECOVER)
        self._load()
        await self.registration.begin()
        self._resources.push_async_callback(self.sockets.stop)
        await self.sockets.start()
        await self._await_metadata()

    async def _await_metadata(self) -> None:
        """Returns when the controller has told what there is, or has been silent for too long."""
        told = asyncio.Event()
        self.controller.await_metadata(self.config["controller.socket.timeout.ms"], told.set)
        await told.wait()
        if not self.metadata.is_told:
            logger.warning("No controller has told this broker of the cluster's metadata yet")

    async def _close(self) -> None:
        resources, self._resources = self._resources, AsyncExitStack()
        await resources.aclose()
        self.lifecycle.transition(BrokerEvent.END)

    # --- building -------------------------------------------------------------------------------

    def _start_timer(self) -> None:
        driver = AsyncioDriver(self.timer)
        driver.start()
        self._resources.callback(self.timer.close)
        self._resources.callback(driver.stop)

    def _build_metadata(self) -> None:
        os.makedirs(self.config.log_dirs[0], exist_ok=True)
        self.metadata = MetadataCache()
        self._source = self._open_source()
        self.store = self._source.store
        self.registration = Registration(
            self.store,
            self.metadata,
            self.config,
            self.timer,
            endpoints=self._advertised_endpoints,
            may_register=self._may_register,
            resign=lambda: self.replicas.resign(),
        )
        self._resources.push_async_callback(self.background.drain)
        if isinstance(self._source, ZooKeeperMetadata):
            self._resources.callback(self._source.plane.close)
        self._resources.callback(self.store.close)
        self._resources.callback(self.registration.close)

    def _open_source(self) -> EmbeddedMetadata | ZooKeeperMetadata:
        if self.config["zookeeper.connect"]:
            return zookeeper_metadata(
                self.config, self.metadata, self.clock, self.timer, self._dice, self.peers
            )
        return embedded_metadata(
            self.config,
            self.metadata,
            self.background,
            self._dice,
            self._shared,
            ephemeral=self._ephemeral,
        )

    def _build_storage(self) -> None:
        self.files = OsFileSystem(durable=not self._ephemeral)
        self.logs = LogManager(
            self.config.log_dirs,
            self.config,
            self.clock,
            self.timer,
            self.background,
            new_uuid=self._new_uuid,
            on_log_dir_failure=self._on_log_dir_failure,
            file_system=self.files,
            workers=InlineWorkers() if self._ephemeral else ThreadWorkers(),
        )

    def _build_rules(self) -> None:
        broker_id = self.config.broker_id
        self.topic_purgatory = DelayedOperationPurgatory("Topic", self.timer, broker_id)
        self.controller = Controller(
            self.store,
            self.metadata,
            self.config,
            broker_id,
            self.topic_purgatory,
            self._dice.randrange,
        )
        if self.config["auto.leader.rebalance.enable"]:
            balancing = PeriodicTask(
                self.timer,
                lambda: self.config["leader.imbalance.check.interval.seconds"] * 1000,
                self.controller.balance_leaders,
            )
            self._resources.callback(balancing.cancel)
        self.producer_ids = ProducerIdManager(self.store)
        quotas = ReplicationQuotas(broker_id, self.config, self.clock)
        self.store.subscribe(ListenerStage.REPLICAS, quotas.apply_delta)
        self.replicas = ReplicaManager(
            *(broker_id, self.config, self.clock, self.timer, self.logs, self.store),
            quotas.leader,
        )
        self.store.subscribe(ListenerStage.REPLICAS, self.replicas.apply_delta)
        self.fetchers = ReplicaFetcherManager(
            broker_id,
            self.config,
            self.timer,
            self.peers.to_replicate,
            self.replicas.partitions.find,
            self.replicas.on_committed,
            quotas.follower,
        )
        self.store.subscribe(ListenerStage.REPLICAS, self.fetchers.apply_delta)
        self.presence = Presence(lambda connection_id: self.sockets.has_open(connection_id))
        self.groups = GroupCoordination(
            self.config,
            self.clock,
            self.timer,
            self.replicas,
            self.metadata,
            self._new_uuid,
            self.presence.is_present,
        )
        self.store.subscribe(ListenerStage.COORDINATORS, self.groups.apply_delta)
        self.transactions = TransactionCoordination(
            self.config,
            self.clock,
            self.timer,
            self.replicas,
            self.metadata,
            self.groups.coordinator,
            self.producer_ids.next_id,
            self.peers.to_replicate,
            lambda: self.metadata.image.feature_level(TRANSACTION_VERSION),
        )
        self.store.subscribe(ListenerStage.COORDINATORS, self.transactions.apply_delta)

    def _build_network(self, loop: asyncio.AbstractEventLoop) -> None:
        self.fetch_sessions = FetchSessionCache(
            self.config["max.incremental.fetch.session.cache.slots"], self.clock
        )
        context = HandlerContext(
            broker_id=self.config.broker_id,
            apis=self._source.apis,
            config=self.config,
            clock=self.clock,
            metadata=self.metadata,
            controller=self.controller,
            replicas=self.replicas,
            groups=self.groups.coordinator,
            transactions=self.transactions.coordinator,
            transaction_writes=self.transactions.writes,
            markers=self.transactions.markers,
            before_append=(
                Unpacking(self.replicas, self.background, self.clock),
                # Last: what it finds holds only if the append follows at once.
                TransactionVerification(self.transactions.writes, self.replicas, self.config),
            ),
            producer_ids=self.producer_ids,
            fetch_sessions=self.fetch_sessions,
            client_metrics=ClientMetricsManager(
                self.metadata, self.clock, self.config["telemetry.max.bytes"], self._new_uuid
            ),
            log_manager=self.logs,
            observer=self._observer_of_requests(),
            controlled=self._source.controlled,
        )
        self.dispatcher = Dispatcher(context)
        self.sockets = SocketServer(
            self.config.listeners,
            self.dispatcher,
            self.clock,
            self.timer,
            network_limits(self.config, self.clock),
            loop,
        )
        self.config.subscribe(self._on_config)

    def _observer_of_requests(self) -> RequestObserver | None:
        """Who is there matters only where silence cannot be measured."""
        if self.clock.keeps_pace:
            return self._observer
        if self._observer is None:
            return self.presence
        return Observers(self.presence, self._observer)

    # --- starting what was built ----------------------------------------------------------------

    def _load(self) -> None:
        """Reads the metadata and opens the logs, recovering them if need be. Blocks."""
        image = self.store.load()
        self._resources.callback(self._shut_down_logs)
        self._resources.push_async_callback(self.background.drain)
        report = LoadingReport(self.clock)
        try:
            self.logs.start(
                report,
                cluster_id=image.cluster_id,
                node_id=self.config.broker_id,
            )
        except ValueError as error:
            raise StartError(str(error)) from error
        report.finish()
        self.logs.finish_deletions_of(self.store.deleted_topics)
        if not self.logs.offline_dirs:
            self.store.forget_deleted_topics()
        self._resources.callback(self._shut_down_rules)

    def _advertised_endpoints(self) -> list[EndPoint]:
        return advertised_endpoints(self.config, self.sockets.endpoints)

    def _may_register(self) -> bool:
        state = self.lifecycle.state
        return state in (BrokerState.RECOVERY, BrokerState.RUNNING) and self.halted is None

    async def _hand_over(self) -> None:
        source = self._source
        if isinstance(source, EmbeddedMetadata):
            await outcome(self.controller.hand_over)
            return
        shutdown = ControlledShutdown(
            self.config, self.metadata, self.timer, source.plane, source.controlled
        )
        await shutdown.run(self.registration.epoch)

    def _shut_down_rules(self) -> None:
        # No further step of compaction: the background has to come to an end.
        self.logs.cleaner.stop()
        if not self._ephemeral:
            write_statistics(self.config.log_dirs[0], self._purgatories())
        self.transactions.shutdown()
        self.groups.shutdown()
        self.fetchers.close()
        self.replicas.shutdown()
        self.topic_purgatory.shutdown()

    def _shut_down_logs(self) -> None:
        if self.halted is None:
            self.logs.shutdown(self.registration.epoch)
            return
        for directory in self.logs.directories:
            directory.release_lock()

    def _on_log_dir_failure(self, directory: str) -> None:
        self.replicas.on_log_dir_failure(directory)
        if self.lifecycle.state is BrokerState.RUNNING:
            self._halt_without_directories()

    def _halt_without_directories(self) -> None:
        if not self.logs.has_working_directory:
            failed = ", ".join(self.config.log_dirs)
            self.halt(f"every log directory has failed: {failed}")

    def _on_config(self, _names: frozenset[str]) -> None:
        self.sockets.limit(network_limits(self.config, self.clock))

    # --- for those who hold the broker ----------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of the first listener, as clients take it."""
        endpoint = self._advertised_endpoints()[0]
        return format_host_port(endpoint.host, endpoint.port)

    @property
    def embedded(self) -> EmbeddedMetadata:
        """The metadata of a broker that keeps it in this process."""
        assert isinstance(self._source, EmbeddedMetadata), "this broker's metadata is elsewhere"
        return self._source

    @property
    def cluster_id(self) -> str:
        """The id of the cluster."""
        return self.metadata.image.cluster_id

    def waiting(self) -> list[WaitingOperation]:
        """Everything that waits in this broker, the longest waiting first."""
        found = chain.from_iterable(one.waiting() for one in self._purgatories())
        return sorted(found, key=attrgetter("since_ms"))

    def _purgatories(self) -> tuple[DelayedOperationPurgatory, ...]:
        return (
            *self.replicas.purgatories,
            *self.groups.purgatories,
            *self.transactions.purgatories,
            self.topic_purgatory,
        )

    async def create_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """Creates a topic; when this returns it can be appended to.

        Raises:
            BrokerError: it cannot be created.
        """
        await self.create(CreatableTopic(name, partitions, configs=config))

    async def create(self, wish: CreatableTopic) -> None:
        """Creates a topic in every detail; raises as `create_topic`."""
        results: list[CreateTopicResult] = await outcome(
            lambda on_done: self.controller.create_topics([wish], CREATE_TOPIC_TIMEOUT_MS, on_done)
        )
        if results[0].error_code != ErrorCode.NONE:
            raise BrokerError(results[0].error_code, results[0].message or "")

    async def finish_due_work(self) -> None:
        """Runs what is due, and returns when no work is under way in the background."""
        # In slices: on a clock that runs away, upkeep may be due again as soon as it is done.
        self.timer.advance(0, SLICE_TASKS)
        await self.background.idle()

    @property
    def is_at_rest(self) -> bool:
        """Whether there is nothing to do until a client or the clock goes on; see `settling`."""
        return self.timer.is_idle and self.background.is_idle and self.sockets.is_at_rest
