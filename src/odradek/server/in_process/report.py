"""What running brokers look like, in lines of text: for the report of a test that has failed."""

from collections.abc import Iterator, Sequence
from typing import Final

from odradek.errors import BrokerError
from odradek.server.broker import BrokerServer
from odradek.server.faults import FaultBoard
from odradek.server.in_process.calls.broker_helpers import BrokerHelpers
from odradek.server.in_process.last_errors import AnsweredError, LastErrors

SHOWN_LINES: Final = 20
_LABEL_WIDTH: Final = 8


def report_on(
    servers: Sequence[BrokerServer],
    helpers: BrokerHelpers,
    errors: LastErrors,
    faults: FaultBoard,
) -> str:
    """The report; to be called where the brokers' loop is, or stands still."""
    if not servers:
        return "not running"
    image = servers[0].metadata.image
    lines = [f"at {','.join(server.bootstrap_servers for server in servers)}"]
    halted = (server.halted for server in servers)
    lines += _section("halted", filter(None, halted))
    lines += _section("topics", (f"{at} ends at {end}" for at, end in _ends(helpers)), "none")
    lines += _section("groups", _groups(helpers), "none")
    lines += _section("waits", _waiting(servers), "nothing")
    lines += _section("errors", _errors(errors.read(image)), "none answered lately")
    lines += _section("faults", map(str, faults.active), "none in force")
    return "\n".join(lines)


def _section(label: str, entries: Iterator[str], otherwise: str = "") -> list[str]:
    shown = list(entries)
    if not shown:
        if not otherwise:
            return []
        shown = [otherwise]
    if len(shown) > SHOWN_LINES:
        shown[SHOWN_LINES:] = [f"and {len(shown) - SHOWN_LINES} more"]
    labels = [label, *[""] * (len(shown) - 1)]
    return [f"{label:<{_LABEL_WIDTH}}{text}" for label, text in zip(labels, shown, strict=True)]


def _ends(helpers: BrokerHelpers) -> list[tuple[str, int]]:
    return [(str(where), end) for where, end in helpers.end_offsets().items()]


def _groups(helpers: BrokerHelpers) -> Iterator[str]:
    try:
        states = helpers.groups.states()
    except BrokerError as error:
        yield str(error)
        return
    for group, state in states.items():
        try:
            count = len(helpers.groups.describe(group).members)
            lag = helpers.groups.lag(group)
        except BrokerError as error:
            yield f"{group}: {state}, {error}"
            continue
        behind = ", ".join(f"{where} by {offsets}" for where, offsets in lag.items())
        members = f"{count} member{'' if count == 1 else 's'}"
        yield f"{group}: {state}, {members}, {f'behind in {behind}' if behind else 'no offsets'}"


def _waiting(servers: Sequence[BrokerServer]) -> Iterator[str]:
    for server in servers:
        now_ms = server.timer.now_ms
        for each in server.waiting():
            since_s = (now_ms - each.since_ms) / 1000
            yield f"{each.kind}, for {since_s:.1f} s: {each.missing}"


def _errors(errors: list[AnsweredError]) -> Iterator[str]:
    for each in errors:
        what = f"{each.api} from {each.client_id or 'a client without a name'}"
        place = f" for {each.place}" if each.place else ""
        times = "" if each.number == 1 else f", {each.number} times"
        yield f"{what}: {each.error.name}{place}{times}"
