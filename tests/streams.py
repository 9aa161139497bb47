"""A server of streams for tests, which leaves no connection behind.

A connection that is left is closed by the garbage collector, with a warning that fails whichever
test runs by then.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(serve: Serve, port: int = 0) -> AsyncIterator[int]:
    """Serves every connection, until the block ends; the port, on this machine."""
    tasks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a server serves in tasks"
        tasks[task] = writer
        try:
            await serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            return  # a server's task that is cancelled would be told of as an error
        finally:
            writer.close()

    server = await asyncio.start_server(serve_one, "127.0.0.1", port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.sleep(0)  # who was let in just now has a task by then
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in tasks.values():
            writer.transport.abort()
        await asyncio.sleep(0)
