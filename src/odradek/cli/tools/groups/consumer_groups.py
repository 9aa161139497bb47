"""`odradek consumer-groups`: list, describe, reset, delete, as `kafka-consumer-groups.sh` does."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final

from odradek.cli.tools.connection import (
    add_actions,
    add_connection,
    add_format,
    is_given,
    print_json,
    refuse_together,
    the_action,
)
from odradek.cli.tools.groups.offset_resets import (
    RESETS,
    add_reset_flags,
    ask_offsets,
    described_topics,
    planned_offsets,
    topic_argument,
)
from odradek.cli.tools.groups.running import run_action, words_of
from odradek.cli.tools.groups.tables import (
    OffsetRow,
    is_of_consumers,
    offset_rows,
    print_listing,
    print_members,
    print_new_offsets,
    print_offsets,
    print_state,
)
from odradek.cli.tools.option_words import AT_MOST_ONE, refuse_values
from odradek.cli.tools.wording.java_names import (
    execution_exception,
    in_java_order,
    java_sentence,
    java_text,
)
from odradek.cli.tools.wording.java_values import java_long
from odradek.client import Admin
from odradek.client.core.admin_types import CommittedOffset, GroupDescription
from odradek.client.core.consuming.list_offsets import LATEST
from odradek.client.errors import KafkaError
from odradek.errors import ErrorCode
from odradek.model import TopicPartition

_NO_EXECUTE: Final = (
    "WARN: No action will be performed as the --execute option is missing. In version 5.0, this "
    "command will require either --dry-run or --execute to be specified. You should add the "
    "--dry-run option explicitly if you are scripting this command and want to keep the current "
    "default behavior without prompting."
)


_STATES: Final = (
    "Stable",
    "Empty",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Dead",
    "PreparingRebalance",
)
# The answer of a broker before 4.0 about a missing group.
_DEAD: Final = "Dead"
_TYPES: Final = ("Consumer", "Classic")
_ACTIONS: Final = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
# Flags that only some actions allow; other unused flags are ignored.
_ONLY_BESIDE: Final = {
    "members": ("describe",),
    "offsets": ("describe",),
    "state": ("describe", "list"),
    "type": ("list",),
    "verbose": ("describe",),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(parser)
    add_format(parser)
    add_actions(parser, dict.fromkeys(_ACTIONS))
    parser.add_argument(
        "--validate-regex",
        metavar="REGEX",
        help="say whether brokers would take it for a subscription",
    )
    parser.add_argument("--group", action="append", default=[], metavar="NAME")
    parser.add_argument("--all-groups", action="store_true")
    parser.add_argument("--topic", action="append", default=[], metavar="NAME[:P,P]")
    parser.add_argument("--all-topics", action="store_true")
    parser.add_argument("--state", nargs="?", const="", metavar="STATES")
    parser.add_argument("--type", nargs="?", const="", metavar="TYPES")
    parser.add_argument("--members", action="store_true")
    parser.add_argument("--offsets", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--timeout", type=java_long, default=30_000, metavar="MS")
    add_reset_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Runs the action. As with Kafka's tool the status is 0 even if a broker refuses, or none
    answers: the output has the error.
    """
    if arguments.validate_regex is not None:
        arguments.actions.append("validate-regex")
    action = the_action(arguments, (*_ACTIONS, "validate-regex"))
    if arguments.validate_regex is not None:
        return _validate(arguments)
    _check(action, arguments)
    actions = {
        "list": _list,
        "describe": _describe,
        "delete": _delete,
        "delete-offsets": _delete_offsets,
        "reset-offsets": _reset_offsets,
    }
    check = partial(_check_values, action, arguments)
    return run_action("consumer group", actions[action], arguments, check)


def _validate(arguments: argparse.Namespace) -> int:
    from odradek.cli.tools.wording.re2j_words import fault_of

    try:
        refuse_values(arguments)
    except ValueError as error:
        arguments.parser.error(str(error))
    expression = arguments.validate_regex
    fault = fault_of(expression)
    verdict = "valid" if fault is None else f"invalid: {fault}"
    print(f"The regular expression `{expression}` is {verdict}.")
    return 0


