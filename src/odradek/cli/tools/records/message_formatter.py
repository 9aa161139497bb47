"""The flags of Kafka's message formatters, and how these write a record.

Keys and values are written as they are, bytes included.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Final

from odradek.cli.tools.connection import add_old_flag, read_properties
from odradek.cli.tools.records.internal_records import FORMATTERS, writer_of
from odradek.cli.tools.wording.java_names import simple_name
from odradek.cli.tools.wording.java_values import text_reader
from odradek.client.core.consuming.consumer_record import ConsumerRecord

_TIMESTAMP_TYPES: Final = {0: "CreateTime", 1: "LogAppendTime"}
_DEFAULT: Final = "DefaultMessageFormatter"
_NOTHING: Final = "NoOpMessageFormatter"
_FORMATTERS: Final = (_DEFAULT, "LoggingMessageFormatter", _NOTHING, *FORMATTERS)


def add_formatter(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    parser.add_argument("--formatter", default=_DEFAULT, metavar="CLASS")
    parser.add_argument("--formatter-property", action="append", default=[], metavar="K=V")
    add_old_flag(parser, "--property", "--formatter-property", action="append")
    parser.add_argument("--formatter-config", metavar="FILE")
    parser.add_argument("--key-deserializer", default="", metavar="CLASS")
    parser.add_argument("--value-deserializer", default="", metavar="CLASS")


def check_formatter(arguments: argparse.Namespace) -> None:
    """Ends the command if a flag names a class that does not exist here."""
    if simple_name(arguments.formatter) not in _FORMATTERS:
        arguments.parser.error(
            f"--formatter: there are no Java classes here, only {', '.join(_FORMATTERS)}"
        )


def formatter_of(arguments: argparse.Namespace) -> Callable[[ConsumerRecord], None]:
    """Returns the function that writes a record as the flags say."""
    properties: dict[str, str] = {}
    if arguments.formatter_config:
        properties = read_properties(arguments.formatter_config)
    for each in arguments.formatter_property:
        name, _, value = each.partition("=")
        properties[name.strip()] = value
    name = simple_name(arguments.formatter)
    if name == _NOTHING:
        return lambda _: None  # as its name says
    if name in FORMATTERS:
        return writer_of(name)
    return _Formatter(properties, arguments.key_deserializer, arguments.value_deserializer).write


def _reader_of(
    part: str, properties: Mapping[str, str], class_name: str = ""
) -> Callable[[bytes], bytes]:
    """Returns the function that prints a key or value as its deserializer does. As in Kafka, if
    there is no such class, bytes are printed as they are, with a message.
    """
    name = f"{part}.deserializer"
    kind = "key" if part == "key" else "value"
    of_all = properties.get(f"{name}.deserializer.encoding", "")
    encoding = properties.get(f"{name}.{kind}.deserializer.encoding", of_all)
    class_name = properties.get(name, class_name)
    try:
        return text_reader(class_name, encoding)
    except LookupError:
        print(f"Unable to instantiate a deserializer from {class_name}", file=sys.stderr)
        return bytes


class _Formatter:
    """Writes a record as Kafka's default formatter does."""

    def __init__(self, properties: dict[str, str], key_class: str, value_class: str) -> None:
        def flag(name: str, default: bool = False) -> bool:
            return properties.get(name, str(default)).strip().lower() == "true"

        def text(name: str, default: str) -> bytes:
            return properties.get(name, default).encode()

        self._prints = {
            part: flag(f"print.{part}", part == "value")
            for part in (
                "timestamp",
                "partition",
                "offset",
                "delivery",
                "epoch",
                "headers",
                "key",
                "value",
            )
        }
        self._key_separator = text("key.separator", "\t")
        self._line_separator = text("line.separator", "\n")
        self._headers_separator = text("headers.separator", ",")
        self._null = text("null.literal", "null")
        self._key = _reader_of("key", properties, key_class)
        self._value = _reader_of("value", properties, value_class)
        self._header = _reader_of("headers", properties)

    def write(self, record: ConsumerRecord) -> None:
        """Writes one record."""
        parts: list[bytes] = []
        if self._prints["timestamp"]:
            kind = _TIMESTAMP_TYPES.get(record.timestamp_type)
            shown = "NO_TIMESTAMP" if record.timestamp < 0 else f"{kind}:{record.timestamp}"
            parts.append(shown.encode())
        if self._prints["partition"]:
            parts.append(b"Partition:%d" % record.partition)
        if self._prints["offset"]:
            parts.append(b"Offset:%d" % record.offset)
        if self._prints["delivery"]:
            count = record.delivery_count
            parts.append(b"Delivery:NOT_PRESENT" if count is None else b"Delivery:%d" % count)
        if self._prints["epoch"]:
            # As Kafka's tool has it, which does not hand the epoch of a record to its formatter.
            parts.append(b"Epoch:NOT_PRESENT")
        if self._prints["headers"]:
            parts.append(self._headers(record))
        if self._prints["key"]:
            parts.append(self._null if record.key is None else self._key(record.key))
        if self._prints["value"]:
            parts.append(self._null if record.value is None else self._value(record.value))
        if parts:  # a record of which nothing is shown has no line either
            sys.stdout.buffer.write(self._key_separator.join(parts) + self._line_separator)

    def _headers(self, record: ConsumerRecord) -> bytes:
        if not record.headers:
            return b"NO_HEADERS"
        return self._headers_separator.join(
            name.encode() + b":" + (self._null if value is None else self._header(value))
            for name, value in record.headers
        )
