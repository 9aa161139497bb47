"""The limits of Spark's columns: a value becomes what its column has of it, or is refused.

Spark itself makes something up, 0 or null, or ends the query when the row is on its way to the
JVM, again at each start. So each format asks here for every single value.
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
        """Counts one.

        Raises:
            UnusableSchema: there are too many.
        """
        self._left -= 1
        if self._left < 0:
            raise UnusableSchema(f"this schema has more than {MOST_TYPES} types, which is too many")


def integer(bits: int) -> Callable[[int], int]:
    """The function that refuses what has more bits."""
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def fitting(value: int) -> int:
        if not least <= value <= most:
            raise Undecodable(f"{_shown(value)} is not a number of {bits} bits")
        return value

    return fitting


def decimal(precision: int, scale: int) -> Callable[[Decimal], Decimal]:
    """The function that rounds finite numbers behind the point, as Spark does, and refuses those
    that are too large.

    It rounds here since Java is busy for minutes with one of 1e-99999999.
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
    """The function that puts the point into the digits of a number.

    The number is looked at first: to make a decimal of a very long one takes hours.
    """
    beyond = 10**precision

    def pointed(value: int) -> Decimal:
        if not -beyond < value < beyond:
            raise _too_many_digits(precision, scale)
        return Decimal(value).scaleb(-scale, _EXACT)

    return pointed


def single(value: float) -> float:
    """The FLOAT nearest to it; a value that is too large for one is refused."""
    number: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    return number


def moment(value: datetime) -> datetime:
    """The same time in UTC; one whose year in UTC is not from 1 to 9999 is refused."""
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise Undecodable(f"{value} is out of the range of times") from None


def text(value: str) -> str:
    """Refuses what is no text in UTF-8, in which Spark keeps it."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Undecodable("a text has half a character") from None
    return value


def _too_many_digits(precision: int, scale: int) -> Undecodable:
    return Undecodable(f"a number has more than {precision - scale} digits before its point")


def _shown(value: Any) -> str:
    return str(value)[:_SHOWN]
