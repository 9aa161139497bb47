"""The chunks that both transports hand to the decoder."""

from typing import NamedTuple


class Chunk(NamedTuple):
    """Record batches in a row, and the offset that follows them.

    The last batch may be cut off. `aborted` are the transactions to leave out, as (producer
    id, first offset), for readers of committed records.
    """

    records: memoryview
    next_offset: int
    aborted: tuple[tuple[int, int], ...] = ()
