"""Every count of the run, each taken at its place, and what is missing or there twice.

Places: the data set's rows, the broker's acknowledgements, what a consumer saw, what is in the
archive's files. Nothing is subtracted to get a count; differences are taken between sets of
positions (topic, partition, offset) and of event ids.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from examples.flights.readback import Readback
from examples.flights.replay import Position


@dataclass(frozen=True)
class Account:
    """The numbers that should be the same everywhere, and two that should be 0."""

    events: int
    produced: int
    consumed: int
    archived: int
    lost: int
    duplicated: int

    @property
    def is_balanced(self) -> bool:
        """Whether every event arrived everywhere exactly once."""
        same = self.events == self.produced == self.consumed == self.archived
        return same and self.lost == 0 and self.duplicated == 0


def settle(
    events: int,
    acknowledged: Sequence[Position],
    seen: Readback,
    ours: Readback,
    archived: Sequence[Position],
) -> Account:
    """Compares the places with each other.

    Lost is an event without an acknowledgement, and an acknowledged record that the consumer, our
    own group or the archive does not have. Duplicated is an event that came to the consumer more
    than once, under whichever offset, or to our group, and a row that the archive has more than
    once.
    """
    kept = set(acknowledged)
    missing = (kept - seen.positions.keys()) | (kept - ours.positions.keys())
    missing |= kept - set(archived)
    return Account(
        events=events,
        produced=len(acknowledged),
        consumed=seen.count,
        archived=len(archived),
        lost=len(missing) + max(0, events - len(kept)),
        duplicated=_repeated(seen.ids) + _repeated(ours.positions) + _repeated(Counter(archived)),
    )


def _repeated(counts: Counter[Position] | Counter[tuple[str, int]]) -> int:
    return counts.total() - len(counts)


def percentile(values: Collection[float], share: float) -> float:
    """The value that `share` of the values do not exceed; 0 when there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
