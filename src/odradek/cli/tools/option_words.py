"""How most of Kafka's tools read their words: `-topic` is `--topic`, the value of a flag is the
next word whatever it is, and words that belong to no flag are ignored.

These tools fail on an invalid value, or on a second one where one is expected, only when they use
it, each with its own message: they call `refuse_values` there.
"""

import argparse
from collections.abc import Iterator, Sequence
from typing import Final

from odradek.suggestions import did_you_mean

AT_MOST_ONE: Final = "Found multiple arguments for option {}, but you asked for only one"
# Replaces an unreadable number, until the error is reported.
_SOME_NUMBER: Final = "0"


class TakesFirst(argparse.Action):
    """A flag that may be given twice, as Kafka's tool reads it: the first value counts."""

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        _option_string: str | None = None,
    ) -> None:
        """The flag was given."""
        if getattr(namespace, self.dest) is None:
            setattr(namespace, self.dest, values)


def read_words(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Rewrites the words so that argparse, with the flags of `parser`, reads them alike; ends with
    wrong usage at a flag that does not exist or lacks its value, in Kafka's words. Words that
    belong to no flag are ignored, as by Kafka's tools; `other_words` has them.
    """
    reader = _Reader(parser, words)
    read = list(reader.read())
    parser.set_defaults(other_words=reader.others)
    return read


def refuse_values(arguments: argparse.Namespace) -> None:
    """Refuses a value that was given and cannot be used.

    Raises:
        ValueError: there is one.
    """
    fault = vars(arguments).get("fault")
    if fault is not None:
        raise ValueError(fault)


class _Reader:
    """Reads the words once."""

    def __init__(self, parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
        self._parser = parser
        self._flags = parser._option_string_actions
        self._words = list(words)
        self._given: set[argparse.Action] = set()
        self.others: list[str] = []
        parser.set_defaults(fault=None)

    def read(self) -> Iterator[str]:
        """Returns the words for argparse."""
        while self._words:
            word = self._words.pop(0)
            if not _looks_like_a_flag(word):
                self.others.append(word)
                continue
            name, equals, value = word.partition("=")
            flag, action = self._flag(name)
            if action.nargs == 0 or not (equals or self._has_value(action)):
                yield flag
                continue
            if not equals:
                value = self._next_value(flag)
            yield f"{flag}={self._checked(flag, action, value)}"

    def _flag(self, name: str) -> tuple[str, argparse.Action]:
        for flag in (name, f"-{name}"):
            if flag in self._flags:
                return flag, self._flags[flag]
        known = [flag for flag in self._flags if flag.startswith("--")]
        meant = did_you_mean(f"--{name.lstrip('-')}", known)
        self._parser.error(f"{name.lstrip('-')} is not a recognized option{meant}")
        raise AssertionError("the parser ends the command")

    def _has_value(self, action: argparse.Action) -> bool:
        """Whether the next word is the value of a flag; the value may be missing if it has a
        default.
        """
        if action.nargs != "?":
            return True
        if not self._words:
            return False
        word = self._words[0]
        is_number = action.type is not None
        return _can_be_read(action, word) if is_number else not _looks_like_a_flag(word)

    def _next_value(self, flag: str) -> str:
        if not self._words:
            self._parser.error(f"Option {flag.lstrip('-')} requires an argument")
        return self._words.pop(0)

    def _checked(self, flag: str, action: argparse.Action, value: str) -> str:
        """Returns the value, or one that argparse takes instead of an invalid one."""
        name = flag.lstrip("-")
        if type(action) is argparse._StoreAction and action in self._given:
            self._note(AT_MOST_ONE.format(name))
        self._given.add(action)
        if _can_be_read(action, value):
            return value
        self._note(f"Cannot parse argument '{value}' of option {name}")
        return _SOME_NUMBER

    def _note(self, fault: str) -> None:
        if self._parser.get_default("fault") is None:
            self._parser.set_defaults(fault=fault)


def _looks_like_a_flag(word: str) -> bool:
    return word.startswith("-") and word not in ("-", "--")


def _can_be_read(action: argparse.Action, value: str) -> bool:
    if not callable(action.type):
        return True
    try:
        action.type(value)
    except (ValueError, argparse.ArgumentTypeError):
        return False
    return True
