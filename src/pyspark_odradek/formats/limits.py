"""The limits of Spark's columns: a value is converted exactly, or refused.

Spark itself would make up a value, 0 or null, or end the query when the row goes to the JVM, again
at each start. So each format checks every single value here.
"""

import struct
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

from pyspark_odradek.formats.errors import Undecodable, UnusableSchema

_FLOAT: Final = struct.Struct("<f")
_SHOWN: Final = 40
# More digits than any decimal of Spark has.
_EXACT: Final = Context(prec=100)
# Names may expand to so many types that reading them would never end.
MOST_TYPES: Final = 1 << 16


class TypeCount:
    """Counts the types of a schema while each name in it is replaced by its definition."""

    def __init__(self) -> None:
        self._left = MOST_TYPES

    def add(self) -> None:
        """Counts one type.

        Raises:
            UnusableSchema: there are too many.
        """
        self._left -= 1
        if self._left < 0:
            raise UnusableSchema(f"this schema has more than {MOST_TYPES} types, which is too many")


def integer(bits: int) -> Callable[[int], int]:
    """Returns the function that refuses integers of more bits."""
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def fitting(value: int) -> int:
        if not least <= value <= most:
            raise Undecodable(f"{_shown(value)} is not a number of {bits} bits")
        return value

    return fitting


def decimal(precision: int, scale: int) -> Callable[[Decimal], Decimal]:
    """Returns the function that rounds finite numbers to the scale, as Spark does, and refuses
    those that are too large.

    It rounds here since Java would spend minutes on a number like 1e-99999999.
    """
    last = Decimal(1).scaleb(-scale)

    def fitting(value: Decimal) -> Decimal:
        if not value or value.adjusted() < precision - scale:
            rounded = value.quantize(last, ROUND_HALF_UP, _EXACT)
            if len(rounded.as_tuple().digits) <= max(precision, 1):
                return rounded
        raise _too_many_digits(precision, scale)

    return fitting


def unscaled(precision: int, scale: int) -> Callable[[int], Decimal]:
    """Returns the function that puts the decimal point into an unscaled number.

    It checks the number first: making a decimal of a very long one takes hours.
    """
    beyond = 10**precision

    def pointed(value: int) -> Decimal:
        if not -beyond < value < beyond:
            raise _too_many_digits(precision, scale)
        return Decimal(value).scaleb(-scale, _EXACT)

    return pointed


def single(value: float) -> float:
    """Returns the nearest FLOAT; refuses a value that is too large for one."""
    number: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    return number


def moment(value: datetime) -> datetime:
    """Converts a time to UTC; refuses one whose year in UTC is not from 1 to 9999."""
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise Undecodable(f"{value} is out of the range of times") from None


def text(value: str) -> str:
    """Refuses text that cannot be encoded in UTF-8, in which Spark keeps it."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Undecodable("a text has half a character") from None
    return value


def _too_many_digits(precision: int, scale: int) -> Undecodable:
    return Undecodable(f"a number has more than {precision - scale} digits before its point")


def _shown(value: Any) -> str:
    return str(value)[:_SHOWN]
