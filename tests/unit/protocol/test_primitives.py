"""The bounds of a `Reader`, and what a `Writer` puts out."""

from uuid import UUID

import pytest

from odradek.protocol.primitives import (
    WINDOW_BYTES,
    NodeEndpoint,
    ProtocolError,
    Reader,
    Writer,
    decode_node_endpoints,
    encode_node_endpoints,
    uvarint_bytes,
)


def reader(data, position=0):
    return Reader(memoryview(data), position)


def refused(read, data, position):
    with pytest.raises(ProtocolError) as caught:
        read(reader(data))
    assert caught.value.position == position


@pytest.mark.parametrize(
    ("name", "value", "data"),
    [
        ("int8", -2, b"\xfe"),
        ("int8", 127, b"\x7f"),
        ("int16", -2, b"\xff\xfe"),
        ("int16", 258, b"\x01\x02"),
        ("int32", -2, b"\xff\xff\xff\xfe"),
        ("int32", 16909060, b"\x01\x02\x03\x04"),
        ("int64", -(2**63), b"\x80" + bytes(7)),
        ("int64", -2, b"\xff" * 7 + b"\xfe"),
        ("int64", 72623859790382856, b"\x01\x02\x03\x04\x05\x06\x07\x08"),
        ("uuid", UUID(int=1), bytes(15) + b"\x01"),
        ("uuid", None, bytes(16)),
        ("uvarint", 0, b"\x00"),
        ("uvarint", 300, b"\xac\x02"),
        ("uvarint", 2**31 - 1, b"\xff\xff\xff\xff\x07"),
    ],
)
def test_a_value_and_its_bytes(name, value, data):
    """Every message would be read or written wrongly."""
    writer = Writer()
    getattr(writer, name)(value)
    assert writer.to_bytes() == data
    source = reader(b"?" + data, 1)
    assert getattr(source, name)() == value
    assert source.remaining == 0


@pytest.mark.parametrize("name", ["int8", "int16", "int32", "int64", "uuid", "uvarint", "boolean"])
def test_a_value_that_is_cut_short(name):
    """The reader would see bytes of another request."""
    whole = {"int16": 2, "int32": 4, "int64": 8, "uuid": 16}.get(name, 1)
    refused(lambda source: getattr(source, name)(), bytes(whole - 1), 0)


@pytest.mark.parametrize("data", [b"\xff" * 5, b"\xff" * 6, b"\x80\x80\x80\x80\x80\x01"])
def test_a_varint_that_runs_over(data):
    """A length would come out negative or endless."""
    with pytest.raises(ProtocolError, match="varint"):
        reader(data).uvarint()


@pytest.mark.parametrize("flexible", [False, True])
@pytest.mark.parametrize("text", ["", "orders", "naïve ☕", "x" * 3000, None])
def test_text(flexible, text):
    """Names would be misread."""
    writer = Writer()
    writer.nullable_string(text, flexible)
    assert reader(writer.to_bytes()).nullable_string(flexible) == text


@pytest.mark.parametrize(
    ("flexible", "data"), [(False, b"\xff\xfe"), (False, b"\x00\x05ab"), (True, b"\x7fab")]
)
def test_text_of_a_wrong_length(flexible, data):
    """The reader would read past the frame."""
    with pytest.raises(ProtocolError):
        reader(data).nullable_string(flexible)


def test_null_where_text_is_required():
    """A handler would be given no name."""
    with pytest.raises(ProtocolError, match="null"):
        reader(b"\xff\xff").string(False)


def test_text_that_is_not_utf_8():
    """Kafka reads it with replacements: a client id in Latin-1 is no reason to hang up."""
    assert reader(b"\x00\x03a\xff\xfe").string(False) == "a\ufffd\ufffd"


def test_text_too_long_for_its_field_is_not_written():
    """A response would be cut apart by its reader."""
    with pytest.raises(ValueError, match="40000 bytes"):
        Writer().string("x" * 40_000, True)


