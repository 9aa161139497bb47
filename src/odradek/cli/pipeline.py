"""`odradek pipeline NAME`: the Spark pipelines; they come with the extra `spark`.

A line for each batch and a summary go to standard error, the result to standard output. The exit
status is 1 when the pipeline or Spark failed, or an audit found a fault; Ctrl-C and SIGTERM stop a
continuous pipeline in order, with 0. The flags are read here; the pipelines are in
`pyspark_odradek.pipelines`.
"""

import argparse
import os
import re
import sys
import time
from dataclasses import fields
from typing import TYPE_CHECKING, Final

from odradek.cli.arguments import positive_number
from odradek.errors import reason_of
from odradek.suggestions import did_you_mean

if TYPE_CHECKING:
    from odradek.client.security_options import SecurityOptions

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours"}
_SHIFTS: Final = {"k": 10, "m": 20, "g": 30}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `odradek pipeline`."""
    parser.add_argument("name", metavar="NAME", help="which pipeline; see below")
    parser.add_argument(
        "--bootstrap-server",
        metavar="HOST:PORT[,...]",
        dest="bootstrap_servers",
        required=True,
        help="the brokers to ask",
    )
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="a file of client settings: how brokers are reached by TLS and SASL",
    )
    parser.add_argument(
        "--topic", metavar="T", required=True, help="the topic (query: several, by commas)"
    )
    parser.add_argument("--to", metavar="DIR", help="the directory to write to")
    parser.add_argument(
        "--from", metavar="DIR", dest="source", help="the archive (restore, audit, compact)"
    )
    parser.add_argument("--sql", metavar="SELECT", help="the SQL of query; topics are tables")
    parser.add_argument("--to-topic", metavar="T", help="the topic to write to, of dedup")
    parser.add_argument("--with", metavar="T", dest="other", help="the other topic of join")
    parser.add_argument(
        "--by",
        metavar="SQL",
        help="the SQL that dedup, join and window compare (default: key)",
    )
    parser.add_argument(
        "--within",
        metavar="1h",
        type=interval,
        help="how late records may be, and how far apart (dedup, join, window; default: 1h)",
    )
    parser.add_argument(
        "--window",
        metavar="1h",
        type=interval,
        help="how long a window is (default: 1h)",
    )
    parser.add_argument(
        "--measure", metavar="SQL", help="a number of every record that window sums up"
    )
    parser.add_argument(
        "--max-lag",
        metavar="N",
        type=positive_number,
        help="end with 1 when a group is further behind (lag)",
    )
    parser.add_argument(
        "--format",
        choices=("json", "avro", "protobuf", "parquet", "delta", "iceberg"),
        help="what values are (decode; default: json), what an archive is (archive; parquet)",
    )
    parser.add_argument(
        "--table",
        metavar="CATALOG.NAMESPACE.NAME",
        help="the table of an archive as iceberg; what the catalog is, --conf says",
    )
    parser.add_argument(
        "--schema",
        metavar="FILE",
        help="what a table is of: .avsc, .json, .desc, or 'id LONG, name STRING' (decode)",
    )
    parser.add_argument(
        "--registry", metavar="URL|DIR", help="the registry of the values' schemas (decode)"
    )
    parser.add_argument(
        "--dead-letters",
        metavar="T",
        help="the topic for values that decode cannot read (default: TOPIC-dead-letters)",
    )
    parser.add_argument(
        "--partition-by",
        choices=("hour", "day", "none"),
        help="which directories archive makes of the records' times (default: hour)",
    )
    parser.add_argument(
        "--groups",
        metavar="all|G,...",
        help="groups that get their offsets in the restored topic (restore)",
    )
    parser.add_argument(
        "--file-size",
        metavar="128m",
        type=size,
        dest="file_bytes",
        help="how large files should be (archive, compact; default: 128m)",
    )
    parser.add_argument(
        "--allow-loss",
        action="store_true",
        default=None,
        help="continue, with a warning, if records were deleted before they were read",
    )
    parser.add_argument(
        "--master", metavar="M", default="local[*]", help="Spark's master (default: %(default)s)"
    )
    parser.add_argument(
        "--memory", metavar="1g", default="1g", help="heap of Spark's driver (default: %(default)s)"
    )
    parser.add_argument(
        "--conf",
        metavar="NAME=VALUE",
        type=spark_setting,
        action="append",
        default=[],
        help="a setting of Spark's; may be repeated",
    )
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        dest="path",
        help="the broker's data directory, when it is on this machine: segments are read there",
    )
    parser.add_argument(
        "--isolation-level",
        choices=("read_committed", "read_uncommitted"),
        help="whether records of aborted transactions are read (default: not)",
    )
    parser.add_argument(
        "--max-records",
        metavar="N",
        dest="max_offsets_per_trigger",
        type=positive_number,
        help="how many records a batch takes at most (default: all that wait)",
    )
    parser.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="the checkpoint's directory (default: _checkpoint in the output directory)",
    )
    parser.add_argument(
        "--report", metavar="FILE.html", help="write a page about the run when it has ended"
    )
    how_often = parser.add_mutually_exclusive_group()
    how_often.add_argument(
        "--once", action="store_true", help="process the available records and end (the default)"
    )
    how_often.add_argument(
        "--every", metavar="30s", type=interval, help="keep running, with a batch every so often"
    )


def epilog() -> str:
    """Lists the pipelines, for `--help`."""
    try:
        from pyspark_odradek.pipelines import PIPELINES
    except ImportError as error:
        return str(error)
    rows = "\n".join(f"  {pipeline.name:<10}{pipeline.help}" for pipeline in PIPELINES)
    return f"pipelines:\n{rows}"


def interval(text: str) -> str:
    """Reads `30s`, `5m` or `1h` into Spark's words."""
    match = re.fullmatch(r"([1-9]\d*)([smh])", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no interval such as 30s, 5m or 1h")
    return f"{match[1]} {_UNITS[match[2]]}"


def size(text: str) -> int:
    """Reads `64k`, `128m` or `1g` into bytes."""
    match = re.fullmatch(r"([1-9]\d*)([kmg])", text.strip().lower())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 64k, 128m or 1g")
    return int(match[1]) << _SHIFTS[match[2]]


def spark_setting(text: str) -> tuple[str, str]:
    """Reads `spark.name=value`."""
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form spark.name=value")
    return name, value


def run(arguments: argparse.Namespace) -> int:
    """Runs a pipeline until it ends."""
    try:
        from pyspark_odradek import GatewayError
        from pyspark_odradek.pipelines import (
            PIPELINES,
            PipelineError,
            PipelineSettings,
            report_page,
            run_pipeline,
            summary,
        )
    except ImportError as error:
        return _refuse(str(error), 1)
    takes = {pipeline.name: pipeline.takes for pipeline in PIPELINES}
    if arguments.name not in takes:
        meant = did_you_mean(arguments.name, takes)
        text = f"there is no pipeline {arguments.name!r}{meant}, only {', '.join(takes)}"
        return _refuse(text, 2)
    # Flags have the settings' names; missing ones have their defaults there.
    names = [field.name for field in fields(PipelineSettings) if field.name != "security"]
    given = {name: each for name in names if (each := getattr(arguments, name)) is not None}
    useless = given.keys() - {"bootstrap_servers", "topic", *takes[arguments.name]}
    if useless:
        flags = arguments.parser._option_string_actions
        told = [flag for flag, action in flags.items() if action.dest in useless]
        return _refuse(f"{arguments.name} does nothing with {', '.join(told)}", 2)
    if arguments.report is not None and (why := _unwritable(arguments.report)):
        return _refuse(f"--report {arguments.report}: {why}", 2)
    if arguments.command_config is not None:
        try:
            given["security"] = _security(arguments.command_config)
        except (OSError, ValueError) as error:
            return _refuse(f"--command-config {arguments.command_config}: {reason_of(error)}", 2)
    settings = PipelineSettings(**given)
    begun_s = time.monotonic()
    try:
        outcome = run_pipeline(
            arguments.name,
            settings,
            master=arguments.master,
            memory=arguments.memory,
            conf=dict(arguments.conf),
            tell=_tell,
        )
    except (PipelineError, GatewayError) as error:
        return _refuse(str(error), 1)
    for finding in outcome.findings:
        print(finding)
    seconds = time.monotonic() - begun_s
    print(f"{arguments.name}: {summary(outcome, seconds)}", file=sys.stderr)
    if arguments.report is not None:
        with open(arguments.report, "w", encoding="utf-8") as file:
            file.write(report_page(arguments.name, settings, outcome, seconds))
    return 1 if outcome.findings else 0


def _security(path: str) -> "SecurityOptions":
    """Reads the TLS and SASL settings in a file of client settings."""
    from odradek.client.security_options import SecurityOptions
    from odradek.config.files.properties import load_properties
    from odradek.config.files.providers import resolved

    return SecurityOptions.of(resolved(load_properties(path)))


def _tell(batch: object) -> None:
    print(batch, file=sys.stderr, flush=True)


def _unwritable(path: str) -> str | None:
    """Returns why a file cannot be written, as far as that can be seen beforehand."""
    directory = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(directory):
        return f"there is no directory {directory}"
    if os.path.isdir(path):
        return "it is a directory"
    there = path if os.path.exists(path) else directory
    return None if os.access(there, os.W_OK) else "it cannot be written"


def _refuse(text: str, status: int) -> int:
    print(f"odradek pipeline: {text}", file=sys.stderr)
    return status
