"""Describes running brokers in lines of text: for the report of a failed test."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from odradek.errors import BrokerError
from odradek.model import TopicPartition
from odradek.server.broker import BrokerServer
from odradek.server.explain.answers import Explanation, explain
from odradek.server.explain.painting import Painter
from odradek.server.explain.picture import Question
from odradek.server.faults import FaultBoard
from odradek.server.in_process.calls.broker_helpers import BrokerHelpers
from odradek.server.in_process.calls.group_helpers import DEAD
from odradek.server.in_process.last_errors import AnsweredError, LastErrors

SHOWN_LINES: Final = 20
_FEW: Final = 10
_LABEL_WIDTH: Final = 8
_OF_RECORDS: Final = ("DelayedProduce", "DelayedFetch", "DelayedShareFetch")
_NO_TROUBLE: Final = ("none", "nothing new")


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
    lines += _section("topics", _topics(helpers), "none")
    lines += _section("groups", _groups(helpers), "none")
    lines += _section("why", _why(servers, helpers, errors, faults))
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


def _topics(helpers: BrokerHelpers) -> Iterator[str]:
    """A line for each topic that has records, or no leader somewhere; the empty ones share the
    last."""
    ends = helpers.end_offsets()
    empty = []
    for topic, count in helpers.topics().items():
        by_index = {index: ends.get(TopicPartition(topic, index)) for index in range(count)}
        parts = list(_of_partitions(by_index))
        if parts:
            yield f"{topic}: {'; '.join(parts)}"
        else:
            empty.append(topic)
    if empty:
        yield f"empty: {_few(empty)}"


def _of_partitions(ends: Mapping[int, int | None]) -> Iterator[str]:
    """The ends of partitions that have records, and those without an end, which nobody leads."""
    if written := [f"{index} at {end}" for index, end in ends.items() if end]:
        yield f"ends of partitions {_few(written)}"
    if unled := [str(index) for index, end in ends.items() if end is None]:
        yield f"no leader of partitions {_few(unled)}"


def _few(names: list[str]) -> str:
    more = len(names) - _FEW
    return ", ".join(names[:_FEW]) + (f" and {more} more" if more > 0 else "")


def _groups(helpers: BrokerHelpers) -> Iterator[str]:
    try:
        states = helpers.groups.states()
    except BrokerError as error:
        yield str(error)
        return
    for group, state in states.items():
        try:
            if (shared := _shared(helpers, group)) is not None:
                yield shared
                continue
            count = len(helpers.groups.describe(group).members)
            yield f"{group}: {state}, {_members(count)}, {_behind(helpers, group)}"
        except BrokerError as error:
            yield f"{group}: {state}, {error}"


def _behind(helpers: BrokerHelpers, group: str) -> str:
    try:
        lag = helpers.groups.lag(group)
    except BrokerError as error:
        return error.message
    return "behind in " + ", ".join(f"{where} by {offsets}" for where, offsets in lag.items())


def _members(count: int) -> str:
    return f"{count} member{'' if count == 1 else 's'}"


def _shared(helpers: BrokerHelpers, group: str) -> str | None:
    """A share group with its acquired records; None for other groups."""
    found = helpers.groups.shared.describe(group)
    if found.state == DEAD:
        return None
    parts = []
    for where, each in found.partitions.items():
        if each.start_offset < 0:
            parts.append(f"{where} not read yet")
            continue
        held = sum(batch.last_offset - batch.first_offset + 1 for batch in each.held)
        parts.append(f"{where} from {each.start_offset}, {held} held, {each.waiting} given back")
    policy = helpers.groups.shared.reset_policy(group)
    if policy == "latest":
        # It surprises everybody who writes a test.
        parts.append("share.auto.offset.reset is latest: earlier records are never read")
    return "; ".join([f"{group}: share, {found.state}, {_members(len(found.members))}", *parts])


def explain_here(
    servers: Sequence[BrokerServer], errors: LastErrors, faults: FaultBoard, question: Question
) -> Explanation:
    """See `LoopCalls.explain`; to be called as `report_on`."""
    answered = list(_errors(errors.read(servers[0].metadata.image)))
    painter = Painter(servers, [str(each) for each in faults.active], answered)
    return explain(painter.paint(question))


def _why(
    servers: Sequence[BrokerServer],
    helpers: BrokerHelpers,
    errors: LastErrors,
    faults: FaultBoard,
) -> Iterator[str]:
    """The likeliest cause for each group that may wait for something."""
    try:
        groups = list(helpers.groups.states())
    except BrokerError:
        return
    for group in groups:
        first = explain_here(servers, errors, faults, Question("group", group))[0]
        if first.cause not in _NO_TROUBLE:
            yield f"{group}: {first.text}"


def _waiting(servers: Sequence[BrokerServer]) -> Iterator[str]:
    """Operations that wait for records before all others, without those that always wait."""
    found = [
        (each, server.timer.now_ms)
        for server in servers
        for each in server.waiting()
        if not each.is_routine
    ]
    found.sort(key=lambda one: one[0].kind not in _OF_RECORDS)
    for each, now_ms in found:
        since_s = (now_ms - each.since_ms) / 1000
        yield f"{each.kind}, for {since_s:.1f} s: {each.missing}"


def _errors(errors: list[AnsweredError]) -> Iterator[str]:
    for each in errors:
        what = f"{each.api} from {each.client_id or 'a client without a name'}"
        place = f" for {each.place}" if each.place else ""
        times = "" if each.number == 1 else f", {each.number} times"
        yield f"{what}: {each.error.name}{place}{times}"
