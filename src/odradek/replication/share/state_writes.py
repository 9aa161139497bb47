"""`StateWrites`: the writes of a share partition, one after the other.

While one is under way the others gather and go together with the next, so a thousand
acknowledgements, or locks that end at once, are two writes.
"""

from collections.abc import Callable, Sequence
from functools import partial

from odradek.background import run_each
from odradek.errors import BrokerError, ErrorCode
from odradek.replication.share.persister import OnPersisted, StateBatch


class StateWrites:
    """The writes of one share partition; `send` carries one out and calls back once. `send` adds
    other facts to the batches itself, since an earlier write may be refused until then. A write
    that raises has failed; later ones are sent all the same."""

    def __init__(self, send: Callable[[Sequence[StateBatch], OnPersisted], None]) -> None:
        self._send = send
        self._is_under_way = False
        self._waiting: list[tuple[Sequence[StateBatch], OnPersisted]] = []

    def store(self, batches: Sequence[StateBatch], on_done: OnPersisted) -> None:
        """Stores the batches; `on_done` is called once."""
        self._waiting.append((batches, on_done))
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and not self._is_under_way:
            together, self._waiting = self._waiting, []
            self._is_under_way = True
            self._write(together)

    def _write(self, together: list[tuple[Sequence[StateBatch], OnPersisted]]) -> None:
        is_done = False

        def on_done(error: BrokerError | None) -> None:
            nonlocal is_done
            if not is_done:
                is_done = True
                # The writes that these callbacks begin share the next one, too.
                run_each([*(partial(on_stored, error) for _, on_stored in together), self._end])

        try:
            self._send([batch for batches, _ in together for batch in batches], on_done)
        except Exception:
            on_done(BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR))  # it will not call back
            raise

    def _end(self) -> None:
        self._is_under_way = False
        self._go_on()
