"""ACLs: describe, create, delete."""

from collections.abc import Iterable
from typing import Any

from odradek.acl import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    PatternType,
    PermissionType,
    ResourcePattern,
)
from odradek.client.aio.admin.base import AdminBase, outcome
from odradek.client.apis import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS
from odradek.client.errors import KafkaError, raise_for
from odradek.model import AclOperation, ResourceType

EVERYTHING = AclFilter()


class AclCalls(AdminBase):
    """Calls about ACLs. A broker without an authorizer answers SECURITY_DISABLED."""

    async def describe_acls(self, wanted: AclFilter = EVERYTHING) -> list[AclBinding]:
        """The ACLs that match a filter.

        Raises:
            KafkaError: the caller may not DESCRIBE the cluster, or there is no authorizer.
        """

        async def attempt() -> list[AclBinding]:
            answer = await self._cluster.call(None, DESCRIBE_ACLS, filter_fields(wanted))
            raise_for(int(answer.error_code), answer.error_message)
            return [
                AclBinding(_pattern(resource), _entry(acl))
                for resource in answer.resources
                for acl in resource.acls
            ]

        return await self._cluster.retrying(attempt)

    async def create_acls(self, bindings: Iterable[AclBinding]) -> dict[AclBinding, Any]:
        """Adds ACLs: None for each, or the `KafkaError` of its refusal. An existing ACL is fine."""

        async def attempt(pending: list[AclBinding]) -> dict[AclBinding, Any]:
            creations = [creation_fields(each) for each in pending]
            answer = await self._cluster.call(None, CREATE_ACLS, {"creations": creations})
            return {
                binding: outcome(result.error_code, None, result.error_message)
                for binding, result in zip(pending, answer.results, strict=False)
            }

        return await self._retrying(bindings, attempt)

    async def delete_acls(
        self, filters: Iterable[AclFilter]
    ) -> dict[AclFilter, list[AclBinding] | KafkaError]:
        """Removes the ACLs that match each filter, and returns them."""

        async def ask(node_id: int | None, pending: list[AclFilter]) -> dict[AclFilter, Any]:
            fields = [filter_fields(each) for each in pending]
            answer = await self._cluster.call(node_id, DELETE_ACLS, {"filters": fields})
            return {
                wanted: outcome(result.error_code, _removed(result), result.error_message)
                for wanted, result in zip(pending, answer.filter_results, strict=False)
            }

        return await self._retrying_change(filters, self._anybody, ask)


def filter_fields(wanted: AclFilter) -> dict[str, object]:
    """The fields of a filter in requests."""
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def creation_fields(binding: AclBinding) -> dict[str, object]:
    """The fields of an ACL in CreateAcls."""
    pattern, entry = binding
    return {
        "resource_type": pattern.type,
        "resource_name": pattern.name,
        "resource_pattern_type": pattern.pattern_type,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation,
        "permission_type": entry.permission,
    }


def _pattern(resource: Any) -> ResourcePattern:
    return ResourcePattern(
        ResourceType(resource.resource_type),
        resource.resource_name,
        PatternType(resource.pattern_type),
    )


def _entry(acl: Any) -> AccessControlEntry:
    return AccessControlEntry(
        acl.principal, acl.host, AclOperation(acl.operation), PermissionType(acl.permission_type)
    )


def _removed(result: Any) -> list[AclBinding]:
    return [AclBinding(_pattern(each), _entry(each)) for each in result.matching_acls]
