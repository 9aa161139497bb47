"""Lines and bytes of standard input or of files, read on an event loop without a thread.

A thread that waits for a terminal could not be stopped by Ctrl-C: the process would stay until the
user presses Enter.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from typing import Final

_CHUNK_BYTES: Final = 1 << 16


async def read_chunks(descriptor: int) -> AsyncIterator[bytes]:
    """Reads chunks as they arrive, until the end.

    Raises:
        OSError: the input cannot be read.
    """
    while True:
        await _readable(descriptor)
        data = os.read(descriptor, _CHUNK_BYTES)
        if not data:
            return
        yield data


async def read_lines(
    descriptor: int, *, delimiter: bytes = b"\n", before: Callable[[], None] | None = None
) -> AsyncIterator[bytes]:
    """Yields the parts between delimiters, a last one without delimiter too; `before` is called
    before each wait.

    Raises:
        OSError: the input cannot be read.
    """
    rest = b""
    if before is not None:
        before()
    async for data in read_chunks(descriptor):
        *lines, rest = (rest + data).split(delimiter)
        for line in lines:
            yield line
        if before is not None:
            before()
    if rest:
        yield rest


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(descriptor, ready.set)
    except (PermissionError, NotImplementedError):
        return  # a file: it never makes anybody wait; or a loop that can only wait for sockets
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
