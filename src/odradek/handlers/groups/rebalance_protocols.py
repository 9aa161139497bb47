"""The group protocols that this broker offers: those of `group.coordinator.rebalance.protocols`,
the newer one only from level 1 of the feature group.version on."""

from odradek.config.features import GROUP_VERSION
from odradek.handlers.context import HandlerContext


def offers_consumer_protocol(context: HandlerContext) -> bool:
    """Whether the newer protocol may be used; without it the answer is UNSUPPORTED_VERSION, from
    which clients know that they have to use the classic one."""
    is_set = "consumer" in context.config["group.coordinator.rebalance.protocols"]
    return is_set and context.metadata.image.feature_level(GROUP_VERSION) > 0
