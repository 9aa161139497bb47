"""The options of `format("odradek")`: one table, checked before anything is read.

Names, in any case, and meanings are the same as in Spark's Kafka connector, so that a job changes
from `kafka` to `odradek` by its format alone. Options of the connector and of Kafka's consumer that
only tune parts that are different here are accepted with a warning; an unknown option is refused,
since nobody would notice a misspelt limit.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from odradek.client.addresses import parse_bootstrap_servers
from odradek.expressions import ExpressionError, UnreadableExpression, java_pattern
from odradek.storage.names import LONGEST_LEASE_MS
from odradek.suggestions import did_you_mean
from odradek.tables.columns import COLUMNS, HEADERS, PLAIN_COLUMNS
from odradek.tables.plan.offsets import (
    EARLIEST,
    LATEST,
    AtTime,
    EndOfLog,
    ExactOffsets,
    OffsetBound,
    parse_assignment,
    parse_offset_bound,
    parse_times,
)
from odradek.tables.plan.options import (
    END_OF_LOG,
    START_OF_LOG,
    ClientOptions,
    ReadOptions,
    TopicSelection,
)
from pyspark_odradek.security import REFUSED_SECURITY, SECURITY_OPTIONS, parse_security

_log = logging.getLogger(__name__)

_STRATEGIES: Final = ("subscribe", "subscribePattern", "assign")
_OWN: Final = (
    *_STRATEGIES,
    "path",
    "columns",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "kafkaConsumer.pollTimeoutMs",
    "kafka.group.id",
    "groupIdPrefix",
    "failOnDataLoss",
    "includeHeaders",
    "lease",
    "filterPushdown",
)
_REQUEST_TIMEOUT: Final = "kafka.request.timeout.ms"
_PATIENCE: Final = "kafkaConsumer.pollTimeoutMs"
_SERVERS: Final = "kafka.bootstrap.servers"
_CLIENT: Final = (
    _SERVERS,
    "kafka.client.id",
    "kafka.client.rack",
    "kafka.isolation.level",
    "kafka.fetch.max.bytes",
    "kafka.max.partition.fetch.bytes",
    "kafka.fetch.max.wait.ms",
    _REQUEST_TIMEOUT,
    *SECURITY_OPTIONS,
)
# Kafka's consumer has these as well; this client has nothing for them to tune.
_CONSUMERS: Final = tuple(
    f"kafka.{name}"
    for name in (
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "check.crcs",
        "client.dns.lookup",
        "connections.max.idle.ms",
        "default.api.timeout.ms",
        "enable.metrics.push",
        "exclude.internal.topics",
        "fetch.min.bytes",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.age.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
    )
)
_IGNORED_LOWER: Final = frozenset(name.lower() for name in _CONSUMERS)
_REFUSED: Final = {
    "fetchOffset.numRetries": "offsets are asked for as long as kafkaConsumer.pollTimeoutMs says",
    "fetchOffset.retryIntervalMs": "the pauses between questions grow by themselves",
    "kafka.auto.offset.reset": "say startingOffsets",
    "kafka.enable.auto.commit": "offsets are kept in Spark's checkpoint",
    "kafka.interceptor.classes": "a source must not change what it reads",
    "kafka.key.deserializer": "key is binary; cast it in Spark",
    "kafka.value.deserializer": "value is binary; cast it in Spark",
    **REFUSED_SECURITY,
}


def parse_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Checks and reads the options of a batch or a streaming read.

    Raises:
        ValueError: an option is unknown, contradicts another, or has a value that it cannot
            have; the text names it.
    """
    return _Parser(given, streaming).parse()


def parse_columns(given: Mapping[str, str]) -> tuple[str, ...]:
    """Reads the columns of the table, which Spark asks for first."""
    options = {name.lower(): value for name, value in given.items()}
    wanted = options.get("columns")
    if wanted is None:
        headers = _boolean("includeHeaders", options.get("includeheaders", "false"))
        return (*PLAIN_COLUMNS, HEADERS) if headers else PLAIN_COLUMNS
    by_lower_name = {name.lower(): name for name in COLUMNS}
    names = [name.strip() for name in wanted.split(",")]
    for name in names:
        if name.lower() not in by_lower_name:
            raise ValueError(f"columns: there is no column {name!r}, only {', '.join(COLUMNS)}")
    return tuple(dict.fromkeys(by_lower_name[name.lower()] for name in names))


