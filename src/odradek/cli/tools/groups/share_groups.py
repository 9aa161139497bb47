"""`odradek share-groups`: list, describe, reset, delete, as `kafka-share-groups.sh` does."""

import argparse
import sys
from typing import Final

from odradek.cli.tools.connection import (
    add_actions,
    add_connection,
    add_format,
    is_given,
    print_json,
    the_action,
)
from odradek.cli.tools.groups.offset_resets import (
    WrongUsage,
    check_partitions,
    named_partitions,
    offsets_there,
)
from odradek.cli.tools.groups.running import run_action, words_of
from odradek.cli.tools.groups.share_tables import (
    print_share_listing,
    print_share_members,
    print_share_offsets,
    print_share_state,
)
from odradek.cli.tools.groups.tables import print_new_offsets
from odradek.cli.tools.wording.java_names import execution_exception, java_text
from odradek.cli.tools.wording.java_values import java_long
from odradek.client import Admin
from odradek.client.aio.admin.groups import SHARE
from odradek.client.core.admin_types import GroupDescription, ShareGroupOffset
from odradek.client.errors import GroupError, KafkaError
from odradek.errors import ErrorCode
from odradek.model import TopicPartition

_ACTIONS: Final = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
_STATES: Final = ("Empty", "Dead", "Stable")
_RESETS: Final = ("to-datetime", "to-earliest", "to-latest")
_EMPTY: Final = "Empty"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(parser)
    add_format(parser)
    add_actions(parser, dict.fromkeys(_ACTIONS))
    parser.add_argument("--group", action="append", default=[], metavar="NAME")
    parser.add_argument("--all-groups", action="store_true")
    parser.add_argument("--topic", action="append", default=[], metavar="NAME[:P,P]")
    parser.add_argument("--all-topics", action="store_true")
    parser.add_argument("--state", nargs="?", const="", metavar="STATES")
    parser.add_argument("--members", action="store_true")
    parser.add_argument("--offsets", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--timeout", type=java_long, default=30_000, metavar="MS")
    for name in ("to-earliest", "to-latest"):
        parser.add_argument(f"--{name}", action="store_const", const=True)
    parser.add_argument("--to-datetime", metavar="YYYY-MM-DDTHH:mm:SS.sss")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--execute", action="store_true")


def run(arguments: argparse.Namespace) -> int:
    """Runs the action. As with Kafka's tool the status is 0 even if a broker refuses, or none
    answers: the output has the error.
    """
    action = the_action(arguments, _ACTIONS, end=".")
    _check(action, arguments)
    actions = {
        "list": _list,
        "describe": _describe,
        "delete": _delete,
        "delete-offsets": _delete_offsets,
        "reset-offsets": _reset_offsets,
    }
    return run_action("share group", actions[action], arguments)


def _check(action: str, arguments: argparse.Namespace) -> None:
    """Refuses flags that Kafka's tool refuses before it sends a request."""
    wrong = arguments.parser.error
    if arguments.bootstrap_server is None:
        wrong('Missing required argument "[bootstrap-server]"')
    if action == "list":
        given = words_of(arguments.state)
        if set(given) - set(_STATES):
            wrong(f"Invalid state list '{arguments.state}'. Valid states are: {', '.join(_STATES)}")
    names_none = not (arguments.group or arguments.all_groups)
    if action == "describe" and names_none:
        wrong("Option [describe] takes one of these options: [all-groups], [group]")
    if action == "delete" and names_none:
        wrong("Option [delete] takes the options [group] or [all-groups]")
    if action == "describe":
        _check_describe(arguments)
    if action == "reset-offsets":
        _check_reset(arguments)
    if action == "delete-offsets" and not (arguments.group and arguments.topic):
        wrong("Option [delete-offsets] takes the following options: [topic], [group]")


def _check_describe(arguments: argparse.Namespace) -> None:
    wrong = arguments.parser.error
    if arguments.members + arguments.offsets + (arguments.state is not None) > 1:
        wrong("Option [describe] takes at most one of these options: [members], [offsets], [state]")
    if arguments.state:
        wrong("Option [describe] does not take a value for [state]")


def _check_reset(arguments: argparse.Namespace) -> None:
    wrong = arguments.parser.error
    if arguments.dry_run and arguments.execute:
        wrong("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not arguments.dry_run and not arguments.execute:
        wrong("Option [reset-offsets] takes the option: [execute] or [dry-run]")
    if not arguments.group:
        wrong("Option [reset-offsets] takes the option: [group]")
    if arguments.topic and arguments.all_topics:
        wrong("Option [reset-offsets] takes either [all-topics] or [topic], not both.")
    if not arguments.topic and not arguments.all_topics:
        wrong("Option [reset-offsets] takes one of these options: [all-topics], [topic]")
    if sum(is_given(arguments, each) for each in _RESETS) != 1:
        scenarios = ", ".join(f"[{each}]" for each in _RESETS)
        wrong(f"Option [reset-offsets] takes one of these options: {scenarios}")


async def _list(admin: Admin, arguments: argparse.Namespace) -> int:
    found = await admin.list_groups(words_of(arguments.state), [SHARE.lower()])
    found.sort(key=lambda each: each.group_id)
    if arguments.output == "json":
        print_json([{"group": each.group_id, "state": each.state} for each in found])
    elif arguments.state is None:
        for each in found:
            print(each.group_id)
    else:
        print_share_listing(found)
    return 0


async def _groups(admin: Admin, arguments: argparse.Namespace) -> list[str]:
    if not arguments.all_groups:
        return list(dict.fromkeys(arguments.group))
    return sorted(each.group_id for each in await admin.list_groups(types=[SHARE.lower()]))


# --- describe -----------------------------------------------------------------------------------


async def _describe(admin: Admin, arguments: argparse.Namespace) -> int:
    """Everything is requested before anything is shown, so a refusal leaves no partial output."""
    groups = await _described(admin, await _groups(admin, arguments))
    if arguments.output == "json":
        print_json([await _as_json(admin, each) for each in groups])
        return 0
    shows_offsets = not arguments.members and arguments.state is None
    offsets = {each.group_id: await _offsets(admin, each) for each in groups if shows_offsets}
    for group in groups:
        if shows_offsets:
            _show_offsets(group.group_id, offsets[group.group_id], verbose=arguments.verbose)
            continue
        if group.state == _EMPTY:
            print(f"\nShare group '{group.group_id}' has no active members.", file=sys.stderr)
        if arguments.state is not None:
            print_share_state(group, verbose=arguments.verbose)
        elif group.members:
            print_share_members(group, verbose=arguments.verbose)
    return 0


def _show_offsets(
    group_id: str, offsets: dict[TopicPartition, ShareGroupOffset], *, verbose: bool
) -> None:
    if offsets:
        print_share_offsets(group_id, offsets, verbose=verbose)
    else:
        print(f"\nShare group '{group_id}' has no offset information.")


async def _described(admin: Admin, group_ids: list[str]) -> list[GroupDescription]:
    """Describes the groups, in order.

    Raises:
        KafkaError: one does not exist, or is not a share group.
    """
    found = await admin.describe_groups(group_ids)
    groups: list[GroupDescription] = []
    for group_id in sorted(found):
        group = found[group_id]
        if isinstance(group, KafkaError):
            if group.code is ErrorCode.GROUP_ID_NOT_FOUND:
                raise GroupError(f"Group {group_id} not found.", group.code)
            raise group
        if group.type != SHARE:
            code = ErrorCode.GROUP_ID_NOT_FOUND
            raise GroupError(f"Group {group_id} is not a share group.", code)
        groups.append(group)
    return groups


async def _offsets(admin: Admin, group: GroupDescription) -> dict[TopicPartition, ShareGroupOffset]:
    found = (await admin.list_share_group_offsets([group.group_id]))[group.group_id]
    if isinstance(found, KafkaError):
        raise execution_exception(found)
    offsets = {}
    for partition, offset in found.items():
        if isinstance(offset, KafkaError):
            raise execution_exception(offset)
        offsets[partition] = offset
    return offsets


async def _as_json(admin: Admin, group: GroupDescription) -> dict[str, object]:
    return {
        "group": group.group_id,
        "state": group.state,
        "assignor": group.assignor,
        "coordinator": group.coordinator.id,
        "members": [
            {
                "member_id": each.member_id,
                "client_id": each.client_id,
                "host": each.host,
                "partitions": [list(partition) for partition in each.partitions],
            }
            for each in group.members
        ],
        "offsets": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "start_offset": offset.start_offset,
                "lag": offset.lag,
            }
            for partition, offset in sorted((await _offsets(admin, group)).items())
        ],
    }


