"""The composition root: builds the floors of one broker, wires them, starts and stops them.

No rule of Kafka's lives here. Each started part is pushed on a stack together with its end, so a
stop, and a start that fails half-way, undo exactly what was done, in reverse:

    threads, timer, addresses, metadata, logs, replicas and controller, registration, sockets

A client can connect only when everything below is ready; a stop closes the sockets first.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from itertools import chain
from operator import attrgetter
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Final

from odradek.background import InlineWorkers
from odradek.client.security import NO_SECURITY, ClientSecurity
from odradek.clock import Clock
from odradek.config import BrokerConfig
from odradek.controller import Controller, ProducerIdManager
from odradek.errors import LogDirFailure
from odradek.handlers.context import HandlerContext
from odradek.handlers.dispatcher import Dispatcher
from odradek.handlers.records.fetch_sessions import FetchSessionCache
from odradek.handlers.records.gathered_appends import GatheredAppends
from odradek.handlers.records.parked_fetches import ParkedFetches
from odradek.handlers.records.produce import steps_before_append
from odradek.handlers.request import RequestObserver
from odradek.handlers.request_metrics import RequestMetrics
from odradek.handlers.share.share_sessions import ShareSessionCache
from odradek.handlers.transactions.transaction_verification import TransactionVerifier
from odradek.metadata.cache import MetadataCache
from odradek.metadata.sqlite import SharedMetadata
from odradek.metadata.store import ListenerStage, MetadataStoreError
from odradek.metrics import Histogram
from odradek.model import EndPoint
from odradek.network import ListenerError, SocketServer, format_host_port
from odradek.purgatory import DelayedOperationPurgatory, WaitingOperation
from odradek.replication.follower.fetcher_manager import ReplicaFetcherManager
from odradek.replication.quota import ReplicationQuotas
from odradek.replication.replica_manager import ReplicaManager
from odradek.server.access.authorization import Authorization
from odradek.server.access.client_quotas import ClientQuotas
from odradek.server.access.delegation_tokens import delegation_tokens, removal_of_expired
from odradek.server.awaiting import outcome
from odradek.server.background import ThreadPoolBackground, ThreadWorkers
from odradek.server.client_metrics import client_metrics_manager, with_telemetry
from odradek.server.controlled_shutdown import ControlledShutdown
from odradek.server.coordination.coordinators import Coordinators
from odradek.server.errors import StartError, start_error
from odradek.server.lifecycle import BrokerEvent, BrokerState, Lifecycle
from odradek.server.loading_report import start_logs
from odradek.server.metadata_store import (
    EmbeddedMetadata,
    ZooKeeperMetadata,
    embedded_metadata,
    zookeeper_metadata,
)
from odradek.server.network_settings import advertised_endpoints, network_limits
from odradek.server.observers import Observers
from odradek.server.peers.channels import PeerChannels
from odradek.server.presence import Presence
from odradek.server.randomness import random_uuid
from odradek.server.registration import Registration
from odradek.server.statistics import write_statistics
from odradek.storage.files import OsFileSystem
from odradek.storage.manager.log_manager import LogManager
from odradek.timer import AsyncioDriver, PeriodicTask, SystemTimer, TimerTask
from odradek.timer.system_timer import log_error

if TYPE_CHECKING:
    from odradek.security.scram_users import NewUser
    from odradek.server.monitoring.monitoring import Monitoring
    from odradek.server.peers.links import Links
    from odradek.server.security.listeners import ListenersSecurity

logger = logging.getLogger(__name__)

SLICE_TASKS: Final = 10_000


class BrokerServer:
    """A broker on the running event loop; `start`, serve, `stop`. All calls are the loop's.

    An ephemeral one keeps its metadata in memory and forces nothing to the disk. `on_halt` ends the
    process when the broker cannot continue; see `halt`. Without `rng` its ids are the operating
    system's randomness. `scram_users` can log in from the start. A broker that `is_counted` keeps
    metrics even if no listener serves them.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        *,
        rng: Random | None = None,
        observer: RequestObserver | None = None,
        ephemeral: bool = False,
        on_halt: Callable[[str], None] | None = None,
        shared: SharedMetadata | None = None,
        links: "Links | None" = None,
        scram_users: Sequence["NewUser"] = (),
        is_counted: bool = False,
    ) -> None:
        self.config = config
        self.halted: str | None = None
        self._on_halt = on_halt
        self.lifecycle = Lifecycle()
        self.clock = clock
        self._rng = SystemRandom() if rng is None else rng
        self._new_uuid: Final = partial(random_uuid, self._rng)
        self._ephemeral = ephemeral
        self._observer = observer
        self._shared = shared
        self._links = links
        self._scram_users = scram_users
        # Counting costs time: a broker that exposes no metrics does not count.
        self._is_counted = is_counted or config["metrics.listener"] is not None
        self._requests: RequestMetrics | None = None
        self._monitoring: Monitoring | None = None
        self.lateness: Final = Histogram()
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
            if self.halted is not None:
                raise StartError(self.halted)
        except BaseException as error:
            self.lifecycle.transition(BrokerEvent.FAIL)
            await self._close()
            if isinstance(error, ListenerError | MetadataStoreError | LogDirFailure | OSError):
                raise start_error(error) from error
            raise
        self.lifecycle.transition(BrokerEvent.SERVE)
        self._halt_without_directories()

    async def stop(self) -> None:
        """Controlled shutdown: other brokers take over, answers given leave, logs are flushed and
        marked as clean. A cancellation only ends the handing over."""
        self.lifecycle.transition(BrokerEvent.STOP)
        try:
            if self.config["controlled.shutdown.enable"] and self.halted is None:
                await self._hand_over()
        finally:
            self.lifecycle.transition(BrokerEvent.LEAVE)
            await self._close()

    def halt(self, reason: str, *, on_purpose: bool = False) -> None:
        """Ends the broker at once, as Kafka does when continuing could do harm.

        Nothing is flushed or marked as clean, so the next start recovers. A broker that is a
        process ends by `on_halt`; one inside another program drops its clients, serves nothing any
        more, and its `stop` releases its resources. Only the first reason counts. A halt
        `on_purpose`, by a test, is logged as information.
        """
        if self.halted is not None:
            return
        self.halted = reason
        logger.log(logging.INFO if on_purpose else logging.CRITICAL, "Halting: %s", reason)
        if self._on_halt is not None:
            self._on_halt(reason)
        if self.lifecycle.state is BrokerState.RUNNING:
            self.sockets.abort()

    def _on_broken_invariant(self, error: AssertionError) -> None:
        self.halt(f"a broken invariant: {error}")

    def _on_broken_metadata(self, error: Exception) -> None:
        """Also closes the store, so that the session ends and the others see this broker as
        dead."""
        logger.error("a listener of the metadata has raised", exc_info=error)
        self.halt(f"a broken invariant: {error!r}")
        asyncio.get_running_loop().call_soon(self.store.close)

    def _on_task_failed(self, task: TimerTask, error: BaseException) -> None:
        log_error(task, error)
        if isinstance(error, AssertionError):
            self._on_broken_invariant(error)

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self.background = ThreadPoolBackground(loop, self._on_broken_invariant)
        self._resources.callback(self.background.close)
        self.timer = SystemTimer(self.clock, on_error=self._on_task_failed)
        self._start_timer()
        self._security = self._make_security()
        self.peers = PeerChannels(
            *(self.config, self.clock, self.timer, self._links, self.halt, self._to_brokers)
        )
        self._build_metadata()
        self._build_storage()
        self._build_rules()
        self._build_network(loop)
        self._build_registration()
        self.sockets.bind()
        self._resources.callback(self.sockets.stop_accepting)
        self.lifecycle.transition(BrokerEvent.RECOVER)
        self._load()
        await self.registration.begin()
        if self._scram_users:
            from odradek.server.security.first_users import add_users

            await add_users(self.controller, self._scram_users, self._rng.randbytes)
        self._resources.push_async_callback(self.sockets.stop)
        await self.sockets.start()
        await self._await_metadata()
        if self.config["metrics.listener"] is not None:
            await self.monitoring.serve(self.config["metrics.listener"])
            self._resources.push_async_callback(self.monitoring.stop)

    async def _await_metadata(self) -> None:
        """Returns when the controller has sent the metadata, or has been silent for too long."""
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

    def _make_security(self) -> "ListenersSecurity | None":
        """Makes the protection of the listeners. If there is none, nothing of it is imported."""
        if all(each.security_protocol == "PLAINTEXT" for each in self.config.listeners):
            return None
        from odradek.security.scram_users import scram_credential
        from odradek.server.security.listeners import ListenersSecurity
        from odradek.server.security.logins import ScramCredentials

        config = self.config
        has_peers = self._links is not None or config["zookeeper.connect"]
        security = ListenersSecurity(
            *(config, self.clock, self.timer, self.background),
            ScramCredentials(
                lambda mechanism, user: scram_credential(self.metadata.image, mechanism, user),
                lambda mechanism, token_id: (
                    self.tokens.credential(mechanism, token_id) if self.tokens is not None else None
                ),
            ),
            self._rng.randbytes,
            {config.inter_broker_listener_name, config.control_plane_listener_name}
            if has_peers
            else (),
        )
        self._resources.callback(security.close)
        return security

    def _to_brokers(self, listener_name: str) -> ClientSecurity:
        return NO_SECURITY if self._security is None else self._security.to_brokers(listener_name)

    def _build_metadata(self) -> None:
        os.makedirs(self.config.log_dirs[0], exist_ok=True)
        self.metadata = MetadataCache()
        self._authorization = Authorization(self.config, self.metadata)
        self._source = self._open_source()
        self.store = self._source.store
        self.acl_control = self._authorization.control(self.store)
        self._resources.push_async_callback(self.background.drain)
        if isinstance(self._source, ZooKeeperMetadata):
            self._resources.callback(self._source.plane.close)
        self._resources.callback(self.store.close)

    def _open_source(self) -> EmbeddedMetadata | ZooKeeperMetadata:
        if self.config["zookeeper.connect"]:
            return zookeeper_metadata(
                *(self.config, self.metadata, self.clock, self.timer, self._rng, self.peers),
                self._on_broken_metadata,
                lambda: self.logs,
            )
        return embedded_metadata(
            self.config,
            self.metadata,
            self.background,
            self._rng,
            self._shared,
            self._on_broken_metadata,
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
            self._rng.randrange,
        )
        if self.config["auto.leader.rebalance.enable"]:
            balancing = PeriodicTask(
                self.timer,
                lambda: self.config["leader.imbalance.check.interval.seconds"] * 1000,
                self.controller.balance_leaders,
            )
            self._resources.callback(balancing.cancel)
        self._build_tokens()
        self.producer_ids = ProducerIdManager(self.store, self.timer)
        quotas = ReplicationQuotas(broker_id, self.config, self.clock)
        self.store.subscribe(ListenerStage.REPLICAS, quotas.apply_delta)
        self.replicas = ReplicaManager(
            broker_id,
            self.config,
            self.clock,
            self.timer,
            self.logs,
            self.store,
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
        self.coordinators = Coordinators(
            self.config,
            self.clock,
            self.timer,
            self.metadata,
            self.store,
            self.controller,
            self.producer_ids,
            self.replicas,
            self.peers,
            self._new_uuid,
            self.presence.is_present,
        )

    def _build_tokens(self) -> None:
        self.tokens = delegation_tokens(
            *(self.config, self.clock, self.metadata, self.controller, self._rng.randbytes)
        )
        if self.tokens is not None:
            removal = removal_of_expired(self.tokens, self.config, self.timer, self.metadata)
            self._resources.callback(removal.cancel)

    def _build_network(self, loop: asyncio.AbstractEventLoop) -> None:
        coordinators = self.coordinators
        self.fetch_sessions = FetchSessionCache(
            self.config["max.incremental.fetch.session.cache.slots"], self.clock
        )
        self.parked_fetches = ParkedFetches()
        self.client_metrics = client_metrics_manager(
            self.config, self.metadata, self.clock, self.background, self._new_uuid
        )
        verifier = TransactionVerifier(
            coordinators.transactions.writes, self.replicas.producers, self.config, self.clock
        )
        context = HandlerContext(
            broker_id=self.config.broker_id,
            apis=self._authorization.guarded(with_telemetry(self._source.apis, self.config)),
            acls=self.acl_control,
            tokens=self.tokens,
            config=self.config,
            clock=self.clock,
            metadata=self.metadata,
            controller=self.controller,
            replicas=self.replicas,
            groups=coordinators.groups.coordinator,
            transactions=coordinators.transactions.coordinator,
            verifier=verifier,
            markers=coordinators.transactions.markers,
            before_append=steps_before_append(
                self.replicas,
                verifier,
                self.background,
                self.clock,
                self.timer,
                self.config,
                coordinators.schedules,
            ),
            share_states=coordinators.share_states.coordinator,
            share_groups=coordinators.groups.share_groups,
            share_partitions=coordinators.share_partitions,
            share_sessions=ShareSessionCache(
                self.config["group.share.max.share.sessions"], coordinators.share_partitions
            ),
            producer_ids=self.producer_ids,
            fetch_sessions=self.fetch_sessions,
            parked_fetches=self.parked_fetches,
            background=self.background,
            client_metrics=self.client_metrics,
            gathered=GatheredAppends(self.replicas.append_records),
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
            {} if self._security is None else self._security.by_listener,
        )
        quotas = ClientQuotas(
            self.config, self.clock, self.dispatcher.charge, self.sockets.address_rates.limit
        )
        self.metadata.on_published(quotas.apply)
        self.config.subscribe(self._on_config)

    def _build_registration(self) -> None:
        self.registration = Registration(
            *(self.store, self.metadata, self.config, self.timer),
            endpoints=self._advertised_endpoints,
            may_register=self._may_register,
            resign=self.replicas.resign,
            on_broken=self._on_broken_metadata,
        )
        self._resources.callback(self.registration.close)

    def _observer_of_requests(self) -> RequestObserver | None:
        """Chooses the observer of requests: presence matters only where silence cannot be
        measured."""
        observers: list[RequestObserver] = [] if self.clock.keeps_pace else [self.presence]
        if self._observer is not None:
            observers.append(self._observer)
        if self._is_counted:
            self._requests = RequestMetrics(
                self.clock, self._source.apis, self.replicas.traffic.fold
            )
            self.replicas.traffic.begin()
            self.timer.on_ran = self.lateness.update
            observers.append(self._requests)
        return observers[0] if len(observers) == 1 else Observers(*observers) if observers else None

    # --- starting what was built ----------------------------------------------------------------

    def _load(self) -> None:
        """Reads the metadata and opens the logs, recovering them if need be. Blocks."""
        image = self.store.load()
        self._resources.callback(self._shut_down_logs)
        self._resources.push_async_callback(self.background.drain)
        start_logs(self.logs, self.clock, image.cluster_id, self.config.broker_id)
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
        # Compaction would keep the background busy.
        self.logs.cleaner.stop()
        if not self._ephemeral:
            write_statistics(self.config.log_dirs[0], self.purgatories())
        self.coordinators.shutdown()
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

    # --- for the holder of the broker -----------------------------------------------

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
    def monitoring(self) -> "Monitoring":
        """The metrics of a broker that counts them."""
        assert self._requests is not None, "nothing is counted here"
        if self._monitoring is None:
            from odradek.server.monitoring.monitoring import Monitoring

            self._monitoring = Monitoring(self, self._requests)
        return self._monitoring

    def throttled_clients(self) -> list[tuple[str, int]]:
        """The clients that quotas hold back, and for how many milliseconds yet; known where
        requests are counted."""
        requests = self._requests
        return [] if requests is None else requests.throttled(self.clock.monotonic_ms())

    @property
    def metrics_url(self) -> str:
        """The address of the metrics; empty if they are not served."""
        return "" if self._monitoring is None else self._monitoring.url

    @property
    def cluster_id(self) -> str:
        """The id of the cluster."""
        return self.metadata.image.cluster_id

    def waiting(self) -> list[WaitingOperation]:
        """Everything that waits in this broker, the longest waiting first."""
        found = chain.from_iterable(one.waiting() for one in self.purgatories())
        return sorted(found, key=attrgetter("since_ms"))

    def purgatories(self) -> tuple[DelayedOperationPurgatory, ...]:
        """The purgatories of requests and members."""
        return (
            *self.replicas.purgatories,
            *self.coordinators.purgatories,
            self.topic_purgatory,
        )

    async def finish_due_work(self) -> None:
        """Runs what is due, and returns when no work is under way in the background."""
        # In slices: on a clock that runs away, upkeep may be due again as soon as it is done.
        self.timer.advance(0, SLICE_TASKS)
        await self.background.idle()

    @property
    def is_at_rest(self) -> bool:
        """Whether there is nothing to do until a client sends or the clock moves; see
        `settling`."""
        return self.timer.is_idle and self.background.is_idle and self.sockets.is_at_rest
