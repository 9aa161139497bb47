"""The paths of ACLs in ZooKeeper, and Apache Kafka 3.9's JSON for them. Pure."""

import json
from collections.abc import Iterable
from typing import Final

from odradek.acl import (
    AccessControlEntry,
    PatternType,
    PermissionType,
    ResourcePattern,
)
from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.znodes import ZnodeError
from odradek.model import AclOperation, ResourceType

FOLDERS: Final = {
    PatternType.LITERAL: "/kafka-acl",
    PatternType.PREFIXED: "/kafka-acl-extended/prefixed",
}
CHANGES: Final = {
    PatternType.LITERAL: "/kafka-acl-changes",
    PatternType.PREFIXED: "/kafka-acl-extended-changes",
}
_CHANGE: Final = "acl_changes_"
_TYPES: Final[dict[str, ResourceType]] = {
    each.name.title().replace("_", ""): each
    for each in ResourceType
    if each not in (ResourceType.UNKNOWN, ResourceType.ANY)
}
_TYPE_FOLDERS: Final[dict[ResourceType, str]] = {kind: folder for folder, kind in _TYPES.items()}
_OPERATIONS: Final = {each.name.title().replace("_", ""): each for each in AclOperation}
_OPERATION_NAMES: Final = {operation: name for name, operation in _OPERATIONS.items()}
_PERMISSIONS: Final = {"Allow": PermissionType.ALLOW, "Deny": PermissionType.DENY}
_PERMISSION_NAMES: Final = {permission: name for name, permission in _PERMISSIONS.items()}

PERSISTENT: Final = (
    *(f"{folder}/{name}" for folder in FOLDERS.values() for name in _TYPES),
    *CHANGES.values(),
)
"""The znodes that a broker with an authorizer creates at its start."""


def type_folders(pattern_type: PatternType) -> dict[str, ResourceType]:
    """The folders in which patterns of a kind are, and the types of their resources."""
    return {f"{FOLDERS[pattern_type]}/{name}": kind for name, kind in _TYPES.items()}


def has_place(pattern: ResourcePattern) -> bool:
    """Whether ZooKeeper allows a node of the pattern's name."""
    return znodes.is_node_name(pattern.name)


def acl_path(pattern: ResourcePattern) -> str:
    """The path of a pattern's entries."""
    return f"{FOLDERS[pattern.pattern_type]}/{_TYPE_FOLDERS[pattern.type]}/{pattern.name}"


def pattern_of(path: str) -> ResourcePattern:
    """The pattern whose entries are at that path, one of `acl_path`."""
    folder, _, name = path.rpartition("/")
    parent, _, kind = folder.rpartition("/")
    is_prefixed = parent == FOLDERS[PatternType.PREFIXED]
    pattern_type = PatternType.PREFIXED if is_prefixed else PatternType.LITERAL
    return ResourcePattern(_TYPES[kind], name, pattern_type)


def acls_json(entries: Iterable[AccessControlEntry]) -> bytes:
    """The entries of a pattern."""
    acls = [
        {
            "principal": entry.principal,
            "permissionType": _PERMISSION_NAMES[entry.permission],
            "operation": _OPERATION_NAMES[entry.operation],
            "host": entry.host,
        }
        for entry in sorted(entries)
    ]
    return _encode({"version": 1, "acls": acls})


def read_acls(path: str, data: bytes) -> frozenset[AccessControlEntry]:
    """The entries in the node at `path`; raises `ZnodeError` when they are not understood."""
    value = znodes.read_object(path, data)
    try:
        if value["version"] != 1:
            raise ZnodeError(f"{path} in ZooKeeper has an unknown version")
        return frozenset(
            AccessControlEntry(
                _text(acl["principal"]),
                _text(acl["host"]),
                _OPERATIONS[acl["operation"]],
                _PERMISSIONS[acl["permissionType"]],
            )
            for acl in value["acls"]
        )
    except (KeyError, TypeError) as error:
        raise ZnodeError(f"{path} in ZooKeeper holds no ACLs: {error}") from None


def change_prefix(pattern_type: PatternType) -> str:
    """The path of an announcement, without its number."""
    return f"{CHANGES[pattern_type]}/{_CHANGE}"


def change_data(pattern: ResourcePattern) -> bytes:
    """Tells all brokers to look at the entries of a pattern."""
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{pattern.type.name}:{pattern.name}".encode()
    return _encode(
        {
            "version": 1,
            "resourceType": pattern.type.name,
            "name": pattern.name,
            "patternType": pattern.pattern_type.name,
        }
    )


def read_change(path: str, pattern_type: PatternType, data: bytes) -> ResourcePattern:
    """The pattern to look at; raises `ZnodeError` when it is not understood."""
    try:
        if pattern_type is PatternType.LITERAL:
            kind, colon, name = data.decode().partition(":")
            if not colon:
                raise KeyError(kind)
        else:
            value = znodes.read_object(path, data)
            kind, name = value["resourceType"], _text(value["name"])
        pattern = ResourcePattern(_TYPE_BY_NAME[kind.upper()], name, pattern_type)
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise ZnodeError(f"{path} in ZooKeeper announces no ACLs: {error}") from None
    if not has_place(pattern):
        raise ZnodeError(f"{path} in ZooKeeper announces ACLs on {name!r}, which has no node")
    return pattern


_TYPE_BY_NAME: Final = {kind.name: kind for kind in _TYPE_FOLDERS} | {
    folder.upper(): kind for folder, kind in _TYPES.items()
}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
