"""`odradek.Broker`: a broker inside the process that uses it, for tests and notebooks.

`with` runs it on an event loop in a separate thread, `async with` on the running loop. Without a
data directory it is ephemeral: it lives in a temporary directory that goes with it, its metadata
stays in memory, and nothing is forced to the disk.

With a `ManualClock` the broker's time moves only when the test moves it. `clock.advance`
from another thread returns when everything that became due has run, so a test needs no
waiting and no sleeping.

This module has the lifecycle of a broker; `broker_calls` has a test's calls.
"""

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Final, Never, Self

from odradek.acl import AclBinding
from odradek.background import InlineBackground
from odradek.clock import Clock, ManualClock
from odradek.config import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerConfig
from odradek.config.endpoints import PLAIN, named_listener
from odradek.controller import CreatableTopic
from odradek.event_loop import waits_for
from odradek.metadata.sqlite import SharedMetadata
from odradek.network import format_host_port
from odradek.purgatory import WaitingOperation
from odradek.server.broker import BrokerServer
from odradek.server.faults import FaultBoard
from odradek.server.in_process.arguments.acl_texts import read_acls
from odradek.server.in_process.arguments.kinds import (
    check_broker_id,
    check_path,
    check_port,
    check_security,
    check_seed,
    clock_of,
    texts_of,
)
from odradek.server.in_process.arguments.quota_texts import read_quotas
from odradek.server.in_process.arguments.settings import (
    TEST_DEFAULTS,
    check_settings,
    check_topic_settings,
    path_of,
    refuse_arguments,
    refuse_settings,
    setting_texts,
    with_authorizer,
)
from odradek.server.in_process.calls.broker_helpers import BrokerHelpers
from odradek.server.in_process.calls.fault_calls import FaultCalls
from odradek.server.in_process.calls.making import create_acls, create_topic, set_quotas
from odradek.server.in_process.kept_logs import KeptLogs
from odradek.server.in_process.last_errors import LastErrors
from odradek.server.in_process.loop_calls import RUNNING
from odradek.server.in_process.own_thread import NOT_RUNNING, RUNS_ALREADY, OwnThread
from odradek.server.in_process.protected.secret import HiddenUsers, hide_passwords
from odradek.server.in_process.scratch import Scratch
from odradek.server.in_process.settling import settle
from odradek.server.in_process.shown import topics_in_words
from odradek.server.in_process.snapshot import Moment, Snapshot, new_directory
from odradek.server.in_process.snapshot_files import copy_logs
from odradek.server.randomness import rng_at, rng_of, rng_state
from odradek.suggestions import name_of

if TYPE_CHECKING:
    from odradek.server.in_process.protected.login import Login
    from odradek.server.in_process.protected.protection import Protection

_DECIDED: Final = {
    "log.dirs": "data_dir says where the records are kept",
    "log.dir": "data_dir says where the records are kept",
    "listeners": "listeners or port say where to listen",
}
_ANYWHERE: Final = f"{PLAIN}127.0.0.1:0"


