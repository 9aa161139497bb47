"""Schedules that come again: `@every 5m`, or cron in the time of a zone.

Occurrences lie strictly after the moment that is asked about, so that one which was missed many
times is caught up with once. Cron is read by the library cronsim (the extra `schedule`), with
Debian's rules for the two days a year on which clocks are changed; five fields, or six with the
seconds first.
"""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Final

from odradek.replication.schedule.times import LATEST_MS, Unreadable, parse_duration

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_EVERY: Final = "@every "

Repeat = Callable[[int, int], int]
"""Takes an occurrence and a moment, in milliseconds; gives the first occurrence after both, or
`NEVER` when there is none."""

NEVER: Final = -1


def parse_repeat(text: str, zone: str | None) -> Repeat:
    """Reads a repetition.

    Raises:
        Unreadable: it is none, its zone is unknown, or cron cannot be read without the extra.
    """
    if text.startswith(_EVERY):
        if zone is not None:
            raise Unreadable("repeat-zone says nothing of @every, which counts milliseconds")
        return _every(text.removeprefix(_EVERY).strip())
    return _cron(text, zone)


def _every(text: str) -> Repeat:
    interval_ms = parse_duration(text)
    if interval_ms == 0:
        raise Unreadable(f"repeat: {_EVERY}{text} would never end")

    def following(occurrence_ms: int, now_ms: int) -> int:
        missed = max(0, now_ms - occurrence_ms) // interval_ms
        next_ms = occurrence_ms + (missed + 1) * interval_ms
        return next_ms if next_ms <= LATEST_MS else NEVER

    return following


def _cron(text: str, zone: str | None) -> Repeat:
    try:
        from cronsim import CronSim, CronSimError
    except ModuleNotFoundError:
        raise Unreadable(
            "this broker cannot read cron: it was installed without odradek[schedule]"
        ) from None
    place = _zone(zone)
    try:
        CronSim(text, datetime(2000, 1, 1, tzinfo=place))
    except (CronSimError, ValueError):  # the latter of a number with too many digits
        raise Unreadable(f"repeat: {text!r} is neither @every with a duration nor cron") from None

    def following(occurrence_ms: int, now_ms: int) -> int:
        try:
            start = datetime.fromtimestamp(max(occurrence_ms, now_ms) // 1000, place)
            return int(next(CronSim(text, start)).timestamp()) * 1000
        except (StopIteration, ValueError, OverflowError, OSError):
            return NEVER  # no such day within the years that a calendar has

    return following


def _zone(name: str | None) -> "ZoneInfo":
    # Imported here: few topics have schedules, and a start should be quick.
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name or "UTC")
    except (KeyError, ValueError, OSError):
        raise Unreadable(f"repeat-zone: no zone is called {name!r}") from None
