"""A temporary directory that goes with the object that holds it, at the latest with the process.

A forked child has a copy of the object, and the end of that removes nothing.

Unlike `tempfile.TemporaryDirectory` it says nothing when it was not removed by hand: a broker
that was stopped keeps its records for the next start, and nobody owes it another call.
"""

import os
import shutil
import tempfile
from typing import Final
from weakref import finalize


class Scratch:
    """The directory, from now on."""

    def __init__(self) -> None:
        self.path: Final = tempfile.mkdtemp(prefix="odradek-")
        self._removal: Final = finalize(self, _remove, self.path, os.getpid())

    def remove(self) -> None:
        """Removes it with all in it; doing so again does nothing."""
        self._removal()


def _remove(path: str, process_id: int) -> None:
    if os.getpid() == process_id:
        shutil.rmtree(path, ignore_errors=True)
