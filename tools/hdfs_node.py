"""Starts Hadoop's file system from its Maven artifacts: a name node, and one that has the data.

Both live on free ports of this machine, keep their files in a temporary folder, and are stopped by
their process ids.

`python -m tools.hdfs_node` runs them until Ctrl-C, and says where they are.
"""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.request import urlopen

from tools import peers
from tools.free_port import free_port
from tools.java_server import JavaServer, java, running, temporary_folder

_SERVER = "org.apache.hadoop.hdfs.server"
_NAME_NODE, _DATA_NODE = f"{_SERVER}.namenode.NameNode", f"{_SERVER}.datanode.DataNode"
_OPTIONS = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_STATE = "jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"


class HdfsNode(JavaServer):
    """One of both. The name node serves when it listens."""


class HdfsDataNode(HdfsNode):
    """The node with the data, which serves when the name node knows it."""

    def __init__(self, command: list[str], log: Path, port: int, name_node_http: int) -> None:
        super().__init__(command, log, port)
        self._state = f"http://127.0.0.1:{name_node_http}/{_STATE}"

    def _listens(self) -> bool:
        if not super()._listens():
            return False
        with urlopen(self._state, timeout=5) as answer:
            [state] = json.load(answer)["beans"]
        return bool(state["NumLiveDataNodes"])


@contextlib.contextmanager
def hdfs() -> Iterator[str]:
    """The URI of a new file system, for the length of a `with` block.

    Raises:
        PeerUnavailable: its jars cannot be had, or it does not start.
    """
    name, name_http, data, data_ipc, data_http = (free_port() for _ in range(5))
    uri = f"hdfs://127.0.0.1:{name}"
    with contextlib.ExitStack() as resources:
        home = resources.enter_context(temporary_folder())
        settings = {
            "fs.defaultFS": uri,
            "hadoop.tmp.dir": str(home),
            "dfs.replication": "1",
            "dfs.permissions.enabled": "false",
            "dfs.namenode.http-address": f"127.0.0.1:{name_http}",
            "dfs.datanode.address": f"127.0.0.1:{data}",
            "dfs.datanode.ipc.address": f"127.0.0.1:{data_ipc}",
            "dfs.datanode.http.address": f"127.0.0.1:{data_http}",
        }
        # The defaults of HDFS go over `core-site.xml`, without which nothing starts.
        for site in ("core-site.xml", "hdfs-site.xml"):
            write_site(home / site, settings)
        command = java([home, *peers.hdfs_jars()], *_OPTIONS)
        format_(command, home / "format.log")
        name_node = HdfsNode([*command, _NAME_NODE], home / "name.log", name)
        data_node = HdfsDataNode([*command, _DATA_NODE], home / "data.log", data_ipc, name_http)
        resources.enter_context(running(name_node))
        resources.enter_context(running(data_node))
        yield uri


def format_(command: list[str], log: Path) -> None:
    """Makes an empty file system.

    Raises:
        PeerUnavailable: that cannot be done.
    """
    with log.open("wb") as output:
        words = [*command, _NAME_NODE, "-format", "-nonInteractive"]
        done = subprocess.run(words, stdout=output, stderr=output, check=False)
    if done.returncode != 0:
        raise peers.PeerUnavailable(f"the name node: {log.read_text()[-500:]}")


def write_site(path: Path, settings: Mapping[str, str]) -> None:
    """Writes settings as Hadoop reads them."""
    lines = (
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in settings.items()
    )
    path.write_text(f"<configuration>{''.join(lines)}</configuration>", encoding="utf-8")


def main() -> int:
    """Runs one until Ctrl-C."""
    with hdfs() as uri:
        print(uri, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
