"""Chooses the broker to ask, and asks again after failures; common to all clients.

A question goes to one broker: any, a certain one, the controller or a coordinator. A question that
fails with a retriable error is repeated, after a growing pause and with fresh metadata, until the
time for the call is over; only then its error is raised.
"""

import itertools
import logging
import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, TypeVar

from odradek.client.addresses import Address, parse_bootstrap_servers
from odradek.client.apis import FIND_COORDINATOR, METADATA, ClientApi
from odradek.client.core.freshness import Freshness, Subject
from odradek.client.core.metadata import (
    ClusterMetadata,
    Node,
    decode_metadata_response,
    encode_metadata_request,
)
from odradek.client.core.metrics import ClientMetrics
from odradek.client.core.network.connections import MAIN_CHANNEL, C, Connections
from odradek.client.core.network.handshake import Answer
from odradek.client.core.processes import OfOneProcess
from odradek.client.core.retries import NO_LIMIT, Attempts, ExponentialBackoff, Rng, TimeLimit
from odradek.client.core.waits import Gen, Pause
from odradek.client.errors import (
    ClientClosed,
    CoordinatorError,
    NetworkError,
    RequestTimedOut,
    error_for,
    raise_for,
    unanswered,
)
from odradek.client.settings import ClientSettings
from odradek.clock import Clock
from odradek.errors import BrokerError, ErrorCode
from odradek.log_limit import LimitedLog
from odradek.protocol.primitives import Buffer, ProtocolError

T = TypeVar("T")
# As in `protocol.messages`, which takes a fifth of a second to import and is imported when needed.
Message = Any
# Of a request; a function is called when it is sent, and may refuse that.
Values = Mapping[str, object] | Callable[[], Mapping[str, object]]
Encode = Callable[[int], Sequence[Buffer]]
Decode = Callable[[memoryview, int, int], T]

_LOGGER: Final = logging.getLogger(__name__)
# As often as for unreachable brokers.
_TROUBLE_INTERVAL_MS: Final = 30_000
_NUMBERS: Final = itertools.count(1)
GROUP: Final = 0
TRANSACTION: Final = 1
BROKERS: Final = 1


