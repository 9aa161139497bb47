"""The tables of `odradek share-groups`, in the columns of `kafka-share-groups.sh`."""

from collections.abc import Iterable, Mapping
from typing import Final

from odradek.cli.tools.groups.tables import MISSING, assignment_words, column_width, write_row
from odradek.client.core.admin_types import GroupDescription, GroupListing, ShareGroupOffset
from odradek.model import TopicPartition

_OFFSET_WIDTH: Final = 13
_COORDINATOR_WIDTH: Final = 25
_COUNT_WIDTH: Final = 12


def print_share_listing(groups: Iterable[GroupListing]) -> None:
    """GROUP STATE."""
    groups = list(groups)
    width = column_width(each.group_id for each in groups)
    for name, state in (("GROUP", "STATE"), *((e.group_id, e.state) for e in groups)):
        print(f"{name:<{width}} {state}")


def print_share_offsets(
    group_id: str, offsets: Mapping[TopicPartition, ShareGroupOffset], *, verbose: bool
) -> None:
    """GROUP TOPIC PARTITION [LEADER-EPOCH] START-OFFSET LAG."""
    widths = [column_width([group_id]), column_width(each.topic for each in offsets), 10]
    widths += [*([_OFFSET_WIDTH] if verbose else []), _OFFSET_WIDTH, 0]
    epoch = ["LEADER-EPOCH"] if verbose else []
    write_row(widths, "GROUP", "TOPIC", "PARTITION", *epoch, "START-OFFSET", "LAG")
    for partition in sorted(offsets):
        found = offsets[partition]
        start = MISSING if found.start_offset < 0 else found.start_offset
        epoch_cell = [MISSING if found.leader_epoch < 0 else found.leader_epoch] if verbose else []
        write_row(widths, group_id, *partition, *epoch_cell, start, found.lag)
    print()


def print_share_members(group: GroupDescription, *, verbose: bool) -> None:
    """GROUP CONSUMER-ID HOST CLIENT-ID #PARTITIONS [MEMBER-EPOCH] ASSIGNMENT."""
    members = sorted(group.members, key=lambda each: each.member_id)
    widths = [
        column_width([group.group_id]),
        column_width(each.member_id for each in members),
        column_width(each.host for each in members),
        column_width(each.client_id for each in members),
        _COUNT_WIDTH,
        *([_OFFSET_WIDTH] if verbose else []),
        0,
    ]
    epoch = ["MEMBER-EPOCH"] if verbose else []
    titles = ("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", *epoch, "ASSIGNMENT")
    write_row(widths, *titles)
    for each in members:
        write_row(
            widths,
            group.group_id,
            each.member_id,
            each.host,
            each.client_id,
            len(each.partitions),
            *([each.member_epoch] if verbose else []),
            assignment_words(each.partitions),
        )
    print()


def print_share_state(group: GroupDescription, *, verbose: bool) -> None:
    """GROUP COORDINATOR (ID) STATE [GROUP-EPOCH ASSIGNMENT-EPOCH] #MEMBERS."""
    node = group.coordinator
    coordinator = f"{node.host}:{node.port}  ({node.id})"
    widths = [column_width([group.group_id]), max(_COORDINATOR_WIDTH, len(coordinator)), 15]
    widths += [*([12, 17] if verbose else []), 0]
    epochs = ["GROUP-EPOCH", "ASSIGNMENT-EPOCH"] if verbose else []
    write_row(widths, "GROUP", "COORDINATOR (ID)", "STATE", *epochs, "#MEMBERS")
    numbers = [group.group_epoch, group.target_epoch] if verbose else []
    write_row(widths, group.group_id, coordinator, group.state, *numbers, len(group.members))
    print()
