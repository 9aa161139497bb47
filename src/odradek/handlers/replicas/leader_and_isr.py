"""LeaderAndIsr (4), versions 0 to 7: the controller says what this broker leads and follows.

Behaviour: an earlier controller or broker epoch is refused as a whole, and for every partition
(STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH); else each partition has its own result.

Version notes: 2 has the broker's epoch, 3 the replicas that are added and removed, 5 topic ids,
also in the response, and a flag for a request with all replicas.
"""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.replicas.control_values import (
    NO_EPOCH,
    control_header,
    controlled,
    error_fields,
    is_late,
    partition_states,
    same_for_all,
)
from odradek.handlers.request import Request
from odradek.metadata.control import LeaderAndIsr, PartitionState, ReplicaErrors
from odradek.metadata.image import BrokerRegistration
from odradek.model import EndPoint, TopicPartition

FULL: Final = 2
TOPIC_IDS_FROM: Final = 5


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the replicas lead and follow."""
    if is_late(context, request):
        return
    body = request.body()
    states = partition_states(body)

    def on_done(outcome: ReplicaErrors | BrokerError) -> None:
        if isinstance(outcome, BrokerError):
            fail(request, outcome.code)
        else:
            _answer(request, ErrorCode.NONE, states, outcome)

    command = LeaderAndIsr(
        control_header(body),
        getattr(body, "type", None) == FULL,
        states,
        _leaders(body, context.config.inter_broker_listener_name),
    )
    controlled(context).on_leader_and_isr(command, request.guard(on_done))


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error for the whole and for every partition."""
    states = partition_states(request.body())
    errors = same_for_all((state.replica for state in states), code)
    _answer(request, code, states, errors)


def _answer(
    request: Request, code: ErrorCode, states: Sequence[PartitionState], errors: ReplicaErrors
) -> None:
    if request.api_version < TOPIC_IDS_FROM:
        request.answer(error_code=code, partition_errors=error_fields(errors))
        return
    topic_ids = {state.topic: state.topic_id for state in states}
    by_topic: dict[UUID, dict[TopicPartition, ErrorCode]] = {}
    for replica, error in errors.items():
        by_topic.setdefault(topic_ids[replica.topic], {})[replica] = error
    topics = (
        {"topic_id": topic_id, "partition_errors": error_fields(its_errors)}
        for topic_id, its_errors in by_topic.items()
    )
    request.answer(error_code=code, topics=topics)


def _leaders(body: Any, listener_name: str) -> list[BrokerRegistration]:
    """The leaders with their inter-broker end points: the request has no others."""
    return [
        BrokerRegistration(
            leader.broker_id,
            (EndPoint(listener_name, listener_name, leader.host_name, leader.port),),
            None,
            NO_EPOCH,
        )
        for leader in body.live_leaders
    ]
