"""Formats of `consume`: a line for people, JSON, or the user's own.

A format is text with fields, as kcat and rpk have them:

    %t topic      %p partition   %o offset    %e leader epoch
    %k key        %v value (%s)  %h headers (name=value,..)
    %K, %V (%S)   their lengths in bytes, -1 for null;  %H how many headers
    %T timestamp in milliseconds             %d as date and time, or %d{%H:%M:%S}
    %%  \\n  \\t  \\r  \\0  \\\\  \\x1e

A key or a value may be shown in another form: %k{hex}, %v{base64}, %v{json} (indented), %k{int} (a
big-endian number). A null is shown as nothing.
"""

import base64
import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Final

from odradek.cli.terminal import CYAN, DIM, painted
from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.log_limit import without_control
from odradek.tables.named_text import named_text

RecordFormat = Callable[[ConsumerRecord], bytes]
_TOKEN: Final = re.compile(
    r"%(?P<field>[a-zA-Z%])(?:\{(?P<how>[^}]*)\})?|\\(?P<escape>x[0-9a-fA-F]{2}|.)", re.DOTALL
)
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_SIMPLE: Final[dict[str, Callable[[ConsumerRecord], object]]] = {
    "t": lambda record: record.topic,
    "p": lambda record: record.partition,
    "o": lambda record: record.offset,
    "e": lambda record: record.leader_epoch,
    "T": lambda record: record.timestamp,
    "K": lambda record: _length(record.key),
    "V": lambda record: _length(record.value),
    "S": lambda record: _length(record.value),
    "H": lambda record: len(record.headers),
}


def parse_format(text: str) -> RecordFormat:
    """Reads a format.

    Raises:
        ValueError: it has a field or an escape that is not listed above.
    """
    pieces: list[RecordFormat] = []
    position = 0
    for token in _TOKEN.finditer(text):
        pieces.append(_constant(text[position : token.start()].encode()))
        pieces.append(_piece(token))
        position = token.end()
    rest = text[position:]
    if rest.endswith(("%", "\\")):
        raise ValueError(f"the format ends within {rest[-1]!r}")
    pieces.append(_constant(rest.encode()))
    return lambda record: b"".join(piece(record) for piece in pieces)


def _constant(data: bytes) -> RecordFormat:
    return lambda _: data


def _piece(token: re.Match[str]) -> RecordFormat:
    field, how, escape = token["field"], token["how"], token["escape"]
    if escape is not None:
        if escape[0] == "x" and len(escape) == 3:
            return _constant(bytes.fromhex(escape[1:]))
        if escape not in _ESCAPES:
            raise ValueError(f"there is no escape \\{escape}")
        return _constant(_ESCAPES[escape])
    if field == "%":
        return _constant(b"%")
    if field in "kvs":
        show = _shower(how)
        if field == "k":
            return lambda record: show(record.key)
        return lambda record: show(record.value)
    if field == "h":
        return lambda record: b",".join(
            name.encode() + b"=" + (value or b"") for name, value in record.headers
        )
    if field == "d":
        return lambda record: _moment(record.timestamp, how).encode()
    if field not in _SIMPLE:
        raise ValueError(f"there is no field %{field}")
    simple = _SIMPLE[field]
    return lambda record: str(simple(record)).encode()


def _shower(how: str | None) -> Callable[[bytes | None], bytes]:
    showers: dict[str | None, Callable[[bytes], bytes]] = {
        None: bytes,
        "hex": lambda data: data.hex().encode(),
        "base64": base64.b64encode,
        "json": _indented,
        "int": lambda data: str(int.from_bytes(data, "big", signed=True)).encode(),
    }
    if how not in showers:
        raise ValueError(f"a key or value can be shown as hex, base64, json or int, not as {how!r}")
    shower = showers[how]
    return lambda data: b"" if data is None else shower(data)


def _indented(data: bytes) -> bytes:
    try:
        return json.dumps(json.loads(data), indent=2, ensure_ascii=False).encode()
    except (ValueError, RecursionError):  # no JSON, or deeper than can be read
        return data


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _moment(timestamp_ms: int, how: str | None) -> str:
    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)  # a clock far from ours
    return moment.strftime(how) if how else moment.isoformat("T", "milliseconds")


# --- without a format ---------------------------------------------------------------------------


def line_for_people(*, shows_topic: bool, colours: bool) -> RecordFormat:
    """Returns `[topic ]partition@offset time key value`."""

    def show(record: ConsumerRecord) -> bytes:
        topic = f"{record.topic} " if shows_topic else ""
        moment = _moment(record.timestamp, "%Y-%m-%d %H:%M:%S")
        place = f"{topic}{record.partition}@{record.offset} {moment}"
        key = "-" if record.key is None else _printable(record.key)
        value = "null" if record.value is None else _printable(record.value)
        headers = "".join(
            f" {without_control(name)}={'' if data is None else _printable(data)}"
            for name, data in record.headers
        )
        if colours:
            place, key = painted(place + headers, DIM), painted(key, CYAN)
            return f"{place} {key} {value}\n".encode()
        return f"{place}{headers} {key} {value}\n".encode()

    return show


def _printable(data: bytes) -> str:
    """Returns text as it is, with control characters as escapes."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "0x" + data.hex()
    return without_control(text)


def json_line(record: ConsumerRecord) -> bytes:
    """Writes a record as the JSON object that `produce --input json` takes; bytes that are not text
    are in base64."""
    shown = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **named_text("key", record.key),
        **named_text("value", record.value),
        "headers": [{"name": name, **named_text("value", data)} for name, data in record.headers],
    }
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
