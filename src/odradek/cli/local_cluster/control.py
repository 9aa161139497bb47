"""How `cluster restart` and `cluster stop` talk to the process that runs the cluster.

The protocol, on a socket in the cluster's directory: one request as a line of words, any number of
progress lines, and a last line. It is `done`, or `refused: ` with a sentence. Every user who can
write to the directory may send requests.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

from odradek.server.errors import StartError

SOCKET: Final = ".cluster.sock"
DONE: Final = "done"
REFUSED: Final = "refused: "


class ClusterEnded(StartError):
    """The process that runs the cluster ended before it answered `done`."""


Say = Callable[[str], None]
OnRequest = Callable[[str, Say], Awaitable[None]]
"""Does what a line asks, and says what happens; a `StartError` is the refusal."""


@contextlib.asynccontextmanager
async def answering(directory: Path, on_request: OnRequest) -> AsyncIterator[None]:
    """Handles requests for the length of a `with` block."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A client that has gone gets no lines, but its request is carried out.
        def say(line: str) -> None:
            writer.write(f"{line}\n".encode())

        try:
            await on_request((await reader.readline()).decode().strip(), say)
            say(DONE)
        except StartError as error:
            say(f"{REFUSED}{error}")
        except asyncio.CancelledError:
            pass  # the cluster has ended; its task must end too, and not as one that failed
        finally:
            await _close(writer)

    with _short_path(directory) as path:
        # That of a process that was killed. The process that runs the cluster holds its lock.
        Path(path).unlink(missing_ok=True)
        server = await asyncio.start_unix_server(answer, path)
    try:
        yield
    finally:
        server.close()
        (directory / SOCKET).unlink(missing_ok=True)


async def ask(directory: Path, request: str, say: Say) -> None:
    """Sends a request, and passes its progress on until it is done.

    Raises:
        ClusterEnded: the process ended meanwhile.
        StartError: it refuses, or no process is running.
    """
    try:
        with _short_path(directory) as path:
            reader, writer = await asyncio.open_unix_connection(path)
    except OSError:
        raise StartError(
            f"No cluster runs in {directory}; `odradek cluster start --data-dir {directory}` "
            "starts it"
        ) from None
    try:
        writer.write(f"{request}\n".encode())
        async for line in reader:
            last = line.decode().rstrip()
            if last == DONE:
                return
            if last.startswith(REFUSED):
                raise StartError(last.removeprefix(REFUSED))
            say(last)
    except ConnectionError:
        pass  # an end without a farewell is one
    finally:
        await _close(writer)
    raise ClusterEnded("The cluster has ended")


async def _close(writer: asyncio.StreamWriter) -> None:
    # A client that has gone need not get the end.
    with contextlib.suppress(OSError):
        writer.close()
        await writer.wait_closed()


@contextlib.contextmanager
def _short_path(directory: Path) -> Iterator[str]:
    # A socket's path has some hundred characters at most; a directory's may have more.
    descriptor = os.open(directory, os.O_PATH | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)
