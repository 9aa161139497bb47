"""The rules of upgrades and downgrades of features.

A feature may go up by an upgrade, and down by one of the downgrades, within the levels that this
broker supports. The version of the metadata only goes up: lower ones could not hold the stored
data.
"""

from collections.abc import Iterable
from typing import Final

from odradek.config.features import KRAFT_VERSION, METADATA_VERSION, SUPPORTED_FEATURES
from odradek.controller.results import FeatureUpdate, UpgradeType
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import MetadataImage

_NEVER_LOWERED: Final = (KRAFT_VERSION, METADATA_VERSION)


def plan_features(image: MetadataImage, updates: Iterable[FeatureUpdate]) -> dict[str, int]:
    """The levels that change; none when all are as requested.

    Raises:
        BrokerError: INVALID_UPDATE_VERSION, for the first update that cannot be made.
    """
    levels = {}
    for update in updates:
        _check(update, image.feature_level(update.name))
        if update.level != image.feature_level(update.name):
            levels[update.name] = update.level
    return levels


def _check(update: FeatureUpdate, current: int) -> None:
    name, level, upgrade_type = update
    supported = SUPPORTED_FEATURES.get(name)
    if upgrade_type is UpgradeType.UNKNOWN:
        raise _refused(update, "There is no such type of upgrade.")
    if supported is None:
        raise _refused(update, "This broker does not support the feature.")
    if not supported.min_version <= level <= supported.max_version:
        versions = f"{supported.min_version}-{supported.max_version}"
        raise _refused(update, f"This broker supports versions {versions} only.")
    if level > current and upgrade_type is not UpgradeType.UPGRADE:
        raise _refused(update, f"From {current} that is no downgrade.")
    if level < current and upgrade_type is UpgradeType.UPGRADE:
        raise _refused(update, f"From {current} that is a downgrade, which has to be asked for.")
    if level < current and name in _NEVER_LOWERED:
        raise _refused(update, f"It is finalized at {current}, which cannot be lowered.")


def _refused(update: FeatureUpdate, reason: str) -> BrokerError:
    return BrokerError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {update.level} for feature {update.name}. {reason}",
    )
