"""`ShareSession`: the partitions of a member that a broker knows; only changes are sent.

Every request has the epoch after the one before it. Epoch 0 opens a session, -1 ends it and
releases all records that were acquired in it.
"""

from collections.abc import Set
from typing import Final

from odradek.client.core.sharing.acknowledgements import SharePartition

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_LARGEST_EPOCH: Final = 0x7FFFFFFF


class ShareSession:
    """The session with one broker, as far as its answers have come."""

    def __init__(self) -> None:
        self.epoch = INITIAL_EPOCH
        self._known: frozenset[SharePartition] = frozenset()

    @property
    def is_open(self) -> bool:
        """Whether the session is open, so that it can be used or ended."""
        return self.epoch != INITIAL_EPOCH

    def added(self, wanted: Set[SharePartition]) -> frozenset[SharePartition]:
        """The partitions to send to the broker."""
        return frozenset(wanted - self._known)

    def forgotten(self, wanted: Set[SharePartition]) -> frozenset[SharePartition]:
        """The partitions that it is to forget."""
        return self._known - wanted

    def fetched(self, wanted: Set[SharePartition]) -> None:
        """Takes over the partitions of an answered fetch."""
        self._known = frozenset(wanted)
        self.advance()

    def advance(self) -> None:
        """Advances the epoch after an answer."""
        self.epoch = 1 if self.epoch == _LARGEST_EPOCH else self.epoch + 1

    def reset(self) -> None:
        """Drops the session: the next fetch opens another."""
        self.epoch, self._known = INITIAL_EPOCH, frozenset()
