"""Purgatories: where requests wait for a condition, with a time-out, until they complete.

`delayed_operation` has the thing that waits and completes exactly once, `purgatory` the
place where it waits and is found again by key, `watchers` the list of one key. Stands on
`odradek.timer` and on nothing else, so it can be used without a broker.
"""

from odradek.purgatory.delayed_operation import DelayedOperation
from odradek.purgatory.purgatory import (
    DelayedOperationPurgatory,
    PurgatoryStats,
    WaitingOperation,
)
from odradek.purgatory.reaper import ExpiredOperationReaper
from odradek.purgatory.watchers import Watchers

__all__ = [
    "DelayedOperation",
    "DelayedOperationPurgatory",
    "ExpiredOperationReaper",
    "PurgatoryStats",
    "WaitingOperation",
    "Watchers",
]
