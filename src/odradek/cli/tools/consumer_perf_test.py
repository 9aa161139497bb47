"""`odradek consumer-perf-test`: how fast records come out, as `kafka-consumer-perf-test.sh`."""

import argparse
import random
import time
from datetime import datetime
from typing import Final

from odradek.cli.arguments import positive_number
from odradek.cli.tools.connection import add_connection, client_config, run_async, text_of
from odradek.client import Consumer
from odradek.client.settings import CONSUMER_SETTINGS

_MIB: Final = 1024 * 1024
_HEADER: Final = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(
        parser,
        config_flags=("--command-config", "--consumer.config"),
        property_flags=("--command-property",),
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--topic", metavar="NAME")
    what.add_argument("--include", metavar="PATTERN")
    parser.add_argument(
        "--num-records", "--messages", type=positive_number, required=True, metavar="N"
    )
    parser.add_argument("--group", metavar="NAME")
    parser.add_argument("--fetch-size", type=positive_number, default=_MIB, metavar="BYTES")
    parser.add_argument("--from-latest", action="store_true")
    parser.add_argument("--timeout", type=positive_number, default=10_000, metavar="MS")
    parser.add_argument("--hide-header", action="store_true")
    parser.add_argument("--socket-buffer-size", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Reads, and prints one row."""

    async def work() -> int:
        config = client_config(arguments, CONSUMER_SETTINGS) | {
            "group.id": arguments.group or f"perf-consumer-{random.randrange(100_000)}",
            "max.partition.fetch.bytes": arguments.fetch_size,
            "auto.offset.reset": "latest" if arguments.from_latest else "earliest",
            "check.crcs": False,
        }
        config.setdefault("client.id", "perf-consumer-client")
        async with Consumer(config=config) as consumer:
            if arguments.topic is not None:
                consumer.subscribe([arguments.topic])
            else:
                consumer.subscribe(pattern=arguments.include)
            await _read(consumer, arguments)
        return 0

    return run_async(work, lambda error: print(text_of(error)))


async def _read(consumer: Consumer, arguments: argparse.Namespace) -> None:
    if not arguments.hide_header:
        print(_HEADER)
    started = datetime.now()
    started_s = time.perf_counter()
    joined_s: float | None = None
    records, size = 0, 0
    while records < arguments.num_records:
        found = await consumer.getmany(timeout_ms=arguments.timeout)
        if joined_s is None and consumer.assignment():
            joined_s = time.perf_counter()
        if not found:
            print(
                f"WARNING: Exiting before consuming the expected number of records: timeout "
                f"({arguments.timeout} ms) exceeded. You can use the --timeout option to increase "
                "the timeout."
            )
            break
        for each in (record for several in found.values() for record in several):
            records += 1
            size += len(each.key or b"") + len(each.value or b"")
    ended_s = time.perf_counter()
    _print_row(started, records, size, ended_s - started_s, (joined_s or ended_s) - started_s)


def _print_row(
    started: datetime, records: int, size: int, elapsed_s: float, joining_s: float
) -> None:
    megabytes = size / _MIB
    fetching_s = max(elapsed_s - joining_s, 0.001)
    cells = (
        _moment(started),
        _moment(datetime.now()),
        f"{megabytes:.4f}",
        f"{megabytes / elapsed_s:.4f}",
        str(records),
        f"{records / elapsed_s:.4f}",
        str(round(joining_s * 1000)),
        str(round(fetching_s * 1000)),
        f"{megabytes / fetching_s:.4f}",
        f"{records / fetching_s:.4f}",
    )
    print(", ".join(cells))


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}:{moment.microsecond // 1000:03}"
