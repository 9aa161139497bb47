"""Metrics in OTLP's Protobuf, as clients push them; and as they should not."""

import struct

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
GAUGE, SUM = 5, 7
DELTA, CUMULATIVE = 1, 2


def varint(number):
    out = bytearray()
    number &= (1 << 64) - 1
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes((number,))


def field(number, kind, content):
    """A field; the content of one of kind BYTES gets its length."""
    if kind == VARINT:
        content = varint(content)
    elif kind == BYTES:
        content = content.encode() if isinstance(content, str) else content
        content = varint(len(content)) + content
    return varint(number << 3 | kind) + content


def value(of):
    """An `AnyValue`."""
    if isinstance(of, bool):
        return field(2, VARINT, of)
    if isinstance(of, int):
        return field(3, VARINT, of)
    if isinstance(of, float):
        return field(4, FIXED64, struct.pack("<d", of))
    return field(1, BYTES, of)


def attributes(number, pairs):
    return b"".join(
        field(number, BYTES, field(1, BYTES, key) + field(2, BYTES, value(of)))
        for key, of in pairs.items()
    )


def point(number, pairs=None, flags=0):
    if isinstance(number, float):
        content = field(4, FIXED64, struct.pack("<d", number))
    else:
        content = field(6, FIXED64, struct.pack("<q", number))
    times = field(2, FIXED64, bytes(8)) + field(3, FIXED64, bytes(8))
    return times + content + attributes(7, pairs or {}) + field(8, VARINT, flags)


def gauge(name, *points):
    return field(1, BYTES, name) + field(
        GAUGE, BYTES, b"".join(field(1, BYTES, each) for each in points)
    )


def total(name, *points, temporality=DELTA):
    content = b"".join(field(1, BYTES, each) for each in points)
    content += field(2, VARINT, temporality) + field(3, VARINT, 1)
    return field(1, BYTES, name) + field(2, BYTES, "what it is") + field(SUM, BYTES, content)


def pushed(*metrics, resource=None):
    """A `MetricsData`."""
    scope = field(1, BYTES, field(1, BYTES, "library"))
    scope += b"".join(field(2, BYTES, each) for each in metrics)
    content = field(1, BYTES, attributes(1, resource or {})) + field(2, BYTES, scope)
    return field(1, BYTES, content)
