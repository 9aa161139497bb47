"""Settings of tiered storage, which there is none of."""

from typing import Final

from odradek.config.definition import DynamicMode, Setting, SettingType

BOOLEAN: Final = SettingType.BOOLEAN
STRING: Final = SettingType.STRING
INT: Final = SettingType.INT
LONG: Final = SettingType.LONG
CLUSTER_WIDE: Final = DynamicMode.CLUSTER_WIDE
_LONG_MAX: Final = (1 << 63) - 1

TIERING_SETTINGS: Final = [
    Setting(
        "follower.fetch.last.tiered.offset.enable",
        BOOLEAN,
        False,
        "Whether an empty follower begins behind what is tiered.",
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "remote.fetch.max.wait.ms",
        INT,
        500,
        "How long a fetch may wait for tiered records.",
        at_least=1,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "remote.list.offsets.request.timeout.ms",
        LONG,
        30_000,
        "How long a search of offsets may wait for tiered records.",
        at_least=1,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "remote.log.index.file.cache.total.size.bytes",
        LONG,
        1_073_741_824,
        "How much room indexes of tiered segments take on the disk.",
        at_least=1,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "remote.log.manager.copier.thread.pool.size",
        INT,
        10,
        "How many threads copy segments to the tier.",
        at_least=1,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "remote.log.manager.copy.max.bytes.per.second",
        LONG,
        _LONG_MAX,
        "How much may be copied to the tier per second.",
        at_least=1,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "remote.log.manager.copy.quota.window.num",
        INT,
        11,
        "How many windows the quota on copies is measured over.",
        at_least=1,
    ),
    Setting(
        "remote.log.manager.copy.quota.window.size.seconds",
        INT,
        1,
        "How long such a window of the quota on copies is.",
        at_least=1,
    ),
    Setting(
        "remote.log.manager.expiration.thread.pool.size",
        INT,
        10,
        "How many threads delete old segments from the tier.",
        at_least=1,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "remote.log.manager.fetch.max.bytes.per.second",
        LONG,
        _LONG_MAX,
        "How much may be read from the tier per second.",
        at_least=1,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "remote.log.manager.fetch.quota.window.num",
        INT,
        11,
        "How many windows the quota on reads is measured over.",
        at_least=1,
    ),
    Setting(
        "remote.log.manager.fetch.quota.window.size.seconds",
        INT,
        1,
        "How long such a window of the quota on reads is.",
        at_least=1,
    ),
    Setting(
        "remote.log.manager.follower.thread.pool.size",
        INT,
        2,
        "How many threads learn for followers what is tiered.",
        at_least=1,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "remote.log.manager.task.interval.ms",
        LONG,
        30_000,
        "How often segments are copied to the tier and deleted from it.",
        at_least=1,
    ),
    Setting(
        "remote.log.manager.thread.pool.size",
        INT,
        2,
        "The older name of `remote.log.manager.follower.thread.pool.size`.",
        at_least=1,
    ),
    Setting(
        "remote.log.metadata.custom.metadata.max.bytes",
        INT,
        128,
        "How large a plug-in's own metadata of a segment may be.",
        at_least=0,
    ),
    Setting(
        "remote.log.metadata.manager.class.name",
        STRING,
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        "The plug-in that keeps the metadata of tiered segments.",
        pattern=".+",
    ),
    Setting(
        "remote.log.metadata.manager.class.path",
        STRING,
        None,
        "Where that plug-in's classes are.",
    ),
    Setting(
        "remote.log.metadata.manager.impl.prefix",
        STRING,
        "rlmm.config.",
        "What the names of that plug-in's own settings begin with.",
        pattern=".+",
    ),
    Setting(
        "remote.log.metadata.manager.listener.name",
        STRING,
        None,
        "The listener by which that plug-in reaches the broker.",
        pattern=".+",
    ),
    Setting(
        "remote.log.reader.max.pending.tasks",
        INT,
        100,
        "How many reads of tiered records may wait for a thread.",
        at_least=1,
    ),
    Setting(
        "remote.log.reader.threads",
        INT,
        10,
        "How many threads read tiered records.",
        at_least=1,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "remote.log.storage.manager.class.name",
        STRING,
        None,
        "The plug-in that keeps tiered segments.",
        pattern=".+",
    ),
    Setting(
        "remote.log.storage.manager.class.path",
        STRING,
        None,
        "Where that plug-in's classes are.",
    ),
    Setting(
        "remote.log.storage.manager.impl.prefix",
        STRING,
        "rsm.config.",
        "What the names of that plug-in's own settings begin with.",
        pattern=".+",
    ),
]
