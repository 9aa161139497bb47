"""ListOffsets, versions 0 to 11: offsets by time, and by name (earliest, latest, ...).

Version notes: 0 answers with a list of segment starts, newest first; 1 with one offset and its
timestamp. 4 adds leader epochs; before 5 OFFSET_NOT_AVAILABLE is sent as LEADER_NOT_AVAILABLE. 7
adds the record of the largest timestamp (-3), 8 the local start (-4), 9 the last tiered offset
(-5), 11 the earliest pending upload (-6).

A reader may name, in our own tagged fields, the offset from which on records are to be kept for a
query (see `storage/leases.py`). Any replica keeps its records, also one that does not lead and
answers so.
"""

from collections.abc import Iterator
from typing import Final

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.api import Concerns
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.model import NO_LEADER_EPOCH, TopicPartition
from odradek.protocol.direct.list_offsets import (
    NO_LEASE,
    RENEWED_LEASE,
    LeaseTerms,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    decode_list_offsets_request,
    encode_list_offsets_response,
)
from odradek.replication.fetch import (
    CONSUMER_REPLICA_ID,
    DEBUGGING_REPLICA_ID,
    ISOLATION_HIGH_WATERMARK,
    ISOLATION_LOG_END,
    ISOLATION_TXN_COMMITTED,
    READ_COMMITTED,
)
from odradek.replication.offset_lookup import find_offset, find_segment_starts
from odradek.storage.leases import Lease, is_lease_id, release_lease, renew_lease, write_lease

OFFSET_NOT_AVAILABLE_VERSION: Final = 5
ISOLATION_LEVELS: Final = (0, READ_COMMITTED)

# The first version that gives a meaning to a negative timestamp.
_NAMED_TIMESTAMPS: Final[dict[int, int]] = {-1: 0, -2: 0, -3: 7, -4: 8, -5: 9, -6: 11}


def handle(context: HandlerContext, request: Request) -> None:
    """Answers all partitions together."""
    handle_allowed(context, request, None)


def handle_allowed(context: HandlerContext, request: Request, is_denied: Concerns | None) -> None:
    """Answers all partitions together, with an error for those that the caller may not describe."""
    body = request.handled_by = _decode(request)
    if body.isolation_level not in ISOLATION_LEVELS:
        fail(request, ErrorCode.UNKNOWN_SERVER_ERROR)
        return
    response = ListOffsetsResponse([])
    steps = _find_all(context, request, body, is_denied, response.topics)
    request.in_slices(steps, lambda _: _send(request, response))


