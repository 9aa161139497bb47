"""AddPartitionsToTxn (24), versions 0 to 5: a producer is about to write to partitions.

Before version 4 a producer asks for one transaction. From 4 on brokers ask for many at once, and
may only want to verify that partitions belong to a transaction. If a partition does not exist, no
other of its transaction is added: those are OPERATION_NOT_ATTEMPTED. Partitions are looked up and
answered in slices, but those of a transaction are added together.

Version notes: 2 brings PRODUCER_FENCED, 3 is flexible, 5 says that the producer speaks version 2
of transactions.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final

from odradek.coordinator.transactions.requests import AddPartitionsRequest, ProducerIdAndEpoch
from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.long_requests import SLICE_ENTRIES, do_in_slices
from odradek.handlers.request import Request
from odradek.handlers.transactions.transaction_errors import as_known
from odradek.metadata.image import MetadataImage
from odradek.model import TopicPartition

PRODUCER_FENCED_VERSION: Final = 2
BATCH_VERSION: Final = 4
TRANSACTION_V2_VERSION: Final = 5


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when every transaction has an outcome."""
    _look_up(context, request, ())


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every partition with an error."""
    wishes = _wishes(request)
    _send(request, wishes, [_Outcome(code) for _ in wishes])


def refuse_topics(context: HandlerContext, request: Request, denied: Collection[str]) -> None:
    """Adds nothing, because the producer may not write to these topics; the others are answered as
    if one topic did not exist."""
    _look_up(context, request, denied)


def _look_up(context: HandlerContext, request: Request, denied: Collection[str]) -> None:
    wishes: list[_Wish] = []

    def carry_out(_is_long: bool) -> None:
        answer = _Answer(request, wishes)

        def carry_out_one(index: int) -> None:
            take = request.guard(lambda outcome: answer.take(index, outcome))
            _carry_out(context, wishes[index], len(denied) > 0, take)

        do_in_slices(request, range(len(wishes)), carry_out_one, answer.send_if_empty)

    steps = _look_up_all(request, context.metadata.image, denied, wishes)
    request.in_slices(steps, carry_out)


class _Outcome:
    """The code of a transaction's partitions, except for the `others`, which have their own."""

    def __init__(
        self, code: ErrorCode, others: dict[TopicPartition, ErrorCode] | None = None
    ) -> None:
        self._code = code
        self._others = others

    def code_of(self, partition: TopicPartition) -> ErrorCode:
        """Returns the code of a partition."""
        return self._code if self._others is None else self._others.get(partition, self._code)


class _Wish:
    """One transaction of a request; `wrong` has the partitions that cannot be added."""

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
        self.topics: list[tuple[str, Sequence[int]]] = [
            (topic.name, topic.partitions) for topic in topics
        ]
        self.partitions: dict[TopicPartition, None] = {}
        self.wrong: dict[TopicPartition, ErrorCode] = {}
        self.transaction_version = 2 if version >= TRANSACTION_V2_VERSION else 0

    def look_up(self, image: MetadataImage, name: str, indexes: Sequence[int]) -> None:
        """Adds partitions of a topic."""
        for index in indexes:
            partition = TopicPartition(name, index)
            self.partitions[partition] = None
            if image.partition(partition) is None:
                self.wrong[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def deny(self, name: str, indexes: Sequence[int]) -> None:
        """Marks partitions that the producer may not write to."""
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        self.wrong |= dict.fromkeys([TopicPartition(name, index) for index in indexes], denied)


def _wishes(request: Request) -> list[_Wish]:
    return [_Wish(each, request.api_version) for each in _transactions(request)]


def _transactions(request: Request) -> Sequence[Any]:
    body = request.body()
    return body.transactions if request.api_version >= BATCH_VERSION else [body]


def _look_up_all(
    request: Request, image: MetadataImage, denied: Collection[str], wishes: list[_Wish]
) -> Iterator[int]:
    """Adds the transactions and looks up their partitions, some of a topic at each step."""
    for each in _transactions(request):
        wish = _Wish(each, request.api_version)
        wishes.append(wish)
        yield 1
        for name, indexes in wish.topics:
            for some in _slices(indexes):
                if name in denied:
                    wish.deny(name, some)
                else:
                    wish.look_up(image, name, some)
                yield len(some)


def _slices(indexes: Sequence[int]) -> list[Sequence[int]]:
    """Cuts the partitions of a topic into those of single steps."""
    if len(indexes) <= SLICE_ENTRIES:
        return [indexes]
    starts = range(0, len(indexes), SLICE_ENTRIES)
    return [indexes[start : start + SLICE_ENTRIES] for start in starts]


def _carry_out(
    context: HandlerContext, wish: _Wish, is_denied: bool, on_done: Callable[[_Outcome], None]
) -> None:
    if wish.wrong or is_denied:
        on_done(_Outcome(ErrorCode.OPERATION_NOT_ATTEMPTED, wish.wrong))
        return
    partitions = list(wish.partitions)
    if wish.verify_only:
        verified = context.transactions.verify_partitions(
            wish.transactional_id, wish.producer, partitions
        )
        on_done(_Outcome(ErrorCode.NONE, dict(zip(partitions, verified, strict=True))))
        return
    context.transactions.add_partitions(
        AddPartitionsRequest(
            wish.transactional_id, wish.producer, partitions, wish.transaction_version
        ),
        lambda code: on_done(_Outcome(code)),
    )


class _Answer:
    """Gathers the outcomes of a request's transactions."""

    def __init__(self, request: Request, wishes: list[_Wish]) -> None:
        self._request = request
        self._wishes = wishes
        self._outcomes = [_Outcome(ErrorCode.NONE) for _ in wishes]
        self._missing = len(wishes)

    def take(self, index: int, outcome: _Outcome) -> None:
        """Takes the outcome of a transaction; the last one sends the answer."""
        self._outcomes[index] = outcome
        self._missing -= 1
        if self._missing == 0:
            _send(self._request, self._wishes, self._outcomes)

    def send_if_empty(self) -> None:
        """Answers a request without transactions."""
        if not self._wishes:
            _send(self._request, self._wishes, self._outcomes)


def _send(request: Request, wishes: list[_Wish], outcomes: list[_Outcome]) -> None:
    version = request.api_version
    topics: list[list[dict[str, object]]] = [[] for _ in wishes]
    steps = _make_all(wishes, outcomes, version, topics)
    if version < BATCH_VERSION:
        request.answer_when_made(steps, results_by_topic_v3_and_below=topics[0])
        return
    results = [
        {"transactional_id": wish.transactional_id, "topic_results": made}
        for wish, made in zip(wishes, topics, strict=True)
    ]
    request.answer_when_made(steps, results_by_transaction=results)


def _make_all(
    wishes: list[_Wish],
    outcomes: list[_Outcome],
    version: int,
    topics: list[list[dict[str, object]]],
) -> Iterator[int]:
    """Makes the results, of some partitions of a topic at each step."""
    for wish, outcome, made in zip(wishes, outcomes, topics, strict=True):
        for name, indexes in wish.topics:
            results: list[dict[str, object]] = []
            made.append({"name": name, "results_by_partition": results})
            for some in _slices(indexes):
                results.extend(_results(name, some, outcome, version))
                yield len(some)


def _results(
    name: str, indexes: Sequence[int], outcome: _Outcome, version: int
) -> list[dict[str, object]]:
    return [
        {
            "partition_index": index,
            "partition_error_code": as_known(
                outcome.code_of(TopicPartition(name, index)), version, PRODUCER_FENCED_VERSION
            ),
        }
        for index in indexes
    ]
