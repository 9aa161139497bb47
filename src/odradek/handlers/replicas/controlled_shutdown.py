"""ControlledShutdown (7), versions 0 to 3: a broker asks the controller to lead without it.

Behaviour: answered with the partitions that the broker still leads, which it may ask for again. A
broker that is not the controller answers STALE_CONTROLLER_EPOCH, as Kafka does; an earlier
registration gets STALE_BROKER_EPOCH.

Version notes: 0 alone of all requests has a header without a client id; 2 has the broker's epoch.
"""

from collections.abc import Sequence

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.replicas.control_values import NO_EPOCH, controlled
from odradek.handlers.request import Request
from odradek.model import TopicPartition


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when other brokers lead."""
    body = request.body()

    def on_done(outcome: Sequence[TopicPartition] | BrokerError) -> None:
        if isinstance(outcome, BrokerError):
            fail(request, outcome.code)
        else:
            request.answer(
                remaining_partitions=[
                    {"topic_name": name, "partition_index": index} for name, index in outcome
                ]
            )

    broker_epoch = getattr(body, "broker_epoch", NO_EPOCH)
    controlled(context).on_controlled_shutdown(body.broker_id, broker_epoch, request.guard(on_done))


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error for the whole."""
    if code is ErrorCode.NOT_CONTROLLER:
        code = ErrorCode.STALE_CONTROLLER_EPOCH
    request.answer(error_code=code)
