"""server.properties is Java's format; a file is read as Java reads it."""

from pathlib import Path

import pytest

from odradek.config import ConfigError, parse_properties
from odradek.config.files.properties import load_properties


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
        ("\\\n# a comment\n\\\r\n!one more \\u12\na=1", {"a": "1"}),
        ("\\\r\n\r\na=1\n  \\\n\nb=2", {"a": "1", "b": "2"}),
        ("a=\\uD83D\\uDE00\\uD83D", {"a": "\U0001f600\ud83d"}),
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


def test_a_broken_escape_is_told_without_the_value() -> None:
    """Logs of a container or a script would have the password in which it stands."""
    with pytest.raises(ConfigError, match="hexadecimal") as caught:
        parse_properties("b=2\nssl.key.password=hunter\\u12")
    assert "hunter" not in str(caught.value)
    assert "ssl.key.password" in str(caught.value)


def test_a_file_is_iso_8859_1(tmp_path: Path) -> None:
    """A password with an umlaut in such a file would be refused, or another one than Java's."""
    file = tmp_path / "client.properties"
    file.write_bytes("latin=Z\xfcrich\r\nescaped=\\u20ac\nutf8=".encode("iso-8859-1"))
    with file.open("ab") as more:
        more.write("ü".encode())
    assert load_properties(str(file)) == {"latin": "Zürich", "escaped": "€", "utf8": "Ã¼"}


def test_a_broken_escape_names_its_file(tmp_path: Path) -> None:
    """The error would not say which of several files to look into."""
    file = tmp_path / "client.properties"
    file.write_text("a=\\u12")
    with pytest.raises(ConfigError, match=rf"^{file}: .*hexadecimal"):
        load_properties(str(file))
