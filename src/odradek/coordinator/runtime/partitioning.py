"""Computes the partition of an internal topic for a name, as Kafka and its tools do."""

from typing import Final

from mypy_extensions import i64

_INT32_MIN: Final = -0x80000000


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 code units, in 32-bit arithmetic, signed."""
    data = text.encode("utf-16-be", "surrogatepass")
    code: i64 = 0
    for index in range(0, len(data), 2):
        unit = i64(data[index]) << 8 | i64(data[index + 1])
        code = (code * 31 + unit) & 0xFFFFFFFF
    return code - 0x100000000 if code & 0x80000000 else code


def partition_for(name: str, partition_count: int) -> int:
    """The partition of a group id or transactional id; the smallest integer counts as 0."""
    code = java_hash(name)
    return (0 if code == _INT32_MIN else abs(code)) % partition_count
