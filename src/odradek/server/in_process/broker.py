"""`odradek.Broker`: a broker inside the process that uses it, for tests and notebooks.

`with` runs it on an event loop in a thread of its own, `async with` on the running loop.
Without a data directory it is ephemeral: it lives in a temporary directory that goes with
it, its metadata stays in memory, and nothing is forced to the disk.

With a `ManualClock` the broker's time moves only when the test moves it. `clock.advance`
from another thread returns when everything that became due has run, so a test needs no
waiting and no sleeping.

Here is the life of a broker; what a test may ask of it is in `broker_calls`.
"""

import os
from collections.abc import Mapping, Sequence
from random import Random
from typing import Self

from odradek.background import InlineBackground
from odradek.clock import Clock, ManualClock, SystemClock
from odradek.config import BrokerConfig
from odradek.metadata.embedded import SharedMetadata
from odradek.network import format_host_port
from odradek.purgatory import WaitingOperation
from odradek.server.broker import BrokerServer
from odradek.server.dice import dice, dice_at, dice_state
from odradek.server.faults import FaultBoard
from odradek.server.in_process.calls.broker_helpers import BrokerHelpers
from odradek.server.in_process.calls.fault_calls import FaultCalls
from odradek.server.in_process.last_errors import LastErrors
from odradek.server.in_process.loop_calls import RUNNING
from odradek.server.in_process.own_thread import OwnThread
from odradek.server.in_process.scratch import Scratch
from odradek.server.in_process.settings import (
    TEST_DEFAULTS,
    check_settings,
    setting_texts,
)
from odradek.server.in_process.settling import settle
from odradek.server.in_process.shown import topics_in_words
from odradek.server.in_process.snapshot import Moment, Snapshot, new_directory
from odradek.server.in_process.snapshot_files import copy_logs


