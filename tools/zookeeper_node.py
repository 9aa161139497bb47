"""Starts a ZooKeeper ensemble from its Maven artifacts: one node, or three.

The nodes live on free ports of this machine and are stopped by their process ids. They are small
(64 MB), forget nothing that a `kill -9` of the process leaves, but do not force their files to the
disk. Ticks of 500 ms allow session time-outs from 1 to 10 seconds.

`python -m tools.zookeeper_node 3` runs an ensemble until Ctrl-C, and says where it is.
"""

import contextlib
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from odradek.testing.processes import ProcessFailed
from tools import peers
from tools.free_port import free_port
from tools.java_server import JavaServer, java, temporary_folder, write_properties

TICK_MS = 500
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_OPTIONS = (
    *("-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    *("-Dzookeeper.preAllocSize=1024", "-Dzookeeper.forceSync=no"),
)


_LOGIN_LINES = {
    "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
    "sessionRequireClientSASLAuth": "true",
}
DIGEST_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
JAAS_OPTION = "java.security.auth.login.config"


class ZooKeeperNode(JavaServer):
    """One node. `start` returns when it listens; of several it serves when it has met others."""

    @property
    def address(self) -> str:
        """Where clients reach it."""
        return f"127.0.0.1:{self.port}"

    @property
    def mode(self) -> str:
        """Its role at the moment: standalone, leader, follower; empty when it does not serve."""
        for line in self.ask("srvr").splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ")
        return ""

    def await_serving(self) -> None:
        """Returns when it knows whether it leads or follows, or stands alone.

        Raises:
            ProcessFailed: it does not come to that.
        """
        self._await(self._started(), "does not serve", lambda: bool(self.mode))

    def ask(self, word: str) -> str:
        """The answer to a four-letter word; empty when there is none."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(word.encode())
                return connection.makefile(encoding="utf-8", errors="replace").read()
        except OSError:
            return ""


class ZooKeeperEnsemble:
    """`count` nodes that keep their files under `home`. They can be killed, paused and started
    again one by one, with their files. With `users`, the passwords of names, clients can log in
    (DIGEST-MD5), and those that do not can create no session."""

    def __init__(
        self, home: Path, count: int = 1, users: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        ports = [free_port() for _ in range(3 * count)]
        # Logins need more than the few jars that an ensemble needs: those beside a Kafka.
        jars = peers.zookeeper_kafka_jars() if users else peers.zookeeper_jars()
        members = {
            f"server.{index + 1}": f"127.0.0.1:{ports[count + index]}:{ports[2 * count + index]}"
            for index in range(count)
        }
        self.nodes: list[ZooKeeperNode] = []
        for index in range(count):
            folder = home / f"zookeeper-{index + 1}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "myid").write_text(str(index + 1), encoding="utf-8")
            lines = {
                "tickTime": str(TICK_MS),
                "dataDir": str(folder),
                "clientPort": str(ports[index]),
                "clientPortAddress": "127.0.0.1",
                "admin.enableServer": "false",
                "4lw.commands.whitelist": "ruok,srvr,mntr,wchs",
                "maxClientCnxns": "0",
                "initLimit": "20",
                "syncLimit": "10",
                **(members if count > 1 else {}),
            }
            options = _OPTIONS
            if users:
                lines |= _LOGIN_LINES
                options += (f"-D{JAAS_OPTION}={_write_users(folder, users)}",)
            command = [*java(jars, *options), _MAIN, write_properties(folder / "zoo.cfg", lines)]
            self.nodes.append(ZooKeeperNode(command, folder / "log", ports[index]))

    @property
    def connect(self) -> str:
        """The addresses of all nodes, as `zookeeper.connect` takes them."""
        return ",".join(node.address for node in self.nodes)

    def start(self) -> None:
        """Starts all nodes; returns when each of them serves.

        Raises:
            PeerUnavailable: one of them does not come to that.
        """
        with contextlib.ExitStack() as starting:
            starting.callback(self.stop)
            try:
                for node in self.nodes:
                    node.start()
                for node in self.nodes:
                    node.await_serving()
            except ProcessFailed as error:
                raise peers.PeerUnavailable(str(error)) from None
            starting.pop_all()

    def stop(self) -> None:
        """Ends all nodes, whatever state they are in."""
        for node in self.nodes:
            node.kill()


def _write_users(folder: Path, users: Mapping[str, str]) -> Path:
    """The file that names the users to the node."""
    path = folder / "jaas.conf"
    options = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    path.write_text(f"Server {{ {DIGEST_MODULE} required {options}; }};", encoding="utf-8")
    return path


@contextlib.contextmanager
def zookeeper_ensemble(
    count: int = 1, home: Path | None = None, users: Mapping[str, str] = MappingProxyType({})
) -> Iterator[ZooKeeperEnsemble]:
    """An ensemble for the length of a `with` block, in a temporary folder unless `home` is given.

    Raises `peers.PeerUnavailable` when its jars cannot be had or it does not start.
    """
    with contextlib.ExitStack() as resources:
        folder = home or resources.enter_context(temporary_folder())
        ensemble = ZooKeeperEnsemble(folder, count, users)
        ensemble.start()
        resources.callback(ensemble.stop)
        yield ensemble


def main(arguments: list[str]) -> int:
    """Runs an ensemble of so many nodes, one by default, until Ctrl-C."""
    with zookeeper_ensemble(int(arguments[0]) if arguments else 1) as ensemble:
        print(ensemble.connect, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
