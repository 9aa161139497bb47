"""Checks the records of a schedule topic: impossible schedules are refused before they are
appended.

The error is INVALID_RECORD, with a sentence for each such record, and nothing of its batch is
appended, as with Kafka's other errors about single records. A target has to exist, and the
scheduling producer must be allowed to write to it. A target must not be a schedule topic, so that
no record is scheduled without end.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from odradek.config.topic import LogConfig
from odradek.errors import BrokerError
from odradek.metadata.image import MetadataImage
from odradek.model import INTERNAL_TOPICS, TopicPartition
from odradek.records.errors import InvalidRecords
from odradek.records.reader import iter_records
from odradek.records.record import Record
from odradek.replication.schedule.instructions import Instructions, read_instructions
from odradek.replication.schedule.times import Unreadable

_SHOWN: Final = 3


class Admission(NamedTuple):
    """The view of one producer: the `config` of the schedule topic, the existing topics, and those
    that it may not write."""

    config: LogConfig
    image: MetadataImage
    is_denied: Callable[[TopicPartition], bool]
    now_ms: int

    def refusal(self, source: bytes) -> BrokerError | None:
        """The error that refuses these batches, or None; the append refuses damaged ones."""
        try:
            records = list(iter_records(source, check_crc=True))
        except BrokerError:
            return None
        errors: list[tuple[int, str | None]] = []
        for index, record in enumerate(records):
            try:
                self._check(record)
            except Unreadable as error:
                errors.append((index, str(error)))
        return _invalid(errors) if errors else None

    def _check(self, record: Record) -> None:
        instructions = read_instructions(record.key, record.value, record.headers, self.now_ms)
        if instructions is None:
            return
        most_ms, delay_ms = self.config.schedule_max_delay_ms, instructions.due_ms - self.now_ms
        if 0 <= most_ms < delay_ms:
            raise Unreadable(f"it is due in {delay_ms} ms, schedule.max.delay.ms is {most_ms}")
        self._check_target(instructions)

    def _check_target(self, instructions: Instructions) -> None:
        only = self.config.schedule_target_topic
        name = instructions.target or only
        if name is None:
            raise Unreadable("it has no header deliver-to, and its topic no schedule.target.topic")
        if only is not None and name != only:
            raise Unreadable(f"deliver-to: this topic delivers into {only} alone, not {name!r}")
        if name in INTERNAL_TOPICS or self.is_denied(TopicPartition(name, 0)):
            raise Unreadable(f"it may not be delivered into {name!r}")
        topic = self.image.topic(name)
        if topic is None:
            raise Unreadable(f"there is no topic {name!r} to deliver it into")
        if is_schedule_topic(self.image, name):
            raise Unreadable(f"{name} is a schedule topic itself: schedules make no chains")
        if instructions.partition >= len(topic.partitions):
            raise Unreadable(
                f"deliver-partition: {name} has {len(topic.partitions)} partitions, "
                f"there is no {instructions.partition}"
            )


def _invalid(errors: list[tuple[int, str | None]]) -> InvalidRecords:
    shown = "; ".join(f"record {index}: {why}" for index, why in errors[:_SHOWN])
    return InvalidRecords(f"{len(errors)} of the records cannot be scheduled: {shown}", errors)


def is_schedule_topic(image: MetadataImage, name: str) -> bool:
    """Whether a topic delivers its records into another."""
    if image.topic(name) is None:
        return False
    settings = image.topic_config(name)
    enabled = settings.get("schedule.enable", "").strip().lower() == "true"
    return enabled or bool(settings.get("schedule.target.topic", "").strip())