def _check(action: str, arguments: argparse.Namespace) -> None:
    """Refuses flags that Kafka's tool refuses before it sends a request."""
    wrong = arguments.parser.error
    for option, actions in _ONLY_BESIDE.items():
        if action not in actions and is_given(arguments, option):
            wrong(f"Option(s) [{option}] are unavailable given other options on the command line")
    if arguments.bootstrap_server is None:
        wrong('Missing required argument "[bootstrap-server]"')
    if action == "reset-offsets":
        if arguments.dry_run and arguments.execute:
            wrong("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
        if not arguments.dry_run and not arguments.execute:
            print(_NO_EXECUTE, file=sys.stderr)
    if action == "delete-offsets" and not (arguments.group and arguments.topic):
        wrong("Option [delete-offsets] takes the following options: [group], [topic]")
    if action != "list" and not arguments.group and not arguments.all_groups:
        wrong(f"Option [{action}] takes one of these options: [group], [all-groups]")
    if arguments.all_groups:
        refuse_together(arguments, "all-groups", ["group"])
    if action == "delete" and arguments.topic:
        wrong("The consumer does not support topic-specific offset deletion from a consumer group.")
    if action == "list":
        refuse_together(arguments, action, ("group", "topic"))
    if action == "describe":
        refuse_together(arguments, action, ("topic",))
    shown = arguments.members + arguments.offsets + (arguments.state is not None)
    if action == "describe" and shown > 1:
        wrong("Option [describe] takes at most one of these options: [members], [offsets], [state]")
    if action == "describe" and arguments.state:
        wrong("Option [describe] does not take a value for [state]")
    if action == "reset-offsets":
        _check_reset(arguments)


def _check_values(action: str, arguments: argparse.Namespace) -> None:
    if action == "list":
        _check_words(arguments, "state", _STATES)
        _check_words(arguments, "types", _TYPES)
    if action == "delete-offsets" and len(arguments.group) > 1:
        raise ValueError(AT_MOST_ONE.format("group"))


def _check_words(arguments: argparse.Namespace, what: str, valid: Sequence[str]) -> None:
    given = arguments.state if what == "state" else arguments.type
    if set(words_of(given)) - {each.capitalize() for each in valid}:
        arguments.parser.error(
            f"Invalid {what} list '{given}'. Valid {what.rstrip('s')}s are: {', '.join(valid)}"
        )


def _check_reset(arguments: argparse.Namespace) -> None:
    wrong = arguments.parser.error
    given = [each for each in RESETS if is_given(arguments, each)]
    if len(given) > 1:
        wrong(f'Option "[{given[0]}]" can\'t be used with option "[{given[1]}]"')
    if not given:
        scenarios = ", ".join(f"[{each}]" for each in RESETS)
        wrong(f"Option '[reset-offsets]' requires one of the following scenarios: {scenarios}")
    if given != ["from-file"] and not arguments.topic and not arguments.all_topics:
        wrong("One of the reset scopes should be defined: --all-topics, --topic.")


async def _list(admin: Admin, arguments: argparse.Namespace) -> int:
    states = words_of(arguments.state)
    types = words_of(arguments.type)
    listed = await admin.list_groups(states, types)
    found = sorted(filter(is_of_consumers, listed), key=lambda each: each.group_id)
    if arguments.output == "json":
        print_json([{"group": e.group_id, "type": e.type, "state": e.state} for e in found])
        return 0
    print_listing(found, types=arguments.type is not None, states=arguments.state is not None)
    return 0


async def _groups(admin: Admin, arguments: argparse.Namespace) -> list[str]:
    if not arguments.all_groups:
        return list(dict.fromkeys(arguments.group))
    listed = await admin.list_groups()
    return sorted(each.group_id for each in filter(is_of_consumers, listed))


# --- describe -----------------------------------------------------------------------------------


async def _describe(admin: Admin, arguments: argparse.Namespace) -> int:
    """Everything is requested before anything is shown, so a refusal leaves no partial output."""
    described = await admin.describe_groups(await _groups(admin, arguments))
    groups: list[GroupDescription] = []
    for group_id in in_java_order(described, is_copy=True):
        group = described[group_id]
        if isinstance(group, KafkaError):
            raise _not_found(group_id, group)
        groups.append(group)
    groups.sort(key=lambda each: each.group_id)
    if arguments.output == "json":
        print_json([await _as_json(admin, group) for group in groups])
    elif arguments.members or arguments.state is not None:
        for group in groups:
            _show(group, arguments)
    else:
        for group, rows in [(group, await _rows(admin, group)) for group in groups]:
            _say_state(group)
            if rows and group.state != _DEAD:
                print_offsets(rows, verbose=arguments.verbose)
    return 0


def _not_found(group_id: str, error: KafkaError) -> KafkaError:
    if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
        return type(error)(f"Group {group_id} not found.", error.code)
    return error


def _show(group: GroupDescription, arguments: argparse.Namespace) -> None:
    _say_state(group)
    if arguments.members:
        print_members(group, verbose=arguments.verbose)
    elif group.state != _DEAD:
        print_state(group, verbose=arguments.verbose)


def _say_state(group: GroupDescription) -> None:
    """Prints the state on standard error, except that of a missing group, as Kafka's tool does."""
    name = group.group_id
    if group.state == _DEAD:
        print(f"\nError: Consumer group '{name}' does not exist.")
        return
    text = {
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
        raise execution_exception(committed)
    partitions = {*committed, *(each for member in group.members for each in member.partitions)}
    topics = await described_topics(admin, partitions)
    # A partition without a leader has no end now.
    led = [each for each in partitions if each.partition in topics[each.topic].led_partitions]
    return offset_rows(group, committed, await ask_offsets(admin, led, LATEST))


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
        ],
    }