_UNITS_MS: Final = {
    "": 1,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


@dataclass
class _Parser:
    given: Mapping[str, str]
    streaming: bool
    options: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.options = {name.lower(): value for name, value in self.given.items()}

    def parse(self) -> ReadOptions:
        self._refuse_unknown()
        client = self._client()
        path = self.options.get("path", "").strip()
        committed = self._isolation()
        if not path and client.bootstrap_servers is None:
            raise ValueError(f"say where to read: {_SERVERS}, or path")
        if path and committed:
            raise ValueError(
                "kafka.isolation.level=read_committed needs the broker: leave out path"
            )
        return ReadOptions(
            selection=self._selection(),
            client=client,
            log_dirs=tuple(part.strip() for part in path.split(",") if part.strip()),
            starting=self._starting(),
            ending=self._ending(),
            fail_without_match=self._fail_without_match(),
            min_partitions=self._positive("minPartitions"),
            max_records_per_partition=self._positive("maxRecordsPerPartition"),
            max_offsets_per_trigger=self._positive("maxOffsetsPerTrigger"),
            min_offsets_per_trigger=self._min_offsets(),
            max_trigger_delay_ms=_duration_ms(
                "maxTriggerDelay", self._get("maxTriggerDelay", "15m")
            ),
            fail_on_data_loss=_boolean("failOnDataLoss", self._get("failOnDataLoss", "true")),
            lease_ms=self._lease_ms(),
            filter_pushdown=self._filter_pushdown(),
            read_committed=committed,
            group=self._group(),
        )

    def _group(self) -> str:
        """Returns the consumer group of a query; its name replaces `{}`."""
        prefix = self._get("groupIdPrefix", "spark")
        return self._get("kafka.group.id").strip() or f"{prefix.strip()}.{{}}"

    def _get(self, name: str, default: str = "") -> str:
        return self.options.get(name.lower(), default)

    def _has(self, name: str) -> bool:
        return name.lower() in self.options

    def _positive(self, name: str) -> int | None:
        return _positive(name, self._get(name)) if self._has(name) else None

    def _min_offsets(self) -> int | None:
        least, most = self._positive("minOffsetsPerTrigger"), self._positive("maxOffsetsPerTrigger")
        if least is not None and most is not None and least > most:
            raise ValueError(
                f"minOffsetsPerTrigger: {least} is more than the {most} of maxOffsetsPerTrigger"
            )
        return least

    def _lease_ms(self) -> int:
        duration_ms = _duration_ms("lease", self._get("lease", "10m"))
        if duration_ms > LONGEST_LEASE_MS:
            raise ValueError(f"lease: {self._get('lease')} is longer than an hour")
        return duration_ms

    def _filter_pushdown(self) -> bool:
        is_wanted = _boolean("filterPushdown", self._get("filterPushdown", "false"))
        if is_wanted and self.streaming:
            raise ValueError("filterPushdown: Spark tells a stream of no filters")
        return is_wanted

    def _refuse_unknown(self) -> None:
        known = {name.lower(): name for name in (*_OWN, *_CLIENT, *_CONSUMERS)}
        for name, why in _REFUSED.items():
            if self._has(name):
                raise ValueError(f"{name} is not supported: {why}")
        for name in self.options:
            if name in _IGNORED_LOWER:
                _log.warning("%s has no effect on this source", known[name])
            if name in known:
                continue
            raise ValueError(f"unknown option {name!r}{did_you_mean(name, known.values())}")

    def _selection(self) -> TopicSelection:
        chosen = [name for name in _STRATEGIES if self._has(name)]
        if len(chosen) != 1:
            raise ValueError(f"say exactly one of {', '.join(_STRATEGIES)}, not {len(chosen)}")
        text = self._get(chosen[0])
        if chosen[0] == "assign":
            return TopicSelection(assignment=parse_assignment("assign", text))
        if chosen[0] == "subscribePattern":
            return TopicSelection(pattern=_pattern(text))
        names = tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))
        if not names:
            raise ValueError("subscribe: no topic is named")
        return TopicSelection(names=names)

    def _starting(self) -> OffsetBound:
        bound = self._bound("starting", END_OF_LOG if self.streaming else START_OF_LOG)
        if not self.streaming and _uses(bound, LATEST):
            raise ValueError("startingOffsets: a batch cannot start at the latest offset")
        return bound

    def _ending(self) -> OffsetBound:
        bound = self._bound("ending", END_OF_LOG)
        if self.streaming and self._has_any("ending"):
            raise ValueError("ending offsets and times have no meaning for a stream")
        if _uses(bound, EARLIEST):
            raise ValueError("endingOffsets: a batch cannot end at the earliest offset")
        return bound

    def _has_any(self, side: str) -> bool:
        suffixes = ("Timestamp", "OffsetsByTimestamp", "Offsets")
        return any(self._has(side + suffix) for suffix in suffixes)

    def _bound(self, side: str, default: OffsetBound) -> OffsetBound:
        """A time for all partitions overrides times for each, and these override offsets."""
        if self._has(f"{side}Timestamp"):
            name = f"{side}Timestamp"
            return AtTime(_natural(name, self._get(name)))
        if self._has(f"{side}OffsetsByTimestamp"):
            name = f"{side}OffsetsByTimestamp"
            return parse_times(name, self._get(name))
        if self._has(f"{side}Offsets"):
            name = f"{side}Offsets"
            return parse_offset_bound(name, self._get(name))
        return default

    def _fail_without_match(self) -> bool:
        strategy = self._get("startingOffsetsByTimestampStrategy", "error").strip().lower()
        if strategy not in ("error", "latest"):
            raise ValueError(
                f"startingOffsetsByTimestampStrategy: {strategy!r} is neither error nor latest"
            )
        return strategy == "error"

    def _isolation(self) -> bool:
        level = self._get("kafka.isolation.level", "read_uncommitted").strip().lower()
        if level not in ("read_uncommitted", "read_committed"):
            raise ValueError(f"kafka.isolation.level: there is no level {level!r}")
        return level == "read_committed"

    def _client(self) -> ClientOptions:
        numbers = {
            name: _positive(option, self._get(option))
            for name, option in (
                ("fetch_max_bytes", "kafka.fetch.max.bytes"),
                ("partition_fetch_max_bytes", "kafka.max.partition.fetch.bytes"),
                ("fetch_max_wait_ms", "kafka.fetch.max.wait.ms"),
                ("request_timeout_ms", _REQUEST_TIMEOUT),
                ("patience_ms", _PATIENCE),
            )
            if self._has(option)
        }
        servers = self._get(_SERVERS).strip() or None
        if servers is not None:
            parse_bootstrap_servers(servers, _SERVERS)
        client_id = self._get("kafka.client.id", ClientOptions.client_id)
        rack = self._get("kafka.client.rack").strip()
        return ClientOptions(
            bootstrap_servers=servers,
            client_id=client_id,
            rack=rack,
            request_timeout_named=_REQUEST_TIMEOUT,
            patience_named=_PATIENCE,
            security=parse_security(self.options),
            **numbers,
        )


