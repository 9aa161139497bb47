"""AddOffsetsToTxn (25), versions 0 to 4: a transaction is about to commit offsets of a group.

The partition of `__consumer_offsets` that holds the group's offsets becomes part of the
transaction, like one of the producer's own. Producers that speak version 2 of transactions do not
ask: their TxnOffsetCommit adds it.

Version notes: 2 brings PRODUCER_FENCED, 3 is flexible.
"""

from typing import Final

from odradek.coordinator.runtime.partitioning import partition_for
from odradek.coordinator.transactions.requests import AddPartitionsRequest, ProducerIdAndEpoch
from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.handlers.transactions.transaction_errors import as_known
from odradek.model import GROUP_METADATA_TOPIC, TopicPartition

PRODUCER_FENCED_VERSION: Final = 2


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the partition is added."""
    body = request.body()
    producer = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
    partitions = [offsets_partition(context, body.group_id)]
    context.transactions.add_partitions(
        AddPartitionsRequest(body.transactional_id, producer, partitions, transaction_version=0),
        request.guard(lambda code: fail(request, code)),
    )


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with a code, which may be NONE."""
    request.answer(error_code=as_known(code, request.api_version, PRODUCER_FENCED_VERSION))


def offsets_partition(context: HandlerContext, group_id: str) -> TopicPartition:
    """The partition that has, or will have, a group's offsets."""
    topic = context.metadata.image.topic(GROUP_METADATA_TOPIC)
    if topic is None:
        count = int(context.config["offsets.topic.num.partitions"])
    else:
        count = len(topic.partitions)
    return TopicPartition(GROUP_METADATA_TOPIC, partition_for(group_id, count))