# --- changes ------------------------------------------------------------------------------------


async def _delete(admin: Admin, arguments: argparse.Namespace) -> int:
    """Checks first that they are share groups, as Kafka's tool does: DeleteGroups deletes groups of
    any kind.
    """
    group_ids = await _groups(admin, arguments)
    states = {each.group_id: each.state for each in await admin.list_groups(types=[SHARE.lower()])}
    failed: dict[str, str] = {}
    for each in group_ids:
        if each not in states:
            failed[each] = (
                f"java.lang.IllegalArgumentException: Group '{each}' is not a share group."
            )
        elif states[each] != _EMPTY:
            refused = GroupError(f"Share group '{each}' is not EMPTY.", ErrorCode.NON_EMPTY_GROUP)
            failed[each] = java_text(refused)
    results = await admin.delete_groups([each for each in group_ids if each not in failed])
    failed |= {each: java_text(error) for each, error in results.items() if error is not None}
    if arguments.output == "json":
        print_json([{"group": each, "error": failed.get(each)} for each in group_ids])
        return 0
    done = ", ".join(f"'{each}'" for each in results if each not in failed)
    if not failed:
        print(f"Deletion of requested share groups ({done}) was successful.")
        return 0
    print("\nError: Deletion of some share groups failed:")
    for name, text in failed.items():
        print(f"* Group '{name}' could not be deleted due to: {text}")
    if done:
        print(f"\nThese share groups were deleted successfully: {done}")
    return 0


