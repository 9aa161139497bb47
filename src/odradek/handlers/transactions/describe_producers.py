"""DescribeProducers, version 0: the producers in the log of a replica here, also of a follower.

Operators use it to find a hanging transaction: per producer its epoch, its last sequence and time,
and the first offset of its open transaction, or -1.
"""

from odradek.controller.topics.names import check_topic_name
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.model import NO_LEADER_EPOCH, TopicPartition
from odradek.storage.producers.producer_state import ProducerState


def handle(context: HandlerContext, request: Request) -> None:
    """Answers every partition at once."""
    topics = (
        {
            "name": topic.name,
            "partitions": (
                _describe(context, TopicPartition(topic.name, index))
                for index in topic.partition_indexes
            ),
        }
        for topic in request.body().topics
    )
    request.answer(topics=topics)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every partition with an error."""
    topics = [
        {
            "name": topic.name,
            "partitions": [_refusal(index, BrokerError(code)) for index in topic.partition_indexes],
        }
        for topic in request.body().topics
    ]
    request.answer(topics=topics)


def _describe(context: HandlerContext, topic_partition: TopicPartition) -> dict[str, object]:
    try:
        check_topic_name(topic_partition.topic)
        log = context.replicas.partition(topic_partition).local_log(NO_LEADER_EPOCH, False)
    except BrokerError as error:
        return _refusal(topic_partition.partition, error)
    return {
        "partition_index": topic_partition.partition,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "active_producers": [_producer(state) for state in log.producers.active()],
    }


def _producer(state: ProducerState) -> dict[str, object]:
    return {
        "producer_id": state.producer_id,
        "producer_epoch": state.epoch,
        "last_sequence": state.last_sequence,
        "last_timestamp": state.last_timestamp,
        "coordinator_epoch": state.coordinator_epoch,
        "current_txn_start_offset": state.txn_first_offset,
    }


def _refusal(index: int, error: BrokerError) -> dict[str, object]:
    return {
        "partition_index": index,
        "error_code": error.code,
        "error_message": error.message,
        "active_producers": [],
    }