# --- changes ------------------------------------------------------------------------------------


async def _delete(admin: Admin, arguments: argparse.Namespace) -> int:
    results = await admin.delete_groups(await _groups(admin, arguments))
    failed = {name: error for name, error in results.items() if isinstance(error, KafkaError)}
    if arguments.output == "json":
        print_json([{"group": each, "error": _name(results[each])} for each in results])
        return 0
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
        name, indexes = topic_argument(text)
        if indexes is not None:
            partitions += [TopicPartition(name, each) for each in indexes]
        elif name in known:
            partitions += known[name].partitions
        else:
            missing.append(name)
    results: dict[TopicPartition, KafkaError | None]
    try:
        if not partitions:
            # There is nothing to request, but a missing group is still reported.
            group = (await admin.describe_groups([group_id]))[group_id]
            if isinstance(group, KafkaError):
                raise KafkaError(None, group.code)
        results = await admin.delete_group_offsets(group_id, partitions)
        said = f"Request succeeded for deleting offsets from group {group_id}."
        if any(results.values()):
            said = "\nError: Encountered some partition-level error, see the follow-up details."
    except KafkaError as error:
        results = dict.fromkeys(partitions, error)
        said = f"\nError: {java_sentence(KafkaError(None, error.code))}"
    if arguments.output == "json":
        print_json(
            [{"topic": t, "partition": p, "error": _name(e)} for (t, p), e in results.items()]
        )
        return 0
    print(said)
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
    plans: dict[str, dict[TopicPartition, int]] = {}
    for group_id in await _groups(admin, arguments):
        group = (await admin.describe_groups([group_id]))[group_id]
        if not isinstance(group, KafkaError):
            state = group.state
        elif group.code == ErrorCode.GROUP_ID_NOT_FOUND:
            state = "Dead"
        else:
            raise execution_exception(group)
        if state not in ("Empty", "Dead"):
            print(
                f"\nError: Assignments can only be reset if the group '{group_id}' is inactive, "
                f"but the current state is {state}."
            )
            plans[group_id] = {}
            continue
        plans[group_id] = await planned_offsets(admin, group_id, arguments)
        if arguments.from_file is not None and not plans[group_id]:
            print(f"\nError: No reset plan for group {group_id} found")
        if arguments.execute and plans[group_id]:
            await _commit(admin, group_id, plans[group_id])
    rows = [
        (group_id, *partition, offset)
        for group_id, offsets in plans.items()
        for partition, offset in offsets.items()
    ]
    if arguments.output == "json":
        keys = ("group", "topic", "partition", "new_offset")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    elif arguments.export:
        # The group comes first if there may be several.
        first = 0 if len(arguments.group) > 1 or arguments.all_groups else 1
        print("".join(",".join(map(str, row[first:])) + "\n" for row in rows))
    else:
        print_new_offsets(plans)
    return 0


def _name(error: KafkaError | None) -> str | None:
    return None if error is None else error.code.name


async def _commit(admin: Admin, group_id: str, offsets: dict[TopicPartition, int]) -> None:
    values = {partition: CommittedOffset(offset) for partition, offset in offsets.items()}
    results = await admin.alter_group_offsets(group_id, values)
    if failed := [str(each) for each, error in results.items() if error is not None]:
        raise ValueError(
            f"Failed altering group offsets for the following partitions: [{', '.join(failed)}]"
        )
