"""`StateWrites`: the writes of a share partition, one after the other.

While one is under way the others gather and go together with the next, so a thousand
acknowledgements, or locks that end at once, are two writes.
"""

from collections.abc import Callable, Sequence

from odradek.errors import BrokerError
from odradek.replication.share.persister import OnPersisted, StateBatch


class StateWrites:
    """The writes of one share partition; `send` carries one out and calls back once. The other
    fields are added then: earlier, the write before might still be refused."""

    def __init__(self, send: Callable[[Sequence[StateBatch], OnPersisted], None]) -> None:
        self._send = send
        self._is_under_way = False
        self._waiting: list[tuple[Sequence[StateBatch], OnPersisted]] = []

    def store(self, batches: Sequence[StateBatch], on_done: OnPersisted) -> None:
        """Stores what has changed; `on_done` is called once."""
        self._waiting.append((batches, on_done))
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and not self._is_under_way:
            together, self._waiting = self._waiting, []
            self._is_under_way = True
            self._write(together)

    def _write(self, together: list[tuple[Sequence[StateBatch], OnPersisted]]) -> None:
        def on_done(error: BrokerError | None) -> None:
            for _, on_stored in together:
                on_stored(error)
            # Writes that these callbacks request go together as well.
            self._is_under_way = False
            self._go_on()

        self._send([batch for batches, _ in together for batch in batches], on_done)
