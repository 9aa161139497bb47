"""Produce, versions 0 to 13, in both directions.

Records are never looked into here: a request's `records` is a slice of its frame.

Version notes: 1 adds the throttle time, 2 the append time, 3 the transactional id, 5 the log
start offset, 8 errors per record, 9 is flexible, 10 names the current leader, 13 names
topics by id.
"""

from struct import Struct
from typing import Final
from uuid import UUID

from odradek.protocol.primitives import (
    NO_TAGS,
    Buffer,
    NodeEndpoint,
    Reader,
    Writer,
    decode_node_endpoints,
    encode_node_endpoints,
)

TRANSACTIONAL_ID_VERSION: Final = 3
FLEXIBLE_VERSION: Final = 9
TOPIC_ID_VERSION: Final = 13

# index, error code, base offset | + append time | + log start offset
_ANSWER_V0: Final = Struct(">ihq")
_ANSWER_V2: Final = Struct(">ihqq")
_ANSWER_V5: Final = Struct(">ihqqq")
_LEADER: Final = Struct(">ii")


class ProducePartition:
    """The records for one partition; `None` where the client sent a null."""

    def __init__(self, index: int, records: Buffer | None) -> None:
        self.index = index
        self.records = records


class ProduceTopic:
    """A topic by name (versions 0-12) or by id (from 13); the other one is `None`."""

    def __init__(
        self, name: str | None, topic_id: UUID | None, partitions: list[ProducePartition]
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions


class ProduceRequest:
    """A whole Produce request."""

    def __init__(
        self,
        transactional_id: str | None,
        acks: int,
        timeout_ms: int,
        topics: list[ProduceTopic],
    ) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topics = topics


class ProducePartitionResponse:
    """The part of a produce response about one partition."""

    def __init__(
        self,
        index: int,
        error_code: int,
        base_offset: int = -1,
        log_append_time_ms: int = -1,
        log_start_offset: int = -1,
        record_errors: list[tuple[int, str | None]] | None = None,
        error_message: str | None = None,
        current_leader_id: int = -1,
        current_leader_epoch: int = -1,
    ) -> None:
        self.index = index
        self.error_code = error_code
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.record_errors = record_errors
        self.error_message = error_message
        self.current_leader_id = current_leader_id
        self.current_leader_epoch = current_leader_epoch


class ProduceTopicResponse:
    """The answers for a topic, named as the request named it."""

    def __init__(
        self,
        name: str | None,
        topic_id: UUID | None,
        partitions: list[ProducePartitionResponse],
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions


class ProduceResponse:
    """A whole Produce response."""

    def __init__(
        self,
        topics: list[ProduceTopicResponse],
        throttle_time_ms: int = 0,
        node_endpoints: list[NodeEndpoint] | None = None,
    ) -> None:
        self.topics = topics
        self.throttle_time_ms = throttle_time_ms
        self.node_endpoints: list[NodeEndpoint] = (
            node_endpoints if node_endpoints is not None else []
        )


def decode_produce_request(frame: memoryview, version: int, position: int) -> ProduceRequest:
    """Reads the body of a request, which begins at `position`; records are slices of `frame`.

    Raises:
        ProtocolError: the body is malformed.
    """
    reader = Reader(frame, position)
    flexible = version >= FLEXIBLE_VERSION
    transactional_id = (
        reader.nullable_string(flexible) if version >= TRANSACTIONAL_ID_VERSION else None
    )
    acks = reader.int16()
    timeout_ms = reader.int32()
    topics: list[ProduceTopic] = []
    count = reader.array_length(flexible, 2)
    while count > 0:
        topics.append(_decode_topic(reader, version, flexible))
        count -= 1
    if flexible:
        reader.skip_tags()
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _decode_topic(reader: Reader, version: int, flexible: bool) -> ProduceTopic:
    name: str | None = None
    topic_id: UUID | None = None
    if version >= TOPIC_ID_VERSION:
        topic_id = reader.uuid()
    else:
        name = reader.string(flexible)
    partitions: list[ProducePartition] = []
    count = reader.array_length(flexible, 5)
    while count > 0:
        index = reader.int32()
        partitions.append(ProducePartition(index, reader.nullable_bytes(flexible)))
        if flexible:
            reader.skip_tags()
        count -= 1
    if flexible:
        reader.skip_tags()
    return ProduceTopic(name, topic_id, partitions)


def encode_produce_request(request: ProduceRequest, version: int) -> list[Buffer]:
    """Writes the body of a request; its records are passed on, not copied."""
    writer = Writer()
    flexible = version >= FLEXIBLE_VERSION
    if version >= TRANSACTIONAL_ID_VERSION:
        writer.nullable_string(request.transactional_id, flexible)
    writer.int16(request.acks)
    writer.int32(request.timeout_ms)
    writer.array_length(len(request.topics), flexible)
    for topic in request.topics:
        _write_topic_key(writer, version, topic.name, topic.topic_id)
        writer.array_length(len(topic.partitions), flexible)
        for partition in topic.partitions:
            writer.int32(partition.index)
            if partition.records is None:
                writer.null_bytes(flexible)
            else:
                writer.buffers([partition.records], flexible)
            writer.no_tags(flexible)
        writer.no_tags(flexible)
    writer.no_tags(flexible)
    return writer.finish()


def _write_topic_key(writer: Writer, version: int, name: str | None, topic_id: UUID | None) -> None:
    if version >= TOPIC_ID_VERSION:
        writer.uuid(topic_id)
    else:
        writer.string(name or "", version >= FLEXIBLE_VERSION)


def encode_produce_response(response: ProduceResponse, version: int, correlation_id: int) -> bytes:
    """Writes a response with its header."""
    writer = Writer()
    flexible = version >= FLEXIBLE_VERSION
    writer.int32(correlation_id)
    writer.no_tags(flexible)
    writer.array_length(len(response.topics), flexible)
    for topic in response.topics:
        _write_topic_key(writer, version, topic.name, topic.topic_id)
        writer.array_length(len(topic.partitions), flexible)
        for partition in topic.partitions:
            _write_answer(writer, partition, version)
        writer.no_tags(flexible)
    if version >= 1:
        writer.int32(response.throttle_time_ms)
    if version >= 10 and response.node_endpoints:
        writer.uvarint(1)
        writer.tagged(0, encode_node_endpoints(response.node_endpoints))
    else:
        writer.no_tags(flexible)
    return writer.to_bytes()


def _write_answer(writer: Writer, answer: ProducePartitionResponse, version: int) -> None:
    if version >= 5:
        writer.raw(
            _ANSWER_V5.pack(
                answer.index,
                answer.error_code,
                answer.base_offset,
                answer.log_append_time_ms,
                answer.log_start_offset,
            )
        )
    elif version >= 2:
        writer.raw(
            _ANSWER_V2.pack(
                answer.index, answer.error_code, answer.base_offset, answer.log_append_time_ms
            )
        )
    else:
        writer.raw(_ANSWER_V0.pack(answer.index, answer.error_code, answer.base_offset))
    if version >= 8:
        _write_explanation(writer, answer, version)


def _write_explanation(writer: Writer, answer: ProducePartitionResponse, version: int) -> None:
    """The refused records with the reasons, and the current leader: added by versions 8 and 10."""
    flexible = version >= FLEXIBLE_VERSION
    record_errors = answer.record_errors
    if record_errors is None:
        writer.array_length(0, flexible)
    else:
        writer.array_length(len(record_errors), flexible)
        for batch_index, message in record_errors:
            writer.int32(batch_index)
            writer.nullable_string(message, flexible)
            writer.no_tags(flexible)
    writer.nullable_string(answer.error_message, flexible)
    if version >= 10 and (answer.current_leader_id != -1 or answer.current_leader_epoch != -1):
        writer.uvarint(1)
        leader = _LEADER.pack(answer.current_leader_id, answer.current_leader_epoch)
        writer.tagged(0, leader + NO_TAGS)
    else:
        writer.no_tags(flexible)


def decode_produce_response(frame: memoryview, version: int, position: int) -> ProduceResponse:
    """Reads the body of a response, which begins at `position`.

    Raises:
        ProtocolError: the body is malformed.
    """
    reader = Reader(frame, position)
    flexible = version >= FLEXIBLE_VERSION
    topics: list[ProduceTopicResponse] = []
    for _ in range(reader.array_length(flexible, 2)):
        by_id = version >= TOPIC_ID_VERSION
        name = None if by_id else reader.string(flexible)
        topic_id = reader.uuid() if by_id else None
        count = reader.array_length(flexible, 14)
        partitions = [_decode_answer(reader, version, flexible) for _ in range(count)]
        if flexible:
            reader.skip_tags()
        topics.append(ProduceTopicResponse(name, topic_id, partitions))
    response = ProduceResponse(topics, reader.int32() if version >= 1 else 0)
    if flexible:
        _decode_response_tags(reader, response)
    return response


def _decode_response_tags(reader: Reader, response: ProduceResponse) -> None:
    for _ in range(reader.tag_count()):
        if reader.uvarint() == 0:
            end = reader.tagged_end()
            response.node_endpoints = decode_node_endpoints(reader)
            reader.check_at(end)
        else:
            reader.skip_tagged_field()


def _decode_answer(reader: Reader, version: int, flexible: bool) -> ProducePartitionResponse:
    index = reader.int32()
    error_code = reader.int16()
    answer = ProducePartitionResponse(index, error_code, reader.int64())
    if version >= 2:
        answer.log_append_time_ms = reader.int64()
    if version >= 5:
        answer.log_start_offset = reader.int64()
    if version >= 8:
        answer.record_errors = _decode_record_errors(reader, flexible)
        answer.error_message = reader.nullable_string(flexible)
    if flexible:
        _decode_answer_tags(reader, answer)
    return answer


def _decode_record_errors(reader: Reader, flexible: bool) -> list[tuple[int, str | None]]:
    record_errors: list[tuple[int, str | None]] = []
    for _ in range(reader.array_length(flexible, 5)):
        batch_index = reader.int32()
        record_errors.append((batch_index, reader.nullable_string(flexible)))
        if flexible:
            reader.skip_tags()
    return record_errors


def _decode_answer_tags(reader: Reader, answer: ProducePartitionResponse) -> None:
    for _ in range(reader.tag_count()):
        if reader.uvarint() == 0:
            end = reader.tagged_end()
            answer.current_leader_id = reader.int32()
            answer.current_leader_epoch = reader.int32()
            reader.skip_tags()
            reader.check_at(end)
        else:
            reader.skip_tagged_field()
