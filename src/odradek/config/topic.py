"""The settings of topics, and `LogConfig`: their values as plain attributes for the log.

A topic's value comes from the topic itself, else from the broker's setting that stands for
it (its synonyms, the first that is set), else from the table. Kafka 4 refuses segments below
1 MiB; here small ones are legal, since tests roll segments with them.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from odradek.config.definition import ConfigError, Setting, SettingType, Value, table

_LONG_MAX: Final = (1 << 63) - 1
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 86_400_000
_THROTTLED: Final = r"\*|[0-9]+:[0-9]+"

COMPRESSION_TYPES: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
FORMAT_VERSION_PATTERN: Final = r"[0-9]+(\.[0-9]+){1,3}(-IV[0-9]+)?"

BOOLEAN: Final = SettingType.BOOLEAN
STRING: Final = SettingType.STRING
INT: Final = SettingType.INT
LONG: Final = SettingType.LONG
DOUBLE: Final = SettingType.DOUBLE
LIST: Final = SettingType.LIST

TOPIC_SETTINGS: Final = table(
    [
        Setting(
            "cleanup.policy",
            LIST,
            ("delete",),
            "What happens to old records: `delete` drops whole segments by age and size, "
            "`compact` keeps the newest record of every key; both may be combined, and an "
            "empty list keeps everything.",
            choices=("compact", "delete"),
        ),
        Setting(
            "compression.gzip.level",
            INT,
            -1,
            "The level at which the broker compresses with gzip; -1 is the codec's own default.",
            at_least=1,
            at_most=9,
            also=-1,
        ),
        Setting(
            "compression.lz4.level",
            INT,
            9,
            "The level at which the broker compresses with lz4.",
            at_least=1,
            at_most=17,
        ),
        Setting(
            "compression.type",
            STRING,
            "producer",
            "The codec in which batches are stored; `producer` keeps whatever the producer "
            "chose, `uncompressed` stores them without one.",
            choices=COMPRESSION_TYPES,
        ),
        Setting(
            "compression.zstd.level",
            INT,
            3,
            "The level at which the broker compresses with zstd.",
            at_least=-131_072,
            at_most=22,
        ),
        Setting(
            "delete.retention.ms",
            LONG,
            _DAY_MS,
            "How long a compacted topic keeps a tombstone, so that a slow reader still learns "
            "of the deletion.",
            at_least=0,
        ),
        Setting(
            "file.delete.delay.ms",
            LONG,
            60_000,
            "How long a deleted segment's renamed files stay on disk.",
            at_least=0,
        ),
        Setting(
            "flush.messages",
            LONG,
            _LONG_MAX,
            "After how many appended records the log is forced to disk.",
            at_least=1,
        ),
        Setting(
            "flush.ms",
            LONG,
            _LONG_MAX,
            "How long appended records may wait before the log is forced to disk.",
            at_least=0,
        ),
        Setting(
            "follower.replication.throttled.replicas",
            LIST,
            (),
            "The replicas whose fetching is throttled: `partition:broker` pairs, or `*` for all.",
            pattern=_THROTTLED,
        ),
        Setting(
            "index.interval.bytes",
            INT,
            4_096,
            "How many bytes of records lie between two entries of the offset index.",
            at_least=0,
        ),
        Setting(
            "leader.replication.throttled.replicas",
            LIST,
            (),
            "The replicas to which leaders throttle: `partition:broker` pairs, or `*` for all.",
            pattern=_THROTTLED,
        ),
        Setting(
            "local.retention.bytes",
            LONG,
            -2,
            "How many bytes stay on local disk when older segments are tiered; -2 takes "
            "`retention.bytes`. Nothing is tiered here.",
            at_least=-2,
        ),
        Setting(
            "local.retention.ms",
            LONG,
            -2,
            "How long segments stay on local disk when older ones are tiered; -2 takes "
            "`retention.ms`. Nothing is tiered here.",
            at_least=-2,
        ),
        Setting(
            "max.compaction.lag.ms",
            LONG,
            _LONG_MAX,
            "How long at most a record may stay out of compaction's reach.",
            at_least=1,
        ),
        Setting(
            "max.message.bytes",
            INT,
            1_048_588,
            "The largest batch that is accepted, counted as it is stored.",
            at_least=0,
        ),
        Setting(
            "message.format.version",
            STRING,
            None,
            "The Kafka version whose message format is written: below 0.10.0 magic 0, below "
            "0.11.0 magic 1, else magic 2, which is also what an unset value means.",
            pattern=FORMAT_VERSION_PATTERN,
            is_hidden=True,
        ),
        Setting(
            "message.timestamp.after.max.ms",
            LONG,
            _HOUR_MS,
            "How far a record's CreateTime may lie ahead of the broker's clock.",
            at_least=0,
        ),
        Setting(
            "message.timestamp.before.max.ms",
            LONG,
            _LONG_MAX,
            "How far a record's CreateTime may lie behind the broker's clock.",
            at_least=0,
        ),
        Setting(
            "message.timestamp.type",
            STRING,
            "CreateTime",
            "Whether a record's timestamp is the producer's (CreateTime) or the moment of its "
            "append (LogAppendTime).",
            choices=TIMESTAMP_TYPES,
        ),
        Setting(
            "min.cleanable.dirty.ratio",
            DOUBLE,
            0.5,
            "How large a part of the log must be uncompacted before the cleaner takes it up.",
            at_least=0,
            at_most=1,
        ),
        Setting(
            "min.compaction.lag.ms",
            LONG,
            0,
            "How long a record is safe from compaction.",
            at_least=0,
        ),
        Setting(
            "min.insync.replicas",
            INT,
            1,
            "How many replicas must be in sync for a produce with acks=all to be accepted.",
            at_least=1,
        ),
        Setting(
            "preallocate",
            BOOLEAN,
            False,
            "Whether a new segment's file is given its full size at once.",
        ),
        Setting(
            "remote.log.copy.disable",
            BOOLEAN,
            False,
            "Whether a tiered topic stops copying segments. Nothing is tiered here.",
        ),
        Setting(
            "remote.log.delete.on.disable",
            BOOLEAN,
            False,
            "Whether tiered segments go when tiering is switched off. Nothing is tiered here.",
        ),
        Setting(
            "remote.storage.enable",
            BOOLEAN,
            False,
            "Whether the topic's old segments are tiered. Not available here: `true` is refused.",
        ),
        Setting(
            "retention.bytes",
            LONG,
            -1,
            "How large a partition may grow before its oldest segments go; -1 sets no limit.",
        ),
        Setting(
            "retention.ms",
            LONG,
            7 * _DAY_MS,
            "How long records are kept before their segment goes; -1 keeps them for ever.",
            at_least=-1,
        ),
        Setting(
            "segment.bytes",
            INT,
            1_073_741_824,
            "How large a segment's file may grow before the next one is begun.",
            at_least=14,
        ),
        Setting(
            "segment.index.bytes",
            INT,
            10_485_760,
            "How large a segment's index file may grow; a full one rolls the segment.",
            at_least=4,
        ),
        Setting(
            "segment.jitter.ms",
            LONG,
            0,
            "The most by which a segment's roll by time is brought forward at random, so that "
            "not every partition rolls at once.",
            at_least=0,
        ),
        Setting(
            "segment.ms",
            LONG,
            7 * _DAY_MS,
            "After what time a segment is closed even when it is not full.",
            at_least=1,
        ),
        Setting(
            "unclean.leader.election.enable",
            BOOLEAN,
            False,
            "Whether a replica that is not in sync may lead when no other is left, at the "
            "price of losing records.",
        ),
    ]
)


class Synonym(NamedTuple):
    """A broker setting that stands for a topic's; `factor` turns its unit into milliseconds."""

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
        self.message_timestamp_type: str = v["message.timestamp.type"]
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
        """The topic's own settings over the `topic_defaults` of a broker.

        Raises:
            ConfigError: an override is unknown or has an illegal value.
        """
        values = dict(defaults)
        values.update(parse_topic_settings(overrides))
        check_topic_settings(values)
        return cls(values)


def parse_topic_settings(settings: Mapping[str, str]) -> dict[str, Value]:
    """Parses a topic's own settings, each by itself.

    Raises:
        ConfigError: a name is unknown, or a value is illegal.
    """
    values: dict[str, Value] = {}
    for name, text in settings.items():
        row = TOPIC_SETTINGS.get(name)
        if row is None:
            reason = "Unknown topic config name"
            raise ConfigError(name, text, reason, f"{reason}: {name}")
        values[name] = row.parse(text)
    return values


def check_topic_settings(values: Mapping[str, Any]) -> None:
    """Checks settings against each other, once all of a topic's values are known.

    Raises:
        ConfigError: two settings contradict each other, or one needs what is not built.
    """
    if values["min.compaction.lag.ms"] > values["max.compaction.lag.ms"]:
        raise ConfigError(
            "min.compaction.lag.ms",
            str(values["min.compaction.lag.ms"]),
            f"it must not exceed max.compaction.lag.ms ({values['max.compaction.lag.ms']})",
        )
    if values["remote.storage.enable"]:
        raise ConfigError("remote.storage.enable", "true", "tiered storage is not available")
