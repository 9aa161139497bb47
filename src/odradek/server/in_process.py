"""`odradek.Broker`: a broker inside the process that uses it, for tests and notebooks (R40).

`with` runs it on an event loop in a thread of its own, `async with` on the running loop.
Without a data directory it is ephemeral: it lives in a temporary directory that goes with
it, its metadata stays in memory, and nothing is forced to the disk.

With a `ManualClock` the broker's time moves only when the test moves it. `clock.advance`
from another thread returns when everything that became due has run, so a test needs no
waiting and no sleeping.

What a test may ask, `broker_helpers` answers; here are its faces: one that blocks, for any
thread but the broker's, and one to await on the broker's own loop.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Final, TypeVar

from odradek.background import InlineBackground
from odradek.client.core.fetched import ConsumerRecord
from odradek.clock import Clock, SystemClock
from odradek.config import BrokerConfig
from odradek.config.likely_names import with_likely_setting
from odradek.config.single_node import SINGLE_NODE_DEFAULTS
from odradek.metadata.embedded import SharedMetadata
from odradek.model import TopicPartition
from odradek.network import format_host_port
from odradek.purgatory import WaitingOperation
from odradek.server.broker import BrokerServer
from odradek.server.broker_helpers import BrokerHelpers, Data, Headers
from odradek.server.event_loop import new_event_loop

T = TypeVar("T")
SHOWN_TOPICS: Final = 5
WAIT_S: Final = 10.0
STOPPED: Final = "the broker was stopped meanwhile"

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
        self._helpers: BrokerHelpers | None = None
        self._shared: SharedMetadata | None = None

    def __repr__(self) -> str:
        server = self._server
        if server is None:
            return "<odradek.Broker, not running>"
        names = sorted(
            name for name, topic in server.metadata.image.topics.items() if not topic.is_internal
        )
        shown = names[:SHOWN_TOPICS]
        if len(names) > len(shown):
            shown.append(f"{len(names) - len(shown)} more")
        topics = f"topics: {', '.join(shown)}" if shown else "no topics"
        return f"<odradek.Broker {server.bootstrap_servers}, {topics}>"

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
            self._shared = SharedMetadata(InlineBackground(), os.urandom)
        await self._start_server({**self._settings, "log.dirs": directory})
        return self

    async def stop_async(self) -> None:
        """Stops the broker on the running loop."""
        try:
            await self._stop_server()
        finally:
            self._remove_temporary()

    async def restart_async(self) -> None:
        """`restart` for a broker on the running loop."""
        server = self._running()
        settings = {
            **self._settings,
            "log.dirs": ",".join(server.config.log_dirs),
            "listeners": ",".join(
                f"{each.listener_name}://{format_host_port(each.host, each.port)}"
                for each in server.sockets.endpoints
            ),
        }
        await self._stop_server()
        await self._start_server(settings)

    async def _start_server(self, settings: Mapping[str, str]) -> None:
        try:
            server = BrokerServer(
                BrokerConfig(settings),
                self._clock,
                ephemeral=self._data_dir is None,
                shared=self._shared,
            )
            await server.start()
        except BaseException:
            self._remove_temporary()
            raise
        self._helpers = BrokerHelpers(server, self._clock)
        self._server = server

    async def _stop_server(self) -> None:
        helpers, self._helpers = self._helpers, None
        server, self._server = self._server, None
        if helpers is not None:
            helpers.close()
        if server is not None:
            await server.stop()

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
        self._run(self.create_topic_async(name, partitions, config), "create_topic_async")

    async def create_topic_async(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> None:
        """`create_topic` for a broker on the running loop."""
        settings = {key: setting_text(value) for key, value in (config or {}).items()}
        await self._running().create_topic(name, partitions, settings)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic; when this returns no client sees it any more.

        Raises:
            BrokerError: there is none, or it may not be deleted.
        """
        self._run(self.delete_topic_async(name), "delete_topic_async")

    async def delete_topic_async(self, name: str) -> None:
        """`delete_topic` for a broker on the running loop."""
        await self._asked().delete_topic(name)

    def configure(self, topic: str, config: Mapping[str, object]) -> None:
        """Changes settings of a topic, under Kafka's names; None takes one back to its default.

        Raises:
            BrokerError: there is no such topic or setting, or a value is illegal.
        """
        self._run(self.configure_async(topic, config), "configure_async")

    async def configure_async(self, topic: str, config: Mapping[str, object]) -> None:
        """`configure` for a broker on the running loop."""
        settings = {
            name: None if value is None else setting_text(value) for name, value in config.items()
        }
        await self._asked().configure(topic, settings)

    def produce(
        self,
        topic: str,
        value: Data,
        key: Data = None,
        headers: Headers = (),
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> tuple[int, int]:
        """Appends a record; returns its partition and offset. Text becomes UTF-8.

        `timestamp` is in ms, by default the clock's time. Without a partition the key decides as
        in every client; without a key the shortest partition gets it. A topic that is missing is
        created where the broker's settings allow it.

        Raises:
            BrokerError: a client's record would be refused the same.
        """
        work = self.produce_async(topic, value, key, headers, timestamp, partition)
        return self._run(work, "produce_async")

    async def produce_async(
        self,
        topic: str,
        value: Data,
        key: Data = None,
        headers: Headers = (),
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> tuple[int, int]:
        """`produce` for a broker on the running loop."""
        return await self._asked().produce(topic, value, key, headers, timestamp, partition)

    def records(
        self, topic: str, partition: int | None = None, read_committed: bool = False
    ) -> list[ConsumerRecord]:
        """All records of a topic or of one partition of it, by partition and offset.

        With `read_committed` without those of transactions that are open or were aborted.

        Raises:
            BrokerError: there is no such topic or partition.
        """
        return self._run(self.records_async(topic, partition, read_committed), "records_async")

    async def records_async(
        self, topic: str, partition: int | None = None, read_committed: bool = False
    ) -> list[ConsumerRecord]:
        """`records` for a broker on the running loop."""
        return await self._asked().records(topic, partition, read_committed)

    def wait_for(
        self, topic: str, n: int, timeout: float = WAIT_S, read_committed: bool = False
    ) -> list[ConsumerRecord]:
        """Returns all records of a topic as soon as there are `n`; the topic may come later.

        `timeout` is in seconds of real time, whatever the broker's clock.

        Raises:
            TimeoutError: there are fewer when the time is over.
            RuntimeError: the broker was stopped meanwhile.
        """
        return self._run(self.wait_for_async(topic, n, timeout, read_committed), "wait_for_async")

    async def wait_for_async(
        self, topic: str, n: int, timeout: float = WAIT_S, read_committed: bool = False
    ) -> list[ConsumerRecord]:
        """`wait_for` for a broker on the running loop."""
        return await self._asked().wait_for(topic, n, timeout, read_committed)

    def topics(self) -> dict[str, int]:
        """The topics with their numbers of partitions, without Kafka's internal ones."""
        return self._run(self.topics_async(), "topics_async")

    async def topics_async(self) -> dict[str, int]:
        """`topics` for a broker on the running loop."""
        return self._asked().topics()

    def groups(self) -> dict[str, str]:
        """The groups with their states, as `kafka-consumer-groups.sh` shows them."""
        return self._run(self.groups_async(), "groups_async")

    async def groups_async(self) -> dict[str, str]:
        """`groups` for a broker on the running loop."""
        return self._asked().groups()

    def lag(self, group: str) -> dict[TopicPartition, int]:
        """How many offsets a group is behind the end, for each partition with a committed one.

        Raises:
            BrokerError: there is no such group.
        """
        return self._run(self.lag_async(group), "lag_async")

    async def lag_async(self, group: str) -> dict[TopicPartition, int]:
        """`lag` for a broker on the running loop."""
        return self._asked().lag(group)

    def restart(self) -> None:
        """Stops the broker and starts it again on the same ports, with all its records, offsets
        and topics, also without a data directory. Clients come back by themselves.

        Raises:
            StartError: it cannot be started again; it is stopped then.
        """
        self._run(self.restart_async(), "restart_async")

    def _run(self, work: Coroutine[Any, Any, T], awaited: str) -> T:
        """Has the broker's thread do it, and waits; `awaited` is what to use without one."""
        thread = self._thread
        if thread is None:
            work.close()
            self._running()
            raise RuntimeError(f"on a running loop, use `await broker.{awaited}(...)`")
        return thread.run(work)

    def _asked(self) -> BrokerHelpers:
        self._running()
        assert self._helpers is not None, "a running broker has helpers"
        return self._helpers

    def _running(self) -> BrokerServer:
        if self._server is None:
            raise RuntimeError("the broker is not running")
        return self._server

    def _catch_up(self) -> None:
        """The clock was moved: waits until the broker has done what that made due."""
        if self._thread is not None and not self._thread.is_current:
            self._thread.run(self._caught_up())

    async def _caught_up(self) -> None:
        if self._server is not None:  # else it is just being restarted
            await self._server.catch_up()

    def _remove_temporary(self) -> None:
        temporary, self._temporary = self._temporary, None
        self._shared = None
        if temporary is not None:
            temporary.cleanup()


class LoopThread:
    """An event loop that runs in a thread until it is closed.

    The thread is a daemon: a test that forgets to stop its broker does not hang the process.
    """

    def __init__(self) -> None:
        self._loop = new_event_loop()
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name="odradek-broker", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the loop and waits for its outcome.

        Raises:
            RuntimeError: the loop was closed before it had one.
        """
        assert not self.is_current, "the loop's own thread would wait for itself"
        with self._lock:
            if self._is_closed:
                work.close()
                raise RuntimeError(STOPPED)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise RuntimeError(STOPPED) from None

    @property
    def is_current(self) -> bool:
        """Whether the caller is this very thread."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """Ends the loop and the thread; who waits for an outcome yet is told."""
        with self._lock:
            self._is_closed = True
            ended = asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop)
        ended.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def setting_text(value: object) -> str:
    """A setting's value as it would stand in `server.properties`."""
    return str(value).lower() if isinstance(value, bool) else str(value)
