"""The brokers of a cluster on an event loop: connections when they are needed, metadata, retries.

What producers, consumers and admins have in common. A question goes to one broker: any, a certain
one, the controller or a coordinator. One that fails with a retriable error is asked again, after
a growing pause and with fresh metadata, until the time for the call is over; only then its
error is raised.
"""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final, TypeVar

from odradek.client.addresses import Address, parse_bootstrap_servers
from odradek.client.aio.connection import AsyncConnection, open_connection
from odradek.client.apis import FIND_COORDINATOR, METADATA, ClientApi
from odradek.client.core.metadata import (
    ClusterMetadata,
    Node,
    decode_metadata_response,
    encode_metadata_request,
)
from odradek.client.core.retries import Attempts, Dice, ExponentialBackoff
from odradek.client.errors import (
    ClientClosed,
    CoordinatorError,
    KafkaError,
    NetworkError,
    RequestTimedOut,
    raise_for,
)
from odradek.client.settings import ClientSettings
from odradek.clock import Clock, SystemClock
from odradek.protocol.primitives import Buffer, ProtocolError

T = TypeVar("T")
# As in `protocol.messages`, which takes a fifth of a second to import and is imported when needed.
Message = Any
Encode = Callable[[int], Sequence[Buffer]]
Decode = Callable[[memoryview, int, int], T]

_NUMBERS: Final = itertools.count(1)
GROUP: Final = 0
TRANSACTION: Final = 1
BROKERS: Final = 1
# Answers come in the order of the requests, so what may wait long at the broker gets a connection
# of its own: joining a group, and fetches.
MAIN_CHANNEL: Final = "main"
GROUP_CHANNEL: Final = "group"
FETCH_CHANNEL: Final = "fetch"


