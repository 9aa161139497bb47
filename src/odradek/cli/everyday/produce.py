"""`odradek produce`: sends lines, JSON objects or whole files as records.

`--input json` takes the output of `consume --format json`: key, value, headers, timestamp and
partition are kept, unless a flag says otherwise.
"""

import argparse
import asyncio
import base64
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from odradek.cli.arguments import natural_number
from odradek.cli.everyday.flags import add_connection, settings_of
from odradek.cli.everyday.json_paths import Path as JsonPath
from odradek.cli.everyday.json_paths import parse_json, parse_path, values_at
from odradek.cli.everyday.words import counted
from odradek.cli.standard_input import read_lines
from odradek.cli.terminal import tell
from odradek.cli.tools.client_properties import partitioner_of
from odradek.cli.tools.connection import (
    given_properties,
    print_json,
    run_async,
    silent_clients,
)
from odradek.cli.tools.records.undelivered import Undelivered
from odradek.client import Producer
from odradek.client.record_metadata import RecordMetadata
from odradek.client.settings import PRODUCER_SETTINGS
from odradek.errors import text_of
from odradek.system_calls import OPEN_FLAGS

_STDIN: Final = "-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(parser)
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "file",
        nargs="*",
        default=[_STDIN],
        metavar="FILE",
        help="the file to read (default: -, stdin)",
    )
    parser.add_argument(
        "-i",
        "--input",
        choices=("lines", "json", "files"),
        default="lines",
        help="a record a line, a JSON object a line as `consume --format json` prints them, or "
        "a record a file (default: lines)",
    )
    parser.add_argument("-K", "--key-separator", metavar="TEXT", help="lines are KEY TEXT VALUE")
    key = parser.add_mutually_exclusive_group()
    key.add_argument("-k", "--key", metavar="KEY", help="the key of every record")
    key.add_argument(
        "--key-from", metavar="PATH", help="the key is in the value's JSON, as .user.id"
    )
    parser.add_argument(
        "-H", "--header", action="append", default=[], metavar="NAME=VALUE", help="on every record"
    )
    parser.add_argument("-p", "--partition", type=natural_number, metavar="N")
    parser.add_argument(
        "-z", "--compression", choices=("none", "gzip", "snappy", "lz4", "zstd"), metavar="CODEC"
    )
    parser.add_argument("-Z", "--null", action="store_true", help="an empty value is null")
    parser.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="nothing but errors, or an object with the place of each record (default: text)",
    )


