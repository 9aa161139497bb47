"""Settings of share groups and streams groups, which are not served yet."""

from typing import Final

from odradek.config.definition import DynamicMode, Setting, SettingType

INT: Final = SettingType.INT
_INT_MAX: Final = (1 << 31) - 1
SHORT: Final = SettingType.SHORT
LIST: Final = SettingType.LIST
CLUSTER_WIDE: Final = DynamicMode.CLUSTER_WIDE

SHARE_AND_STREAMS_SETTINGS: Final = [
    Setting(
        "group.share.session.timeout.ms",
        INT,
        45_000,
        "The session time-out of share groups; without effect until share groups are served.",
        at_least=1,
    ),
    Setting(
        "group.share.min.session.timeout.ms",
        INT,
        45_000,
        "The shortest session time-out that a share group may set; "
        "without effect until share groups are served.",
        at_least=1,
    ),
    Setting(
        "group.share.max.session.timeout.ms",
        INT,
        60_000,
        "The longest session time-out that a share group may set; "
        "without effect until share groups are served.",
        at_least=1,
    ),
    Setting(
        "group.share.heartbeat.interval.ms",
        INT,
        5_000,
        "The heartbeat interval of share groups; without effect until share groups are served.",
        at_least=1,
    ),
    Setting(
        "group.share.min.heartbeat.interval.ms",
        INT,
        5_000,
        "The shortest heartbeat interval that a share group may set; "
        "without effect until share groups are served.",
        at_least=1,
    ),
    Setting(
        "group.share.max.heartbeat.interval.ms",
        INT,
        15_000,
        "The longest heartbeat interval that a share group may set; "
        "without effect until share groups are served.",
        at_least=1,
    ),
    Setting(
        "group.share.max.size",
        INT,
        200,
        "How many members a share group may have; without effect until share groups are served.",
        at_least=1,
        at_most=1_000,
    ),
    Setting(
        "group.share.assignment.interval.ms",
        INT,
        1_000,
        "How long a share group rests between two assignments; "
        "without effect until share groups are served.",
        at_least=0,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "group.share.delivery.count.limit",
        INT,
        5,
        "How often a record is delivered to a share group at most; "
        "without effect until share groups are served.",
        at_least=2,
        at_most=10,
    ),
    Setting(
        "group.share.record.lock.duration.ms",
        INT,
        30_000,
        "How long a record is locked for one member of a share group; "
        "without effect until share groups are served.",
        at_least=1_000,
        at_most=3_600_000,
    ),
    Setting(
        "group.share.partition.max.record.locks",
        INT,
        2_000,
        "How many records of a partition may be locked at a time; "
        "without effect until share groups are served.",
        at_least=100,
        at_most=10_000,
    ),
    Setting(
        "group.streams.session.timeout.ms",
        INT,
        45_000,
        "The session time-out of streams groups; without effect until streams groups are served.",
        at_least=1,
    ),
    Setting(
        "group.streams.min.session.timeout.ms",
        INT,
        45_000,
        "The shortest session time-out that a streams group may set; "
        "without effect until streams groups are served.",
        at_least=1,
    ),
    Setting(
        "group.streams.max.session.timeout.ms",
        INT,
        60_000,
        "The longest session time-out that a streams group may set; "
        "without effect until streams groups are served.",
        at_least=1,
    ),
    Setting(
        "group.streams.heartbeat.interval.ms",
        INT,
        5_000,
        "The heartbeat interval of streams groups; without effect until streams groups are served.",
        at_least=1,
    ),
    Setting(
        "group.streams.min.heartbeat.interval.ms",
        INT,
        5_000,
        "The shortest heartbeat interval that a streams group may set; "
        "without effect until streams groups are served.",
        at_least=1,
    ),
    Setting(
        "group.streams.max.heartbeat.interval.ms",
        INT,
        15_000,
        "The longest heartbeat interval that a streams group may set; "
        "without effect until streams groups are served.",
        at_least=1,
    ),
    Setting(
        "group.streams.assignment.interval.ms",
        INT,
        1_000,
        "How long a streams group rests between two assignments; "
        "without effect until streams groups are served.",
        at_least=0,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "group.streams.initial.rebalance.delay.ms",
        INT,
        3_000,
        "How long the first rebalance of a streams group waits for more members; "
        "without effect until streams groups are served.",
        at_least=0,
    ),
    Setting(
        "group.streams.num.standby.replicas",
        INT,
        0,
        "How many standby tasks a streams group keeps per task; "
        "without effect until streams groups are served.",
        at_least=0,
    ),
    Setting(
        "group.streams.max.standby.replicas",
        INT,
        2,
        "The most standby tasks that a streams group may set; "
        "without effect until streams groups are served.",
        at_least=0,
    ),
    Setting(
        "group.streams.max.size",
        INT,
        _INT_MAX,
        "How many members a streams group may have; "
        "without effect until streams groups are served.",
        at_least=1,
    ),
    Setting(
        "group.share.assignors",
        LIST,
        ("simple",),
        "How partitions are assigned to the members of share groups.",
    ),
    Setting(
        "group.share.max.assignment.interval.ms",
        INT,
        15_000,
        "The longest rest between two assignments that a share group may set.",
        at_least=0,
    ),
    Setting(
        "group.share.max.delivery.count.limit",
        INT,
        10,
        "The highest limit of deliveries that a share group may set.",
        at_least=5,
        at_most=25,
    ),
    Setting(
        "group.share.max.partition.max.record.locks",
        INT,
        4_000,
        "The highest number of locked records of a partition that a share group may set.",
        at_least=2_000,
        at_most=10_000,
    ),
    Setting(
        "group.share.max.record.lock.duration.ms",
        INT,
        60_000,
        "The longest lock of a record that a share group may set.",
        at_least=30_000,
        at_most=3_600_000,
    ),
    Setting(
        "group.share.max.share.sessions",
        INT,
        2_000,
        "How many sessions of share groups a broker keeps.",
        at_least=1,
    ),
    Setting(
        "group.share.min.assignment.interval.ms",
        INT,
        0,
        "The shortest rest between two assignments that a share group may set.",
        at_least=0,
    ),
    Setting(
        "group.share.min.delivery.count.limit",
        INT,
        2,
        "The lowest limit of deliveries that a share group may set.",
        at_least=2,
        at_most=5,
    ),
    Setting(
        "group.share.min.partition.max.record.locks",
        INT,
        100,
        "The lowest number of locked records of a partition that a share group may set.",
        at_least=100,
        at_most=2_000,
    ),
    Setting(
        "group.share.min.record.lock.duration.ms",
        INT,
        15_000,
        "The shortest lock of a record that a share group may set.",
        at_least=1_000,
        at_most=30_000,
    ),
    Setting(
        "group.streams.max.assignment.interval.ms",
        INT,
        15_000,
        "The longest rest between two assignments that a streams group may set.",
        at_least=0,
    ),
    Setting(
        "group.streams.min.assignment.interval.ms",
        INT,
        0,
        "The shortest rest between two assignments that a streams group may set.",
        at_least=0,
    ),
    Setting(
        "share.coordinator.append.linger.ms",
        INT,
        -1,
        "How long the share coordinator gathers writes; -1 as it sees fit.",
        at_least=-1,
    ),
    Setting(
        "share.coordinator.cached.buffer.max.bytes",
        INT,
        1_048_588,
        "How large a buffer the share coordinator keeps for the next write.",
        at_least=524_288,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "share.coordinator.load.buffer.size",
        INT,
        5_242_880,
        "How much of the topic of share states is read at a time.",
        at_least=1,
    ),
    Setting(
        "share.coordinator.snapshot.update.records.per.snapshot",
        INT,
        500,
        "After how many updates of a state it is written whole.",
        at_least=0,
        at_most=500,
    ),
    Setting(
        "share.coordinator.state.topic.compression.codec",
        INT,
        0,
        "How the topic of share states is compressed.",
    ),
    Setting(
        "share.coordinator.state.topic.min.isr",
        SHORT,
        2,
        "The `min.insync.replicas` of the topic of share states.",
        at_least=1,
    ),
    Setting(
        "share.coordinator.state.topic.num.partitions",
        INT,
        50,
        "How many partitions the topic of share states has.",
        at_least=1,
    ),
    Setting(
        "share.coordinator.state.topic.replication.factor",
        SHORT,
        3,
        "How many replicas the topic of share states has.",
        at_least=1,
    ),
    Setting(
        "share.coordinator.state.topic.segment.bytes",
        INT,
        104_857_600,
        "How large a segment of the topic of share states is.",
        at_least=1,
    ),
    Setting(
        "share.coordinator.threads",
        INT,
        1,
        "How many threads the share coordinator has.",
        at_least=1,
    ),
    Setting(
        "share.coordinator.write.timeout.ms",
        INT,
        5_000,
        "How long a write of the share coordinator may take.",
        at_least=1,
    ),
    Setting(
        "share.fetch.purgatory.purge.interval.requests",
        INT,
        1_000,
        "After how many share fetches the waiting ones are looked through.",
    ),
]
