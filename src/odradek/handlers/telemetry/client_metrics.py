"""`ClientMetricsManager`: decides which clients push which of their metrics, and how often
(KIP-714).

Subscriptions are settings of the resources CLIENT_METRICS. A client asks which of them apply to it,
and gets the metrics to push and a subscription id; a push with another id is refused, so the client
asks again. Between two questions or pushes lies the interval of the subscriptions. A client that is
unknown here, after a restart or because newer ones replaced it, starts again with its next request,
as it does when a subscription has changed.

The last push of a client that ends may come before its time. In Kafka 4.3 a refused last push ends
a client, and the next push revives it (KAFKA-20898); here a client ends only by an accepted last
push, and for good.

With a receiver (`telemetry.receiver`) pushes are read, and their newest values are kept. Without
one they are checked and dropped, as in a Kafka without a plug-in for them; ApiVersions lists
neither API then, and no client pushes by itself. A large push is unpacked and read on a helper
thread, and its client waits for the response.
"""

import logging
import zlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from odradek.background import Background
from odradek.clock import LONG_AGO_MS, Clock
from odradek.config.client_metrics import (
    DEFAULT_INTERVAL_MS,
    check_client_metrics,
    parse_match,
    push_interval_ms,
    wanted_metrics,
)
from odradek.config.definition import ConfigError
from odradek.errors import BrokerError, ErrorCode
from odradek.expressions import Match
from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import ZERO_UUID, ConfigResource
from odradek.metadata.shared_map import SharedMap
from odradek.model import ConfigResourceType
from odradek.protocol.primitives import ProtocolError
from odradek.protocol.uuids import uuid_text
from odradek.records.compression import Compression, decompress

if TYPE_CHECKING:
    from odradek.handlers.telemetry.pushed_metrics import PushedMetrics
    from odradek.protocol.otlp_metrics import MetricsData

logger = logging.getLogger(__name__)

MOST_INSTANCES: Final = 16_384
ALL_METRICS: Final = "*"
# The nil id, and the id of the metadata topic: no client may have them.
RESERVED_IDS: Final = frozenset({ZERO_UUID, UUID(int=1)})
# The most bytes that a push may unpack to: kilobytes can unpack to gigabytes.
UNPACKED_BYTES: Final = 2 << 20
INLINE_BYTES: Final = 16 << 10
"""A push that unpacks to more is unpacked and read on a helper thread."""
MOST_LARGE: Final = 8
"""How many of those run at once; meanwhile other clients' pushes are refused."""
MOST_TEXT: Final = 256
"""How much is kept of each of a client's own attributes, in characters."""
# After these errors a client may ask again at once, for the right values.
_ASKS_AGAIN: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


class Client(NamedTuple):
    """The attributes of a client that a subscription's patterns match, except for the instance's
    id."""

    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


class Push(NamedTuple):
    """A client's push of its metrics."""

    subscription_id: int
    is_last: bool
    compression: int
    metrics: bytes


class Subscription(NamedTuple):
    """The clients that the settings of one resource select, and the requested metrics."""

    matches: dict[str, Match]
    metrics: tuple[str, ...]
    interval_ms: int


class ClientInstance:
    """A client that has asked or pushed, and the subscriptions that held for it then."""

    __slots__ = (
        *("_asked_ms", "_pushed_ms", "client", "has_ended", "id", "interval_ms", "last_error"),
        *("metrics", "subscription_id", "version"),
    )

    def __init__(
        self, id: UUID, client: Client, metrics: tuple[str, ...], interval_ms: int, version: int
    ) -> None:
        self.id = id
        self.client = client
        self.metrics = metrics
        self.interval_ms = interval_ms
        self.version = version
        text = f"{sorted(metrics)}{interval_ms}{id}"
        self.subscription_id = zlib.crc32(text.encode()) - (1 << 31)
        self.last_error = ErrorCode.NONE
        self.has_ended = False
        self._asked_ms = LONG_AGO_MS
        self._pushed_ms = LONG_AGO_MS

    def may_ask(self, now_ms: int) -> bool:
        """Whether the client may ask: the interval is over, and starts again, or its last error
        allows it."""
        if now_ms - max(self._asked_ms, self._pushed_ms) >= self.interval_ms:
            self._asked_ms = now_ms
            return True
        return self.last_error in _ASKS_AGAIN

    def may_push(self, now_ms: int) -> bool:
        """Whether the interval is over, or this is the first push since the client has asked."""
        if self._asked_ms <= self._pushed_ms and now_ms - self._pushed_ms < self.interval_ms:
            return False
        self._pushed_ms = now_ms
        return True