class ClusterCore(OfOneProcess, Generic[C]):
    """The metadata of a cluster, and the questions to it; `C` is the shell's connection.

    A shell defines how a connection is opened (`_connect`), how connections and requests are shared
    (`_opened`, `refresh_gen`), and waits for what the generators yield.
    """

    bootstrap_setting: ClassVar = "bootstrap.servers"
    endpoint_type: ClassVar = BROKERS
    # The errors of a broker that does not accept changes.
    not_controller: ClassVar = frozenset({ErrorCode.NOT_CONTROLLER})

    def __init__(
        self, settings: ClientSettings, clock: Clock, rng: Rng, kind: str, retries: int = NO_LIMIT
    ) -> None:
        """Does not connect yet.

        Raises:
            ConfigError: no broker is named, or an address is malformed.
        """
        super().__init__()
        self.settings = settings
        self.clock = clock
        self.rng = rng
        self.metadata = ClusterMetadata()
        servers = ",".join(settings.items(self.bootstrap_setting))
        self._bootstrap = parse_bootstrap_servers(servers, self.bootstrap_setting)
        # As Kafka's own clients call themselves.
        self._client_id = settings.text("client.id") or f"{kind}-{next(_NUMBERS)}"
        self._retries = retries
        self.request_timeout_ms = settings.number("request.timeout.ms")
        self._backoff = ExponentialBackoff(
            settings.number("retry.backoff.ms"), settings.number("retry.backoff.max.ms"), rng
        )
        self._freshness = Freshness(settings.number("metadata.max.age.ms"), self._backoff)
        self._coordinators: dict[tuple[int, str], int] = {}
        self._trouble = LimitedLog(_LOGGER, clock, _TROUBLE_INTERVAL_MS)
        self._is_closed = False
        kind_name = "admin-client" if kind == "adminclient" else kind.split("-")[0]
        self.metrics = ClientMetrics(clock, f"{kind_name}-metrics")
        self._connections: Connections[C] = Connections(
            settings, clock, rng, self._client_id, self.metrics, self._connect
        )
        self.metrics.reader(lambda: self._connections.traffic(self._node_names(), kind_name))

    def _node_names(self) -> dict[Address, str]:
        """Brokers as Kafka's clients name them in metrics: those that are only named to begin with
        have numbers below 0."""
        named = {address: f"node--{number}" for number, address in enumerate(self._bootstrap, 1)}
        known = {node.address: f"node-{node.id}" for node in self.metadata.nodes.values()}
        return named | known

    def _connect(self, address: Address, setup_timeout_ms: int) -> Any:
        """A new connection, or what is to be awaited for it."""
        raise NotImplementedError

    def _opened(self, address: Address, channel: str) -> Any:
        """A connection from `Connections.open_gen`, or what is to be awaited for it."""
        raise NotImplementedError

    def refresh_gen(self, names: Iterable[str]) -> Gen[ClusterMetadata]:
        """Asks any broker for topics, not too often; returns its answer, including errors.

        Raises:
            KafkaError: nobody answers.
        """
        raise NotImplementedError

    # --- metadata ---------------------------------------------------------------------------

    def metadata_gen(
        self,
        names: Iterable[str] | None,
        *,
        allow_auto_topic_creation: bool = False,
        include_authorized_operations: bool = False,
    ) -> Gen[ClusterMetadata]:
        """Asks any broker for the named topics, or for all, at once and alone.

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

        answer = yield from self.exchange_gen(None, METADATA, encode, decode_metadata_response)
        raise_for(answer.error_code)
        self.metadata = self.metadata.merged(answer, is_complete=wanted is None)
        return answer

    def update_gen(
        self,
        subjects: Collection[Subject],
        names: Iterable[str] | None,
        *,
        allow_auto_topic_creation: bool = False,
    ) -> Gen[ClusterMetadata]:
        """Like `metadata_gen`, and records when these may be asked for again."""
        before = self.metadata
        # Each draws its pause at random: the same ones in every run with the same random numbers.
        subjects = sorted(subjects, key=str)
        self._freshness.sent(subjects)
        try:
            answer = yield from self.metadata_gen(
                names, allow_auto_topic_creation=allow_auto_topic_creation
            )
        except BaseException:
            self._freshness.failed(subjects, self.clock.monotonic_ms())
            raise
        now_ms = self.clock.monotonic_ms()
        self._freshness.answered(subjects, before, self.metadata, answer, now_ms)
        if not allow_auto_topic_creation:  # else the caller gets an error
            self._warn_of_refused(answer, names or ())
        return answer

    def _warn_of_refused(self, answer: ClusterMetadata, names: Iterable[str]) -> None:
        for name in names:
            topic = answer.topics.get(name)
            if topic is not None and topic.error_code:
                error = error_for(topic.error_code, name)
                self.warn(f"a topic cannot be used now: {error}")

    def warn(self, message: str) -> None:
        """Logs a lasting problem for which no error is raised."""
        self._trouble.warning(f"{self._client_id}: {message}")

    def outdated(self, names: Iterable[str]) -> set[str]:
        """Picks the topics that are not known, are doubted, or were last asked for
        `metadata.max.age.ms` ago."""
        return self._freshness.outdated(names, self.metadata, self.clock.monotonic_ms())

    def doubt(self, names: Iterable[str]) -> None:
        """Marks the metadata of these topics as possibly out of date."""
        self._freshness.doubt(names)

    # --- asking -----------------------------------------------------------------------------

    def call_gen(
        self,
        node_id: int | None,
        api: ClientApi,
        values: Values,
        *,
        channel: str = MAIN_CHANNEL,
        timeout_ms: int | None = None,
    ) -> Gen[Message]:
        """Asks a broker, or any, by kio's classes; `values` as `message_writer` takes them, or a
        function that returns them when the request is sent: until then it may wait for long.

        Raises:
            KafkaError: no answer came, or the function raised it.
        """
        # Imported late: listing topics never needs it.
        from odradek.protocol import messages

        def encode(version: int) -> list[Buffer]:
            given = values() if callable(values) else values
            return [messages.encode_request(api.key, version, given)]

        return self.exchange_gen(
            node_id,
            api,
            encode,
            lambda frame, version, position: messages.decode_response(
                api.key, version, frame, position
            ),
            channel=channel,
            timeout_ms=timeout_ms,
        )

    def exchange_gen(
        self,
        node_id: int | None,
        api: ClientApi,
        encode: Encode,
        decode: "Decode[T]",
        *,
        channel: str = MAIN_CHANNEL,
        timeout_ms: int | None = None,
    ) -> Gen[T]:
        """Asks a broker, or any.

        Raises:
            KafkaError: no answer came, or a number has no room in its field.
        """
        connection = yield from self.unthrottled_gen(node_id, channel)
        version = connection.agree(api)
        try:
            body = encode(version)
        except (OverflowError, struct.error) as error:
            why = f"a number does not fit into its field of {api.name}: {error}"
            raise error_for(ErrorCode.INVALID_REQUEST, why) from error
        limit_ms = self.request_timeout_ms if timeout_ms is None else timeout_ms
        answer = yield lambda: connection.request(api, version, body, limit_ms)
        return self.decoded(connection, api, version, answer, decode)

    def decoded(
        self, connection: C, api: ClientApi, version: int, answer: Answer, decode: "Decode[T]"
    ) -> T:
        """Decodes an answer. If the broker throttles this client, the next request waits (KIP-219).

        Raises:
            NetworkError: it is malformed; the connection is closed.
        """
        try:
            response = decode(answer.frame, version, answer.position)
        except ProtocolError as error:
            broken = NetworkError(f"{connection.address}: {error}")
            connection.close(broken)
            raise broken from error
        throttle_time_ms = _throttle_time_ms(response)
        if throttle_time_ms > 0 and version >= api.throttles_from:
            self._connections.throttle(connection.address, throttle_time_ms)
        return response

    def unthrottled_gen(self, node_id: int | None, channel: str = MAIN_CHANNEL) -> Gen[C]:
        """A connection to a broker, or any, once it does not throttle this client.

        Raises:
            KafkaError: none can be opened.
        """
        connection = yield from self.connection_gen(node_id, channel)
        while throttled_ms := self._connections.throttled_ms(connection.address):
            yield Pause(throttled_ms)
        return connection

    def throttled_ms(self, node_id: int) -> int:
        """How long to wait before the next request to a broker that throttles this client."""
        node = self.metadata.nodes.get(node_id)
        return 0 if node is None else self._connections.throttled_ms(node.address)

    def retrying_gen(
        self, attempt: Callable[[], Any], limit: TimeLimit, failures: list[BrokerError]
    ) -> Gen[Any]:
        """Makes attempts until one succeeds, fails for good, or the time is over. `failures`
        collects the retried errors.

        Raises:
            BrokerError: the error of the last attempt; it names the limit if that has ended them.
        """
        now_ms = self.clock.monotonic_ms()
        attempts = Attempts(self._backoff, now_ms, limit.left_ms, self._retries)
        while True:
            try:
                return (yield attempt)
            except BrokerError as error:
                wait_ms = attempts.after_failure(error.code, self.clock.monotonic_ms())
                if wait_ms is None:
                    if limit.has_ended(error):
                        raise limit.overdue(error) from error
                    raise
                failures.append(error)
                self.forget_whom_to_ask(error)
            yield Pause(wait_ms)

    def forget_whom_to_ask(self, error: BrokerError) -> None:
        """Forgets the coordinators or the controller if an error says that they may have moved."""
        is_cut_off = isinstance(error, NetworkError | RequestTimedOut)
        if is_cut_off or isinstance(error, CoordinatorError):
            self._coordinators.clear()
        if is_cut_off or error.code in self.not_controller:
            self.metadata = self.metadata.without_controller()

    # --- whom to ask ------------------------------------------------------------------------

    def controller_gen(self) -> Gen[int | None]:
        """The broker that accepts changes of topics; None, for any, if the metadata names none."""
        if self.metadata.controller_id not in self.metadata.nodes:
            yield from self.refresh_gen([])
        known = self.metadata.controller_id in self.metadata.nodes
        return self.metadata.controller_id if known else None

    def coordinator_gen(self, key: str, key_type: int) -> Gen[int]:
        """The coordinator of a group or a transactional id, looked up once.

        Raises:
            KafkaError: there is none now.
        """
        known = self._coordinators.get((key_type, key))
        if known is not None:
            return known
        # The key in both forms: each version takes the one that it knows.
        values = {"key": key, "key_type": key_type, "coordinator_keys": (key,)}
        answer = yield from self.call_gen(None, FIND_COORDINATOR, values)
        found = next(iter(answer.coordinators), None) if hasattr(answer, "coordinators") else answer
        if found is None:
            raise unanswered(key)
        raise_for(int(found.error_code), getattr(found, "error_message", None))
        self._know_node(found.node_id, found.host, found.port)
        self._coordinators[key_type, key] = found.node_id
        node_id: int = found.node_id
        return node_id

    def forget_coordinator(self, key: str, key_type: int) -> None:
        """Forgets a coordinator that moved or went away: the next call looks it up again."""
        self._coordinators.pop((key_type, key), None)

    def _know_node(self, node_id: int, host: str, port: int) -> None:
        known = self.metadata.nodes.get(node_id)
        if known is None or known.address != Address(host, port):
            self.metadata = self.metadata.with_nodes([Node(node_id, host, port)])

    # --- connections ------------------------------------------------------------------------

    def connection_gen(self, node_id: int | None, channel: str = MAIN_CHANNEL) -> Gen[C]:
        """A connection to a broker, or to any that answers.

        Raises:
            KafkaError: none can be opened.
        """
        self._check_open()
        if node_id is None:
            return (yield from self._least_loaded_gen())
        if node_id not in self.metadata.nodes:
            yield from self.refresh_gen([])
        node = self.metadata.nodes.get(node_id)
        if node is None:
            raise NetworkError(f"broker {node_id} is not known now")
        return (yield from self._connection_to_gen(node.address, channel))

    def connection_at_hand(self, node_id: int) -> C | None:
        """The connection to a broker, if it can be used at once."""
        node = self.metadata.nodes.get(node_id)
        if node is None or self._is_closed:
            return None
        return self._connections.at_hand(node.address, MAIN_CHANNEL)

    def _least_loaded_gen(self) -> Gen[C]:
        """The open connection with the fewest requests, or one to the first broker that answers."""
        known = self._connections.least_loaded()
        if known is not None:
            return known
        nodes = [node.address for node in self.metadata.nodes.values()]
        failures = []
        for address in self._connections.in_order([*nodes, *self._bootstrap]):
            try:
                return (yield from self._connection_to_gen(address, MAIN_CHANNEL))
            except NetworkError as error:
                failures.append(error.message)
        raise NetworkError(f"no broker can be reached: {'; '.join(failures)}")

    def _connection_to_gen(self, address: Address, channel: str) -> Gen[C]:
        self._check_open()
        known = self._connections.at_hand(address, channel)
        if known is not None:
            return known
        connection: C = yield lambda: self._opened(address, channel)
        return connection

    def _check_open(self) -> None:
        self.check_process()
        if self._is_closed:
            raise ClientClosed("the client was closed")


def _throttle_time_ms(response: object) -> int:
    """In milliseconds, as our own messages have it, or as kio's have it in a `timedelta`."""
    found = getattr(response, "throttle_time_ms", None)
    if found is None:
        throttle_time = getattr(response, "throttle_time", None)
        return 0 if throttle_time is None else round(throttle_time.total_seconds() * 1000)
    return int(found)
