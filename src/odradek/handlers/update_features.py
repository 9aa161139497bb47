"""UpdateFeatures (57), versions 0 to 2: changes the levels of features, all of them or none.

Behaviour: the levels are those of a new cluster and cannot be lowered, so that the only update
that is accepted is to what is there; one that is no update at all is told as by Kafka. A downgrade
that Kafka would make is refused as one that would lose what is in use.

Version notes: 1 has types of upgrade in place of a flag, and can validate only; 2 leaves out the
results of single features.
"""

from typing import Any, Final

from odradek.config.features import SUPPORTED_FEATURES
from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3
SINGLE_RESULTS_UNTIL: Final = 1


def handle(_context: HandlerContext, request: Request) -> None:
    """Answers at once."""
    updates = request.body().feature_updates
    faults = [fault for fault in map(_fault, updates) if fault is not None]
    if faults:
        request.answer(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=faults[0])
    elif request.api_version <= SINGLE_RESULTS_UNTIL:
        request.answer(results=[_done(update) for update in updates])
    else:
        request.answer()


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error for the whole."""
    request.answer(error_code=code, error_message=code.text)


def _done(update: Any) -> dict[str, object]:
    return {"feature": update.feature, "error_code": ErrorCode.NONE, "error_message": "NONE"}


def _fault(update: Any) -> str | None:
    """Why the update cannot be made; None when there is nothing to do."""
    level: int = update.max_version_level
    kind: int = getattr(update, "upgrade_type", UPGRADE)
    supported = SUPPORTED_FEATURES.get(update.feature)
    refused = f"Invalid update version {level} for feature {update.feature}. "
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return refused + "There is no such type of upgrade."
    if supported is None:
        return refused + "This broker does not support the feature."
    if not supported.min_version <= level <= supported.max_version:
        versions = f"{supported.min_version}-{supported.max_version}"
        return refused + f"This broker supports versions {versions} only."
    if level == supported.default:
        return None
    return refused + f"It is finalized at {supported.default}, which cannot be changed."
