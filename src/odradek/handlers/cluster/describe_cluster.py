"""DescribeCluster (60), versions 0 to 2: the cluster id, the controller, the live brokers.

Version notes: 1 can ask for the controllers' end points, which is MISMATCHED_ENDPOINT_TYPE
here as on every broker of Kafka; 2 can ask for fenced brokers, which do not exist: a broker that is
not alive is not registered.
"""

from typing import Final

from odradek.errors import ErrorCode
from odradek.handlers.authorized_operations import cluster_operations
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.handlers.topics.partition_state import broker_fields

BROKERS: Final = 1
CONTROLLERS: Final = 2


def handle(context: HandlerContext, request: Request) -> None:
    """Answers from the published image."""
    body = request.body()
    endpoint_type = getattr(body, "endpoint_type", BROKERS)
    if endpoint_type == CONTROLLERS:
        _refuse(
            request,
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of the wrong type.",
        )
    elif endpoint_type != BROKERS:
        _refuse(
            request, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unknown endpoint type {endpoint_type}."
        )
    else:
        image = context.metadata.image
        request.answer(
            cluster_id=image.cluster_id,
            controller_id=context.metadata.controller_id,
            brokers=broker_fields(image, request.exchange.listener_name, "broker_id"),
            cluster_authorized_operations=cluster_operations(body),
        )


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error alone."""
    _refuse(request, code, code.text)


def _refuse(request: Request, code: ErrorCode, message: str) -> None:
    request.answer(error_code=code, error_message=message)
