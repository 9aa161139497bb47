"""The rows of a read that a query will use: others are left out where that is cheap.

A promise in one direction only. Every wanted row is read; others may be read too, so the conditions
still have to be applied. So a condition that cannot be expressed here is left out.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from odradek.tables.plan.ranges import OffsetRange


@dataclass(frozen=True)
class Numbers:
    """Whole numbers: from `lowest` to `highest`, both included, of `among` if that is given."""

    lowest: int | None = None
    highest: int | None = None
    among: frozenset[int] | None = None

    def __contains__(self, number: int) -> bool:
        return (
            (self.lowest is None or number >= self.lowest)
            and (self.highest is None or number <= self.highest)
            and (self.among is None or number in self.among)
        )

    def from_on(self, number: int) -> "Numbers":
        """The numbers that are not below this one."""
        return replace(self, lowest=number if self.lowest is None else max(self.lowest, number))

    def up_to(self, number: int) -> "Numbers":
        """The numbers that are not above this one."""
        return replace(self, highest=number if self.highest is None else min(self.highest, number))

    def one_of(self, numbers: Iterable[int]) -> "Numbers":
        """The numbers that are in both, with bounds to match."""
        among = frozenset(number for number in numbers if number in self)
        if not among:
            return NOTHING
        return Numbers(min(among), max(among), among)


ANYTHING: Final = Numbers()
NOTHING: Final = Numbers(0, -1, frozenset())


@dataclass(frozen=True)
class WantedRows:
    """Conditions on partition number, offset and time (milliseconds); a row has to meet all."""

    partition: Numbers = ANYTHING
    offset: Numbers = ANYTHING
    timestamp_ms: Numbers = ANYTHING

    def narrow(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """Cuts ranges by partition and offset."""
        lowest, highest = self.offset.lowest, self.offset.highest
        narrowed = (
            OffsetRange(
                piece.topic_partition,
                piece.start if lowest is None else max(piece.start, lowest),
                piece.end if highest is None else min(piece.end, highest + 1),
            )
            for piece in ranges
            if piece.topic_partition.partition in self.partition
        )
        return [piece for piece in narrowed if piece.size > 0]


ALL_ROWS: Final = WantedRows()