class Broker(OwnThread, FaultCalls):
    """A broker in this process.

    It listens on a free port of 127.0.0.1, on `port` of it, or on `listeners`, each `HOST:PORT` or
    `NAME://HOST:PORT`. `config` holds settings under Kafka's names; numbers, booleans and lists may
    be given as such. With `acls` it has Kafka's authorizer and these ACLs, each an `AclBinding` or
    words such as `"User:alice read,write topic:orders-*"`,
    `"deny User:bob all cluster from 10.0.0.1"`. `security` is "tls", "mtls", "plain", "scram" or
    "oauth", or one of the last three with "+tls": clients have to come so, as one of the `users`,
    whose passwords these are; `login` has what each of them needs. Certificates need the extra
    `security`. With `quotas` clients are throttled: `{"user:alice": {"producer_byte_rate": 1000}}`;
    `client-id:*` is the default of all client ids. With a `seed` its ids (of the cluster, of
    topics, of members) are the same in every run. A broker that was stopped starts again on the
    same ports and finds its data: in `data_dir`, or without one as long as the object lives and its
    `with` block, if any, has not been left.

    Raises:
        ValueError: a setting is illegal, or there is none of that name.
        TypeError: an argument is none of these.
        ImportError: the extra `security` is needed, and not installed.
        StartError: on start, when a port or the data directory cannot be had.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        listeners: str | Sequence[str] = (_ANYWHERE,),
        config: Mapping[str, object] = {},
        broker_id: int = 1,
        clock: Clock | None = None,
        seed: int | None = None,
        port: int | None = None,
        acls: Iterable[str | AclBinding] = (),
        security: str | None = None,
        users: Mapping[str, str] = {},
        quotas: Mapping[str, Mapping[str, float]] = {},
        **mistyped: Never,
    ) -> None:
        # A report of a failed test may show the variables of this frame, and this broker.
        hidden_users = hide_passwords(users)
        del users
        self._servers = []
        refuse_arguments(Broker, mistyped, BROKER_SETTINGS)
        refuse_settings(config, _DECIDED)
        check_broker_id(broker_id)
        if str(config.get("broker.id", broker_id)) != str(broker_id):
            refuse_settings(config, {"broker.id": "broker_id is its number"})
        self._clock: Clock = clock_of(clock)
        self._protection = protection_of(security, hidden_users, self._clock)
        self._data_dir = path_of(data_dir)
        check_seed(seed)
        # For the first start: afterwards they are the broker's.
        self._acls = read_acls(acls)
        self._quotas = read_quotas(quotas)
        self._settings = {
            **TEST_DEFAULTS,
            **with_authorizer(self._acls),
            **({} if self._protection is None else self._protection.settings()),
            **setting_texts(config),
            "broker.id": str(broker_id),
            "listeners": ",".join(_addresses(listeners, port, self._protection)),
        }
        check_settings(self._settings, config)
        self._rng: Random = rng_of(seed)
        self._scratch: Scratch | None = None
        self._kept_logs = KeptLogs()
        self._helpers = BrokerHelpers(self._servers, self._clock)
        self._faults = FaultBoard(self._servers)
        self._errors = LastErrors()
        self._shared: SharedMetadata | None = None

    def __repr__(self) -> str:
        server = self._server
        if server is None:
            return "<odradek.Broker, not running>"
        return f"<odradek.Broker {server.bootstrap_servers}, {topics_in_words(server)}>"

    # --- its life -----------------------------------------------------------------------------

    async def start_async(self) -> Self:
        """Starts the broker on the running loop.

        Raises:
            StartError: it cannot be started.
            RuntimeError: it runs already.
        """
        self.check_process()
        if self._server is not None:
            raise RuntimeError(RUNS_ALREADY)
        directory = self._data_dir
        if directory is None:
            if self._scratch is None:
                self._scratch = Scratch()
                self._shared = SharedMetadata(InlineBackground(), self._rng.randbytes)
            directory = self._scratch.path
            self._kept_logs.check()
        server = BrokerServer(
            BrokerConfig({**self._settings, "log.dirs": directory}),
            self._clock,
            rng=self._rng,
            observer=self._errors,
            ephemeral=self._data_dir is None,
            shared=self._shared,
            scram_users=() if self._protection is None else self._protection.scram_users,
            is_counted=True,
        )
        try:
            await server.start()
            await self._make_rules(server)
        except BaseException:
            if self._is_empty:
                self._forget()
            raise
        self._acls, self._quotas = [], []
        self._process_id = os.getpid()
        self._kept_logs.forget()
        self._servers.append(server)
        self._helpers.on_started(server)
        self._faults.on_started(server)
        RUNNING.add(self)
        # It comes back where clients have learnt to find it.
        self._settings["listeners"] = bound_listeners(server)
        return self

    async def _make_rules(self, server: BrokerServer) -> None:
        """Makes the ACLs and quotas of a broker's first start. If one is refused, it does not
        run."""
        try:
            await create_acls(server, self._acls)
            await set_quotas(server, self._quotas)
        except BaseException:
            await server.stop()
            raise

    async def stop_async(self) -> None:
        """`stop` for a broker on the running loop."""
        self.check_process()
        try:
            await self._stop_server()
        finally:
            if self._is_empty:
                self._forget()

    async def _stop_server(self) -> None:
        if self._servers:
            server = self._servers.pop()
            self._kept_logs.note(server)
            self._helpers.on_stopping()
            RUNNING.discard(self)
            await server.stop()

    async def restart_async(self) -> None:
        """Stops the broker and starts it again on the same ports, with all its records, offsets
        and topics, also without a data directory. Clients come back by themselves.

        Raises:
            StartError: it cannot be started again, or somebody has removed records of it; it is
                stopped then.
        """
        self._running()
        await self._there(self._restart())

    restart = waits_for(restart_async)

    async def _restart(self) -> None:
        # Whole, also if the wait for it is interrupted: a broker that only stopped could not be
        # started again.
        await asyncio.shield(self._stop_and_start())

    async def _stop_and_start(self) -> None:
        await self._stop_server()
        self._kept_logs.check()
        await self.start_async()

    # --- snapshots ----------------------------------------------------------------------------

    async def snapshot_async(self, path: str | os.PathLike[str] | None = None) -> Snapshot:
        """Keeps the broker as it is, at a moment when nothing is half done: records, topics,
        settings, groups and offsets, transactions, the time of a manual clock, seeded randomness.

        With a path, where nothing may be yet, it outlives the process: `Broker.from_snapshot`
        takes the path, and `odradek start` takes it as a data directory. Without one it lives as
        long as the object.

        Raises:
            FileExistsError: there is something at the path.
            OSError: there is no room.
        """
        self._running()
        return await self._there(self._take_snapshot(path))

    snapshot = waits_for(snapshot_async)

    async def _take_snapshot(self, path: str | os.PathLike[str] | None) -> Snapshot:
        await settle(self._servers)
        server = self._running()
        # From here on without a turn of the loop: nobody writes meanwhile.
        scratch = Scratch() if path is None else None
        target = scratch.path if scratch is not None else new_directory(path or "")
        server.logs.checkpoints.write_log_start_offsets()
        for directory in server.config.log_dirs:
            copy_logs(directory, target)
        groups = self._helpers.groups
        clock = self._clock
        moment = Moment(
            settings=self._settings,
            ends=self._helpers.end_offsets(),
            groups={group: groups.offsets(group) for group in groups.states()},
            clock=(clock.wall_ms(), clock.monotonic_ms())
            if isinstance(clock, ManualClock)
            else None,
            rng=rng_state(self._rng),
        )
        snapshot = Snapshot(target, server.embedded.shared.stored(), moment, scratch)
        if scratch is None:
            snapshot.write()
        return snapshot

    @classmethod
    def from_snapshot(
        cls,
        snapshot: Snapshot | str | os.PathLike[str],
        config: Mapping[str, object] = {},
        clock: Clock | None = None,
    ) -> Self:
        """A broker that continues from a snapshot or the path of one, not started yet. It has
        another port; the snapshot and earlier brokers from it are not changed.

        `config` adds to the settings of the broker that the snapshot is of. If its clock was a
        `ManualClock`, this one's is, at the same time, unless another is given.

        Raises:
            ValueError: there is no snapshot at the path.
        """
        if not isinstance(snapshot, Snapshot):
            check_path("snapshot", snapshot)
            snapshot = Snapshot.read(os.fsdecode(snapshot))
        moment = snapshot.moment
        refuse_settings(config, _DECIDED)
        broker_id = int(moment.settings["broker.id"])
        settings = {**moment.settings, **setting_texts(config)}
        protocols = [each.partition("://")[0] for each in settings.pop("listeners").split(",")]
        if clock is None and moment.clock is not None:
            clock = ManualClock(*moment.clock)
        listeners = [f"{protocol}://127.0.0.1:0" for protocol in protocols]
        broker = cls(None, listeners, settings, broker_id, clock)
        broker._rng = rng_at(moment.rng)
        broker._scratch = Scratch()
        broker._process_id = os.getpid()
        copy_logs(snapshot.path, broker._scratch.path)
        broker._shared = SharedMetadata(
            InlineBackground(), broker._rng.randbytes, stored=snapshot.metadata
        )
        return broker

    # --- what a test asks for -----------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of the first listener, as clients take it."""
        return self._running().bootstrap_servers

    @property
    def cluster_id(self) -> str:
        """The id of the cluster that this broker is."""
        return self._running().cluster_id

    def login(self, user: str, password: str | None = None) -> "Login":
        """The settings that let clients log in as that user: `broker.login("alice").confluent()`
        for confluent-kafka, likewise `aiokafka`, `kafka_python`, `client` (of `odradek.client`),
        `java` and `spark`. With a password, which may be a wrong one, of any user.

        Raises:
            ValueError: there is no such user, or the broker was made without `security`.
        """
        if self._protection is None:
            raise ValueError("this broker has no authentication; give it security=")
        return self._protection.login(user, password, self.bootstrap_servers)

    def metrics(self) -> dict[str, float | dict[str, float]]:
        """Every metric by Kafka's name: a number, or the attributes of the bean (`Count`,
        `OneMinuteRate`, `99thPercentile`). From any thread.

            broker.metrics()["kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec"]["Count"]
        """
        return self._now(lambda: self._running().monitoring.read())

    @property
    def metrics_url(self) -> str:
        """The address for Prometheus, with the setting `metrics.listener`; else empty."""
        return self._running().metrics_url

    def waiting(self) -> list[WaitingOperation]:
        """Why is this request not answered? The waiting operations, the longest waiting first, each
        with what it waits for in words: bytes, acks, members. From any thread.

        On a `ManualClock` nothing expires while one looks.
        """
        return self._now(self._running().waiting)

    async def create_topic_async(
        self,
        /,
        name: str,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        **mistyped: Never,
    ) -> None:
        """Creates a topic; when this returns it can be appended to. From any thread.

        Raises:
            BrokerError: the topic exists already, or its name or a setting is illegal.
        """
        server = self._running()
        refuse_arguments(Broker.create_topic_async, mistyped, TOPIC_SETTINGS)
        check_topic_settings(config)
        topic = CreatableTopic(name_of("a topic", name), partitions, configs=setting_texts(config))
        await self._there(create_topic(server, topic))

    create_topic = waits_for(create_topic_async)

    def _check_running(self) -> None:
        self._running()

    @property
    def _server(self) -> BrokerServer | None:
        return self._servers[0] if self._servers else None

    def _running(self) -> BrokerServer:
        if self._server is None:
            raise RuntimeError(NOT_RUNNING)
        return self._server

    @property
    def _is_empty(self) -> bool:
        """Whether nothing would be missed: the memory of an ephemeral broker without topics."""
        return self._shared is None or not self._shared.stored().topics

    def _forget(self) -> None:
        """Removes what an ephemeral broker has kept."""
        scratch, self._scratch = self._scratch, None
        self._shared = None
        self._kept_logs.forget()
        self._process_id = None
        if scratch is not None:
            scratch.remove()


