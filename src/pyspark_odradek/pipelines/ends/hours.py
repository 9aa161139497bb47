"""The date and the hour of a time, in UTC.

Spark's own functions for them go by the session's time zone. They do not work in a zone with
daylight saving time, where times that the local clock skips are moved by an hour, nor in a zone
that is not whole hours from UTC.
"""

from decimal import Decimal
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

_HOUR_S: Final = 3600
_DAY_S: Final = 24 * _HOUR_S
# Spark has no earlier time, nor the one at which its hour begins.
_FIRST_S: Final = Decimal(-(1 << 63)).scaleb(-6)


def utc_date(time: str) -> Column:
    """The date of a column of times, as `2026-11-22`."""
    days = f.floor(f.unix_seconds(f.col(time)) / _DAY_S).cast("int")
    return f.date_add(f.lit("1970-01-01").cast("date"), days).cast("string")


def utc_hour(time: str) -> Column:
    """The hour of a column of times, `00` to `23`."""
    return f.lpad(f.pmod(_hours(time), f.lit(24)).cast("string"), 2, "0")


def begin_of_hour(time: str) -> Column:
    """The time at which the hour of a column of times begins."""
    return f.timestamp_seconds(f.greatest(_hours(time) * _HOUR_S, f.lit(_FIRST_S)))


def _hours(time: str) -> Column:
    return f.floor(f.unix_seconds(f.col(time)) / _HOUR_S)
