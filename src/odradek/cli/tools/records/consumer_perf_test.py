"""`odradek consumer-perf-test`: measures how fast records are read, as
`kafka-consumer-perf-test.sh` does.
"""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Final

from odradek.cli.tools.connection import (
    CANNOT_BE_USED,
    SOON,
    add_connection,
    add_old_flag,
    check_socket_buffer,
    client_config,
    name_pattern,
    reach_brokers,
    require,
    require_one,
    run_async,
    take_old_flags,
)
from odradek.cli.tools.wording.java_values import java_date, java_int, java_long
from odradek.cli.tools.wording.metrics import print_metrics
from odradek.client import Consumer
from odradek.client.settings import CONSUMER_SETTINGS
from odradek.errors import text_of

_TIMEOUT_MS: Final = 10_000
_MIB: Final = 1024 * 1024
_COLUMNS: Final = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
    "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(
        parser,
        old_config_flag="--consumer.config",
        deprecation=SOON,
        together=CANNOT_BE_USED,
    )
    parser.add_argument("--topic", metavar="NAME")
    parser.add_argument("--include", metavar="PATTERN")
    parser.add_argument("--num-records", type=java_long, metavar="N")
    add_old_flag(parser, "--messages", "--num-records", text=SOON, kind=java_long)
    parser.add_argument("--group", metavar="NAME")
    parser.add_argument("--fetch-size", type=java_int, default=_MIB, metavar="BYTES")
    parser.add_argument("--from-latest", action="store_true")
    parser.add_argument(
        "--timeout", type=java_long, nargs="?", const=_TIMEOUT_MS, default=_TIMEOUT_MS, metavar="MS"
    )
    parser.add_argument("--hide-header", action="store_true")
    parser.add_argument("--show-detailed-stats", action="store_true", help="a row an interval")
    parser.add_argument("--reporting-interval", type=java_long, default=5000, metavar="MS")
    parser.add_argument(
        "--date-format", default="yyyy-MM-dd HH:mm:ss:SSS", help="in the letters of Java"
    )
    parser.add_argument("--print-metrics", action="store_true", help="print totals at the end")
    parser.add_argument("--socket-buffer-size", type=java_int, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Reads, and prints one row, or one from time to time."""
    require_one(arguments, ("topic", "include"))
    require_one(arguments, ("messages", "num-records"))
    require(arguments, "bootstrap-server")
    take_old_flags(arguments)

    async def work() -> int:
        if not arguments.hide_header:
            times = "time, threadId" if arguments.show_detailed_stats else "start.time, end.time"
            print(f"{times}, {_COLUMNS}")
        config = client_config(arguments, CONSUMER_SETTINGS) | {
            "group.id": arguments.group or f"perf-consumer-{random.randrange(100_000)}",
            "max.partition.fetch.bytes": arguments.fetch_size,
            "auto.offset.reset": "latest" if arguments.from_latest else "earliest",
            "check.crcs": False,
        }
        config.setdefault("client.id", "perf-consumer-client")
        check_socket_buffer("receive.buffer.bytes", arguments.socket_buffer_size)
        moment = java_date(arguments.date_format)
        if arguments.include is not None:
            name_pattern(arguments.include)
        if arguments.num_records <= 0:
            raise ValueError(f"--num-records: '{arguments.num_records}' is not at least 1")
        if arguments.reporting_interval <= 0:
            raise ValueError("Reporting interval must be greater than 0.")
        await reach_brokers(config)
        async with Consumer(config=config) as consumer:
            if arguments.topic is not None:
                consumer.subscribe([arguments.topic])
            else:
                consumer.subscribe(pattern=arguments.include)
            counts = await _read(consumer, arguments, moment)
        if arguments.print_metrics:
            topics = {topic: {"records-consumed-total": each} for topic, each in counts.items()}
            print_metrics("consumer-fetch-manager-metrics", str(config["client.id"]), topics)
        return 0

    return run_async(work, lambda error: print(text_of(error), file=sys.stderr), shows_log=True)


async def _read(
    consumer: Consumer, arguments: argparse.Namespace, moment: Callable[[datetime], str]
) -> Counter[str]:
    """Returns the number of records read, by topic."""
    counts: Counter[str] = Counter()
    details = arguments.show_detailed_stats
    interval_s = arguments.reporting_interval / 1000
    started = datetime.now()
    started_s = reported_s = time.perf_counter()
    joined_s: float | None = None
    records = size = reported_records = reported_size = 0
    while records < arguments.num_records:
        # Records in time, or none; the lines in between do not wait for records.
        found = await consumer.getmany(timeout_ms=max(0, arguments.timeout))
        if joined_s is None and consumer.assignment():
            joined_s = time.perf_counter()
        if not found:
            print(
                f"WARNING: Exiting before consuming the expected number of records: timeout "
                f"({arguments.timeout} ms) exceeded. You can use the --timeout option to increase "
                "the timeout."
            )
            break
        for partition, several in found.items():
            counts[partition.topic] += len(several)
            size += sum(len(each.key or b"") + len(each.value or b"") for each in several)
        records = counts.total()
        now_s = time.perf_counter()
        if details and now_s - reported_s >= interval_s:
            joining_s = max(0.0, (joined_s or now_s) - reported_s)
            print(
                f"{moment(datetime.now())}, 0, "
                + _measures(
                    size / _MIB,
                    (size - reported_size) / _MIB,
                    records,
                    records - reported_records,
                    now_s - reported_s,
                    joining_s,
                )
            )
            reported_s, reported_records, reported_size = now_s, records, size
    ended_s = time.perf_counter()
    if not details:
        elapsed_s, joining_s = ended_s - started_s, (joined_s or ended_s) - started_s
        megabytes = size / _MIB
        measures = _measures(megabytes, megabytes, records, records, elapsed_s, joining_s)
        print(f"{moment(started)}, {moment(datetime.now())}, {measures}")
    return counts


def _measures(
    megabytes: float,
    megabytes_here: float,
    records: int,
    records_here: int,
    elapsed_s: float,
    joining_s: float,
) -> str:
    """The columns after the times: the totals, and the rates of this span."""
    fetching_s = max(elapsed_s - joining_s, 0.001)
    return ", ".join(
        (
            f"{megabytes:.4f}",
            f"{megabytes_here / elapsed_s:.4f}",
            str(records),
            f"{records_here / elapsed_s:.4f}",
            str(round(joining_s * 1000)),
            str(round(fetching_s * 1000)),
            f"{megabytes_here / fetching_s:.4f}",
            f"{records_here / fetching_s:.4f}",
        )
    )
