"""`auto.offset.reset`: where to begin without a committed offset, or outside the log.

latest, earliest     the end, the beginning
by_duration:PnDTnHnMn.nS    so long ago (ISO 8601)
none                 nowhere: an error is raised
"""

import re
from typing import Final

from odradek.client.core.consuming.list_offsets import EARLIEST, LATEST

_DURATION: Final = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?", re.IGNORECASE
)
_DURATION_PREFIX: Final = "by_duration:"


class ResetPolicy:
    """The setting, understood."""

    def __init__(self, text: str) -> None:
        """Reads the setting.

        Raises:
            ValueError: it is none.
        """
        lowered = text.lower()
        self._position = {"latest": LATEST, "earliest": EARLIEST}.get(lowered)
        self._ago_ms: int | None = None
        if lowered.startswith(_DURATION_PREFIX):
            self._ago_ms = duration_ms(text[len(_DURATION_PREFIX) :])
        elif self._position is None and lowered != "none":
            raise ValueError(f"auto.offset.reset cannot be {text!r}")

    def question(self, now_ms: int) -> int | None:
        """The timestamp to ask ListOffsets for; None when the policy is to choose no offset."""
        return self._position if self._ago_ms is None else max(0, now_ms - self._ago_ms)


def duration_ms(text: str) -> int:
    """An ISO 8601 duration of days, hours, minutes and seconds, in milliseconds.

    Raises:
        ValueError: it is none.
    """
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r} is no duration, as P1DT2H is")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
