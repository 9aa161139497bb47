"""The files of an archive that are too small, and the fewer files that become of them.

The files of an hour are as many shares of its records: a share is as many records as a file takes,
partition by partition. Where offsets are missing between the records, shares are dealt out again
from the first one on, so that there are not more of them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

from odradek.model import TopicPartition
from pyspark_odradek.pipelines.bookkeeping.manifest import ArchivedFile, FileRange
from pyspark_odradek.pipelines.ends.snapshots import of_partition

_USUAL_RECORD_BYTES: Final = 128


def records_per_file(files: Iterable[ArchivedFile], file_bytes: int) -> int:
    """Estimates the number of records in a file of this size from existing files."""
    sizes = [(file.bytes, records_in([file])) for file in files]
    total, records = sum(size for size, _ in sizes), sum(count for _, count in sizes)
    return max(1, file_bytes // max(1, total // records if records else _USUAL_RECORD_BYTES))


def records_in(files: Iterable[ArchivedFile]) -> int:
    """Returns the number of records in files."""
    return sum(piece.records for file in files for piece in file.ranges)


class Shares:
    """The records of one hour, divided among files of a size in bytes."""

    def __init__(self, hour: Sequence[ArchivedFile], file_bytes: int) -> None:
        self._pieces: Final = [piece for file in hour for piece in file.ranges]
        self.count: Final = -(-sum(file.bytes for file in hour) // file_bytes)
        self.limit: Final = records_per_file(hour, file_bytes)
        self._shifts: Final = _shifts(self._pieces)

    def most_files(self) -> int:
        """Returns how many files there will be at most: a share has more than one if it has more
        records than the limit. Spark writes one also if there are no records.
        """
        files = (-(-self._most_records(share) // self.limit) for share in range(self.count))
        return max(1, sum(files))

    def of_record(self) -> Column:
        """Returns the share of a record, by its topic, partition and offset."""
        by_topic: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for part, added in self._shifts.items():
            by_topic[part.topic][part.partition] = added
        shift = f.lit(0)
        for topic, shifts in sorted(by_topic.items()):
            shift = f.when(f.col("topic") == topic, of_partition(shifts, 0)).otherwise(shift)
        moved = f.col("offset") + shift
        return f.floor(moved % (self.limit * self.count) / self.limit)

    def _most_records(self, share: int) -> int:
        return sum(self._most_of(piece, share) for piece in self._pieces)

    def _most_of(self, piece: FileRange, share: int) -> int:
        shift = self._shifts[_place(piece)]
        between = self._before(piece.end + shift, share) - self._before(piece.start + shift, share)
        return min(between, piece.records)

    def _before(self, place: int, share: int) -> int:
        """Returns how many of the places before one are of a share."""
        turns, rest = divmod(place, self.limit * self.count)
        return turns * self.limit + min(max(rest - share * self.limit, 0), self.limit)


def _place(piece: FileRange) -> TopicPartition:
    return TopicPartition(piece.topic, piece.partition)


def _shifts(pieces: Iterable[FileRange]) -> dict[TopicPartition, int]:
    """Returns what to add to the offsets of each partition so that its first one follows the
    records of the partition before.
    """
    starts: dict[TopicPartition, int] = {}
    records: Counter[TopicPartition] = Counter()
    for piece in sorted(pieces, key=lambda each: (each.topic, each.partition)):
        place = _place(piece)
        starts[place] = min(piece.start, starts.get(place, piece.start))
        records[place] += piece.records
    shifts, before = {}, 0
    for place in starts:
        shifts[place] = before - starts[place]
        before += records[place]
    return shifts
