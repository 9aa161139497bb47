"""Calls about time: the next deadline, and expiring a member.

All calls are the brokers' loop's. The faces are in `time_calls`.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from odradek.errors import BrokerError, ErrorCode
from odradek.server.broker import BrokerServer
from odradek.server.in_process.calls.group_helpers import GroupState
from odradek.suggestions import chosen, name_of
from odradek.timer import PeriodicTask, TimerTask

UPKEEP: Final = PeriodicTask.__name__
"""The kind of periodic tasks, which do not depend on clients."""


class Deadline(NamedTuple):
    """A task that fires when the clock has moved so far, if nothing else comes first."""

    in_ms: int
    """How far the clock has to go; 0 when it is due."""
    at_ms: int
    """The date and time of it, on the broker's clock, in ms since the epoch."""
    kind: str
    """What waits: `DelayedJoin`, `DelayedHeartbeat`, `DelayedFetch`; `PeriodicTask` for upkeep."""
    why: str
    """For what, in words."""
    broker_id: int
    """The broker in which it waits."""


def deadlines(servers: Sequence[BrokerServer]) -> Iterator[Deadline]:
    """Everything that waits for the clock, on the wheels of all brokers, in the order of time."""
    tasks = [(task, server) for server in servers for task in server.timer.tasks()]
    tasks.sort(key=lambda each: each[0].expiration_ms)
    for task, server in tasks:
        yield _deadline(task, server)


def _deadline(task: TimerTask, server: BrokerServer) -> Deadline:
    in_ms = max(0, task.expiration_ms - server.timer.now_ms)
    at_ms = server.clock.wall_ms() + in_ms
    return Deadline(in_ms, at_ms, type(task).__name__, task.describe(), server.config.broker_id)


def check_kind(kind: str) -> None:
    """Tells of a mistyped kind, of which nothing would ever wait.

    Raises:
        ValueError: nothing of that name is put on a timer.
    """
    # A broker that runs has imported all that it puts there.
    chosen("kind of deadline", kind, sorted({TimerTask.__name__, *_kinds(TimerTask)}))


def _kinds(parent: type[TimerTask]) -> Iterator[str]:
    for each in parent.__subclasses__():
        yield each.__name__
        yield from _kinds(each)


def member_called(state: GroupState, name: str) -> str:
    """The member of that member id or client id.

    Raises:
        BrokerError: UNKNOWN_MEMBER_ID, there is none.
        ValueError: several members have this client id.
        TypeError: that is no text.
    """
    name_of("a member", name)
    found = [one.member_id for one in state.members if name in (one.member_id, one.client_id)]
    if not found:
        known = ", ".join(one.member_id for one in state.members) or "none"
        raise BrokerError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"group {state.group!r} has no member {name!r}; its members: {known}",
        )
    if len(found) > 1:
        raise ValueError(f"{name!r} are {len(found)} members: say which of {', '.join(found)}")
    return found[0]
