"""The messages that members of a classic group write for one another, refused where malformed."""

from collections.abc import Callable
from typing import TypeVar

from odradek.client.errors import GroupError
from odradek.errors import ErrorCode
from odradek.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
)
from odradek.protocol.primitives import ProtocolError

T = TypeVar("T")


def read_subscription(data: bytes) -> Subscription:
    """A member's subscription.

    Raises:
        GroupError: INCONSISTENT_GROUP_PROTOCOL, it is not one.
    """
    return _read(decode_subscription, data, "subscription")


def read_assignment(data: bytes) -> Assignment:
    """A member's assignment; no bytes are one of nothing.

    Raises:
        GroupError: INCONSISTENT_GROUP_PROTOCOL, it is not one.
    """
    return _read(decode_assignment, data, "assignment")


def _read(decode: Callable[[bytes], T], data: bytes, what: str) -> T:
    try:
        return decode(data)
    except ProtocolError as error:
        raise GroupError(
            f"a member's {what} is malformed: {error}", ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        ) from error
