"""The state a directory keeps of its cluster: one file to read, one lock to hold.

`cluster.json` has the ports of the brokers, which do not change, and their process ids while they
run. The ids are for people: no command relies on one, since it may be another process's by now. The
process that runs the cluster holds the lock, so the lock is released however it ends.
"""

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from odradek.errors import reason_of
from odradek.server.errors import StartError
from odradek.system_calls import OPEN_FLAGS, lock_file

STATE_FILE: Final = "cluster.json"
LOCK_FILE: Final = ".cluster.lock"


@dataclass
class ClusterState:
    """Brokers 1 to n by their ports, and the ensemble that was given, if any."""

    ports: list[int]
    zookeeper: str | None = None
    pids: dict[str, int] = field(default_factory=dict)

    def save(self, directory: Path) -> None:
        """Writes the file atomically."""
        written = directory / f"{STATE_FILE}.tmp"
        written.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")
        written.replace(directory / STATE_FILE)


def load(directory: Path) -> ClusterState | None:
    """Loads the cluster of a directory; None when it is new or empty.

    Raises:
        StartError: it holds something else, or its file cannot be read.
    """
    path = directory / STATE_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        state = ClusterState(**found)
        if not state.ports or not all(isinstance(port, int) for port in state.ports):
            raise ValueError("no ports")
    except FileNotFoundError:
        _refuse_strangers(directory)
        return None
    except NotADirectoryError:
        raise StartError(f"{directory} is not a directory") from None
    except OSError as error:
        raise StartError(f"Cannot read {path}: {reason_of(error)}") from error
    except (ValueError, TypeError) as error:
        raise StartError(
            f"{path} is damaged ({error}); it is JSON with the ports of the brokers, as in "
            '{"ports": [9092, 9093, 9094]}'
        ) from error
    return state


def _refuse_strangers(directory: Path) -> None:
    if not directory.exists():
        return
    strangers = sorted(name for name in os.listdir(directory) if name != LOCK_FILE)
    if strangers:
        raise StartError(
            f"{directory} holds what is not a cluster's ({strangers[0]}); give --data-dir a "
            "directory that is new or empty"
        )


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Keeps other processes from running the cluster of a directory; makes the directory.

    Raises:
        StartError: another process runs it, or the directory cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | OPEN_FLAGS, 0o644)
    except OSError as error:
        raise StartError(f"Cannot write to {directory}: {reason_of(error)}") from error
    try:
        lock_file(lock)
        yield
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        raise StartError(f"The cluster of {directory} is running already") from None
    finally:
        os.close(lock)
