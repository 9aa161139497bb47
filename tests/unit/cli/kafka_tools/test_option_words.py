"""How the words of Kafka's tools are read.

If these fail, a flag gets another value than was given, or what makes no sense is done.
"""

import argparse

import pytest

from odradek.cli.tools.option_words import read_words, refuse_values
from odradek.cli.tools.wording.java_values import java_int


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tool", allow_abbrev=False)
    parser.add_argument("--topic")
    parser.add_argument("--partition", type=java_int)
    parser.add_argument("--config", action="append", default=[])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--state", nargs="?", const="any")
    parser.add_argument("--timeout", nargs="?", const=7, default=7, type=java_int)
    return parser


@pytest.mark.parametrize(
    ("words", "read"),
    [
        ("--topic a", {"topic": "a"}),
        ("-topic=a", {"topic": "a"}),
        ("--topic --list", {"topic": "--list"}),
        ("--topic a more words --list", {"topic": "a", "list": True}),
        ("--topic= --list=yes", {"topic": "", "list": True}),
        ("--partition -5", {"partition": -5}),
        ("--config a=b --config=c=d", {"config": ["a=b", "c=d"]}),
        ("--state --list", {"state": "any", "list": True}),
        ("--state Empty --list", {"state": "Empty", "list": True}),
        ("--timeout -1", {"timeout": -1}),
        ("--timeout soon --list", {"timeout": 7, "list": True}),
    ],
)
def test_words_are_read_as_kafkas_tools_read_them(
    parser: argparse.ArgumentParser, words: str, read: dict[str, object]
) -> None:
    nothing = vars(parser.parse_args([]))
    arguments = parser.parse_args(read_words(parser, words.split()))
    refuse_values(arguments)
    others = [word for word in words.split() if word in ("more", "words", "soon")]
    assert vars(arguments) == {**nothing, **read, "fault": None, "other_words": others}


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("--topic a --topic b", "Found multiple arguments for option topic"),
        ("--partition one", "Cannot parse argument 'one' of option partition"),
        ("--partition 99999999999", "Cannot parse argument '99999999999' of option partition"),
    ],
)
def test_values_that_make_no_sense_are_refused_when_they_are_used(
    parser: argparse.ArgumentParser, words: str, fault: str
) -> None:
    arguments = parser.parse_args(read_words(parser, words.split()))
    with pytest.raises(ValueError, match=fault):
        refuse_values(arguments)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--xyzzy", "xyzzy is not a recognized option\n"),
        ("--topc a", "topc is not a recognized option (did you mean --topic?)\n"),
        ("--list --topic", "Option topic requires an argument\n"),
    ],
)
def test_flags_that_make_no_sense_are_wrong_usage(
    parser: argparse.ArgumentParser, words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        read_words(parser, words.split())
    assert capsys.readouterr().err.endswith(said)
