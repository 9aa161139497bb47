"""Values of access control: which entries (ACLs) there are on which resources, and filters of them.

Like `model`, for every floor: the store keeps bindings, the authorizer decides by them, handlers
and the client report them. The numbers are the protocol's.
"""

from enum import IntEnum
from typing import Final, NamedTuple

from odradek.model import AclOperation, ResourceType

CLUSTER_NAME: Final = "kafka-cluster"
WILDCARD: Final = "*"
ANY_USER: Final = "User:*"
ANY_HOST: Final = "*"


AclResourceType = ResourceType
"""For clients, to whom `ResourceType` is what has settings."""


class PatternType(IntEnum):
    """How a pattern's name is compared with a resource's; ANY and MATCH are for filters alone."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4

    __hash__ = int.__hash__  # that of Enum is slow, and these are keys


class PermissionType(IntEnum):
    """Whether an entry allows or denies; ANY is for filters alone."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3

    __hash__ = int.__hash__  # that of Enum is slow, and these are keys


class ResourcePattern(NamedTuple):
    """The resources that an entry is about: one by its name, all (the literal name `*`), or those
    whose names begin so."""

    type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


class AccessControlEntry(NamedTuple):
    """One rule of an ACL: a principal (`User:name`, `User:*`) may, or may not, do an operation,
    from a host (`*`: any)."""

    principal: str
    host: str
    operation: AclOperation
    permission: PermissionType


class AclBinding(NamedTuple):
    """An entry and the resources that it is about: an ACL."""

    pattern: ResourcePattern
    entry: AccessControlEntry


class AclFilter(NamedTuple):
    """Selects ACLs; None and ANY match all. With the pattern type MATCH a name means every pattern
    that fits the resource of that name."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: PermissionType = PermissionType.ANY

    def holds_for(self, pattern: ResourcePattern) -> bool:
        """Whether the filter may match entries of a pattern."""
        if self.resource_type not in (ResourceType.ANY, pattern.type):
            return False
        any_kind = self.pattern_type in (PatternType.ANY, PatternType.MATCH)
        if not any_kind and self.pattern_type is not pattern.pattern_type:
            return False
        if self.name is None or self.name == pattern.name:
            return True
        return self.pattern_type is PatternType.MATCH and _fits(pattern, self.name)

    def matches(self, entry: AccessControlEntry) -> bool:
        """Whether the filter matches an entry of a pattern that it `holds_for`."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (PermissionType.ANY, entry.permission)
        )


def _fits(pattern: ResourcePattern, name: str) -> bool:
    if pattern.pattern_type is PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name == WILDCARD
