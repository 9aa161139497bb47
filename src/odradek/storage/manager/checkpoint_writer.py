"""Writes the checkpoints of one log directory in the background, one file at a time.

Offsets requested during a write are written after it, the latest only; offsets already in the file
are not written again. They are not even asked for during a write: a topic of thousands of
partitions that is deleted requests all files for each, and every file is about every log.
"""

from collections.abc import Callable

from odradek.storage.checkpoint_file import Offsets
from odradek.storage.log_directory import LogDirectory

# The offsets at the time when their write begins.
AskOffsets = Callable[[], Offsets]


class CheckpointWriter:
    """The checkpoints of `directory`."""

    def __init__(self, directory: LogDirectory) -> None:
        self.directory = directory
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
        checkpoint = self.directory.checkpoint(name)
        if checkpoint.says(wanted):
            # Also where a write was refused: a log that was cut may have put it right.
            self._refused.discard(name)
            return
        self._is_writing = True
        self.directory.background.submit(
            checkpoint.prepare(wanted),
            lambda _: self._on_written(name),
            lambda error: self._on_error(name, error),
        )

    def when_idle(self, action: Callable[[bool], None]) -> None:
        """Calls `action` once nothing is left to write, with whether all of it was written."""
        if self._is_writing:
            self._on_idle.append(action)
        else:
            action(not self._refused)

    def _on_written(self, name: str) -> None:
        self._refused.discard(name)
        self._next()

    def _on_error(self, name: str, error: BaseException) -> None:
        self._refused.add(name)
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
