"""If these fail, a query with a filter lacks rows that it should have, or reads all for a few."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from odradek.tables.plan.wanted import ALL_ROWS, Numbers
from pyspark_odradek.filters import wanted_rows

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
NOON_MS = 1_795_348_800_000
JUST_AFTER = NOON + timedelta(microseconds=1)
OFFSET, TIME = ("offset",), ("timestamp",)


@pytest.mark.parametrize(
    ("filters", "numbers"),
    [
        ([EqualTo(OFFSET, 7)], range(7, 8)),
        ([GreaterThan(OFFSET, 7)], range(8, 20)),
        ([GreaterThanOrEqual(OFFSET, 7)], range(7, 20)),
        ([LessThan(OFFSET, 7)], range(7)),
        ([LessThanOrEqual(OFFSET, 7)], range(8)),
        ([GreaterThan(OFFSET, 3), LessThan(OFFSET, 7), GreaterThan(OFFSET, 1)], range(4, 7)),
        ([LessThan(OFFSET, 3), GreaterThan(OFFSET, 7)], ()),
        ([In(OFFSET, (3, 5, None))], (3, 5)),
        ([In(OFFSET, (3, 5)), GreaterThan(OFFSET, 3)], (5,)),
        ([In(OFFSET, (3, 5)), In(OFFSET, (4, 6))], ()),
        ([In(OFFSET, ())], ()),
        # Not understood, and so no reason to leave anything out.
        ([In(OFFSET, (3, "5"))], range(20)),
        ([Not(EqualTo(OFFSET, 7)), IsNotNull(OFFSET), EqualNullSafe(OFFSET, None)], range(20)),
        ([EqualTo(OFFSET, 7.5), EqualTo(OFFSET, True), EqualTo(OFFSET, "7")], range(20)),
    ],
)
def test_filters_become_numbers(filters: list[Filter], numbers: object) -> None:
    offsets = wanted_rows(filters).offset
    assert [number for number in range(20) if number in offsets] == list(numbers)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("condition", "numbers"),
    [
        (GreaterThan(TIME, NOON), Numbers(lowest=NOON_MS + 1)),
        (GreaterThan(TIME, JUST_AFTER), Numbers(lowest=NOON_MS + 1)),
        (GreaterThanOrEqual(TIME, NOON), Numbers(lowest=NOON_MS)),
        (GreaterThanOrEqual(TIME, JUST_AFTER), Numbers(lowest=NOON_MS + 1)),
        (LessThan(TIME, NOON), Numbers(highest=NOON_MS - 1)),
        (LessThan(TIME, JUST_AFTER), Numbers(highest=NOON_MS)),
        (LessThanOrEqual(TIME, NOON), Numbers(highest=NOON_MS)),
        (LessThanOrEqual(TIME, JUST_AFTER), Numbers(highest=NOON_MS)),
        (EqualTo(TIME, NOON), Numbers().one_of([NOON_MS])),
        (EqualTo(TIME, JUST_AFTER), Numbers().one_of([])),
        (In(TIME, (JUST_AFTER, NOON)), Numbers().one_of([NOON_MS])),
        (
            EqualTo(TIME, NOON.astimezone(timezone(timedelta(hours=-9)))),
            Numbers().one_of([NOON_MS]),
        ),
        # Of no time zone: whose noon that is, is not known here.
        (EqualTo(TIME, NOON.replace(tzinfo=None)), Numbers()),
        (
            LessThan(TIME, datetime(1969, 12, 31, 23, 59, 59, 999_500, UTC)),
            Numbers(highest=-1),
        ),
    ],
)
def test_times_are_milliseconds_rounded_to_the_safe_side(
    condition: Filter, numbers: Numbers
) -> None:
    assert wanted_rows([condition]).timestamp_ms == numbers


def test_other_columns_say_nothing() -> None:
    assert wanted_rows([EqualTo(("key",), 3), EqualTo(("offset", "inner"), 3)]) == ALL_ROWS
