"""Values that a schema allows and Spark cannot take: they fail one by one, not the whole job.

Spark itself finds out when a row is on its way to the JVM, and ends the query for it, again at each
start.
"""

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any, Final

from pyspark.sql import types as t

from pyspark_odradek.formats.errors import Undecodable

Check = Callable[[Any], None]
# More than any decimal of Spark has when it is rounded.
_ENOUGH_DIGITS: Final = 100


def checker(type: t.DataType) -> Check | None:
    """The function that refuses what no column of this type can hold; None if it holds anything."""
    match type:
        case t.StructType():
            checks = [(i, c) for i, each in enumerate(type) if (c := checker(each.dataType))]
            return _struct(checks) if checks else None
        case t.ArrayType():
            item = checker(type.elementType)
            return None if item is None else _items(item)
        case t.MapType():
            value = checker(type.valueType)
            return None if value is None else _values(value)
        case t.DecimalType():
            return _decimal(type.precision, type.scale)
        case t.TimestampType() | t.TimestampNTZType() | t.DateType():
            return _time(type)
    return None


def _struct(checks: list[tuple[int, Check]]) -> Check:
    def check(row: Any) -> None:
        if row is not None:
            for index, field in checks:
                field(row[index])

    return check


def _items(item: Check) -> Check:
    def check(values: Any) -> None:
        for value in values or ():
            item(value)

    return check


def _values(value: Check) -> Check:
    def check(entries: Any) -> None:
        for each in (entries or {}).values():
            value(each)

    return check


def _decimal(precision: int, scale: int) -> Check:
    last = Decimal(1).scaleb(-scale)

    def check(value: Decimal | None) -> None:
        if value is None:
            return
        with localcontext() as context:
            context.prec = _ENOUGH_DIGITS
            # Spark rounds what is behind the point, and refuses what is before it.
            fits = value.is_finite() and (not value or value.adjusted() < precision - scale)
            rounded = value.quantize(last, ROUND_HALF_UP) if fits else value
        if not fits or len(rounded.as_tuple().digits) > max(precision, 1):
            raise Undecodable(f"a number has more than {precision - scale} digits before its point")

    return check


def _time(type: t.DataType) -> Check:
    def check(value: Any) -> None:
        try:
            type.toInternal(value)
        except (OverflowError, ValueError):
            raise Undecodable(f"{value} is out of the range of times") from None

    return check
