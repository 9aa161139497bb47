"""Moments and durations as people write them in headers, in milliseconds.

A moment is RFC 3339 with its zone, or milliseconds since the epoch; a duration is `90s`, `1h30m`,
`PT1M30S`, or milliseconds. Fractions of a millisecond are rounded up, since nothing may be
delivered early. An unreadable value raises `Unreadable`, whose text is for the record's producer.
"""

import re
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from decimal import Decimal

LATEST_MS: Final = (1 << 63) - 1

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER: Final = re.compile(r"[0-9]{1,30}")
_MOMENT: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]{1,30})?"
    r"([Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)
_AMOUNT: Final = r"([0-9]{1,30}(?:\.[0-9]{1,30})?)"
_PART: Final = re.compile(_AMOUNT + r"(ms|s|m|h|d|w)")
_PARTS: Final = re.compile(rf"(?:{_AMOUNT}(?:ms|s|m|h|d|w))+")
_ISO: Final = re.compile(
    rf"P(?:{_AMOUNT}W)?(?:{_AMOUNT}D)?(?:T(?=[0-9])(?:{_AMOUNT}H)?(?:{_AMOUNT}M)?(?:{_AMOUNT}S)?)?",
    re.IGNORECASE,
)
_SECOND: Final = 1000
_UNITS: Final = {
    "ms": 1,
    "s": _SECOND,
    "m": 60 * _SECOND,
    "h": 3600 * _SECOND,
    "d": 86_400 * _SECOND,
    "w": 7 * 86_400 * _SECOND,
}
_ISO_UNITS: Final = ("w", "d", "h", "m", "s")


class Unreadable(ValueError):
    """A header that cannot be carried out; the text is a sentence for the producer."""


def parse_moment(text: str) -> int:
    """Milliseconds since the epoch.

    Raises:
        Unreadable: it is no moment, has no zone, or lies beyond 2^63 milliseconds.
    """
    if _NUMBER.fullmatch(text):
        return _within_bounds(int(text), text)
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise Unreadable(
            f"{text!r} is neither milliseconds since the epoch nor a time of RFC 3339 with its "
            "zone, such as 2030-01-31T09:00:00Z"
        )
    date, time, fraction, _, sign, hours, minutes = found.groups()
    try:
        moment = datetime.fromisoformat(f"{date}T{time}+00:00")
        ahead = timedelta() if sign is None else _ahead(sign, int(hours), int(minutes))
        whole_ms = (moment - _EPOCH - ahead) // timedelta(milliseconds=1)
    except (ValueError, OverflowError) as error:
        raise Unreadable(f"{text!r} is not in the calendar: {error}") from None
    moment_ms = whole_ms + _rounded_up(_decimal(fraction or "0") * _SECOND)
    if moment_ms < 0:
        raise Unreadable(f"{text!r} lies before 1970")
    return moment_ms


def _ahead(sign: str, hours: int, minutes: int) -> timedelta:
    if hours > 23 or minutes > 59:
        raise ValueError("no zone is as far from UTC")
    offset = timedelta(hours=hours, minutes=minutes)
    return -offset if sign == "-" else offset


def parse_duration(text: str) -> int:
    """Milliseconds.

    Raises:
        Unreadable: it is no duration, or longer than 2^63 milliseconds.
    """
    if _NUMBER.fullmatch(text):
        return _within_bounds(int(text), text)
    amounts: list[tuple[str, str]] = []
    if _PARTS.fullmatch(text):
        amounts = [(unit, amount) for amount, unit in _PART.findall(text)]
    elif (iso := _ISO.fullmatch(text)) is not None:
        amounts = [
            (unit, amount)
            for unit, amount in zip(_ISO_UNITS, iso.groups(), strict=True)
            if amount is not None
        ]
    if not amounts:
        raise Unreadable(
            f"{text!r} is not a duration: 90s, 1h30m, PT1M30S and milliseconds are "
            "(units: ms, s, m, h, d, w)"
        )
    parts = [_decimal(amount) * _UNITS[unit] for unit, amount in amounts]
    return _within_bounds(_rounded_up(sum(parts, _decimal("0"))), text)


def after(start_ms: int, duration_ms: int) -> int:
    """The moment `duration_ms` after another.

    Raises:
        Unreadable: it lies beyond 2^63 milliseconds.
    """
    return _within_bounds(start_ms + duration_ms, f"{duration_ms} ms from now")


def _decimal(text: str) -> "Decimal":
    # Imported here: few topics have schedules, and a start should be quick.
    from decimal import Decimal

    return Decimal(text)


def _rounded_up(amount: "Decimal") -> int:
    return ceil(amount)


def _within_bounds(number: int, text: str) -> int:
    if number > LATEST_MS:
        raise Unreadable(f"{text} is more than 2^63 milliseconds")
    return number
