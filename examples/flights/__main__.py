"""`python -m examples.flights`, which `./run` calls: the steps of the main job, in their order."""

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

from confluent_kafka import KafkaException
from examples.flights import accounts, dataset, own_group, readback, replay, spark_job
from examples.flights.cluster import BROKERS, Failover, Kill, LocalCluster
from examples.flights.facts import Facts, read_broker_statistics, write_summary
from examples.flights.report import page
from examples.flights.screen import say, thousands, timed
from pyspark.errors import PySparkException

from odradek.client.errors import KafkaError
from odradek.testing.processes import BrokerProcess, ProcessFailed
from pyspark_odradek import GatewayError, session

SPARK_MEMORY: Final = "1500m"
_INTERRUPTED: Final = 130
_MARK: Final = ".odradek-run"
_NO_FINDINGS: Final = "archives are their topics, a restored topic is the original row by row"
# Of the clients, the other's and ours, and of Spark.
_REFUSALS: Final = (KafkaException, KafkaError, PySparkException)


class RunRefused(Exception):
    """The run cannot begin as it was asked to."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job; the exit status says whether every event arrived everywhere once."""
    arguments = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _run(arguments.out.resolve(), arguments.limit, on_cluster=arguments.cluster)
    except KeyboardInterrupt:
        print("\ninterrupted; broker and Spark have ended", file=sys.stderr)
        return _INTERRUPTED
    except (RunRefused, ProcessFailed, GatewayError, *_REFUSALS) as error:
        print(f"\nrun: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="./run",
        description=(
            "Replays a year of flights and weather through a broker, archives and joins them on "
            "Spark, and writes OUT/report.html and OUT/summary.json."
        ),
        epilog="Takes two to four minutes on two cores, after the first installation.",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("out"), help="where the results go (default: out)"
    )
    parser.add_argument(
        "--limit", type=_positive, metavar="N", help="only the first N departures, for a quick look"
    )
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="on three brokers with three replicas, one of which is killed in the middle; fetches "
        "ZooKeeper where none is installed",
    )
    return parser


def _run(out: Path, limit: int | None, *, on_cluster: bool) -> int:
    seconds: dict[str, float] = {}
    _clean(out)
    with timed(seconds, "reading the data set"):
        data = dataset.load(limit)
    departures, hours = data.count(dataset.FLIGHTS), data.count(dataset.WEATHER)
    say("data", f"{thousands(departures)} departures, {thousands(hours)} hours of weather")
    brokers = out / "broker"
    with (
        LocalCluster(brokers, out / "broker.log")
        if on_cluster
        else BrokerProcess(brokers, log=out / "broker.log")
    ) as broker:
        seconds["starting the broker"] = broker.start_ms / 1000
        say("broker", f"ready on {broker.bootstrap_servers} after {broker.start_ms:.0f} ms")
        kill = Kill(broker) if isinstance(broker, LocalCluster) else None
        wire = _through_the_wire(broker.bootstrap_servers, data, seconds, kill)
        # Segments are read where they lie; in a cluster those of a follower end where it is.
        segments = brokers if kill is None else None
        spark = _through_spark(broker.bootstrap_servers, segments, out, seconds)
    say("weather", f"{thousands(departures - spark.tables.joined)} departures have none to meet")
    facts = Facts(
        account=accounts.settle(
            len(data.events),
            wire.receipts.positions,
            wire.seen,
            wire.ours,
            spark.archived.positions,
        ),
        departures=departures,
        airlines=data.airlines,
        tables=spark.tables,
        probe=wire.probe,
        samples=wire.receipts.samples,
        produce_records_per_s=len(wire.receipts.positions) / wire.receipts.seconds,
        consume_records_per_s=wire.seen.count / wire.seen.seconds,
        spark_records_per_s=spark.archived.records_per_s,
        broker_start_ms=broker.start_ms,
        broker_statistics=read_broker_statistics(_statistics_of(brokers, wire.failover)),
        seconds=seconds,
        spark_version=spark.version,
        failover=wire.failover,
    )
    return _conclude(facts, out) or (1 if spark.findings else 0)


class _Wire(NamedTuple):
    receipts: replay.Receipts
    seen: readback.Readback
    ours: readback.Readback
    probe: readback.Probe
    failover: Failover | None


class _Spark(NamedTuple):
    archived: spark_job.Archived
    tables: spark_job.Tables
    version: str
    findings: list[str]


