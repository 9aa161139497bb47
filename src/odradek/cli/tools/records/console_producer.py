"""`odradek console-producer`: sends lines of input, as `kafka-console-producer.sh` does."""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from typing import Final

from odradek.cli.standard_input import read_lines
from odradek.cli.terminal import tell
from odradek.cli.tools.client_properties import partitioner_of
from odradek.cli.tools.connection import (
    WARNING,
    add_connection,
    add_old_flag,
    check_host_and_port,
    check_socket_buffer,
    client_config,
    given_properties,
    read_properties,
    require,
    run_async,
    take_old_flags,
)
from odradek.cli.tools.records.line_reader import LineReader
from odradek.cli.tools.records.undelivered import Undelivered
from odradek.cli.tools.wording.java_names import simple_name
from odradek.cli.tools.wording.java_values import java_int, java_long
from odradek.client import Producer
from odradek.client.record_metadata import RecordMetadata
from odradek.client.settings import PRODUCER_SETTINGS
from odradek.errors import text_of

_TOGETHER: Final = "Options --{1} and --{0} cannot be specified together."
_LINE_READER: Final = "LineMessageReader"
_CODEC: Final = "gzip"
# The property by which a line reader may choose another topic.
_TOPIC: Final = "topic"
# Flags that set settings, each with the default of Kafka's tool.
_SETTINGS: Final[tuple[tuple[str, str, Callable[[str], object], str], ...]] = (
    ("--batch-size", "batch.size", java_int, "16384"),
    ("--timeout", "linger.ms", java_long, "1000"),
    ("--request-required-acks", "acks", str, "-1"),
    ("--request-timeout-ms", "request.timeout.ms", java_int, "1500"),
    ("--message-send-max-retries", "retries", java_int, "3"),
    ("--retry-backoff-ms", "retry.backoff.ms", java_long, "100"),
    ("--max-block-ms", "max.block.ms", java_long, "60000"),
    ("--max-memory-bytes", "buffer.memory", java_long, "33554432"),
    ("--metadata-expiry-ms", "metadata.max.age.ms", java_long, "300000"),
)


class _Deprecated(argparse.Action):
    """A flag under its old name; `const` is the warning about it."""

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        _option_string: str | None = None,
    ) -> None:
        """The flag was given."""
        print(self.const)
        setattr(namespace, self.dest, values)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(
        parser,
        old_config_flag="--producer.config",
        old_property_flag="--producer-property",
        deprecation=WARNING,
        together=_TOGETHER,
    )
    parser.add_argument("--topic", metavar="NAME")
    parser.add_argument("--sync", action="store_true", help="wait for each record")
    parser.add_argument("--compression-codec", nargs="?", const=_CODEC, metavar="CODEC")
    for flag, name, kind, default in _SETTINGS:
        help_text = f"{name} (default: {default})"
        parser.add_argument(flag, dest=name, type=kind, default=None, help=help_text)
    parser.add_argument(
        "--max-partition-memory-bytes",
        action=_Deprecated,
        dest="batch.size",
        type=java_int,
        const="Warning: --max-partition-memory-bytes is deprecated and will be removed in Apache "
        "Kafka 5.0. Use --batch-size instead.",
        help=argparse.SUPPRESS,
    )
    parser.add_argument("--socket-buffer-size", type=java_int, help=argparse.SUPPRESS)
    parser.add_argument("--line-reader", default=_LINE_READER, help=argparse.SUPPRESS)
    parser.add_argument("--reader-property", action="append", default=[], metavar="K=V")
    add_old_flag(
        parser,
        "--property",
        "--reader-property",
        text=WARNING,
        together=_TOGETHER,
        action="append",
    )
    parser.add_argument("--reader-config", metavar="FILE")


def run(arguments: argparse.Namespace) -> int:
    """Sends every line; 1 if one was not delivered."""
    require(arguments, "topic")
    if arguments.bootstrap_server is None:
        arguments.parser.error("Error while validating the bootstrap address")
    check_host_and_port(arguments)
    take_old_flags(arguments)
    if simple_name(arguments.line_reader) != _LINE_READER:
        arguments.parser.error(
            f"--line-reader: there are no Java classes here, only {_LINE_READER}, the default"
        )

    async def work() -> int:
        properties = _reader_properties(arguments)
        reader = LineReader(properties)
        undelivered = Undelivered()
        failed = False

        def delivered(delivery: asyncio.Future[RecordMetadata]) -> None:
            nonlocal failed
            if not delivery.cancelled() and (error := delivery.exception()) is not None:
                failed = True
                tell(f"not delivered: {text_of(error)}")

        config = _config(arguments)
        partitioner = partitioner_of(given_properties(arguments))
        async with Producer(config=config, partitioner=partitioner) as producer:
            with undelivered.told():
                async for number, line in _lines():
                    each = reader.read(number, line)
                    delivery = await producer.send(
                        properties[_TOPIC], each.value, key=each.key, headers=each.headers
                    )
                    undelivered.add(delivery)
                    delivery.add_done_callback(delivered)
                    if arguments.sync:
                        await asyncio.wait([delivery])
                await producer.flush()
                await asyncio.sleep(0)  # the last callbacks
        return 1 if failed else 0

    return run_async(work, lambda error: print(text_of(error), file=sys.stderr), shows_log=True)


def _config(arguments: argparse.Namespace) -> dict[str, object]:
    config = client_config(arguments, PRODUCER_SETTINGS)
    check_socket_buffer("send.buffer.bytes", arguments.socket_buffer_size)
    for _, name, _, default in _SETTINGS:
        given = getattr(arguments, name)
        if given is not None:
            config[name] = given
        else:
            config.setdefault(name, default)
    if arguments.compression_codec is not None:
        config["compression.type"] = arguments.compression_codec or _CODEC
    config.setdefault("client.id", "console-producer")
    return config


def _reader_properties(arguments: argparse.Namespace) -> dict[str, str]:
    properties: dict[str, str] = {}
    if arguments.reader_config:
        properties = read_properties(arguments.reader_config)
    properties[_TOPIC] = arguments.topic
    for each in arguments.reader_property:
        name, _, value = each.partition("=")
        properties[name.strip()] = value
    return properties


async def _lines() -> AsyncIterator[tuple[int, bytes]]:
    """The lines of standard input with their numbers; a prompt before each on a terminal. A line
    ends as for Java: with CR, LF or both."""
    prompt = (lambda: print(">", end="", flush=True)) if sys.stdin.isatty() else None
    number = 0
    async for text in read_lines(sys.stdin.fileno(), before=prompt):
        for line in text.removesuffix(b"\r").split(b"\r"):
            number += 1
            yield number, line
