"""ShareGroupHeartbeat (76), version 1: the only request of a member of a share group to its
coordinator (KIP-932).

Behaviour: see `coordinator.share_groups`. The response has an assignment only if it has changed, or
if the member joins.
"""

from odradek.coordinator.share_groups.requests import ShareHeartbeatRequest, ShareHeartbeatResult
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.groups.described_groups import explanation
from odradek.handlers.request import Request
from odradek.handlers.share.share_version import serves_share_groups


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the heartbeat's changes are committed."""

    def on_done(result: ShareHeartbeatResult | BrokerError) -> None:
        if isinstance(result, BrokerError):
            request.answer(error_code=result.code, error_message=explanation(result) or None)
        else:
            _answer(request, result)

    if not serves_share_groups(context):
        request.answer(error_code=ErrorCode.UNSUPPORTED_VERSION)
        return
    context.share_groups.heartbeat(_heartbeat(request), request.guard(on_done))


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error."""
    request.answer(error_code=code, error_message=code.text)


def _heartbeat(request: Request) -> ShareHeartbeatRequest:
    body = request.body()
    names = body.subscribed_topic_names
    return ShareHeartbeatRequest(
        body.group_id,
        body.member_id,
        body.member_epoch,
        body.rack_id,
        None if names is None else frozenset(names),
        request.client_id or "",
        f"/{request.exchange.client_host}",
    )


def _answer(request: Request, result: ShareHeartbeatResult) -> None:
    assignment = result.assignment
    request.answer(
        error_code=ErrorCode.NONE,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=None
        if assignment is None
        else {
            "topic_partitions": [
                {"topic_id": topic_id, "partitions": sorted(indexes)}
                for topic_id, indexes in assignment.items()
            ]
        },
    )