class ClusterClient:
    """Asks brokers. Made on the loop it is used on; `close` it."""

    bootstrap_setting: ClassVar = "bootstrap.servers"
    endpoint_type: ClassVar = BROKERS

    def __init__(
        self,
        settings: ClientSettings,
        *,
        kind: str = "adminclient",
        clock: Clock | None = None,
        dice: Dice | None = None,
    ) -> None:
        """Connects to nobody yet.

        Raises:
            ValueError: no broker is named, or one of them has no host or port.
        """
        self.settings = settings
        self.clock: Clock = clock if clock is not None else SystemClock()
        self.dice: Dice = dice if dice is not None else random.Random()
        self.metadata = ClusterMetadata()
        self.metadata_updated_ms: int | None = None
        self._bootstrap = parse_bootstrap_servers(",".join(settings.items(self.bootstrap_setting)))
        # As Kafka's own clients call themselves.
        self._client_id = settings.text("client.id") or f"{kind}-{next(_NUMBERS)}"
        self.request_timeout_ms = settings.number("request.timeout.ms")
        self._backoff = ExponentialBackoff(
            settings.number("retry.backoff.ms"), settings.number("retry.backoff.max.ms"), self.dice
        )
        self._reconnects = ExponentialBackoff(
            settings.number("reconnect.backoff.ms"),
            settings.number("reconnect.backoff.max.ms"),
            self.dice,
        )
        self._setup_timeouts = ExponentialBackoff(
            settings.number("socket.connection.setup.timeout.ms"),
            settings.number("socket.connection.setup.timeout.max.ms"),
            self.dice,
        )
        self._connections: dict[tuple[Address, str], AsyncConnection] = {}
        self._opening: dict[tuple[Address, str], asyncio.Task[AsyncConnection]] = {}
        self._failures: dict[Address, tuple[int, int]] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._is_closed = False

    async def close(self) -> None:
        """Closes every connection; whoever waits gets `ClientClosed`."""
        self._is_closed = True
        for task in self._opening.values():
            task.cancel()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        for connection in self._connections.values():
            connection.close(ClientClosed("the client was closed"))
        self._connections.clear()

    # --- metadata ---------------------------------------------------------------------------

    async def refresh(
        self,
        names: Iterable[str] | None,
        *,
        allow_auto_topic_creation: bool = False,
        include_authorized_operations: bool = False,
    ) -> ClusterMetadata:
        """Asks any broker for the named topics, or for all; returns its answer, errors and all.

        `metadata` is the merged snapshot afterwards.

        Raises:
            KafkaError: nobody answers.
        """
        wanted = None if names is None else sorted(set(names))

        def encode(version: int) -> list[Buffer]:
            return [
                encode_metadata_request(
                    wanted,
                    version,
                    allow_auto_topic_creation=allow_auto_topic_creation,
                    include_authorized_operations=include_authorized_operations,
                )
            ]

        answer = await self.exchange(None, METADATA, encode, decode_metadata_response)
        raise_for(answer.error_code)
        self.metadata = self.metadata.merged(answer, is_complete=wanted is None)
        self.metadata_updated_ms = self.clock.monotonic_ms()
        return answer

    @property
    def is_metadata_old(self) -> bool:
        """Whether it was last asked for `metadata.max.age.ms` ago, or never."""
        if self.metadata_updated_ms is None:
            return True
        age_ms = self.clock.monotonic_ms() - self.metadata_updated_ms
        return age_ms >= self.settings.number("metadata.max.age.ms")

    # --- asking -----------------------------------------------------------------------------

    async def call(
        self,
        node_id: int | None,
        api: ClientApi,
        values: Mapping[str, object],
        *,
        channel: str = MAIN_CHANNEL,
        timeout_ms: int | None = None,
    ) -> Message:
        """Asks a broker, or any, by kio's classes; `values` as `message_writer` takes them.

        Raises:
            KafkaError: no answer came.
        """
        # Imported late: whoever only lists topics never needs it.
        from odradek.protocol import messages

        return await self.exchange(
            node_id,
            api,
            lambda version: [messages.encode_request(api.key, version, values)],
            lambda frame, version, position: messages.decode_response(
                api.key, version, frame, position
            ),
            channel=channel,
            timeout_ms=timeout_ms,
        )

    async def exchange(
        self,
        node_id: int | None,
        api: ClientApi,
        encode: Encode,
        decode: "Decode[T]",
        *,
        channel: str = MAIN_CHANNEL,
        timeout_ms: int | None = None,
    ) -> T:
        """Asks a broker, or any.

        Raises:
            KafkaError: no answer came.
        """
        connection = await self.connection(node_id, channel)
        version = connection.agree(api)
        limit_ms = self.request_timeout_ms if timeout_ms is None else timeout_ms
        answer = await connection.request(api, version, encode(version), limit_ms)
        try:
            return decode(answer.frame, version, answer.position)
        except ProtocolError as error:
            broken = NetworkError(f"{connection.address}: {error}")
            connection.close(broken)
            raise broken from error

    async def retrying(
        self, attempt: Callable[[], Awaitable[T]], timeout_ms: int | None = None
    ) -> T:
        """Makes attempts until one succeeds, fails for good, or the time is over.

        An attempt that is still waiting then, for a broker that is silent, is given up.

        Raises:
            KafkaError: the error of the last attempt that had one.
        """
        limit_ms = (
            self.settings.number("default.api.timeout.ms") if timeout_ms is None else timeout_ms
        )
        failure: KafkaError = RequestTimedOut(f"no answer within {limit_ms} ms")
        attempts = Attempts(self._backoff, self.clock.monotonic_ms(), limit_ms)
        try:
            async with asyncio.timeout(limit_ms / 1000):
                while True:
                    try:
                        return await attempt()
                    except KafkaError as error:
                        wait_ms = attempts.after_failure(error.code, self.clock.monotonic_ms())
                        if wait_ms is None:
                            raise
                        failure = error
                        if isinstance(error, CoordinatorError | NetworkError | RequestTimedOut):
                            self._coordinators.clear()
                    await asyncio.sleep(wait_ms / 1000)
        except TimeoutError:
            raise failure from None

    # --- whom to ask ------------------------------------------------------------------------

    async def controller_id(self) -> int | None:
        """The broker that takes changes of topics; None, any, where none is named."""
        if self.metadata.controller_id not in self.metadata.nodes:
            await self.refresh([])
        known = self.metadata.controller_id in self.metadata.nodes
        return self.metadata.controller_id if known else None

    async def coordinator_id(self, key: str, key_type: int) -> int:
        """The coordinator of a group or a transactional id, asked for once.

        Raises:
            KafkaError: there is none now.
        """
        known = self._coordinators.get((key_type, key))
        if known is not None:
            return known
        # The key in both forms: each version takes the one that it knows.
        values = {"key": key, "key_type": key_type, "coordinator_keys": (key,)}
        answer = await self.call(None, FIND_COORDINATOR, values)
        found = answer.coordinators[0] if hasattr(answer, "coordinators") else answer
        raise_for(int(found.error_code), getattr(found, "error_message", None))
        self._know_node(found.node_id, found.host, found.port)
        self._coordinators[key_type, key] = found.node_id
        node_id: int = found.node_id
        return node_id

    def forget_coordinator(self, key: str, key_type: int) -> None:
        """It moved, or is gone: the next call asks for it again."""
        self._coordinators.pop((key_type, key), None)

    def _know_node(self, node_id: int, host: str, port: int) -> None:
        known = self.metadata.nodes.get(node_id)
        if known is None or known.address != Address(host, port):
            self.metadata = self.metadata.with_nodes([Node(node_id, host, port)])

    # --- connections ------------------------------------------------------------------------

    async def connection(self, node_id: int | None, channel: str = MAIN_CHANNEL) -> AsyncConnection:
        """A connection to a broker, or to whichever answers.

        Raises:
            KafkaError: there is none to be had.
        """
        if node_id is None:
            return await self._least_loaded()
        if node_id not in self.metadata.nodes:
            await self.refresh([])
        node = self.metadata.nodes.get(node_id)
        if node is None:
            raise NetworkError(f"broker {node_id} is not known now")
        return await self._connection_to(node.address, channel)

    def connection_at_hand(self, node_id: int) -> AsyncConnection | None:
        """The connection to a broker, if it can be used at once."""
        node = self.metadata.nodes.get(node_id)
        if node is None or self._is_closed:
            return None
        known = self._connections.get((node.address, MAIN_CHANNEL))
        return None if known is None or known.is_closed or self._is_idle(known) else known

    async def _least_loaded(self) -> AsyncConnection:
        """The open connection with the least to do; else any broker that can be reached."""
        connections = [
            connection
            for (_, channel), connection in self._connections.items()
            if channel == MAIN_CHANNEL and not connection.is_closed
        ]
        if connections:
            return min(connections, key=lambda connection: connection.in_flight_count)
        known = [node.address for node in self.metadata.nodes.values()]
        candidates = list(dict.fromkeys([*known, *self._bootstrap]))
        candidates.sort(key=lambda address: self._not_before_ms(address))
        failures = []
        for address in candidates:
            try:
                return await self._connection_to(address, MAIN_CHANNEL)
            except NetworkError as error:
                failures.append(error.message)
        raise NetworkError(f"no broker can be reached: {'; '.join(failures)}")

    async def _connection_to(self, address: Address, channel: str) -> AsyncConnection:
        if self._is_closed:
            raise ClientClosed("the client was closed")
        key = (address, channel)
        known = self._connections.get(key)
        if known is not None and not known.is_closed:
            if not self._is_idle(known):
                return known
            known.close()
        opening = self._opening.get(key)
        if opening is None:
            opening = asyncio.create_task(self._open(address, channel))
            self._opening[key] = opening
            opening.add_done_callback(partial(self._opened, key))
        try:
            # Whoever gives up waiting does not take the connection from the others.
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled() and self._is_closed:
                raise ClientClosed("the client was closed") from None
            raise

    async def _open(self, address: Address, channel: str) -> AsyncConnection:
        failures, _ = self._failures.get(address, (0, 0))
        wait_ms = self._not_before_ms(address) - self.clock.monotonic_ms()
        if wait_ms > 0:
            await asyncio.sleep(wait_ms / 1000)
        setup_timeout_ms = self._setup_timeouts.wait_ms(failures)
        try:
            connection = await open_connection(address, self._client_id, setup_timeout_ms)
        except KafkaError:
            not_before_ms = self.clock.monotonic_ms() + self._reconnects.wait_ms(failures)
            self._failures[address] = (failures + 1, not_before_ms)
            raise
        self._failures.pop(address, None)
        self._connections[address, channel] = connection
        return connection

    def _opened(self, key: tuple[Address, str], opening: asyncio.Task[AsyncConnection]) -> None:
        self._opening.pop(key, None)
        if not opening.cancelled():
            opening.exception()  # whoever wanted it may have gone away

    def _is_idle(self, connection: AsyncConnection) -> bool:
        """Whether it was unused for so long that its broker may be about to close it."""
        limit_ms = self.settings.number("connections.max.idle.ms")
        idle_s = asyncio.get_running_loop().time() - connection.last_used_s
        return 0 <= limit_ms <= idle_s * 1000 and not connection.in_flight_count

    def _not_before_ms(self, address: Address) -> int:
        return self._failures.get(address, (0, 0))[1]
