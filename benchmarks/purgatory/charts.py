"""Line charts as SVG, drawn without any library, for a page that stands on its own."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH = 560
HEIGHT = 340
LEFT, RIGHT, TOP, BOTTOM = 78, 16, 36, 62
KEY_HEIGHT = 24
# Dashed lines are told apart by their dashes.
DASHES = ("2 4", "10 4", "10 4 2 4")
POINT = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A measured line, or a published figure: dashed, without dots, its name under the chart."""

    name: str
    colour: str
    points: Sequence[POINT]
    dashed: bool = False


@dataclass(frozen=True)
class Axis:
    """The unit of an axis, and whether it goes by powers of ten."""

    title: str
    logarithmic: bool = False


@dataclass(frozen=True)
class Chart:
    """Lines over two axes that both begin where the data does, or at 0."""

    title: str
    x: Axis
    y: Axis
    lines: Sequence[Line] = field(default_factory=tuple)

    def draw(self) -> str:
        """The chart as an SVG element; lines are told apart by colour and by their title."""
        points = [point for line in self.lines for point in line.points]
        if not points:
            return f"<p>{escape(self.title)}: nothing was measured.</p>"
        x_scale = Scale(self.x, [x for x, _ in points], LEFT, WIDTH - RIGHT)
        y_scale = Scale(self.y, [y for _, y in points], HEIGHT - BOTTOM, TOP)
        dashed = [line for line in self.lines if line.dashed]
        height = HEIGHT + KEY_HEIGHT * len(dashed)
        dashes = {line.name: DASHES[place % len(DASHES)] for place, line in enumerate(dashed)}
        parts = [
            f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(self.title)}">',
            f'<text class="title" x="{LEFT}" y="20">{escape(self.title)}</text>',
            *self._grid(x_scale, y_scale),
            *(
                draw_line(line, dashes.get(line.name), x_scale, y_scale)
                for line in self.lines
                if line.points
            ),
            *(draw_key(line, dashes[line.name], place) for place, line in enumerate(dashed)),
            "</svg>",
        ]
        return "\n".join(parts)

    def _grid(self, x_scale: "Scale", y_scale: "Scale") -> list[str]:
        bottom = HEIGHT - BOTTOM
        parts = [
            f'<text class="axis" x="{(LEFT + WIDTH) // 2}" y="{HEIGHT - 8}" '
            f'text-anchor="middle">{escape(self.x.title)}</text>',
            f'<text class="axis" transform="translate(14 {(TOP + bottom) // 2}) rotate(-90)" '
            f'text-anchor="middle">{escape(self.y.title)}</text>',
        ]
        for value in x_scale.ticks():
            at = x_scale.place(value)
            parts.append(f'<path class="grid" d="M{at:.1f} {TOP}V{bottom}"/>')
            parts.append(words(at, bottom + 22, "middle", short(value)))
        for value in y_scale.ticks():
            at = y_scale.place(value)
            parts.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>')
            parts.append(words(LEFT - 6, at + 4, "end", short(value)))
        return parts


class Scale:
    """From values to places on the page."""

    def __init__(self, axis: Axis, values: Sequence[float], first: int, last: int) -> None:
        self._logarithmic = axis.logarithmic
        self._first, self._last = first, last
        top = max(values)
        if axis.logarithmic:
            positive = [value for value in values if value > 0] or [1.0]
            self._low, self._high = min(positive), max(top, min(positive) * 1.01)
        else:
            self._low, self._high = 0.0, top * 1.05 or 1.0

    def place(self, value: float) -> float:
        """Where a value is; what is too small lies on the edge."""
        value = max(value, self._low)
        if self._logarithmic:
            share = math.log(value / self._low) / math.log(self._high / self._low)
        else:
            share = (value - self._low) / (self._high - self._low)
        return self._first + share * (self._last - self._first)

    def ticks(self) -> list[float]:
        """Round values between the ends."""
        if self._logarithmic:
            exponents = range(math.floor(math.log10(self._low)), math.ceil(math.log10(self._high)))
            steps = [digit * 10.0**exponent for exponent in exponents for digit in (1, 2, 5)]
            return [step for step in steps if self._low <= step <= self._high]
        step = 10 ** math.floor(math.log10(self._high))
        while self._high / step < 4:
            step /= 2
        return [step * i for i in range(int(self._high / step) + 1)]


def draw_line(line: Line, dashes: str | None, x_scale: Scale, y_scale: Scale) -> str:
    """The line, its dots, and its name for who points at it."""
    places = [(x_scale.place(x), y_scale.place(y)) for x, y in line.points]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    dots = "" if line.dashed else "".join(dot(x, y, line.colour) for x, y in places)
    return f"<g><title>{escape(line.name)}</title>{stroke(line, dashes, path)}{dots}</g>"


def draw_key(line: Line, dashes: str, place: int) -> str:
    """A dashed line's name, below the chart, where it crosses nothing."""
    at = HEIGHT + 4 + KEY_HEIGHT * place
    sample = stroke(line, dashes, f"M{LEFT} {at}H{LEFT + 40}")
    return sample + words(LEFT + 50, at + 5, "start", escape(line.name))


def stroke(line: Line, dashes: str | None, path: str) -> str:
    """A line's path, in its colour."""
    dash = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<path class="line" stroke="{line.colour}"{dash} d="{path}"/>'


def dot(x: float, y: float, colour: str) -> str:
    """One measured point."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'


def words(x: float, y: float, anchor: str, text: str) -> str:
    """A label of an axis."""
    return f'<text class="tick" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def short(value: float) -> str:
    """A figure as short as it can be: 25k, 0.5."""
    if value >= 1_000_000:
        return f"{value / 1_000_000:g}M"
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"
