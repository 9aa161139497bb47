"""Whether the cluster has share groups: the feature `share.version` says so."""

from odradek.config.features import SHARE_VERSION
from odradek.handlers.context import HandlerContext


def serves_share_groups(context: HandlerContext) -> bool:
    """Whether the cluster's version of share groups is above zero."""
    return context.metadata.image.feature_level(SHARE_VERSION) > 0
