"""Counts the records that a tool has sent and that have no end yet, and tells of them.

A producer tries for two minutes to deliver a record; while the broker does not answer, or while a
tool that was interrupted waits for it, that would be silence.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from odradek.cli.terminal import tell
from odradek.client.record_metadata import RecordMetadata

Delivery = asyncio.Future[RecordMetadata]

_SILENCE_S: Final = 3.0


class Undelivered:
    """The records without an end."""

    def __init__(self) -> None:
        self._count = 0
        self._heard_s = 0.0

    def add(self, delivery: Delivery) -> None:
        """Counts a record until it is delivered or given up."""
        if not self._count:
            self._heard_s = time.monotonic()
        self._count += 1
        delivery.add_done_callback(self._on_end)

    @contextmanager
    def told(self) -> Iterator[None]:
        """While records are sent: tells once when none has had an end for a moment, and when an
        interrupt waits for them."""
        telling = asyncio.create_task(self._tell_of_silence())
        try:
            yield
        except asyncio.CancelledError:
            if self._count:
                words = f"{self._in_words()} not delivered yet, trying on; Ctrl-C again gives up"
                # Later: an interrupt that comes while this prints ends the loop, not this block.
                asyncio.get_running_loop().call_soon(tell, words)
            raise
        finally:
            telling.cancel()

    async def _tell_of_silence(self) -> None:
        while (left_s := self._left_s()) > 0:
            await asyncio.sleep(left_s)
        tell(f"{self._in_words()} not delivered yet, trying on")

    def _left_s(self) -> float:
        """How long the silence may last from now on."""
        silent_s = time.monotonic() - self._heard_s if self._count else 0
        return _SILENCE_S - silent_s

    def _on_end(self, _delivery: Delivery) -> None:
        self._count -= 1
        self._heard_s = time.monotonic()

    def _in_words(self) -> str:
        count = self._count
        return "1 record is" if count == 1 else f"{count:,} records are"
