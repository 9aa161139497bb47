"""Which group protocols this broker offers (`group.coordinator.rebalance.protocols`)."""

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext


def check_consumer_protocol(context: HandlerContext) -> None:
    """Raises BrokerError UNSUPPORTED_VERSION when the newer consumer protocol is switched off:
    clients know from it that they have to use the classic one."""
    if "consumer" not in context.config["group.coordinator.rebalance.protocols"]:
        raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)
