"""`odradek.Cluster`: several brokers inside the process that uses them, on one clock.

They share one memory of metadata instead of a ZooKeeper, and replicate over real sockets with the
requests that brokers of several machines would send. All run on one event loop, in a separate
thread with `with`, on the running loop with `async with`. Faults come on command: brokers stop, die
and come back, and the network between two of them is cut.

The records of each broker are in its own folder, which outlives the broker and is removed with the
cluster. Nothing is flushed to disk: it tests replication, not power cuts.
"""

import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final, Never, Self, TypeVar

from odradek.acl import AclBinding
from odradek.background import InlineBackground
from odradek.clock import Clock
from odradek.config import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerConfig
from odradek.controller import CreatableTopic
from odradek.errors import BrokerError, ErrorCode
from odradek.event_loop import waits_for
from odradek.metadata.image import PartitionImage
from odradek.metadata.sqlite import SharedMetadata
from odradek.metadata.store import PartitionChange
from odradek.model import TopicPartition
from odradek.purgatory import WaitingOperation
from odradek.server.awaiting import outcome
from odradek.server.broker import BrokerServer
from odradek.server.faults import FaultBoard
from odradek.server.in_process.arguments.acl_texts import read_acls
from odradek.server.in_process.arguments.kinds import (
    check_broker_count,
    check_seed,
    clock_of,
    texts_of,
    whole,
)
from odradek.server.in_process.arguments.quota_texts import read_quotas
from odradek.server.in_process.arguments.settings import (
    TEST_DEFAULTS,
    check_ports,
    check_settings,
    check_topic_settings,
    refuse_arguments,
    refuse_settings,
    setting_texts,
    with_authorizer,
)
from odradek.server.in_process.broker import bound_listeners, protection_of
from odradek.server.in_process.calls.broker_calls import Pause
from odradek.server.in_process.calls.broker_helpers import BrokerHelpers
from odradek.server.in_process.calls.fault_calls import FaultCalls
from odradek.server.in_process.calls.making import create_acls, create_topic, set_quotas
from odradek.server.in_process.calls.running_brokers import partition_of
from odradek.server.in_process.kept_logs import KeptLogs
from odradek.server.in_process.last_errors import LastErrors
from odradek.server.in_process.loop_calls import RUNNING
from odradek.server.in_process.own_thread import RUNS_ALREADY, OwnThread
from odradek.server.in_process.protected.secret import hide_passwords
from odradek.server.in_process.scratch import Scratch
from odradek.server.in_process.shown import topics_in_words
from odradek.server.peers.links import Links
from odradek.server.randomness import rng_of
from odradek.suggestions import name_of

if TYPE_CHECKING:
    from odradek.server.in_process.protected.login import Login

T = TypeVar("T")

_DECIDED: Final = {
    "log.dirs": "each broker has its own folder, which is removed with the cluster",
    "log.dir": "each broker has its own folder, which is removed with the cluster",
    "broker.id": "brokers have the numbers from 1 on",
}
_USUAL_REPLICAS: Final = 3
# Without security= brokers have no other name than clients.
UNPROTECTED_BROKERS: Final = "User:ANONYMOUS cluster-action cluster"


