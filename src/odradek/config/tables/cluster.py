"""Settings of the cluster: identity, topics, replication, elections."""

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
CLUSTER_WIDE: Final = DynamicMode.CLUSTER_WIDE
_LONG_MAX: Final = (1 << 63) - 1

_INERT: Final = "Accepted for the sake of existing files; without effect, "
_NO_RAFT: Final = _INERT + "the metadata is not kept by a Raft quorum."

CLUSTER_SETTINGS: Final = [
    Setting(
        "broker.id",
        INT,
        -1,
        "This broker's number, unique in the cluster; `node.id` when it is -1.",
    ),
    Setting(
        "broker.id.generation.enable",
        BOOLEAN,
        True,
        "Whether a broker of a ZooKeeper cluster that has no number gets a new one.",
        is_hidden=True,
    ),
    Setting(
        "reserved.broker.max.id",
        INT,
        1000,
        "The largest number for people to give; new ones are larger.",
        at_least=0,
        is_hidden=True,
    ),
    Setting("node.id", INT, None, "The newer name of `broker.id`.", at_least=0),
    Setting(
        "broker.rack",
        STRING,
        None,
        "The rack that the broker stands in; replicas are spread over racks.",
    ),
    Setting(
        "process.roles",
        LIST,
        (),
        _INERT + "every broker can be the controller.",
        choices=("broker", "controller"),
    ),
    Setting(
        "auto.create.topics.enable",
        BOOLEAN,
        True,
        "Whether a topic that is asked for is created when it does not exist.",
    ),
    Setting("delete.topic.enable", BOOLEAN, True, "Whether topics may be deleted."),
    Setting(
        "num.partitions", INT, 1, "How many partitions a topic gets when nobody says.", at_least=1
    ),
    Setting(
        "default.replication.factor",
        INT,
        1,
        "How many replicas a topic's partitions get when nobody says.",
    ),
    Setting(
        "min.insync.replicas",
        INT,
        1,
        "How many replicas must be in sync for a produce with acks=all.",
        at_least=1,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "unclean.leader.election.enable",
        BOOLEAN,
        False,
        "Whether a replica that is not in sync may lead when no other is left.",
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "create.topic.policy.class.name", CLASS, None, "The policy that may refuse new topics."
    ),
    Setting(
        "alter.config.policy.class.name",
        CLASS,
        None,
        "The policy that may refuse changes of settings.",
    ),
    Setting(
        "auto.leader.rebalance.enable",
        BOOLEAN,
        True,
        "Whether leadership goes back to preferred replicas by itself.",
    ),
    Setting(
        "leader.imbalance.check.interval.seconds",
        LONG,
        300,
        "How often it is checked whether leadership has to go back.",
        at_least=1,
    ),
    Setting(
        "leader.imbalance.per.broker.percentage",
        INT,
        10,
        "How many of a broker's partitions may be led by others before leadership is "
        "moved, in per cent.",
        is_hidden=True,
    ),
    Setting(
        "controlled.shutdown.enable",
        BOOLEAN,
        True,
        "Whether a stopping broker hands its leaderships over first.",
    ),
    Setting(
        "controlled.shutdown.max.retries",
        INT,
        3,
        "How often a failed hand-over is tried again.",
        is_hidden=True,
    ),
    Setting(
        "controlled.shutdown.retry.backoff.ms",
        LONG,
        5_000,
        "How long to wait before a hand-over is tried again.",
        is_hidden=True,
    ),
    Setting(
        "controller.socket.timeout.ms",
        INT,
        30_000,
        "How long the controller waits for a broker's answer.",
    ),
    Setting("broker.heartbeat.interval.ms", INT, 2_000, "How often a broker says that it lives."),
    Setting("broker.session.timeout.ms", INT, 9_000, "How long a silent broker is taken to live."),
    Setting(
        "initial.broker.registration.timeout.ms",
        INT,
        60_000,
        "How long a starting broker tries to register.",
    ),
    Setting(
        "num.replica.fetchers",
        INT,
        1,
        "How many fetchers a follower runs per leader.",
        at_least=1,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "num.replica.alter.log.dirs.threads",
        INT,
        None,
        "How many threads move replicas between directories; as many as directories when unset.",
    ),
    Setting(
        "replica.lag.time.max.ms",
        LONG,
        30_000,
        "How long a follower may lag before it leaves the in-sync replicas.",
    ),
    Setting(
        "replica.socket.timeout.ms",
        INT,
        30_000,
        "How long a follower waits for the leader's answer.",
    ),
    Setting(
        "replica.socket.receive.buffer.bytes", INT, 65_536, "SO_RCVBUF of a follower's connections."
    ),
    Setting(
        "replica.fetch.max.bytes",
        INT,
        1_048_576,
        "How much of one partition a follower fetches at a time.",
        at_least=0,
    ),
    Setting(
        "replica.fetch.wait.max.ms", INT, 500, "How long a leader may hold a follower's fetch."
    ),
    Setting("replica.fetch.min.bytes", INT, 1, "How much a follower's fetch waits for."),
    Setting(
        "replica.fetch.response.max.bytes",
        INT,
        10_485_760,
        "How much one answer to a follower carries.",
        at_least=0,
    ),
    Setting(
        "replica.fetch.backoff.ms",
        INT,
        1_000,
        "How long a follower rests after an error.",
        at_least=0,
    ),
    Setting(
        "replica.high.watermark.checkpoint.interval.ms",
        LONG,
        5_000,
        "How often high watermarks are written down.",
    ),
    Setting(
        "replica.selector.class",
        STRING,
        None,
        "How a consumer's replica is chosen: by `RackAwareReplicaSelector` in the consumer's rack; "
        "the leader when unset.",
        pattern=r"(org\.apache\.kafka\.common\.replica\.)?(LeaderSelector|RackAwareReplicaSelector)",
    ),
    Setting(
        "replication.quota.window.num",
        INT,
        11,
        "How many windows replication quotas are measured over.",
        at_least=1,
    ),
    Setting(
        "replication.quota.window.size.seconds",
        INT,
        1,
        "How long a window of `replication.quota.window.num` is.",
        at_least=1,
    ),
    Setting(
        "alter.log.dirs.replication.quota.window.num",
        INT,
        11,
        "How many windows the quota on moves between directories is measured over.",
        at_least=1,
    ),
    Setting(
        "alter.log.dirs.replication.quota.window.size.seconds",
        INT,
        1,
        "How long a window of `alter.log.dirs.replication.quota.window.num` is.",
        at_least=1,
    ),
    Setting(
        "leader.replication.throttled.rate",
        LONG,
        _LONG_MAX,
        "How many bytes a second a leader sends to throttled replicas.",
        at_least=0,
        dynamic=CLUSTER_WIDE,
        is_hidden=True,
    ),
    Setting(
        "follower.replication.throttled.rate",
        LONG,
        _LONG_MAX,
        "How many bytes a second a follower fetches for throttled replicas.",
        at_least=0,
        dynamic=CLUSTER_WIDE,
        is_hidden=True,
    ),
    Setting(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG,
        _LONG_MAX,
        "How many bytes a second a move between directories copies.",
        at_least=0,
        dynamic=CLUSTER_WIDE,
        is_hidden=True,
    ),
    Setting(
        "zookeeper.connect",
        STRING,
        None,
        "The ZooKeeper ensemble of a cluster: `host:port`, separated by commas, with an "
        "optional chroot; the embedded store when unset.",
        is_hidden=True,
    ),
    Setting(
        "zookeeper.session.timeout.ms",
        INT,
        18_000,
        "How long ZooKeeper takes a silent broker to live.",
        is_hidden=True,
    ),
    Setting(
        "zookeeper.connection.timeout.ms",
        INT,
        None,
        "How long the first connection may take; the session's time-out when unset.",
        is_hidden=True,
    ),
    Setting(
        "zookeeper.max.in.flight.requests",
        INT,
        100,
        "How many requests may be on their way to ZooKeeper. Kafka's default was 10; a controller "
        "that takes over reads every partition, and is done in half the time with 100.",
        at_least=1,
        is_hidden=True,
    ),
    Setting(
        "zookeeper.set.acl",
        BOOLEAN,
        False,
        "Whether the broker's nodes in ZooKeeper are protected.",
        is_hidden=True,
    ),
    Setting("controller.listener.names", LIST, (), _NO_RAFT),
    Setting("controller.quorum.voters", LIST, (), _NO_RAFT),
    Setting("controller.quorum.bootstrap.servers", LIST, (), _NO_RAFT),
    Setting("controller.quorum.election.timeout.ms", INT, 1_000, _NO_RAFT, at_least=0),
    Setting("controller.quorum.election.backoff.max.ms", INT, 1_000, _NO_RAFT, at_least=0),
    Setting("controller.quorum.fetch.timeout.ms", INT, 2_000, _NO_RAFT, at_least=0),
    Setting("controller.quorum.request.timeout.ms", INT, 2_000, _NO_RAFT, at_least=0),
    Setting("controller.quorum.retry.backoff.ms", INT, 20, _NO_RAFT, at_least=0),
    Setting("controller.quorum.append.linger.ms", INT, 25, _NO_RAFT, at_least=0),
    Setting("metadata.log.segment.bytes", INT, 1_073_741_824, _NO_RAFT),
    Setting("metadata.log.segment.ms", LONG, 604_800_000, _NO_RAFT),
    Setting(
        "metadata.log.max.record.bytes.between.snapshots", LONG, 20_971_520, _NO_RAFT, at_least=1
    ),
    Setting("metadata.log.max.snapshot.interval.ms", LONG, 3_600_000, _NO_RAFT, at_least=0),
    Setting("metadata.max.idle.interval.ms", INT, 500, _NO_RAFT, at_least=0),
    Setting("metadata.max.retention.bytes", LONG, 104_857_600, _NO_RAFT),
    Setting("metadata.max.retention.ms", LONG, 604_800_000, _NO_RAFT),
    Setting(
        "inter.broker.protocol.version",
        STRING,
        None,
        _INERT + "brokers of one version make a cluster.",
        is_hidden=True,
    ),
    Setting(
        "config.providers",
        LIST,
        (),
        _INERT + "values are taken as they stand.",
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "remote.log.storage.system.enable",
        BOOLEAN,
        False,
        "Whether old segments are tiered. Not available here: `true` is refused.",
    ),
    Setting(
        "controller.quorum.auto.join.enable",
        BOOLEAN,
        False,
        "Whether a controller joins its quorum by itself.",
    ),
    Setting(
        "controller.quorum.fetch.max.bytes",
        INT,
        1_048_576,
        "How much of the metadata's log one fetch of the quorum may carry.",
        at_least=1,
    ),
    Setting(
        "controller.quorum.fetch.snapshot.max.bytes",
        INT,
        1_048_576,
        "How much of a snapshot of the metadata one fetch may carry.",
        at_least=1,
    ),
]
