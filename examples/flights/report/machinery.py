"""The charts about the run: records on their way, throughput, latency, who waited and why."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from examples.flights.accounts import percentile
from examples.flights.report.svg import (
    Frame,
    Scale,
    line,
    nice_ticks,
    path,
    picture,
    rectangle,
    rules,
    text,
)
from examples.flights.screen import thousands

_DECADE_TICKS: Final = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_TICK_WIDTH: Final = 60
_SHOWN: Final = ("Fetch", "Produce")
_REASONS: Final = {"high watermark": "a committed record", "append": "an append"}
_NARROW: Final = Frame()
_MARK_HEIGHT: Final = 16
_SHARES: Final = (0.0, 0.25, 0.5, 0.75, 1.0)


def throughput(
    samples: Sequence[tuple[float, int]],
    frame: Frame = _NARROW,
    marks: Sequence[tuple[float, str]] = (),
) -> str:
    """Acknowledged records per second over the replay; `marks` are moments with their names, which
    stand above the plot."""
    above = frame.top
    frame = frame._replace(top=above + _MARK_HEIGHT * len(marks))
    rates = [
        ((before[0] + after[0]) / 2, (after[1] - before[1]) / (after[0] - before[0]))
        for before, after in pairwise(samples)
        if after[0] > before[0]
    ]
    end = max([samples[-1][0] if samples else 1.0, *(moment * 1.02 for moment, _ in marks)])
    ticks = nice_ticks(0, max([1.0, *(rate for _, rate in rates)]))
    y = Scale(0, ticks[-1], frame.plot_bottom, frame.top)
    x = Scale(0, end, frame.left, frame.plot_right)
    points = [(x(moment), y(rate)) for moment, rate in rates]
    parts = [
        path(points, "area", close_at=y(0)),
        rules(frame, y, ticks, "records per second"),
        path(points, "stroke"),
    ]
    seconds = [second for second in nice_ticks(0, end, 5) if second <= end]
    parts += [text(x(s), frame.height - 8, f"{s:g} s", "tick", "middle") for s in seconds]
    for index, (moment, name) in enumerate(marks):
        parts.append(_mark(frame, x(moment), above + _MARK_HEIGHT * index, name))
    return picture(frame, "Acknowledged records per second during the replay", *parts)


def _mark(frame: Frame, x: float, top: float, name: str) -> str:
    """A moment, and its name on the side that has room for it."""
    is_left = x > frame.left + (frame.plot_right - frame.left) * 0.7
    label = text(x - 6 if is_left else x + 6, top + 8, name, "label", "end" if is_left else "start")
    return line(x, top - 2, x, frame.plot_bottom, "mark") + label


def latencies(series: Mapping[str, Sequence[float]]) -> str:
    """For each series, which share of single records was done within how many milliseconds."""
    frame = Frame(left=44)
    values = [value for measured in series.values() for value in measured if value > 0]
    low = min(values, default=0.1)
    high = max((percentile(measured, 0.999) for measured in series.values()), default=1.0)
    x = Scale(math.log10(low), math.log10(max(high, low * 2)), frame.left, frame.plot_right)
    y = Scale(0, 1, frame.plot_bottom, frame.top)
    parts = [text(0, 12, "share of records", "tick")]
    for share in _SHARES:
        parts.append(line(frame.left, y(share), frame.plot_right, y(share), "rule"))
        parts.append(text(frame.left - 6, y(share) + 4, f"{share:.0%}", "tick", "end"))
    last = -math.inf
    for tick in _DECADE_TICKS:
        place = x(math.log10(tick))
        if low <= tick <= high and place - last >= _TICK_WIDTH:
            parts.append(text(place, frame.height - 8, f"{tick:g} ms", "tick", "middle"))
            last = place
    for index, (name, measured) in enumerate(series.items()):
        parts.append(path(_shares(measured, x, y), f"stroke s{index}"))
        parts.append(_legend(frame, index, name, measured))
    return picture(frame, "Share of single records done within a time", *parts)


def purgatories(statistics: Mapping[str, Mapping[str, Any]]) -> str:
    """The requests that were answered at once, and of those that waited, what woke them."""
    rows = [(name, _outcomes(statistics[name])) for name in _SHOWN if name in statistics]
    rows = [(name, outcomes) for name, outcomes in rows if sum(outcomes.values())]
    line_height = 20.0
    heights = [50 + line_height * sum(map(bool, outcomes.values())) for _, outcomes in rows]
    frame = Frame(height=sum(heights) + 4, left=0, right=0, top=0, bottom=0)
    parts = []
    top = 0.0
    for (name, outcomes), height in zip(rows, heights, strict=True):
        words = f"{name}: {thousands(sum(outcomes.values()))} requests"
        parts.append(text(0, top + 14, words, "value"))
        parts.append(_stack(frame, top + 22, outcomes))
        parts.append(_reasons(top + 58, outcomes, line_height))
        top += height
    return picture(frame, "Requests in the purgatories by what ended their waiting", *parts)


def _outcomes(counts: Mapping[str, Any]) -> dict[str, int]:
    """The outcome of the requests of one purgatory, in words."""
    checks: Mapping[str, int] = counts.get("completed_by_check", {})
    completed, expired = counts.get("completed", 0), counts.get("expired", 0)
    woken = {
        f"woken by {_REASONS.get(reason, reason)}": number
        for reason, number in sorted(checks.items())
    }
    return {
        "answered at once": counts.get("completed_at_once", 0),
        **woken,
        "time was over": expired,
        "their client went away": max(0, completed - sum(woken.values()) - expired),
    }


def _stack(frame: Frame, top: float, outcomes: Mapping[str, int]) -> str:
    total = sum(outcomes.values())
    left = 0.0
    parts = []
    for index, (words, number) in enumerate(outcomes.items()):
        width = frame.width * number / total
        if number:
            tip = f"{words}: {thousands(number)}"
            box = rectangle(left, top, max(width - 1.5, 1.5), 18, f"part p{index}", tip)
            parts.append(box)
        left += width
    return "".join(parts)


def _reasons(base: float, outcomes: Mapping[str, int], line_height: float) -> str:
    parts = []
    for index, (words, number) in enumerate(outcomes.items()):
        if number:
            parts.append(rectangle(0, base - 10, 11, 11, f"part p{index}"))
            parts.append(text(18, base, f"{words}: {thousands(number)}", "tick"))
            base += line_height
    return "".join(parts)


def _shares(measured: Sequence[float], x: Scale, y: Scale) -> list[tuple[float, float]]:
    ordered = sorted(measured)
    steps = range(0, len(ordered), max(1, len(ordered) // 300))
    inside = [(ordered[index], (index + 1) / len(ordered)) for index in steps]
    return [
        (x(math.log10(value)), y(share))
        for value, share in inside
        if value > 0 and x.high >= math.log10(value)
    ]


def _legend(frame: Frame, index: int, name: str, measured: Sequence[float]) -> str:
    """Name and middle and largest times of a series, in the empty lower right corner."""
    top = frame.plot_bottom - 64 + index * 34
    left = frame.plot_right - 170
    times = f"p50 {percentile(measured, 0.5):.2f}, p99 {percentile(measured, 0.99):.2f} ms"
    return (
        line(left, top - 4, left + 14, top - 4, f"stroke s{index}")
        + text(left + 20, top, name, "label")
        + text(left + 20, top + 15, times, "tick")
    )
