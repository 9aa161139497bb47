"""Reads Java properties text, the format of `server.properties`.

A logical line is a key, a separator (`=`, `:` or blanks) and a value; `#` and `!` begin a comment
line, an odd number of backslashes at the end of a line continues it on the next one, and `\\n`,
`\\t`, `\\uXXXX` and the like stand for characters. The last of several equal keys wins. A file's
bytes are ISO-8859-1, as in Java: other characters have to be escaped. This module does not know
what a key means.
"""

import re
from collections.abc import Iterator
from typing import Final

from odradek.config.definition import ConfigError

_BLANKS: Final = " \t\f"
_KEY: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NAMED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def load_properties(path: str, encoding: str = "iso-8859-1") -> dict[str, str]:
    """The keys and values of a properties file.

    Raises:
        OSError: it cannot be read.
        UnicodeDecodeError: it is of another encoding.
        ConfigError: see `parse_properties`; it names the file.
    """
    with open(path, encoding=encoding, newline="") as file:
        text = file.read()
    try:
        return parse_properties(text)
    except ConfigError as error:
        raise ConfigError(error.name, error.value, error.reason, f"{path}: {error}") from None


def parse_properties(text: str) -> dict[str, str]:
    """The keys and values of a properties file.

    Raises:
        ConfigError: a `\\u` escape is not followed by four hexadecimal digits. The value is not in
            its text, which may be a password.
    """
    settings: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _KEY.fullmatch(line)
        if match is not None:
            settings[_unescape(match[1], match[1])] = _unescape(match[2], match[1])
    return settings


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for line in re.split(r"\r\n|\r|\n", text):
        stripped = line.lstrip(_BLANKS)
        # For Java a line that has nothing before its backslash has not begun.
        if not pending and (not stripped or stripped[0] in "#!"):
            continue
        continued = _is_continued(stripped)
        pending += stripped[:-1] if continued else stripped
        if not continued:
            yield pending
            pending = ""
    if pending:
        yield pending


def _is_continued(line: str) -> bool:
    backslashes = len(line) - len(line.rstrip("\\"))
    return backslashes % 2 == 1


def _unescape(text: str, key: str) -> str:
    if "\\" not in text:
        return text
    if any(escape == "u" for escape in _ESCAPE.findall(text)):
        raise ConfigError(key, "[hidden]", "\\u must be followed by four hexadecimal digits")
    return _joined(_ESCAPE.sub(_replacement, text))


def _joined(text: str) -> str:
    """Makes one character of each that two escapes stand for, which are halves for Java."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _replacement(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _NAMED.get(escape, escape)
