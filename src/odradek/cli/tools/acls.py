"""`odradek acls`: lists, adds and removes ACLs, as `kafka-acls.sh` does."""

import argparse
import sys
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Final

from odradek.acl import (
    ANY_HOST,
    CLUSTER_NAME,
    AccessControlEntry,
    AclBinding,
    AclFilter,
    PatternType,
    PermissionType,
    ResourcePattern,
)
from odradek.cli.tools.connection import (
    add_actions,
    add_connection,
    add_format,
    check_whom_to_ask,
    client_config,
    print_json,
    refuse_together,
    run_async,
    the_action,
)
from odradek.client import Admin
from odradek.errors import BrokerError, text_of
from odradek.model import AclOperation, ResourceType

_ACTIONS: Final = {
    "list": "list ACLs, of all resources or of those that are named",
    "add": "add ACLs",
    "remove": "remove ACLs",
}
_RESOURCES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "delegation-token": ResourceType.DELEGATION_TOKEN,
    "user-principal": ResourceType.USER,
}
_SHORTHANDS: Final = ("producer", "consumer")
_READ, _WRITE, _CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
_DELETE, _ALTER, _DESCRIBE = AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE
_CONFIGS = (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)
_IDEMPOTENT: Final = AclOperation.IDEMPOTENT_WRITE
_OPERATIONS: Final[dict[ResourceType, tuple[AclOperation, ...]]] = {
    ResourceType.TOPIC: (_READ, _WRITE, _CREATE, _DESCRIBE, _DELETE, _ALTER, *_CONFIGS),
    ResourceType.GROUP: (_READ, _DESCRIBE, _DELETE, *_CONFIGS),
    ResourceType.CLUSTER: (
        *(_CREATE, AclOperation.CLUSTER_ACTION, *_CONFIGS, _IDEMPOTENT, _ALTER, _DESCRIBE),
    ),
    ResourceType.TRANSACTIONAL_ID: (_DESCRIBE, _WRITE, AclOperation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (_DESCRIBE,),
    ResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}
_NAMED: Final = {each.name.replace("_", ""): each for each in AclOperation if each.value > 1}

Resource = tuple[ResourceType, str]
Wanted = dict[Resource, list[AccessControlEntry]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(
        parser,
        server_flags=("--bootstrap-server",),
        controller_flags=("--bootstrap-controller",),
    )
    add_format(parser)
    add_actions(parser, _ACTIONS)
    for name in _RESOURCES:
        parser.add_argument(f"--{name}", action="append", metavar="NAME", help="`*` for all")
    parser.add_argument("--cluster", action="store_true", help="the cluster as a whole")
    parser.add_argument(
        "--resource-pattern-type",
        type=_pattern_type,
        default=PatternType.LITERAL,
        metavar="TYPE",
        help="literal (default) or prefixed; of filters also any or match",
    )
    parser.add_argument("--operation", action="append", metavar="NAME", help="default: All")
    for verb in ("allow", "deny"):
        parser.add_argument(f"--{verb}-principal", action="append", metavar="User:NAME")
        parser.add_argument(f"--{verb}-host", action="append", metavar="ADDRESS")
    parser.add_argument("--principal", action="append", metavar="User:NAME", help="of --list")
    parser.add_argument("--producer", action="store_true", help="the ACLs that a producer needs")
    parser.add_argument("--consumer", action="store_true", help="the ACLs that a consumer needs")
    parser.add_argument("--idempotent", action="store_true", help="with --producer")
    parser.add_argument("--force", action="store_true", help="do not ask")


def run(arguments: argparse.Namespace) -> int:
    """Lists, adds or removes."""
    check_whom_to_ask(
        arguments,
        both="Only one of --bootstrap-server or --bootstrap-controller must be specified",
        neither="One of --bootstrap-server or --bootstrap-controller must be specified",
    )
    action = the_action(arguments, list(_ACTIONS))
    _check(arguments)

    async def work() -> int:
        config = client_config(arguments)
        wanted = {} if action == "list" else _wanted(arguments, adds=action == "add")
        async with Admin(config=config) as admin:
            if action == "list":
                await _list(admin, arguments)
            elif action == "add":
                await _add(admin, arguments, wanted)
            else:
                await _remove(admin, arguments, wanted)
        return 0

    def say(error: Exception) -> None:
        print(f"Error while executing ACL command: {text_of(error)}")

    return run_async(work, say)


def _check(arguments: argparse.Namespace) -> None:
    """Ends with wrong usage, in Kafka's words."""
    principals = ("deny-principal", "deny-host")
    if "list" in arguments.actions:
        refuse_together(
            arguments, "list", (*_SHORTHANDS, "allow-host", "allow-principal", *principals)
        )
    for shorthand in _SHORTHANDS:
        if getattr(arguments, shorthand):
            refuse_together(arguments, shorthand, ("operation", *principals))
    error = arguments.parser.error
    if arguments.principal and "list" not in arguments.actions:
        error("The --principal option is only available if --list is set")
    if arguments.producer and not arguments.topic:
        error("With --producer you must specify a --topic")
    if arguments.idempotent and not arguments.producer:
        error("The --idempotent option is only available if --producer is set")
    others = arguments.cluster or arguments.transactional_id
    lacks = not arguments.topic or not arguments.group
    if arguments.consumer and (lacks or (others and not arguments.producer)):
        error(
            "With --consumer you must specify a --topic and a --group and no --cluster or "
            "--transactional-id option should be specified."
        )


# The ACLs that flags select


def _resources(arguments: argparse.Namespace) -> list[Resource]:
    named = [
        (kind, name.strip())
        for flag, kind in _RESOURCES.items()
        for name in getattr(arguments, flag.replace("-", "_")) or ()
    ]
    is_literal = arguments.resource_pattern_type is PatternType.LITERAL
    if is_literal and (arguments.cluster or arguments.idempotent):
        named.append((ResourceType.CLUSTER, CLUSTER_NAME))
    return list(dict.fromkeys(named))


def _wanted(arguments: argparse.Namespace, *, adds: bool) -> Wanted:
    """Returns the entries that the flags select, by resource pattern; ends with wrong usage if they
    select none.
    """
    error = arguments.parser.error
    kind = arguments.resource_pattern_type
    if adds and kind not in (PatternType.LITERAL, PatternType.PREFIXED):
        error(f"A '--resource-pattern-type' value of '{kind.name}' is not valid when adding acls.")
    resources = _resources(arguments)
    if not resources:
        error(
            "You must provide at least one resource: --topic <topic> or --cluster or "
            "--group <group> or --delegation-token <Delegation Token ID>"
        )
    wanted = {
        resource: _entries(arguments, operations)
        for resource, operations in _operations(arguments, resources).items()
    }
    for (type_, _), entries in wanted.items():
        _check_operations(arguments, type_, entries)
    if adds and not all(wanted.values()):
        error(
            "You must specify one of: --allow-principal, --deny-principal when trying to add ACLs."
        )
    return wanted


def _operations(
    arguments: argparse.Namespace, resources: list[Resource]
) -> dict[Resource, list[AclOperation]]:
    """Returns the operations on each resource: those of the flags, or those that a producer or
    consumer needs.
    """
    if not arguments.producer and not arguments.consumer:
        named = [_operation(arguments, name) for name in arguments.operation or ("All",)]
        return dict.fromkeys(resources, named)
    found: dict[Resource, list[AclOperation]] = {}
    for resource in resources:
        type_ = resource[0]
        operations = [
            *(_PRODUCER_NEEDS.get(type_, ()) if arguments.producer else ()),
            *(_CONSUMER_NEEDS.get(type_, ()) if arguments.consumer else ()),
        ]
        if arguments.idempotent and type_ is ResourceType.CLUSTER:
            operations.append(_IDEMPOTENT)
        if operations:
            found[resource] = list(dict.fromkeys(operations))
    return found


_PRODUCER_NEEDS: Final = {
    ResourceType.TOPIC: (_WRITE, _DESCRIBE, _CREATE),
    ResourceType.TRANSACTIONAL_ID: (_WRITE, _DESCRIBE),
}
_CONSUMER_NEEDS: Final = {
    ResourceType.TOPIC: (_READ, _DESCRIBE),
    ResourceType.GROUP: (_READ,),
}


def _entries(
    arguments: argparse.Namespace, operations: list[AclOperation]
) -> list[AccessControlEntry]:
    entries = []
    for permission in (PermissionType.ALLOW, PermissionType.DENY):
        verb = permission.name.lower()
        principals = getattr(arguments, f"{verb}_principal") or ()
        hosts = getattr(arguments, f"{verb}_host") or (ANY_HOST,)
        for principal, operation, host in product(principals, operations, hosts):
            _check_principal(principal)
            entries.append(
                AccessControlEntry(principal.strip(), host.strip(), operation, permission)
            )
    return entries


def _check_principal(text: str) -> None:
    if ":" not in text:
        raise ValueError(f"expected a string in format principalType:principalName but got {text}")


def _operation(arguments: argparse.Namespace, name: str) -> AclOperation:
    found = _NAMED.get(name.strip().upper().replace("_", ""))
    if found is None:
        known = ", ".join(each.name.title().replace("_", "") for each in _NAMED.values())
        arguments.parser.error(f"{name} is no operation; there are {known}")
    return AclOperation(found or 0)


def _check_operations(
    arguments: argparse.Namespace, type_: ResourceType, entries: Iterable[AccessControlEntry]
) -> None:
    known = (*_OPERATIONS[type_], AclOperation.ALL)
    if any(entry.operation not in known for entry in entries):
        names = ", ".join(each.name for each in known)
        arguments.parser.error(f"ResourceType {type_.name} only supports operations [{names}]")


def _pattern_type(text: str) -> PatternType:
    try:
        found = PatternType[text.upper()]
    except KeyError:
        found = PatternType.UNKNOWN
    if found is PatternType.UNKNOWN:
        raise argparse.ArgumentTypeError(f"Unknown resource-pattern-type: {text}")
    return found


# Actions


async def _list(admin: Admin, arguments: argparse.Namespace) -> None:
    kind = arguments.resource_pattern_type
    filters = [AclFilter(type_, name, kind) for type_, name in _resources(arguments)]
    found: list[AclBinding] = []
    for wanted in filters or [AclFilter()]:
        found += await admin.describe_acls(wanted)
    found = list(dict.fromkeys(found))
    principals = [each.strip() for each in arguments.principal or ()]
    if arguments.output == "json":
        shown = [each for each in found if not principals or each.entry.principal in principals]
        print_json([_as_json(each) for each in shown])
        return
    if not principals:
        _print(found)
    for principal in principals:
        print(f"ACLs for principal `{principal}`")
        _print([each for each in found if each.entry.principal == principal])


def _print(found: Iterable[AclBinding]) -> None:
    for pattern, entries in _by_pattern(found).items():
        print(f"Current ACLs for resource `{_pattern_text(pattern)}`:")
        print("\n".join(f"\t{_entry_text(entry)}" for entry in entries) + "\n")


async def _add(admin: Admin, arguments: argparse.Namespace, wanted: Wanted) -> None:
    kind = arguments.resource_pattern_type
    for (type_, name), entries in wanted.items():
        pattern = ResourcePattern(type_, name, kind)
        there = set(await admin.describe_acls(AclFilter(*pattern)))
        new = []
        for entry in entries:
            binding = AclBinding(pattern, entry)
            if binding in there:
                shown = f"(pattern={_pattern_text(pattern)}, entry={_entry_text(entry)})"
                print(f"Acl {shown} already exists.")
            else:
                new.append(binding)
        if new:
            lines = "\n".join(f"\t{_entry_text(each.entry)}" for each in new)
            print(f"Adding ACLs for resource `{_pattern_text(pattern)}`: \n {lines}\n")
            _raise_first((await admin.create_acls(new)).values())


async def _remove(admin: Admin, arguments: argparse.Namespace, wanted: Wanted) -> None:
    kind = arguments.resource_pattern_type
    for (type_, name), entries in wanted.items():
        text = _pattern_text(ResourcePattern(type_, name, kind))
        question = f"Are you sure you want to delete all ACLs for resource filter `{text}`? (y/n)"
        filters = [AclFilter(type_, name, kind)]
        if entries:
            lines = "\n".join(f"\t{_entry_text(each)}" for each in entries)
            question = (
                f"Are you sure you want to remove ACLs: \n {lines}\n "
                f"from resource filter `{text}`? (y/n)"
            )
            filters = [AclFilter(type_, name, kind, *entry) for entry in entries]
        if _is_sure(arguments, question):
            _raise_first((await admin.delete_acls(filters)).values())


def _is_sure(arguments: argparse.Namespace, question: str) -> bool:
    if arguments.force:
        return True
    print(question, flush=True)
    return sys.stdin.readline().strip().lower() == "y"


def _raise_first(results: Iterable[object]) -> None:
    for result in results:
        if isinstance(result, BrokerError):
            raise result


def _by_pattern(
    found: Iterable[AclBinding],
) -> Mapping[ResourcePattern, list[AccessControlEntry]]:
    grouped: dict[ResourcePattern, list[AccessControlEntry]] = {}
    for pattern, entry in found:
        grouped.setdefault(pattern, []).append(entry)
    return grouped


def _pattern_text(pattern: ResourcePattern) -> str:
    kind, name, pattern_type = pattern
    return (
        f"ResourcePattern(resourceType={kind.name}, name={name}, patternType={pattern_type.name})"
    )


def _entry_text(entry: AccessControlEntry) -> str:
    return (
        f"(principal={entry.principal}, host={entry.host}, operation={entry.operation.name}, "
        f"permissionType={entry.permission.name})"
    )


def _as_json(binding: AclBinding) -> dict[str, object]:
    pattern, entry = binding
    return {
        "resource_type": pattern.type.name,
        "resource_name": pattern.name,
        "pattern_type": pattern.pattern_type.name,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation.name,
        "permission": entry.permission.name,
    }
