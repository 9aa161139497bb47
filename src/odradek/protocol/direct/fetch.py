"""Fetch, versions 0 to 18, in both directions.

A response is a list of buffers: the log's records are passed on unchanged, with the bytes between
them as `bytes`, so the network can write them without copying.

Version notes: 1 adds the throttle time, 3 the size limit of the whole response, 4 the
isolation level, the last stable offset and the aborted transactions, 5 the log start offset,
7 fetch sessions, 9 the leader epoch, 11 racks, 12 is flexible and adds the last fetched epoch
and diverging epochs, 13 names topics by id, 15 moves the replica id to a tag, 16 has the addresses
of current leaders, 17 the follower's directory, 18 the follower's high watermark.
"""

from struct import Struct
from typing import Final
from uuid import UUID

from odradek.protocol.primitives import (
    INT32_MAX,
    NO_TAGS,
    Buffer,
    NodeEndpoint,
    Reader,
    Writer,
    decode_node_endpoints,
    encode_node_endpoints,
)

LOG_START_OFFSET_VERSION: Final = 5
SESSION_VERSION: Final = 7
LEADER_EPOCH_VERSION: Final = 9
RACK_VERSION: Final = 11
FLEXIBLE_VERSION: Final = 12
TOPIC_ID_VERSION: Final = 13
REPLICA_STATE_VERSION: Final = 15
NODE_ENDPOINTS_VERSION: Final = 16
DIRECTORY_VERSION: Final = 17
HIGH_WATERMARK_VERSION: Final = 18

UNKNOWN_HIGH_WATERMARK: Final = 9223372036854775807

# index, error code, high watermark | + last stable offset | + log start offset
_ANSWER_V0: Final = Struct(">ihq")
_ANSWER_V4: Final = Struct(">ihqq")
_ANSWER_V5: Final = Struct(">ihqqq")
_INT64: Final = Struct(">q")
_INT32_INT32: Final = Struct(">ii")
_INT32_INT64: Final = Struct(">iq")
_INT64_INT32: Final = Struct(">qi")
_INT64_INT64: Final = Struct(">qq")


class FetchPartition:
    """The fetch offset and the limit for one partition."""

    def __init__(
        self,
        index: int,
        fetch_offset: int,
        partition_max_bytes: int,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
        replica_directory_id: UUID | None = None,
        high_watermark: int = UNKNOWN_HIGH_WATERMARK,
    ) -> None:
        self.index = index
        self.fetch_offset = fetch_offset
        self.partition_max_bytes = partition_max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.replica_directory_id = replica_directory_id
        self.high_watermark = high_watermark


