"""Where a share group begins if it has never read a partition: `share.auto.offset.reset`."""

import re
from typing import Final

from odradek.replication.offset_lookup import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

_DURATION: Final = re.compile(
    r"P(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?"
)
_SECONDS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


def reset_timestamp(policy: str, now_ms: int) -> int:
    """The timestamp of the policy, or the name of an end of the log."""
    kind, _, duration = policy.partition(":")
    if kind == "earliest":
        return EARLIEST_TIMESTAMP
    matched = _DURATION.fullmatch(duration) if kind == "by_duration" else None
    if matched is None:
        return LATEST_TIMESTAMP
    seconds = sum(
        float(number) * _SECONDS[unit]
        for unit, number in matched.groupdict().items()
        if number is not None
    )
    return max(0, now_ms - round(seconds * 1000))
