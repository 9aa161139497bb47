"""Watchers: the operations that wait under one key, in the order in which they came."""

from __future__ import annotations

from odradek.purgatory.delayed_operation import DelayedOperation


class Watchers:
    """The list of one key. Completed operations stay in it until a check or a purge.

    Conditions run while the list is being checked, and they may watch, complete or check under the
    same key. So a purge creates a new list instead of changing the old one, and a running check
    continues over the list that it began with.
    """

    __slots__ = ("operations",)

    def __init__(self) -> None:
        self.operations: list[DelayedOperation] = []

    def try_complete_watched(self, failures: list[BaseException]) -> int:
        """Checks every operation that is there now; how many this call completed.

        Operations that conditions and completions watch meanwhile were tried when they were
        watched; trying them here as well would never end if each completion watches another
        operation. Operations that are forgotten meanwhile are skipped. If an operation raises, the
        others are still checked.
        """
        operations = self.operations
        completed = 0
        for position in range(len(operations)):
            operation = operations[position]
            if operation._watches == 0:
                continue
            try:
                if operation.safe_try_complete():
                    completed += 1
            except BaseException as error:  # noqa: BLE001 - raised when all have had their turn
                failures.append(error)
        return completed

    def purge(self) -> int:
        """Drops the completed operations; how many those were."""
        before = len(self.operations)
        self.operations = [one for one in self.operations if not one._completed]
        return before - len(self.operations)

    def discard(self, operation: DelayedOperation) -> int:
        """Drops every entry of the operation; how many those were."""
        before = len(self.operations)
        self.operations = [one for one in self.operations if one is not operation]
        return before - len(self.operations)
