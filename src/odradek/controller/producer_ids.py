"""Producer ids (InitProducerId): handed out from blocks, so that few of them cost a commit.

A block of 1000 is taken from the metadata store, which never gives one twice; the rest of it is
lost when the broker stops. Callers that come while a block is being fetched wait for it in order:
after any failure of the store they have to ask again. The error for that is
COORDINATOR_LOAD_IN_PROGRESS, the only one that old producers survive.
"""

import logging
from collections import deque
from typing import Final

from odradek.background import do_each
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.store import MetadataStore, OnDone
from odradek.timer import Timer, TimerTask

_LOG: Final = logging.getLogger(__name__)

BLOCK_SIZE: Final = 1_000
MAX_WAIT_MS: Final = 1_000
_NONE: Final = "there are no producer ids: %s"


class ProducerIdManager:
    """Gives every caller a unique producer id."""

    def __init__(self, store: MetadataStore, timer: Timer) -> None:
        self._store: Final = store
        self._timer: Final = timer
        self._time_out: Final = TimerTask(MAX_WAIT_MS, self._refuse)
        self._next = 0
        self._end = 0
        self._waiting: Final[deque[OnDone[int]]] = deque()
        self._is_fetching = False
        self._is_refused = False

    def next_id(self, on_done: OnDone[int]) -> None:
        """Calls `on_done` with an id, at once while the block lasts, or with
        COORDINATOR_LOAD_IN_PROGRESS."""
        self._waiting.append(on_done)
        self._serve()
        if self._waiting and not self._time_out.is_pending:
            self._timer.add(self._time_out)

    def allocate_block(self, on_done: OnDone[range]) -> None:
        """Takes a block for another broker, which hands out its ids."""
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
            # Clients ask again at once: it is logged once, until there is a block again.
            _LOG.log(logging.DEBUG if self._is_refused else logging.WARNING, _NONE, outcome)
            self._is_refused = True
            self._refuse()
            return
        self._is_refused = False
        self._next, self._end = outcome.start, outcome.stop
        self._serve()
        if not self._waiting:
            self._time_out.cancel()

    def _refuse(self) -> None:
        """Answers the waiting callers; later ones try again."""
        self._time_out.cancel()
        error = BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        waiting = list(self._waiting)
        self._waiting.clear()
        do_each(waiting, lambda on_done: on_done(error))
