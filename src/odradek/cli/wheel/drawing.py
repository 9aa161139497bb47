"""Draws a timing wheel from a snapshot: as text for a terminal, as SVG for a page.

In both, a level is a row of buckets, the lowest on top; the figure in a bucket is how many
tasks it holds, and the marked bucket is where the level's hand is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape

from odradek.cli.terminal import BOLD, DIM, painted
from odradek.cli.wheel.show import Level, Snapshot

TASKS_SHOWN: Final = 8
EVENTS_SHOWN: Final = 6
BUCKET_WIDTH: Final = 4

HAND: Final = "\x1b[7m"
FILLED: Final = "\x1b[1;33m"


def duration(milliseconds: int) -> str:
    """Formats milliseconds for people: 20 ms, 8 s, 2.7 min."""
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if milliseconds >= size:
            return f"{milliseconds / size:.3g} {unit}"
    return f"{milliseconds} ms"


def headline(snapshot: Snapshot) -> str:
    """Time, number of tasks, next due bucket."""
    due = "nothing" if snapshot.next_due_ms is None else f"{snapshot.next_due_ms} ms"
    count = len(snapshot.tasks)
    return f"time {snapshot.now_ms} ms   pending {count}   next due {due}"


def level_title(position: int, level: Level) -> str:
    """The level's number and widths."""
    turn_ms = level.tick_ms * len(level.counts)
    return f"level {position}   bucket {duration(level.tick_ms)}   turn {duration(turn_ms)}"


def draw_text(snapshot: Snapshot, colour: bool = False) -> str:
    """Draws the wheel as lines of text, with terminal colours if asked."""
    lines = [paint(headline(snapshot), BOLD, colour), ""]
    for position, level in enumerate(snapshot.levels, 1):
        lines.append(level_title(position, level))
        slots = "".join(f"{slot:^4}" for slot in range(len(level.counts)))
        lines.append(paint(slots.rstrip(), DIM, colour))
        lines.append("".join(text_bucket(level, slot, colour) for slot in range(len(level.counts))))
        lines.append("")
    lines.extend(text_tasks(snapshot))
    if snapshot.events:
        lines.append("")
    lines.extend(f"  {event}" for event in snapshot.events[-EVENTS_SHOWN:])
    return "\n".join(line.rstrip() for line in lines) + "\n"


def text_bucket(level: Level, slot: int, colour: bool, width: int = BUCKET_WIDTH) -> str:
    """Draws one bucket in so many columns; brackets mark the hand, an arrow if there is no room for
    them.
    """
    count = level.counts[slot]
    figure = "." if count == 0 else str(count) if count < 10 ** max(1, width - 2) else "+"
    if slot == level.hand_slot:
        marked = f"[{figure:^{width - 2}}]" if width > 2 else f">{figure}"
        return paint(marked, HAND, colour)
    return paint(f"{figure:^{width}}", FILLED, colour and count > 0)


