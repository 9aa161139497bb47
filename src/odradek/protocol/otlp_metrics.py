"""Metrics as OpenTelemetry writes them (OTLP's `MetricsData`, in Protobuf), as clients push them.

Only the fields that Kafka's clients fill in are read: gauges and sums of single numbers, with their
attributes and those of the resource. Other legal fields are skipped, without copies. Whatever the
bytes are, the numbers of fields read and of numbers kept are bounded; the rest is ignored.

    MetricsData     1 ResourceMetrics
    ResourceMetrics 1 Resource            2 ScopeMetrics
    Resource        1 KeyValue
    ScopeMetrics    2 Metric
    Metric          1 name                5 Gauge    7 Sum    9 to 11 distributions
    Gauge, Sum      1 NumberDataPoint     2 temporality
    NumberDataPoint 4 as_double           6 as_int   7 KeyValue    8 flags
    KeyValue        1 key                 2 AnyValue
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from odradek.protocol.primitives import ProtocolError

MOST_FIELDS: Final = 100_000
MOST_ATTRIBUTES: Final = 8
MOST_TEXT: Final = 512
"""Of a number's name and attributes together, in characters; and of the resource's attributes."""

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5
_MOST_VARINT_BYTES: Final = 10
_DELTA: Final = 1
_NO_VALUE_FLAG: Final = 1
_NUMBERS: Final = (5, 7)
_DISTRIBUTIONS: Final = (9, 10, 11)
_DOUBLE: Final = Struct("<d")
_LONG: Final = Struct("<q")

Attributes = tuple[tuple[str, str], ...]

# Number and kind of a field; then a varint's value, or where the others begin; and where they end.
_Field = tuple[int, int, int, int]


class NumberPoint(NamedTuple):
    """A number under a name; with `is_delta` it is the change of a sum since the last push."""

    name: str
    attributes: Attributes
    value: float
    is_delta: bool


class MetricsData(NamedTuple):
    """A push, as far as it is read, and how many of its numbers are not: of another form than a
    gauge or a sum, with too much text, or too many; those not even looked at count as one."""

    resource: Attributes
    points: list[NumberPoint]
    left_out: int


class _Reader:
    """One walk over the bytes of one `MetricsData`, as far as it may go."""

    def __init__(self, data: bytes, most_points: int) -> None:
        self._data: Final = data
        self._most_points: Final = most_points
        self.resource: Attributes = ()
        self.points: list[NumberPoint] = []
        self.left_out = 0
        self._fields_left = MOST_FIELDS

    def read(self) -> None:
        """Reads all of the bytes."""
        for number, kind, start, end in self._fields(0, len(self._data)):
            if number == 1 and kind == _BYTES:
                self._read_resource_metrics(start, end)
        if self._fields_left == 0:
            self.left_out += 1

    def _read_resource_metrics(self, start: int, end: int) -> None:
        for number, kind, begin, stop in self._fields(start, end):
            if number == 1 and kind == _BYTES:
                self.resource = self._attributes(begin, stop, 1)
            elif number == 2 and kind == _BYTES:
                for inner, inner_kind, first, last in self._fields(begin, stop):
                    if inner == 2 and inner_kind == _BYTES:
                        self._read_metric(first, last)

    def _read_metric(self, start: int, end: int) -> None:
        name = ""
        for number, kind, begin, stop in self._fields(start, end):
            if number == 1 and kind == _BYTES:
                name = self._text(begin, stop)
        # The name may follow the data that it names.
        for number, kind, begin, stop in self._fields(start, end):
            if kind == _BYTES and number in _NUMBERS:
                self._read_numbers(name, begin, stop)
            elif kind == _BYTES and number in _DISTRIBUTIONS:
                self.left_out += 1

    def _read_numbers(self, name: str, start: int, end: int) -> None:
        """Reads a gauge or a sum; only the latter says how its numbers follow one another."""
        is_delta = False
        for number, kind, begin, _ in self._fields(start, end):
            if number == 2 and kind == _VARINT:
                is_delta = begin == _DELTA
        for number, kind, begin, stop in self._fields(start, end):
            if number == 1 and kind == _BYTES:
                self._read_point(name, is_delta, begin, stop)

    def _read_point(self, name: str, is_delta: bool, start: int, end: int) -> None:
        value: float | None = None
        flags = 0
        for number, kind, begin, _ in self._fields(start, end):
            if number == 4 and kind == _FIXED64:
                value = _DOUBLE.unpack_from(self._data, begin)[0]
            elif number == 6 and kind == _FIXED64:
                value = float(_LONG.unpack_from(self._data, begin)[0])
            elif number == 8 and kind == _VARINT:
                flags = begin
        if value is None or flags & _NO_VALUE_FLAG:
            return
        attributes = self._attributes(start, end, 7)
        if self._fields_left == 0:
            return  # maybe in the middle of it
        is_kept = name and is_short(attributes, len(name)) and len(self.points) < self._most_points
        if is_kept:
            self.points.append(NumberPoint(name, attributes, value, is_delta))
        else:
            self.left_out += 1

    def _attributes(self, start: int, end: int, number_of_pairs: int) -> Attributes:
        """The pairs under a field's number, by key, but for those beyond one too many; of one key
        the last counts."""
        found: dict[str, str] = {}
        for number, kind, begin, stop in self._fields(start, end):
            if number == number_of_pairs and kind == _BYTES:
                key = text = ""
                for inner, inner_kind, first, last in self._fields(begin, stop):
                    if inner == 1 and inner_kind == _BYTES:
                        key = self._text(first, last)
                    elif inner == 2 and inner_kind == _BYTES:
                        text = self._value(first, last)
                if key in found or len(found) <= MOST_ATTRIBUTES:
                    found[key] = text
        return tuple(sorted(found.items()))

    def _value(self, start: int, end: int) -> str:
        """The text of an `AnyValue`; empty where it is a list, or bytes."""
        text = ""
        for number, kind, begin, stop in self._fields(start, end):
            if number == 1 and kind == _BYTES:
                text = self._text(begin, stop)
            elif number == 2 and kind == _VARINT:
                text = "true" if begin else "false"
            elif number == 3 and kind == _VARINT:
                text = str(begin - (1 << 64) if begin >= 1 << 63 else begin)
            elif number == 4 and kind == _FIXED64:
                text = repr(_DOUBLE.unpack_from(self._data, begin)[0])
        return text

    def _text(self, start: int, end: int) -> str:
        try:
            return self._data[start:end].decode()
        except UnicodeDecodeError:
            raise ProtocolError("text is not UTF-8", start) from None

    def _fields(self, start: int, end: int) -> Iterator[_Field]:
        """The fields of the message that lies there, while any may be looked at."""
        position = start
        while position < end and self._fields_left > 0:
            self._fields_left -= 1
            tag, position = self._varint(position, end)
            number, kind = tag >> 3, tag & 7
            if number == 0:
                raise ProtocolError("a field has the number 0", position)
            begin = position
            if kind == _VARINT:
                value, position = self._varint(position, end)
                yield number, kind, value, position
                continue
            if kind == _FIXED64:
                position += 8
            elif kind == _BYTES:
                size_bytes, begin = self._varint(position, end)
                position = begin + size_bytes
            elif kind == _FIXED32:
                position += 4
            else:
                raise ProtocolError(f"a field is of the unknown kind {kind}", position)
            if position > end:
                raise ProtocolError("a field is cut off", begin)
            yield number, kind, begin, position

    def _varint(self, position: int, end: int) -> tuple[int, int]:
        """The number that begins there, and where it ends."""
        value = 0
        for index in range(_MOST_VARINT_BYTES):
            if position + index >= end:
                raise ProtocolError("a number is cut off", position)
            byte = self._data[position + index]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value & 0xFFFFFFFFFFFFFFFF, position + index + 1
        raise ProtocolError("a number has more than ten bytes", position)


def is_short(attributes: Attributes, more: int = 0) -> bool:
    """Whether attributes are few and short enough to be kept, beside so many characters more."""
    text = sum(len(key) + len(value) for key, value in attributes)
    return len(attributes) <= MOST_ATTRIBUTES and text + more <= MOST_TEXT


def read_metrics(data: bytes, most_points: int) -> MetricsData:
    """Reads a push, up to so many numbers of it.

    Raises:
        ProtocolError: this is no `MetricsData`.
    """
    reader = _Reader(data, most_points)
    reader.read()
    return MetricsData(reader.resource, reader.points, reader.left_out)
