"""Splits lines into keys, values and headers, as Kafka's `LineMessageReader` does.

Bytes stay as they are. The separator of headers is a regular expression, in Kafka with Java's
syntax, here with RE2's.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.expressions import ExpressionError, Split, splitter

# The separators of a line.
_SEPARATORS: Final = {
    "key.separator": "\t",
    "headers.delimiter": "\t",
    "headers.separator": ",",
    "headers.key.separator": ":",
}
# Those that nobody could tell from each other, in the order in which Kafka's tool looks.
_DIFFERENT: Final = (
    ("headers.delimiter", "headers.separator"),
    ("headers.delimiter", "headers.key.separator"),
    ("headers.separator", "headers.key.separator"),
    ("null.marker", "key.separator"),
    ("null.marker", "headers.separator"),
    ("null.marker", "headers.delimiter"),
    ("null.marker", "headers.key.separator"),
)


class Line(NamedTuple):
    """A line, parsed."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class LineReader:
    """Splits lines as Kafka's `LineMessageReader` does."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Chooses the separators.

        Raises:
            ValueError: two of them are the same, or that of headers is not a regular expression.
        """
        given = {**_SEPARATORS, **properties}
        _check_different(given)

        def flag(name: str) -> bool:
            return given.get(name, "").strip().lower() == "true"

        self._parses_key = flag("parse.key")
        self._parses_headers = flag("parse.headers")
        self._ignores_errors = flag("ignore.error")
        self._key_separator = given["key.separator"].encode()
        self._headers_delimiter = given["headers.delimiter"].encode()
        self._split_headers = _headers_splitter(given["headers.separator"])
        self._headers_key_separator = given["headers.key.separator"].encode()
        marker = given.get("null.marker")
        self._null = None if marker is None else marker.encode()

    def read(self, number: int, line: bytes) -> Line:
        """Splits a line.

        Raises:
            ValueError: a separator is missing.
        """
        headers: list[tuple[str, bytes | None]] = []
        key: bytes | None = None
        if self._parses_headers:
            part, line = self._split(line, self._headers_delimiter, "headers delimiter", number)
            if part is not None and part != self._null:
                headers = [self._header(each, number) for each in self._split_headers(part)]
        if self._parses_key:
            key, line = self._split(line, self._key_separator, "key separator", number)
        return Line(self._or_null(key), self._or_null(line), headers)

    def _split(
        self, line: bytes, separator: bytes, what: str, number: int
    ) -> tuple[bytes | None, bytes]:
        left, found, right = _parted(line, separator)
        if found:
            return left, right
        if self._ignores_errors:
            return None, line
        raise ValueError(f"No {what} found on line number {number}: '{_shown(line)}'")

    def _header(self, part: bytes, number: int) -> tuple[str, bytes | None]:
        name, found, value = _parted(part, self._headers_key_separator)
        if not found and self._ignores_errors:
            return _shown(part), None
        if not found:
            raise ValueError(
                f"No header key separator found in pair '{_shown(part)}' on line number {number}"
            )
        if name == self._null:
            raise ValueError(
                f"Header keys should not be equal to the null marker '{_shown(name)}' as they "
                "can't be null"
            )
        return _shown(name), self._or_null(value)

    def _or_null(self, data: bytes | None) -> bytes | None:
        return None if data is not None and data == self._null else data


def _parted(data: bytes, separator: bytes) -> tuple[bytes, bool, bytes]:
    """Returns the parts around the separator, and whether it was found; an empty separator is
    always found.
    """
    left, found, right = data.partition(separator) if separator else (b"", True, data)
    return left, bool(found), right


def _check_different(separators: Mapping[str, str]) -> None:
    for name, other in _DIFFERENT:
        if name in separators and separators[name] == separators[other]:
            raise ValueError(f"{name} and {other} may not be equal")


def _headers_splitter(separator: str) -> Split:
    try:
        return splitter(separator)
    except ExpressionError as error:
        raise ValueError(f"headers.separator: {error}") from error


def _shown(data: bytes) -> str:
    return data.decode("utf-8", "replace")
