"""The charts about the flights: over the day, over the year, by carrier, by weather."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, Final

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

Row = Mapping[str, Any]

WINDS: Final = {0: "0-5", 5: "5-10", 10: "10-15", 15: "15-20", 20: "20-25", 25: "25+"}
VISIBILITIES: Final = {10: "10", 5: "5-10", 3: "3-5", 1: "1-3", 0: "below 1"}
_LEGAL_FORMS: Final = (" Inc.", " Co.", " Corporation")
_WEEK: Final = 7
FEW: Final = 30
_STEPS: Final = 6


def over_the_day(rows: Sequence[Row]) -> str:
    """Mean delay by the hour in which a departure was scheduled."""
    frame = Frame()
    hours = [row for row in rows if row["flights"] >= FEW]
    y = _vertical(frame, [row["mean"] for row in hours])
    step = (frame.plot_right - frame.left) / max(len(hours), 1)
    highest = max((row["mean"] for row in hours), default=0)
    parts = [rules(frame, y, _ticks(y), "minutes")]
    for index, row in enumerate(hours):
        x = frame.left + index * step
        parts.append(_column(x + step * 0.14, step * 0.72, y, row, f"{row['local_hour']} h"))
        if index % 3 == 0:
            label = f"{row['local_hour']} h"
            parts.append(text(x + step / 2, frame.height - 8, label, "tick", "middle"))
        if row["mean"] == highest:
            value = f"{row['mean']:.0f}"
            parts.append(text(x + step / 2, y(row["mean"]) - 6, value, "value", "middle"))
    return picture(frame, "Mean departure delay by scheduled hour", *parts)


def distribution(rows: Sequence[Row]) -> str:
    """How many departures had which delay; the last column holds all that were longer."""
    frame = Frame(left=44)
    y = _vertical(frame, [row["flights"] for row in rows])
    step = (frame.plot_right - frame.left) / max(len(rows), 1)
    total = sum(row["flights"] for row in rows)
    parts = [rules(frame, y, _ticks(y), "departures")]
    for index, row in enumerate(rows):
        x = frame.left + index * step
        last = index == len(rows) - 1
        span = f"{row['delay']} or more" if last else f"{row['delay']} to {row['delay'] + 5}"
        tip = f"{span} minutes: {thousands(row['flights'])}, {row['flights'] / total:.1%}"
        top = y(row["flights"])
        class_ = "bar early" if row["delay"] < 0 else "bar"
        parts.append(rectangle(x + step * 0.1, top, step * 0.8, y(0) - top, class_, tip))
        if row["delay"] % 20 == 0 or last:
            label = f"{row['delay']}+" if last else f"{row['delay']}"
            parts.append(text(x + step / 2, frame.height - 8, label, "tick", "middle"))
    return picture(frame, "Departures by delay in minutes", *parts)


def over_the_year(rows: Sequence[Row], frame: Frame) -> str:
    """Mean delay of every day, with the mean of the week around it."""
    y = _vertical(frame, [row["mean"] for row in rows])
    first = rows[0]["day"].toordinal() if rows else 0
    days = max(365, rows[-1]["day"].toordinal() - first + 1 if rows else 1)
    x = Scale(0, days, frame.left, frame.plot_right)
    parts = [rules(frame, y, _ticks(y), "minutes")]
    for row in rows:
        left = x(row["day"].toordinal() - first)
        parts.append(_column(left, x(0.8) - x(0), y, row, f"{row['day']:%a %d %b}"))
    smooth = [(x(row["day"].toordinal() - first + 0.4), y(mean)) for row, mean in _weekly(rows)]
    parts.append(path(smooth, "stroke"))
    parts.extend(_worst_days(rows, x, y, first))
    parts.extend(_months(frame, rows, x, first))
    return picture(frame, "Mean departure delay by day of the year", *parts)


def by_carrier(rows: Sequence[Row], airlines: Mapping[str, str]) -> str:
    """Mean delay of each carrier, the latest first, with the share that left late."""
    ordered = sorted(rows, key=lambda row: -row["mean"])
    height = 23.0
    frame = Frame(height=height * len(ordered) + 28, left=152, right=92, top=24, bottom=4)
    high = max((row["mean"] for row in ordered), default=1)
    x = Scale(0, max(high, 1), frame.left, frame.plot_right)
    parts = [
        text(frame.left, 12, "mean minutes late", "tick"),
        text(frame.width, 12, "over 15 min", "tick", "end"),
    ]
    for index, row in enumerate(ordered):
        top = frame.top + index * height
        name = short_name(airlines.get(row["carrier"], row["carrier"]))
        base = top + height / 2 + 4
        parts.append(text(frame.left - 10, base, name, "label", "end"))
        width = x(max(row["mean"], 0)) - frame.left
        parts.append(rectangle(frame.left, top + 4, width, height - 8, "bar", _tip(name, row)))
        parts.append(text(frame.left + width + 6, base, f"{row['mean']:.1f}", "value"))
        parts.append(text(frame.width, base, f"{row['late']:.0%}", "tick", "end"))
    return picture(frame, "Mean departure delay by carrier", *parts)


def by_weather(rows: Sequence[Row]) -> str:
    """Mean delay for every combination of wind and visibility."""
    frame = Frame(height=300, left=66, right=0, top=22, bottom=46)
    cells = {(row["wind"], row["visibility"]): row for row in rows}
    width = (frame.plot_right - frame.left) / len(WINDS)
    height = (frame.plot_bottom - frame.top) / len(VISIBILITIES)
    high = max((row["mean"] for row in rows if row["flights"] >= FEW), default=1)
    parts = []
    for line_, (visibility, visibility_label) in enumerate(VISIBILITIES.items()):
        top = frame.top + line_ * height
        parts.append(text(frame.left - 10, top + height / 2 + 4, visibility_label, "label", "end"))
        for column, (wind, wind_label) in enumerate(WINDS.items()):
            name = f"wind {wind_label} mph, visibility {visibility_label} miles"
            row = cells.get((wind, visibility))
            left = frame.left + column * width
            parts.append(_cell(left, top, width, height, row, high, name))
    for column, wind_label in enumerate(WINDS.values()):
        middle = frame.left + (column + 0.5) * width
        parts.append(text(middle, frame.plot_bottom + 18, wind_label, "label", "middle"))
    centre = (frame.left + frame.plot_right) / 2
    parts.append(text(centre, frame.height - 6, "wind, miles per hour", "tick", "middle"))
    parts.append(text(0, 10, "visibility, miles", "tick"))
    return picture(frame, "Mean departure delay by wind and visibility", *parts)


def _cell(
    left: float, top: float, width: float, height: float, row: Row | None, high: float, name: str
) -> str:
    """One cell of the weather chart; a mean of few flights says little and is shown pale."""
    if row is None:
        return rectangle(left + 1.5, top + 1.5, width - 3, height - 3, "empty", f"{name}: none")
    share = min(max(row["mean"], 0) / high, 1)
    few = row["flights"] < FEW
    box = rectangle(
        left + 1.5,
        top + 1.5,
        width - 3,
        height - 3,
        "cell few" if few else "cell",
        _tip(name, row),
        style=f"--share:{share:.3f}",
    )
    class_ = "inside strong" if share > 0.7 and not few else "inside"
    middle, base = left + width / 2, top + height / 2
    return (
        box
        + text(middle, base + 1, f"{row['mean']:.0f}", class_, "middle")
        + text(middle, base + 16, thousands(row["flights"]), f"{class_} small", "middle")
    )


def _column(x: float, width: float, y: Scale, row: Row, name: str) -> str:
    top, bottom = sorted((y(row["mean"]), y(0)))
    return rectangle(x, top, width, max(bottom - top, 0.5), "bar", _tip(name, row))


def _vertical(frame: Frame, values: Sequence[float]) -> Scale:
    ticks = nice_ticks(min([0.0, *values]), max([1.0, *values]), _STEPS)
    return Scale(ticks[0], ticks[-1], frame.plot_bottom, frame.top)


def _ticks(scale: Scale) -> list[float]:
    return nice_ticks(scale.low, scale.high, _STEPS)


def _tip(name: str, row: Row) -> str:
    return (
        f"{name}: {row['mean']:.1f} min on average, half within {row['median']:.0f}, "
        f"nine of ten within {row['p90']:.0f}, {row['late']:.0%} over 15 min; "
        f"{thousands(row['flights'])} departures"
    )


def _weekly(rows: Sequence[Row]) -> list[tuple[Row, float]]:
    """Every day with the mean over the week around it, weighted by departures."""
    means = []
    for index, row in enumerate(rows):
        week = rows[max(0, index - _WEEK // 2) : index + _WEEK // 2 + 1]
        departures = sum(day["flights"] for day in week)
        means.append((row, sum(day["mean"] * day["flights"] for day in week) / departures))
    return means


def _worst_days(rows: Sequence[Row], x: Scale, y: Scale, first: int) -> list[str]:
    """The dates of the three worst days, none within a week of another."""
    labelled: list[date] = []
    parts = []
    for row in sorted(rows, key=lambda row: -row["mean"]):
        if len(labelled) == 3:
            break
        if all(abs((row["day"] - other).days) > _WEEK * 2 for other in labelled):
            labelled.append(row["day"])
            middle = x(row["day"].toordinal() - first + 0.4)
            words = f"{row['day'].day} {row['day']:%B}"
            parts.append(text(middle, y(row["mean"]) - 6, words, "value", "middle"))
    return parts


def _months(frame: Frame, rows: Sequence[Row], x: Scale, first: int) -> list[str]:
    roomy = frame.width > Frame().width
    parts = []
    for row in rows:
        if row["day"].day == 1:
            left = x(row["day"].toordinal() - first)
            parts.append(line(left, frame.plot_bottom, left, frame.plot_bottom + 5, "rule"))
            name = f"{row['day']:%b}"
            # A narrow chart has room for an initial only.
            parts.append(text(left + 3, frame.height - 8, name if roomy else name[0], "tick"))
    return parts


def short_name(name: str) -> str:
    for form in _LEGAL_FORMS:
        name = name.removesuffix(form)
    return name
