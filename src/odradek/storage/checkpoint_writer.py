"""Writes the checkpoints of one log directory in the background, one at a time for each file.

What is asked for while a write is on its way is written after it, the latest only; what is
already in the file is not written again.
"""

from odradek.model import TopicPartition
from odradek.storage.log_directory import LogDirectory

Offsets = dict[TopicPartition, int]


class CheckpointWriter:
    """The checkpoints of `directory`."""

    def __init__(self, directory: LogDirectory) -> None:
        self.directory = directory
        self._written: dict[str, Offsets] = {}
        self._in_flight: dict[str, Offsets] = {}
        self._waiting: dict[str, Offsets] = {}

    def write(self, name: str, offsets: Offsets) -> None:
        """Has the checkpoint replaced; a failing disk takes the directory offline."""
        if self.directory.failure is not None:
            return
        if name in self._in_flight:
            self._waiting[name] = offsets
            return
        if self._written.get(name) == offsets:
            return
        self._in_flight[name] = offsets
        self.directory.background.submit(
            lambda: self.directory.write_offsets(name, offsets),
            lambda _: self._on_written(name, offsets),
            lambda error: self._on_error(name, error),
        )

    def _on_written(self, name: str, offsets: Offsets) -> None:
        self._written[name] = offsets
        self._next(name)

    def _on_error(self, name: str, error: BaseException) -> None:
        if isinstance(error, OSError):
            self.directory.storage_error(error, f"writing {name}")
        self._next(name)

    def _next(self, name: str) -> None:
        del self._in_flight[name]
        waiting = self._waiting.pop(name, None)
        if waiting is not None:
            self.write(name, waiting)