async def _delete_offsets(admin: Admin, arguments: argparse.Namespace) -> int:
    topics = list(dict.fromkeys(arguments.topic))
    results: dict[str, KafkaError | None]
    refused: KafkaError | None = None
    try:
        results = await admin.delete_share_group_offsets(arguments.group[0], topics)
    except KafkaError as error:
        refused, results = error, dict.fromkeys(topics, error)
    if arguments.output == "json":
        rows = [
            {"topic": topic, "error": None if error is None else error.code.name}
            for topic, error in results.items()
        ]
        print_json(rows)
        return 0
    if refused is not None:
        print(f"\nError: {refused.message}")
    width = max(15, *map(len, topics))
    print(f"\n{'TOPIC':<{width}} STATUS")
    for topic, result in results.items():
        status = "Successful" if result is None else f"Error: {result.message}"
        print(f"{topic:<{width}} {status}")
    return 0


async def _reset_offsets(admin: Admin, arguments: argparse.Namespace) -> int:
    group_id = arguments.group[0]
    group = (await admin.describe_groups([group_id]))[group_id]
    if isinstance(group, GroupDescription):
        if group.state != _EMPTY:
            raise WrongUsage(f"Share group '{group_id}' is not empty.")
    elif group.code is not ErrorCode.GROUP_ID_NOT_FOUND:
        raise execution_exception(group)
    if not arguments.all_topics:
        partitions = await named_partitions(admin, arguments.topic)
    elif isinstance(group, GroupDescription):
        partitions = sorted(await _offsets(admin, group))
    else:
        partitions = []
    await check_partitions(admin, partitions)
    plan = await offsets_there(admin, partitions, arguments)
    if arguments.execute and plan:
        for error in (await admin.alter_share_group_offsets(group_id, plan)).values():
            if error is not None:
                raise execution_exception(error)
    if arguments.output == "json":
        keys = ("group", "topic", "partition", "new_offset")
        rows = [(group_id, *partition, offset) for partition, offset in plan.items()]
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    else:
        print_new_offsets({group_id: plan})
    return 0
