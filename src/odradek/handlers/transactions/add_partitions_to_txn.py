"""AddPartitionsToTxn (24), versions 0 to 5: a producer is about to write to partitions.

Before version 4 a producer asks for one transaction. From 4 on brokers ask for many at once, and
may only want to verify that partitions belong to a transaction. A partition that does not exist
keeps all others of its transaction from being added: those are OPERATION_NOT_ATTEMPTED.

Version notes: 2 brings PRODUCER_FENCED, 3 is flexible, 5 says that the producer speaks version 2
of transactions.
"""

from collections.abc import Callable, Collection
from typing import Any, Final

from odradek.coordinator.transactions.requests import AddPartitionsRequest, ProducerIdAndEpoch
from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.handlers.transactions.transaction_errors import as_known
from odradek.model import TopicPartition

PRODUCER_FENCED_VERSION: Final = 2
BATCH_VERSION: Final = 4
TRANSACTION_V2_VERSION: Final = 5

_Codes = dict[TopicPartition, ErrorCode]


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when every transaction has an outcome."""
    wishes = _wishes(request)
    answer = _Answer(request, wishes)
    for index, wish in enumerate(wishes):
        _carry_out(context, wish, request.guard(lambda codes, at=index: answer.take(at, codes)))
    answer.send_if_empty()


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every partition with an error."""
    wishes = _wishes(request)
    codes = [dict.fromkeys(wish.partitions, code) for wish in wishes]
    _send(request, wishes, codes)


def refuse_topics(context: HandlerContext, request: Request, denied: Collection[str]) -> None:
    """Adds nothing, for these topics the producer may not write to; of the others it is told as
    much as if one of them did not exist."""
    image = context.metadata.image
    wishes = _wishes(request)
    codes = [
        {
            each: ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if each.topic in denied
            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if image.partition(each) is None
            else ErrorCode.OPERATION_NOT_ATTEMPTED
            for each in wish.partitions
        }
        for wish in wishes
    ]
    _send(request, wishes, codes)


class _Wish:
    """One transaction of a request."""

    def __init__(self, data: Any, version: int) -> None:
        if version >= BATCH_VERSION:
            self.transactional_id: str = data.transactional_id
            self.producer = ProducerIdAndEpoch(data.producer_id, data.producer_epoch)
            self.verify_only: bool = data.verify_only
            topics = data.topics
        else:
            self.transactional_id = data.v3_and_below_transactional_id
            self.producer = ProducerIdAndEpoch(
                data.v3_and_below_producer_id, data.v3_and_below_producer_epoch
            )
            self.verify_only = False
            topics = data.v3_and_below_topics
        self.topics = [(topic.name, list(topic.partitions)) for topic in topics]
        self.partitions = list(
            dict.fromkeys(
                TopicPartition(name, partition)
                for name, indexes in self.topics
                for partition in indexes
            )
        )
        self.transaction_version = 2 if version >= TRANSACTION_V2_VERSION else 0


def _wishes(request: Request) -> list[_Wish]:
    body = request.body()
    version = request.api_version
    transactions = body.transactions if version >= BATCH_VERSION else [body]
    return [_Wish(each, version) for each in transactions]


def _carry_out(context: HandlerContext, wish: _Wish, on_done: Callable[[_Codes], None]) -> None:
    image = context.metadata.image
    unknown = [each for each in wish.partitions if image.partition(each) is None]
    if unknown:
        codes = dict.fromkeys(wish.partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
        on_done(codes | dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        return
    if wish.verify_only:
        verified = context.transactions.verify_partitions(
            wish.transactional_id, wish.producer, wish.partitions
        )
        on_done(dict(zip(wish.partitions, verified, strict=True)))
        return
    context.transactions.add_partitions(
        AddPartitionsRequest(
            wish.transactional_id, wish.producer, wish.partitions, wish.transaction_version
        ),
        lambda code: on_done(dict.fromkeys(wish.partitions, code)),
    )


class _Answer:
    """Gathers the outcomes of a request's transactions."""

    def __init__(self, request: Request, wishes: list[_Wish]) -> None:
        self._request = request
        self._wishes = wishes
        self._codes: list[_Codes] = [{} for _ in wishes]
        self._missing = len(wishes)

    def take(self, index: int, codes: _Codes) -> None:
        """The outcome of one; the last one sends the answer."""
        self._codes[index] = codes
        self._missing -= 1
        if self._missing == 0:
            _send(self._request, self._wishes, self._codes)

    def send_if_empty(self) -> None:
        """A request without transactions has its answer already."""
        if not self._wishes:
            _send(self._request, self._wishes, self._codes)


def _send(request: Request, wishes: list[_Wish], codes: list[_Codes]) -> None:
    version = request.api_version
    topics = [
        [_topic(name, indexes, outcome, version) for name, indexes in wish.topics]
        for wish, outcome in zip(wishes, codes, strict=True)
    ]
    if version < BATCH_VERSION:
        request.answer(results_by_topic_v3_and_below=topics[0])
        return
    request.answer(
        results_by_transaction=[
            {"transactional_id": wish.transactional_id, "topic_results": results}
            for wish, results in zip(wishes, topics, strict=True)
        ]
    )


def _topic(name: str, indexes: list[int], codes: _Codes, version: int) -> dict[str, object]:
    return {
        "name": name,
        "results_by_partition": [
            {
                "partition_index": index,
                "partition_error_code": as_known(
                    codes[TopicPartition(name, index)], version, PRODUCER_FENCED_VERSION
                ),
            }
            for index in indexes
        ],
    }
