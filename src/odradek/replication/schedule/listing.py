"""Pending schedules, for display."""

from typing import NamedTuple

from odradek.model import TopicPartition
from odradek.replication.schedule.state import ScheduledRecord, ScheduleState

PENDING = "pending"
RELEASING = "releasing"
"""The release has begun; it is too late to cancel."""


class Schedule(NamedTuple):
    """One schedule. Its `key` is its id, `expires_ms` -1 when it does not expire; `target` is None
    where neither the record nor the topic names one."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    due_ms: int
    target: str | None
    expires_ms: int
    repeats: bool
    state: str


def schedules_in(
    where: TopicPartition, state: ScheduleState, default_target: str | None
) -> list[Schedule]:
    """Everything that has not been delivered yet, in the order of the times at which it is due."""
    found = [
        _schedule(where, each, each.due_ms, PENDING, default_target)
        for each in state.pending.values()
    ]
    found += [
        _schedule(where, each, due_ms, RELEASING, release.target.topic)
        for release in state.in_flight.values()
        for each, due_ms in release.items
    ]
    return sorted(found, key=lambda each: (each.due_ms, each.offset))


def _schedule(
    where: TopicPartition,
    record: ScheduledRecord,
    due_ms: int,
    state: str,
    default_target: str | None,
) -> Schedule:
    asked = record.instructions
    return Schedule(
        *where,
        record.offset,
        record.key,
        due_ms,
        asked.target or default_target,
        asked.expires_ms,
        asked.repeat is not None,
        state,
    )
