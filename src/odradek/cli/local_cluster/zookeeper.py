"""The ZooKeeper of a cluster without an ensemble: found on this machine, or fetched with consent.

An installed one is started by its own `zkServer.sh`, which knows where its jars are. A fetched one
is five jars in the user's cache folder, shared by all clusters. Either keeps its data in the
cluster's directory and listens on this machine only.
"""

import asyncio
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from odradek.cli.local_cluster.java import find_java, maven_command, pom
from odradek.cli.local_cluster.kept_process import KeptProcess
from odradek.errors import reason_of
from odradek.server.errors import StartError

VERSION: Final = "3.9.4"
# ZooKeeper's own POM does not name the last three, and it does not start without them.
ARTIFACTS: Final = (
    f"org.apache.zookeeper:zookeeper:{VERSION}",
    f"org.apache.zookeeper:zookeeper-jute:{VERSION}",
    "io.dropwizard.metrics:metrics-core:4.1.12.1",
    "org.xerial.snappy:snappy-java:1.1.10.5",
    "org.slf4j:slf4j-api:2.0.13",
)
# The paths of Debian's package, and usual ones.
_SCRIPTS: Final = (
    "/usr/share/zookeeper/bin/zkServer.sh",
    "/opt/zookeeper/bin/zkServer.sh",
    "/usr/local/zookeeper/bin/zkServer.sh",
)
_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_JAVA_OPTIONS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-Dzookeeper.preAllocSize=1024")
_LEAST_JAVA: Final = 8
_FETCH_LIMIT_S: Final = 600
_START_LIMIT_S: Final = 60
_LOOK_EVERY_S: Final = 0.1
_OTHERWISE: Final = (
    "install one (Debian's package zookeeper), set ZOOKEEPER_HOME, or name an ensemble with "
    "--zookeeper HOST:PORT"
)
_CONFIG: Final = """\
# Written by `odradek cluster start`, anew every time.
# Sessions end to the half second; brokers may ask for any length up to a minute.
tickTime=500
minSessionTimeout=1000
maxSessionTimeout=60000
dataDir={directory}
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
4lw.commands.whitelist=ruok,srvr
maxClientCnxns=0
autopurge.purgeInterval=1
"""


class ZooKeeperCommand(NamedTuple):
    """The command up to the name of its settings file, and its environment."""

    words: tuple[str, ...]
    environment: Mapping[str, str]


def find_zookeeper(*, fetch: bool) -> ZooKeeperCommand:
    """Finds out how to start a ZooKeeper here; with `fetch`, or when the user says yes, one is
    fetched.

    Raises:
        StartError: there is none; the message says what to type.
    """
    script = find_script()
    jars = cache_folder()
    if script is None and not _is_complete(jars):
        if not (fetch or _says_yes(jars)):
            raise StartError(
                "A cluster needs ZooKeeper, and there is none here: add --fetch-zookeeper to have "
                f"Maven fetch it (4 MB), {_OTHERWISE}"
            )
        _fetch(jars)
    java = find_java(_LEAST_JAVA)
    if java is None:
        raise StartError(
            "ZooKeeper needs Java, and there is none here: install it (Debian's package "
            "default-jre-headless), or name an ensemble with --zookeeper HOST:PORT"
        )
    if script is not None:
        home = str(Path(java).resolve().parent.parent)
        environment = {"JAVA_HOME": home, "JVMFLAGS": " ".join(_JAVA_OPTIONS)}
        return ZooKeeperCommand((script, "start-foreground"), environment)
    path = os.pathsep.join(map(str, sorted(jars.glob("*.jar"))))
    return ZooKeeperCommand((java, *_JAVA_OPTIONS, "-cp", path, _MAIN), {})


def find_script() -> str | None:
    """The `zkServer.sh` of an installed ZooKeeper."""
    home = os.environ.get("ZOOKEEPER_HOME")
    named = f"{home}/bin/zkServer.sh" if home else None
    candidates = (named, shutil.which("zkServer.sh"), *_SCRIPTS)
    return next((path for path in candidates if path and os.access(path, os.X_OK)), None)


def cache_folder() -> Path:
    """The folder of fetched jars."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "odradek" / f"zookeeper-{VERSION}"


def _is_complete(jars: Path) -> bool:
    return len(list(jars.glob("*.jar"))) == len(ARTIFACTS)


def _says_yes(jars: Path) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(
        f"A cluster needs ZooKeeper, and there is none here. Have Maven fetch it to {jars} "
        "(5 jars, 4 MB)? [y/N] ",
        end="",
        file=sys.stderr,
        flush=True,
    )
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _fetch(jars: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise StartError(
            "Fetching ZooKeeper needs Maven, and there is no mvn here: install it (Debian's "
            f"package maven), or else {_OTHERWISE}"
        )
    print("fetching ZooKeeper ...", file=sys.stderr, flush=True)
    with _alone(jars):
        (jars / "pom.xml").write_text(pom(ARTIFACTS, transitive=False), encoding="utf-8")
        try:
            done = subprocess.run(
                maven_command(maven, jars),
                capture_output=True,
                text=True,
                timeout=_FETCH_LIMIT_S,
                check=False,
            )
            said = (done.stderr or done.stdout).strip().splitlines()
            if done.returncode == 0 and _is_complete(jars):
                return
        except (OSError, subprocess.TimeoutExpired) as error:
            said = [str(error)]
    raise StartError(f"Maven could not fetch ZooKeeper: {said[0] if said else 'it says nothing'}")


@contextmanager
def _alone(jars: Path) -> Iterator[None]:
    """Lets one process fetch at a time."""
    try:
        jars.mkdir(parents=True, exist_ok=True)
        with open(jars / ".lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise StartError(f"Cannot write to {jars}: {reason_of(error)}") from error


async def start(
    process: KeptProcess, command: ZooKeeperCommand, directory: Path, port: int
) -> None:
    """Starts it on `directory`; returns when it serves.

    Raises:
        StartError: it does not start.
    """
    directory.mkdir(exist_ok=True)
    config = directory / "zoo.cfg"
    config.write_text(_CONFIG.format(directory=directory, port=port), encoding="utf-8")
    environment = {**command.environment, "ZOO_LOG_DIR": str(directory)}
    await process.launch([*command.words, str(config)], environment)
    try:
        async with asyncio.timeout(_START_LIMIT_S):
            while not await _serves(port):
                if process.pid is None:
                    raise process.did_not_start()
                await asyncio.sleep(_LOOK_EVERY_S)
    except TimeoutError:
        raise process.did_not_start() from None
    process.watch()


async def _serves(port: int) -> bool:
    """Whether a server at the port answers `srvr` with its mode."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"srvr")
        answer = await reader.read()
        writer.close()
    except OSError:
        return False
    return b"Mode: " in answer
