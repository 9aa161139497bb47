"""Splits the topics of a request by its client's quota of controller mutations.

From some version on a topic that is over the quota is refused with THROTTLING_QUOTA_EXCEEDED, the
others are done; older clients are admitted and throttled afterwards (KIP-599).
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from odradek.errors import ErrorCode
from odradek.handlers.long_requests import do_in_slices
from odradek.handlers.request import Request

T = TypeVar("T")

OVER_QUOTA: Final = ErrorCode.THROTTLING_QUOTA_EXCEEDED


def within_quota(
    request: Request,
    asked: Iterable[T],
    cost_of: Callable[[T], int],
    then: Callable[[list[T], list[T]], None],
    *,
    strict_from: int,
) -> None:
    """Splits changes into those that may be made and those over the quota, in slices, and hands
    `then` both. `cost_of` is the number of partitions of a change; a change that will fail anyway
    costs nothing."""
    is_strict = request.api_version >= strict_from
    admitted: list[T] = []
    refused: list[T] = []

    def charge(each: T) -> None:
        cost = cost_of(each) if request.is_charged else 0
        may = not cost or request.may_mutate(cost, is_strict)
        (admitted if may else refused).append(each)

    do_in_slices(request, asked, charge, lambda: then(admitted, refused))
