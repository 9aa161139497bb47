"""Charges the changes of topics to its client's quota of controller mutations.

From some version on a topic that is over the quota is refused with THROTTLING_QUOTA_EXCEEDED, the
others are done; older clients are admitted and throttled afterwards (KIP-599). A change that fails
costs nothing.
"""

from odradek.controller.topics.operations import Charge
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.request import Request


def charge_of(request: Request, *, strict_from: int) -> Charge:
    """Makes what charges the request for the partitions of a change; `strict_from` is the version
    whose clients may be refused."""
    is_strict = request.api_version >= strict_from

    def charge(partitions: int) -> None:
        if not request.may_mutate(partitions, is_strict):
            raise BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)

    return charge
