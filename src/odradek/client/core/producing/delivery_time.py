"""The headers with the delivery time of a record for a schedule topic.

Only topics with `schedule.enable` or `schedule.target.topic` heed them; to other topics, and to
Apache Kafka, they are headers like any other.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from odradek.client.core.producing.intake import GivenHeaders

_MILLISECOND: Final = timedelta(milliseconds=1)

DeliverAfter = str | int | timedelta
"""A duration: as headers write it (`90s`, `PT1M30S`), or in milliseconds."""
DeliverAt = str | int | datetime
"""A moment: as headers write it (RFC 3339), in milliseconds since the epoch, or with its zone."""


def with_delivery_time(
    headers: GivenHeaders | None, deliver_after: DeliverAfter | None, deliver_at: DeliverAt | None
) -> GivenHeaders | None:
    """The headers with those that put the delivery off.

    Raises:
        ValueError: both are given, or a moment without a zone.
    """
    if deliver_after is not None and deliver_at is not None:
        raise ValueError("of deliver_after and deliver_at only one can count")
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers or ())
    if deliver_after is not None:
        return [*pairs, ("deliver-after", _duration(deliver_after).encode())]
    assert deliver_at is not None, "one of the two is given"
    return [*pairs, ("deliver-at", _moment(deliver_at).encode())]


def _duration(after: DeliverAfter) -> str:
    """Rounded up to whole milliseconds: nothing is delivered early."""
    if isinstance(after, timedelta):
        return str(-(-after // _MILLISECOND))
    return str(after)


def _moment(at: DeliverAt) -> str:
    if not isinstance(at, datetime):
        return str(at)
    if at.tzinfo is None:
        raise ValueError(f"deliver_at: {at.isoformat()} has no zone")
    return at.isoformat(timespec="microseconds")
