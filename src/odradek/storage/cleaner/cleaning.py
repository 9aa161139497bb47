"""`Cleaning`: one round of compaction of one log, as a row of steps for another thread.

First the dirty segments are read and the newest offset of each key is noted, up to the first
uncleanable offset or until the map is full. Then the log's segments are taken from its beginning up
to there, in groups that fit into one segment, and each group is replaced by a cleaned one. Records
above the map's last offset stay as they are.

`steps` yields the steps one by one, and the code between them runs on the event loop: it opens the
segments for reading, and replaces a group if the log still has all of it and no reader has a lease
on it. If not (retention or a query was quicker), the round ends. It also ends, between any two
steps, once the log has lost records that it has read, or the topic's settings have changed.
"""

from collections.abc import Callable, Generator
from functools import partial

from odradek.config.topic import LogConfig
from odradek.model import UNKNOWN_OFFSET
from odradek.storage.cleaner.batch_cleaner import BatchCleaner, LastRecord, Retention
from odradek.storage.cleaner.cleanable import Cleanable
from odradek.storage.cleaner.cleaned_transactions import CleanedTransactions
from odradek.storage.cleaner.offset_map import ENTRY_BYTES, OffsetMap
from odradek.storage.cleaner.segment_cleaner import KeyCollector, SegmentCleaner, Source
from odradek.storage.files import FileSystem
from odradek.storage.index.transaction_index import AbortedEntry
from odradek.storage.log.segment import MAX_RELATIVE_OFFSET, LogSegment
from odradek.storage.producers.replay import open_in_snapshot


class Step:
    """A piece of a round. `run` gives the bytes that were read and written.

    A step that `is_brief` only computes, in so short a time that it runs on the event loop itself.
    All others are for another thread.
    """

    def __init__(self, run: Callable[[], int], *, is_brief: bool = False) -> None:
        self.run = run
        self.is_brief = is_brief


class CleanerLimits:
    """How much memory a round may take, and how much it reads at once."""

    def __init__(self, memory_bytes: int, load_factor: float, window_bytes: int) -> None:
        self.memory_bytes = memory_bytes
        self.load_factor = load_factor
        self.window_bytes = window_bytes


