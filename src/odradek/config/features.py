"""Features: the finalized levels of a cluster, and the versions that this broker supports.

A feature is finalized at one version for the whole cluster; brokers may behave by it from then on.
ApiVersions contains these.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

GROUP_VERSION: Final = "group.version"
KRAFT_VERSION: Final = "kraft.version"
METADATA_VERSION: Final = "metadata.version"
SHARE_VERSION: Final = "share.version"
TRANSACTION_VERSION: Final = "transaction.version"


class FeatureRange(NamedTuple):
    """The versions of a feature that this broker supports; `default` is a new cluster's, and 0
    that the feature is not in use."""

    min_version: int
    max_version: int
    default: int


SUPPORTED_FEATURES: Final[Mapping[str, FeatureRange]] = MappingProxyType(
    {
        GROUP_VERSION: FeatureRange(0, 1, 1),
        KRAFT_VERSION: FeatureRange(0, 1, 0),
        METADATA_VERSION: FeatureRange(7, 30, 30),
        SHARE_VERSION: FeatureRange(0, 1, 1),
        TRANSACTION_VERSION: FeatureRange(0, 2, 2),
    }
)

DEFAULT_LEVELS: Final[Mapping[str, int]] = MappingProxyType(
    {name: each.default for name, each in SUPPORTED_FEATURES.items() if each.default}
)
