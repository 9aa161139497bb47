"""The process that keeps a cluster running: its brokers, and its own ZooKeeper if it has one."""

import asyncio
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from odradek.cli.free_port import free_port
from odradek.cli.local_cluster import zookeeper
from odradek.cli.local_cluster.control import Say, answering
from odradek.cli.local_cluster.health import NotHealthy, await_brokers, await_in_sync
from odradek.cli.local_cluster.kept_process import KeptProcess
from odradek.cli.local_cluster.state import ClusterState
from odradek.cli.main import COMMAND
from odradek.cli.terminal import tell
from odradek.server.errors import StartError

HOST: Final = "127.0.0.1"
_MEET_LIMIT_S: Final = 60
_LOOK_LIMIT_S: Final = 5
_READY: Final = re.compile(r"odradek ready .* cluster=(\S+) ")


class Plan(NamedTuple):
    """The processes to run: a broker for each port of `state`, with its flags from `flags`, and
    ZooKeeper if there is a command for it."""

    directory: Path
    state: ClusterState
    flags: Callable[[], Sequence[str]]
    zookeeper: zookeeper.ZooKeeperCommand | None


class Supervisor:
    """Starts a cluster, reports what happens to it, and stops it.

    Ready lines go to standard output, everything else to standard error.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan: Final = plan
        self._asked_to_stop: Final = asyncio.Event()
        self._restarting: Final = asyncio.Lock()
        self._cluster_id = ""
        self._zookeeper: Final = KeptProcess(
            "ZooKeeper", plan.directory / "zookeeper.log", self._tell_end
        )
        self._zookeeper_address = plan.state.zookeeper or ""
        self._brokers: Final = {
            broker_id: KeptProcess(
                f"Broker {broker_id}", plan.directory / f"broker-{broker_id}.log", self._tell_end
            )
            for broker_id, _ in enumerate(plan.state.ports, 1)
        }

    @property
    def bootstrap_servers(self) -> str:
        """Where the brokers are."""
        return ",".join(self._addresses)

    @property
    def _addresses(self) -> list[str]:
        return [f"{HOST}:{port}" for port in self._plan.state.ports]

    async def run(self) -> None:
        """Returns when the cluster has ended, because it was told to.

        Raises:
            StartError: it does not start; the started processes have been stopped.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._asked_to_stop.set)
        starting = asyncio.create_task(self._start())
        asked = asyncio.create_task(self._asked_to_stop.wait())
        try:
            async with answering(self._plan.directory, self._on_request):
                await asyncio.wait({starting, asked}, return_when=asyncio.FIRST_COMPLETED)
                if starting.done():
                    starting.result()
                    await asked
        finally:
            starting.cancel()
            asked.cancel()
            await asyncio.wait({starting, asked})
            await self._stop()

    async def _start(self) -> None:
        began = time.monotonic()
        await self._start_zookeeper()
        starts = [asyncio.create_task(self._start_broker(each)) for each in self._brokers]
        try:
            await asyncio.gather(*starts)
            await await_brokers(self._addresses, self._brokers, _MEET_LIMIT_S)
        except NotHealthy as error:
            raise StartError(f"The brokers do not meet: {error}") from error
        finally:
            # One that cannot start is enough; the others end with it.
            for each in starts:
                each.cancel()
            await asyncio.gather(*starts, return_exceptions=True)
        print(
            f"odradek cluster ready bootstrap={self.bootstrap_servers} brokers={len(self._brokers)}"
            f" zookeeper={self._zookeeper_address} cluster={self._cluster_id} "
            f"started_in_ms={(time.monotonic() - began) * 1000:.0f}",
            flush=True,
        )

    async def _start_zookeeper(self) -> None:
        command = self._plan.zookeeper
        if command is None or self._zookeeper.pid is not None:
            return
        # The one it had, if it is started again: the brokers know no other.
        port = int(self._zookeeper_address.rpartition(":")[2] or free_port())
        self._zookeeper_address = f"{HOST}:{port}"
        await zookeeper.start(self._zookeeper, command, self._plan.directory / "zookeeper", port)
        self._note_pids()

    async def _start_broker(self, broker_id: int) -> None:
        process = self._brokers[broker_id]
        await process.launch(self._command(broker_id), speaks=True)
        line = await process.first_line()
        process.watch()
        print(line, flush=True)
        ready = _READY.match(line)
        self._cluster_id = ready[1] if ready else ""
        self._note_pids()

    def _command(self, broker_id: int) -> list[str]:
        words = [sys.executable, *COMMAND, "start", "--broker-id", str(broker_id)]
        words += ["--data-dir", str(self._plan.directory / f"broker-{broker_id}")]
        words += ["--listener", f"PLAINTEXT://{self._addresses[broker_id - 1]}"]
        return [*words, "--zookeeper", self._zookeeper_address, *self._plan.flags()]

    async def _stop(self) -> None:
        """Stops one broker after the other, so that each can hand over its leadership to the rest;
        then ZooKeeper, which the last broker needs for an orderly stop.
        """
        for process in [*self._brokers.values(), self._zookeeper]:
            await self._stop_process(process)
        self._note_pids()

    async def _stop_process(self, process: KeptProcess) -> None:
        if not await process.stop():
            tell(f"{process.name} did not end when asked to, and was killed")

    def _note_pids(self) -> None:
        kept = {"zookeeper": self._zookeeper, **{str(n): p for n, p in self._brokers.items()}}
        state = self._plan.state
        state.pids = {name: process.pid for name, process in kept.items() if process.pid}
        if self._cluster_id:  # a broker has found its cluster there: it is the right ensemble
            state.save(self._plan.directory)

    def _tell_end(self, sentence: str) -> None:
        again = f"`odradek cluster restart --data-dir {self._plan.directory}` starts it again"
        tell(f"{sentence}; {again}")
        self._note_pids()

    # --- what other commands ask for -------------------------------------------------------

    async def _on_request(self, request: str, say: Say) -> None:
        action, *words = request.split()
        if action == "stop":
            self._asked_to_stop.set()
            await asyncio.Event().wait()  # until all has ended, this with it
        elif action == "status":
            await self._tell_status(say)
        else:
            await self._restart(float(words[0]), [int(word) for word in words[1:]], say)

    async def _tell_status(self, say: Say) -> None:
        for broker_id, process in self._brokers.items():
            say(f"{process.name} at {self._addresses[broker_id - 1]}: {_state_of(process)}")
        own = f": {_state_of(self._zookeeper)}" if self._plan.zookeeper is not None else ""
        say(f"ZooKeeper at {self._zookeeper_address}{own}")
        try:
            await await_in_sync(self.bootstrap_servers, _LOOK_LIMIT_S)
        except NotHealthy as error:
            say(f"Replicas: {error}")
        else:
            say("Replicas: all in sync")

    async def _restart(self, limit_s: float, broker_ids: list[int], say: Say) -> None:
        """Restarts brokers one by one, each when no partition lacks a replica in sync.

        Stopped brokers come first: while they are away, their partitions lack a replica.
        """
        if strangers := set(broker_ids) - self._brokers.keys():
            raise StartError(f"There is no broker {min(strangers)} in this cluster")
        if self._restarting.locked():
            raise StartError("The cluster is being restarted already")
        wanted = set(broker_ids or self._brokers)
        away = self._brokers.keys() - self._running()
        if away - wanted:
            raise StartError(
                f"Broker {min(away - wanted)} does not run: with another one away there may be no "
                "leader; restart it first"
            )
        async with self._restarting:
            await self._start_zookeeper()
            for broker_id in [*sorted(away), *sorted(wanted - away)]:
                await self._restart_broker(broker_id, limit_s, say)

    async def _restart_broker(self, broker_id: int, limit_s: float, say: Say) -> None:
        process = self._brokers[broker_id]
        began = time.monotonic()
        try:
            if process.pid is not None:
                await await_in_sync(self.bootstrap_servers, limit_s)
                await self._stop_process(process)
            if self._asked_to_stop.is_set():
                raise StartError("The cluster is being stopped")
            await self._start_broker(broker_id)
            running = self._running()
            addresses = [self._addresses[each - 1] for each in running]
            await await_brokers(addresses, running, limit_s)
            if running == self._brokers.keys():
                await await_in_sync(self.bootstrap_servers, limit_s)
        except NotHealthy as error:
            raise StartError(f"Not in sync after {limit_s:g} s: {error}") from error
        say(f"broker {broker_id} restarted and in sync in {time.monotonic() - began:.1f} s")

    def _running(self) -> set[int]:
        return {broker_id for broker_id, process in self._brokers.items() if process.pid}


def _state_of(process: KeptProcess) -> str:
    return "not running" if process.pid is None else f"runs as process {process.pid}"
