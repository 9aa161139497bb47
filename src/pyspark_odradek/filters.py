"""Spark's filters as conditions on a read.

Only filters on `partition`, `offset` or `timestamp` are used, and Spark applies all of them again:
a filter that is not understood costs time, but no rows.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from odradek.tables.plan.wanted import Numbers, WantedRows

# The columns that conditions may name, and the field of a condition for each.
_FIELDS: Final = {"partition": "partition", "offset": "offset", "timestamp": "timestamp_ms"}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def wanted_rows(filters: Iterable[Filter]) -> WantedRows:
    """The rows for which all of the filters can be true."""
    wanted = WantedRows()
    for each in filters:
        column: tuple[str, ...] = getattr(each, "attribute", ())
        if len(column) == 1 and column[0] in _FIELDS:
            name = _FIELDS[column[0]]
            wanted = replace(wanted, **{name: _narrowed(getattr(wanted, name), each)})
    return wanted


def _narrowed(numbers: Numbers, condition: Filter) -> Numbers:
    """Returns the numbers that also meet a condition; all of them if it does not apply."""
    if isinstance(condition, In):
        among = [_whole(value) for value in condition.value if value is not None]
        if all(number is not None for number in among):
            return numbers.one_of(number for number, is_exact in filter(None, among) if is_exact)
        return numbers
    if not isinstance(
        condition, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
    ):
        return numbers
    value = _whole(condition.value)
    if value is None:
        return numbers
    number, is_exact = value
    match condition:
        case EqualTo():
            return numbers.one_of([number] if is_exact else [])
        case GreaterThan():
            return numbers.from_on(number + 1)
        case GreaterThanOrEqual():
            return numbers.from_on(number if is_exact else number + 1)
        case LessThan():
            return numbers.up_to(number - 1 if is_exact else number)
        case _:
            return numbers.up_to(number)


def _whole(value: object) -> tuple[int, bool] | None:
    """A number, or a time in milliseconds rounded down, and whether it is that exactly."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value, True
    if isinstance(value, datetime) and value.tzinfo is not None:
        milliseconds, rest = divmod(value - _EPOCH, _MILLISECOND)
        return milliseconds, not rest
    return None
