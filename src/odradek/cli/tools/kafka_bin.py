"""`odradek kafka-bin DIR`: writes `kafka-topics.sh` and the other scripts of Kafka, each two lines
that call this command.

Scripts that call Kafka's tools then need only another PATH, and no JVM. Each is written with `.sh`
and without, as in packages of Kafka, or as `.bat` on Windows. Under these names wrong usage ends
with 1, as Kafka's does. Tools without an equivalent say so in one sentence, with status 1.
"""

import argparse
import contextlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from odradek.cli.main import AS_KAFKA, COMMAND, SCRIPTS

TOOLS: Final = (
    *("topics", "configs", "console-producer", "console-consumer", "console-share-consumer"),
    *("consumer-groups", "share-groups", "get-offsets", "delete-records", "transactions"),
    *("acls", "delegation-tokens", "log-dirs", "leader-election", "reassign-partitions"),
    *("cluster", "producer-perf-test", "consumer-perf-test", "dump-log", "broker-api-versions"),
    *(command.name for command in SCRIPTS),
)
_ON_WINDOWS: Final = sys.platform == "win32"
# Characters that a batch file would interpret.
_OF_BATCH: Final = re.compile(r"[&|<>^]")
_CONNECT: Final = "Kafka Connect is not here; Apache Kafka's own runs on an odradek broker"
_NOT_HERE: Final = "odradek has no such tool; Apache Kafka's own runs on an odradek broker"
_ZOOKEEPER: Final = "ZooKeeper is not here; its own package has this"
# Whole names, and their messages.
REFUSED: Final = {
    "connect-distributed": _CONNECT,
    "connect-mirror-maker": _CONNECT,
    "connect-plugin-path": _CONNECT,
    "connect-standalone": _CONNECT,
    "kafka-client-metrics": "say kafka-configs --client-metrics NAME",
    "kafka-e2e-latency": _NOT_HERE,
    "kafka-jmx": "there is no Java machine here; `odradek metrics` shows a broker's metrics",
    "kafka-metadata-shell": "there is no Raft quorum here",
    "kafka-mirror-maker": _CONNECT,
    "kafka-preferred-replica-election": "say kafka-leader-election --election-type preferred",
    "kafka-replica-verification": "say kafka-topics --describe --under-replicated-partitions",
    "kafka-share-consumer-perf-test": _NOT_HERE,
    "kafka-streams-application-reset": _NOT_HERE,
    "kafka-streams-groups": "there are no streams groups here",
    "kafka-verifiable-share-consumer": _NOT_HERE,
    "trogdor": _NOT_HERE,
    "zookeeper-security-migration": _ZOOKEEPER,
    "zookeeper-server-start": _ZOOKEEPER,
    "zookeeper-server-stop": _ZOOKEEPER,
    "zookeeper-shell": _ZOOKEEPER,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("directory", metavar="DIR", help="made if it is not there")


def run(arguments: argparse.Namespace) -> int:
    """Writes the scripts, and prints how many; each has two names, except on Windows.

    Raises:
        OSError: one cannot be written.
    """
    os.makedirs(arguments.directory, exist_ok=True)
    for name, text in _files():
        _write(os.path.join(arguments.directory, name), text)
    print(f"{len(TOOLS) + len(REFUSED)} scripts are in {arguments.directory}")
    return 0


def _write(path: str, text: str) -> None:
    # A link's target may be the script of an Apache Kafka.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with open(path, "x", encoding="utf-8", newline="") as script:
        script.write(text)
    os.chmod(path, 0o755)


def _files() -> Iterator[tuple[str, str]]:
    """The name and the text of each file."""
    call, refuse = (_batch_call, _batch_refusal) if _ON_WINDOWS else (_shell_call, _shell_refusal)
    texts = {f"kafka-{tool}": call((sys.executable, *COMMAND, AS_KAFKA, tool)) for tool in TOOLS}
    texts |= {name: refuse(f"{name}: {reason}") for name, reason in REFUSED.items()}
    for name, text in texts.items():
        for ending in (".bat",) if _ON_WINDOWS else (".sh", ""):
            yield f"{name}{ending}", text


def _shell_call(words: Sequence[str]) -> str:
    return f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'


def _shell_refusal(sentence: str) -> str:
    return f"#!/bin/sh\necho {shlex.quote(sentence)} >&2\nexit 1\n"


def _batch_call(words: Sequence[str]) -> str:
    return f"@{subprocess.list2cmdline(words).replace('%', '%%')} %*\r\n"


def _batch_refusal(sentence: str) -> str:
    escaped = _OF_BATCH.sub(lambda match: f"^{match[0]}", sentence)
    return f"@echo {escaped} 1>&2\r\n@exit /b 1\r\n"
