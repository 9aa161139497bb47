"""`SocketLeaderChannel`: the way of a follower to its leader, over the wire that clients use.

One connection, opened for the first request and again after it broke. How long an answer may take
is measured on the broker's timer, so that a clock that is moved by hand moves this too.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from odradek.client.addresses import Address
from odradek.client.aio.connection import AsyncConnection, open_connection
from odradek.client.apis import FETCH, LIST_OFFSETS, ClientApi
from odradek.client.core.network.handshake import Answer
from odradek.client.errors import AuthenticationError, KafkaError, NetworkError
from odradek.client.security import NO_SECURITY, ClientSecurity
from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition
from odradek.protocol import messages
from odradek.protocol.direct.fetch import (
    FetchRequest,
    decode_fetch_response,
    encode_fetch_request,
)
from odradek.protocol.direct.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    decode_list_offsets_response,
    encode_list_offsets_request,
)
from odradek.protocol.primitives import Buffer, ProtocolError
from odradek.replication.follower.leader_channel import LeaderChannel, OnFetched, OnOffset
from odradek.server.peers.broker_channel import OnAnswered
from odradek.timer import Timer, TimerTask

logger = logging.getLogger(__name__)

T = TypeVar("T")
_READ_UNCOMMITTED: Final = 0


class SocketLeaderChannel(LeaderChannel):
    """Asks the broker at `address` in the name of `broker_id`; see `LeaderChannel`."""

    def __init__(
        self,
        address: Address,
        broker_id: int,
        timer: Timer,
        timeout_ms: int,
        on_broken: Callable[[BaseException], None],
        *,
        purpose: str = "fetcher",
        measures_silence: bool = True,
        security: Callable[[], ClientSecurity] = lambda: NO_SECURITY,
    ) -> None:
        """`on_broken` gets the exception of a caller's callback, which nothing else would handle.
        The `purpose` is what the other side shows of this client. Unless it `measures_silence`, an
        answer may take as long as the connection is open. Each connection has the `security` of its
        moment."""
        self._client_id: Final = f"broker-{broker_id}-{purpose}"
        self._measures_silence: Final = measures_silence
        self._security: Final = security
        self._is_refused = False
        self._on_broken: Final = on_broken
        self._address: Final = address
        self._broker_id: Final = broker_id
        self._timer: Final = timer
        self._timeout_ms: Final = timeout_ms
        self._connection: AsyncConnection | None = None
        self._connecting: asyncio.Lock = asyncio.Lock()
        self._exchanges: Final[set[asyncio.Task[None]]] = set()

    def fetch(self, request: FetchRequest, on_done: OnFetched) -> None:
        """See `LeaderChannel`."""
        self._begin(FETCH, partial(encode_fetch_request, request), decode_fetch_response, on_done)

    def find_offset(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        current_leader_epoch: int,
        on_done: OnOffset,
    ) -> None:
        """See `LeaderChannel`."""
        topic, index = topic_partition
        wanted = ListOffsetsPartition(index, timestamp, current_leader_epoch)
        topics = [ListOffsetsTopic(topic, [wanted])]
        request = ListOffsetsRequest(self._broker_id, topics, _READ_UNCOMMITTED)

        def on_listed(outcome: ListOffsetsResponse | BrokerError) -> None:
            on_done(outcome if isinstance(outcome, BrokerError) else _only_offset(outcome))

        self._begin(
            LIST_OFFSETS,
            partial(encode_list_offsets_request, request),
            decode_list_offsets_response,
            on_listed,
        )

    def ask(self, api: ClientApi, values: Mapping[str, object], on_done: OnAnswered) -> None:
        """See `LeaderChannel`."""
        self._begin(
            api,
            lambda version: [messages.encode_request(api.key, version, values)],
            lambda frame, version, position: messages.decode_response(
                api.key, version, frame, position
            ),
            on_done,
        )

    def close(self) -> None:
        """Closes the connection; waiting callers are not called any more."""
        for exchange in self._exchanges:
            exchange.cancel()
        if self._connection is not None:
            self._connection.close()

    def _begin(
        self,
        api: ClientApi,
        encode: Callable[[int], Sequence[Buffer]],
        decode: Callable[[memoryview, int, int], T],
        on_done: Callable[[T | BrokerError], None],
    ) -> None:
        exchange = asyncio.ensure_future(self._exchange(api, encode, decode, on_done))
        self._exchanges.add(exchange)
        exchange.add_done_callback(self._on_ended)

    def _on_ended(self, exchange: asyncio.Task[None]) -> None:
        self._exchanges.discard(exchange)
        error = None if exchange.cancelled() else exchange.exception()
        if error is not None:
            self._on_broken(error)

    async def _exchange(
        self,
        api: ClientApi,
        encode: Callable[[int], Sequence[Buffer]],
        decode: Callable[[memoryview, int, int], T],
        on_done: Callable[[T | BrokerError], None],
    ) -> None:
        outcome: T | BrokerError
        try:
            connection = await self._connected()
            version = connection.agree(api)
            answer = await self._answer(connection, api, version, encode(version))
            outcome = decode(answer.frame, version, answer.position)
        except (KafkaError, ProtocolError) as error:
            outcome = BrokerError(ErrorCode.NETWORK_EXCEPTION, str(error))
        on_done(outcome)

    async def _answer(
        self, connection: AsyncConnection, api: ClientApi, version: int, body: Sequence[Buffer]
    ) -> Answer:
        silence = NetworkError(f"{self._address} was silent for {self._timeout_ms} ms")
        late = TimerTask(self._timeout_ms, lambda: connection.close(silence))
        if self._measures_silence:
            self._timer.add(late)
        try:
            return await connection.send(api, version, body)
        finally:
            late.cancel()

    async def _connected(self) -> AsyncConnection:
        async with self._connecting:
            if self._connection is None or self._connection.is_closed:
                self._connection = await self._open()
            return self._connection

    async def _open(self) -> AsyncConnection:
        try:
            connection = await open_connection(
                self._address, self._client_id, self._timeout_ms, security=self._security()
            )
        except AuthenticationError as error:
            if not self._is_refused:  # it is tried again and again
                logger.error("%s is refused by %s: %s", self._client_id, self._address, error)
            self._is_refused = True
            raise
        self._is_refused = False
        return connection


def _only_offset(response: ListOffsetsResponse) -> int | BrokerError:
    found = [partition for topic in response.topics for partition in topic.partitions]
    if not found:
        return BrokerError(ErrorCode.NETWORK_EXCEPTION, "an answer without a partition")
    partition = found[0]
    if partition.error_code != ErrorCode.NONE:
        return BrokerError(ErrorCode(partition.error_code))
    return partition.offset
