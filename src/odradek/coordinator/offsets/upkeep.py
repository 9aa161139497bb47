"""Upkeep of offsets: removes them when they expire or their topics are deleted (KIP-211).

It looks at all offsets of a partition, slice by slice: the records of a slice are appended before
the next one is made. An offset is only removed when the records are committed.

A slice is written behind commits in flight, and would remove those too. So an uncommitted offset
counts as present: it stays, and so does its group.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from odradek.config.broker import BrokerConfig
from odradek.coordinator.group import GroupRegistry
from odradek.coordinator.offsets.in_flight import OffsetsInFlight
from odradek.coordinator.offsets.store import SLICE_OFFSETS, OffsetStore
from odradek.coordinator.records.offset_records import (
    NO_EXPIRY,
    OffsetCommitKey,
    tombstone,
)
from odradek.coordinator.records.record import CoordinatorRecord
from odradek.coordinator.runtime.shard import Uncommitted

MS_PER_MINUTE: Final = 60_000


class OffsetUpkeep:
    """Expiry and the end of topics, for the offsets of one partition of the internal topic."""

    def __init__(self, store: OffsetStore, registry: GroupRegistry, config: BrokerConfig) -> None:
        self._store = store
        self._registry = registry
        self._config = config

    def delete_topics(
        self, topics: frozenset[str], deleted_ms: int, uncommitted: Uncommitted
    ) -> Iterator[list[CoordinatorRecord]]:
        """The records that remove the offsets of topics that were deleted, slice by slice.

        Offsets that were committed later belong to a new topic of the same name.
        """
        records: list[CoordinatorRecord] = []
        looked_at = 0
        in_flight = OffsetsInFlight(uncommitted())
        for group_id in self._store.group_ids():
            for keys in self._store.key_slices(group_id, topics):
                records += [
                    tombstone(key) for key in keys if self._is_older(key, deleted_ms, in_flight)
                ]
                looked_at += len(keys) + 1
                if looked_at >= SLICE_OFFSETS:
                    yield records
                    records, looked_at = [], 0
                    in_flight = OffsetsInFlight(uncommitted())
        yield records

    def _is_older(self, key: OffsetCommitKey, moment_ms: int, in_flight: OffsetsInFlight) -> bool:
        """Whether every known offset of the partition was committed by that moment."""
        values = [*self._store.pending.values(key), *in_flight.values(key)]
        committed = self._store.find(key)
        if committed is not None:
            values.append(committed)
        return bool(values) and all(each.commit_timestamp_ms <= moment_ms for each in values)

    def expire(self, now_ms: int, uncommitted: Uncommitted) -> Iterator[list[CoordinatorRecord]]:
        """The records that remove expired offsets, and groups with nothing left, slice by slice."""
        retention_ms = self._config["offsets.retention.minutes"] * MS_PER_MINUTE
        records: list[CoordinatorRecord] = []
        looked_at = 0
        in_flight = OffsetsInFlight(uncommitted())
        for group_id in dict.fromkeys([*self._registry.group_ids(), *self._store.group_ids()]):
            first = len(records)
            for keys in self._store.key_slices(group_id):
                records += [
                    tombstone(key)
                    for key in keys
                    if not in_flight.has(key) and self._is_expired(key, now_ms, retention_ms)
                ]
                if not keys and group_id not in in_flight.group_ids:
                    records += self._maybe_remove(group_id, len(records) - first)
                looked_at += len(keys) + 1
                if looked_at >= SLICE_OFFSETS:
                    yield records
                    records, looked_at, first = [], 0, 0
                    in_flight = OffsetsInFlight(uncommitted())
        yield records

    def _maybe_remove(self, group_id: str, leaving: int) -> Sequence[CoordinatorRecord]:
        """Makes the records that remove a group without members, and without offsets but those
        `leaving`."""
        group = self._registry.get(group_id)
        left = sum(map(len, self._store.of_group(group_id).values())) - leaving
        left += len(self._store.pending.partitions(group_id))
        if group is None or left or not group.is_empty or not group.may_expire:
            return ()
        return group.tombstones()

    def _is_expired(self, key: OffsetCommitKey, now_ms: int, retention_ms: int) -> bool:
        value = self._store.find(key)
        if value is None or self._store.pending.has(key):
            return False
        group = self._registry.get(key.group_id)
        base_ms: int | None = value.commit_timestamp_ms  # an offset may outlive its group
        if group is not None:
            base_ms = group.offset_expiry_base_ms(key.topic, value.commit_timestamp_ms)
        if base_ms is None:
            return False
        if value.expire_timestamp_ms != NO_EXPIRY:
            return now_ms >= value.expire_timestamp_ms
        return now_ms - base_ms >= retention_ms
