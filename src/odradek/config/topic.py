"""The settings of topics, and `LogConfig`: their values as plain attributes for the log.

A topic's value comes from the topic itself, else from the broker's setting for it (its synonyms,
the first that is set), else from the table. Kafka 4 refuses segments below 1 MiB; here small ones
are legal, since tests roll segments with them.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from odradek.config.definition import ConfigError, Value, table
from odradek.config.tables.rows import rows

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000


TOPIC_SETTINGS: Final = table(rows("topic"))


class Synonym(NamedTuple):
    """A broker setting that is a topic's default; `factor` turns its unit into milliseconds."""

    name: str
    factor: int = 1


BROKER_SYNONYMS: Final[Mapping[str, tuple[Synonym, ...]]] = {
    "cleanup.policy": (Synonym("log.cleanup.policy"),),
    "compression.gzip.level": (Synonym("compression.gzip.level"),),
    "compression.lz4.level": (Synonym("compression.lz4.level"),),
    "compression.type": (Synonym("compression.type"),),
    "compression.zstd.level": (Synonym("compression.zstd.level"),),
    "delete.retention.ms": (Synonym("log.cleaner.delete.retention.ms"),),
    "file.delete.delay.ms": (Synonym("log.segment.delete.delay.ms"),),
    "flush.messages": (Synonym("log.flush.interval.messages"),),
    "flush.ms": (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    "index.interval.bytes": (Synonym("log.index.interval.bytes"),),
    "local.retention.bytes": (Synonym("log.local.retention.bytes"),),
    "local.retention.ms": (Synonym("log.local.retention.ms"),),
    "max.compaction.lag.ms": (Synonym("log.cleaner.max.compaction.lag.ms"),),
    "max.message.bytes": (Synonym("message.max.bytes"),),
    "message.format.version": (Synonym("log.message.format.version"),),
    "message.timestamp.after.max.ms": (Synonym("log.message.timestamp.after.max.ms"),),
    "message.timestamp.before.max.ms": (Synonym("log.message.timestamp.before.max.ms"),),
    "message.timestamp.type": (Synonym("log.message.timestamp.type"),),
    "min.cleanable.dirty.ratio": (Synonym("log.cleaner.min.cleanable.ratio"),),
    "min.compaction.lag.ms": (Synonym("log.cleaner.min.compaction.lag.ms"),),
    "min.insync.replicas": (Synonym("min.insync.replicas"),),
    "preallocate": (Synonym("log.preallocate"),),
    "retention.bytes": (Synonym("log.retention.bytes"),),
    "retention.ms": (
        Synonym("log.retention.ms"),
        Synonym("log.retention.minutes", _MINUTE_MS),
        Synonym("log.retention.hours", _HOUR_MS),
    ),
    "segment.bytes": (Synonym("log.segment.bytes"),),
    "segment.index.bytes": (Synonym("log.index.size.max.bytes"),),
    "segment.jitter.ms": (
        Synonym("log.roll.jitter.ms"),
        Synonym("log.roll.jitter.hours", _HOUR_MS),
    ),
    "segment.ms": (Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR_MS)),
    "unclean.leader.election.enable": (Synonym("unclean.leader.election.enable"),),
}