class Cleaning:
    """One round.

    `end_offset` is where the next round has to continue; `is_over` ends this one early, and its
    findings in the records are invalid then. While `is_committing`, an error of the disk leaves
    files in an unknown state.
    """

    def __init__(self, cleanable: Cleanable, now_ms: int, limits: CleanerLimits) -> None:
        self.log = cleanable.log
        self.end_offset = cleanable.first_dirty_offset
        self.is_committing = False
        self._cleanable = cleanable
        self._cuts = self.log.local.cuts
        self._policy = _policy(self.log.config)
        self._now_ms = now_ms
        self._limits = limits
        # There are no more keys than offsets.
        most_keys = cleanable.first_uncleanable_offset - self.end_offset
        wanted_bytes = (int(most_keys / limits.load_factor) + 2) * ENTRY_BYTES
        self._offsets = OffsetMap(
            min(limits.memory_bytes, wanted_bytes), limits.load_factor, self.end_offset
        )
        self._aborted: list[AbortedEntry] = []
        self._retention = Retention(
            now_ms, self.log.config.delete_retention_ms, self._last_records()
        )
        self._unfinished: SegmentCleaner | None = None

    @property
    def is_over(self) -> bool:
        """Whether the log is not to be cleaned any further."""
        local = self.log.local
        return (
            not local.is_usable
            or local.cuts != self._cuts
            or _policy(self.log.config) != self._policy
        )

    def steps(self) -> Generator[Step, None, None]:
        """The work, step by step; a step has to be done before the next one is asked for."""
        self._aborted = self._aborted_entries()
        while not self._offsets.is_clear:
            yield Step(self._clear_map, is_brief=True)
        yield from self._collect_keys()
        end_offset = self._offsets.latest_offset + 1
        if end_offset > self._cleanable.first_dirty_offset:
            yield from self._clean(end_offset)

    def discard(self) -> Step | None:
        """Cleans up when the round ends early."""
        unfinished, self._unfinished = self._unfinished, None
        return Step(unfinished.discard) if unfinished is not None else None

    def _clear_map(self) -> int:
        self._offsets.clear_some()
        return 0

    def _collect_keys(self) -> Generator[Step, None, None]:
        start = self._cleanable.first_dirty_offset
        end = self._cleanable.first_uncleanable_offset
        collector = KeyCollector(
            self._offsets,
            CleanedTransactions([entry for entry in self._aborted if entry.last_offset >= start]),
            end,
        )
        dirty = self.log.segments.between(start, end)
        for segment in dirty:
            if not self.log.segments.holds(segment):
                return
            place = segment.locate(start)
            source = Source(segment.file.duplicate(), segment.base_offset)
            source.position = place.position if place is not None else segment.size_bytes
            try:
                while not (source.is_done or collector.is_done):
                    yield Step(partial(source.fill, self._limits.window_bytes))
                    while source.has_batch and not collector.is_done:
                        yield Step(partial(collector.step, source), is_brief=source.is_plain)
            finally:
                source.file.close()
            if collector.is_done:
                return
            # Offsets at the segment's end that an earlier round has removed count as known.
            following = self.log.segments.following(segment)
            if following is not None:
                known = min(following.base_offset, end) - 1
                self._offsets.latest_offset = max(self._offsets.latest_offset, known)

    def _clean(self, end_offset: int) -> Generator[Step, None, None]:
        legacy_horizon_ms = self._legacy_horizon_ms()
        transactions = CleanedTransactions(self._aborted)
        cleaner = BatchCleaner(self._offsets, transactions, self._retention)
        doomed = [s for s in self.log.segments.all() if s.base_offset < end_offset]
        if not doomed:
            # Retention was quicker.
            return
        behind = self.log.segments.following(doomed[-1])
        config = self.log.config
        groups = group_segments(
            doomed,
            behind.base_offset if behind is not None else self.log.log_end_offset,
            config.segment_bytes,
            config.segment_index_bytes,
        )
        for group in groups:
            if not self._holds(group):
                return
            target = self._begin(group, cleaner, transactions)
            for segment in group:
                if not self.log.segments.holds(segment):
                    return
                source = Source(
                    segment.file.duplicate(),
                    segment.base_offset,
                    segment.modified_ms <= legacy_horizon_ms,
                )
                try:
                    while not source.is_done:
                        yield Step(partial(source.fill, self._limits.window_bytes))
                        while source.has_batch:
                            yield Step(partial(target.step, source), is_brief=source.is_plain)
                        if target.has_kept:
                            yield Step(target.write)
                finally:
                    source.file.close()
            yield from self._finish(group, target)
            if self._unfinished is not None:
                return
        self.end_offset = end_offset

    def _begin(
        self, group: list[LogSegment], cleaner: BatchCleaner, transactions: CleanedTransactions
    ) -> SegmentCleaner:
        config = self.log.config
        file_system, path = self.log.log_directory.file_system, self.log.local.path
        transactions.begin_segment(open_in_snapshot(file_system, path, group[0].base_offset))
        self._unfinished = SegmentCleaner(
            file_system.for_thread(),
            path,
            group[0].base_offset,
            config.index_interval_bytes,
            config.segment_index_bytes,
            cleaner,
            transactions,
        )
        return self._unfinished

    def _finish(
        self, group: list[LogSegment], target: SegmentCleaner
    ) -> Generator[Step, None, None]:
        """Replaces the group by the cleaned segment, if that is possible."""
        if len(group) == 1 and group[0].size_bytes > 0 and not target.has_changed:
            yield Step(target.discard)
        else:
            yield Step(target.seal)
            self.is_committing = True
            yield Step(partial(target.finish, group[-1].modified_ms))
            if self._is_leased() or not self._holds(group):
                return
            self.log.local.replace_segments(group)
            self._unfinished = None
            yield Step(
                partial(_sync_directory, self.log.log_directory.file_system, self.log.local.path)
            )
            self.is_committing = False
        self._unfinished = None

    def _is_leased(self) -> bool:
        """Whether a reader has taken a lease meanwhile, so that the log must stay as it is."""
        log = self.log
        now_ms = log.log_directory.clock.wall_ms()
        held = log.held_from_compaction.offset(
            log.log_directory.file_system, log.local.path, now_ms
        )
        return held is not None and held < self._cleanable.first_uncleanable_offset

    def _holds(self, group: list[LogSegment]) -> bool:
        return all(self.log.segments.holds(segment) for segment in group)

    def _aborted_entries(self) -> list[AbortedEntry]:
        """The aborted transactions of the whole log: one of this round may end behind it."""
        return [
            entry for segment in self.log.segments.all() for entry in segment.transactions.entries()
        ]

    def _last_records(self) -> dict[int, LastRecord]:
        return {
            state.producer_id: LastRecord(
                state.last_offset if state.batches else UNKNOWN_OFFSET, state.epoch
            )
            for state in self.log.producers.active()
        }

    def _legacy_horizon_ms(self) -> int:
        """In segments that are not newer than this, tombstones of the old formats are dropped."""
        clean = [
            segment
            for segment in self.log.segments.all()
            if segment.base_offset < self._cleanable.first_dirty_offset
        ]
        return clean[-1].modified_ms - self.log.config.delete_retention_ms if clean else -1


def group_segments(
    segments: list[LogSegment], end_offset: int, max_bytes: int, max_index_bytes: int
) -> list[list[LogSegment]]:
    """Groups of neighbours that fit into one segment of `max_bytes`, with both of its indexes.

    `end_offset` is the end of the last segment. An index has 31 bits for the distance of an offset
    from the base, which also bounds a group.
    """
    groups: list[list[LogSegment]] = []
    ends = [*(segment.base_offset for segment in segments[1:]), end_offset]
    size_bytes = offset_index_bytes = time_index_bytes = 0
    for segment, end in zip(segments, ends, strict=True):
        size_bytes += segment.size_bytes
        offset_index_bytes += segment.offset_index.used_bytes
        time_index_bytes += segment.time_index.used_bytes
        if (
            groups
            and size_bytes <= max_bytes
            and max(offset_index_bytes, time_index_bytes) <= max_index_bytes
            and end - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET
        ):
            groups[-1].append(segment)
            continue
        groups.append([segment])
        size_bytes = segment.size_bytes
        offset_index_bytes = segment.offset_index.used_bytes
        time_index_bytes = segment.time_index.used_bytes
    return groups


def _policy(config: LogConfig) -> tuple[bool, int, int]:
    """The settings of a topic that decide which records are dropped."""
    return config.compact, config.min_compaction_lag_ms, config.delete_retention_ms


def _sync_directory(file_system: FileSystem, path: str) -> int:
    file_system.sync(path)
    return 0
