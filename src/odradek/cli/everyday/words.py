"""Numbers, sizes, durations and tables as people read them."""

from collections.abc import Sequence
from typing import Final

from odradek.cli.terminal import BOLD, painted
from odradek.log_limit import without_control

NOTHING: Final = "-"
_SIZES: Final = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
_DURATIONS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))


def number_words(number: float | None) -> str:
    """Formats a number as `1,234`, with a fraction if it matters."""
    if number is None:
        return NOTHING
    return f"{number:,.1f}" if 0 < abs(number) < 10 and number != int(number) else f"{number:,.0f}"


def counted(number: int, noun: str) -> str:
    """`1 broker`, `3 brokers`."""
    return f"{number_words(number)} {noun}{'' if number == 1 else 's'}"


def size_words(size_bytes: float | None) -> str:
    """`1.2 MB`."""
    if size_bytes is None:
        return NOTHING
    for unit_bytes, unit in _SIZES:
        if abs(size_bytes) >= unit_bytes:
            return f"{size_bytes / unit_bytes:.1f} {unit}"
    return f"{size_bytes:.0f} B"


def duration_words(duration_ms: int | None) -> str:
    """`250 ms`, `12s`, `3m 5s`, `2d 4h`: the two largest units."""
    if duration_ms is None:
        return NOTHING
    if duration_ms < 1000:
        return f"{duration_ms} ms"
    parts: list[str] = []
    for unit, unit_ms in _DURATIONS:
        count, duration_ms = divmod(duration_ms, unit_ms)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts))


def table_lines(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, colours: bool = False
) -> list[str]:
    """Aligned columns under titles; columns whose title begins with `#` are flushed right. Cells
    may be somebody else's names: their control characters are shown as escapes."""
    shown = [title.removeprefix("#") for title in titles]
    rows = [[without_control(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(shown, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        aligned = [
            cell.rjust(width) if title.startswith("#") else cell.ljust(width)
            for title, cell, width in zip(titles, cells, widths, strict=True)
        ]
        return "  ".join(aligned).rstrip()

    head = line(shown)
    return [painted(head, BOLD) if colours else head, *map(line, rows)]
