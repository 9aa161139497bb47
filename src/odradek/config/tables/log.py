"""Settings of logs: directories, segments, retention, flushing, compaction."""

from typing import Final

from odradek.config.definition import DynamicMode, Setting, SettingType

BOOLEAN: Final = SettingType.BOOLEAN
STRING: Final = SettingType.STRING
INT: Final = SettingType.INT
SHORT: Final = SettingType.SHORT
LONG: Final = SettingType.LONG
DOUBLE: Final = SettingType.DOUBLE
LIST: Final = SettingType.LIST
CLASS: Final = SettingType.CLASS
PASSWORD: Final = SettingType.PASSWORD
PER_BROKER: Final = DynamicMode.PER_BROKER
CLUSTER_WIDE: Final = DynamicMode.CLUSTER_WIDE
_LONG_MAX: Final = (1 << 63) - 1

LOG_SETTINGS: Final = [
    Setting(
        "log.dir", LIST, ("/tmp/kafka-logs",), "Where the data is kept, when `log.dirs` is unset."
    ),
    Setting(
        "log.dirs",
        LIST,
        None,
        "The directories of the data, separated by commas; `log.dir` when unset.",
    ),
    Setting(
        "metadata.log.dir",
        STRING,
        None,
        "The directory of the metadata store; the first of `log.dirs` when unset.",
    ),
    Setting(
        "cordoned.log.dirs",
        LIST,
        (),
        "Directories that take no new partitions; `*` for all.",
        dynamic=PER_BROKER,
    ),
    Setting(
        "num.recovery.threads.per.data.dir",
        INT,
        2,
        "How many threads a directory's logs are loaded by at the start and flushed by at the end.",
        at_least=1,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.dir.failure.timeout.ms",
        LONG,
        30_000,
        "How long the broker goes on when it cannot tell that a directory failed.",
        at_least=1,
    ),
    Setting(
        "log.segment.bytes",
        INT,
        1_073_741_824,
        "How large a segment's file may grow before the next one is begun.",
        at_least=14,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.roll.ms",
        LONG,
        None,
        "After what time a segment is closed even when it is not full; `log.roll.hours` "
        "when unset.",
        at_least=1,
        dynamic=CLUSTER_WIDE,
    ),
    Setting("log.roll.hours", INT, 168, "The same in hours.", at_least=1),
    Setting(
        "log.roll.jitter.ms",
        LONG,
        None,
        "The most by which a roll by time is brought forward at random; "
        "`log.roll.jitter.hours` when unset.",
        at_least=0,
        dynamic=CLUSTER_WIDE,
    ),
    Setting("log.roll.jitter.hours", INT, 0, "The same in hours.", at_least=0),
    Setting(
        "log.retention.ms",
        LONG,
        None,
        "How long records are kept; `log.retention.minutes` when unset, -1 for ever.",
        at_least=-1,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.retention.minutes", INT, None, "The same in minutes; `log.retention.hours` when unset."
    ),
    Setting("log.retention.hours", INT, 168, "The same in hours."),
    Setting(
        "log.retention.bytes",
        LONG,
        -1,
        "How large a partition may grow before its oldest segments go; -1 sets no limit.",
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.retention.check.interval.ms",
        LONG,
        300_000,
        "How often it is checked whether segments have to go.",
        at_least=1,
    ),
    Setting(
        "log.local.retention.ms",
        LONG,
        -2,
        "The default of `local.retention.ms`; nothing is tiered here.",
        at_least=-2,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.local.retention.bytes",
        LONG,
        -2,
        "The default of `local.retention.bytes`; nothing is tiered here.",
        at_least=-2,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.cleanup.policy",
        LIST,
        ("delete",),
        "What happens to old records: `delete`, `compact`, both or neither.",
        choices=("compact", "delete"),
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.segment.delete.delay.ms",
        LONG,
        60_000,
        "How long a deleted segment's renamed files stay on disk.",
        at_least=0,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.index.size.max.bytes",
        INT,
        10_485_760,
        "How large a segment's index file may grow.",
        at_least=4,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.index.interval.bytes",
        INT,
        4_096,
        "How many bytes of records lie between two entries of the offset index.",
        at_least=0,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.flush.interval.messages",
        LONG,
        _LONG_MAX,
        "After how many appended records a log is forced to disk.",
        at_least=1,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.flush.interval.ms",
        LONG,
        None,
        "How long appended records may wait before a log is forced to disk; "
        "`log.flush.scheduler.interval.ms` when unset.",
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.flush.scheduler.interval.ms",
        LONG,
        _LONG_MAX,
        "How often it is checked whether a log has to be forced to disk.",
    ),
    Setting(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        60_000,
        "How often the recovery points are written down.",
        at_least=0,
    ),
    Setting(
        "log.flush.start.offset.checkpoint.interval.ms",
        INT,
        60_000,
        "How often the log start offsets are written down.",
        at_least=0,
    ),
    Setting(
        "log.preallocate",
        BOOLEAN,
        False,
        "Whether a new segment's file is given its full size at once.",
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.message.format.version",
        STRING,
        None,
        "The default of `message.format.version`.",
        pattern=r"[0-9]+(\.[0-9]+){1,3}(-IV[0-9]+)?",
    ),
    Setting(
        "log.message.timestamp.type",
        STRING,
        "CreateTime",
        "Whether timestamps are the producer's or the moment of the append.",
        choices=("CreateTime", "LogAppendTime"),
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.message.timestamp.before.max.ms",
        LONG,
        _LONG_MAX,
        "How far a CreateTime may lie behind the broker's clock.",
        at_least=0,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.message.timestamp.after.max.ms",
        LONG,
        3_600_000,
        "How far a CreateTime may lie ahead of the broker's clock.",
        at_least=0,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "message.max.bytes",
        INT,
        1_048_588,
        "The largest batch that is accepted, counted as it is stored.",
        at_least=0,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "compression.type",
        STRING,
        "producer",
        "The codec in which batches are stored; `producer` keeps the producer's.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "compression.gzip.level",
        INT,
        -1,
        "The level of gzip; -1 is the codec's own default.",
        at_least=1,
        at_most=9,
        also=-1,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "compression.lz4.level",
        INT,
        9,
        "The level of lz4.",
        at_least=1,
        at_most=17,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "compression.zstd.level",
        INT,
        3,
        "The level of zstd.",
        at_least=-131_072,
        at_most=22,
        dynamic=CLUSTER_WIDE,
    ),
    Setting("log.cleaner.enable", BOOLEAN, True, "Whether compacted topics are compacted."),
    Setting(
        "log.cleaner.threads", INT, 1, "How many threads compact.", at_least=0, dynamic=CLUSTER_WIDE
    ),
    Setting(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        1.7976931348623157e308,
        "How much the cleaner may read and write in a second.",
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        134_217_728,
        "How much memory the cleaner's map of keys may take.",
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.cleaner.io.buffer.size",
        INT,
        524_288,
        "How much memory the cleaner's buffers take.",
        at_least=0,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.cleaner.io.buffer.load.factor",
        DOUBLE,
        0.9,
        "How full the cleaner's map of keys may become.",
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.cleaner.backoff.ms",
        LONG,
        15_000,
        "How long the cleaner rests when nothing needs cleaning.",
        at_least=0,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.cleaner.min.cleanable.ratio",
        DOUBLE,
        0.5,
        "How large a part of a log must be uncompacted before it is taken up.",
        at_least=0,
        at_most=1,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.cleaner.delete.retention.ms",
        LONG,
        86_400_000,
        "How long tombstones are kept.",
        at_least=0,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.cleaner.min.compaction.lag.ms",
        LONG,
        0,
        "How long a record is safe from compaction.",
        at_least=0,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.cleaner.max.compaction.lag.ms",
        LONG,
        _LONG_MAX,
        "How long at most a record may stay out of compaction's reach.",
        at_least=1,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "producer.id.expiration.ms",
        INT,
        86_400_000,
        "How long a partition remembers a silent producer.",
        at_least=1,
        dynamic=CLUSTER_WIDE,
    ),
]