def _find_all(
    context: HandlerContext,
    request: Request,
    body: ListOffsetsRequest,
    is_denied: Concerns | None,
    topics: list[ListOffsetsTopicResponse],
) -> Iterator[int]:
    """Finds the offsets, of one partition at each step."""
    version = request.api_version
    repeated = _repeated(body) if version > 0 else frozenset()
    isolation = _isolation(body)
    only_leader = body.replica_id != DEBUGGING_REPLICA_ID
    for topic in body.topics:
        partitions: list[ListOffsetsPartitionResponse] = []
        for asked in topic.partitions:
            topic_partition = TopicPartition(topic.name, asked.index)
            try:
                if is_denied is not None and is_denied(topic_partition):
                    raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                if topic_partition in repeated:
                    raise BrokerError(
                        ErrorCode.INVALID_REQUEST, f"{topic_partition} is asked for twice"
                    )
                if body.lease is not None and asked.lease_offset != NO_LEASE:
                    _hold(context, topic_partition, body.lease, asked.lease_offset)
                answer = _answer(context, topic_partition, asked, isolation, only_leader, version)
            except BrokerError as error:
                answer = _refusal(asked.index, error.code, version)
            if answer.error_code != ErrorCode.NONE:
                request.note_error(answer.error_code)
            partitions.append(answer)
            yield 1
        topics.append(ListOffsetsTopicResponse(topic.name, partitions))


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every partition with an error."""
    version = request.api_version
    body = request.handled_by
    if not isinstance(body, ListOffsetsRequest):
        body = _decode(request)  # the frame is still valid: the handler failed before it waited
    topics = [
        ListOffsetsTopicResponse(
            topic.name, [_refusal(asked.index, code, version) for asked in topic.partitions]
        )
        for topic in body.topics
    ]
    _send(request, ListOffsetsResponse(topics))


def _decode(request: Request) -> ListOffsetsRequest:
    return decode_list_offsets_request(
        request.exchange.frame, request.api_version, request.body_position
    )


def _send(request: Request, response: ListOffsetsResponse) -> None:
    response.throttle_time_ms = request.throttle_time_ms
    request.respond(
        [encode_list_offsets_response(response, request.api_version, request.correlation_id)]
    )


def _hold(
    context: HandlerContext, topic_partition: TopicPartition, terms: LeaseTerms, offset: int
) -> None:
    """Takes, renews or releases a lease, before the offset is looked up."""
    if not is_lease_id(terms.lease_id):
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"{terms.lease_id!r} cannot name a lease")
    log = context.replicas.partition(topic_partition).local_log(NO_LEADER_EPOCH, False)
    file_system, now_ms = log.log_directory.file_system, log.log_directory.clock.wall_ms()
    path, expires_ms = log.local.path, now_ms + terms.duration_ms
    try:
        if terms.duration_ms <= 0:
            release_lease(file_system, path, terms.lease_id)
        elif offset == RENEWED_LEASE:
            renew_lease(file_system, path, terms.lease_id, expires_ms, now_ms)
        elif offset >= 0:
            lease = Lease(terms.lease_id, terms.owner, offset, expires_ms)
            write_lease(file_system, path, lease, now_ms)
    except OSError as error:
        raise log.log_directory.storage_error(error, f"leasing {topic_partition}") from error


def _answer(
    context: HandlerContext,
    topic_partition: TopicPartition,
    asked: ListOffsetsPartition,
    isolation: int,
    only_leader: bool,
    version: int,
) -> ListOffsetsPartitionResponse:
    timestamp = asked.timestamp
    if timestamp < 0 and version < _NAMED_TIMESTAMPS.get(timestamp, version + 1):
        raise BrokerError(
            ErrorCode.UNSUPPORTED_VERSION, f"version {version} knows no timestamp {timestamp}"
        )
    partition = context.replicas.partition(topic_partition)
    if version == 0:
        offsets = find_segment_starts(
            partition, timestamp, asked.max_num_offsets, isolation, only_leader
        )
        return ListOffsetsPartitionResponse(asked.index, ErrorCode.NONE, old_style_offsets=offsets)
    found = find_offset(partition, timestamp, isolation, asked.current_leader_epoch, only_leader)
    return ListOffsetsPartitionResponse(
        asked.index, ErrorCode.NONE, found.timestamp, found.offset, found.leader_epoch
    )


def _refusal(index: int, code: ErrorCode, version: int) -> ListOffsetsPartitionResponse:
    if code == ErrorCode.OFFSET_NOT_AVAILABLE and version < OFFSET_NOT_AVAILABLE_VERSION:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return ListOffsetsPartitionResponse(index, code, old_style_offsets=[])


def _isolation(body: ListOffsetsRequest) -> int:
    if body.replica_id != CONSUMER_REPLICA_ID:
        return ISOLATION_LOG_END
    if body.isolation_level == READ_COMMITTED:
        return ISOLATION_TXN_COMMITTED
    return ISOLATION_HIGH_WATERMARK


def _repeated(body: ListOffsetsRequest) -> frozenset[TopicPartition]:
    """Partitions that occur more than once: a response could not tell them apart."""
    seen: set[TopicPartition] = set()
    repeated: set[TopicPartition] = set()
    for topic in body.topics:
        for asked in topic.partitions:
            topic_partition = TopicPartition(topic.name, asked.index)
            if topic_partition in seen:
                repeated.add(topic_partition)
            seen.add(topic_partition)
    return frozenset(repeated)
