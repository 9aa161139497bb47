"""`odradek consumer-groups`: list, describe, reset, delete, as `kafka-consumer-groups.sh` does."""

import argparse
import sys
from typing import Final

from odradek.cli.tools.connection import (
    add_connection,
    add_format,
    client_config,
    print_json,
    run_async,
    text_of,
)
from odradek.cli.tools.group_tables import (
    OffsetRow,
    offset_rows,
    print_listing,
    print_members,
    print_new_offsets,
    print_offsets,
    print_state,
)
from odradek.cli.tools.java_names import java_text
from odradek.cli.tools.offset_resets import RESETS, ResetRefused, add_reset_flags, planned_offsets
from odradek.client import Admin
from odradek.client.core.admin_types import CommittedOffset, GroupDescription
from odradek.client.core.list_offsets import LATEST
from odradek.client.errors import KafkaError
from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition

_NO_EXECUTE: Final = (
    "WARN: No action will be performed as the --execute option is missing. In version 5.0, this "
    "command will require either --dry-run or --execute to be specified. You should add the "
    "--dry-run option explicitly if you are scripting this command and want to keep the current "
    "default behavior without prompting."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(parser)
    add_format(parser)
    action = parser.add_mutually_exclusive_group(required=True)
    for name in ("list", "describe", "delete", "delete-offsets", "reset-offsets"):
        action.add_argument(f"--{name}", dest="action", action="store_const", const=name)
    parser.add_argument("--group", action="append", default=[], metavar="NAME")
    parser.add_argument("--all-groups", action="store_true")
    parser.add_argument("--topic", action="append", default=[], metavar="NAME[:P,P]")
    parser.add_argument("--all-topics", action="store_true")
    parser.add_argument("--state", nargs="?", const="", metavar="STATES")
    parser.add_argument("--type", nargs="?", const="", metavar="TYPES")
    parser.add_argument("--members", action="store_true")
    parser.add_argument("--offsets", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--timeout", type=int, default=30_000, metavar="MS")
    add_reset_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Does what is asked."""
    action = arguments.action
    if action != "list" and not arguments.group and not arguments.all_groups:
        arguments.parser.error(f"Option [{action}] takes one of [all-groups], [group]")
    if action == "reset-offsets":
        given = [each for each in RESETS if getattr(arguments, each.replace("-", "_")) is not None]
        if len(given) > 1:
            arguments.parser.error(f"Option [{given[0]}] can't be used with option [{given[1]}]")

    def say(error: Exception) -> None:
        if isinstance(error, ResetRefused):
            print(f"\nError: {error}")
        else:
            text = java_text(error) if isinstance(error, BrokerError) else text_of(error)
            print(f"\nError: Executing consumer group command failed due to {text}")

    async def work() -> int:
        actions = {
            "list": _list,
            "describe": _describe,
            "delete": _delete,
            "delete-offsets": _delete_offsets,
            "reset-offsets": _reset_offsets,
        }
        config = client_config(arguments)
        config.setdefault("request.timeout.ms", arguments.timeout)
        async with Admin(config=config) as admin:
            return await actions[action](admin, arguments)

    return run_async(work, say)


async def _list(admin: Admin, arguments: argparse.Namespace) -> int:
    states = _words(arguments.state)
    types = _words(arguments.type)
    found = [
        each
        for each in await admin.list_groups(states, types)
        if each.protocol_type in ("", "consumer")
    ]
    found = sorted(found, key=lambda each: each.group_id)
    if arguments.output == "json":
        print_json([{"group": e.group_id, "type": e.type, "state": e.state} for e in found])
        return 0
    print_listing(found, types=arguments.type is not None, states=arguments.state is not None)
    return 0


def _words(text: str | None) -> list[str]:
    return [word.strip().capitalize() for word in (text or "").split(",") if word.strip()]


async def _groups(admin: Admin, arguments: argparse.Namespace) -> list[str]:
    if not arguments.all_groups:
        return list(dict.fromkeys(arguments.group))
    listed = await admin.list_groups()
    return sorted(each.group_id for each in listed if each.protocol_type in ("", "consumer"))


# --- describe -----------------------------------------------------------------------------------


async def _describe(admin: Admin, arguments: argparse.Namespace) -> int:
    group_ids = await _groups(admin, arguments)
    described = await admin.describe_groups(group_ids)
    shown = []
    for group_id in group_ids:
        group = described[group_id]
        if isinstance(group, KafkaError):
            raise _not_found(group_id, group)
        if arguments.output == "json":
            shown.append(await _as_json(admin, group))
        else:
            await _show(admin, group, arguments)
    if arguments.output == "json":
        print_json(shown)
    return 0


def _not_found(group_id: str, error: KafkaError) -> KafkaError:
    if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
        return type(error)(f"Group {group_id} not found.", error.code)
    return error


async def _show(admin: Admin, group: GroupDescription, arguments: argparse.Namespace) -> None:
    if arguments.members:
        print_members(group, verbose=arguments.verbose)
    elif arguments.state is not None:
        print_state(group, verbose=arguments.verbose)
    else:
        rows = await _rows(admin, group)
        if rows or group.members:
            print_offsets(rows, verbose=arguments.verbose)
    sys.stdout.flush()
    _say_state(group)


def _say_state(group: GroupDescription) -> None:
    """On standard error, as Kafka's tool says it."""
    name = group.group_id
    text = {
        "Dead": f"\nConsumer group '{name}' does not exist.",
        "Empty": f"\nConsumer group '{name}' has no active members.",
        "PreparingRebalance": f"\nWarning: Consumer group '{name}' is rebalancing.",
        "CompletingRebalance": f"\nWarning: Consumer group '{name}' is rebalancing.",
        "Assigning": f"\nWarning: Consumer group '{name}' is rebalancing.",
        "Reconciling": f"\nWarning: Consumer group '{name}' is rebalancing.",
    }.get(group.state)
    if text is not None:
        print(text, file=sys.stderr)


async def _rows(admin: Admin, group: GroupDescription) -> list[OffsetRow]:
    committed = (await admin.list_group_offsets([group.group_id]))[group.group_id]
    if isinstance(committed, KafkaError):
        raise committed
    partitions = {*committed, *(each for member in group.members for each in member.partitions)}
    answers = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    ends = {
        partition: answer.offset
        for partition, answer in answers.items()
        if not isinstance(answer, KafkaError)
    }
    return offset_rows(group, committed, ends)


async def _as_json(admin: Admin, group: GroupDescription) -> dict[str, object]:
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "assignor": group.assignor,
        "coordinator": group.coordinator.id,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "partitions": [list(each) for each in member.partitions],
            }
            for member in group.members
        ],
        "offsets": [
            {
                "topic": row.partition.topic,
                "partition": row.partition.partition,
                "current_offset": row.current_offset,
                "log_end_offset": row.log_end_offset,
                "lag": row.lag,
                "member_id": None if row.member is None else row.member.member_id,
            }
            for row in await _rows(admin, group)
            if row.partition is not None
        ],
    }


