"""DescribeClientQuotas (48), versions 0 and 1: the quotas of users, clients and addresses.

Behaviour: an entity is returned if each of its parts that the filter names matches; with `strict`,
only if it has no other part. `ip` stands alone, `user` and `client-id` may go together.
"""

from functools import partial
from typing import Any, Final

from odradek.client_quota import QuotaEntity, Quotas
from odradek.controller.quota_control import is_meant, names_of
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.long_requests import do_in_slices
from odradek.handlers.request import Request

EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2
ENTITY_TYPES: Final = frozenset({"user", "client-id", "ip"})


def handle(context: HandlerContext, request: Request) -> None:
    """Answers from the published image."""
    body = request.body()
    try:
        _check(body.components)
    except BrokerError as error:
        request.answer(error_code=error.code, error_message=error.message, entries=None)
        return
    wanted = {each.entity_type: partial(_fits, each) for each in body.components}
    found: dict[str, tuple[QuotaEntity, Quotas]] = {}

    def look(each: tuple[QuotaEntity, Quotas]) -> None:
        if is_meant(each[0], wanted, strict=body.strict):
            found[str(each[0])] = each

    def answer() -> None:
        request.answer(error_message="", entries=(_entry(*found[each]) for each in sorted(found)))

    do_in_slices(request, context.metadata.image.client_quotas.items(), look, answer)


def _fits(component: Any, name: str | None) -> bool:
    """Whether a name, None for the default, matches a component of a filter."""
    if component.match_type == ANY:
        return True
    return bool(name == component.match) if component.match_type == EXACT else name is None


def _entry(entity: QuotaEntity, quotas: Quotas) -> dict[str, object]:
    return {
        "entity": [
            {"entity_type": kind, "entity_name": name} for kind, name in names_of(entity).items()
        ],
        "values": [{"key": key.value, "value": value} for key, value in quotas.items()],
    }


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error and no entries."""
    request.answer(error_code=code, error_message=code.text, entries=None)


def _check(components: Any) -> None:
    types = [component.entity_type for component in components]
    if len(set(types)) != len(types):
        raise BrokerError(ErrorCode.INVALID_REQUEST, "An entity type is named twice.")
    for component in components:
        _check_component(component)
    if "ip" in types and len(types) > 1:
        message = "Quotas of addresses are not told together with those of users and clients."
        raise BrokerError(ErrorCode.INVALID_REQUEST, message)


def _check_component(component: Any) -> None:
    if not component.entity_type:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "An entity type is empty.")
    if component.entity_type not in ENTITY_TYPES:
        message = f"There are no quotas for entities of type {component.entity_type}."
        raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, message)
    if component.match_type not in (EXACT, DEFAULT, ANY):
        message = f"There is no match type {component.match_type}."
        raise BrokerError(ErrorCode.INVALID_REQUEST, message)
    if (component.match_type == EXACT) != (component.match is not None):
        raise BrokerError(ErrorCode.INVALID_REQUEST, "Only an exact match names something.")
