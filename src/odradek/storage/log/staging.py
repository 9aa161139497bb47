"""The batches of one write: they have offsets but are in no file yet."""

from odradek.records.batch import BatchHeader
from odradek.storage.files import Buffer
from odradek.storage.index.transaction_index import AbortedEntry


class Staged:
    """The batches for the next write.

    `end_offset` is the offset that the next batch gets. The caller's results from `first_result` on
    depend on the write: they become errors if it fails.
    """

    def __init__(self, end_offset: int) -> None:
        self.end_offset = end_offset
        self.first_result = 0
        self.size_bytes = 0
        self.record_count = 0
        self.buffers: list[Buffer] = []
        self.headers: list[BatchHeader] = []
        self.aborted: list[AbortedEntry] = []

    def add(self, header: BatchHeader) -> None:
        """Adds a batch; its bytes go to `buffers`, with those of its neighbours."""
        self.headers.append(header)
        self.size_bytes += header.size_bytes
        self.record_count += max(header.record_count, 1)
        self.end_offset = header.base_offset + header.last_offset_delta + 1

    def clear(self, end_offset: int, first_result: int) -> None:
        """Empties the row, which was written or refused, for more."""
        self.end_offset = end_offset
        self.first_result = first_result
        self.size_bytes = 0
        self.record_count = 0
        self.buffers = []
        self.headers = []
        self.aborted = []
