"""`ClientMetricsManager`: which clients push which of their metrics, and how often (KIP-714).

Subscriptions are settings of the resources CLIENT_METRICS. A client asks which of them hold for it,
and is told what to push and a number for that; a push under another number is refused, so that it
asks again. Between two questions or pushes lies the interval of the subscriptions. A client that is
unknown here, after a restart or because newer ones took its place, begins anew with its next
request, as it does when a subscription has changed.

Nothing receives what is pushed: it is checked and dropped, as by a Kafka without a plugin for it.
So neither API is told of in ApiVersions, and no client pushes by itself.
"""

import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from odradek.clock import Clock
from odradek.config.client_metrics import (
    DEFAULT_INTERVAL_MS,
    parse_match,
    push_interval_ms,
    wanted_metrics,
)
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import ZERO_UUID, ConfigResource, ResourceType
from odradek.metadata.shared_map import SharedMap
from odradek.protocol.schema import encode_uuid
from odradek.records.compression import Compression, decompress
from odradek.records.errors import CorruptRecords

MOST_INSTANCES: Final = 16_384
ALL_METRICS: Final = "*"
# The ids of nobody, and of the metadata topic.
RESERVED_IDS: Final = frozenset({ZERO_UUID, UUID(int=1)})
# What is pushed is unpacked up to here to see that it can be.
UNPACKED_BYTES: Final = 2 << 20
# After these a client is let ask again at once: it has to find out what is right.
_ASKS_AGAIN: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
_NEVER: Final = -(1 << 62)


class Client(NamedTuple):
    """What the patterns of a subscription are held against, but for the instance's id."""

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


class ClientInstance:
    """A client that has asked or pushed, and the subscriptions that held for it then."""

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
        self.is_ending = False
        self._asked_ms = _NEVER
        self._pushed_ms = _NEVER

    def may_ask(self, now_ms: int) -> bool:
        """Whether the interval is over, which begins anew then; or the client has to know."""
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
    ) -> None:
        self.max_bytes: Final = max_bytes
        self._metadata = metadata
        self._clock = clock
        self._new_uuid = new_uuid
        self._instances: OrderedDict[UUID, ClientInstance] = OrderedDict()
        self._configs: SharedMap[ConfigResource, Mapping[str, str]] = SharedMap()
        self._subscriptions: dict[str, Mapping[str, str]] = {}
        self._version = 0
        # Name and version of the software at the other end of a connection.
        self._software: dict[str, tuple[str, str]] = {}

    def introduce(self, connection_id: str, name: str, version: str) -> None:
        """Notes what a client has said of its software."""
        self._software[connection_id] = (name, version)

    def connection_closed(self, connection_id: str) -> None:
        """Forgets it again."""
        self._software.pop(connection_id, None)

    def software(self, connection_id: str) -> tuple[str, str]:
        """Name and version, empty when they were not said."""
        return self._software.get(connection_id, ("", ""))

    def ask(self, id: UUID | None, client: Client) -> ClientInstance:
        """What a client is to push; one without an id gets one.

        Raises:
            BrokerError: THROTTLING_QUOTA_EXCEEDED, it has asked or pushed a moment ago.
        """
        instance = self._instance(id or self._new_uuid(), client)
        if not instance.may_ask(self._clock.monotonic_ms()):
            raise BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.last_error = ErrorCode.NONE
        return instance

    def push(self, id: UUID, client: Client, push: Push) -> None:
        """Takes a push of metrics.

        Raises:
            BrokerError: INVALID_REQUEST, THROTTLING_QUOTA_EXCEEDED, UNKNOWN_SUBSCRIPTION_ID,
                UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE or INVALID_RECORD.
        """
        if id in RESERVED_IDS:
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        instance = self._instance(id, client)
        try:
            self._check(instance, push)
        except BrokerError as error:
            instance.last_error = error.code
            raise
        finally:
            # As of the last push, whatever became of it.
            instance.is_ending = push.is_last
        instance.last_error = ErrorCode.NONE

    def _check(self, instance: ClientInstance, push: Push) -> None:
        if instance.is_ending:
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        if not instance.may_push(self._clock.monotonic_ms()) and not push.is_last:
            raise BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if push.subscription_id != instance.subscription_id:
            raise BrokerError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if push.compression not in tuple(Compression):
            raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(push.metrics) > self.max_bytes:
            raise BrokerError(ErrorCode.TELEMETRY_TOO_LARGE)
        if push.metrics:
            _check_packing(push)

    def _instance(self, id: UUID, client: Client) -> ClientInstance:
        """The client as it is known, if what it was told still holds; the newest is the last."""
        self._follow_settings()
        instance = self._instances.get(id)
        if instance is None or instance.version < self._version:
            instance = self._subscribe(id, client if instance is None else instance.client)
            self._instances[id] = instance
        self._instances.move_to_end(id)
        if len(self._instances) > MOST_INSTANCES:
            self._instances.popitem(last=False)
        return instance

    def _follow_settings(self) -> None:
        """Reads the subscriptions anew where any setting has changed."""
        configs = self._metadata.image.configs
        if configs is self._configs:
            return
        self._configs = configs
        subscriptions = {
            resource.name: settings
            for resource, settings in configs.items()
            if resource.type is ResourceType.CLIENT_METRICS
        }
        if subscriptions != self._subscriptions:
            self._subscriptions = subscriptions
            self._version += 1

    def _subscribe(self, id: UUID, client: Client) -> ClientInstance:
        metrics: dict[str, None] = {}
        interval_ms = DEFAULT_INTERVAL_MS
        properties = {"client_instance_id": _text(id), **client._asdict()}
        for settings in self._subscriptions.values():
            patterns = parse_match(settings.get("match", ""))
            if all(pattern.fullmatch(properties[name]) for name, pattern in patterns.items()):
                metrics |= dict.fromkeys(wanted_metrics(settings))
                interval_ms = min(interval_ms, push_interval_ms(settings))
        told = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(metrics)
        return ClientInstance(id, client, told, interval_ms, self._version)


def _check_packing(push: Push) -> None:
    try:
        decompress(push.compression, push.metrics, UNPACKED_BYTES)
    except CorruptRecords as error:
        raise BrokerError(ErrorCode.INVALID_RECORD) from error
    except BrokerError as error:
        if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
            raise BrokerError(ErrorCode.INVALID_RECORD) from error


def _text(id: UUID) -> str:
    """The id as Kafka prints it."""
    return encode_uuid(id.bytes)
