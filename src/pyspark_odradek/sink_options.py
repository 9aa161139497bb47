"""The options of a write: those of the connector, and our own.

As with a read, unknown options are refused. The producer is always idempotent and waits for all
in-sync replicas; options that ask for less are refused.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.client.addresses import parse_bootstrap_servers
from odradek.client.security_options import NO_SECURITY_OPTIONS, SecurityOptions
from odradek.records.compression import Compression
from odradek.suggestions import did_you_mean
from odradek.tables.write.writing import WriteOptions
from pyspark_odradek.security import REFUSED_SECURITY, SECURITY_OPTIONS, parse_security

_log = logging.getLogger(__name__)

_OWN: Final = (
    "topic",
    "includeHeaders",
    "keepTimestamps",
    "exactlyOnce",
    "failOnDataLoss",
    "queryName",
)
# The lowest and the highest level of the codecs that have levels, as in Kafka.
_LEVELS: Final = {"gzip": (-1, 9), "lz4": (1, 17), "zstd": (-131_072, 22)}
_SERVERS: Final = "kafka.bootstrap.servers"
_CLIENT: Final = (
    _SERVERS,
    "kafka.client.id",
    "kafka.compression.type",
    *(f"kafka.compression.{codec}.level" for codec in _LEVELS),
    "kafka.batch.size",
    "kafka.buffer.memory",
    "kafka.request.timeout.ms",
    "kafka.delivery.timeout.ms",
    "kafka.transaction.timeout.ms",
    "kafka.acks",
    "kafka.enable.idempotence",
    *SECURITY_OPTIONS,
)
# Kafka's producer has these as well; this one has nothing for them to tune.
_IGNORED: Final = (
    "checkpointLocation",
    "path",
    *(
        f"kafka.{name}"
        for name in (
            "client.dns.lookup",
            "client.rack",
            "connections.max.idle.ms",
            "enable.metrics.push",
            "linger.ms",
            "max.block.ms",
            "max.in.flight.requests.per.connection",
            "max.request.size",
            "metadata.max.age.ms",
            "metadata.max.idle.ms",
            "metadata.recovery.rebootstrap.trigger.ms",
            "metadata.recovery.strategy",
            "metric.reporters",
            "metrics.num.samples",
            "metrics.recording.level",
            "metrics.sample.window.ms",
            "partitioner.adaptive.partitioning.enable",
            "partitioner.availability.timeout.ms",
            "receive.buffer.bytes",
            "reconnect.backoff.max.ms",
            "reconnect.backoff.ms",
            "retries",
            "retry.backoff.max.ms",
            "retry.backoff.ms",
            "send.buffer.bytes",
            "socket.connection.setup.timeout.max.ms",
            "socket.connection.setup.timeout.ms",
        )
    ),
)
_REFUSED: Final = {
    "kafka.key.serializer": "key is binary or a string",
    "kafka.value.serializer": "value is binary or a string",
    "kafka.interceptor.classes": "a sink must not change what it writes",
    "kafka.partitioner.class": "say the column partition",
    "kafka.partitioner.ignore.keys": "say the column partition",
    "kafka.transaction.two.phase.commit.enable": "a task commits what it has written",
    "kafka.transactional.id": "the sink would have to choose it for every task",
    **REFUSED_SECURITY,
}


@dataclass(frozen=True)
class SinkOptions:
    """Every option of a write with its value. Travels to the workers."""

    bootstrap_servers: str
    topic: str | None
    write: WriteOptions
    client_id: str = "odradek-spark"
    delivery_timeout_ms: int = 120_000
    keep_timestamps: bool = False
    exactly_once: bool = False
    # Whether a repeated batch must have all records that it had, where some of it is committed.
    fail_on_data_loss: bool = True
    query_name: str | None = None
    # As long as brokers allow by default: a task's records are one transaction.
    transaction_timeout_ms: int = 900_000
    security: SecurityOptions = NO_SECURITY_OPTIONS

    @property
    def brokers(self) -> dict[str, object]:
        """The settings with which a client reaches the brokers."""
        return self.security.settings(self.bootstrap_servers)


def parse_sink_options(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Checks and reads the options of a write.

    Raises:
        ValueError: an option is unknown, or has a value that it cannot have.
    """
    options = {name.lower(): value for name, value in given.items()}
    _refuse_unknown(options)
    _refuse_less(options)
    servers = options.get(_SERVERS, "").strip()
    if not servers:
        raise ValueError(f"say where to write: {_SERVERS}")
    parse_bootstrap_servers(servers, _SERVERS)
    defaults = WriteOptions()
    codec = options.get("kafka.compression.type", "none").strip().lower()
    topic = options.get("topic", "").strip() or None
    by_default = "true" if streaming and topic is not None else "false"
    exactly_once = _boolean(options, "exactlyOnce", by_default)
    if exactly_once and not streaming:
        raise ValueError("exactlyOnce is for streams, whose batches have numbers")
    if exactly_once and topic is None:
        raise ValueError("exactlyOnce needs the option topic: its partition 0 names the marker")
    return SinkOptions(
        bootstrap_servers=servers,
        topic=topic,
        exactly_once=exactly_once,
        fail_on_data_loss=_boolean(options, "failOnDataLoss", "true"),
        query_name=options.get("queryname") or None,
        transaction_timeout_ms=_positive(
            options, "kafka.transaction.timeout.ms", SinkOptions.transaction_timeout_ms
        ),
        write=WriteOptions(
            codec=_codec(codec),
            level=_level(options, codec),
            batch_bytes=_positive(options, "kafka.batch.size", defaults.batch_bytes),
            buffer_bytes=_positive(options, "kafka.buffer.memory", defaults.buffer_bytes),
            request_timeout_ms=_positive(
                options, "kafka.request.timeout.ms", defaults.request_timeout_ms
            ),
        ),
        client_id=options.get("kafka.client.id", SinkOptions.client_id),
        delivery_timeout_ms=_positive(
            options, "kafka.delivery.timeout.ms", SinkOptions.delivery_timeout_ms
        ),
        keep_timestamps=_boolean(options, "keepTimestamps"),
        security=parse_security(options),
    )


