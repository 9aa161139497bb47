"""Positions to begin and end reading at: `start`, `end`, `42`, `-10`, `+5`, `@time`.

A place is the same expression for every partition: `-10` is ten before the end of each.
"""

import re
from collections.abc import Iterable
from datetime import datetime
from enum import Enum
from typing import Final, NamedTuple

from odradek.client import Consumer
from odradek.model import TopicPartition

_WORDS: Final = {"start": 0, "beginning": 0, "earliest": 0, "end": 1, "latest": 1}
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LAST_MS: Final = (1 << 63) - 1
_AGO: Final = re.compile(r"-((?:\d+(?:ms|s|m|h|d))+)")
_PART: Final = re.compile(r"(\d+)(ms|s|m|h|d)")


class Base(Enum):
    """The number that a position counts from."""

    START = "start"
    END = "end"
    ZERO = "zero"
    TIME = "time"


class Place(NamedTuple):
    """A place in every partition: offsets from a base, or milliseconds since 1970."""

    base: Base
    number: int


def parse_place(text: str, now_ms: int) -> Place:
    """Reads a place.

    Raises:
        ValueError: the text is not a place.
    """
    if text in _WORDS:
        return Place(Base.END if _WORDS[text] else Base.START, 0)
    if text.startswith("@"):
        return Place(Base.TIME, _time_ms(text[1:], now_ms))
    if re.fullmatch(r"[-+]?\d+", text):
        bases = {"-": Base.END, "+": Base.START}
        return Place(bases.get(text[0], Base.ZERO), int(text))
    raise ValueError(
        f"{text!r} is no place: start, end, an offset, -N (before the end), +N (behind the start), "
        "@TIME (2024-05-01T12:00, milliseconds, or @-1h30m: ago)"
    )


def _time_ms(text: str, now_ms: int) -> int:
    ago = _AGO.fullmatch(text)
    if ago is not None:
        parts = _PART.findall(ago[1])
        # Before 1970 there is nothing.
        return max(0, now_ms - sum(int(count) * _UNITS_MS[unit] for count, unit in parts))
    if text.isdecimal() and int(text) <= _LAST_MS:
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise ValueError(f"{text!r} is no time: 2024-05-01T12:00, milliseconds, -1h30m") from None


async def offsets_at(
    place: Place, consumer: Consumer, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Returns the offsets of a place, within the bounds of each partition.

    Raises:
        KafkaError: a partition cannot be asked.
    """
    wanted = list(partitions)
    starts = await consumer.beginning_offsets(wanted)
    ends = await consumer.end_offsets(wanted)
    if place.base is Base.TIME:
        times = await consumer.offsets_for_times(dict.fromkeys(wanted, place.number))
        return {
            each: ends[each] if found is None else found.offset for each, found in times.items()
        }
    bases = {
        Base.START: starts,
        Base.END: ends,
        Base.ZERO: dict.fromkeys(wanted, 0),
    }[place.base]
    return {each: min(max(bases[each] + place.number, starts[each]), ends[each]) for each in wanted}
