"""Values as Java reads and writes them: numbers, dates, and the `toString` of deserialized bytes of
a record."""

import argparse
import codecs
import re
import struct
from collections.abc import Callable
from datetime import datetime
from typing import Final
from uuid import UUID

from odradek.cli.tools.wording.java_names import simple_name

_INTEGERS: Final = {"Long": 8, "Integer": 4, "Short": 2}
_FLOATS: Final = {"Double": ">d", "Float": ">f"}
# The mark of the byte order; without it Java reads the highest byte first.
_ENDIAN: Final = {
    "utf-16": (codecs.BOM_UTF16_BE, codecs.BOM_UTF16_LE),
    "utf-32": (codecs.BOM_UTF32_BE, codecs.BOM_UTF32_LE),
}
# The bounds from which on Java writes floating-point numbers with an exponent.
_PLAIN_FROM: Final = 1e-3
_PLAIN_BELOW: Final = 1e7

_DATE_LETTERS: Final[dict[str, Callable[[datetime], int]]] = {
    "y": lambda moment: moment.year,
    "M": lambda moment: moment.month,
    "d": lambda moment: moment.day,
    "H": lambda moment: moment.hour,
    "m": lambda moment: moment.minute,
    "s": lambda moment: moment.second,
    "S": lambda moment: moment.microsecond // 1000,
}
_DATE_PARTS: Final = re.compile(r"'[^']*'|y+|M+|d+|H+|m+|s+|S+|[A-Za-z]|[^A-Za-z']+")
_NUMBER: Final = re.compile(r"[+-]?[0-9]+")
# For a pattern of dates.
_JAVA_LETTERS: Final = frozenset("GyYMLwWDdFEuaHkKhmsSzZX")
_PRINTABLE: Final = re.compile(rb"[ -~]")


def java_int(text: str) -> int:
    """Reads a 32-bit integer.

    Raises:
        ValueError: the text is not one, in Java's words.
    """
    return _number(text, 32)


def java_long(text: str) -> int:
    """Reads a 64-bit integer.

    Raises:
        ValueError: the text is not one, in Java's words.
    """
    return _number(text, 64)


def converted(kind: str) -> Callable[[str], int]:
    """Reads a `Short`, an `Integer` or a `Long`; refuses others in the words of the argument parser
    of some of Kafka's tools."""
    bits = {"Short": 16, "Integer": 32, "Long": 64}[kind]

    def read(text: str) -> int:
        try:
            return _number(text, bits)
        except ValueError as error:
            raise argparse.ArgumentTypeError(
                f"could not convert '{text}' to {kind} ({error})"
            ) from None

    return read


def _number(text: str, bits: int) -> int:
    bound = 1 << bits - 1
    if not _NUMBER.fullmatch(text) or not -bound <= int(text) < bound:
        raise ValueError(f'For input string: "{text}"')
    return int(text)


def text_reader(class_name: str, encoding: str = "") -> Callable[[bytes], bytes]:
    """Returns the function that prints as a deserializer does; `encoding` is that of text.

    The reader raises ValueError for bytes that its deserializer refuses.

    Raises:
        LookupError: there is no such class, or no such encoding.
    """
    kind = simple_name(class_name).removesuffix("Deserializer")
    if kind in _INTEGERS:
        return _sized(kind, _INTEGERS[kind], _integer)
    if kind in _FLOATS:
        layout = _FLOATS[kind]
        digits = 17 if kind == "Double" else 9
        size = struct.calcsize(layout)
        return _sized(kind, size, lambda data: java_float(struct.unpack(layout, data)[0], digits))
    if kind == "String" and encoding:
        return _text_in(encoding)
    return _OTHERS[kind]


def _text_in(encoding: str) -> Callable[[bytes], bytes]:
    b"".decode(encoding)  # which not every codec can do
    name = codecs.lookup(encoding).name

    def read(data: bytes) -> bytes:
        is_unmarked = name in _ENDIAN and not data.startswith(_ENDIAN[name])
        return data.decode(f"{name}-be" if is_unmarked else name, "replace").encode()

    return read