class ClientMetricsManager:
    """The subscriptions of the cluster, and the clients of this broker that know of them."""

    def __init__(
        self,
        metadata: MetadataCache,
        clock: Clock,
        max_bytes: int,
        new_uuid: Callable[[], UUID],
        background: Background,
        receiver: "PushedMetrics | None" = None,
    ) -> None:
        self.max_bytes: Final = max_bytes
        self.receiver: Final = receiver
        self.unknown_subscriptions = 0
        self._background = background
        self._large_count = 0
        self._metadata = metadata
        self._clock = clock
        self._new_uuid = new_uuid
        self._instances: OrderedDict[UUID, ClientInstance] = OrderedDict()
        self._configs: SharedMap[ConfigResource, Mapping[str, str]] = SharedMap()
        self._subscriptions: dict[str, Mapping[str, str]] = {}
        self._usable: list[Subscription] = []
        # So the clients of one subscription share the same values.
        self._told: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._version = 0
        # Name and version of the software at the other end of a connection.
        self._software: dict[str, tuple[str, str]] = {}

    def introduce(self, connection_id: str, name: str, version: str) -> None:
        """Remembers the software of a connection's client."""
        self._software[connection_id] = (name, version)

    def connection_closed(self, connection_id: str) -> None:
        """Forgets the software of the connection."""
        self._software.pop(connection_id, None)

    def __len__(self) -> int:
        return len(self._instances)

    def software_counts(self) -> dict[tuple[str, str], int]:
        """The number of open connections by the name and version of their software."""
        return dict(Counter(self._software.values()))

    def software(self, connection_id: str) -> tuple[str, str]:
        """The name and version of a connection's software; empty if unknown."""
        return self._software.get(connection_id, ("", ""))

    def ask(self, id: UUID | None, client: Client) -> ClientInstance:
        """The metrics a client is to push; a client without an instance id gets one.

        Raises:
            BrokerError: THROTTLING_QUOTA_EXCEEDED, it has asked or pushed a moment ago.
        """
        instance = self._instance(id or self._new_uuid(), client)
        if not instance.may_ask(self._clock.monotonic_ms()):
            raise BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.last_error = ErrorCode.NONE
        return instance

    def push(
        self, id: UUID, client: Client, push: Push, on_done: Callable[[ErrorCode], None]
    ) -> None:
        """Takes a push of metrics, and calls `on_done` with NONE; or with INVALID_REQUEST,
        THROTTLING_QUOTA_EXCEEDED, UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE,
        TELEMETRY_TOO_LARGE or INVALID_RECORD.
        """
        if id in RESERVED_IDS:
            on_done(ErrorCode.INVALID_REQUEST)
            return
        instance = self._instance(id, client)

        def done(code: ErrorCode) -> None:
            instance.last_error = code
            on_done(code)

        try:
            self._check(instance, push)
        except BrokerError as error:
            done(error.code)
            return
        # Only an accepted push ends the client: a refused one may be sent again. Its contents do
        # not matter, since a client has a single push out of turn.
        instance.has_ended = push.is_last
        if push.metrics:
            self._receive(instance, push, done)
        else:
            done(ErrorCode.NONE)

    def _receive(
        self, instance: ClientInstance, push: Push, done: Callable[[ErrorCode], None]
    ) -> None:
        """Unpacks and reads a push: a small one at once."""
        read = None if self.receiver is None else self.receiver.read

        def take(data: "MetricsData | None") -> None:
            if data is not None:
                assert self.receiver is not None, "without a receiver nothing is read"
                interval_ms = instance.interval_ms
                self.receiver.take(
                    instance.id, instance.client, data, interval_ms, is_last=push.is_last
                )
            done(ErrorCode.NONE)

        def fail(error: BaseException) -> None:
            done(error.code if isinstance(error, BrokerError) else ErrorCode.UNKNOWN_SERVER_ERROR)

        def take_large(data: "MetricsData | None") -> None:
            self._large_count -= 1
            take(data)

        def fail_large(error: BaseException) -> None:
            self._large_count -= 1
            fail(error)

        try:
            data = _unpack(push, INLINE_BYTES, read)
        except BrokerError as error:
            if error.code is not ErrorCode.TELEMETRY_TOO_LARGE:
                fail(error)
                return
        else:
            take(data)
            return
        self._large_count += 1
        work = partial(_unpack, push, max(UNPACKED_BYTES, self.max_bytes), read)
        self._background.submit(work, take_large, fail_large)

    def _check(self, instance: ClientInstance, push: Push) -> None:
        if instance.has_ended:
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        if not instance.may_push(self._clock.monotonic_ms()) and not push.is_last:
            raise BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if push.subscription_id != instance.subscription_id:
            self.unknown_subscriptions += 1
            raise BrokerError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if push.compression not in tuple(Compression):
            raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(push.metrics) > self.max_bytes:
            raise BrokerError(ErrorCode.TELEMETRY_TOO_LARGE)
        if push.metrics and self._large_count >= MOST_LARGE:
            raise BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)

    def _instance(self, id: UUID, client: Client) -> ClientInstance:
        """The client, subscribed again if its subscription is outdated; it moves to the end, as the
        newest."""
        self._follow_settings()
        instance = self._instances.get(id)
        if instance is None or instance.version < self._version:
            instance = self._subscribe(id, client if instance is None else instance.client)
            self._instances[id] = instance
        self._instances.move_to_end(id)
        if len(self._instances) > MOST_INSTANCES:
            forgotten, _ = self._instances.popitem(last=False)
            if self.receiver is not None:
                self.receiver.forget(forgotten)
        return instance

    def _follow_settings(self) -> None:
        """Reads the subscriptions again if any setting has changed."""
        configs = self._metadata.image.configs
        if configs is self._configs:
            return
        self._configs = configs
        subscriptions = {
            resource.name: settings
            for resource, settings in configs.items()
            if resource.type is ConfigResourceType.CLIENT_METRICS
        }
        if subscriptions != self._subscriptions:
            self._subscriptions = subscriptions
            read = [_read_subscription(name, each) for name, each in subscriptions.items()]
            self._usable = [each for each in read if each is not None]
            self._told.clear()
            self._version += 1

    def _subscribe(self, id: UUID, client: Client) -> ClientInstance:
        metrics: dict[str, None] = {}
        interval_ms = DEFAULT_INTERVAL_MS
        properties = {"client_instance_id": uuid_text(id), **client._asdict()}
        for each in self._usable:
            if all(match(properties[name]) is not None for name, match in each.matches.items()):
                metrics |= dict.fromkeys(each.metrics)
                interval_ms = min(interval_ms, each.interval_ms)
        told = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(metrics)
        told = self._told.setdefault(told, told)
        return ClientInstance(id, client, told, interval_ms, self._version)


def _read_subscription(name: str, settings: Mapping[str, str]) -> Subscription | None:
    """Settings were checked when they were set, but maybe by another version."""
    try:
        check_client_metrics(settings)
        matches = parse_match(settings.get("match", ""))
    except ConfigError as error:
        logger.error("the subscription %s is not used: %s", name, error)
        return None
    return Subscription(matches, wanted_metrics(settings), push_interval_ms(settings))


def _unpack(
    push: Push, limit_bytes: int, read: "Callable[[bytes], MetricsData] | None"
) -> "MetricsData | None":
    """Unpacks a push, and reads it with `read`.

    Raises:
        BrokerError: TELEMETRY_TOO_LARGE or INVALID_RECORD.
    """
    try:
        data = decompress(push.compression, push.metrics, limit_bytes)
        return None if read is None else read(data)
    except BrokerError as error:
        is_too_large = error.code is ErrorCode.MESSAGE_TOO_LARGE
        code = ErrorCode.TELEMETRY_TOO_LARGE if is_too_large else ErrorCode.INVALID_RECORD
        raise BrokerError(code) from error
    except ProtocolError as error:
        raise BrokerError(ErrorCode.INVALID_RECORD) from error
