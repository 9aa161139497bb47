"""`odradek explain`: finds out why a group, a topic, a client or a transaction makes no progress.

The broker itself answers, at its `metrics.listener`: only it knows its delayed operations.
"""

import argparse
from urllib.parse import urlencode

from odradek.cli.everyday.monitoring.scraping import URL_HELP, ScrapeError, default_url, fetch_text
from odradek.cli.terminal import tell

KINDS = ("group", "topic", "client", "transaction")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    about = parser.add_mutually_exclusive_group(required=True)
    about.add_argument("--group", metavar="GROUP", help="why its members get nothing")
    about.add_argument("--topic", metavar="TOPIC", help="why no consumer gets its records")
    about.add_argument("--client", metavar="ID", help="why the client of that client.id waits")
    about.add_argument("--transaction", metavar="ID", help="what a transactional id holds up")
    parser.add_argument("--url", default=default_url(), metavar="URL", help=URL_HELP)


def run(arguments: argparse.Namespace) -> int:
    """Prints the causes, the most likely first; 1 when no broker answers."""
    about = {kind: getattr(arguments, kind) for kind in KINDS}
    query = urlencode({kind: name for kind, name in about.items() if name is not None})
    try:
        print(fetch_text(f"{arguments.url}/explain?{query}"), end="")
    except ScrapeError as error:
        tell(str(error))
        return 1
    return 0
