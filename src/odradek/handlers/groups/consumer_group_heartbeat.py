"""ConsumerGroupHeartbeat (68), versions 0 and 1: the only request of a member of a consumer group
to its coordinator (KIP-848).

Behaviour: see `coordinator.consumer`. The response has an assignment only if it has changed, or if
the member has sent all its fields.

Version notes: 1 adds subscriptions by regular expression, and members make their own ids.
"""

from typing import Any

from odradek.coordinator.assignors import Partitions
from odradek.coordinator.consumer.requests import HeartbeatRequest, HeartbeatResult
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.groups.described_groups import explanation
from odradek.handlers.groups.rebalance_protocols import offers_consumer_protocol
from odradek.handlers.request import Request
from odradek.metadata.image import ZERO_UUID
from odradek.protocol.messages import milliseconds


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the heartbeat's changes are committed."""

    def on_done(result: HeartbeatResult | BrokerError) -> None:
        if isinstance(result, BrokerError):
            request.answer(error_code=result.code, error_message=explanation(result))
        else:
            _answer(request, result)

    if not offers_consumer_protocol(context):
        request.answer(error_code=ErrorCode.UNSUPPORTED_VERSION)
        return
    context.groups.consumer_heartbeat(
        _heartbeat(request), request.api_version, request.guard(on_done)
    )


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error."""
    request.answer(error_code=code, error_message=code.text)


def _heartbeat(request: Request) -> HeartbeatRequest:
    body = request.body()
    names = body.subscribed_topic_names
    return HeartbeatRequest(
        body.group_id,
        body.member_id,
        body.member_epoch,
        body.instance_id,
        body.rack_id,
        milliseconds(body.rebalance_timeout),
        None if names is None else frozenset(names),
        getattr(body, "subscribed_topic_regex", None),
        body.server_assignor,
        None if body.topic_partitions is None else _owned(body.topic_partitions),
        request.client_id or "",
        f"/{request.exchange.client_host}",
    )


def _owned(topics: Any) -> Partitions:
    return {
        topic.topic_id or ZERO_UUID: frozenset(topic.partitions)
        for topic in topics
        if topic.partitions
    }


def _answer(request: Request, result: HeartbeatResult) -> None:
    assignment = result.assignment
    request.answer(
        error_code=ErrorCode.NONE,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=None if assignment is None else {"topic_partitions": _topics(assignment)},
    )


def _topics(partitions: Partitions) -> list[dict[str, object]]:
    return [
        {"topic_id": topic_id, "partitions": sorted(indexes)}
        for topic_id, indexes in partitions.items()
    ]
