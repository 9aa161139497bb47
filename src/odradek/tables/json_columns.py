"""The JSON objects among a data frame's values, a column for each of their names."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

_VALUE: Final = "value"


def check_has_values(columns: Sequence[str] | None) -> None:
    """Refuses a choice of columns without `value`.

    Raises:
        ValueError: it is missing.
    """
    if columns is not None and _VALUE not in columns:
        raise ValueError("json reads the column value: let columns name it")


def with_json_columns(frame: Any) -> Any:
    """The pandas frame with the fields of its values instead of the column `value`. A name that the
    record has as well, `offset` say, becomes `value.offset`; a tombstone has nothing.

    Raises:
        ValueError: a value is no JSON object; the text says which.
    """
    rows = [_parse(number, value) for number, value in enumerate(frame[_VALUE])]
    frame = frame.drop(columns=_VALUE)
    taken = set(frame.columns)
    for name in _names(rows):
        column = f"{_VALUE}.{name}" if name in taken else name
        frame[column] = [row.get(name) for row in rows]
    return frame


def _names(rows: Iterable[dict[str, Any]]) -> Iterable[str]:
    return dict.fromkeys(name for row in rows for name in row)


def _parse(number: int, value: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(value) if value is not None else {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"the value of row {number} is no JSON object: {value!r:.80}")
    return found
