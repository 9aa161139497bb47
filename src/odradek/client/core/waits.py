"""Code for both callers that await and callers that block.

A question with its retries is a generator, named `..._gen`. It yields at every wait: a `Pause`, or
a call of the shell, which returns the result in blocking code, and an awaitable in asyncio.
`aio.waiting` and `sync.waiting` do the waiting; each sends the outcome in, or throws the failure.
"""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Pause(NamedTuple):
    """A pause of so long."""

    wait_ms: int


Wait = Callable[[], Any] | Pause
Gen = Generator[Wait, Any, T]