def bound_listeners(server: BrokerServer) -> str:
    """`listeners` with the ports that a running broker has."""
    return ",".join(
        f"{each.listener_name}://{format_host_port(each.host, each.port)}"
        for each in server.sockets.endpoints
    )


def protection_of(word: str | None, users: HiddenUsers, clock: Clock) -> "Protection | None":
    """Makes the protection that `security` names, and imports what it needs only then."""
    if word is None:
        if users:
            raise ValueError("users need a broker with security=")
        return None
    check_security(word)
    from odradek.server.in_process.protected.protection import Protection

    return Protection(word, users, clock)


def _addresses(
    listeners: str | Sequence[str], port: int | None, protection: "Protection | None"
) -> list[str]:
    """The addresses to listen on, as in `listeners`."""
    check_port(port)
    if isinstance(listeners, str):
        listeners = listeners.split(",")
    listeners = texts_of("listeners", listeners)
    if protection is not None:
        if listeners != [_ANYWHERE]:
            raise ValueError("with security= the broker has one listener, on `port` or a free one")
        return [f"{protection.protocol}://127.0.0.1:{port or 0}"]
    if port is None:
        return [named_listener(text) for text in listeners]
    if listeners != [_ANYWHERE]:
        raise ValueError("either listeners or port says where to listen, not both")
    return [f"{PLAIN}127.0.0.1:{port}"]