def _sized(kind: str, size: int, text: Callable[[bytes], str]) -> Callable[[bytes], bytes]:
    def read(data: bytes) -> bytes:
        if len(data) != size:
            raise ValueError(
                f"Size of data received by {kind}Deserializer is not {size}, but {len(data)}"
            )
        return text(data).encode()

    return read


def _integer(data: bytes) -> str:
    return str(int.from_bytes(data, "big", signed=True))


def java_float(value: float, most_digits: int) -> str:
    """Formats a number as Java does, in the fewest digits that identify it: `1.0E10`, `0.001`."""
    if value != value or value in (float("inf"), float("-inf")):
        return "NaN" if value != value else f"{'-' if value < 0 else ''}Infinity"
    layout = ">d" if most_digits == 17 else ">f"
    shortest = next(
        text
        for digits in range(most_digits)
        if struct.pack(layout, float(text := f"{value:.{digits}e}")) == struct.pack(layout, value)
    )
    mantissa, _, exponent = shortest.partition("e")
    if value == 0 or _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        plain = f"{float(shortest):f}" if value == 0 else _plain(mantissa, int(exponent))
        return plain if value else plain.replace(".000000", ".0")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


def _plain(mantissa: str, exponent: int) -> str:
    sign = "-" if mantissa.startswith("-") else ""
    digits = mantissa.lstrip("-").replace(".", "")
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    whole, rest = digits[: exponent + 1].ljust(exponent + 1, "0"), digits[exponent + 1 :]
    return f"{sign}{whole}.{rest or '0'}"


def java_date(pattern: str) -> Callable[[datetime], str]:
    """Returns the function that formats times by a Java pattern of the letters y M d H m s S, and
    text.

    Raises:
        ValueError: the pattern has other letters.
    """
    if pattern.count("'") % 2:
        raise ValueError("Unterminated quote")
    parts = _DATE_PARTS.findall(pattern)

    def part_of(part: str, moment: datetime) -> str:
        if part[0] not in _DATE_LETTERS:
            return part.strip("'") or "'"
        number = _DATE_LETTERS[part[0]](moment)
        if part[0] == "y" and len(part) == 2:
            number %= 100
        return str(number).zfill(len(part))

    for part in parts:
        if part[0].isalpha() and part[0] not in _DATE_LETTERS:
            if part[0] not in _JAVA_LETTERS:
                raise ValueError(f"Illegal pattern character '{part[0]}'")
            known = " ".join(_DATE_LETTERS)
            raise ValueError(f"{part[0]!r} in {pattern!r} is none of {known}")
    return lambda moment: "".join(part_of(part, moment) for part in parts)


def _uuid(data: bytes) -> bytes:
    try:
        return str(UUID(data.decode())).encode()
    except ValueError:
        raise ValueError(f"Error parsing data into UUID: {data!r}") from None


def _boolean(data: bytes) -> bytes:
    if data not in (b"\0", b"\1"):
        raise ValueError(f"Unexpected byte received by BooleanDeserializer: {data!r}")
    return b"true" if data == b"\1" else b"false"


def _void(data: bytes) -> bytes:
    raise ValueError(f"Data should be null for a VoidDeserializer, and is {len(data)} bytes")


def _escaped(data: bytes) -> bytes:
    """Printable ASCII as it is, all else as `\\x00`."""
    return b"".join(
        bytes((byte,)) if _PRINTABLE.match(bytes((byte,))) else b"\\x%02X" % byte for byte in data
    )


_OTHERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    **dict.fromkeys(("", "String", "ByteArray", "ByteBuffer"), bytes),
    "Boolean": _boolean,
    "Bytes": _escaped,
    "UUID": _uuid,
    "Void": _void,
}
