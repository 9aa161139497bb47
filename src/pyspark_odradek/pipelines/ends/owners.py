"""The owners of a directory: one writer, any number of readers.

    orders/_lock/write-7.json      the seventh run that writes, and in which process it is
    orders/_lock/write-7.beat      written anew every few seconds, for whoever is elsewhere
    orders/_lock/write-7.done      it has ended
    orders/_readers/41f0.json      somebody reads what is there now; removed when he has read

A run that finds another run alive does not begin. A process on the same machine and in the same
container sees at once that a run was killed; others see it when the beat stops. Nothing is lost if
a live owner is considered dead: the commit decides which batch counts (`tables`).
"""

import atexit
import errno
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from odradek.clock import Clock
from pyspark_odradek.pipelines.ends.files import Files, LocalFiles, local_path
from pyspark_odradek.pipelines.running.settings import PipelineError

LOCK: Final = "_lock"
READERS: Final = "_readers"
_READ_ONLY: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
_BEAT_S: Final = 5.0
# How many beats of another owner may be missing before it counts as dead.
_PATIENCE_BEATS: Final = 6
# The owners in this process: a token each, since they may end before the process does.
_held: Final[set[str]] = set()


@dataclass(frozen=True)
class Owner:
    """Identifies a process, also against later ones with the same number."""

    host: str
    boot: str
    pid: int
    started: str
    token: str
    # Process numbers hold within one container.
    namespace: str = ""

    @classmethod
    def here(cls) -> "Owner":
        """This process, with a new token."""
        pid = os.getpid()
        token = uuid4().hex[:8]
        return cls(socket.gethostname(), _boot_id(), pid, _started(pid), token, _namespace())

    def is_alive(self) -> bool | None:
        """Whether the owner's process lives; None if it is on another machine, or in another
        container."""
        here = (socket.gethostname(), _boot_id(), _namespace())
        if (self.host, self.boot, self.namespace) != here:
            return None
        if (self.pid, self.started) == (os.getpid(), _started(os.getpid())):
            return self.token in _held
        return _started(self.pid) == self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Lock:
    """The writer's lock; a context that releases it at its end."""

    def __init__(
        self,
        files: Files,
        directory: str,
        role: str = "write",
        *,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._files: Final = files
        self._folder: Final = f"{directory}/{LOCK}"
        self._role: Final = role
        self._wait: Final = wait
        self._owner: Final = Owner.here()
        # While it is had; without it a lock can be sent to another process, as over Spark Connect.
        self._ended: threading.Event | None = None
        self.epoch = -1

    def __enter__(self) -> "Lock":
        self.take()
        self._ended = ended = threading.Event()
        name = f"lock of {self._folder}"
        threading.Thread(target=self._beat, args=(ended,), name=name, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._ended is not None, "a lock that is given back was taken"
        self._ended.set()
        self._ended = None
        _held.discard(self._owner.token)
        # After an interrupt the JVM, and with it some file systems, is not to be talked to.
        if kind is None or issubclass(kind, Exception):
            self._files.create(self._path("done"), "")

    def is_taken_over(self) -> bool:
        """Whether another run has taken the lock because it considered this one dead."""
        return max(self._epochs(), default=-1) > self.epoch

    def take(self) -> None:
        """Takes the lock, unless a live owner has it.

        Raises:
            PipelineError: a live owner has it.
        """
        _held.add(self._owner.token)
        try:
            self._take()
        except BaseException:
            _held.discard(self._owner.token)
            raise

    def _take(self) -> None:
        while True:
            newest = max(self._epochs(), default=-1)
            if newest >= 0:
                self._refuse_if_held(newest)
            self.epoch = newest + 1
            if not self._files.create(self._path("json"), json.dumps(asdict(self._owner))):
                continue
            if max(self._epochs(), default=-1) == self.epoch:
                break
            # Others had come and gone since we looked, and it was free again.
            self._files.remove(self._path("json"))
        for name in self._files.names(self._folder):
            if self._is_older(name):
                self._files.remove(f"{self._folder}/{name}")

    def _refuse_if_held(self, epoch: int) -> None:
        try:
            owner = Owner(**json.loads(self._files.read(self._path("json", epoch))))
        except FileNotFoundError:
            # A newer one has tidied up.
            return
        if self._files.exists(self._path("done", epoch)):
            return
        is_alive = owner.is_alive()
        if is_alive is None:
            is_alive = self._is_beating(epoch)
        if is_alive:
            directory = self._folder.removesuffix(f"/{LOCK}")
            raise PipelineError(f"{directory} is being written to by {owner}")

    def _is_beating(self, epoch: int) -> bool:
        """Watches the beat for as long as it may be late, by our own clock."""
        first = self._pulse(epoch)
        for _ in range(_PATIENCE_BEATS):
            self._wait(_BEAT_S)
            if self._pulse(epoch) != first:
                return True
        return False

    def _pulse(self, epoch: int) -> str | None:
        try:
            return self._files.read(self._path("beat", epoch))
        except FileNotFoundError:
            # None yet, or a newer one has tidied up.
            return None

    def _beat(self, ended: threading.Event) -> None:
        count = 0
        while not ended.wait(_BEAT_S):
            count += 1
            # One that is missed is made up for by the next.
            with suppress(Exception):
                self._files.replace(self._path("beat"), str(count))

    def _epochs(self) -> list[int]:
        return [
            int(name[len(self._role) + 1 : -5])
            for name in self._files.names(self._folder)
            if name.startswith(f"{self._role}-") and name.endswith(".json")
        ]

    def _is_older(self, name: str) -> bool:
        role, _, rest = name.partition("-")
        number = rest.partition(".")[0]
        return role == self._role and number.isdecimal() and int(number) < self.epoch

    def _path(self, suffix: str, epoch: int | None = None) -> str:
        return f"{self._folder}/{self._role}-{self.epoch if epoch is None else epoch}.{suffix}"


class Reader:
    """A reader, for which all files that exist when it begins are kept until it ends."""

    def __init__(
        self, files: Files, directory: str, clock: Clock, owner: Owner | None = None
    ) -> None:
        self._files: Final = files
        self._clock: Final = clock
        self._owner: Final = owner or Owner.here()
        self.path: Final = f"{directory}/{READERS}/{self._owner.token}.json"
        self._is_told = False

    def __enter__(self) -> "Reader":
        self.begin()
        return self

    def begin(self) -> None:
        """Registers the reader until the context ends, at most until this process does."""
        _held.add(self._owner.token)
        document = {**asdict(self._owner), "since": self._clock.wall_ms()}
        try:
            self._files.replace(self.path, json.dumps(document))
            self._is_told = True
        except OSError as error:
            # In a directory that cannot be written nothing is removed either.
            if error.errno not in _READ_ONLY:
                raise

    def begin_for_process(self) -> None:
        """The same; if the directory is on a disk, the regular end of this process removes it: a
        process on another machine or in another container would consider this one a reader for a
        day."""
        self.begin()
        place = local_path(self.path)
        if place is not None:
            _remove_at_exit(place, os.getpid())

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        _held.discard(self._owner.token)
        if self._is_told and (kind is None or issubclass(kind, Exception)):
            self._files.remove(self.path)


@cache
def _remove_at_exit(path: str, pid: int) -> None:
    # Once for each. Other file systems need the JVM, which may no longer answer by then.
    atexit.register(_remove, path, pid)


def _remove(path: str, pid: int) -> None:
    # A process that was forked is another one.
    if pid == os.getpid():
        with suppress(OSError):
            LocalFiles().remove(path)


# One of another machine that has not ended by then never will.
_LONGEST_READ_MS: Final = 86_400_000


def has_readers(files: Files, directory: str, clock: Clock) -> bool:
    """Whether a directory has readers; dead ones are removed."""
    folder, found = f"{directory}/{READERS}", False
    for name in files.names(folder):
        if not name.endswith(".json"):
            continue
        try:
            document: dict[str, Any] = json.loads(files.read(f"{folder}/{name}"))
        except FileNotFoundError:
            continue
        except PermissionError:
            # It belongs to another user, who may be reading.
            found = True
            continue
        since = document.pop("since")
        is_alive = Owner(**document).is_alive()
        if is_alive is None:
            is_alive = clock.wall_ms() - since < _LONGEST_READ_MS
        if is_alive:
            found = True
        else:
            # One of another user's stays, and tells nothing.
            with suppress(PermissionError):
                files.remove(f"{folder}/{name}")
    return found


def process_owner() -> Owner:
    """This process, always with the same token."""
    return _owner_of(os.getpid())


@cache
def _owner_of(_pid: int) -> Owner:
    # A forked process is another owner.
    return Owner.here()


def _namespace() -> str:
    """Returns the PID namespace of this process; empty on systems without namespaces."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Returns the start time of a process, in clock ticks of its machine; empty if there is no such
    process.
    """
    try:
        # The second field, the name, may have spaces and brackets.
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return "" if Path("/proc/self/stat").exists() else _started_elsewhere(pid)
    except ProcessLookupError:
        return ""
    # One that is dead and was not asked for by its parent is still listed.
    return "" if state in "ZX" else fields[18]


def _started_elsewhere(pid: int) -> str:
    """Without /proc: returns only whether the process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "there"
