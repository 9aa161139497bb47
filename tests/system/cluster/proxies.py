"""TCP proxies between named places, whose ways can be cut: nothing passes, and nothing is refused.
They can be slow as well.

As with a cable that is pulled, both ends see silence. What was on the way arrives when the cut is
healed, however late. Everything runs on one thread with an event loop of its own.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Self

ZOOKEEPER: Final = "zookeeper"
# Takes the port of who opened a connection.
Speaker = Callable[[int], str]


def broker(broker_id: int) -> str:
    """The place of a broker."""
    return f"broker-{broker_id}"


def has_port(pid: int, port: int) -> bool:
    """Whether a connection from a port of 127.0.0.1 is of that process. What it says may be
    encrypted."""
    address = f"0100007F:{port:04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()
    sockets = {f"socket:[{each.split()[9]}]" for each in lines if each.split()[1] == address}
    descriptors = f"/proc/{pid}/fd"
    return any(_link(f"{descriptors}/{each}") in sockets for each in os.listdir(descriptors))


def _link(path: str) -> str:
    """Where a link leads; "" if it has gone meanwhile."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


class Switchboard:
    """All proxies of a test."""

    def __init__(self) -> None:
        self._loop: Final = asyncio.new_event_loop()
        self._thread: Final = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._cut: Final[set[frozenset[str]]] = set()
        self._slow: Final[dict[frozenset[str], float]] = {}
        self._changed = asyncio.Event()
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._servers: Final[list[asyncio.Server]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def forward(self, to: str, port: int, speaker: Speaker) -> int:
        """Passes connections on to a port of this machine, where `to` is; the port to connect to.
        `speaker` tells who opened one."""

        async def serve() -> asyncio.Server:
            return await asyncio.start_server(accept, "127.0.0.1", 0)

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._carry(reader, writer, to, port, speaker)
            writer.close()

        server = asyncio.run_coroutine_threadsafe(serve(), self._loop).result()
        self._servers.append(server)
        return server.sockets[0].getsockname()[1]

    @contextlib.contextmanager
    def cut(self, one: str, *others: str) -> Iterator[None]:
        """Cuts a place off from others, both ways, until the block is left."""
        ways = [frozenset((one, other)) for other in others]
        self._loop.call_soon_threadsafe(self._cut.update, ways)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._heal, ways)

    @contextlib.contextmanager
    def slow(self, one: str, *others: str, delay_s: float) -> Iterator[None]:
        """Delays all that passes between a place and others, until the block is left."""
        ways = {frozenset((one, other)): delay_s for other in others}
        self._loop.call_soon_threadsafe(self._slow.update, ways)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._hurry, frozenset(ways))

    def _hurry(self, ways: frozenset[frozenset[str]]) -> None:
        for way in ways:
            self._slow.pop(way, None)

    def _heal(self, ways: list[frozenset[str]]) -> None:
        self._cut.difference_update(ways)
        self._changed.set()
        self._changed = asyncio.Event()

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        to: str,
        port: int,
        speaker: Speaker,
    ) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            # Asked only now: it takes time, and a killed broker is called again and again.
            _, opener = writer.get_extra_info("peername")
            way = frozenset((speaker(opener), to))
            there = asyncio.ensure_future(self._pump(way, reader, far_writer))
            back = asyncio.ensure_future(self._pump(way, far_reader, writer))
            try:
                await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in (there, back):
                    pump.cancel()
                await asyncio.gather(there, back, return_exceptions=True)
        finally:
            far_writer.close()

    async def _pump(
        self, way: frozenset[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(1 << 16):
            await self._pass(way)
            writer.write(data)
            await writer.drain()
        await self._pass(way)  # an end is news as well

    async def _pass(self, way: frozenset[str]) -> None:
        """Returns when nothing is in the way."""
        if way in self._slow:
            await asyncio.sleep(self._slow[way])
        while way in self._cut:
            await self._changed.wait()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
