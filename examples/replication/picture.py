"""The run as one picture: log ends and high watermark, who is in sync, and who waits."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

from examples.flights.report.svg import Frame, Scale, element, line, path, rectangle, text
from examples.replication.story import BROKERS, END_MS, Seen, Story

_FRAME: Final = Frame(width=960, height=420, left=110, right=16, top=76, bottom=168)
_LINE_GAP: Final = 3.0
_ROW: Final = 24.0
_OFFSETS: Final = 10
_STYLE: Final = """
svg { background: #fff; font: 12px system-ui, sans-serif; }
text { fill: #1c1c1e; } .soft { fill: #66666e; font-size: 11px; }
.rule { stroke: #e4e2dc; } .event { stroke: #66666e; stroke-dasharray: 3 3; }
path { fill: none; stroke-width: 2; } .b1 { stroke: #d2521b; } .b2 { stroke: #3557c9; }
.b3 { stroke: #2f8f6b; } .committed { stroke: #1c1c1e; stroke-width: 3; stroke-dasharray: 2 3; }
.waits { fill: #f2c14e; } .in1 { fill: #d2521b; } .in2 { fill: #3557c9; } .in3 { fill: #2f8f6b; }
.follows { opacity: .38; } .out { fill: none; stroke: #c9c7c1; stroke-dasharray: 3 3; }
@media (prefers-color-scheme: dark) {
  svg { background: #1d1d21; } text { fill: #ededf0; } .soft { fill: #9c9ca6; }
  .rule { stroke: #34343b; } .event { stroke: #9c9ca6; } .b1 { stroke: #ef7d43; }
  .b2 { stroke: #86a2ff; } .b3 { stroke: #5cc49b; } .committed { stroke: #ededf0; }
  .waits { fill: #c79a2b; } .in1 { fill: #ef7d43; } .in2 { fill: #86a2ff; }
  .in3 { fill: #5cc49b; } .out { stroke: #55555e; }
}
"""
_LABEL: Final = (
    "Log ends of three brokers, high watermark, in-sync replicas and a waiting produce over forty "
    "seconds"
)


def draw(story: Story) -> str:
    """The whole picture, a file of its own."""
    x = Scale(0, END_MS, _FRAME.left, _FRAME.plot_right)
    y = Scale(0, _OFFSETS, _FRAME.plot_bottom, _FRAME.top)
    parts = [element("style", {}, _STYLE), *_axes(x, y), *_events(story, x), *_logs(story, x, y)]
    top = _FRAME.plot_bottom + 34
    parts += [*_in_sync(story, x, top), *_waits(story, x, top + _ROW * len(BROKERS))]
    attributes: dict[str, object] = {
        "xmlns": "http://www.w3.org/2000/svg",
        "viewBox": f"0 0 {_FRAME.width} {_FRAME.height}",
        "role": "img",
        "aria-label": _LABEL,
    }
    return element("svg", attributes, *parts).replace("><", ">\n<") + "\n"


def _axes(x: Scale, y: Scale) -> Iterator[str]:
    yield text(8, _FRAME.top - 6, "offset", "soft")
    for offset in range(0, _OFFSETS + 1, 2):
        yield line(_FRAME.left, y(offset), _FRAME.plot_right, y(offset), "rule")
        yield text(_FRAME.left - 8, y(offset) + 4, str(offset), "soft", "end")
    for ms in range(0, END_MS + 1, 5_000):
        yield text(x(ms), _FRAME.plot_bottom + 18, f"{ms // 1_000} s", "soft", "middle")


def _events(story: Story, x: Scale) -> Iterator[str]:
    for number, (ms, what) in enumerate(story.events):
        top = 14 + 18 * (number % 3)
        yield line(x(ms), top - 8, x(ms), _FRAME.plot_bottom, "event")
        yield text(x(ms) + 5, top, what)


def _logs(story: Story, x: Scale, y: Scale) -> Iterator[str]:
    for broker in BROKERS:
        shift = (broker - 2) * _LINE_GAP  # side by side where they are the same

        def height(seen: Seen, broker: int = broker, shift: float = shift) -> float | None:
            end = seen.log_ends.get(broker)
            return None if end is None else y(end) + shift

        for stretch in _steps(story, x, height):
            yield path(stretch, f"b{broker}")

    def committed(seen: Seen) -> float | None:
        return None if seen.high_watermark is None else y(seen.high_watermark) + 2 * _LINE_GAP

    for stretch in _steps(story, x, committed):
        yield path(stretch, "committed")
    names = [*((f"b{broker}", f"log end, broker {broker}") for broker in BROKERS)]
    for number, (style, name) in enumerate([*names, ("committed", "high watermark")]):
        left, place = x(9_500), y(3.3) + 18 * number
        yield path([(left, place), (left + 22, place)], style)
        yield text(left + 28, place + 4, name)


def _steps(
    story: Story, x: Scale, height: Callable[[Seen], float | None]
) -> Iterator[list[tuple[float, float]]]:
    """The stretches of a line that stays until it is seen elsewhere, and has gaps."""
    points: list[tuple[float, float]] = []
    for before, after in pairwise(story.seen):
        level = height(before)
        if level is None:
            if points:
                yield points
            points = []
            continue
        points += [(x(before.ms), level), (x(after.ms), level)]
    yield points


def _in_sync(story: Story, x: Scale, top: float) -> Iterator[str]:
    for row, broker in enumerate(BROKERS):
        place = top + _ROW * row
        yield text(8, place + 12, f"ISR: broker {broker}")
        for ms, until_ms, style in _stretches(story, broker):
            tip = f"broker {broker}, {ms / 1_000:g} s to {until_ms / 1_000:g} s"
            yield rectangle(x(ms), place, x(until_ms) - x(ms), _ROW - 8, style, tip)


def _stretches(story: Story, broker: int) -> Iterator[tuple[int, int, str]]:
    """From when to when a broker leads, is in sync, or is out of it."""

    def style(seen: Seen) -> str:
        if broker not in seen.in_sync:
            return "out"
        return f"in{broker}" if seen.leader == broker else f"in{broker} follows"

    began = story.seen[0]
    for seen in [*story.seen[1:]]:
        if style(seen) != style(began):
            yield began.ms, seen.ms, style(began)
            began = seen
    yield began.ms, END_MS, style(began)


def _waits(story: Story, x: Scale, top: float) -> Iterator[str]:
    yield text(8, top + 12, "DelayedProduce")
    for wait in story.waits:
        width = max(x(wait.ended_ms) - x(wait.began_ms), 3)
        words = f"waits for {(wait.ended_ms - wait.began_ms) / 1_000:g} s"
        yield rectangle(x(wait.began_ms), top, width, _ROW - 8, "waits", words)
        if wait.ended_ms > wait.began_ms:
            yield text(x(wait.began_ms) + 6, top + 12, words)
    yield text(
        8, top + 40, "Full colour: leads. Pale: follows, in sync. Dashed: out of sync.", "soft"
    )
