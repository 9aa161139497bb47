"""Kafka's decision about one operation on one resource, and about any resource of a type.

1. A super user may do everything.
2. If no ACL for any principal covers the resource, `allow.everyone.if.no.acl.found` decides.
3. Among the ACLs about the caller, one that denies decides, else one that allows.
4. All else is denied.

To allow READ, WRITE, DELETE or ALTER allows DESCRIBE, and ALTER_CONFIGS allows DESCRIBE_CONFIGS; to
deny them denies nothing else.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from odradek.acl import (
    ANY_HOST,
    ANY_USER,
    WILDCARD,
    AccessControlEntry,
    AclBinding,
    PatternType,
    PermissionType,
    ResourcePattern,
)
from odradek.model import AclOperation, ResourceType
from odradek.security.authorizer.index import AclIndex

_ALL: Final = AclOperation.ALL
_IMPLYING: Final = {
    AclOperation.DESCRIBE: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    ),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
_ALLOWING: Final = {
    operation: frozenset((operation, _ALL, *_IMPLYING.get(operation, ())))
    for operation in AclOperation
}


class Decision(NamedTuple):
    """Whether something is allowed, and the rule that says so, as Kafka names it."""

    is_allowed: bool
    rule: str


SUPER_USER: Final = Decision(True, "SuperUser")
_DEFAULTS: Final = {True: Decision(True, "DefaultAllow"), False: Decision(False, "DefaultDeny")}
_DENY: Final = _DEFAULTS[False]


def decide(
    index: AclIndex,
    principal: str,
    host: str,
    operation: AclOperation,
    type: ResourceType,
    name: str,
    *,
    allow_everyone: bool,
) -> Decision:
    """The decision about a caller that is no super user."""
    found = index.matching(type, name)
    if not found:
        return _DEFAULTS[allow_everyone]
    allowed = _DENY
    allowing = _ALLOWING[operation]
    for pattern, by_principal in found:
        for who in (principal, ANY_USER):
            for entry in by_principal.get(who, ()):
                if entry.host not in (host, ANY_HOST):
                    continue
                if entry.permission is PermissionType.DENY:
                    if entry.operation in (operation, _ALL):
                        return Decision(False, _rule(pattern, entry))
                elif allowed is _DENY and entry.operation in allowing:
                    allowed = Decision(True, _rule(pattern, entry))
    return allowed


def may_on_any(acls: Iterable[AclBinding], host: str, operation: AclOperation) -> bool:
    """Whether the ACLs of a caller, all those on one type, leave at least one resource on which it
    may do something: one that an ACL allows and none denies."""
    literal: dict[PermissionType, set[str]] = {each: set() for each in PermissionType}
    prefixed: dict[PermissionType, set[str]] = {each: set() for each in PermissionType}
    for pattern, entry in acls:
        if entry.host in (host, ANY_HOST) and entry.operation in (operation, _ALL):
            is_prefix = pattern.pattern_type is PatternType.PREFIXED
            (prefixed if is_prefix else literal)[entry.permission].add(pattern.name)
    denied, denied_prefixes = literal[PermissionType.DENY], prefixed[PermissionType.DENY]
    allowed, allowed_prefixes = literal[PermissionType.ALLOW], prefixed[PermissionType.ALLOW]
    if WILDCARD in denied:
        return False
    if WILDCARD in allowed:
        return True
    open_names = (allowed - denied) | allowed_prefixes
    return any(not _has_prefix(name, denied_prefixes) for name in open_names)


def _has_prefix(name: str, prefixes: set[str]) -> bool:
    lengths = {len(prefix) for prefix in prefixes}
    return any(name[:length] in prefixes for length in lengths)


def _rule(pattern: ResourcePattern, entry: AccessControlEntry) -> str:
    return (
        f"MatchingAcl(acl=StandardAcl(resourceType={pattern.type.name}, "
        f"resourceName={pattern.name}, patternType={pattern.pattern_type.name}, "
        f"principal={entry.principal}, host={entry.host}, operation={entry.operation.name}, "
        f"permissionType={entry.permission.name}))"
    )