class FetchTopic:
    """A topic by name (versions 0-12) or by id (from 13); the other one is `None`."""

    def __init__(
        self, name: str | None, topic_id: UUID | None, partitions: list[FetchPartition]
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions


class ForgottenTopic:
    """Partitions to drop from a fetch session; the topic is named as in `FetchTopic`."""

    def __init__(self, name: str | None, topic_id: UUID | None, partitions: list[int]) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions


class FetchRequest:
    """A whole Fetch request; `session_epoch` -1 asks for no session."""

    def __init__(
        self,
        replica_id: int,
        max_wait_ms: int,
        min_bytes: int,
        topics: list[FetchTopic],
        max_bytes: int = INT32_MAX,
        isolation_level: int = 0,
        session_id: int = 0,
        session_epoch: int = -1,
        forgotten: list[ForgottenTopic] | None = None,
        rack_id: str = "",
        cluster_id: str | None = None,
        replica_epoch: int = -1,
    ) -> None:
        self.replica_id = replica_id
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.topics = topics
        self.max_bytes = max_bytes
        self.isolation_level = isolation_level
        self.session_id = session_id
        self.session_epoch = session_epoch
        self.forgotten: list[ForgottenTopic] = forgotten if forgotten is not None else []
        self.rack_id = rack_id
        self.cluster_id = cluster_id
        self.replica_epoch = replica_epoch


class FetchPartitionResponse:
    """The part of a fetch response about one partition.

    `records` are buffers that follow one another; none means no records. `aborted` is
    (producer id, first offset) pairs, or `None` for a reader of uncommitted records.
    """

    def __init__(
        self,
        index: int,
        error_code: int,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        aborted: list[tuple[int, int]] | None = None,
        preferred_read_replica: int = -1,
        records: list[Buffer] | None = None,
        diverging_epoch: int = -1,
        diverging_end_offset: int = -1,
        current_leader_id: int = -1,
        current_leader_epoch: int = -1,
        snapshot_end_offset: int = -1,
        snapshot_epoch: int = -1,
    ) -> None:
        self.index = index
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.aborted = aborted
        self.preferred_read_replica = preferred_read_replica
        self.records: list[Buffer] = records if records is not None else []
        self.diverging_epoch = diverging_epoch
        self.diverging_end_offset = diverging_end_offset
        self.current_leader_id = current_leader_id
        self.current_leader_epoch = current_leader_epoch
        self.snapshot_end_offset = snapshot_end_offset
        self.snapshot_epoch = snapshot_epoch


class FetchTopicResponse:
    """The answers for a topic, named as the request named it."""

    def __init__(
        self,
        name: str | None,
        topic_id: UUID | None,
        partitions: list[FetchPartitionResponse],
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions


class FetchResponse:
    """A whole Fetch response."""

    def __init__(
        self,
        topics: list[FetchTopicResponse],
        error_code: int = 0,
        session_id: int = 0,
        throttle_time_ms: int = 0,
        node_endpoints: list[NodeEndpoint] | None = None,
    ) -> None:
        self.topics = topics
        self.error_code = error_code
        self.session_id = session_id
        self.throttle_time_ms = throttle_time_ms
        self.node_endpoints: list[NodeEndpoint] = (
            node_endpoints if node_endpoints is not None else []
        )


def decode_fetch_request(frame: memoryview, version: int, position: int) -> FetchRequest:
    """Reads the body of a request, which begins at `position`.

    Raises:
        ProtocolError: the body is malformed.
    """
    reader = Reader(frame, position)
    flexible = version >= FLEXIBLE_VERSION
    replica_id = -1 if version >= REPLICA_STATE_VERSION else reader.int32()
    max_wait_ms = reader.int32()
    min_bytes = reader.int32()
    max_bytes = reader.int32() if version >= 3 else INT32_MAX
    isolation_level = reader.int8() if version >= 4 else 0
    session_id = reader.int32() if version >= SESSION_VERSION else 0
    session_epoch = reader.int32() if version >= SESSION_VERSION else -1
    topics: list[FetchTopic] = []
    count = reader.array_length(flexible, 2)
    while count > 0:
        topics.append(_decode_topic(reader, version, flexible))
        count -= 1
    request = FetchRequest(
        replica_id,
        max_wait_ms,
        min_bytes,
        topics,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
    )
    if version >= SESSION_VERSION:
        request.forgotten = _decode_forgotten(reader, version, flexible)
    if version >= RACK_VERSION:
        request.rack_id = reader.string(flexible)
    if flexible:
        _decode_request_tags(reader, request, version)
    return request


def _decode_topic(reader: Reader, version: int, flexible: bool) -> FetchTopic:
    name: str | None = None
    topic_id: UUID | None = None
    if version >= TOPIC_ID_VERSION:
        topic_id = reader.uuid()
    else:
        name = reader.string(flexible)
    partitions: list[FetchPartition] = []
    count = reader.array_length(flexible, 16)
    while count > 0:
        partitions.append(_decode_partition(reader, version, flexible))
        count -= 1
    if flexible:
        reader.skip_tags()
    return FetchTopic(name, topic_id, partitions)


def _decode_partition(reader: Reader, version: int, flexible: bool) -> FetchPartition:
    index = reader.int32()
    current_leader_epoch = reader.int32() if version >= LEADER_EPOCH_VERSION else -1
    fetch_offset = reader.int64()
    last_fetched_epoch = reader.int32() if flexible else -1
    log_start_offset = reader.int64() if version >= LOG_START_OFFSET_VERSION else -1
    partition = FetchPartition(
        index,
        fetch_offset,
        reader.int32(),
        current_leader_epoch,
        last_fetched_epoch,
        log_start_offset,
    )
    if flexible:
        _decode_partition_tags(reader, partition, version)
    return partition


def _decode_partition_tags(reader: Reader, partition: FetchPartition, version: int) -> None:
    count = reader.tag_count()
    while count > 0:
        count -= 1
        tag = reader.uvarint()
        if tag == 0 and version >= DIRECTORY_VERSION:
            end = reader.tagged_end()
            partition.replica_directory_id = reader.uuid()
            reader.check_at(end)
        elif tag == 1 and version >= HIGH_WATERMARK_VERSION:
            end = reader.tagged_end()
            partition.high_watermark = reader.int64()
            reader.check_at(end)
        else:
            reader.skip_tagged_field()


def _decode_forgotten(reader: Reader, version: int, flexible: bool) -> list[ForgottenTopic]:
    forgotten: list[ForgottenTopic] = []
    for _ in range(reader.array_length(flexible, 2)):
        by_id = version >= TOPIC_ID_VERSION
        name = None if by_id else reader.string(flexible)
        topic_id = reader.uuid() if by_id else None
        count = reader.array_length(flexible, 4)
        partitions = [reader.int32() for _ in range(count)]
        if flexible:
            reader.skip_tags()
        forgotten.append(ForgottenTopic(name, topic_id, partitions))
    return forgotten


def _decode_request_tags(reader: Reader, request: FetchRequest, version: int) -> None:
    for _ in range(reader.tag_count()):
        tag = reader.uvarint()
        if tag == 0:
            end = reader.tagged_end()
            request.cluster_id = reader.nullable_string(True)
            reader.check_at(end)
        elif tag == 1 and version >= REPLICA_STATE_VERSION:
            end = reader.tagged_end()
            request.replica_id = reader.int32()
            request.replica_epoch = reader.int64()
            reader.skip_tags()
            reader.check_at(end)
        else:
            reader.skip_tagged_field()


def encode_fetch_request(request: FetchRequest, version: int) -> list[Buffer]:
    """Writes the body of a request."""
    writer = Writer()
    flexible = version >= FLEXIBLE_VERSION
    if version < REPLICA_STATE_VERSION:
        writer.int32(request.replica_id)
    writer.int32(request.max_wait_ms)
    writer.int32(request.min_bytes)
    if version >= 3:
        writer.int32(request.max_bytes)
    if version >= 4:
        writer.int8(request.isolation_level)
    if version >= SESSION_VERSION:
        writer.int32(request.session_id)
        writer.int32(request.session_epoch)
    writer.array_length(len(request.topics), flexible)
    for topic in request.topics:
        _write_topic_key(writer, version, topic.name, topic.topic_id)
        writer.array_length(len(topic.partitions), flexible)
        for partition in topic.partitions:
            _write_partition(writer, partition, version)
        writer.no_tags(flexible)
    if version >= SESSION_VERSION:
        _write_forgotten(writer, request.forgotten, version)
    if version >= RACK_VERSION:
        writer.string(request.rack_id, flexible)
    if flexible:
        _write_request_tags(writer, request, version)
    return writer.finish()


def _write_topic_key(writer: Writer, version: int, name: str | None, topic_id: UUID | None) -> None:
    if version >= TOPIC_ID_VERSION:
        writer.uuid(topic_id)
    else:
        writer.string(name or "", version >= FLEXIBLE_VERSION)


def _write_partition(writer: Writer, partition: FetchPartition, version: int) -> None:
    writer.int32(partition.index)
    if version >= LEADER_EPOCH_VERSION:
        writer.int32(partition.current_leader_epoch)
    writer.int64(partition.fetch_offset)
    if version >= FLEXIBLE_VERSION:
        writer.int32(partition.last_fetched_epoch)
    if version >= LOG_START_OFFSET_VERSION:
        writer.int64(partition.log_start_offset)
    writer.int32(partition.partition_max_bytes)
    if version < FLEXIBLE_VERSION:
        return
    directory_id = partition.replica_directory_id if version >= DIRECTORY_VERSION else None
    tells_high_watermark = (
        version >= HIGH_WATERMARK_VERSION and partition.high_watermark != UNKNOWN_HIGH_WATERMARK
    )
    writer.uvarint((directory_id is not None) + tells_high_watermark)
    if directory_id is not None:
        writer.tagged(0, directory_id.bytes)
    if tells_high_watermark:
        writer.tagged(1, _INT64.pack(partition.high_watermark))


def _write_forgotten(writer: Writer, forgotten: list[ForgottenTopic], version: int) -> None:
    flexible = version >= FLEXIBLE_VERSION
    writer.array_length(len(forgotten), flexible)
    for topic in forgotten:
        _write_topic_key(writer, version, topic.name, topic.topic_id)
        writer.array_length(len(topic.partitions), flexible)
        for index in topic.partitions:
            writer.int32(index)
        writer.no_tags(flexible)


def _write_request_tags(writer: Writer, request: FetchRequest, version: int) -> None:
    tells_replica = version >= REPLICA_STATE_VERSION and (
        request.replica_id != -1 or request.replica_epoch != -1
    )
    writer.uvarint((request.cluster_id is not None) + tells_replica)
    if request.cluster_id is not None:
        value = Writer()
        value.string(request.cluster_id, True)
        writer.tagged(0, value.to_bytes())
    if tells_replica:
        writer.tagged(1, _INT32_INT64.pack(request.replica_id, request.replica_epoch) + NO_TAGS)


def encode_fetch_response(
    response: FetchResponse, version: int, correlation_id: int
) -> list[Buffer]:
    """Writes a response with its header; the records themselves are not copied."""
    writer = Writer()
    flexible = version >= FLEXIBLE_VERSION
    writer.int32(correlation_id)
    writer.no_tags(flexible)
    if version >= 1:
        writer.int32(response.throttle_time_ms)
    if version >= SESSION_VERSION:
        writer.int16(response.error_code)
        writer.int32(response.session_id)
    writer.array_length(len(response.topics), flexible)
    for topic in response.topics:
        _write_topic_key(writer, version, topic.name, topic.topic_id)
        writer.array_length(len(topic.partitions), flexible)
        for answer in topic.partitions:
            _write_answer(writer, answer, version)
        writer.no_tags(flexible)
    if version >= NODE_ENDPOINTS_VERSION and response.node_endpoints:
        writer.uvarint(1)
        writer.tagged(0, encode_node_endpoints(response.node_endpoints))
    else:
        writer.no_tags(flexible)
    return writer.finish()


def _write_answer(writer: Writer, answer: FetchPartitionResponse, version: int) -> None:
    flexible = version >= FLEXIBLE_VERSION
    if version >= LOG_START_OFFSET_VERSION:
        writer.raw(
            _ANSWER_V5.pack(
                answer.index,
                answer.error_code,
                answer.high_watermark,
                answer.last_stable_offset,
                answer.log_start_offset,
            )
        )
    elif version == 4:
        writer.raw(
            _ANSWER_V4.pack(
                answer.index,
                answer.error_code,
                answer.high_watermark,
                answer.last_stable_offset,
            )
        )
    else:
        writer.raw(_ANSWER_V0.pack(answer.index, answer.error_code, answer.high_watermark))
    if version >= 4:
        _write_aborted(writer, answer.aborted, flexible)
    if version >= RACK_VERSION:
        writer.int32(answer.preferred_read_replica)
    writer.buffers(answer.records, flexible)
    if flexible:
        _write_answer_tags(writer, answer)


def _write_aborted(writer: Writer, aborted: list[tuple[int, int]] | None, flexible: bool) -> None:
    if aborted is None:
        writer.array_length(-1, flexible)
        return
    writer.array_length(len(aborted), flexible)
    for producer_id, first_offset in aborted:
        writer.raw(_INT64_INT64.pack(producer_id, first_offset))
        writer.no_tags(flexible)


def _write_answer_tags(writer: Writer, answer: FetchPartitionResponse) -> None:
    diverges = answer.diverging_epoch != -1 or answer.diverging_end_offset != -1
    knows_leader = answer.current_leader_id != -1 or answer.current_leader_epoch != -1
    has_snapshot = answer.snapshot_end_offset != -1 or answer.snapshot_epoch != -1
    writer.uvarint(diverges + knows_leader + has_snapshot)
    if diverges:
        value = _INT32_INT64.pack(answer.diverging_epoch, answer.diverging_end_offset)
        writer.tagged(0, value + NO_TAGS)
    if knows_leader:
        value = _INT32_INT32.pack(answer.current_leader_id, answer.current_leader_epoch)
        writer.tagged(1, value + NO_TAGS)
    if has_snapshot:
        value = _INT64_INT32.pack(answer.snapshot_end_offset, answer.snapshot_epoch)
        writer.tagged(2, value + NO_TAGS)


def decode_fetch_response(frame: memoryview, version: int, position: int) -> FetchResponse:
    """Reads the body of a response, which begins at `position`; records are slices of `frame`.

    Raises:
        ProtocolError: the body is malformed.
    """
    reader = Reader(frame, position)
    flexible = version >= FLEXIBLE_VERSION
    response = FetchResponse([])
    if version >= 1:
        response.throttle_time_ms = reader.int32()
    if version >= SESSION_VERSION:
        response.error_code = reader.int16()
        response.session_id = reader.int32()
    for _ in range(reader.array_length(flexible, 2)):
        by_id = version >= TOPIC_ID_VERSION
        name = None if by_id else reader.string(flexible)
        topic_id = reader.uuid() if by_id else None
        count = reader.array_length(flexible, 15)
        partitions = [_decode_answer(reader, version, flexible) for _ in range(count)]
        if flexible:
            reader.skip_tags()
        response.topics.append(FetchTopicResponse(name, topic_id, partitions))
    if flexible:
        _decode_response_tags(reader, response)
    return response


def _decode_response_tags(reader: Reader, response: FetchResponse) -> None:
    for _ in range(reader.tag_count()):
        if reader.uvarint() == 0:
            end = reader.tagged_end()
            response.node_endpoints = decode_node_endpoints(reader)
            reader.check_at(end)
        else:
            reader.skip_tagged_field()


def _decode_answer(reader: Reader, version: int, flexible: bool) -> FetchPartitionResponse:
    index = reader.int32()
    error_code = reader.int16()
    answer = FetchPartitionResponse(index, error_code, reader.int64())
    if version >= 4:
        answer.last_stable_offset = reader.int64()
    if version >= LOG_START_OFFSET_VERSION:
        answer.log_start_offset = reader.int64()
    if version >= 4:
        answer.aborted = _decode_aborted(reader, flexible)
    if version >= RACK_VERSION:
        answer.preferred_read_replica = reader.int32()
    records = reader.nullable_bytes(flexible)
    if records is not None and len(records) > 0:
        answer.records = [records]
    if flexible:
        _decode_answer_tags(reader, answer)
    return answer


def _decode_aborted(reader: Reader, flexible: bool) -> list[tuple[int, int]] | None:
    count = reader.nullable_array_length(flexible, 16)
    if count < 0:
        return None
    aborted: list[tuple[int, int]] = []
    for _ in range(count):
        producer_id = reader.int64()
        aborted.append((producer_id, reader.int64()))
        if flexible:
            reader.skip_tags()
    return aborted


def _decode_answer_tags(reader: Reader, answer: FetchPartitionResponse) -> None:
    for _ in range(reader.tag_count()):
        tag = reader.uvarint()
        if tag > 2:
            reader.skip_tagged_field()
            continue
        end = reader.tagged_end()
        if tag == 0:
            answer.diverging_epoch = reader.int32()
            answer.diverging_end_offset = reader.int64()
        elif tag == 1:
            answer.current_leader_id = reader.int32()
            answer.current_leader_epoch = reader.int32()
        else:
            answer.snapshot_end_offset = reader.int64()
            answer.snapshot_epoch = reader.int32()
        reader.skip_tags()
        reader.check_at(end)
