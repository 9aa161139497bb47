"""ListOffsets, versions 0 to 11, in both directions.

Version notes: 0 asks for a number of segment starts before a timestamp and gets a list; 1
gets one offset with its timestamp; 2 adds the isolation level and the throttle time, 4 the
leader epoch, 6 is flexible, 7-9 and 11 give meaning to more negative timestamps (`-3` largest
timestamp, `-4` local start, `-5` last tiered, `-6` earliest pending upload), 10 adds the
time-out.

A flexible request may have tagged fields of ours, which other brokers ignore like all unknown ones:
`LEASE_TAG` of the request asks for a lease, that of a partition has the offset from which on its
records are held (`storage/leases.py`).
"""

from struct import Struct
from typing import Final

from odradek.protocol.primitives import Buffer, Reader, Writer

LEADER_EPOCH_VERSION: Final = 4
FLEXIBLE_VERSION: Final = 6
TIMEOUT_VERSION: Final = 10

# Far above the tags that Kafka gives out one after the other.
LEASE_TAG: Final = 10_000
NO_LEASE: Final = -1
# Renews an existing lease, from its offset on.
RENEWED_LEASE: Final = -2

_ANSWER_V1: Final = Struct(">ihqq")  # index, error code, timestamp, offset


class LeaseTerms:
    """The terms of a lease: its holder, its id, and its duration; 0 ms releases it."""

    def __init__(self, lease_id: str, owner: str, duration_ms: int) -> None:
        self.lease_id = lease_id
        self.owner = owner
        self.duration_ms = duration_ms


class ListOffsetsPartition:
    """A question about one partition; `max_num_offsets` is asked by version 0 only.

    `lease_offset` is the first offset of a lease on its records, or `RENEWED_LEASE`.
    """

    def __init__(
        self,
        index: int,
        timestamp: int,
        current_leader_epoch: int = -1,
        max_num_offsets: int = 1,
        lease_offset: int = NO_LEASE,
    ) -> None:
        self.index = index
        self.timestamp = timestamp
        self.current_leader_epoch = current_leader_epoch
        self.max_num_offsets = max_num_offsets
        self.lease_offset = lease_offset


class ListOffsetsTopic:
    """The questions about a topic."""

    def __init__(self, name: str, partitions: list[ListOffsetsPartition]) -> None:
        self.name = name
        self.partitions = partitions


class ListOffsetsRequest:
    """A whole ListOffsets request."""

    def __init__(
        self,
        replica_id: int,
        topics: list[ListOffsetsTopic],
        isolation_level: int = 0,
        timeout_ms: int = 0,
        lease: LeaseTerms | None = None,
    ) -> None:
        self.replica_id = replica_id
        self.topics = topics
        self.isolation_level = isolation_level
        self.timeout_ms = timeout_ms
        self.lease = lease


class ListOffsetsPartitionResponse:
    """The answer for one partition; `old_style_offsets` is sent in version 0 only."""

    def __init__(
        self,
        index: int,
        error_code: int,
        timestamp: int = -1,
        offset: int = -1,
        leader_epoch: int = -1,
        old_style_offsets: list[int] | None = None,
    ) -> None:
        self.index = index
        self.error_code = error_code
        self.timestamp = timestamp
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.old_style_offsets = old_style_offsets


class ListOffsetsTopicResponse:
    """The answers for a topic."""

    def __init__(self, name: str, partitions: list[ListOffsetsPartitionResponse]) -> None:
        self.name = name
        self.partitions = partitions


class ListOffsetsResponse:
    """A whole ListOffsets response."""

    def __init__(self, topics: list[ListOffsetsTopicResponse], throttle_time_ms: int = 0) -> None:
        self.topics = topics
        self.throttle_time_ms = throttle_time_ms


def decode_list_offsets_request(
    frame: memoryview, version: int, position: int
) -> ListOffsetsRequest:
    """Reads the body of a request, which begins at `position`.

    Raises:
        ProtocolError: the body is malformed.
    """
    reader = Reader(frame, position)
    flexible = version >= FLEXIBLE_VERSION
    replica_id = reader.int32()
    isolation_level = reader.int8() if version >= 2 else 0
    topics: list[ListOffsetsTopic] = []
    count = reader.array_length(flexible, 2)
    while count > 0:
        topics.append(_decode_topic(reader, version, flexible))
        count -= 1
    timeout_ms = reader.int32() if version >= TIMEOUT_VERSION else 0
    lease = _decode_lease(reader) if flexible else None
    return ListOffsetsRequest(replica_id, topics, isolation_level, timeout_ms, lease)


def _decode_lease(reader: Reader) -> LeaseTerms | None:
    """The terms of a lease among the tagged fields of a request."""
    lease: LeaseTerms | None = None
    count = reader.tag_count()
    while count > 0:
        if reader.uvarint() == LEASE_TAG:
            end = reader.tagged_end()
            lease = LeaseTerms(reader.string(True), reader.string(True), reader.int32())
            reader.check_at(end)
        else:
            reader.skip_tagged_field()
        count -= 1
    return lease


def _decode_lease_offset(reader: Reader) -> int:
    """The same for a partition: where its lease begins."""
    offset = NO_LEASE
    count = reader.tag_count()
    while count > 0:
        if reader.uvarint() == LEASE_TAG:
            end = reader.tagged_end()
            offset = reader.int64()
            reader.check_at(end)
        else:
            reader.skip_tagged_field()
        count -= 1
    return offset