def test_bytes_are_a_slice_of_the_frame():
    """Offsets could not be stamped in place, and records would be copied."""
    frame = bytearray(b"\x00\x00\x00\x03abc\x07")
    source = Reader(memoryview(frame))
    data = source.nullable_bytes(False)
    data[0] = ord("x")
    assert frame == b"\x00\x00\x00\x03xbc\x07"
    assert source.int8() == 7


@pytest.mark.parametrize("size", [WINDOW_BYTES - 5, WINDOW_BYTES, 5 * WINDOW_BYTES])
def test_values_behind_long_bytes(size):
    """The field behind records would be read from the wrong place."""
    frame = b"\x00" + size.to_bytes(4, "big") + bytes(size) + b"\x01\x02"
    source = reader(frame)
    source.int8()
    assert len(source.nullable_bytes(False)) == size
    assert source.position == size + 5
    assert source.int16() == 0x0102


def test_values_across_windows():
    """A value at the edge of a window would be read in two halves."""
    numbers = range(2 * WINDOW_BYTES)
    frame = b"\0" + b"".join(number.to_bytes(4, "big") for number in numbers)
    source = reader(frame, 1)
    assert [source.int32() for _ in numbers] == list(numbers)


@pytest.mark.parametrize(
    ("flexible", "data"),
    [
        (False, b"\x7f\xff\xff\xff"),
        (False, b"\xff\xff\xff\xfe"),
        (False, b"\x00\x00\x00\x03" + bytes(11)),
        (True, b"\xff\xff\xff\xff\x07"),
        (True, b"\x04" + bytes(11)),
    ],
)
def test_a_count_that_cannot_fit(flexible, data):
    """Memory would be set aside for elements that are not there."""
    with pytest.raises(ProtocolError):
        reader(data).nullable_array_length(flexible, 4)


@pytest.mark.parametrize(("flexible", "data"), [(False, b"\xff" * 4), (True, b"\x00")])
def test_a_null_array(flexible, data):
    """Null would be taken for empty, or the other way round."""
    assert reader(data).nullable_array_length(flexible, 4) == -1
    with pytest.raises(ProtocolError, match="null"):
        reader(data).array_length(flexible, 4)


def test_unknown_tags_are_skipped():
    """A newer client's message could not be read."""
    source = reader(b"\x02\x00\x01a\x63\x02bc\x09")
    source.skip_tags()
    assert source.int8() == 9


@pytest.mark.parametrize("data", [b"\x7f", b"\x01\x00\x05ab"])
def test_tags_that_do_not_fit(data):
    """The reader would run past the frame."""
    with pytest.raises(ProtocolError):
        reader(data).skip_tags()


def test_a_tagged_field_that_is_longer_than_its_value():
    """The field behind it would be misread."""
    source = reader(b"\x05\x00\x00\x00\x00\x00")
    end = source.tagged_end()
    source.int32()
    with pytest.raises(ProtocolError, match="should end"):
        source.check_at(end)


def test_a_writer_keeps_records_apart():
    """Records would be copied on their way out, or change places with the headers."""
    writer = Writer()
    writer.int8(1)
    records = [bytearray(b"abc"), memoryview(b"de")]
    writer.buffers(records, False)
    writer.int8(2)
    writer.buffers([], False)
    buffers = writer.finish()
    assert [bytes(buffer) for buffer in buffers] == [
        b"\x01\x00\x00\x00\x05",
        b"abc",
        b"de",
        b"\x02\x00\x00\x00\x00",
    ]
    assert buffers[1] is records[0]


def test_large_varints():
    """Lengths above 16383 would be written wrongly."""
    for value in (128, 16_383, 16_384, 2**31 - 1):
        assert reader(uvarint_bytes(value)).uvarint() == value


def test_node_endpoints():
    """A client would look for the leader at a wrong address."""
    data = encode_node_endpoints(
        [NodeEndpoint(1, "a.example", 9092, "rack-1"), NodeEndpoint(2, "::1", 1, None)]
    )
    endpoints = decode_node_endpoints(reader(data))
    assert [(each.node_id, each.host, each.port, each.rack) for each in endpoints] == [
        (1, "a.example", 9092, "rack-1"),
        (2, "::1", 1, None),
    ]
