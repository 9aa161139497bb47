"""`OffsetsInFlight`: offsets on their way to the log, and not replayed yet.

Decisions about offsets are written behind them, so they have to consider them.
"""

from collections.abc import Iterable, Sequence
from typing import Any, final

from odradek.coordinator.records.offset_records import OffsetAndMetadata, OffsetCommitKey
from odradek.coordinator.records.record import CoordinatorRecord

_Place = tuple[str, str, int]


@final
class OffsetsInFlight:
    """The offset writes under way at one moment: mostly none."""

    def __init__(self, uncommitted: Iterable[CoordinatorRecord]) -> None:
        self.group_ids: set[str] = set()
        self._values: dict[_Place, list[OffsetAndMetadata]] = {}
        for record in uncommitted:
            key: Any = record.key
            self.group_ids.add(key.group_id)
            if isinstance(key, OffsetCommitKey) and isinstance(record.value, OffsetAndMetadata):
                self._values.setdefault(_place(key), []).append(record.value)

    def has(self, key: OffsetCommitKey) -> bool:
        """Whether an offset of the partition is being committed."""
        return bool(self._values) and _place(key) in self._values

    def values(self, key: OffsetCommitKey) -> Sequence[OffsetAndMetadata]:
        """The offsets of the partition that are being committed."""
        return self._values.get(_place(key), ()) if self._values else ()

    def keys(self, group_id: str) -> list[OffsetCommitKey]:
        """The keys of a group's offsets that are being committed."""
        return [OffsetCommitKey(*place) for place in self._values if place[0] == group_id]


def _place(key: OffsetCommitKey) -> _Place:
    return key.group_id, key.topic, key.partition