class LogConfig:
    """The settings of one topic as its log reads them: plain attributes, parsed and checked.

    Immutable by convention: a changed setting makes a new `LogConfig`, which the log is handed.
    """

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        v: dict[str, Any] = {name: row.default for name, row in TOPIC_SETTINGS.items()}
        if values is not None:
            v.update(values)
        self.segment_bytes: int = v["segment.bytes"]
        self.segment_ms: int = v["segment.ms"]
        self.segment_jitter_ms: int = v["segment.jitter.ms"]
        self.segment_index_bytes: int = v["segment.index.bytes"]
        self.index_interval_bytes: int = v["index.interval.bytes"]
        self.retention_ms: int = v["retention.ms"]
        self.retention_bytes: int = v["retention.bytes"]
        self.local_retention_ms: int = v["local.retention.ms"]
        self.local_retention_bytes: int = v["local.retention.bytes"]
        self.max_message_bytes: int = v["max.message.bytes"]
        self.compression_type: str = v["compression.type"]
        self.compression_gzip_level: int = v["compression.gzip.level"]
        self.compression_lz4_level: int = v["compression.lz4.level"]
        self.compression_zstd_level: int = v["compression.zstd.level"]
        self.schedule_target_topic: str | None = v["schedule.target.topic"] or None
        self.is_schedule: bool = v["schedule.enable"] or self.schedule_target_topic is not None
        self.schedule_max_delay_ms: int = v["schedule.max.delay.ms"]
        self.schedule_release_max_rate: int = v["schedule.release.max.rate"]
        # Delays count from the moment of the append, by the clock that they are released by.
        self.message_timestamp_type: str = (
            "LogAppendTime" if self.is_schedule else v["message.timestamp.type"]
        )
        self.message_timestamp_before_max_ms: int = v["message.timestamp.before.max.ms"]
        self.message_timestamp_after_max_ms: int = v["message.timestamp.after.max.ms"]
        self.message_format_version: str | None = v["message.format.version"]
        self.min_insync_replicas: int = v["min.insync.replicas"]
        self.flush_messages: int = v["flush.messages"]
        self.flush_ms: int = v["flush.ms"]
        self.cleanup_policy: frozenset[str] = frozenset(v["cleanup.policy"])
        self.compact: bool = "compact" in self.cleanup_policy
        self.delete: bool = "delete" in self.cleanup_policy
        self.min_cleanable_dirty_ratio: float = v["min.cleanable.dirty.ratio"]
        self.min_compaction_lag_ms: int = v["min.compaction.lag.ms"]
        self.max_compaction_lag_ms: int = v["max.compaction.lag.ms"]
        self.delete_retention_ms: int = v["delete.retention.ms"]
        self.file_delete_delay_ms: int = v["file.delete.delay.ms"]
        self.preallocate: bool = v["preallocate"]
        self.initial_file_bytes: int = self.segment_bytes if self.preallocate else 0
        self.unclean_leader_election_enable: bool = v["unclean.leader.election.enable"]

    @classmethod
    def from_settings(
        cls, overrides: Mapping[str, str], defaults: Mapping[str, Value]
    ) -> "LogConfig":
        """The settings that a topic shall have over the `topic_defaults` of a broker.

        Raises:
            ConfigError: a setting is unknown or has an illegal value, or two contradict each other.
        """
        values = {**defaults, **parse_topic_settings(overrides)}
        _check_lags(values)
        return cls(values)

    @classmethod
    def from_stored(
        cls, overrides: Mapping[str, str], defaults: Mapping[str, Value]
    ) -> tuple["LogConfig", list[ConfigError]]:
        """The settings of a topic, over the `topic_defaults` of a broker, and the faults of those
        that are ignored. They were checked when they were set, but maybe by another version;
        settings that contradict each other since a default has changed are used as they are."""
        values, problems = usable_topic_settings(overrides)
        return cls({**defaults, **values}), problems


def parse_topic_settings(settings: Mapping[str, str]) -> dict[str, Value]:
    """Parses a topic's own settings, each by itself.

    Raises:
        ConfigError: a name is unknown, or a value is illegal.
    """
    values, problems = usable_topic_settings(settings)
    if problems:
        raise problems[0]
    return values


def usable_topic_settings(
    settings: Mapping[str, str],
) -> tuple[dict[str, Value], list[ConfigError]]:
    """Parses those of a topic's own settings that can be used; says what is wrong with others."""
    values: dict[str, Value] = {}
    problems: list[ConfigError] = []
    for name, text in settings.items():
        try:
            values[name] = _parse_topic_setting(name, text)
        except ConfigError as error:
            problems.append(error)
    return values, problems


def _parse_topic_setting(name: str, text: str) -> Value:
    row = TOPIC_SETTINGS.get(name)
    if row is None:
        reason = "Unknown topic config name"
        raise ConfigError(name, text, reason, f"{reason}: {name}")
    value = row.parse(text)
    if name == "remote.storage.enable" and value:
        raise ConfigError(name, text, "tiered storage is not available")
    return value


def _check_lags(values: Mapping[str, Any]) -> None:
    if values["min.compaction.lag.ms"] > values["max.compaction.lag.ms"]:
        raise ConfigError(
            "min.compaction.lag.ms",
            str(values["min.compaction.lag.ms"]),
            f"it must not exceed max.compaction.lag.ms ({values['max.compaction.lag.ms']})",
        )
