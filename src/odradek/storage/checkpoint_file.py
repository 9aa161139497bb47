"""`CheckpointFile`: one offset checkpoint of a log directory, and what is known of its contents.

A checkpoint is replaced as a whole, in the background. Before a log that was cut goes on, though,
its entry must not be above the cut, at whatever moment the machine stops: `limit` lowers it at once
where that is needed, and knows from memory where it is not. A file that cannot be replaced, or that
would be replaced again and again, is removed: a start without it has more to do, and that is all.
Two are more than that: without log start offsets deleted records would be back, and without the
offsets of compaction a copy on its way to another directory would not know which tombstones it has
missed.
"""

from collections.abc import Callable
from threading import Lock
from typing import Final

from odradek.model import TopicPartition
from odradek.storage import checkpoints, names
from odradek.storage.errors import FULL, half_done
from odradek.storage.files import FileSystem

Offsets = dict[TopicPartition, int]

_NEEDED: Final = (names.LOG_START_OFFSET_CHECKPOINT, names.CLEANER_CHECKPOINT)
_MOST_LOWERINGS: Final = 5
"""How often the file is lowered between two other writes before it is removed: each time it is
written as a whole, and requests wait."""


class CheckpointFile:
    """The checkpoint `name` in a log directory."""

    def __init__(self, file_system: FileSystem, directory: str, name: str) -> None:
        self._file_system: Final = file_system
        self._directory: Final = directory
        self._path: Final = f"{directory}/{name}"
        self._may_go: Final = name not in _NEEDED
        # Held by the thread that writes the file.
        self._writing: Final = Lock()
        # The contents; None if they were not looked at, or may be one thing or the other.
        self._held: Offsets | None = None
        # Whether a write has failed, so that the disk may have other contents than are read now.
        self._is_unsure = False
        # The offsets of the last write that was asked for.
        self._asked: Offsets | None = None
        self._lowerings = 0

    def read(self) -> Offsets:
        """The offsets; none when the file is missing or cannot be read, since each checkpoint only
        saves work or is bounded by the log itself.

        Raises:
            OSError: the disk failed.
        """
        if self._file_system.size(self._path) < 0:
            return {}
        try:
            return checkpoints.parse_offsets(self._file_system.read_bytes(self._path))
        except checkpoints.CorruptCheckpoint:
            return {}

    @property
    def is_unsure(self) -> bool:
        """Whether the last write has failed, so that the file may say too little or too much."""
        return self._is_unsure

    def says(self, offsets: Offsets) -> bool:
        """Whether the file has these offsets, for certain."""
        return self._held == offsets

    def prepare(self, offsets: Offsets) -> Callable[[], None]:
        """The replacement of the file, as work for any thread, which raises OSError if the old one
        is still there. `limit` changes `offsets`, also while the work waits."""
        self._asked = offsets

        def work() -> None:
            with self._writing:
                self._replace(offsets)
                self._lowerings = 0

        return work

    def limit(self, topic_partition: TopicPartition, offset: int) -> None:
        """Lowers a log's entry to `offset` if it is above. Blocks on the disk if it is.

        A write that is under way, or waits, is of before; it does not raise the entry again.

        Raises:
            OSError: the file may be as it was.
        """
        if not self._may_be_above(topic_partition, offset):
            return
        with self._writing:
            held = self._known()
            if self._is_unsure or held.get(topic_partition, 0) > offset:
                self._lower(held if self._asked is None else self._asked, topic_partition, offset)
            _limit(self._asked, topic_partition, offset)

    def _known(self) -> Offsets:
        held = self.read() if self._held is None else self._held
        if not self._is_unsure:
            self._held = held
        return held

    def _may_be_above(self, topic_partition: TopicPartition, offset: int) -> bool:
        """Whether the file may have a higher entry now, or once a write that waits is done."""
        held = self._held
        if held is None or held.get(topic_partition, 0) > offset:
            return True
        return self._asked is not None and self._asked.get(topic_partition, 0) > offset

    def _lower(self, known: Offsets, topic_partition: TopicPartition, offset: int) -> None:
        lowered = dict(known)
        _limit(lowered, topic_partition, offset)
        self._lowerings += 1
        if self._may_go and self._lowerings > _MOST_LOWERINGS:
            self._remove()
            return
        try:
            self._replace(lowered)
        except OSError as error:
            if error.errno not in FULL or not self._may_go:
                raise
            self._remove()

    def _replace(self, offsets: Offsets) -> None:
        self._held, self._is_unsure = None, True
        data = checkpoints.encode_offsets(offsets)
        self._file_system.replace(self._path, data, sync=True)
        self._held, self._is_unsure = offsets, False

    def _remove(self) -> None:
        """Removes the file for good: its name must not come back when the power fails."""
        self._held, self._is_unsure = None, True
        self._file_system.remove(self._path)
        try:
            self._file_system.sync(self._directory)
        except OSError as error:
            raise half_done(self._path, error) from error
        self._held, self._is_unsure = {}, False


def _limit(offsets: Offsets | None, topic_partition: TopicPartition, offset: int) -> None:
    if offsets is not None and offsets.get(topic_partition, 0) > offset:
        offsets[topic_partition] = offset