class Broker(OwnThread, FaultCalls):
    """A broker in this process.

    `config` holds settings under Kafka's names; numbers and booleans may be given as such.
    With a `seed` its ids (of the cluster, of topics, of members) are the same in every run.
    A broker that was stopped starts again on the same ports and finds its data: in `data_dir`, or
    without one as long as the object lives and its `with` block, if any, has not been left.

    Raises:
        ValueError: a setting is illegal, or there is none of that name.
        StartError: on start, when a port or the data directory cannot be had.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        listeners: Sequence[str] = ("PLAINTEXT://127.0.0.1:0",),
        config: Mapping[str, object] = {},
        broker_id: int = 1,
        clock: Clock | None = None,
        seed: int | None = None,
    ) -> None:
        self._data_dir = None if data_dir is None else os.fspath(data_dir)
        self._settings = {
            **TEST_DEFAULTS,
            **setting_texts(config),
            "broker.id": str(broker_id),
            "listeners": ",".join(listeners),
        }
        check_settings(self._settings)
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._dice: Random = dice(seed)
        self._servers = []
        self._scratch: Scratch | None = None
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
        """
        assert self._server is None, "the broker runs already"
        directory = self._data_dir
        if directory is None:
            if self._scratch is None:
                self._scratch = Scratch()
                self._shared = SharedMetadata(InlineBackground(), self._dice.randbytes)
            directory = self._scratch.path
        server = BrokerServer(
            BrokerConfig({**self._settings, "log.dirs": directory}),
            self._clock,
            dice=self._dice,
            observer=self._errors,
            ephemeral=self._data_dir is None,
            shared=self._shared,
        )
        try:
            await server.start()
        except BaseException:
            if self._is_empty:
                self._forget()
            raise
        self._servers.append(server)
        self._helpers.on_started(server)
        self._faults.on_started(server)
        RUNNING.add(self)
        # It comes back where clients have learnt to find it.
        self._settings["listeners"] = ",".join(
            f"{each.listener_name}://{format_host_port(each.host, each.port)}"
            for each in server.sockets.endpoints
        )
        return self

    async def stop_async(self) -> None:
        """`stop` for a broker on the running loop."""
        try:
            await self._stop_server()
        finally:
            if self._is_empty:
                self._forget()

    async def _stop_server(self) -> None:
        if self._servers:
            server = self._servers.pop()
            self._helpers.on_stopping()
            RUNNING.discard(self)
            await server.stop()

    def restart(self) -> None:
        """Stops the broker and starts it again on the same ports, with all its records, offsets
        and topics, also without a data directory. Clients come back by themselves.

        Raises:
            StartError: it cannot be started again; it is stopped then.
        """
        self._run(self.restart_async(), "restart_async")

    async def restart_async(self) -> None:
        """`restart` to await."""
        self._running()
        await self._there(self._restart())

    async def _restart(self) -> None:
        await self._stop_server()
        await self.start_async()

    # --- snapshots ----------------------------------------------------------------------------

    def snapshot(self, path: str | os.PathLike[str] | None = None) -> Snapshot:
        """Keeps the broker as it is, at a moment when nothing is half done: records, topics,
        settings, groups and offsets, transactions, the time of a manual clock, seeded dice.

        With a path, where nothing may be yet, it outlives the process: `Broker.from_snapshot`
        takes the path, and `odradek start` takes it as a data directory. Without one it lives as
        long as the object.

        Raises:
            FileExistsError: there is something at the path.
            OSError: there is no room.
        """
        return self._run(self.snapshot_async(path), "snapshot_async")

    async def snapshot_async(self, path: str | os.PathLike[str] | None = None) -> Snapshot:
        """`snapshot` to await."""
        self._running()
        return await self._there(self._take_snapshot(path))

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
            dice=dice_state(self._dice),
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
        """A broker that goes on from a snapshot or the path of one, not started yet. It has a port
        of its own; the snapshot and brokers that were made from it before are not touched.

        `config` adds to the settings of the broker that the snapshot is of. If its clock was a
        `ManualClock`, this one's is, at the same time, unless another is given.

        Raises:
            ValueError: there is no snapshot at the path.
        """
        if not isinstance(snapshot, Snapshot):
            snapshot = Snapshot.read(os.fspath(snapshot))
        moment = snapshot.moment
        settings = {**moment.settings, **setting_texts(config)}
        settings.pop("listeners")
        if clock is None and moment.clock is not None:
            clock = ManualClock(*moment.clock)
        broker = cls(config=settings, broker_id=int(settings["broker.id"]), clock=clock)
        broker._dice = dice_at(moment.dice)
        broker._scratch = Scratch()
        copy_logs(snapshot.path, broker._scratch.path)
        broker._shared = SharedMetadata(
            InlineBackground(), broker._dice.randbytes, stored=snapshot.metadata
        )
        return broker

    # --- what a test asks for -----------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every listener, as clients take it."""
        return self._running().bootstrap_servers

    @property
    def cluster_id(self) -> str:
        """The id of the cluster that this broker is."""
        return self._running().cluster_id

    def waiting(self) -> list[WaitingOperation]:
        """Why is this request not answered? What waits now, the longest waiting first, each
        with what it waits for in words: bytes, acks, members. From any thread.

        On a `ManualClock` nothing expires while one looks.
        """
        return self._now(self._running().waiting)

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> None:
        """Creates a topic; when this returns it can be appended to. From any thread.

        Raises:
            BrokerError: the topic exists already, or its name or a setting is illegal.
        """
        self._run(self.create_topic_async(name, partitions, config), "create_topic_async")

    async def create_topic_async(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> None:
        """`create_topic` to await."""
        server = self._running()
        await self._there(server.create_topic(name, partitions, setting_texts(config)))

    def _check_running(self) -> None:
        self._running()

    @property
    def _server(self) -> BrokerServer | None:
        return self._servers[0] if self._servers else None

    def _running(self) -> BrokerServer:
        if self._server is None:
            raise RuntimeError("the broker is not running")
        return self._server

    @property
    def _is_empty(self) -> bool:
        """Whether nothing would be missed: the memory of an ephemeral broker without topics."""
        return self._shared is None or not self._shared.stored().topics

    def _forget(self) -> None:
        """Removes what an ephemeral broker has kept."""
        scratch, self._scratch = self._scratch, None
        self._shared = None
        if scratch is not None:
            scratch.remove()
