"""The hand-written codecs against kio's generated ones, and against damaged input.

kio is the oracle: its classes are generated from Kafka's own message definitions. Byte
equality alone would let two fields of the same size change places, so the values that kio
decodes from our bytes are compared one by one as well.
"""

import contextlib
import io
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from odradek.errors import ErrorCode
from odradek.protocol import messages
from odradek.protocol.direct import fetch, list_offsets, produce
from odradek.protocol.direct.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
    ForgottenTopic,
)
from odradek.protocol.direct.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from odradek.protocol.direct.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResponse,
)
from odradek.protocol.header import decode_response_header
from odradek.protocol.primitives import NodeEndpoint, ProtocolError

PRODUCE, FETCH, LIST_OFFSETS = 0, 1, 2
PRODUCE_VERSIONS = range(14)
FETCH_VERSIONS = range(19)
LIST_OFFSETS_VERSIONS = range(12)

int8 = st.integers(0, 127)
int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
duration = st.integers(0, 2**31 - 1)
moment = st.integers(-1, 4_000_000_000_000)
error_code = st.sampled_from([int(code) for code in ErrorCode if code < 120])
text = st.text(max_size=20)
topic_id = st.none() | st.uuids().filter(lambda value: value.int != 0)
records = st.binary(max_size=2000)


def lists(element, size=3):
    return st.lists(element, max_size=size)


def topics(topic_class, partition):
    return lists(st.builds(topic_class, text, topic_id, lists(partition)))


endpoints = lists(st.builds(NodeEndpoint, int32, text, int32, st.none() | text), 2)

produce_requests = st.builds(
    ProduceRequest,
    st.none() | text,
    int16,
    duration,
    topics(ProduceTopic, st.builds(ProducePartition, int32, st.none() | records)),
)
produce_responses = st.builds(
    ProduceResponse,
    topics(
        ProduceTopicResponse,
        st.builds(
            ProducePartitionResponse,
            int32,
            error_code,
            int64,
            moment,
            int64,
            st.none() | lists(st.tuples(int32, st.none() | text)),
            st.none() | text,
            int32,
            int32,
        ),
    ),
    duration,
    endpoints,
)
fetch_requests = st.builds(
    FetchRequest,
    int32,
    duration,
    int32,
    topics(
        FetchTopic,
        st.builds(FetchPartition, int32, int64, int32, int32, int32, int64, topic_id, int64),
    ),
    int32,
    int8,
    int32,
    int32,
    topics(ForgottenTopic, int32),
    text,
    st.none() | text,
    int64,
)
fetch_responses = st.builds(
    FetchResponse,
    topics(
        FetchTopicResponse,
        st.builds(
            FetchPartitionResponse,
            int32,
            error_code,
            int64,
            int64,
            int64,
            st.none() | lists(st.tuples(int64, int64)),
            int32,
            lists(records),
            int32,
            int64,
            int32,
            int32,
            int64,
            int32,
        ),
    ),
    error_code,
    int32,
    duration,
    endpoints,
)
list_offsets_requests = st.builds(
    ListOffsetsRequest,
    int32,
    lists(
        st.builds(
            ListOffsetsTopic,
            text,
            lists(st.builds(ListOffsetsPartition, int32, int64, int32, int32)),
        )
    ),
    int8,
    duration,
)
list_offsets_responses = st.builds(
    ListOffsetsResponse,
    lists(
        st.builds(
            ListOffsetsTopicResponse,
            text,
            lists(
                st.builds(
                    ListOffsetsPartitionResponse,
                    int32,
                    error_code,
                    int64,
                    int64,
                    int32,
                    lists(int64),
                )
            ),
        )
    ),
    duration,
)