class _Record(NamedTuple):
    """A record to send."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def run(arguments: argparse.Namespace) -> int:
    """Sends all input; 1 when a record was not delivered."""
    if arguments.key_separator is not None and arguments.input != "lines":
        arguments.parser.error("--key-separator is for --input lines")
    try:
        shape = _Shape(arguments)
    except ValueError as error:
        arguments.parser.error(str(error))

    async def work() -> int:
        config = settings_of(arguments, PRODUCER_SETTINGS)
        config.setdefault("client.id", "odradek-produce")
        config.setdefault("max.block.ms", "10000")
        if arguments.compression is not None:
            config["compression.type"] = arguments.compression
        deliveries, undelivered = _Deliveries(arguments.format == "json"), Undelivered()
        partitioner = partitioner_of(given_properties(arguments))
        with silent_clients("odradek.client.aio"), ExitStack() as at_first:
            at_first.enter_context(silent_clients())
            async with Producer(config=config, partitioner=partitioner) as producer:
                with undelivered.told():
                    async for record in _records(arguments, shape):
                        delivery = await producer.send(arguments.topic, **record._asdict())
                        # A broker was there: what it refuses now is tried again for two minutes.
                        at_first.close()
                        deliveries.add(delivery)
                        undelivered.add(delivery)
                    await producer.flush()
                    await asyncio.sleep(0)  # the last callbacks
        if sys.stderr.isatty():
            sent = counted(deliveries.delivered, "record")
            print(f"{sent} sent to {arguments.topic}", file=sys.stderr)
        return 1 if deliveries.failed else 0

    return run_async(work, lambda error: tell(text_of(error)), shows_log=True)


class _Deliveries:
    """Counts delivered and failed records, and prints their offsets."""

    def __init__(self, prints: bool) -> None:
        self._prints = prints
        self.delivered = self.failed = 0

    def add(self, delivery: "asyncio.Future[RecordMetadata]") -> None:
        """Sees to one."""
        delivery.add_done_callback(self._done)

    def _done(self, delivery: "asyncio.Future[RecordMetadata]") -> None:
        if delivery.cancelled():
            return
        error = delivery.exception()
        if error is not None:
            self.failed += 1
            if self.failed == 1:  # the others fail for the same reason, as a rule
                tell(f"not delivered: {text_of(error)}")
            return
        self.delivered += 1
        if self._prints:
            print_json(delivery.result()._asdict())


async def _records(arguments: argparse.Namespace, shape: "_Shape") -> AsyncIterator[_Record]:
    for name in arguments.file:
        if arguments.input == "files":
            data = sys.stdin.buffer.read() if name == _STDIN else Path(name).read_bytes()
            yield shape.of_value(data)
            continue
        descriptor = (
            sys.stdin.fileno() if name == _STDIN else os.open(name, os.O_RDONLY | OPEN_FLAGS)
        )
        number = 0
        try:
            async for line in read_lines(descriptor):
                number += 1
                try:
                    yield shape.of_line(line)
                except ValueError as error:
                    where = "" if name == _STDIN else f"{name}, "
                    raise ValueError(f"{where}line {number}: {error}") from None
        except OSError as error:
            raise OSError(error.errno, error.strerror, name) from error
        finally:
            if name != _STDIN:
                os.close(descriptor)


class _Shape:
    """Makes records from the input, as the flags say."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Reads the flags.

        Raises:
            ValueError: one is not a header or not a path.
        """
        self._is_json = arguments.input == "json"
        self._key = None if arguments.key is None else os.fsencode(arguments.key)
        separator = arguments.key_separator
        self._separator = None if separator is None else _unescaped(separator)
        path = arguments.key_from
        self._key_path: JsonPath | None = None if path is None else parse_path(path)
        self._headers = tuple(map(_header, arguments.header))
        self._partition: int | None = arguments.partition
        self._empty_is_null: bool = arguments.null

    def of_line(self, line: bytes) -> _Record:
        """Returns the record of a line.

        Raises:
            ValueError: the line is malformed.
        """
        line = line.removesuffix(b"\r")
        if self._is_json:
            return self._of_json(parse_json(line))
        key = None
        if self._separator is not None:
            key, found, line = line.partition(self._separator)
            if not found:
                raise ValueError("there is no key separator")
        return self.of_value(line, key)

    def of_value(self, value: bytes | None, key: bytes | None = None) -> _Record:
        """Returns the record of a value and, perhaps, its key.

        Raises:
            ValueError: the value lacks the key that should be taken from it.
        """
        if value == b"" and self._empty_is_null:
            value = None
        return _Record(value, self._key_of(value, key), self._headers, self._partition)

    def _of_json(self, given: Any) -> _Record:
        if not isinstance(given, dict):
            raise ValueError("this is no JSON object with a key and a value")
        record = self.of_value(_data(given, "value"), _data(given, "key"))
        headers = tuple(map(_header_of_json, _list_of(given, "headers")))
        partition = given.get("partition") if self._partition is None else self._partition
        timestamp_ms = given.get("timestamp")
        for number in (partition, timestamp_ms):
            if number is not None and (type(number) is not int or number.bit_length() > 63):
                raise ValueError(f"{number!r} is no number of 64 bits")
        return record._replace(
            headers=headers + self._headers, partition=partition, timestamp_ms=timestamp_ms
        )

    def _key_of(self, value: bytes | None, key: bytes | None) -> bytes | None:
        if self._key is not None:
            return self._key
        if self._key_path is None:
            return key
        found = next(values_at(parse_json(value or b"null"), self._key_path), None)
        if found is None:
            raise ValueError("the value has no such key")
        return _json_bytes(found)


def _list_of(given: dict[str, Any], name: str) -> list[Any]:
    found = given.get(name)
    if not isinstance(found, list | None):
        raise ValueError(f"{name} is no list")
    return found or []


def _header_of_json(given: Any) -> tuple[str, bytes | None]:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise ValueError("a header is no JSON object with a name and a value")
    return given["name"], _data(given, "value")


def _data(given: dict[str, Any], name: str) -> bytes | None:
    encoded = given.get(f"{name}_base64")
    if encoded is not None:
        if not isinstance(encoded, str):
            raise ValueError(f"{name}_base64 is no text")
        return base64.b64decode(encoded, validate=True)
    return None if given.get(name) is None else _json_bytes(given[name])


def _json_bytes(value: Any) -> bytes:
    """Returns text as it is, and everything else as compact JSON."""
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is no header: NAME=VALUE")
    return name, os.fsencode(value)


def _unescaped(text: str) -> bytes:
    return text.replace("\\t", "\t").replace("\\n", "\n").encode()
