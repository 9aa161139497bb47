"""Writes the checkpoints of one log directory in the background, one file at a time.

Offsets requested during a write are written after it, the latest only; offsets already in the file
are not written again. They are not even asked for during a write: a topic of thousands of
partitions that is deleted requests all files for each, and every file is about every log.
"""

from collections.abc import Callable

from odradek.model import TopicPartition
from odradek.storage.log_directory import LogDirectory

Offsets = dict[TopicPartition, int]
# The offsets at the time when their write begins.
AskOffsets = Callable[[], Offsets]


class CheckpointWriter:
    """The checkpoints of `directory`."""

    def __init__(self, directory: LogDirectory) -> None:
        self.directory = directory
        self._written: dict[str, Offsets] = {}
        self._is_writing = False
        self._waiting: dict[str, AskOffsets] = {}
        # Checkpoints whose last write the disk refused.
        self._refused: set[str] = set()
        self._on_idle: list[Callable[[bool], None]] = []

    def write(self, name: str, offsets: AskOffsets) -> None:
        """Replaces the checkpoint; a failing disk takes the directory offline."""
        if self.directory.failure is not None:
            return
        if self._is_writing:
            self._waiting[name] = offsets
            return
        wanted = offsets()
        if self._written.get(name) == wanted:
            return
        self._is_writing = True
        self.directory.background.submit(
            self.directory.prepare_offsets(name, wanted),
            lambda _: self._on_written(name, wanted),
            lambda error: self._on_error(name, error),
        )

    def when_idle(self, action: Callable[[bool], None]) -> None:
        """Calls `action` once nothing is left to write, with whether all of it was written."""
        if self._is_writing:
            self._on_idle.append(action)
        else:
            action(not self._refused)

    def _on_written(self, name: str, offsets: Offsets) -> None:
        self._written[name] = offsets
        self._refused.discard(name)
        self._next()

    def _on_error(self, name: str, error: BaseException) -> None:
        self._refused.add(name)
        # If the earlier offsets are requested again, they have to be written.
        self._written.pop(name, None)
        try:
            if isinstance(error, OSError):
                self.directory.storage_error(error, f"writing {name}")
        finally:
            self._next()

    def _next(self) -> None:
        self._is_writing = False
        while self._waiting and not self._is_writing:
            name = next(iter(self._waiting))
            self.write(name, self._waiting.pop(name))
        if not self._is_writing:
            waiters, self._on_idle = self._on_idle, []
            for action in waiters:
                action(not self._refused)
