"""Names that are wrong: of commands, flags, settings, topics, groups.

The one helper for "did you mean", and for what is no name at all. Users read the answer and
nothing acts on it. Names that share little with the given one are not suggested: a wrong guess is
worse than none.
"""

from collections.abc import Iterable
from typing import Final

_LIKENESS: Final = 0.6


def closest_name(name: str, names: Iterable[str], likeness: float = _LIKENESS) -> str | None:
    """The name that looks most like the given one, in either case; None when none does."""
    # Imported here: mistakes are rare, and a start should be quick.
    from difflib import get_close_matches

    known = {each.lower(): each for each in names}
    found = get_close_matches(name.lower(), known, 1, likeness)
    return known[found[0]] if found else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of an answer to a mistyped name; empty when nothing is like it."""
    closest = closest_name(name, names)
    return "" if closest is None else f" (did you mean {closest}?)"


def no_topic(name: str, names: Iterable[str]) -> str:
    """The answer to the name of a topic that does not exist, among the names of those that do."""
    return f"there is no topic {name!r}{did_you_mean(name, names)}"


def chosen(what: str, name: str, names: Iterable[str]) -> str:
    """The name, if it is one of the names.

    Raises:
        ValueError: it is not.
        TypeError: it is no text.
    """
    known = list(names)
    if name_of(f"the {what}", name) not in known:
        raise ValueError(f"there is no {what} called {name!r}{did_you_mean(name, known)}")
    return name


def name_of(what: str, name: object) -> str:
    """The name of a thing, such as `"a topic"`.

    The refusal has the name of the type and not the value, which may be settings with a password.

    Raises:
        TypeError: it is no text.
    """
    if isinstance(name, str):
        return name
    kind = type(name).__name__
    raise TypeError(f"{what} is named by text, and not by a value of type {kind}")
