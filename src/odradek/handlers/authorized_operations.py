"""Authorized operations on a group, a topic or the cluster: one bit for each of Kafka's operations.

Without an authorizer all operations are allowed to everybody, as in Kafka.
"""

from typing import Any, Final

from odradek.model import AclOperation

READ: Final = 1 << AclOperation.READ
WRITE: Final = 1 << AclOperation.WRITE
CREATE: Final = 1 << AclOperation.CREATE
DELETE: Final = 1 << AclOperation.DELETE
ALTER: Final = 1 << AclOperation.ALTER
DESCRIBE: Final = 1 << AclOperation.DESCRIBE
CLUSTER_ACTION: Final = 1 << AclOperation.CLUSTER_ACTION
DESCRIBE_CONFIGS: Final = 1 << AclOperation.DESCRIBE_CONFIGS
ALTER_CONFIGS: Final = 1 << AclOperation.ALTER_CONFIGS
IDEMPOTENT_WRITE: Final = 1 << AclOperation.IDEMPOTENT_WRITE
GROUP_OPERATIONS: Final = READ | DELETE | DESCRIBE | DESCRIBE_CONFIGS | ALTER_CONFIGS
TOPIC_OPERATIONS: Final = GROUP_OPERATIONS | WRITE | CREATE | ALTER
CLUSTER_OPERATIONS: Final = (
    CREATE | ALTER | DESCRIBE | CLUSTER_ACTION | DESCRIBE_CONFIGS | ALTER_CONFIGS | IDEMPOTENT_WRITE
)
NOT_TOLD: Final = -(2**31)


def group_operations(body: Any) -> int:
    """The operations on a group, if a request wants to know them."""
    wanted = getattr(body, "include_authorized_operations", False)
    return GROUP_OPERATIONS if wanted else NOT_TOLD


def topic_operations(body: Any) -> int:
    """The operations on a topic, if a request wants to know them."""
    wanted = getattr(body, "include_topic_authorized_operations", False)
    return TOPIC_OPERATIONS if wanted else NOT_TOLD


def cluster_operations(body: Any) -> int:
    """The operations on the cluster, if a request wants to know them."""
    wanted = getattr(body, "include_cluster_authorized_operations", False)
    return CLUSTER_OPERATIONS if wanted else NOT_TOLD
