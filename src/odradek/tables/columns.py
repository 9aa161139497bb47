"""The columns of a topic, by the names that Spark's Kafka connector gives them."""

from collections.abc import Iterable, Sequence
from typing import Final

HEADERS: Final = "headers"
PLAIN_COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
)
COLUMNS: Final = (*PLAIN_COLUMNS, HEADERS)


def check_columns(columns: Sequence[str] | None) -> tuple[str, ...]:
    """The requested columns; by default all.

    Raises:
        ValueError: there is none of that name.
        TypeError: these are no names: the name of one, for example.
    """
    if columns is not None and (isinstance(columns, str) or not isinstance(columns, Iterable)):
        kind = type(columns).__name__
        raise TypeError(f"columns is a list of names, and not of type {kind}")
    for name in columns or ():
        if name not in COLUMNS:
            raise ValueError(f"there is no column {name!r}; there are {', '.join(COLUMNS)}")
    return COLUMNS if columns is None else tuple(columns)