# --- changes ------------------------------------------------------------------------------------


async def _delete(admin: Admin, arguments: argparse.Namespace) -> int:
    results = await admin.delete_groups(await _groups(admin, arguments))
    failed = {name: error for name, error in results.items() if isinstance(error, KafkaError)}
    done = [name for name in results if name not in failed]
    shown = ", ".join(f"'{name}'" for name in done)
    if not failed:
        print(f"Deletion of requested consumer groups ({shown}) was successful.")
        return 0
    print("\nError: Deletion of some consumer groups failed:")
    for name, error in failed.items():
        print(f"* Group '{name}' could not be deleted due to: {java_text(error)}")
    if done:
        print(f"\nThese consumer groups were deleted successfully: {shown}")
    return 0


async def _delete_offsets(admin: Admin, arguments: argparse.Namespace) -> int:
    [group_id] = await _groups(admin, arguments)
    known = await admin.list_topics()
    partitions, missing = [], []
    for text in arguments.topic:
        name, _, indexes = text.partition(":")
        if indexes:
            partitions += [TopicPartition(name, int(each)) for each in indexes.split(",")]
        elif name in known:
            partitions += known[name].partitions
        else:
            missing.append(name)
    try:
        results = await admin.delete_group_offsets(group_id, partitions) if partitions else {}
        print(f"Request succeeded for deleting offsets from group {group_id}.")
    except KafkaError as error:
        print(f"\nError: {java_text(error)}")
        return 0
    width = max([15, *map(len, missing), *(len(partition.topic) for partition in results)])
    print(f"\n{'TOPIC':<{width}} {'PARTITION':<10} {'STATUS':<15}")
    unknown = KafkaError(None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for name in missing:
        print(f"{name:<{width}} {'-':<10} {'Error: ' + java_text(unknown):<15}")
    for (topic, index), result in results.items():
        status = "Successful" if result is None else f"Error: {java_text(result)}"
        print(f"{topic:<{width}} {index:<10} {status:<15}")
    return 0


async def _reset_offsets(admin: Admin, arguments: argparse.Namespace) -> int:
    is_dry = not arguments.execute
    if is_dry and not arguments.dry_run:
        print(_NO_EXECUTE, file=sys.stderr)
    csv = []
    for group_id in await _groups(admin, arguments):
        group = (await admin.describe_groups([group_id]))[group_id]
        state = "Dead" if isinstance(group, KafkaError) else group.state
        if state not in ("Empty", "Dead"):
            print(
                f"\nError: Assignments can only be reset if the group '{group_id}' is inactive, "
                f"but the current state is {state}."
            )
            continue
        offsets = await planned_offsets(admin, group_id, arguments)
        if not is_dry and offsets:
            await _commit(admin, group_id, offsets)
        if arguments.export:
            several = len(arguments.group) > 1 or arguments.all_groups
            csv += [
                ",".join(map(str, (*([group_id] if several else []), *partition, offset)))
                for partition, offset in offsets.items()
            ]
        else:
            print_new_offsets(group_id, offsets)
    if arguments.export:
        print("\n".join(csv) + "\n")
    return 0


async def _commit(admin: Admin, group_id: str, offsets: dict[TopicPartition, int]) -> None:
    values = {partition: CommittedOffset(offset) for partition, offset in offsets.items()}
    for error in (await admin.alter_group_offsets(group_id, values)).values():
        if isinstance(error, KafkaError):
            raise error