def draw_frame(
    snapshot: Snapshot, footer: Sequence[str], columns: int, rows: int, colour: bool
) -> list[str]:
    """The wheel in so many columns and rows; less important parts are left out if they do not fit.

    Headline and footer always stay, then the latest events, then the levels from the
    lowest, then tasks.
    """
    bottom = wrapped(footer, columns)[-max(2, rows // 4) :]
    room = rows - 1 - len(bottom) - 1
    events = frame_events(snapshot, columns, colour)[-max(1, min(EVENTS_SHOWN, room // 4)) :]
    levels = frame_levels(snapshot, columns, room - len(events) - 1, colour)
    room -= len(levels) + len(events)
    tasks = [line[:columns] for line in text_tasks(snapshot, max(0, min(TASKS_SHOWN, room - 2)))]
    lines = [paint(headline(snapshot)[:columns], BOLD, colour), *levels, *tasks, *events]
    return [*lines, *bottom][: rows - 1]


def frame_levels(snapshot: Snapshot, columns: int, rows: int, colour: bool) -> list[str]:
    """Draws the slots' numbers and as many levels as fit, the lowest first."""
    slots = len(snapshot.levels[0].counts)
    width = min(BUCKET_WIDTH, columns // slots)
    if width < 2:
        return [f"{2 * slots} columns are needed for {slots} buckets"[:columns]]
    numbers = "".join(f"{slot:^{width}}" for slot in range(slots)) if width > 2 else ""
    lines = [paint(numbers, DIM, colour)]
    fitting = max(1, (rows - 1) // 2)
    for position, level in enumerate(snapshot.levels[:fitting], 1):
        lines.append(level_title(position, level)[:columns])
        lines.append("".join(text_bucket(level, slot, colour, width) for slot in range(slots)))
    if len(snapshot.levels) > fitting > 1:
        lines[-2:] = [f"and {len(snapshot.levels) - fitting + 1} more levels"]
    return lines


def frame_events(snapshot: Snapshot, columns: int, colour: bool) -> list[str]:
    """Draws the events, the latest last; new ones are highlighted."""
    now = f"{snapshot.now_ms} ms: "
    return [
        paint(f"  {event}"[:columns], FILLED, colour and event.startswith(now))
        for event in snapshot.events
    ]


def wrapped(words: Sequence[str], columns: int) -> list[str]:
    """Wraps words into as many lines as needed."""
    lines = [""]
    for word in words:
        longer = f"{lines[-1]}   {word}" if lines[-1] else word
        if len(longer) <= columns or not lines[-1]:
            lines[-1] = longer[:columns]
        else:
            lines.append(word[:columns])
    return lines


def text_tasks(snapshot: Snapshot, limit: int = TASKS_SHOWN) -> list[str]:
    """Draws a line for each of the next tasks."""
    lines = [
        f"  {one.name:<8} due {one.expiration_ms} ms, {one.expiration_ms - snapshot.now_ms} left:"
        f" level {one.level}, slot {one.slot}, bucket due at {one.bucket_due_ms} ms"
        for one in snapshot.tasks[:limit]
    ]
    more = len(snapshot.tasks) - limit
    return [*lines, f"  and {more} more"] if more > 0 else lines


def paint(text: str, style: str, colour: bool) -> str:
    """Text in a terminal style."""
    return painted(text, style) if colour else text


CELL_WIDTH: Final = 40
CELL_HEIGHT: Final = 36
LEVEL_HEIGHT: Final = 96
MARGIN: Final = 20

STYLE: Final = """
  text { font: 13px system-ui, sans-serif; fill: #22313f }
  .small { font-size: 10px; fill: #7b8a97 }
  .name { font-size: 11px; fill: #9a4a00 }
  .bucket { fill: #f4f6f8; stroke: #b8c4ce }
  .filled { fill: #ffd9a0; stroke: #d9862b }
  .hand { fill: none; stroke: #1f6fb2; stroke-width: 3 }
"""


def draw_svg(snapshot: Snapshot, caption: str = "") -> str:
    """Draws the wheel as a picture of its own."""
    buckets = max(len(level.counts) for level in snapshot.levels)
    width = 2 * MARGIN + buckets * CELL_WIDTH
    height = 2 * MARGIN + 24 + len(snapshot.levels) * LEVEL_HEIGHT
    title = caption or one_line(headline(snapshot))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{MARGIN}" y="{MARGIN + 8}">{escape(title)}</text>',
    ]
    for position in range(1, len(snapshot.levels) + 1):
        parts.extend(svg_level(snapshot, position))
    return "\n".join([*parts, "</svg>"]) + "\n"


def svg_level(snapshot: Snapshot, position: int) -> list[str]:
    """Draws one row of buckets and its title."""
    level = snapshot.levels[position - 1]
    top = MARGIN + 24 + (position - 1) * LEVEL_HEIGHT
    title = one_line(level_title(position, level))
    parts = [f'<text x="{MARGIN}" y="{top + 16}">{escape(title)}</text>']
    for slot, count in enumerate(level.counts):
        left = MARGIN + slot * CELL_WIDTH
        shape = f'x="{left}" y="{top + 24}" width="{CELL_WIDTH}" height="{CELL_HEIGHT}"'
        parts.append(f'<rect class="{"filled" if count else "bucket"}" {shape}/>')
        middle = left + CELL_WIDTH // 2
        parts.append(svg_words(middle, top + 74, "small", str(slot)))
        if count:
            parts.append(svg_words(middle, top + 46, "name", svg_names(snapshot, position, slot)))
    hand = MARGIN + level.hand_slot * CELL_WIDTH
    parts.append(
        f'<rect class="hand" x="{hand}" y="{top + 24}" width="{CELL_WIDTH}" '
        f'height="{CELL_HEIGHT}"/>'
    )
    return parts


def one_line(text: str) -> str:
    """Joins columns by dots: SVG draws any number of blanks as one."""
    return text.replace("   ", " \N{MIDDLE DOT} ")


def svg_names(snapshot: Snapshot, level: int, slot: int) -> str:
    """The name of a bucket's only task, or how many it holds."""
    names = [one.name for one in snapshot.tasks if (one.level, one.slot) == (level, slot)]
    return names[0] if len(names) == 1 else f"{len(names)}x"


def svg_words(x: int, y: int, style: str, words: str) -> str:
    """Centred words."""
    return f'<text class="{style}" x="{x}" y="{y}" text-anchor="middle">{escape(words)}</text>'
