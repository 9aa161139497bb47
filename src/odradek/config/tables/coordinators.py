"""Settings of the coordinators: groups, offsets, transactions."""

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
_INT_MAX: Final = (1 << 31) - 1

COORDINATOR_SETTINGS: Final = [
    Setting(
        "group.min.session.timeout.ms",
        INT,
        6_000,
        "The shortest session time-out that a member may ask for.",
    ),
    Setting(
        "group.max.session.timeout.ms",
        INT,
        1_800_000,
        "The longest session time-out that a member may ask for.",
    ),
    Setting(
        "group.initial.rebalance.delay.ms",
        INT,
        3_000,
        "How long the first rebalance of an empty group waits for more members.",
    ),
    Setting("group.max.size", INT, _INT_MAX, "How many members a group may have.", at_least=1),
    Setting(
        "group.coordinator.rebalance.protocols",
        LIST,
        ("classic", "consumer", "streams"),
        "The group protocols that are offered.",
        choices=("consumer", "classic", "share", "streams"),
    ),
    Setting(
        "group.coordinator.threads",
        INT,
        4,
        "Accepted for the sake of existing files; without effect, the coordinator runs "
        "on the event loop.",
        at_least=1,
    ),
    Setting(
        "group.coordinator.background.threads",
        INT,
        2,
        "How many threads do the group coordinator's longer work, such as matching patterns.",
        at_least=1,
    ),
    Setting(
        "group.coordinator.append.linger.ms",
        INT,
        -1,
        "Accepted for the sake of existing files; without effect, the commits of one read "
        "from the network are appended together and everything else at once.",
        at_least=-1,
    ),
    Setting(
        "group.coordinator.cached.buffer.max.bytes",
        INT,
        1_048_588,
        "Accepted for the sake of existing files; without effect, buffers are not kept.",
        at_least=524_288,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "group.consumer.session.timeout.ms",
        INT,
        45_000,
        "The session time-out of the newer consumer protocol.",
        at_least=1,
    ),
    Setting(
        "group.consumer.min.session.timeout.ms",
        INT,
        45_000,
        "The shortest session time-out that a consumer group may set.",
        at_least=1,
    ),
    Setting(
        "group.consumer.max.session.timeout.ms",
        INT,
        60_000,
        "The longest session time-out that a consumer group may set.",
        at_least=1,
    ),
    Setting(
        "group.consumer.heartbeat.interval.ms",
        INT,
        5_000,
        "The heartbeat interval of the newer consumer protocol.",
        at_least=1,
    ),
    Setting(
        "group.consumer.min.heartbeat.interval.ms",
        INT,
        5_000,
        "The shortest heartbeat interval that a consumer group may set.",
        at_least=1,
    ),
    Setting(
        "group.consumer.max.heartbeat.interval.ms",
        INT,
        15_000,
        "The longest heartbeat interval that a consumer group may set.",
        at_least=1,
    ),
    Setting(
        "group.consumer.assignment.interval.ms",
        INT,
        1_000,
        "How long a group rests between two assignments.",
        at_least=0,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "group.consumer.min.assignment.interval.ms",
        INT,
        0,
        "The shortest rest between two assignments that a group may set.",
        at_least=0,
    ),
    Setting(
        "group.consumer.max.assignment.interval.ms",
        INT,
        15_000,
        "The longest rest between two assignments that a group may set.",
        at_least=0,
    ),
    Setting(
        "group.consumer.max.size",
        INT,
        _INT_MAX,
        "How many members a group of the newer protocol may have.",
        at_least=1,
    ),
    Setting(
        "group.consumer.assignors",
        LIST,
        ("uniform", "range"),
        "The assignors of the newer protocol; the first is the default. Others than these two "
        "are passed over.",
    ),
    Setting(
        "group.consumer.migration.policy",
        STRING,
        "bidirectional",
        "Whether groups may change between the classic and the newer protocol.",
        choices=("disabled", "downgrade", "upgrade", "bidirectional"),
        ignore_case=True,
    ),
    Setting(
        "offset.metadata.max.bytes",
        INT,
        4_096,
        "How long the metadata beside a committed offset may be.",
    ),
    Setting(
        "offsets.load.buffer.size",
        INT,
        5_242_880,
        "How much is read at a time when groups and offsets are loaded; never more than "
        "256 KiB, so that other clients are served meanwhile.",
        at_least=1,
    ),
    Setting(
        "offsets.topic.replication.factor",
        SHORT,
        3,
        "How many replicas the offsets topic gets.",
        at_least=1,
    ),
    Setting(
        "offsets.topic.num.partitions",
        INT,
        50,
        "How many partitions the offsets topic gets; not to be changed afterwards.",
        at_least=1,
    ),
    Setting(
        "offsets.topic.segment.bytes",
        INT,
        104_857_600,
        "How large the offsets topic's segments grow.",
        at_least=1,
    ),
    Setting(
        "offsets.topic.compression.codec",
        INT,
        0,
        "The codec of the offsets topic, as a number.",
        at_least=0,
        at_most=4,
    ),
    Setting(
        "offsets.retention.minutes",
        INT,
        10_080,
        "How long the offsets of a group without members are kept.",
        at_least=1,
    ),
    Setting(
        "offsets.retention.check.interval.ms",
        LONG,
        600_000,
        "How often it is checked whether offsets have expired.",
        at_least=1,
    ),
    Setting(
        "offsets.commit.timeout.ms",
        INT,
        5_000,
        "How long a commit, or another request to the group coordinator, waits for the "
        "offsets topic's replicas.",
        at_least=1,
    ),
    Setting(
        "transaction.max.timeout.ms",
        INT,
        900_000,
        "The longest transaction time-out that a producer may ask for.",
        at_least=1,
    ),
    Setting(
        "transactional.id.expiration.ms",
        INT,
        604_800_000,
        "How long a silent transactional id is remembered.",
        at_least=1,
    ),
    Setting(
        "transaction.state.log.replication.factor",
        SHORT,
        3,
        "How many replicas the transaction topic gets.",
        at_least=1,
    ),
    Setting(
        "transaction.state.log.num.partitions",
        INT,
        50,
        "How many partitions the transaction topic gets; not to be changed afterwards.",
        at_least=1,
    ),
    Setting(
        "transaction.state.log.min.isr",
        INT,
        2,
        "`min.insync.replicas` of the transaction topic.",
        at_least=1,
    ),
    Setting(
        "transaction.state.log.segment.bytes",
        INT,
        104_857_600,
        "How large the transaction topic's segments grow.",
        at_least=1,
    ),
    Setting(
        "transaction.state.log.load.buffer.size",
        INT,
        5_242_880,
        "How much is read at a time when transactions are loaded.",
        at_least=1,
    ),
    Setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT,
        10_000,
        "How often timed-out transactions are aborted.",
        at_least=1,
    ),
    Setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        3_600_000,
        "How often expired transactional ids are removed.",
        at_least=1,
    ),
    Setting(
        "transaction.partition.verification.enable",
        BOOLEAN,
        True,
        "Whether a partition asks the coordinator before it takes transactional records.",
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "transaction.two.phase.commit.enable",
        BOOLEAN,
        False,
        "Whether producers may take part in a two-phase commit of others.",
    ),
    Setting(
        "add.partitions.to.txn.retry.backoff.ms",
        INT,
        20,
        "How long adding a partition to a transaction waits before it is tried again.",
        at_least=1,
    ),
    Setting(
        "add.partitions.to.txn.retry.backoff.max.ms",
        INT,
        100,
        "How long adding a partition to a transaction is tried in all.",
        at_least=0,
    ),
]
