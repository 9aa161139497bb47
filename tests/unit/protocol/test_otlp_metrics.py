"""The metrics that clients push are read as they are meant, and nothing else is taken for them."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.otlp import (
    BYTES,
    CUMULATIVE,
    FIXED32,
    VARINT,
    field,
    gauge,
    point,
    pushed,
    total,
    varint,
)

from odradek.protocol.otlp_metrics import (
    MOST_ATTRIBUTES,
    MOST_FIELDS,
    MOST_TEXT,
    MetricsData,
    NumberPoint,
    read_metrics,
)
from odradek.protocol.primitives import ProtocolError

NOTHING = MetricsData((), [], 0)


def test_gauges_and_sums_are_read_with_their_attributes():
    """Values would be lost, or stand under the wrong partition."""
    data = pushed(
        gauge("lag", point(1.5, {"topic": "orders", "partition": 3}), point(7, {"x": -2})),
        total("made", point(4), point(0.25, {"yes": True, "half": 0.5})),
        total("sent", point(-9), temporality=CUMULATIVE),
        resource={"group_id": "g", "client_rack": "r"},
    )
    assert read_metrics(data, 100) == MetricsData(
        (("client_rack", "r"), ("group_id", "g")),
        [
            NumberPoint("lag", (("partition", "3"), ("topic", "orders")), 1.5, False),
            NumberPoint("lag", (("x", "-2"),), 7.0, False),
            NumberPoint("made", (), 4.0, True),
            NumberPoint("made", (("half", "0.5"), ("yes", "true")), 0.25, True),
            NumberPoint("sent", (), -9.0, False),
        ],
        0,
    )


def test_the_name_may_come_last():
    """Protobuf orders nothing."""
    content = field(5, BYTES, field(1, BYTES, point(2))) + field(1, BYTES, "late")
    assert read_metrics(pushed(content), 9).points == [NumberPoint("late", (), 2.0, False)]


@pytest.mark.parametrize(
    "metric",
    [
        gauge("none"),
        gauge("without a value", field(3, 1, bytes(8))),
        gauge("said to have no value", point(3, flags=1)),
        gauge("new fields", field(99, BYTES, "x") + field(98, FIXED32, bytes(4))),
        field(1, VARINT, 7) + field(2, VARINT, 1),
    ],
)
def test_what_has_no_value_is_none(metric):
    assert read_metrics(pushed(metric), 9) == NOTHING


@pytest.mark.parametrize(
    ("metric", "left_out"),
    [
        (field(9, BYTES, b""), 1),
        (gauge("", point(1)), 1),
        (gauge("n" * (MOST_TEXT + 1), point(1)), 1),
        (gauge("n", point(1, {"k": "v" * MOST_TEXT})), 1),
        (gauge("n", point(1, {f"k{number}": "v" for number in range(MOST_ATTRIBUTES + 1)})), 1),
        (gauge("n", *[point(1)] * 12), 3),
    ],
)
def test_what_is_not_kept_is_counted(metric, left_out):
    """A client could fill the memory with one push, and nobody would know what is missing."""
    data = read_metrics(pushed(metric), 9)
    assert (data.left_out, len(data.points)) == (left_out, 9 if left_out == 3 else 0)


@pytest.mark.parametrize("depth", range(5))
def test_no_more_is_looked_at_than_bounded(depth):
    """Two megabytes of nothing would keep a thread busy for seconds."""
    many = field(1 if depth != 2 else 2, BYTES, b"") * (MOST_FIELDS + 1)
    for number in ((), (1,), (2, 1), (5, 2, 2, 1)[-3:], (5, 2, 2, 1))[depth]:
        many = field(number, BYTES, many)
    assert read_metrics(many, 9).left_out == 1


@pytest.mark.parametrize(
    "data",
    [
        b"m",
        b"garbage",
        b"\x00",
        b"\x0a",
        b"\x0a\x05ab",
        b"\x0a" + b"\xff" * 11,
        b"\x0b",
        b"\x0c",
        b"\x0f",
        b"\x09\x00",
        b"\x0d\x00",
        field(1, BYTES, b"\x0a\x05"),
        field(1, BYTES, field(2, BYTES, field(2, BYTES, field(1, BYTES, b"\xff")))),
        pushed(gauge("n", point(1)))[:-1],
        varint(1 << 3 | BYTES) + varint(1 << 62),
    ],
)
def test_garbage_is_none(data):
    """Bytes that are no metrics would be taken for an empty push."""
    with pytest.raises(ProtocolError, match=r"\w"):
        read_metrics(data, 9)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    """An exception of another kind would be a mistake of ours in the log, for each push."""
    with suppress(ProtocolError):
        read_metrics(data, 9)


WHOLE = pushed(
    gauge("lag", point(1.5, {"topic": "orders", "partition": 3})), resource={"group_id": "g"}
)


@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255))
def test_a_changed_byte_is_read_or_refused(position, byte):
    with suppress(ProtocolError):
        read_metrics(WHOLE[:position] + bytes((byte,)) + WHOLE[position + 1 :], 9)
