"""Suggestions for names that no broker setting has."""

from typing import Final

from odradek.config.broker import BROKER_SETTINGS
from odradek.config.topic import BROKER_SYNONYMS
from odradek.suggestions import closest_name

# Two names of Kafka's share their ending more often than not.
_LIKENESS: Final = 0.75


def closest_setting(name: str) -> str | None:
    """The broker setting that was meant, the broker's own name for a topic's setting included."""
    synonyms = BROKER_SYNONYMS.get(name)
    if synonyms:
        return synonyms[0].name
    return closest_name(name.replace("_", "."), BROKER_SETTINGS, _LIKENESS)


def with_suggestion(name: str) -> str:
    """An unknown setting with a suggestion, for users to read."""
    closest = closest_setting(name)
    return name if closest is None else f"{name} (did you mean {closest}?)"
