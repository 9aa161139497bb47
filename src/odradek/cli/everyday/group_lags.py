"""How far groups are behind, in records and in time.

The time lag of a partition is the age of the first record that the group has not read. Finding it
takes a read of that record, so only callers that ask for it pay.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from odradek.client import Admin, Consumer
from odradek.client.aio.admin.groups import SHARE
from odradek.client.core.admin_types import CommittedOffset, GroupDescription, ShareGroupOffset
from odradek.client.core.consuming.list_offsets import LATEST
from odradek.client.errors import KafkaError
from odradek.errors import ErrorCode
from odradek.model import TopicPartition

T = TypeVar("T")
K = TypeVar("K")

# One batch of each partition is enough to see its first record.
_LOOK_BYTES: Final = 65_536
_LOOK_MS: Final = 5_000
_POLL_MS: Final = 250
Place = tuple[TopicPartition, int]
Offsets = Mapping[str, Mapping[TopicPartition, CommittedOffset | ShareGroupOffset]]
_NOT_THERE: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class PartitionLag(NamedTuple):
    """A group's position in a partition; None where a value is unknown or missing."""

    partition: TopicPartition
    committed: int | None
    end: int | None
    member: str | None
    next_record_ms: int | None = None
    told_lag: int | None = None

    @property
    def lag(self) -> int | None:
        """The number of offsets ahead; of a share group, which has acknowledged some, as the broker
        reports it.
        """
        if self.told_lag is not None:
            return self.told_lag
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)

    def lag_ms(self, now_ms: int) -> int | None:
        """The age of the next record; 0 when there is none."""
        if self.lag == 0:
            return 0
        return None if self.next_record_ms is None else max(0, now_ms - self.next_record_ms)


class GroupLag(NamedTuple):
    """A group with its partitions."""

    group: GroupDescription
    partitions: tuple[PartitionLag, ...]

    @property
    def lag(self) -> int | None:
        """The number of offsets ahead, in all partitions with a committed offset."""
        known = [each.lag for each in self.partitions if each.lag is not None]
        return sum(known) if known else None

    def lag_ms(self, now_ms: int) -> int | None:
        """The largest of its partitions."""
        known = [each.lag_ms(now_ms) for each in self.partitions]
        return max((each for each in known if each is not None), default=None)

    @property
    def consumed(self) -> int:
        """The sum of its committed offsets, which grows while the group makes progress."""
        return sum(each.committed or 0 for each in self.partitions)


async def group_lags(admin: Admin, group_ids: Iterable[str]) -> list[GroupLag]:
    """Groups with their lag in records; missing groups are left out.

    Raises:
        KafkaError: a group cannot be described, or what it has committed not be asked for.
    """
    wanted = list(group_ids)
    groups = _found(await admin.describe_groups(wanted))
    shared = [group_id for group_id, group in groups.items() if group.type == SHARE]
    offsets: Offsets = {
        **_found(await admin.list_group_offsets(groups.keys() - set(shared))),
        **{
            group_id: _found(starts)
            for group_id, starts in _found(await admin.list_share_group_offsets(shared)).items()
        },
    }
    partitions = {each for found in offsets.values() for each in found}
    partitions |= {
        each for group in groups.values() for member in group.members for each in member.partitions
    }
    answers = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    ends = {
        each: answer.offset
        for each, answer in answers.items()
        if not isinstance(answer, KafkaError)
    }
    return [_lag(group, offsets.get(group_id, {}), ends) for group_id, group in groups.items()]


def _found(answers: Mapping[K, T | KafkaError]) -> dict[K, T]:
    """The answers about existing groups; raises the errors of the others."""
    found = {}
    for each, answer in answers.items():
        if not isinstance(answer, KafkaError):
            found[each] = answer
        elif answer.code not in _NOT_THERE:
            raise answer
    return found


def _lag(
    group: GroupDescription,
    offsets: Mapping[TopicPartition, CommittedOffset | ShareGroupOffset],
    ends: Mapping[TopicPartition, int],
) -> GroupLag:
    members: dict[TopicPartition, list[str]] = {}
    for member in group.members:
        for partition in member.partitions:
            members.setdefault(partition, []).append(f"{member.client_id} {member.host}")
    rows = [
        PartitionLag(
            each,
            _committed(offsets.get(each)),
            ends.get(each),
            ", ".join(members.get(each, ())) or None,
            told_lag=getattr(offsets.get(each), "lag", None),
        )
        for each in sorted(members.keys() | offsets.keys())
    ]
    return GroupLag(group, tuple(rows))


def _committed(offset: CommittedOffset | ShareGroupOffset | None) -> int | None:
    if isinstance(offset, ShareGroupOffset):
        return None if offset.start_offset < 0 else offset.start_offset
    return None if offset is None else offset.offset


async def with_times(consumer: Consumer, groups: Iterable[GroupLag]) -> list[GroupLag]:
    """Adds their lag in time, as far as the records can be read within some seconds."""
    groups = list(groups)
    waiting = {
        (row.partition, row.committed)
        for group in groups
        for row in group.partitions
        if row.lag and row.committed is not None
    }
    times = await _record_times(consumer, waiting)
    return [
        group._replace(
            partitions=tuple(
                row._replace(next_record_ms=times.get((row.partition, row.committed or 0)))
                for row in group.partitions
            )
        )
        for group in groups
    ]


def look_settings() -> dict[str, object]:
    """The settings that the consumer of `with_times` needs in addition to its brokers."""
    return {"max.partition.fetch.bytes": _LOOK_BYTES, "auto.offset.reset": "earliest"}


async def _record_times(consumer: Consumer, wanted: Iterable[Place]) -> dict[Place, int]:
    """The timestamps of the first records at or after these offsets."""
    found: dict[Place, int] = {}
    left = sorted(wanted)
    while left:
        # A partition is read at one place at a time.
        places = dict(left)
        left = [place for place in left if places[place[0]] != place[1]]
        consumer.assign(places)
        for partition, offset in places.items():
            consumer.seek(partition, offset)
        for _ in range(_LOOK_MS // _POLL_MS):
            if not places:
                break
            try:
                read = await consumer.getmany(timeout_ms=_POLL_MS)
            except KafkaError:
                break  # a record that cannot be read has no time, nor have those behind it
            for partition, records in read.items():
                if partition in places:
                    found[partition, places.pop(partition)] = records[0].timestamp
                    consumer.pause(partition)
    return found
