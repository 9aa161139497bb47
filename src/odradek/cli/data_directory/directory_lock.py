"""Checks whether a broker, ours or Apache Kafka's, is using a log directory, and keeps brokers out.

Kafka's Java locks `.lock` by POSIX rules, ours by flock; a reader has to ask for both. The lock is
a shared one, held while a tool works, so that no broker starts meanwhile. It writes nothing: a
directory without a lock file is not in use.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from odradek.errors import reason_of
from odradek.kafka_files.inspection import UnreadableFile
from odradek.storage import names
from odradek.system_calls import OPEN_FLAGS, lock_file_shared


@contextmanager
def held_still(directory: str) -> Iterator[None]:
    """Keeps brokers out of a directory for the length of a `with` block.

    Raises:
        UnreadableFile: a broker is running on it, or its lock cannot be read.
    """
    descriptor = _open(os.path.join(directory, names.LOCK_FILE))
    try:
        if descriptor is not None:
            _take(descriptor, directory)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _open(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | OPEN_FLAGS)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableFile(path, reason_of(error)) from error


def _take(descriptor: int, directory: str) -> None:
    try:
        lock_file_shared(descriptor)
    except OSError as error:
        in_use = error.errno in (errno.EAGAIN, errno.EACCES)
        problem = "a broker is running on it; stop it first" if in_use else reason_of(error)
        raise UnreadableFile(directory, problem) from error
