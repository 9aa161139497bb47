"""server.properties is Java's format; a file is read as Java reads it."""

import pytest

from odradek.config import ConfigError, parse_properties


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("a=1\nb=2", {"a": "1", "b": "2"}),
        ("# c\n! d\n\n  a = 1  ", {"a": "1  "}),
        ("a:1\nb 2\nc", {"a": "1", "b": "2", "c": ""}),
        ("a=x,\\\n   y,\\\n  z\nb=1", {"a": "x,y,z", "b": "1"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a\\ b\\=c=d=e", {"a b=c": "d=e"}),
        ("a=\\u00e4\\t\\n\\q", {"a": "ä\t\nq"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\\\n# no comment here", {"a": "1# no comment here"}),
        ("a=last\\", {"a": "last"}),
        ("", {}),
    ],
)
def test_reads(text: str, settings: dict[str, str]) -> None:
    """Separators, comments, continued lines and escapes."""
    assert parse_properties(text) == settings


def test_refuses_a_broken_escape() -> None:
    """Java refuses it too; guessing would change a password or a path."""
    with pytest.raises(ConfigError, match="hexadecimal"):
        parse_properties("a=\\u12")