def _through_the_wire(
    servers: str, data: dataset.DataSet, seconds: dict[str, float], kill: Kill | None
) -> _Wire:
    """Produces and consumes with clients that are not ours, and consumes with ours."""
    with timed(seconds, "replaying the year"):
        replay.create_topics(servers, replicas=1 if kill is None else BROKERS)
        receipts = replay.replay(servers, data.events, None if kill is None else kill.strike)
    for failure in receipts.failures[:3]:
        say("refused", failure)
    failover = None
    if kill is not None:
        with timed(seconds, "waiting for the killed broker"):
            failover = kill.outcome()
        pause = failover.elected_s - failover.killed_s
        say("kill -9", f"broker {failover.broker}, others lead after {pause:.1f} s, it is back")
    with timed(seconds, "reading it back"):
        seen = readback.read_back(servers, len(receipts.positions))
    with timed(seconds, "reading it back with our group"):
        ours = own_group.read_back(servers, len(receipts.positions))
    rate = thousands(round(ours.count / ours.seconds))
    say("our group", f"{own_group.MEMBERS} members read {thousands(ours.count)} records, {rate}/s")
    with timed(seconds, "sending single records"):
        probe = readback.probe(servers)
    middle = accounts.percentile(probe.acknowledged_ms, 0.5)
    high = accounts.percentile(probe.acknowledged_ms, 0.99)
    say("latency", f"acknowledged in {middle:.2f} ms (p50), {high:.2f} ms (p99)")
    return _Wire(receipts, seen, ours, probe, failover)


def _statistics_of(brokers: Path, failover: Failover | None) -> Path:
    """The directory of the broker, of several of one that has lived through the whole run."""
    if failover is None:
        return brokers
    return brokers / f"broker-{failover.broker % BROKERS + 1}"


def _through_spark(
    servers: str, data_dir: Path | None, out: Path, seconds: dict[str, float]
) -> _Spark:
    """Archives and joins."""
    starting = time.monotonic()
    with session("flights", memory=SPARK_MEMORY) as spark:
        seconds["starting Spark"] = time.monotonic() - starting
        say("spark", f"{spark.version} started in {seconds['starting Spark']:.1f} s")
        with timed(seconds, "archiving to Parquet"):
            archived = spark_job.archive_topics(spark, servers, data_dir, out / "archive")
        rate = thousands(round(archived.records_per_s))
        say(
            "archive",
            f"{thousands(len(archived.positions))} records to Parquet, {rate}/s from a cold JVM",
        )
        with timed(seconds, "asking how far the groups are"):
            findings = spark_job.await_groups(servers)
        say("lag", findings[0] if findings else "none: the archives' groups are at the ends")
        with timed(seconds, "auditing the archive"):
            findings += spark_job.audit_archives(spark, servers, out / "archive")
        with timed(seconds, "restoring the weather"):
            findings += spark_job.restore_weather(spark, servers, out / "archive")
        say("audit", findings[0] if findings else _NO_FINDINGS)
        with timed(seconds, "joining with the weather"):
            joined = spark_job.join_weather(spark, servers, out / "joined")
        with timed(seconds, "computing the tables"):
            tables = spark_job.tabulate(joined, out / "delays.csv")
        say("join", f"{thousands(tables.joined)} departures met their weather")
        return _Spark(archived, tables, spark.version, findings)


def _conclude(facts: Facts, out: Path) -> int:
    """Writes what came out, and says whether it adds up."""
    (out / "report.html").write_text(page.render(facts), encoding="utf-8")
    names = ("report.html", "delays.csv", "archive/flights", "archive/weather", "joined")
    write_summary(facts, out / "summary.json", [os.path.relpath(out / name) for name in names])
    account = facts.account
    verdict = "every event arrived everywhere once" if account.is_balanced else "it does not add up"
    say("account", f"{account.lost} lost, {account.duplicated} duplicated: {verdict}")
    say("report", f"{out / 'report.html'} ({sum(facts.seconds.values()):.0f} s)")
    return 0 if account.is_balanced else 1


def _clean(out: Path) -> None:
    """Begins with an empty directory; refuses to empty one that holds something else."""
    if out.exists() and any(out.iterdir()) and not (out / _MARK).exists():
        raise RunRefused(f"{out} is not empty and not from an earlier run")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / _MARK).touch()


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
