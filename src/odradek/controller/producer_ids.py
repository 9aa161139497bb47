"""Producer ids (InitProducerId): handed out from blocks, so that few of them cost a commit.

A block of 1000 is taken from the metadata store, which never gives one twice; what is left
of it when the broker stops is lost. Callers that come while a block is being fetched wait
for it in order.
"""

from collections import deque
from typing import Final

from odradek.errors import BrokerError
from odradek.metadata.store import MetadataStore, OnDone

BLOCK_SIZE: Final = 1_000


class ProducerIdManager:
    """Gives every caller a producer id that nobody else has."""

    def __init__(self, store: MetadataStore) -> None:
        self._store: Final = store
        self._next = 0
        self._end = 0
        self._waiting: Final[deque[OnDone[int]]] = deque()
        self._is_fetching = False

    def next_id(self, on_done: OnDone[int]) -> None:
        """Calls `on_done` with an id, at once while the block lasts, or with a BrokerError."""
        self._waiting.append(on_done)
        self._serve()

    def allocate_block(self, on_done: OnDone[range]) -> None:
        """Takes a block for somebody else, who hands its ids out."""
        self._store.allocate_producer_ids(BLOCK_SIZE, on_done)

    def _serve(self) -> None:
        while self._waiting and self._next < self._end:
            producer_id = self._next
            self._next += 1
            self._waiting.popleft()(producer_id)
        if self._waiting and not self._is_fetching:
            self._is_fetching = True
            self.allocate_block(self._on_block)

    def _on_block(self, outcome: range | BrokerError) -> None:
        self._is_fetching = False
        if isinstance(outcome, BrokerError):
            self._refuse(outcome)
            return
        self._next, self._end = outcome.start, outcome.stop
        self._serve()

    def _refuse(self, error: BrokerError) -> None:
        """Answers those who waited; who comes later tries again."""
        waiting = list(self._waiting)
        self._waiting.clear()
        for on_done in waiting:
            on_done(error)
