"""The tables of `odradek consumer-groups`, in the columns of `kafka-consumer-groups.sh`."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from odradek.client.core.admin_types import (
    CommittedOffset,
    GroupDescription,
    GroupListing,
    MemberDescription,
)
from odradek.model import NO_LEADER_EPOCH, TopicPartition

MISSING: Final = "-"
_WIDTH: Final = 15


def is_of_consumers(group: GroupListing) -> bool:
    """Whether a group is one of consumers; a group without members so far has no protocol."""
    return group.protocol_type in ("", "consumer")


class OffsetRow(NamedTuple):
    """A group's state in a partition; None is printed as a hyphen."""

    group: str
    partition: TopicPartition
    leader_epoch: int | None
    current_offset: int | None
    log_end_offset: int | None
    member: MemberDescription | None

    @property
    def lag(self) -> int | None:
        """The number of offsets ahead."""
        if self.current_offset is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.current_offset


def offset_rows(
    group: GroupDescription,
    committed: Mapping[TopicPartition, CommittedOffset],
    ends: Mapping[TopicPartition, int],
) -> list[OffsetRow]:
    """Rows for partitions that members own, then for committed ones without an owner."""
    rows = []
    assigned: set[TopicPartition] = set()
    members = sorted(group.members, key=lambda each: -len(each.partitions))
    for member in (each for each in members if each.partitions):
        for partition in sorted(member.partitions):
            assigned.add(partition)
            rows.append(_offset_row(group.group_id, partition, committed, ends, member))
    left = sorted(committed.keys() - assigned)
    rows += [_offset_row(group.group_id, each, committed, ends, None) for each in left]
    return rows


def _offset_row(
    group_id: str,
    partition: TopicPartition,
    committed: Mapping[TopicPartition, CommittedOffset],
    ends: Mapping[TopicPartition, int],
    member: MemberDescription | None,
) -> OffsetRow:
    found = committed.get(partition)
    epoch = None if found is None or found.leader_epoch == NO_LEADER_EPOCH else found.leader_epoch
    offset = None if found is None else found.offset
    return OffsetRow(group_id, partition, epoch, offset, ends.get(partition), member)


def print_offsets(rows: Iterable[OffsetRow], *, verbose: bool) -> None:
    """GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID."""
    rows = list(rows)
    widths = [
        column_width(each.group for each in rows),
        column_width(each.partition.topic for each in rows),
        10,
        *([15] if verbose else []),
        *(15, 15, 15),
        column_width(each.member.member_id for each in rows if each.member is not None),
        column_width(each.member.host for each in rows if each.member is not None),
        0,
    ]
    epoch = ["LEADER-EPOCH"] if verbose else []
    write_row(
        widths,
        *("GROUP", "TOPIC", "PARTITION", *epoch, "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"),
        *("CONSUMER-ID", "HOST", "CLIENT-ID"),
    )
    for each in rows:
        member = each.member
        write_row(
            widths,
            each.group,
            *each.partition,
            *([each.leader_epoch] if verbose else []),
            each.current_offset,
            each.log_end_offset,
            each.lag,
            None if member is None else member.member_id,
            None if member is None else member.host,
            None if member is None else member.client_id,
        )
    print()


def print_members(group: GroupDescription, *, verbose: bool) -> None:
    """GROUP CONSUMER-ID [GROUP-INSTANCE-ID] HOST CLIENT-ID #PARTITIONS, and assignments."""
    members = group.members
    has_instances = any(each.instance_id for each in members)
    widths = [
        column_width([group.group_id] if members else []),
        column_width(each.member_id for each in members),
        *(
            [column_width((each.instance_id or "" for each in members), 17)]
            if has_instances
            else []
        ),
        column_width(each.host for each in members),
        column_width(each.client_id for each in members),
        15,
    ]
    titles = ["GROUP", "CONSUMER-ID", *(["GROUP-INSTANCE-ID"] if has_instances else [])]
    titles += ["HOST", "CLIENT-ID", "#PARTITIONS"]
    if verbose:
        widths += [15, column_width((assignment_words(e.partitions) for e in members), 20), 15]
        widths += [column_width((assignment_words(e.target or ()) for e in members), 20)]
        titles += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
    write_row(widths, *titles, padded=not verbose)
    for each in members:
        cells: list[object] = [group.group_id, each.member_id]
        if has_instances:
            cells.append(each.instance_id or "")
        cells += [each.host, each.client_id, len(each.partitions)]
        if verbose:
            target_epoch = group.target_epoch if each.target is not None else None
            cells += [each.member_epoch, assignment_words(each.partitions) or None, target_epoch]
            cells += [assignment_words(each.target or ()) or None]
        write_row(widths, *cells, padded=not verbose)
    print()


def assignment_words(partitions: Iterable[TopicPartition]) -> str:
    """An assignment as `topic:0,1;other:2`."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    return ";".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in by_topic.items())


def print_state(group: GroupDescription, *, verbose: bool) -> None:
    """GROUP COORDINATOR (ID) ASSIGNMENT-STRATEGY STATE [GROUP-EPOCH TARGET-ASSIGNMENT-EPOCH]."""
    node = group.coordinator
    coordinator = f"{node.host}:{node.port}  ({node.id})"
    widths = [column_width([group.group_id]), max(25, len(coordinator)), 20, 20]
    titles = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    cells: list[object] = [group.group_id, coordinator, group.assignor or None, group.state]
    if verbose:
        widths += [15, 25]
        titles += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        cells += [group.group_epoch, group.target_epoch]
    write_row([*widths, 0], *titles, "#MEMBERS")
    write_row([*widths, 0], *cells, len(group.members))
    print()


def print_listing(groups: Iterable[GroupListing], *, types: bool, states: bool) -> None:
    """Names alone, or with TYPE and STATE."""
    groups = list(groups)
    if not types and not states:
        for each in groups:
            print(each.group_id)
        return
    widths = [column_width(each.group_id for each in groups) + 10]
    widths += [20] * (types + states)
    table = [
        ("GROUP", "TYPE", "STATE"),
        *((e.group_id, e.type.capitalize(), e.state) for e in groups),
    ]
    for name, kind, state in table:
        cells = [name, *([kind] if types else []), *([state] if states else [])]
        pairs = zip(cells, widths, strict=True)
        print(" ".join(f"{cell:<{width}}" for cell, width in pairs))


def print_new_offsets(plans: Mapping[str, Mapping[TopicPartition, int]]) -> None:
    """GROUP TOPIC PARTITION NEW-OFFSET, all groups in one table."""
    rows = [
        (group_id, topic, index, offset)
        for group_id, offsets in plans.items()
        for (topic, index), offset in offsets.items()
    ]
    widths = [column_width(plans), column_width(row[1] for row in rows), 10, 0]
    if plans:
        write_row(widths, "GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")
    for row in rows:
        write_row(widths, *row)
    print()


def column_width(texts: Iterable[str], least: int = _WIDTH) -> int:
    """The width of a column that fits all of these."""
    return max([least, *(len(text) for text in texts)])


def write_row(widths: list[int], *cells: object, padded: bool = False) -> None:
    """Prints a line break and a row, as these tables do."""
    texts = [MISSING if cell is None else str(cell) for cell in cells]
    line = " ".join(f"{text:<{width}}" for text, width in zip(texts, widths, strict=True))
    print("\n" + (line + " " if padded else line), end="")
