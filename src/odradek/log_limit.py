"""Rate-limited logging, for lines that the other end of a connection can cause.

A client that reconnects in a tight loop must not fill the disk with log lines. The first event of
an interval is logged, the rest are counted, and the next line gives the count. Nor may a client's
words, or a broker's, look like lines of their own, or move the cursor of whoever reads them.
"""

import logging
from typing import Final

from odradek.clock import Clock

_PRINTED_CHARACTERS: Final = 1000


class LimitedLog:
    """Warnings of one kind, at most one per interval."""

    def __init__(self, logger: logging.Logger, clock: Clock, interval_ms: int = 1_000) -> None:
        self._logger = logger
        self._clock = clock
        self._interval_ms = interval_ms
        self._next_ms = clock.monotonic_ms()
        self._suppressed = 0

    def warning(self, message: str) -> None:
        """Logs `message`, on one line, or only counts it when the interval has had its line."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_ms:
            self._suppressed += 1
            return
        message = printable(message)
        if self._suppressed:
            message = f"{message} ({self._suppressed} similar lines left out)"
        self._suppressed = 0
        self._next_ms = now_ms + self._interval_ms
        self._logger.warning(message)


class OneLineFormatter(logging.Formatter):
    """Formats every message on one line, without control characters: it may have the name of a
    client's group."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """See `logging.Formatter`."""
        record.message = without_control(record.message)
        return super().formatMessage(record)


def printable(text: str) -> str:
    """Somebody else's text on one line, and of bounded length."""
    shown = without_control(text)
    return shown if len(shown) <= _PRINTED_CHARACTERS else f"{shown[:_PRINTED_CHARACTERS]}..."


def without_control(text: str, kept: str = "") -> str:
    """The text with escapes for all characters that are not printed but move the cursor, colour or
    turn what is around them; but for those that are `kept`."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in kept else repr(each)[1:-1] for each in text
    )