def _uses(bound: OffsetBound, end: int) -> bool:
    if isinstance(bound, ExactOffsets):
        return end in bound.offsets.values()
    return isinstance(bound, EndOfLog) and bound.which == end


def _pattern(text: str) -> str:
    try:
        java_pattern(text)
    except UnreadableExpression as error:
        raise ValueError(f"subscribePattern: {text!r} cannot be matched here: {error}") from error
    except ExpressionError as error:
        raise ValueError(f"subscribePattern: {text!r} is no regular expression: {error}") from error
    return text


def _duration_ms(name: str, text: str) -> int:
    """Reads a time as Spark writes it: `15m`, `30s`; a bare number is milliseconds."""
    match = re.fullmatch(r"(\d+) ?([a-z]*)", text.strip().lower())
    unit_ms = _UNITS_MS.get(match[2]) if match else None
    if match is None or unit_ms is None:
        raise ValueError(f"{name}: {text!r} is no time such as 30s, 15m or 1h")
    return int(match[1]) * unit_ms


def _boolean(name: str, text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError(f"{name}: {text!r} is neither true nor false")
    return word == "true"


def _natural(name: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"{name}: {text!r} is no whole number")
    return int(text)


def _positive(name: str, text: str) -> int:
    number = _natural(name, text)
    if number == 0:
        raise ValueError(f"{name} must be at least 1")
    return number
