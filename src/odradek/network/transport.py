"""`Transport`: the part of asyncio's, or TLS's, transport that a connection uses."""

from collections.abc import Callable
from typing import Protocol

from odradek.protocol.primitives import Buffer


class Transport(Protocol):
    """The methods of asyncio's transport that a connection needs."""

    def writelines(self, list_of_data: list[Buffer], /) -> None:
        """Queues the buffers; they must not change any more."""
        ...

    def pause_reading(self) -> None:
        """No more calls of `get_buffer` until reading is resumed."""
        ...

    def resume_reading(self) -> None:
        """Undoes `pause_reading`."""
        ...

    def get_write_buffer_size(self) -> int:
        """How many bytes are written and have not left."""
        ...

    def close(self) -> None:
        """Closes when everything written has left."""
        ...

    def abort(self) -> None:
        """Closes at once."""
        ...


def advance_or_abort(advance: Callable[[], None], transport: Transport) -> None:
    """Handles what a connection has received, in a turn of the loop that is no read.

    A mistake of ours raises, and the loop logs it. In a read asyncio's transport would end the
    connection for it; here its client would wait for ever, so it is aborted.
    """
    advanced = False
    try:
        advance()
        advanced = True
    finally:
        if not advanced:
            transport.abort()
