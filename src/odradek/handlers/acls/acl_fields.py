"""Converts ACLs between messages and values."""

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, Final, TypeVar

from odradek.acl import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    PatternType,
    PermissionType,
    ResourcePattern,
)
from odradek.errors import BrokerError, ErrorCode
from odradek.model import AclOperation, ResourceType
from odradek.protocol.primitives import ProtocolError

Number = TypeVar("Number", bound=IntEnum)
_UNKNOWN: Final = 0
SECURITY_DISABLED: Final = BrokerError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def binding(creation: Any) -> AclBinding:
    """Reads the binding of a creation; raises ProtocolError as `known` does."""
    return AclBinding(
        ResourcePattern(
            known(ResourceType, creation.resource_type),
            creation.resource_name,
            known(PatternType, creation.resource_pattern_type),
        ),
        AccessControlEntry(
            creation.principal,
            creation.host,
            known(AclOperation, creation.operation),
            known(PermissionType, creation.permission_type),
        ),
    )


def acl_filter(wanted: Any) -> AclFilter:
    """Reads a filter; raises ProtocolError as `known` does."""
    return AclFilter(
        known(ResourceType, wanted.resource_type_filter),
        wanted.resource_name_filter,
        known(PatternType, wanted.pattern_type_filter),
        wanted.principal_filter,
        wanted.host_filter,
        known(AclOperation, wanted.operation),
        known(PermissionType, wanted.permission_type),
    )


def known(kind: type[Number], number: int) -> Number:
    """Returns the enum value of a number; an unknown one is UNKNOWN, which matches nothing.

    Raises:
        ProtocolError: it is the number of UNKNOWN, where Kafka ends the connection.
    """
    if number == _UNKNOWN:
        raise ProtocolError(f"an ACL of the {kind.__name__} UNKNOWN", 0)
    try:
        return kind(number)
    except ValueError:
        return kind(_UNKNOWN)


def entry_fields(entry: AccessControlEntry) -> dict[str, object]:
    """The fields of an entry in messages."""
    return {
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation,
        "permission_type": entry.permission,
    }


def pattern_fields(pattern: ResourcePattern) -> dict[str, object]:
    """The fields of a pattern in messages."""
    return {
        "resource_type": pattern.type,
        "resource_name": pattern.name,
        "pattern_type": pattern.pattern_type,
    }


def binding_fields(bindings: Iterable[AclBinding]) -> list[dict[str, object]]:
    """The fields of bindings in messages."""
    return [{**pattern_fields(each.pattern), **entry_fields(each.entry)} for each in bindings]
