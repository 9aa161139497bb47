"""Three brokers for the job. One is killed in the middle of the replay, and comes back.

They are run as anybody would run them, by `odradek cluster start`. What the clients are told of the
death is looked up with a client that is not ours, until everything is as it was.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from examples.flights.dataset import FLIGHTS
from examples.flights.replay import PARTITIONS

from odradek.testing.processes import ProcessFailed, ServerProcess

BROKERS: Final = 3
_READY: Final = "odradek cluster ready "
_SETTINGS: Final = ("zookeeper.session.timeout.ms=2000",)
_LOOK_EVERY_S: Final = 0.05
_ASK_S: Final = 2.0
_GIVE_UP_S: Final = 120.0
_NOBODY: Final = -1


class Failover(NamedTuple):
    """The fate of a killed broker: moments are seconds since the replay began."""

    broker: int
    led: int
    """How many partitions of the job it led."""
    killed_s: float
    elected_s: float
    """When clients were told of other leaders for all of them."""
    returned_s: float
    """When it was in sync again with everybody."""


class LocalCluster(ServerProcess):
    """`odradek cluster start` over `directory`, on free ports."""

    says_when_ready = True

    def __init__(self, directory: Path, log: Path) -> None:
        command = [sys.executable, "-m", "odradek", "cluster", "start", "-n", str(BROKERS)]
        command += ["--data-dir", str(directory), "--port", "0", "--fetch-zookeeper"]
        for setting in _SETTINGS:
            command += ["--set", setting]
        super().__init__(command, log)
        self.directory: Final = directory
        self.bootstrap_servers = ""

    def await_ready(self, process: "subprocess.Popen[str]") -> None:
        """It has a line for each broker, then its own."""
        assert process.stdout is not None, "it is a pipe"
        for line in process.stdout:
            if line.startswith(_READY):
                words = line.removeprefix(_READY).split()
                self.bootstrap_servers = dict(word.split("=", 1) for word in words)["bootstrap"]
                return
        process.wait()
        raise self.failure("the cluster did not start")

    def kill_broker(self, broker: int) -> None:
        """`kill -9` for one of the brokers."""
        state = json.loads((self.directory / "cluster.json").read_text(encoding="utf-8"))
        os.kill(state["pids"][str(broker)], signal.SIGKILL)

    def bring_back(self, broker: int) -> None:
        """Starts a broker again; returns when it is in sync.

        Raises:
            ProcessFailed: it does not come to that.
        """
        command = [sys.executable, "-m", "odradek", "cluster", "restart"]
        command += ["--data-dir", str(self.directory), "--broker-id", str(broker)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ProcessFailed(f"broker {broker} does not come back: {done.stderr.strip()}")


class Kill:
    """A death to come: `strike` it, and ask for the `outcome` when the replay is over."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster: Final = cluster
        self._admin: Final = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        self._thread: Final = threading.Thread(target=self._see_it_through)
        self._began = 0.0
        self._error: Exception | None = None
        self._broker, self._led = 0, 0
        self._killed_s = self._elected_s = self._returned_s = 0.0

    def strike(self, replay_began: float) -> None:
        """Kills the broker that leads the first partition of the flights."""
        self._began = replay_began
        while _NOBODY in (leaders := self._leaders()).values():
            time.sleep(_LOOK_EVERY_S)
        self._broker = leaders[FLIGHTS, 0]
        self._led = list(leaders.values()).count(self._broker)
        self._cluster.kill_broker(self._broker)
        self._killed_s = self._elapsed_s
        self._thread.start()

    def outcome(self) -> Failover:
        """Waits for the end; returns its fate.

        Raises:
            ProcessFailed: nobody else leads, or the broker does not come back.
        """
        self._thread.join()
        if self._error is not None:
            raise self._error
        moments = self._killed_s, self._elected_s, self._returned_s
        return Failover(self._broker, self._led, *moments)

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began

    def _see_it_through(self) -> None:
        try:
            while not {self._broker, _NOBODY}.isdisjoint(self._leaders().values()):
                if self._elapsed_s - self._killed_s > _GIVE_UP_S:
                    raise ProcessFailed(f"broker {self._broker} is dead, and nobody else leads")
                time.sleep(_LOOK_EVERY_S)
            self._elected_s = self._elapsed_s
            self._cluster.bring_back(self._broker)
            self._returned_s = self._elapsed_s
        except (ProcessFailed, KafkaException) as error:
            self._error = error

    def _leaders(self) -> dict[tuple[str, int], int]:
        """The leaders of the job's partitions, -1 for none.

        Raises:
            KafkaException: no broker answers for a long time, or none that knows the topics.
        """
        deadline = time.monotonic() + _GIVE_UP_S
        while True:
            try:
                leaders = self._told_leaders()
                # A broker hears of new topics a moment after their maker.
                if len(leaders) == sum(PARTITIONS.values()):
                    return leaders
                if time.monotonic() > deadline:
                    raise KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC))
            except KafkaException:
                # The one that was asked may be the one that is dead.
                if time.monotonic() > deadline:
                    raise
            time.sleep(_LOOK_EVERY_S)

    def _told_leaders(self) -> dict[tuple[str, int], int]:
        topics = self._admin.list_topics(timeout=_ASK_S).topics
        return {
            (topic, index): partition.leader
            for topic in PARTITIONS
            if topic in topics
            for index, partition in topics[topic].partitions.items()
        }
