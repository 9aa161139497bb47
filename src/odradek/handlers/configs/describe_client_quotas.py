"""DescribeClientQuotas (48), versions 0 and 1: the quotas of users, clients and addresses.

Behaviour: none can be set yet, so that nothing fits any filter; a filter that is none is refused
as by Kafka. `ip` stands alone, `user` and `client-id` may go together.
"""

from typing import Any, Final

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request

EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2
ENTITY_TYPES: Final = frozenset({"user", "client-id", "ip"})


def handle(_context: HandlerContext, request: Request) -> None:
    """Answers at once."""
    try:
        _check(request.body().components)
    except BrokerError as error:
        request.answer(error_code=error.code, error_message=error.message, entries=None)
    else:
        request.answer(error_message="", entries=[])


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
