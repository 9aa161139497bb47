"""Columns as a sink is given them, made of Python's values."""

import struct
from collections.abc import Sequence

from odradek.tables.write.record_accumulator import BinaryColumn


def binary_column(values: Sequence[bytes | None]) -> BinaryColumn:
    """The values, one behind the other."""
    ends = [0]
    for value in values:
        ends.append(ends[-1] + len(value or b""))
    flags = bytes(value is None for value in values)
    data = b"".join(value or b"" for value in values)
    return BinaryColumn(data, struct.pack(f"<{len(ends)}i", *ends), flags if any(flags) else None)
