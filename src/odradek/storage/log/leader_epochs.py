"""The start offsets of the leader epochs in a log.

A leader stamps its epoch into every batch; the cache remembers the first offset of each epoch, so
that a follower can find where its log diverges from the leader's. It lies beside the log as
`leader-epoch-checkpoint`. The file is not synced: the batches have the same facts, and a lost or
broken file is rebuilt from them.
"""

from bisect import bisect_right
from collections.abc import Sequence

from odradek.model import NO_LEADER_EPOCH, UNKNOWN_OFFSET
from odradek.storage.checkpoints import encode_epochs
from odradek.storage.files import FileSystem


class LeaderEpochCache:
    """(epoch, start offset) pairs; epochs rise strictly, start offsets do not fall."""

    def __init__(self, file_system: FileSystem, path: str) -> None:
        self._file_system = file_system
        self._path = path
        self._entries: list[tuple[int, int]] = []
        self._is_changed = False

    @property
    def latest_epoch(self) -> int:
        """The epoch of the last leader that wrote here, -1 when there was none."""
        return self._entries[-1][0] if self._entries else NO_LEADER_EPOCH

    @property
    def entries(self) -> list[tuple[int, int]]:
        """A copy of the (epoch, start offset) pairs."""
        return list(self._entries)

    def restore(self, entries: list[tuple[int, int]]) -> None:
        """Reads the file; an unusable one counts as empty."""
        self._entries = entries
        self._is_changed = not entries

    def note(self, epoch: int, start_offset: int) -> bool:
        """Like `assign`, without writing the file: for the many epochs of a rebuilt log."""
        if epoch < 0 or (self._entries and epoch <= self.latest_epoch):
            return False
        # An epoch in which nothing was written is replaced by the next one.
        while self._entries and self._entries[-1][1] >= start_offset:
            self._entries.pop()
        self._entries.append((epoch, start_offset))
        self._is_changed = True
        return True

    def assign(self, epoch: int, start_offset: int) -> None:
        """Notes that `epoch` begins at `start_offset`; an epoch that is not newer is ignored."""
        if self.note(epoch, start_offset):
            self.flush()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch not above `epoch` that was written here, and where it ends.

        The latest epoch ends where the log does. (-1, -1) when `epoch` is unknown here:
        above all that were written.
        """
        if epoch < 0 or not self._entries:
            return NO_LEADER_EPOCH, UNKNOWN_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        index = self._index_above(epoch)
        if index == len(self._entries):
            return NO_LEADER_EPOCH, UNKNOWN_OFFSET
        end_offset = self._entries[index][1]
        return (self._entries[index - 1][0] if index > 0 else epoch), end_offset

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch in which `offset` was written, -1 when that is unknown."""
        for epoch, start_offset in reversed(self._entries):
            if start_offset <= offset:
                return epoch
        return NO_LEADER_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Forgets the epochs that begin at `end_offset` or above: the log was cut there."""
        kept = [entry for entry in self._entries if entry[1] < end_offset]
        self._replace(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """Forgets the epochs that ended before `start_offset`: the log begins there now."""
        self._replace(epochs_from(self._entries, start_offset))

    def clear(self) -> None:
        """Forgets everything."""
        self._replace([])

    def moved(self, path: str) -> None:
        """Notes that the file lies somewhere else."""
        self._path = path

    def flush(self) -> None:
        """Writes the file."""
        self._file_system.replace(self._path, encode_epochs(self._entries), sync=False)
        self._is_changed = False

    def flush_if_changed(self) -> None:
        """Writes the file if an earlier attempt failed."""
        if self._is_changed:
            self.flush()

    def _index_above(self, epoch: int) -> int:
        return bisect_right(self._entries, epoch, key=lambda entry: entry[0])

    def _replace(self, entries: list[tuple[int, int]]) -> None:
        if entries != self._entries:
            self._entries = entries
            self._is_changed = True
            self.flush()


def epochs_from(entries: Sequence[tuple[int, int]], start_offset: int) -> list[tuple[int, int]]:
    """The entries of a log that begins at `start_offset`: the epoch of its first record on."""
    index = len(entries)
    while index > 0 and entries[index - 1][1] > start_offset:
        index -= 1
    if index == 0:
        return list(entries)
    return [(entries[index - 1][0], start_offset), *entries[index:]]
