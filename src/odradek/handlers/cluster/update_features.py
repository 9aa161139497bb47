"""UpdateFeatures (57), versions 0 to 2: changes the levels of features, all of them or none.

Behaviour: see `controller.feature_plans`. ApiVersions tells clients the levels, and they apply to
this broker too: below group.version 1 there is no consumer protocol, and transaction.version
decides how transactions are stored. If a name comes twice, the last one counts.

Version notes: in 0 the flag that allows downgrades is ignored, as in Kafka, so there are only
upgrades; 1 has types of upgrade in its place, and can validate only; 2 leaves out the results of
single features.
"""

from typing import Any, Final

from odradek.controller.results import FeatureUpdate, UpgradeType
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request

UPGRADE_TYPES_SINCE: Final = 1
SINGLE_RESULTS_UNTIL: Final = 1


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the levels are committed."""
    body = request.body()
    updates = {each.feature: _update(each, request.api_version) for each in body.feature_updates}

    def on_done(outcome: BrokerError | None) -> None:
        if isinstance(outcome, BrokerError):
            request.answer(error_code=outcome.code, error_message=outcome.message)
        elif request.api_version <= SINGLE_RESULTS_UNTIL:
            request.answer(results=[_done(each.feature) for each in body.feature_updates])
        else:
            request.answer()

    context.controller.update_features(
        tuple(updates.values()),
        request.guard(on_done),
        validate_only=getattr(body, "validate_only", False),
    )


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error for the whole."""
    request.answer(error_code=code, error_message=code.text)


def _update(update: Any, version: int) -> FeatureUpdate:
    kind = UpgradeType.UPGRADE
    if version >= UPGRADE_TYPES_SINCE:
        known = update.upgrade_type in tuple(UpgradeType)
        kind = UpgradeType(update.upgrade_type) if known else UpgradeType.UNKNOWN
    return FeatureUpdate(update.feature, update.max_version_level, kind)


def _done(name: str) -> dict[str, object]:
    return {"feature": name, "error_code": ErrorCode.NONE, "error_message": "NONE"}
