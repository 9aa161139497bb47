"""What may be done with a group, as one bit for each of Kafka's operations.

There are no permissions here: everybody may do whatever there is to do, as with a Kafka that has
no authorizer.
"""

from typing import Any, Final

READ: Final = 1 << 3
DELETE: Final = 1 << 6
DESCRIBE: Final = 1 << 8
DESCRIBE_CONFIGS: Final = 1 << 10
ALTER_CONFIGS: Final = 1 << 11
GROUP_OPERATIONS: Final = READ | DELETE | DESCRIBE | DESCRIBE_CONFIGS | ALTER_CONFIGS
NOT_TOLD: Final = -(2**31)


def group_operations(body: Any) -> int:
    """The operations on a group, if a request wants to know them."""
    wanted = getattr(body, "include_authorized_operations", False)
    return GROUP_OPERATIONS if wanted else NOT_TOLD
