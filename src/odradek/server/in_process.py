"""`odradek.Broker`: a broker inside the process that uses it, for tests and notebooks (R40).

`with` runs it on an event loop in a thread of its own, `async with` on the running loop.
Without a data directory it is ephemeral: it lives in a temporary directory that goes with
it, its metadata stays in memory, and nothing is forced to the disk.

With a `ManualClock` the broker's time moves only when the test moves it. `clock.advance`
from another thread returns when everything that became due has run, so a test needs no
waiting and no sleeping.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Final, TypeVar

from odradek.clock import Clock, ManualClock, SystemClock
from odradek.config import BrokerConfig
from odradek.config.likely_names import with_likely_setting
from odradek.config.single_node import SINGLE_NODE_DEFAULTS
from odradek.purgatory import WaitingOperation
from odradek.server.broker import BrokerServer
from odradek.server.event_loop import new_event_loop

T = TypeVar("T")

TEST_DEFAULTS: Final[Mapping[str, str]] = {
    **SINGLE_NODE_DEFAULTS,
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
}
"""Where an in-process broker differs from Kafka's defaults: what only costs time on one node."""


def check_settings(settings: Mapping[str, str]) -> None:
    """Tells of a mistake where it was made, in the program, and not at the start.

    Raises:
        ValueError: a setting is illegal, or there is none of that name.
    """
    unknown = BrokerConfig(settings).unknown
    if unknown:
        names = ", ".join(with_likely_setting(name) for name in unknown)
        raise ValueError(f"There is no broker setting {names}")


class Broker:
    """A broker in this process.

    `config` holds settings under Kafka's names; numbers and booleans may be given as such.
    A broker can be started again after it was stopped; with a `data_dir` it finds its data.

    Raises:
        ValueError: a setting is illegal, or there is none of that name.
        StartError: on start, when a port or the data directory cannot be had.
    """

    def __init__(
        self,
        data_dir: str | None = None,
        listeners: Sequence[str] = ("PLAINTEXT://127.0.0.1:0",),
        config: Mapping[str, object] = {},
        broker_id: int = 1,
        clock: Clock | None = None,
    ) -> None:
        self._data_dir = None if data_dir is None else str(data_dir)
        self._settings = {
            **TEST_DEFAULTS,
            **{name: setting_text(value) for name, value in config.items()},
            "broker.id": str(broker_id),
            "listeners": ",".join(listeners),
        }
        check_settings(self._settings)
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._server: BrokerServer | None = None
        self._temporary: TemporaryDirectory[str] | None = None
        self._thread: LoopThread | None = None
        self._unsubscribe: Callable[[], None] | None = None

    # --- a loop of its own ------------------------------------------------------------------

    def start(self) -> "Broker":
        """Starts the broker on a thread of its own; returns when it can serve.

        Raises:
            StartError: it cannot be started.
        """
        assert self._server is None, "the broker runs already"
        thread = LoopThread()
        try:
            thread.run(self.start_async())
        except BaseException:
            thread.close()
            raise
        self._thread = thread
        if isinstance(self._clock, ManualClock):
            self._unsubscribe = self._clock.subscribe(self._catch_up)
        return self

    def stop(self) -> None:
        """Stops the broker and its thread. Stopping one that is not running does nothing."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        try:
            thread.run(self.stop_async())
        finally:
            thread.close()

    def __enter__(self) -> "Broker":
        return self.start()

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # --- on the caller's loop ---------------------------------------------------------------

    async def start_async(self) -> "Broker":
        """Starts the broker on the running loop.

        Raises:
            StartError: it cannot be started.
        """
        assert self._server is None, "the broker runs already"
        directory = self._data_dir
        if directory is None:
            self._temporary = TemporaryDirectory(prefix="odradek-", ignore_cleanup_errors=True)
            directory = self._temporary.name
        try:
            config = BrokerConfig({**self._settings, "log.dirs": directory})
            server = BrokerServer(config, self._clock, ephemeral=self._data_dir is None)
            await server.start()
        except BaseException:
            self._remove_temporary()
            raise
        self._server = server
        return self

    async def stop_async(self) -> None:
        """Stops the broker on the running loop."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop()
        self._remove_temporary()

    async def __aenter__(self) -> "Broker":
        return await self.start_async()

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop_async()

    # --- what a test asks for -----------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every listener, as clients take it."""
        return self._running().bootstrap_servers

    @property
    def cluster_id(self) -> str:
        """The id of the cluster that this broker is."""
        return self._running().cluster_id

    def waiting(self) -> list[WaitingOperation]:
        """Why is this request not answered? What waits now, the longest waiting first, each
        with what it waits for in words: bytes, acks, members. From any thread.

        On a `ManualClock` nothing expires while one looks.
        """
        server = self._running()
        if self._thread is None or self._thread.is_current:
            return server.waiting()

        async def ask() -> list[WaitingOperation]:
            return server.waiting()

        return self._thread.run(ask())

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> None:
        """Creates a topic; when this returns it can be appended to. From any thread.

        Raises:
            BrokerError: the topic exists already, or its name or a setting is illegal.
        """
        if self._thread is None:
            raise RuntimeError("on a running loop, use `await broker.create_topic_async(...)`")
        self._thread.run(self.create_topic_async(name, partitions, config))

    async def create_topic_async(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> None:
        """`create_topic` for a broker on the running loop."""
        settings = {key: setting_text(value) for key, value in (config or {}).items()}
        await self._running().create_topic(name, partitions, settings)

    def _running(self) -> BrokerServer:
        if self._server is None:
            raise RuntimeError("the broker is not running")
        return self._server

    def _catch_up(self) -> None:
        """The clock was moved: waits until the broker has done what that made due."""
        if self._thread is not None and not self._thread.is_current:
            self._thread.run(self._running().catch_up())

    def _remove_temporary(self) -> None:
        temporary, self._temporary = self._temporary, None
        if temporary is not None:
            temporary.cleanup()


class LoopThread:
    """An event loop that runs in a thread until it is closed.

    The thread is a daemon: a test that forgets to stop its broker does not hang the process.
    """

    def __init__(self) -> None:
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="odradek-broker", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the loop and waits for its outcome."""
        assert not self.is_current, "the loop's own thread would wait for itself"
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    @property
    def is_current(self) -> bool:
        """Whether the caller is this very thread."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """Ends the loop and the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()


def setting_text(value: object) -> str:
    """A setting's value as it would stand in `server.properties`."""
    return str(value).lower() if isinstance(value, bool) else str(value)
