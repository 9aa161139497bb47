"""StopReplica (5), versions 0 to 4: the controller takes replicas away from this broker.

Behaviour: an earlier controller or broker epoch is refused as a whole (STALE_CONTROLLER_EPOCH,
STALE_BROKER_EPOCH), without partitions; else each replica has its own result.

Version notes: 1 has the broker's epoch; 3 has for each replica a flag that deletes its log, and a
leader epoch (an earlier one is FENCED_LEADER_EPOCH).
"""

from collections.abc import Iterator
from typing import Any, Final

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.replicas.control_values import (
    control_header,
    controlled,
    error_fields,
    is_late,
)
from odradek.handlers.request import Request
from odradek.metadata.control import ReplicaErrors, StoppedReplica, StopReplica
from odradek.model import TopicPartition

UNKNOWN_EPOCH: Final = -1


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the replicas are given up."""
    if is_late(context, request):
        return
    body = request.body()

    def on_done(outcome: ReplicaErrors | BrokerError) -> None:
        if isinstance(outcome, BrokerError):
            fail(request, outcome.code)
        else:
            request.answer(partition_errors=error_fields(outcome))

    command = StopReplica(control_header(body), list(_replicas(body)))
    controlled(context).on_stop_replica(command, request.guard(on_done))


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error for the whole."""
    request.answer(error_code=code)


def _replicas(body: Any) -> Iterator[StoppedReplica]:
    """The replicas of any version."""
    for each in getattr(body, "ungrouped_partitions", ()):
        replica = TopicPartition(each.topic_name, each.partition_index)
        yield StoppedReplica(replica, UNKNOWN_EPOCH, body.delete_partitions)
    for topic in getattr(body, "topics", ()):
        for index in topic.partition_indexes:
            replica = TopicPartition(topic.name, index)
            yield StoppedReplica(replica, UNKNOWN_EPOCH, body.delete_partitions)
    for topic in getattr(body, "topic_states", ()):
        for state in topic.partition_states:
            replica = TopicPartition(topic.topic_name, state.partition_index)
            yield StoppedReplica(replica, state.leader_epoch, state.delete_partition)
