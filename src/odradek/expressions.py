"""Regular expressions that clients choose, in the syntax of RE2.

They are matched on the event loop against whatever there is, so they must not be able to take long:
RE2 matches in linear time and knows no look-around and no back references. What Java would take
besides is refused, and so is what would need too much memory.

The package `google-re2` belongs to every installation; where it cannot be imported, expressions are
refused with that reason. Python's own `re` is no substitute: `(a+)+$` holds it up for ever.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from odradek._lazy import LazyModule

MAX_PROGRAM_BYTES: Final = 1 << 20
"""What a compiled expression may take; `((a{100}){100}){100}` is refused."""

# RE2 takes a repetition by a number that no machine word holds for letters; Kafka refuses it.
_HUGE_REPETITION: Final = re.compile(r"(?<!\\)(?:\\\\)*\{(?:\d{9,}(?:,\d*)?|\d+,\d{9,})\}")

re2: Any = LazyModule("re2")

Match = Callable[[str], object]
"""None unless the whole text matches."""
Split = Callable[[bytes], list[bytes]]


class ExpressionError(ValueError):
    """Text that is no regular expression, and why."""


class ExpressionsUnavailable(ExpressionError):
    """Whether it is one cannot be told here, and why."""


@lru_cache(maxsize=256)
def compiled(expression: str) -> Match:
    """Compiles an expression.

    Raises:
        ExpressionError: it is none.
        ExpressionsUnavailable: RE2 cannot be imported.
    """
    match: Match = _program(expression).fullmatch
    return match


def splitter(expression: str) -> Split:
    """Compiles an expression for what stands between parts. Empty parts at the end do not count,
    as where Java splits; without a match the text is the only part.

    Raises:
        ExpressionError: it is none.
        ExpressionsUnavailable: RE2 cannot be imported.
    """
    program = _program(expression)

    def split(text: bytes) -> list[bytes]:
        spans = [span for each in program.finditer(text) if (span := each.span()) != (0, 0)]
        if not spans:
            return [text]
        begins = [0, *(end for _, end in spans)]
        ends = [*(begin for begin, _ in spans), len(text)]
        parts = [text[begin:end] for begin, end in zip(begins, ends, strict=True)]
        while parts and not parts[-1]:
            parts.pop()
        return parts

    return split


def _program(expression: str) -> Any:
    try:
        options = re2.Options()
    except ImportError as error:
        raise ExpressionsUnavailable(f"google-re2 cannot be imported: {error}") from error
    if _HUGE_REPETITION.search(expression):
        raise ExpressionError("invalid repetition size")
    options.max_mem = MAX_PROGRAM_BYTES
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "it cannot be parsed"
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ExpressionError(text) from error
