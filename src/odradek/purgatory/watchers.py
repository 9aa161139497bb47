"""Watchers: the operations that wait under one key, in the order in which they came."""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from odradek.purgatory.delayed_operation import DelayedOperation


@mypyc_attr(acyclic=True)
class Watchers:
    """The list of one key. Completed operations stay in it until a check or a purge.

    Conditions run while the list is being checked, and they may watch, complete or check
    under the same key. So a purge makes a new list instead of changing the old one, and a
    check that is under way goes on over the list that it began with.
    """

    __slots__ = ("operations",)

    def __init__(self) -> None:
        self.operations: list[DelayedOperation] = []

    def try_complete_watched(self) -> int:
        """Checks every operation; how many this call completed."""
        completed = 0
        for operation in self.operations:
            if operation.safe_try_complete():
                completed += 1
        return completed

    def purge(self) -> int:
        """Drops the completed operations; how many those were."""
        before = len(self.operations)
        self.operations = [one for one in self.operations if not one._completed]
        return before - len(self.operations)