def _refuse_unknown(options: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in (*_OWN, *_CLIENT, *_IGNORED)}
    ignored = {name.lower() for name in _IGNORED}
    for name, why in _REFUSED.items():
        if name in options:
            raise ValueError(f"{name} is not supported: {why}")
    for name in options:
        if name in ignored and name.startswith("kafka."):
            _log.warning("%s has no effect on this sink", known[name])
        if name not in known:
            raise ValueError(f"unknown option {name!r}{did_you_mean(name, known.values())}")


def _refuse_less(options: Mapping[str, str]) -> None:
    acks = options.get("kafka.acks", "all").strip().lower()
    if acks not in ("all", "-1"):
        raise ValueError(f"kafka.acks: {acks} could lose records; this sink waits for all replicas")
    if not _boolean(options, "kafka.enable.idempotence", default="true"):
        raise ValueError("kafka.enable.idempotence: without it a retry could write a record twice")


def _codec(text: str) -> int:
    name = text.strip().upper()
    if name not in Compression.__members__:
        names = ", ".join(codec.lower() for codec in Compression.__members__)
        raise ValueError(f"kafka.compression.type: {text!r} is none of {names}")
    return int(Compression[name])


def _level(options: Mapping[str, str], codec: str) -> int | None:
    """Returns the compression level for this codec; None is its default."""
    name = f"kafka.compression.{codec}.level"
    text = options.get(name)
    if text is None:
        return None
    lowest, highest = _LEVELS[codec]
    if re.fullmatch(r"-?\d+", text.strip()) is None or not lowest <= int(text) <= highest:
        raise ValueError(f"{name}: {text!r} is no level from {lowest} to {highest}")
    return int(text)


def _boolean(options: Mapping[str, str], name: str, default: str = "false") -> bool:
    word = options.get(name.lower(), default).strip().lower()
    if word not in ("true", "false"):
        raise ValueError(f"{name}: {word!r} is neither true nor false")
    return word == "true"


def _positive(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name.lower())
    if text is None:
        return default
    if not text.strip().isdecimal() or int(text) == 0:
        raise ValueError(f"{name}: {text!r} is no whole number of at least 1")
    return int(text)
