"""The states of a member whose partitions the coordinator assigns, and special epochs.

A member's epoch is the group's epoch that it has reached. It joins with epoch 0, and leaves with a
negative one.
"""

from enum import IntEnum
from typing import Final

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
INITIAL_EPOCH: Final = 1
"""The epoch of a group that is still empty, as in Kafka: its first member joins in the next."""


class MemberState(IntEnum):
    """The state of a member; the log contains these numbers."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It was asked to give partitions back and has not said yet that it did."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have not given back."""
    UNKNOWN = 127
    """Written by a coordinator that knows more states."""