def _decode_topic(reader: Reader, version: int, flexible: bool) -> ListOffsetsTopic:
    name = reader.string(flexible)
    partitions: list[ListOffsetsPartition] = []
    count = reader.array_length(flexible, 12)
    while count > 0:
        index = reader.int32()
        current_leader_epoch = reader.int32() if version >= LEADER_EPOCH_VERSION else -1
        timestamp = reader.int64()
        max_num_offsets = reader.int32() if version == 0 else 1
        lease_offset = _decode_lease_offset(reader) if flexible else NO_LEASE
        partitions.append(
            ListOffsetsPartition(
                index, timestamp, current_leader_epoch, max_num_offsets, lease_offset
            )
        )
        count -= 1
    if flexible:
        reader.skip_tags()
    return ListOffsetsTopic(name, partitions)


def encode_list_offsets_request(request: ListOffsetsRequest, version: int) -> list[Buffer]:
    """Writes the body of a request."""
    writer = Writer()
    flexible = version >= FLEXIBLE_VERSION
    writer.int32(request.replica_id)
    if version >= 2:
        writer.int8(request.isolation_level)
    writer.array_length(len(request.topics), flexible)
    for topic in request.topics:
        writer.string(topic.name, flexible)
        writer.array_length(len(topic.partitions), flexible)
        for partition in topic.partitions:
            writer.int32(partition.index)
            if version >= LEADER_EPOCH_VERSION:
                writer.int32(partition.current_leader_epoch)
            writer.int64(partition.timestamp)
            if version == 0:
                writer.int32(partition.max_num_offsets)
            if flexible and partition.lease_offset != NO_LEASE:
                writer.uvarint(1)
                writer.tagged(LEASE_TAG, partition.lease_offset.to_bytes(8, "big", signed=True))
            else:
                writer.no_tags(flexible)
        writer.no_tags(flexible)
    if version >= TIMEOUT_VERSION:
        writer.int32(request.timeout_ms)
    if flexible and request.lease is not None:
        writer.uvarint(1)
        writer.tagged(LEASE_TAG, _encode_lease(request.lease))
    else:
        writer.no_tags(flexible)
    return writer.finish()


def _encode_lease(lease: LeaseTerms) -> bytes:
    writer = Writer()
    writer.string(lease.lease_id, True)
    writer.string(lease.owner, True)
    writer.int32(lease.duration_ms)
    return writer.to_bytes()


def encode_list_offsets_response(
    response: ListOffsetsResponse, version: int, correlation_id: int
) -> bytes:
    """Writes a response with its header."""
    writer = Writer()
    flexible = version >= FLEXIBLE_VERSION
    writer.int32(correlation_id)
    writer.no_tags(flexible)
    if version >= 2:
        writer.int32(response.throttle_time_ms)
    writer.array_length(len(response.topics), flexible)
    for topic in response.topics:
        writer.string(topic.name, flexible)
        writer.array_length(len(topic.partitions), flexible)
        for answer in topic.partitions:
            _write_answer(writer, answer, version)
        writer.no_tags(flexible)
    writer.no_tags(flexible)
    return writer.to_bytes()


def _write_answer(writer: Writer, answer: ListOffsetsPartitionResponse, version: int) -> None:
    if version == 0:
        _write_old_style(writer, answer)
        return
    writer.raw(_ANSWER_V1.pack(answer.index, answer.error_code, answer.timestamp, answer.offset))
    if version >= LEADER_EPOCH_VERSION:
        writer.int32(answer.leader_epoch)
    writer.no_tags(version >= FLEXIBLE_VERSION)


def _write_old_style(writer: Writer, answer: ListOffsetsPartitionResponse) -> None:
    offsets = answer.old_style_offsets if answer.old_style_offsets is not None else []
    writer.int32(answer.index)
    writer.int16(answer.error_code)
    writer.array_length(len(offsets), False)
    for offset in offsets:
        writer.int64(offset)


def decode_list_offsets_response(
    frame: memoryview, version: int, position: int
) -> ListOffsetsResponse:
    """Reads the body of a response, which begins at `position`.

    Raises:
        ProtocolError: the body is malformed.
    """
    reader = Reader(frame, position)
    flexible = version >= FLEXIBLE_VERSION
    throttle_time_ms = reader.int32() if version >= 2 else 0
    topics: list[ListOffsetsTopicResponse] = []
    for _ in range(reader.array_length(flexible, 2)):
        name = reader.string(flexible)
        count = reader.array_length(flexible, 10)
        partitions = [_decode_answer(reader, version) for _ in range(count)]
        if flexible:
            reader.skip_tags()
        topics.append(ListOffsetsTopicResponse(name, partitions))
    if flexible:
        reader.skip_tags()
    return ListOffsetsResponse(topics, throttle_time_ms)


def _decode_answer(reader: Reader, version: int) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(reader.int32(), reader.int16())
    if version == 0:
        count = reader.array_length(False, 8)
        answer.old_style_offsets = [reader.int64() for _ in range(count)]
        return answer
    answer.timestamp = reader.int64()
    answer.offset = reader.int64()
    if version >= LEADER_EPOCH_VERSION:
        answer.leader_epoch = reader.int32()
    if version >= FLEXIBLE_VERSION:
        reader.skip_tags()
    return answer
