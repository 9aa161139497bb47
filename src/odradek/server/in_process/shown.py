"""How brokers show themselves: at a prompt in a line, in a notebook as a table."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from odradek._lazy import LazyModule
from odradek.server.broker import BrokerServer
from odradek.server.in_process.calls.broker_helpers import BrokerHelpers

SHOWN_TOPICS: Final = 5

html: Final[Any] = LazyModule("html")


def topics_in_words(server: BrokerServer) -> str:
    """The topics of a broker, or how many more there are than these."""
    names = sorted(
        name for name, topic in server.metadata.image.topics.items() if not topic.is_internal
    )
    shown = names[:SHOWN_TOPICS]
    if len(names) > len(shown):
        shown.append(f"{len(names) - len(shown)} more")
    return f"topics: {', '.join(shown)}" if shown else "no topics"


def as_html(kind: str, servers: Sequence[BrokerServer], helpers: BrokerHelpers) -> str:
    """The address, and tables of the topics and the groups."""
    if not servers:
        return f"<p><b>{kind}</b>, not running</p>"
    address = ",".join(server.bootstrap_servers for server in servers)
    ends = helpers.end_offsets().items()
    topics = [(str(where), end) for where, end in ends]
    groups = helpers.groups.states().items()
    return (
        f"<p><b>{kind}</b> at <code>{html.escape(address)}</code></p>"
        + _table(("partition", "ends at"), topics)
        + _table(("group", "state"), groups)
    )


def _table(head: tuple[str, str], rows: Iterable[tuple[object, object]]) -> str:
    lines = [
        f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows
    ]
    if not lines:
        return ""
    titles = "".join(f"<th>{title}</th>" for title in head)
    return f"<table><tr>{titles}</tr>{''.join(lines)}</table>"
