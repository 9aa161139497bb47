"""`odradek cluster start`, `status`, `restart` and `stop`: the parsers, and the functions they
run."""

import argparse
import asyncio
from pathlib import Path
from typing import Any, Final

from odradek.cli.arguments import Help, natural_number, positive_number
from odradek.cli.local_cluster.start import add_arguments as add_start_arguments
from odradek.cli.local_cluster.start import start
from odradek.cli.terminal import tell
from odradek.server.errors import StartError

DEFAULT_DATA_DIR: Final = "odradek-cluster"
DEFAULT_LIMIT_S: Final = 600
EPILOG: Final = """\
examples:
  odradek cluster start -n 3 --data-dir DIR        three brokers, and ZooKeeper, in the foreground
  odradek cluster start --data-dir DIR             the same again: the directory knows
  odradek cluster status --data-dir DIR            who runs, and whether all is in sync
  odradek cluster restart --data-dir DIR           one after the other, clients do not notice
  odradek cluster stop --data-dir DIR
"""


def add_commands(actions: Any) -> None:
    """Adds the commands to those of `odradek cluster`."""

    def add(name: str, words: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = actions.add_parser(
            name,
            help=words,
            description=f"{words[0].upper()}{words[1:]}.",
            epilog=EPILOG,
            formatter_class=Help,
            allow_abbrev=False,
        )
        parser.set_defaults(parser=parser)
        parser.add_argument(
            "--data-dir",
            default=DEFAULT_DATA_DIR,
            metavar="DIR",
            help=f"the cluster's directory (default: {DEFAULT_DATA_DIR})",
        )
        return parser

    add_start_arguments(add("start", "run brokers on this machine, in the foreground"))
    restart = add("restart", "restart brokers one after the other, each when all are in sync")
    restart.add_argument(
        "--broker-id",
        action="append",
        default=[],
        type=natural_number,
        metavar="N",
        help="only this broker, any number of times",
    )
    restart.add_argument(
        "--timeout",
        type=positive_number,
        default=DEFAULT_LIMIT_S,
        metavar="SECONDS",
        help=f"how long to wait for replicas to be in sync (default: {DEFAULT_LIMIT_S})",
    )
    add("status", "tell which brokers run, and whether all replicas are in sync")
    add("stop", "stop the brokers in order, and their ZooKeeper")


def run(arguments: argparse.Namespace) -> int:
    """Runs the command; returns the exit status."""
    try:
        if arguments.action == "start":
            return start(arguments)
        asyncio.run(_ASKING[arguments.action](arguments, Path(arguments.data_dir)))
    except StartError as error:
        tell(str(error))
        return 1
    return 0


async def _restart(arguments: argparse.Namespace, directory: Path) -> None:
    from odradek.cli.local_cluster.control import ask

    words = [str(each) for each in (arguments.timeout, *arguments.broker_id)]
    await ask(directory, " ".join(["restart", *words]), _say)


async def _status(_: argparse.Namespace, directory: Path) -> None:
    from odradek.cli.local_cluster.control import ask

    await ask(directory, "status", _say)


async def _stop(_: argparse.Namespace, directory: Path) -> None:
    from odradek.cli.local_cluster.control import ClusterEnded, ask

    try:
        await ask(directory, "stop", _say)
    except ClusterEnded:
        _say("The cluster has ended")


_ASKING: Final = {"restart": _restart, "status": _status, "stop": _stop}


def _say(line: str) -> None:
    print(line, flush=True)
