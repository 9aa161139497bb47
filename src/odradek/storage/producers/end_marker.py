"""The record of a control batch that ends a transaction.

Key: version (2 bytes), type (2 bytes; 0 abort, 1 commit). Value: version (2 bytes), epoch of
the coordinator that decided (4 bytes). Newer versions may add fields behind these.
"""

import struct
from typing import Final, NamedTuple

from odradek.records.batch import Buffer
from odradek.records.errors import CorruptRecords
from odradek.records.reader import iter_records

ABORT: Final = 0
COMMIT: Final = 1
_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")


class EndMarker(NamedTuple):
    """The result of a transaction, and the epoch of its coordinator."""

    is_commit: bool
    coordinator_epoch: int


def parse_end_marker(batch: Buffer) -> EndMarker | None:
    """The marker in a control batch; None for control records of another kind.

    Raises:
        CorruptRecords: the batch holds no control record.
    """
    for record in iter_records(batch):
        key = record.key
        value = record.value
        if key is None or len(key) < _KEY.size:
            raise CorruptRecords("a control batch holds a record without a control key")
        kind = _KEY.unpack_from(key)[1]
        if kind not in (ABORT, COMMIT):
            return None
        if value is None or len(value) < _VALUE.size:
            raise CorruptRecords("an end marker does not name its coordinator's epoch")
        return EndMarker(kind == COMMIT, _VALUE.unpack_from(value)[1])
    raise CorruptRecords("a control batch is empty")
