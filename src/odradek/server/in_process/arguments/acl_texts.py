"""ACLs in words, as a test writes them: `"User:alice read,write topic:orders-*"`."""

from collections.abc import Iterable
from typing import Final

from odradek.acl import (
    ANY_HOST,
    CLUSTER_NAME,
    WILDCARD,
    AccessControlEntry,
    AclBinding,
    PatternType,
    PermissionType,
    ResourcePattern,
)
from odradek.model import AclOperation, ResourceType
from odradek.server.in_process.arguments.kinds import items_of
from odradek.suggestions import did_you_mean

_PERMISSIONS: Final = {"allow": PermissionType.ALLOW, "deny": PermissionType.DENY}
_TYPES: Final = {
    each.name.lower().replace("_", "-"): each for each in ResourceType if each.value > 1
}
_OPERATIONS: Final = {
    each.name.lower().replace("_", ""): each for each in AclOperation if each.value > 1
}
_FORM: Final = "[allow|deny] PRINCIPAL OPERATION[,OPERATION] cluster|TYPE:NAME[*] [from HOST]"


def read_acls(acls: Iterable[str | AclBinding]) -> list[AclBinding]:
    """ACLs from words and from bindings.

    Raises:
        TypeError: one text in place of a list, or something that is neither.
        ValueError: words that are no ACL; the text says how they go.
    """
    if isinstance(acls, str):
        raise TypeError("acls is a list, one text an ACL, and not of type str")
    found: list[AclBinding] = []
    for each in items_of("acls", "ACLs", acls):
        found += _read(each) if isinstance(each, str) else [_binding(each)]
    return found


def _binding(value: object) -> AclBinding:
    if not isinstance(value, AclBinding):
        kind = type(value).__name__
        raise TypeError(f"an ACL is a text or an AclBinding, and not of type {kind}")
    return value


def _read(text: str) -> list[AclBinding]:
    words = text.split()
    permission = PermissionType.ALLOW
    if words and words[0] in _PERMISSIONS:
        permission = _PERMISSIONS[words.pop(0)]
    host = ANY_HOST
    if len(words) == 5 and words[3] == "from":
        host = words.pop()
        words.pop()
    if len(words) != 3:
        raise ValueError(f"{text!r} is no ACL: {_FORM}")
    who, operations, resource = words
    principal = who if ":" in who else f"User:{who}"
    pattern = _pattern(text, resource)
    return [
        AclBinding(pattern, AccessControlEntry(principal, host, _operation(text, name), permission))
        for name in operations.split(",")
    ]


def _operation(text: str, name: str) -> AclOperation:
    found = _OPERATIONS.get(name.lower().replace("_", "").replace("-", ""))
    if found is None:
        names = [each.name.lower() for each in _OPERATIONS.values()]
        raise ValueError(f"{text!r}: there is no operation {name}{did_you_mean(name, names)}")
    return found


def _pattern(text: str, resource: str) -> ResourcePattern:
    kind, _, name = resource.partition(":")
    if kind == "cluster":
        return ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME)
    if kind not in _TYPES or not name:
        meant = did_you_mean(kind, _TYPES)
        raise ValueError(f"{text!r}: {resource} is no resource{meant}; the form is {_FORM}")
    if name.endswith(WILDCARD) and name != WILDCARD:
        return ResourcePattern(_TYPES[kind], name[:-1], PatternType.PREFIXED)
    return ResourcePattern(_TYPES[kind], name)
