"""The fields that tell a caller what it may do (`authorized operations`), as one bit each."""

from typing import Final

from odradek.acl import CLUSTER_NAME
from odradek.handlers.authorization.access import Fields, Guarded
from odradek.handlers.authorized_operations import (
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    NOT_TOLD,
    TOPIC_OPERATIONS,
)
from odradek.model import AclOperation, ResourceType

_OPERATIONS: Final = {
    ResourceType.TOPIC: TOPIC_OPERATIONS,
    ResourceType.GROUP: GROUP_OPERATIONS,
    ResourceType.CLUSTER: CLUSTER_OPERATIONS,
}
_NOTHING: Final = 0


def operations(guarded: Guarded, type: ResourceType, name: str) -> int:
    """The operations that the caller may do with a resource."""
    possible = _OPERATIONS[type]
    return sum(
        1 << operation
        for operation in AclOperation
        if possible & 1 << operation and guarded.may_see(operation, type, name)
    )


def amend_operations(
    guarded: Guarded, fields: Fields, field: str, type: ResourceType, name: str
) -> None:
    """Replaces the handler's operations, which are all that exist, by those of this caller."""
    if fields.get(field, NOT_TOLD) != NOT_TOLD:
        fields[field] = operations(guarded, type, name)


def tell_cluster_operations(guarded: Guarded) -> None:
    """DescribeCluster is for everybody, but only callers that may describe the cluster get their
    allowed operations."""
    guarded.amend(lambda fields: amend_cluster_operations(guarded, fields))
    guarded.serve()


def amend_cluster_operations(guarded: Guarded, fields: Fields) -> None:
    """See `tell_cluster_operations`."""
    field = "cluster_authorized_operations"
    if fields.get(field, NOT_TOLD) == NOT_TOLD:
        return
    if guarded.may_in_cluster(AclOperation.DESCRIBE):
        amend_operations(guarded, fields, field, ResourceType.CLUSTER, CLUSTER_NAME)
    else:
        fields[field] = _NOTHING