# kio's names for what is called otherwise here.
NAMES = {
    "aborted_transactions": "aborted",
    "forgotten_topics_data": "forgotten",
    "log_append_time": "log_append_time_ms",
    "max_wait": "max_wait_ms",
    "partition": "index",
    "partition_data": "partitions",
    "partition_index": "index",
    "partition_responses": "partitions",
    "responses": "topics",
    "throttle_time": "throttle_time_ms",
    "timeout": "timeout_ms",
    "topic": "name",
    "topic_data": "topics",
}
# kio's structures that are a few plain attributes here.
FLAT = {
    "current_leader": ("current_leader_id", "current_leader_epoch"),
    "diverging_epoch": ("diverging_epoch", "diverging_end_offset"),
    "replica_state": ("replica_id", "replica_epoch"),
    "snapshot_id": ("snapshot_end_offset", "snapshot_epoch"),
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def plain(value):
    """A value of kio's, or of ours, as numbers, text, bytes and tuples."""
    match value:
        case timedelta():
            return value // timedelta(milliseconds=1)
        case datetime():
            return (value - EPOCH) // timedelta(milliseconds=1)
        case memoryview():
            return bytes(value)
        case list() | tuple():
            return tuple(plain(element) for element in value)
        case _ if is_dataclass(value):
            return tuple(plain(getattr(value, field.name)) for field in fields(value))
    return value


def assert_same(ours, theirs):
    """Every field that this version has in kio's class has the same value in ours."""
    for field in fields(theirs):
        expected = getattr(theirs, field.name)
        if field.name in FLAT:
            got = tuple(getattr(ours, name) for name in FLAT[field.name])
            assert got == plain(expected), field.name
            continue
        got = getattr(ours, NAMES.get(field.name, field.name))
        if field.name == "log_append_time":
            got = None if got < 0 else got
        elif field.name == "record_errors":
            got = got or []
        elif field.name == "records" and isinstance(got, list):
            got = b"".join(bytes(piece) for piece in got)
        nested = isinstance(expected, tuple) and got and hasattr(got[0], "__init__")
        if nested and not isinstance(got[0], int | tuple):
            assert len(got) == len(expected), field.name
            for our_element, their_element in zip(got, expected, strict=True):
                assert_same(our_element, their_element)
        else:
            assert plain(got) == plain(expected), field.name


def joined(buffers):
    return b"".join(bytes(buffer) for buffer in buffers)


def check_against_kio(schema, encoded, ours):
    theirs, size = entity_reader(schema)(encoded, 0)
    assert size == len(encoded)
    assert_same(ours, theirs)
    buffer = io.BytesIO()
    entity_writer(schema)(buffer, theirs)
    assert buffer.getvalue() == encoded


def check_request(api_key, version, request, encode, decode, oldest):
    """Our bytes mean the same to kio, kio writes the same bytes, and we read what we wrote."""
    encoded = joined(encode(request, version))
    again = decode(memoryview(b"header" + encoded), version, 6)
    assert joined(encode(again, version)) == encoded
    if version >= oldest:
        check_against_kio(load_request_schema(api_key, version), encoded, request)


def check_response(api_key, version, response, encode, decode, flexible_from, oldest):
    encoded = joined(encode(response, version, 77))
    header_version = 1 if version >= flexible_from else 0
    correlation_id, position = decode_response_header(memoryview(encoded), header_version)
    assert correlation_id == 77
    again = decode(memoryview(encoded), version, position)
    assert joined(encode(again, version, 77)) == encoded
    if version >= oldest:
        schema = load_response_schema(api_key, version)
        check_against_kio(schema, encoded[position:], response)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@given(request=produce_requests)
def test_produce_request(version, request):
    """A client's produce would be read as something else than it wrote."""
    encode, decode = produce.encode_produce_request, produce.decode_produce_request
    check_request(PRODUCE, version, request, encode, decode, oldest=3)


def encode_produce_response(response, version, correlation_id):
    return [produce.encode_produce_response(response, version, correlation_id)]


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@given(response=produce_responses)
def test_produce_response(version, response):
    """A producer would see a wrong offset or error, or fail to read its answer."""
    decode = produce.decode_produce_response
    check_response(PRODUCE, version, response, encode_produce_response, decode, 9, oldest=3)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@given(request=fetch_requests)
def test_fetch_request(version, request):
    """A consumer's or follower's fetch would be read from a wrong place."""
    if version >= fetch.REPLICA_STATE_VERSION and request.replica_id == -1:
        request.replica_epoch = -1
    encode, decode = fetch.encode_fetch_request, fetch.decode_fetch_request
    check_request(FETCH, version, request, encode, decode, oldest=4)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@given(response=fetch_responses)
def test_fetch_response(version, response):
    """A consumer would read records that are not there, or not those that are."""
    encode, decode = fetch.encode_fetch_response, fetch.decode_fetch_response
    check_response(FETCH, version, response, encode, decode, 12, oldest=4)


@given(response=fetch_responses)
def test_records_are_not_copied(response):
    """Every fetched byte would be copied once more on its way out."""
    sent = {id(buffer) for buffer in fetch.encode_fetch_response(response, 12, 1)}
    for topic in response.topics:
        for answer in topic.partitions:
            if any(answer.records):
                assert {id(piece) for piece in answer.records} <= sent


@pytest.mark.parametrize("version", LIST_OFFSETS_VERSIONS)
@given(request=list_offsets_requests)
def test_list_offsets_request(version, request):
    """A look-up by time would be done for another time or partition."""
    encode, decode = (
        list_offsets.encode_list_offsets_request,
        list_offsets.decode_list_offsets_request,
    )
    check_request(LIST_OFFSETS, version, request, encode, decode, oldest=1)


def encode_list_offsets_response(response, version, correlation_id):
    return [list_offsets.encode_list_offsets_response(response, version, correlation_id)]


@pytest.mark.parametrize("version", LIST_OFFSETS_VERSIONS)
@given(response=list_offsets_responses)
def test_list_offsets_response(version, response):
    """A consumer would start at a wrong offset."""
    decode = list_offsets.decode_list_offsets_response
    check_response(
        LIST_OFFSETS, version, response, encode_list_offsets_response, decode, 6, oldest=1
    )


DECODERS = [
    (produce.decode_produce_request, PRODUCE_VERSIONS),
    (produce.decode_produce_response, PRODUCE_VERSIONS),
    (fetch.decode_fetch_request, FETCH_VERSIONS),
    (fetch.decode_fetch_response, FETCH_VERSIONS),
    (list_offsets.decode_list_offsets_request, LIST_OFFSETS_VERSIONS),
    (list_offsets.decode_list_offsets_response, LIST_OFFSETS_VERSIONS),
]


def check_never_worse(decode, version, frame):
    """Either the bytes are a message, or the error names a place in them."""
    position = 0
    try:
        decode(memoryview(frame), version, 0)
    except ProtocolError as error:
        position = error.position
    assert 0 <= position <= len(frame)


@given(st.data())
def test_garbage_is_a_protocol_error_or_a_message(data):
    """Bytes from anywhere would raise something that nobody expects, or exhaust memory."""
    decode, versions = data.draw(st.sampled_from(DECODERS))
    frame = data.draw(st.binary(max_size=200))
    check_never_worse(decode, data.draw(st.sampled_from(versions)), frame)


@given(request=produce_requests | fetch_requests, data=st.data())
def test_a_damaged_request_is_a_protocol_error_or_a_message(request, data):
    """Fails when a flipped or missing byte raises another error, or a read goes past the frame."""
    if isinstance(request, ProduceRequest):
        encode, decode = produce.encode_produce_request, produce.decode_produce_request
        version = data.draw(st.sampled_from(PRODUCE_VERSIONS))
    else:
        encode, decode = fetch.encode_fetch_request, fetch.decode_fetch_request
        version = data.draw(st.sampled_from(FETCH_VERSIONS))
    frame = bytearray(joined(encode(request, version)))
    if data.draw(st.booleans()):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    else:
        del frame[data.draw(st.integers(0, len(frame) - 1)) :]
    check_never_worse(decode, version, frame)


COLD_APIS = (3, 18, 19, 20, 21, 22, 23, 32, 33, 35, 37, 43, 44, 60, 61, 75)


@given(
    api_key=st.sampled_from(COLD_APIS),
    frame=st.binary(max_size=100),
    data=st.data(),
)
def test_garbage_for_a_cold_api_is_a_protocol_error_or_a_message(api_key, frame, data):
    """A request of a few bytes would end the broker, as it does with kio's own reader."""
    version = data.draw(st.sampled_from(messages.versions(api_key)))
    with contextlib.suppress(ProtocolError):
        messages.decode_request(api_key, version, memoryview(frame), 0)


def structures(annotation):
    """Random instances of one of kio's classes, by its fields."""
    return st.builds(
        annotation,
        **{field.name: values(field.type, field.metadata) for field in fields(annotation)},
    )


SCALARS = {
    "int8": st.integers(-128, 127),
    "int16": int16,
    "int32": int32,
    "int64": int64,
    "bool": st.booleans(),
    "string": text,
    "bytes": records,
    "uuid": st.none() | topic_id,
    "error_code": st.sampled_from(list(KioErrorCode)),
    "timedelta_i32": st.integers(-(2**31), 2**31 - 1).map(lambda ms: timedelta(milliseconds=ms)),
    "timedelta_i64": st.integers(0, 2**40).map(lambda ms: timedelta(milliseconds=ms)),
}


def values(annotation, metadata):
    arguments = getattr(annotation, "__args__", ())
    if type(None) in arguments:
        inner = values(arguments[0], metadata)
        return inner if "tag" in metadata else st.none() | inner
    if getattr(annotation, "__origin__", None) is tuple:
        return lists(values(arguments[0], metadata)).map(tuple)
    if hasattr(annotation, "__version__"):
        return structures(annotation)
    return SCALARS[metadata["kafka_type"]]


def as_values(message):
    """A message of kio's as the plain values that it would be written from."""
    values = {}
    for field in fields(message):
        value = getattr(message, field.name)
        if isinstance(value, timedelta):
            values[f"{field.name}_ms"] = value // timedelta(milliseconds=1)
        elif is_dataclass(value):
            values[field.name] = as_values(value)
        elif isinstance(value, tuple) and value and is_dataclass(value[0]):
            values[field.name] = [as_values(element) for element in value]
        else:
            values[field.name] = value
    return values


def check_cold_message(schema, message, encode, decode):
    written = io.BytesIO()
    entity_writer(schema)(written, message)
    data = written.getvalue()
    assert encode(as_values(message)) == data
    assert decode(memoryview(data)) == entity_reader(schema)(data, 0)[0]


@given(api_key=st.sampled_from(COLD_APIS), data=st.data())
def test_cold_messages_agree_with_kio(api_key, data):
    """A handler would be given, or a client be sent, other values than were meant."""
    version = data.draw(st.sampled_from(messages.versions(api_key)))
    schema = messages.request_type(api_key, version)
    check_cold_message(
        schema,
        data.draw(structures(schema)),
        lambda values: messages.encode_request(api_key, version, values),
        lambda frame: messages.decode_request(api_key, version, frame, 0),
    )
    schema = messages.response_type(api_key, version)
    check_cold_message(
        schema,
        data.draw(structures(schema)),
        lambda values: messages.encode_response(api_key, version, values),
        lambda frame: messages.decode_response(api_key, version, frame, 0),
    )


def test_uuid_zero_is_none():
    """An unset topic id would look like a topic."""
    request = ProduceRequest(None, 1, 1, [ProduceTopic(None, UUID(int=0), [])])
    frame = memoryview(joined(produce.encode_produce_request(request, 13)))
    assert produce.decode_produce_request(frame, 13, 0).topics[0].topic_id is None
