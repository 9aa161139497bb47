"""Reads the records for schedule topics before their append (`before_append`).

`replication.schedule.admission` decides which are refused.
"""

from collections.abc import Callable

from odradek.errors import BrokerError
from odradek.handlers.records.before_append import BeforeAppend, PendingAppend, Refusals
from odradek.model import TopicPartition
from odradek.replication.schedule.manager import ScheduleManager


class ScheduledRecords(BeforeAppend):
    """The step for records of schedule topics."""

    def __init__(self, schedules: ScheduleManager) -> None:
        self._schedules = schedules

    def concerns(self, append: PendingAppend) -> bool:
        """Whether any of the topics is a schedule topic."""
        topics = self._schedules.topics
        return bool(topics) and any(where.topic in topics for where, _ in append.entries)

    def start(self, append: PendingAppend, on_done: Callable[[Refusals], None]) -> None:
        """Reads the records, and refuses batches with an impossible schedule."""
        refused: dict[TopicPartition, BrokerError] = {}
        for where, source in append.sources():
            refusal = self._schedules.refusal(where, source, append.is_denied)
            if refusal is not None:
                refused[where] = refusal
        on_done(refused)
