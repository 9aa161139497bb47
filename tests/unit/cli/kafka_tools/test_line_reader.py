"""Lines that console-producer is given. If these fail, a key, a value or a header is cut elsewhere
than Apache Kafka's tool cuts it."""

import pytest

from odradek.cli.tools.records.line_reader import LineReader

HEADERS = {"parse.headers": "true"}


@pytest.mark.parametrize(
    ("name", "other", "value"),
    [
        ("headers.delimiter", "headers.separator", ","),
        ("headers.delimiter", "headers.key.separator", ":"),
        ("headers.separator", "headers.key.separator", ":"),
        ("null.marker", "key.separator", "\t"),
        ("null.marker", "headers.separator", ","),
        ("null.marker", "headers.key.separator", ":"),
    ],
)
def test_separators_that_are_the_same_are_refused(name: str, other: str, value: str) -> None:
    """With headers and keys or without: a line would be cut at the wrong one."""
    with pytest.raises(ValueError, match=f"^{name} and {other} may not be equal$"):
        LineReader({name: value})


def test_a_null_marker_is_no_delimiter() -> None:
    with pytest.raises(ValueError, match=r"null\.marker and headers\.delimiter may"):
        LineReader({"null.marker": "|", "headers.delimiter": "|"})


def test_a_key_may_be_separated_as_headers_are() -> None:
    properties = {**HEADERS, "parse.key": "true", "key.separator": ","}
    assert LineReader(properties).read(1, b"a:1\tk,v") == (b"k", b"v", [("a", b"1")])


@pytest.mark.parametrize(
    ("separator", "text", "headers"),
    [
        (",", b"a:1,", [("a", b"1")]),
        (",", b"a:1,,,", [("a", b"1")]),
        (",", b",", []),
        (",_*", b"a:1,__b:2", [("a", b"1"), ("b", b"2")]),
        ("[;|]", b"a:1;b:2|c:3|", [("a", b"1"), ("b", b"2"), ("c", b"3")]),
        (r"\|", b"a:\xff|b:", [("a", b"\xff"), ("b", b"")]),
        (r"\Q|\E+", b"a:1||b:2", [("a", b"1"), ("b", b"2")]),
    ],
)
def test_headers_are_separated_by_an_expression(
    separator: str, text: bytes, headers: list[tuple[str, bytes]]
) -> None:
    reader = LineReader({**HEADERS, "headers.separator": separator})
    assert reader.read(1, text + b"\tv") == (None, b"v", headers)


def test_nothing_separates_the_bytes_of_a_character() -> None:
    """A header's name would be broken where an expression may match nothing."""
    reader = LineReader({**HEADERS, "headers.separator": "", "ignore.error": "true"})
    headers = [(each, None) for each in "aé€\U0001f600"]
    assert reader.read(1, "aé€\U0001f600\tv".encode()) == (None, b"v", headers)


def test_a_name_without_a_value_may_be_the_null_marker() -> None:
    """Kafka looks at names only where there is a separator behind them."""
    properties = {**HEADERS, "null.marker": "NULL", "ignore.error": "true"}
    assert LineReader(properties).read(1, b"NULL\tv") == (None, b"v", [])
    assert LineReader(properties).read(1, b"a:1,NULL\tv").headers == [("a", b"1"), ("NULL", None)]


def test_an_empty_separator_is_everywhere() -> None:
    """A script whose variable is unset would end with a sentence of Python's."""
    properties = {**HEADERS, "parse.key": "true", "key.separator": "", "headers.key.separator": ""}
    assert LineReader(properties).read(1, b"a:1\tv") == (b"", b"v", [("", b"a:1")])


@pytest.mark.parametrize("text", [b"", b",a:1", b"a:1,,b:2"])
def test_a_header_that_is_empty_is_named(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"found in pair '' on line number 7$"):
        LineReader(HEADERS).read(7, text + b"\tv")


def test_a_separator_that_matches_nothing_cuts_everywhere() -> None:
    reader = LineReader({**HEADERS, "headers.separator": "x*", "ignore.error": "true"})
    expected = [
        ("a", None),
        ("", b""),
        ("1", None),
        ("", None),
        ("b", None),
        ("", b""),
        ("2", None),
    ]
    assert reader.read(1, b"a:1xb:2\tv").headers == expected


@pytest.mark.parametrize("separator", ["(", "(?=a)", "[,;&&[^;]]"])
def test_what_is_no_expression_is_refused(separator: str) -> None:
    with pytest.raises(ValueError, match=r"^headers\.separator: .+"):
        LineReader({"headers.separator": separator})
