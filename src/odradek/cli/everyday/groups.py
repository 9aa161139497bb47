"""`odradek groups`: groups with their lag in records and in time; groups that are named, by
partition.
"""

import argparse
import sys
import time
from collections.abc import Sequence

from odradek.cli.everyday.flags import add_connection, settings_of
from odradek.cli.everyday.group_lags import GroupLag, group_lags, look_settings, with_times
from odradek.cli.everyday.words import NOTHING, counted, duration_words, number_words, table_lines
from odradek.cli.terminal import BOLD, painted, takes_colours, tell
from odradek.cli.tools.connection import add_format, print_json, run_async
from odradek.client import Admin, Consumer
from odradek.client.settings import ADMIN_SETTINGS, CONSUMER_SETTINGS
from odradek.errors import text_of
from odradek.log_limit import without_control
from odradek.suggestions import did_you_mean


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(parser)
    add_format(parser, "for people")
    parser.add_argument("group", nargs="*", metavar="GROUP", help="by partition (default: all)")


def run(arguments: argparse.Namespace) -> int:
    """Prints the groups; 1 when one that is named does not exist."""

    async def work() -> int:
        async with (
            Admin(config=settings_of(arguments, ADMIN_SETTINGS)) as admin,
            Consumer(
                config={**settings_of(arguments, CONSUMER_SETTINGS), **look_settings()}
            ) as consumer,
        ):
            wanted = arguments.group or [each.group_id for each in await admin.list_groups()]
            found = await with_times(consumer, await group_lags(admin, wanted))
            existing = {each.group.group_id for each in found if each.group.state != "Dead"}
            missing = [each for each in arguments.group if each not in existing]
            known = [each.group_id for each in await admin.list_groups()] if missing else []
        _print(found, arguments)
        for name in missing:
            meant = did_you_mean(name, known)
            tell(f"there is no group {name!r}{meant}")
        return 1 if missing else 0

    return run_async(work, lambda error: tell(text_of(error)))


def _print(groups: Sequence[GroupLag], arguments: argparse.Namespace) -> None:
    now_ms = time.time_ns() // 1_000_000
    groups = sorted(groups, key=lambda each: each.group.group_id)
    if arguments.output == "json":
        print_json([group_as_json(each, now_ms) for each in groups])
        return
    colours = takes_colours(sys.stdout)
    if not arguments.group:
        print("\n".join(overview(groups, now_ms, colours=colours)))
        return
    for each in groups:
        if each.group.state != "Dead":
            print("\n".join(by_partition(each, now_ms, colours=colours)))


def overview(groups: Sequence[GroupLag], now_ms: int, *, colours: bool) -> list[str]:
    """Prints a line for each group."""
    rows = [
        (
            each.group.group_id,
            each.group.type.lower(),
            each.group.state,
            str(len(each.group.members)),
            str(len({row.partition.topic for row in each.partitions})),
            number_words(each.lag),
            duration_words(each.lag_ms(now_ms)),
        )
        for each in groups
    ]
    titles = ("GROUP", "TYPE", "STATE", "#MEMBERS", "#TOPICS", "#LAG", "#TIME LAG")
    return table_lines(titles, rows, colours=colours)


def by_partition(group: GroupLag, now_ms: int, *, colours: bool) -> list[str]:
    """Prints a headline, and a line for each partition."""
    each = group.group
    group_id = without_control(each.group_id)
    name = painted(group_id, BOLD) if colours else group_id
    assignor = f", {without_control(each.assignor)}" if each.assignor else ""
    members = counted(len(each.members), "member")
    lag = f"lag {number_words(group.lag)}, {duration_words(group.lag_ms(now_ms))}"
    head = f"{name}: {each.type.lower()}, {each.state}, {members}{assignor}, {lag}"
    rows = [
        (
            row.partition.topic,
            str(row.partition.partition),
            number_words(row.committed),
            number_words(row.end),
            number_words(row.lag),
            duration_words(row.lag_ms(now_ms)),
            row.member or NOTHING,
        )
        for row in group.partitions
    ]
    titles = ("TOPIC", "#PARTITION", "#COMMITTED", "#END", "#LAG", "#TIME LAG", "MEMBER")
    return [head, *table_lines(titles, rows), ""] if rows else [head, ""]


def group_as_json(group: GroupLag, now_ms: int) -> dict[str, object]:
    """A group in plain values."""
    each = group.group
    return {
        "group": each.group_id,
        "type": each.type.lower(),
        "state": each.state,
        "assignor": each.assignor,
        "members": len(each.members),
        "lag": group.lag,
        "time_lag_ms": group.lag_ms(now_ms),
        "partitions": [
            {
                "topic": row.partition.topic,
                "partition": row.partition.partition,
                "committed": row.committed,
                "end": row.end,
                "lag": row.lag,
                "time_lag_ms": row.lag_ms(now_ms),
                "member": row.member,
            }
            for row in group.partitions
        ],
    }
