"""`odradek export`: writes a topic, or a part of it, to one file for other programs.

It writes the records that exist when it begins, by partition and offset, from a broker or from the
files of its data directory. The file appears when it is complete, and not before. CSV is text: a
topic with keys or values that are not text needs another format. The lines of jsonl are those of
`odradek consume --format json`, which `odradek produce --input json` takes.
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from odradek.cli.everyday.flags import SERVERS_VARIABLE
from odradek.cli.everyday.places import Base, parse_place
from odradek.cli.knocking import tell_if_nobody_answers
from odradek.cli.tools.connection import silent_clients
from odradek.errors import BrokerError, text_of
from odradek.tables.columns import COLUMNS
from odradek.tables.errors import DamagedRecords, DataLoss, MissingData, WrongPath
from odradek.tables.plan.moments import Moment

FORMATS: Final = ("parquet", "csv", "jsonl", "arrow")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("--topic", metavar="T", required=True, help="the topic to write")
    parser.add_argument(
        "--to",
        metavar="FILE",
        required=True,
        type=export_file,
        help="the file; its extension is the format: .parquet, .csv, .jsonl or .arrow",
    )
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT[,..]",
        default=os.environ.get(SERVERS_VARIABLE),
        help=f"brokers to begin with (default: ${SERVERS_VARIABLE})",
    )
    parser.add_argument(
        "--data-dir", metavar="DIR", help="a broker's data directory on this machine, to read from"
    )
    parser.add_argument("--start", metavar="MOMENT", type=moment, help="begin here; see below")
    parser.add_argument("--end", metavar="MOMENT", type=moment, help="end before this")
    parser.add_argument(
        "--as-of", metavar="MOMENT", type=moment, help="the records that existed at this moment"
    )
    parser.add_argument(
        "--columns", metavar="A,B", help=f"only these (default: all): {', '.join(COLUMNS)}"
    )
    parser.add_argument(
        "--read-committed", action="store_true", help="nothing of transactions that are not ended"
    )


def epilog() -> str:
    """The rest of `--help`."""
    return """\
MOMENT: start or end; @TIME, the first record that is not older: 2024-05-01T12:00, milliseconds,
or @-1h30m for ago; or offsets by partition: 0:1200,1:980. A partition that is not named is read
from its beginning, or to its end; with --as-of it was not there yet."""


def export_file(text: str) -> str:
    """Reads the name of a file; its extension selects the format."""
    if format_of(text) not in FORMATS:
        raise argparse.ArgumentTypeError(f"{text!r} does not end in .{', .'.join(FORMATS)}")
    return text


def format_of(path: str) -> str:
    """Derives the format from the ending of a file name."""
    return os.path.splitext(path)[1].removeprefix(".").lower()


def moment(text: str) -> Moment:
    """Reads a moment: `start`, `end`, `@time`, `0:1200,1:980`."""
    if ":" in text and not text.startswith("@"):
        return _offsets(text)
    try:
        place = parse_place(text, time.time_ns() // 1_000_000)
    except ValueError:
        place = None
    if place is None or (place.base is not Base.TIME and text not in ("start", "end")):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no moment: start, end, @TIME, or offsets such as 0:1200,1:980"
        )
    if place.base is Base.TIME:
        return datetime.fromtimestamp(place.number / 1000, UTC)
    return "earliest" if place.base is Base.START else "latest"


@silent_clients()
def run(arguments: argparse.Namespace) -> int:
    """Writes the file; 1 if the topic cannot be read, 2 for unknown columns."""
    if arguments.bootstrap_server is None and arguments.data_dir is None:
        arguments.parser.error("say where the topic is: --bootstrap-server, --data-dir or both")
    try:
        from odradek.tables.files import write_file
    except ImportError:
        return _refuse("pyarrow is not installed: pip install 'odradek[arrow]'", 1)
    from odradek.tables.topic import Topic

    if arguments.bootstrap_server is not None:
        tell_if_nobody_answers(arguments.bootstrap_server)
    columns = None if arguments.columns is None else arguments.columns.split(",")
    try:
        topic = Topic(
            arguments.topic,
            bootstrap_servers=arguments.bootstrap_server,
            path=arguments.data_dir,
            read_committed=arguments.read_committed,
        )
        batches = topic.batches(
            start=arguments.start, end=arguments.end, as_of=arguments.as_of, columns=columns
        )
    except ValueError as error:
        return _refuse(str(error), 2)
    except (BrokerError, MissingData, DataLoss, WrongPath) as error:
        return _refuse(text_of(error), 1)
    try:
        records = write_file(arguments.to, format_of(arguments.to), batches, columns)
    except (
        BrokerError,
        MissingData,
        DataLoss,
        DamagedRecords,
        WrongPath,
        OSError,
        ValueError,
    ) as error:
        return _refuse(text_of(error), 1)
    size = os.stat(arguments.to).st_size
    found = "1 record" if records == 1 else f"{records:,} records"
    print(f"{arguments.to}: {found}, {size:,} bytes", file=sys.stderr)
    return 0


def _offsets(text: str) -> Mapping[int, int]:
    offsets = {}
    for pair in text.split(","):
        partition, _, offset = pair.strip().partition(":")
        if not partition.isdecimal() or not offset.isdecimal():
            raise argparse.ArgumentTypeError(f"{pair!r} is not a partition and an offset: 0:1200")
        offsets[int(partition)] = int(offset)
    return offsets


def _refuse(text: str, status: int) -> int:
    print(f"odradek export: {text}", file=sys.stderr)
    return status
