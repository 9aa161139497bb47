"""`odradek producer-perf-test`: measures how fast records are written, as
`kafka-producer-perf-test.sh` does.
"""

import argparse
import asyncio
import contextlib
import random
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Final
from uuid import uuid4

from odradek.cli.tools.client_properties import partitioner_of
from odradek.cli.tools.connection import (
    HAS_BEEN_DEPRECATED,
    add_old_flag,
    client_config,
    given_properties,
    is_given,
    refuse_zookeeper,
    run_async,
    take_old_flags,
)
from odradek.cli.tools.wording.java_values import converted
from odradek.cli.tools.wording.metrics import print_metrics
from odradek.client import Producer
from odradek.client.record_metadata import RecordMetadata
from odradek.client.settings import PRODUCER_SETTINGS
from odradek.errors import text_of

_TRANSACTION_MS: Final = 3000
_LETTERS: Final = bytes(range(65, 91))
_MIB: Final = 1024 * 1024
_PAYLOADS: Final = ("record-size", "payload-file", "payload-monotonic")
# The flags that may name the brokers.
_WITH_BROKERS: Final = (
    "bootstrap-server",
    "command-property",
    "producer-props",
    "producer.config",
    "command-config",
)
_TOGETHER: Final = "--{1} and --{0} cannot be specified together."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("--topic", metavar="NAME")
    parser.add_argument("--num-records", type=converted("Long"), metavar="N")
    payload = parser.add_mutually_exclusive_group()
    payload.add_argument("--record-size", type=converted("Integer"), metavar="BYTES")
    payload.add_argument("--payload-file", metavar="FILE")
    payload.add_argument("--payload-monotonic", action="store_true")
    parser.add_argument("--payload-delimiter", default="\\n", metavar="TEXT")
    parser.add_argument("--throughput", type=_double, metavar="N", help="records a second; -1: any")
    parser.add_argument("--bootstrap-server", default="", metavar="HOST:PORT[,..]")
    parser.add_argument("--command-property", nargs="+", action="extend", default=[], metavar="K=V")
    parser.add_argument("--command-config", metavar="FILE")
    add_old_flag(
        parser,
        "--producer-props",
        "--command-property",
        text=HAS_BEEN_DEPRECATED,
        together=_TOGETHER,
        action="extend",
        nargs="+",
    )
    add_old_flag(
        parser,
        "--producer.config",
        "--command-config",
        text=HAS_BEEN_DEPRECATED,
        together=_TOGETHER,
    )
    refuse_zookeeper(parser)
    parser.add_argument("--transactional-id", metavar="ID")
    parser.add_argument("--transaction-duration-ms", type=converted("Long"), metavar="MS")
    parser.add_argument(
        "--warmup-records",
        type=converted("Long"),
        default=0,
        metavar="N",
        help="what the line about the steady state leaves out at the beginning",
    )
    parser.add_argument("--reporting-interval", type=converted("Long"), default=5000, metavar="MS")
    parser.add_argument("--print-metrics", action="store_true", help="print totals at the end")


def run(arguments: argparse.Namespace) -> int:
    """Sends, and prints statistics from time to time and at the end."""
    _check(arguments)
    take_old_flags(arguments)

    async def work() -> int:
        for pair in arguments.command_property:
            if len([part for part in pair.split("=") if part]) != 2:
                raise ValueError(f"Invalid property: {pair}")
        config = client_config(arguments, PRODUCER_SETTINGS)
        if arguments.transactional_id:
            config["transactional.id"] = arguments.transactional_id
        elif arguments.transaction_duration_ms:
            config.setdefault("transactional.id", f"performance-producer-{uuid4()}")
        config.setdefault("client.id", "perf-producer-client")
        partitioner = partitioner_of(given_properties(arguments))
        async with Producer(config=config, partitioner=partitioner) as producer:
            sent = await _send(producer, arguments, "transactional.id" in config)
        if arguments.print_metrics:
            totals = {"record-error-total": 0, "record-send-total": sent}
            print_metrics("producer-metrics", str(config["client.id"]), {arguments.topic: totals})
        return 0

    return run_async(work, lambda error: print(text_of(error), file=sys.stderr), shows_log=True)


def _double(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"could not convert '{text}' to Double (For input string: \"{text}\")"
        ) from None


def _check(arguments: argparse.Namespace) -> None:
    """Ends with wrong usage where Kafka's tool does, in its words."""
    wrong = arguments.parser.error
    for option in ("topic", "num-records", "throughput"):
        if not is_given(arguments, option):
            wrong(f"argument --{option} is required")
    if not any(is_given(arguments, each) for each in _PAYLOADS):
        listed = " ".join(f"--{each}" for each in _PAYLOADS)
        wrong(f"one of the arguments {listed} is required")
    if not any(is_given(arguments, each) for each in _WITH_BROKERS):
        *flags, last = (f"--{each}" for each in _WITH_BROKERS)
        wrong(f"At least one of {', '.join(flags)} or {last} must be specified.")
    for option in ("num-records", "record-size", "reporting-interval", "transaction-duration-ms"):
        number = getattr(arguments, option.replace("-", "_"))
        if number is not None and number <= 0:
            wrong(f"--{option} should be greater than zero.")
    if arguments.warmup_records >= arguments.num_records:
        wrong(
            "The value for --warmup-records must be strictly fewer than the number of records in "
            "the test, --num-records."
        )


