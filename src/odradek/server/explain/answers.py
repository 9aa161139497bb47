"""`explain`: every cause that holds in a picture, the likeliest first."""

from typing import NamedTuple

from odradek.server.explain.causes import CAUSES
from odradek.server.explain.picture import Picture, Question
from odradek.suggestions import name_of

MOST_OF_A_CAUSE = 10


class Finding(NamedTuple):
    """A cause that applies: its name in the table, and a description."""

    cause: str
    text: str


class Explanation(tuple[Finding, ...]):
    """Why nothing comes, the likeliest cause first. As text, a line each."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(f"{number}. {each.text}" for number, each in enumerate(self, 1))

    def __repr__(self) -> str:
        return str(self)


def asked_about(**names: str | None) -> Question:
    """The question that is meant by one name of a group, topic, client or transaction.

    Raises:
        ValueError: there is none, or more than one.
        TypeError: it is no text.
    """
    given = [
        Question(kind, name_of(f"a {kind}", name))
        for kind, name in names.items()
        if name is not None
    ]
    if len(given) != 1:
        raise ValueError(f"ask about one of {', '.join(names)}")
    return given[0]


def explain(picture: Picture) -> Explanation:
    """Asks all causes, in the order of the table; one that holds in many places says so."""
    found = []
    for cause in CAUSES:
        texts = list(dict.fromkeys(cause.find(picture)))
        found += [Finding(cause.name, text) for text in texts[:MOST_OF_A_CAUSE]]
        if len(texts) > MOST_OF_A_CAUSE:
            more = f"and so on, in {len(texts) - MOST_OF_A_CAUSE} more places"
            found.append(Finding(cause.name, more))
    if not found:
        name = picture.question.name
        found.append(Finding("none", f"nothing that the broker knows of holds {name} up"))
    return Explanation(found)