class ClusterBroker:
    """One broker of a `Cluster`: stopped and started alone, it keeps its port and its records."""

    def __init__(
        self, cluster: "Cluster", broker_id: int, settings: Mapping[str, str], rng: Random
    ) -> None:
        self.id: Final = broker_id
        self._cluster: Final = cluster
        self._rng: Final = rng
        self._settings: Final = dict(settings)
        self._server: BrokerServer | None = None
        self.kept_logs: Final = KeptLogs()

    def __repr__(self) -> str:
        state = "stopped" if self._server is None else self.bootstrap_servers
        return f"<broker {self.id} of a cluster, {state}>"

    @property
    def is_running(self) -> bool:
        """Whether the broker has been started, and neither stopped nor killed since."""
        return self._server is not None

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of this broker alone."""
        return self.server.bootstrap_servers

    @property
    def server(self) -> BrokerServer:
        """The running broker, for a closer look.

        Raises:
            RuntimeError: it does not run.
        """
        if self._server is None:
            raise RuntimeError(f"broker {self.id} is not running")
        return self._server

    def pause(self) -> Pause:
        """Makes this broker stand still; see `Cluster.pause`, which does it to all."""
        self._cluster.call(lambda: self.server.sockets.pause())
        return Pause(self.resume)

    def resume(self) -> None:
        """Ends `pause`."""
        self._cluster.call(lambda: self.server.sockets.resume())

    async def start_async(self) -> None:
        """Starts the broker again."""
        self._cluster.check_process()
        if self._server is not None:
            return
        self.kept_logs.check()
        server = self._cluster.make_server(self._settings, self._rng)
        await server.start()
        self.kept_logs.forget()
        self._server = server
        self._cluster.on_started(server)
        # It comes back where clients have learnt to find it.
        self._settings["listeners"] = bound_listeners(server)

    start = waits_for(start_async)

    async def stop_async(self) -> None:
        """Stops the broker in good order: others take over first."""
        server = self._leave()
        if server is not None:
            await server.stop()

    stop = waits_for(stop_async)

    async def kill_async(self) -> None:
        """Ends the broker where it stands, as `kill -9` would. The others notice at once."""
        server = self._leave()
        if server is not None:
            server.halt(f"broker {self.id} was killed", on_purpose=True)
            await server.stop()

    kill = waits_for(kill_async)

    @property
    def _awaited(self) -> Self:
        return self

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._cluster._wait(work)

    def _leave(self) -> BrokerServer | None:
        self._cluster.check_process()
        server, self._server = self._server, None
        if server is not None:
            self.kept_logs.note(server)
            self._cluster.on_stopping(server)
        return server


class Cluster(OwnThread, FaultCalls):
    """Brokers 1 to `brokers` in this process.

    `config` holds settings of every broker under Kafka's names. Internal topics and topics that are
    made without a number get three replicas, or as many as there are brokers. With a `seed` the ids
    of cluster, topics and members are the same in every run. `acls`, `security`, `users` and
    `quotas` are as for `Broker`. The brokers' own connections are protected too: they log in as the
    user `odradek`.

    Raises:
        ValueError: a setting is illegal, or gives one port to several brokers; or there is to be
            no broker.
        TypeError: an argument is none of these.
        ImportError: the extra `security` is needed, and not installed.
    """

    def __init__(
        self,
        brokers: int = 3,
        clock: Clock | None = None,
        config: Mapping[str, object] = {},
        racks: Sequence[str] = (),
        seed: int | None = None,
        acls: Iterable[str | AclBinding] = (),
        security: str | None = None,
        users: Mapping[str, str] = {},
        quotas: Mapping[str, Mapping[str, float]] = {},
        **mistyped: Never,
    ) -> None:
        # A report of a failed test may show the variables of this frame, and this cluster.
        hidden_users = hide_passwords(users)
        del users
        self._servers = []
        refuse_arguments(Cluster, mistyped, BROKER_SETTINGS)
        refuse_settings(config, _DECIDED)
        check_broker_count(brokers)
        racks = texts_of("racks", racks)
        check_seed(seed)
        replicas = str(min(_USUAL_REPLICAS, brokers))
        self._clock: Clock = clock_of(clock)
        self._shared = SharedMetadata(InlineBackground(), rng_of(seed).randbytes)
        self._links = Links()
        self._scratch: Scratch | None = None
        self._helpers = BrokerHelpers(self._servers, self._clock)
        self._faults = FaultBoard(self._servers)
        self._errors = LastErrors()
        self._protection = protection_of(security, hidden_users, self._clock)
        self._acls = read_acls(acls)
        if self._acls and self._protection is None:
            self._acls += read_acls([UNPROTECTED_BROKERS])
        self._quotas = read_quotas(quotas)
        given = {**with_authorizer(self._acls), **setting_texts(config)}
        common = {
            **TEST_DEFAULTS,
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "share.coordinator.state.topic.replication.factor": replicas,
            "listeners": "PLAINTEXT://127.0.0.1:0",
            **given,
            **self._protected(given),
        }
        self.brokers: Final = [
            ClusterBroker(
                self,
                broker_id,
                {**common, **_identity(broker_id, racks)},
                # Separate ones, so a broker's draws do not depend on the others' timing.
                rng_of(None if seed is None else f"{seed}, broker {broker_id}"),
            )
            for broker_id in range(1, brokers + 1)
        ]
        check_settings({**common, **_identity(1, racks)}, config, is_cluster=True)
        check_ports(common, brokers)

    def __repr__(self) -> str:
        if not self._servers:
            return "<odradek.Cluster, not running>"
        topics = topics_in_words(self._servers[0])
        count = len(self._servers)
        return f"<odradek.Cluster {self.bootstrap_servers}, {count} brokers, {topics}>"

    # --- its life -----------------------------------------------------------------------------

    async def start_async(self) -> Self:
        """`start` on the running loop."""
        self.check_process()
        if self._scratch is not None:
            raise RuntimeError(RUNS_ALREADY)
        self._scratch = Scratch()
        self._process_id = os.getpid()
        try:
            for broker in self.brokers:
                await broker.start_async()
            first = self.brokers[0].server
            await create_acls(first, self._acls)
            await set_quotas(first, self._quotas)
        except BaseException:
            await self.stop_async()
            raise
        return self

    async def stop_async(self) -> None:
        """`stop` on the running loop."""
        for broker in self.brokers:
            await broker.stop_async()
            broker.kept_logs.forget()
        scratch, self._scratch = self._scratch, None
        if scratch is not None:
            scratch.remove()
        self._process_id = None

    # --- what a test asks for -----------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker that runs, separated by commas."""
        return ",".join(each.bootstrap_servers for each in self.brokers if each.is_running)

    def login(self, user: str, password: str | None = None) -> "Login":
        """The settings that let clients log in as that user; see `Broker.login`.

        Raises:
            ValueError: there is no such user, or the cluster was made without `security`.
        """
        if self._protection is None:
            raise ValueError("this cluster has no authentication; give it security=")
        return self._protection.login(user, password, self.bootstrap_servers)

    def broker(self, broker_id: int) -> ClusterBroker:
        """The broker of that id.

        Raises:
            ValueError: there is none.
        """
        number = whole("broker_id", broker_id)
        if not 1 <= number <= len(self.brokers):
            raise ValueError(f"there is no broker {number}, only 1 to {len(self.brokers)}")
        return self.brokers[number - 1]

    @property
    def controller(self) -> ClusterBroker | None:
        """The broker that is the controller now."""
        self.check_process()
        controller_id = self._shared.image.controller_id
        return self.broker(controller_id) if controller_id > 0 else None

    def partition_state(self, topic: str, partition: int) -> PartitionImage:
        """Leader, epochs, replicas and ISR of a partition as the metadata has them.

        Raises:
            BrokerError: there is no such topic or partition.
        """
        self.check_process()
        where = TopicPartition(name_of("a topic", topic), whole("partition", partition))
        return partition_of(self._shared.image, where)

    def leader(self, topic: str, partition: int = 0) -> ClusterBroker | None:
        """The broker that leads a partition; raises as `partition_state`."""
        leader = self.partition_state(topic, partition).leader
        return self.broker(leader) if leader > 0 else None

    async def create_topic_async(
        self,
        /,
        name: str,
        partitions: int = 1,
        replication_factor: int = -1,
        config: Mapping[str, object] | None = None,
        **mistyped: Never,
    ) -> None:
        """Creates a topic; when this returns its leaders can be appended to.

        Raises:
            BrokerError: the topic exists already, or something about it is illegal.
        """
        refuse_arguments(Cluster.create_topic_async, mistyped, TOPIC_SETTINGS)
        controller = self.controller
        if controller is None:
            raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, "no broker is running")
        check_topic_settings(config)
        settings = setting_texts(config)
        wish = CreatableTopic(
            name_of("a topic", name), partitions, replication_factor, configs=settings
        )
        await self._there(create_topic(controller.server, wish))

    create_topic = waits_for(create_topic_async)

    async def move_leader_async(self, topic: str, partition: int = 0, to: int | None = None) -> int:
        """Makes another replica in sync lead a partition, broker `to` or any; returns which.

        Raises:
            BrokerError: there is no such topic or partition, or no such replica is in sync.
        """
        return await self._there(self._move_leader(topic, partition, to))

    move_leader = waits_for(move_leader_async)

    async def _move_leader(self, topic: str, partition: int, to: int | None) -> int:
        state = self.partition_state(topic, partition)
        others = [each for each in state.isr if each != state.leader and to in (None, each)]
        if not others or self.controller is None:
            raise BrokerError(
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
                f"{topic}-{partition} is led by {state.leader}, in sync are {list(state.isr)}",
            )
        where = TopicPartition(topic, partition)
        change = PartitionChange(where, state.partition_epoch, others[0], state.isr)
        store = self.controller.server.store
        results: list[PartitionImage | BrokerError] = await outcome(
            lambda on_done: store.change_partitions([change], on_done)
        )
        if isinstance(results[0], BrokerError):
            raise results[0]
        return others[0]

    def kill(self, broker_id: int) -> None:
        """Ends a broker where it stands; see `ClusterBroker.kill`."""
        self.broker(broker_id).kill()

    def partition(self, one: int, other: int) -> None:
        """Cuts the network between two brokers: neither follows the other any more. Clients
        and the metadata are still reached."""
        for broker_id in (one, other):
            self.broker(broker_id)

        async def cut() -> None:
            self._links.cut(one, other)

        self._wait(cut())

    def heal(self) -> None:
        """Undoes every `partition`."""

        async def heal() -> None:
            self._links.heal()

        self._wait(heal())

    def expire_session(self, broker_id: int) -> None:
        """Expires a running broker's session, as when it was silent for too long; it stops leading
        and registers again."""

        async def expire() -> None:
            self.broker(broker_id).server.embedded.store.expire()

        self._wait(expire())

    def waiting(self) -> dict[int, list[WaitingOperation]]:
        """The delayed operations of each running broker, and what they wait for; see
        `Broker.waiting`."""

        async def ask() -> dict[int, list[WaitingOperation]]:
            return {each.id: each.server.waiting() for each in self.brokers if each.is_running}

        return self._wait(ask())

    # --- for its brokers ------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the cluster's thread and waits for its outcome.

        Raises:
            RuntimeError: the cluster runs on the caller's loop, or not at all.
        """
        thread = self._thread_for(work)
        if thread is None:
            work.close()
            raise RuntimeError("the cluster runs on your event loop: use the ..._async methods")
        return thread.run(work)

    _wait = run

    def call(self, function: Callable[[], T]) -> T:
        """Calls it on the cluster's loop; from any thread, and from the loop itself."""
        return self._now(function)

    def make_server(self, settings: Mapping[str, str], rng: Random) -> BrokerServer:
        """A broker of this cluster, not yet started."""
        assert self._scratch is not None, "the cluster does not run"
        folder = os.path.join(self._scratch.path, f"broker-{settings['broker.id']}")
        config = BrokerConfig({**settings, "log.dirs": folder})
        return BrokerServer(
            config,
            self._clock,
            rng=rng,
            ephemeral=True,
            shared=self._shared,
            links=self._links,
            observer=self._errors,
            scram_users=() if self._protection is None else self._protection.cluster_scram_users,
        )

    def _protected(self, given: Mapping[str, str]) -> dict[str, str]:
        """The settings of a protected cluster; others have none of them."""
        protection = self._protection
        if protection is None:
            return {}
        listener = f"{protection.protocol}://127.0.0.1:0"
        return {"listeners": listener, **protection.cluster_settings(given)}

    def on_started(self, server: BrokerServer) -> None:
        """One of its brokers serves."""
        self._servers.append(server)
        self._helpers.on_started(server)
        self._faults.on_started(server)
        RUNNING.add(self)

    def on_stopping(self, server: BrokerServer) -> None:
        """One of its brokers is about to end."""
        self._servers.remove(server)
        if not self._servers:
            self._helpers.on_stopping()
            RUNNING.discard(self)

    def _check_running(self) -> None:
        if not self._servers:
            raise RuntimeError("no broker of the cluster is running")


def _identity(broker_id: int, racks: Sequence[str]) -> dict[str, str]:
    identity = {"broker.id": str(broker_id)}
    if racks:
        identity["broker.rack"] = racks[(broker_id - 1) % len(racks)]
    return identity
