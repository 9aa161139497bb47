"""The rules of any table of state x event."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import pytest

S = TypeVar("S")
E = TypeVar("E")


def predecessors(transitions: Mapping[tuple[S, E], S], states: Iterable[S]) -> dict[S, set[S]]:
    """From which states each state is reached; from none where it cannot be."""
    found: dict[S, set[S]] = {state: set() for state in states}
    for (before, _), after in transitions.items():
        found[after].add(before)
    return found


def assert_happens_by_the_table(
    transition: Callable[[S, E], S],
    transitions: Mapping[tuple[S, E], S],
    states: Iterable[S],
    events: Iterable[E],
) -> None:
    """Every event in every state: it leads where the table says, or is an error of ours."""
    events = list(events)
    for state in states:
        for event in events:
            if (state, event) in transitions:
                assert transition(state, event) is transitions[state, event]
            else:
                with pytest.raises(AssertionError, match="cannot happen"):
                    transition(state, event)