async def _send(producer: Producer, arguments: argparse.Namespace, is_transactional: bool) -> int:
    """Returns the number of records sent, none of which failed."""
    payload = _payloads(arguments)
    if arguments.warmup_records > 0:
        print(
            f"Warmup first {arguments.warmup_records} records. Steady state results will print "
            "after the complete test summary."
        )
    window_s = arguments.reporting_interval / 1000
    stats = _Stats(window_s)
    steady = _Stats(window_s)
    failures: list[BaseException] = []
    if is_transactional:
        await producer.init_transactions()
    started_s = time.perf_counter()
    async for number in _paced(arguments, producer, is_transactional):
        value = payload(number)
        sent_s = time.perf_counter()

        if number == arguments.warmup_records > 0:
            steady_since_s = sent_s
            stats.announce("In steady state.")

        def delivered(
            delivery: asyncio.Future[RecordMetadata],
            sent_s: float = sent_s,
            size: int = len(value),
            is_steady: bool = number >= arguments.warmup_records,
        ) -> None:
            error = delivery.exception()
            if error is None:
                latency_ms = (time.perf_counter() - sent_s) * 1000
                stats.add(latency_ms, size)
                if is_steady:
                    steady.add(latency_ms, size)
            elif not failures:
                failures.append(error)

        (await producer.send(arguments.topic, value)).add_done_callback(delivered)
    await producer.flush()
    await asyncio.sleep(0)  # the last callbacks
    if failures:
        raise failures[0]
    ended_s = time.perf_counter()
    stats.print_total(ended_s - started_s)
    if arguments.warmup_records > 0:
        steady.print_total(ended_s - steady_since_s, "steady state ")
    return stats.count


async def _paced(
    arguments: argparse.Namespace, producer: Producer, is_transactional: bool
) -> AsyncIterator[int]:
    """Yields the numbers of records, each at its time, in transactions of a given duration."""
    started_s = time.perf_counter()
    async with contextlib.AsyncExitStack() as transaction:
        transaction_ends_s = started_s
        for number in range(arguments.num_records):
            now_s = time.perf_counter()
            if is_transactional and now_s >= transaction_ends_s:
                await transaction.aclose()
                await transaction.enter_async_context(producer.transaction())
                duration_ms = arguments.transaction_duration_ms or _TRANSACTION_MS
                transaction_ends_s = now_s + duration_ms / 1000
            if arguments.throughput > 0:
                early_s = started_s + number / arguments.throughput - now_s
                if early_s > 0:
                    await asyncio.sleep(early_s)
            elif number % 100 == 0:
                await asyncio.sleep(0)
            yield number


def _payloads(arguments: argparse.Namespace) -> Callable[[int], bytes]:
    rng = random.Random(0)
    if arguments.payload_monotonic:
        return lambda number: str(number).encode()
    if arguments.payload_file is None:
        letters = bytes(rng.choices(_LETTERS, k=arguments.record_size))
        return lambda _: letters
    delimiter = arguments.payload_delimiter.replace("\\n", "\n").encode()
    print(f"Reading payloads from: {arguments.payload_file}")
    try:
        with open(arguments.payload_file, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        data = b""
    payloads = [each for each in data.split(delimiter) if each]
    if not payloads:
        raise ValueError("File does not exist or empty file provided.")
    print(f"Number of records read: {len(payloads)}")
    return lambda _: rng.choice(payloads)


class _Stats:
    """Latencies, of all records and of those since the last line."""

    def __init__(self, window_s: float) -> None:
        self._reports_after_s = window_s
        self._announced = ""
        self._latencies: list[float] = []
        self._bytes = 0
        self._window_s = time.perf_counter()
        self._window_from = 0
        self._window_bytes = 0

    def add(self, latency_ms: float, size: int) -> None:
        """Counts a delivered record."""
        self._latencies.append(latency_ms)
        self._bytes += size
        self._window_bytes += size
        elapsed_s = time.perf_counter() - self._window_s
        if elapsed_s >= self._reports_after_s:
            self._print_window(elapsed_s)

    @property
    def count(self) -> int:
        """The number of delivered records."""
        return len(self._latencies)

    def announce(self, text: str) -> None:
        """Prints a line from time to time, but only before another record."""
        self._announced = text

    def _print_window(self, elapsed_s: float) -> None:
        if self._announced:
            print(self._announced)
            self._announced = ""
        window = self._latencies[self._window_from :]
        print(
            f"{len(window)} records sent, {len(window) / elapsed_s:.1f} records/sec "
            f"({self._window_bytes / elapsed_s / _MIB:.2f} MB/sec), "
            f"{sum(window) / len(window):.1f} ms avg latency, {max(window):.1f} ms max latency.",
            flush=True,
        )
        self._window_s = time.perf_counter()
        self._window_from, self._window_bytes = len(self._latencies), 0

    def print_total(self, elapsed_s: float, kind: str = "") -> None:
        """The line that scripts look for."""
        ordered = sorted(self._latencies)
        count = len(ordered)
        at = [int(ordered[min(count - 1, int(count * part))]) for part in (0.5, 0.95, 0.99, 0.999)]
        print(
            f"{count} {kind}records sent, {count / elapsed_s:f} records/sec "
            f"({self._bytes / elapsed_s / _MIB:.2f} MB/sec), "
            f"{sum(ordered) / count:.2f} ms avg latency, {ordered[-1]:.2f} ms max latency, "
            f"{at[0]} ms 50th, {at[1]} ms 95th, {at[2]} ms 99th, {at[3]} ms 99.9th."
        )
