"""`kafka-metadata-quorum.sh describe`: the metadata quorum, as Kafka's tool prints it. Our brokers
report their controller as a quorum of one.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from typing import Final

from odradek.cli.tools.connection import (
    NO_ADMIN,
    NoAddress,
    add_connection,
    check_whom_to_ask,
    client_config,
    run_async,
)
from odradek.cli.tools.wording.java_names import java_text
from odradek.client import Admin
from odradek.client.core.admin_types import QuorumDescription, QuorumReplica
from odradek.errors import BrokerError, text_of
from odradek.protocol.uuids import uuid_text

_COLUMNS: Final = (
    *("NodeId", "DirectoryId", "LogEndOffset", "Lag"),
    *("LastFetchTimestamp", "LastCaughtUpTimestamp", "Status"),
)
_NO_DIRECTORY: Final = "A" * 22


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(
        parser,
        server_flags=("--bootstrap-server",),
        controller_flags=("--bootstrap-controller",),
        reads_options=False,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    describe = actions.add_parser("describe", help="tell who is in the quorum")
    describe.add_argument("--status", action="store_true")
    describe.add_argument("--replication", action="store_true")
    describe.add_argument("--human-readable", action="store_true", help="times as ages")
    for name in ("add-controller", "remove-controller"):
        refused = actions.add_parser(name)
        for flag in ("--controller-id", "--controller-directory-id"):
            refused.add_argument(flag)
        refused.add_argument("--dry-run", action="store_true")


def run(arguments: argparse.Namespace) -> int:
    """Prints a few lines, or a table."""
    check_whom_to_ask(
        arguments,
        both="argument --bootstrap-controller: not allowed with argument --bootstrap-server",
        neither="one of the arguments --bootstrap-server --bootstrap-controller is required",
    )
    if arguments.action != "describe":
        print(f"{arguments.action}: a broker of odradek has no such quorum", file=sys.stderr)
        return 1
    if arguments.status == arguments.replication:
        wrong = (
            "Only one of --status or --replication should"
            if arguments.status
            else ("One of --status or --replication must")
        )
        print(f"{wrong} be specified with describe sub-command", file=sys.stderr)
        return 1

    def say(error: Exception) -> None:
        text = java_text(error) if isinstance(error, BrokerError) else text_of(error)
        print(NO_ADMIN if isinstance(error, NoAddress) else text, file=sys.stderr)

    async def work() -> int:
        async with Admin(config=client_config(arguments)) as admin:
            quorum = await admin.describe_quorum()
            if arguments.status:
                _print_status((await admin.describe_cluster()).cluster_id, quorum)
                return 0
        now_ms = time.time_ns() // 1_000_000 if arguments.human_readable else None
        _print_table(list(_rows(quorum, now_ms)))
        return 0

    return run_async(work, say)


def _print_status(cluster_id: str, quorum: QuorumDescription) -> None:
    leader = _leader(quorum)
    last = min(quorum.voters, key=lambda each: each.log_end_offset)
    times = leader.last_caught_up_timestamp, last.last_caught_up_timestamp
    lag_ms = 0 if last is leader else -1 if -1 in times else times[0] - times[1]
    for name, value in {
        "ClusterId": cluster_id,
        "LeaderId": quorum.leader_id,
        "LeaderEpoch": quorum.leader_epoch,
        "HighWatermark": quorum.high_watermark,
        "MaxFollowerLag": leader.log_end_offset - last.log_end_offset,
        "MaxFollowerLagTimeMs": lag_ms,
        "CurrentVoters": _listed(quorum.voters, quorum),
        "CurrentObservers": _listed(quorum.observers, quorum),
    }.items():
        print(f"{name + ':':<24}{value}")


def _leader(quorum: QuorumDescription) -> QuorumReplica:
    found = [each for each in quorum.voters if each.node_id == quorum.leader_id]
    if not found:
        raise ValueError("the quorum has no leader at the moment")
    return found[0]


def _listed(replicas: tuple[QuorumReplica, ...], quorum: QuorumDescription) -> str:
    shown = []
    for each in replicas:
        facts: dict[str, object] = {"id": each.node_id}
        if each.directory_id is not None:
            facts["directoryId"] = uuid_text(each.directory_id)
        if listeners := quorum.listeners.get(each.node_id):
            facts["endpoints"] = list(listeners)
        shown.append(json.dumps(facts))
    return f"[{', '.join(shown)}]"


def _rows(quorum: QuorumDescription, now_ms: int | None) -> Iterator[tuple[str, ...]]:
    leader = _leader(quorum)
    followers = [each for each in quorum.voters if each is not leader]
    for status, replicas in (
        ("Leader", [leader]),
        ("Follower", followers),
        ("Observer", quorum.observers),
    ):
        for each in replicas:
            directory = each.directory_id
            yield (
                str(each.node_id),
                _NO_DIRECTORY if directory is None else uuid_text(directory),
                str(each.log_end_offset),
                str(leader.log_end_offset - each.log_end_offset),
                _moment(each.last_fetch_timestamp, now_ms),
                _moment(each.last_caught_up_timestamp, now_ms),
                status,
            )


def _moment(timestamp_ms: int, now_ms: int | None) -> str:
    return str(timestamp_ms) if now_ms is None else f"{now_ms - timestamp_ms} ms ago"


def _print_table(rows: list[tuple[str, ...]]) -> None:
    columns = list(zip(_COLUMNS, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    for row in (_COLUMNS, *rows):
        print("".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True)))
