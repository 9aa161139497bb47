"""TxnOffsetCommit (28), versions 0 to 5: offsets of a group that become valid when a transaction
commits.

The partition of `__consumer_offsets` that holds the group must be part of the transaction: by
AddOffsetsToTxn, or from version 5 on by this request itself.

Partitions are looked up and answered in slices, but committed together.

Version notes: 2 brings leader epochs, 3 is flexible and names the member that commits, 4 knows
TRANSACTION_ABORTABLE, 5 says that the producer speaks version 2 of transactions.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from odradek.coordinator.offsets.requests import (
    CommittedPartition,
    CommittedTopic,
    OffsetCommitRequest,
    TopicErrors,
)
from odradek.coordinator.runtime.batches import Producer
from odradek.coordinator.transactions.requests import ProducerIdAndEpoch
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.handlers.topic_names import is_same_topic
from odradek.handlers.transactions.add_offsets_to_txn import offsets_partition
from odradek.handlers.transactions.transaction_verification import Codes, Write, ability
from odradek.metadata.image import MetadataImage
from odradek.model import NO_LEADER_EPOCH, NO_SEQUENCE

LOAD_IN_PROGRESS_VERSION: Final = 2
ABORTABLE_VERSION: Final = 4
IMPLICIT_ADD_VERSION: Final = 5
_NO_RETENTION: Final = -1
_NO_GENERATION: Final = -1
# A producer does not expect it of its group coordinator: it would look for another one, or give up.
_VERIFICATION_ERRORS: Final = {ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the offsets are in the log."""
    known: list[CommittedTopic] = []
    steps = _look_up(context.metadata.image, request.body().topics, known)
    request.in_slices(steps, lambda _is_long: _verify(context, request, known))


def _verify(context: HandlerContext, request: Request, known: list[CommittedTopic]) -> None:
    """Commits once the transaction is known to have the group's partition."""
    body = request.body()
    if not any(topic.partitions for topic in known):
        _answer(request, body, {})
        return
    if not body.group_id:
        _refuse(request, body, known, ErrorCode.INVALID_GROUP_ID)
        return
    partition = offsets_partition(context, body.group_id)
    write = Write(partition, ProducerIdAndEpoch(body.producer_id, body.producer_epoch), NO_SEQUENCE)

    def on_verified(refused: Codes) -> None:
        code = refused.get(partition)
        if code is None:
            _commit(context, request, body, _not_deleted(context, known))
        else:
            _refuse(request, body, known, _VERIFICATION_ERRORS.get(code, code))

    context.verifier.verify(
        body.transactional_id,
        [write],
        ability(request.api_version, ABORTABLE_VERSION, IMPLICIT_ADD_VERSION),
        request.guard(on_verified),
    )


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every partition with an error."""
    body = request.body()
    codes = {
        (topic.name, each.partition_index): code
        for topic in body.topics
        for each in topic.partitions
    }
    _answer(request, body, codes)


def _look_up(
    image: MetadataImage, topics: Iterable[Any], known: list[CommittedTopic]
) -> Iterator[int]:
    """Adds the offsets of partitions that exist, one at each step."""
    for topic in topics:
        found = image.topic(topic.name)
        yield 1
        if found is None:
            continue
        partitions: list[CommittedPartition] = []
        known.append(CommittedTopic(topic.name, found.topic_id, partitions))
        for each in topic.partitions:
            if 0 <= each.partition_index < len(found.partitions):
                partitions.append(_offset(each))
            yield 1


def _not_deleted(context: HandlerContext, known: list[CommittedTopic]) -> list[CommittedTopic]:
    """Leaves out topics that were deleted since they were looked up: their offsets have been
    removed, and a later topic of the same name would begin with these."""
    image = context.metadata.image
    return [each for each in known if is_same_topic(image, each.name, each.topic_id)]


def _offset(data: Any) -> CommittedPartition:
    return CommittedPartition(
        data.partition_index,
        data.committed_offset,
        getattr(data, "committed_leader_epoch", NO_LEADER_EPOCH),
        data.committed_metadata or "",
    )


def _commit(
    context: HandlerContext, request: Request, body: Any, known: list[CommittedTopic]
) -> None:
    def on_committed(outcome: TopicErrors | BrokerError) -> None:
        if isinstance(outcome, BrokerError):
            _refuse(request, body, known, outcome.code)
            return
        codes = {(name, index): code for name, each in outcome for index, code in each}
        _answer(request, body, codes)

    context.groups.commit_offsets_in_transaction(
        OffsetCommitRequest(
            body.group_id,
            getattr(body, "member_id", ""),
            getattr(body, "group_instance_id", None),
            getattr(body, "generation_id", _NO_GENERATION),
            _NO_RETENTION,
            known,
            request.api_version,
            is_transactional=True,
        ),
        Producer(body.producer_id, body.producer_epoch),
        request.guard(on_committed),
    )


def _refuse(request: Request, body: Any, known: list[CommittedTopic], code: ErrorCode) -> None:
    """Answers the partitions that exist with an error."""
    codes = {(topic.name, each.partition): code for topic in known for each in topic.partitions}
    _answer(request, body, codes)


def _answer(request: Request, body: Any, codes: dict[tuple[str, int], ErrorCode]) -> None:
    """Answers; partitions without an outcome do not exist."""

    def outcome(name: str, index: int) -> dict[str, object]:
        code = codes.get((name, index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return {"partition_index": index, "error_code": _response_code(code, request.api_version)}

    def outcomes(topic: Any) -> Iterator[dict[str, object]]:
        return (outcome(topic.name, each.partition_index) for each in topic.partitions)

    request.answer(
        topics=({"name": topic.name, "partitions": outcomes(topic)} for topic in body.topics)
    )


def _response_code(code: ErrorCode, version: int) -> ErrorCode:
    """The code for a version: producers of the first ones took COORDINATOR_LOAD_IN_PROGRESS for
    fatal."""
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOAD_IN_PROGRESS_VERSION:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code
