"""Just enough SVG: elements as text, scales, ticks. Colours and fonts come from the page's CSS."""

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple


class Frame(NamedTuple):
    """A chart's size and the room around its plot, in the units of its `viewBox`."""

    width: float = 460
    height: float = 240
    left: float = 36
    right: float = 8
    top: float = 30
    bottom: float = 28

    @property
    def plot_right(self) -> float:
        """The right edge of the plot."""
        return self.width - self.right

    @property
    def plot_bottom(self) -> float:
        """The lower edge of the plot."""
        return self.height - self.bottom


class Scale(NamedTuple):
    """A linear map from values to coordinates."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Where a value lies."""
        share = (value - self.low) / (self.high - self.low) if self.high != self.low else 0.0
        return self.start + share * (self.end - self.start)


def element(name: str, attributes: dict[str, object], *children: str) -> str:
    """An element; underscores in attribute names stand for hyphens."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_plain(value))}"'
        for key, value in attributes.items()
    )
    return f"<{name}{written}>{''.join(children)}</{name}>"


def picture(frame: Frame, label: str, *children: str) -> str:
    """A whole chart; `label` says to those who cannot see it what it shows."""
    attributes: dict[str, object] = {
        "viewBox": f"0 0 {_plain(frame.width)} {_plain(frame.height)}",
        "role": "img",
        "aria-label": label,
    }
    return element("svg", attributes, *children)


def text(x: float, y: float, words: str, class_: str = "", anchor: str = "start") -> str:
    """A line of text with its base line at `y`."""
    return element("text", {"x": x, "y": y, "class": class_, "text_anchor": anchor}, escape(words))


def rectangle(
    x: float, y: float, width: float, height: float, class_: str, tip: str = "", **more: object
) -> str:
    """A box that shows `tip` when it is pointed at."""
    attributes: dict[str, object] = {
        "x": x,
        "y": y,
        "width": max(width, 0.0),
        "height": max(height, 0.0),
        "class": class_,
        **more,
    }
    return element("rect", attributes, title(tip))


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    """A straight line."""
    return element("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "class": class_})


def path(
    points: Sequence[tuple[float, float]], class_: str, *, close_at: float | None = None
) -> str:
    """A line through points; with `close_at` the area between it and that height."""
    if not points:
        return ""
    commands = "M" + " L".join(f"{_plain(x)} {_plain(y)}" for x, y in points)
    if close_at is not None:
        first, last = points[0][0], points[-1][0]
        commands += f" L{_plain(last)} {_plain(close_at)} L{_plain(first)} {_plain(close_at)} Z"
    return element("path", {"d": commands, "class": class_})


def title(words: str) -> str:
    """The text that a pointer resting on the parent shows."""
    return element("title", {}, escape(words)) if words else ""


def rules(frame: Frame, scale: Scale, ticks: Sequence[float], unit: str = "") -> str:
    """Horizontal lines at ticks with their values on the left; the unit stands at the last."""
    parts = []
    for tick in ticks:
        y = scale(tick)
        parts.append(line(frame.left, y, frame.plot_right, y, "base" if tick == 0 else "rule"))
        parts.append(text(frame.left - 6, y + 4, short(tick), "tick", "end"))
    if unit:
        parts.append(text(0, 12, unit, "tick"))
    return "".join(parts)


def nice_ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Round values that cover [low, high] in about `count` steps of 1, 2 or 5 times a power."""
    span = (high - low) or 1.0
    power = 10.0 ** math.floor(math.log10(span / count))
    step = next(s for s in (power, 2 * power, 5 * power, 10 * power) if span / s <= count)
    first = math.floor(low / step)
    last = math.ceil(high / step)
    return [round(number * step, 10) for number in range(first, last + 1)]


def short(value: float) -> str:
    """A value for an axis: 1500 is 1.5k, 2000000 is 2M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _plain(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
