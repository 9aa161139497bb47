"""Which name was meant by one that does not exist: commands, flags, settings.

The answer is for people to read and nothing acts on it. Names that share little with the given
one are not offered: a wrong guess is worse than none.
"""

from collections.abc import Iterable
from typing import Final

from odradek.config.broker import BROKER_SETTINGS
from odradek.config.topic import BROKER_SYNONYMS

# Two names of Kafka's share their ending more often than not.
_LIKENESS: Final = 0.75


def likely_name(name: str, names: Iterable[str], likeness: float = _LIKENESS) -> str | None:
    """The one of the names that looks most like the given one; None when none does."""
    # Imported here: mistakes are rare, and a start should be quick.
    from difflib import get_close_matches

    found = get_close_matches(name, list(names), 1, likeness)
    return found[0] if found else None


def likely_setting(name: str) -> str | None:
    """The broker setting that was meant, the broker's own name for a topic's setting included."""
    synonyms = BROKER_SYNONYMS.get(name)
    if synonyms:
        return synonyms[0].name
    return likely_name(name.lower().replace("_", "."), BROKER_SETTINGS)


def with_likely_setting(name: str) -> str:
    """A broker setting that nobody knows, and the one that was meant, for a person to read."""
    likely = likely_setting(name)
    return name if likely is None else f"{name} (did you mean {likely}?)"
