"""Settings of listeners, connections and requests."""

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

_INERT: Final = "Accepted for the sake of existing files; without effect, "

NETWORK_SETTINGS: Final = [
    Setting(
        "listeners",
        LIST,
        ("PLAINTEXT://:9092",),
        "Where the broker listens: `NAME://host:port`, separated by commas; an empty "
        "host means every address, port 0 a free port, IPv6 addresses stand in "
        "brackets.",
        dynamic=PER_BROKER,
    ),
    Setting(
        "advertised.listeners",
        LIST,
        None,
        "The addresses that clients are told; those of `listeners` when unset.",
    ),
    Setting(
        "listener.security.protocol.map",
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The security protocol of every listener name: `NAME:PROTOCOL`, separated by commas.",
        dynamic=PER_BROKER,
    ),
    Setting(
        "inter.broker.listener.name",
        STRING,
        None,
        "The listener that the brokers use among themselves.",
    ),
    Setting(
        "security.inter.broker.protocol",
        STRING,
        "PLAINTEXT",
        "The security protocol between brokers, when `inter.broker.listener.name` is unset.",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    Setting(
        "control.plane.listener.name",
        STRING,
        None,
        "The listener for the controller's own requests, when it has one.",
        is_hidden=True,
    ),
    Setting("early.start.listeners", LIST, None, _INERT + "all listeners open together."),
    Setting(
        "num.network.threads",
        INT,
        3,
        _INERT + "one event loop serves the network.",
        at_least=1,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "num.io.threads",
        INT,
        8,
        _INERT + "requests are handled on the event loop.",
        at_least=1,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "background.threads",
        INT,
        10,
        "How many threads do what would block the event loop: forcing files to disk, "
        "deleting them, metadata commits.",
        at_least=1,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "queued.max.requests",
        INT,
        500,
        "How many requests may be in work before connections are no longer read.",
        at_least=1,
    ),
    Setting(
        "queued.max.request.bytes",
        LONG,
        -1,
        "How many bytes of requests may be in memory before connections are no longer "
        "read; -1 sets no limit.",
    ),
    Setting(
        "socket.send.buffer.bytes",
        INT,
        102_400,
        "SO_SNDBUF of accepted connections; -1 leaves the system's.",
        at_least=-1,
    ),
    Setting(
        "socket.receive.buffer.bytes",
        INT,
        102_400,
        "SO_RCVBUF of accepted connections; -1 leaves the system's.",
        at_least=-1,
    ),
    Setting(
        "socket.request.max.bytes",
        INT,
        104_857_600,
        "The largest request; a connection that announces a larger one is closed.",
        at_least=1,
    ),
    Setting(
        "socket.listen.backlog.size",
        INT,
        50,
        "How many connections the system may hold until they are accepted.",
        at_least=1,
    ),
    Setting(
        "socket.connection.setup.timeout.ms",
        LONG,
        10_000,
        "How long a connection to another broker may take at first.",
    ),
    Setting(
        "socket.connection.setup.timeout.max.ms",
        LONG,
        30_000,
        "How long a connection to another broker may take at most, after failures.",
    ),
    Setting(
        "connections.max.idle.ms",
        LONG,
        600_000,
        "After how long without traffic a connection is closed.",
    ),
    Setting(
        "connections.max.reauth.ms",
        LONG,
        0,
        "For how long an authentication holds; 0 sets no limit.",
    ),
    Setting(
        "connection.failed.authentication.delay.ms",
        INT,
        100,
        "How long a refused authentication waits for its connection's end, against guessing.",
        at_least=0,
    ),
    Setting(
        "max.connections",
        INT,
        _INT_MAX,
        "How many connections the broker holds in all.",
        at_least=0,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "max.connections.per.ip",
        INT,
        _INT_MAX,
        "How many connections one address may hold.",
        at_least=0,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "max.connections.per.ip.overrides",
        STRING,
        "",
        "Other limits for some addresses: `address:count`, separated by commas.",
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "max.connection.creation.rate",
        INT,
        _INT_MAX,
        "How many connections a second are let in; who comes faster waits for its turn.",
        at_least=0,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "request.timeout.ms",
        INT,
        30_000,
        "How long the broker waits for answers to requests of its own.",
    ),
    Setting(
        "fetch.max.bytes",
        INT,
        57_671_680,
        "The most that one Fetch answer carries; its first batch may be larger.",
        at_least=1_024,
    ),
    Setting(
        "max.incremental.fetch.session.cache.slots",
        INT,
        1_000,
        "How many incremental fetch sessions are kept.",
        at_least=0,
    ),
    Setting(
        "max.request.partition.size.limit",
        INT,
        2_000,
        "How many partitions one DescribeTopicPartitions answer lists.",
        at_least=1,
    ),
    Setting(
        "fetch.purgatory.purge.interval.requests",
        INT,
        1_000,
        "How many finished fetches may stay watched before the purgatory is swept.",
    ),
    Setting(
        "producer.purgatory.purge.interval.requests",
        INT,
        1_000,
        "How many finished produce requests may stay watched before the purgatory is swept.",
    ),
    Setting(
        "delete.records.purgatory.purge.interval.requests",
        INT,
        1,
        "How many finished DeleteRecords requests may stay watched before the purgatory is swept.",
    ),
    Setting(
        "quota.window.num",
        INT,
        11,
        "How many windows the rate of new connections is measured over.",
        at_least=1,
    ),
    Setting(
        "quota.window.size.seconds",
        INT,
        1,
        "How long a window of `quota.window.num` is.",
        at_least=1,
    ),
    Setting(
        "controller.quota.window.num",
        INT,
        11,
        "How many windows the quotas on topic changes are measured over.",
        at_least=1,
    ),
    Setting(
        "controller.quota.window.size.seconds",
        INT,
        1,
        "How long a window of `controller.quota.window.num` is.",
        at_least=1,
    ),
    Setting("client.quota.callback.class", CLASS, None, _INERT + "quotas cannot be plugged in."),
    Setting(
        "metric.reporters",
        LIST,
        ("org.apache.kafka.common.metrics.JmxReporter",),
        _INERT + "metrics go to Prometheus.",
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "metrics.num.samples", INT, 2, "How many samples a measured rate is kept over.", at_least=1
    ),
    Setting(
        "metrics.sample.window.ms",
        LONG,
        30_000,
        "How long a sample of a measured rate is.",
        at_least=1,
    ),
    Setting(
        "metrics.recording.level",
        STRING,
        "INFO",
        "How much is measured: INFO, DEBUG or TRACE.",
        choices=("INFO", "DEBUG", "TRACE"),
    ),
    Setting("kafka.metrics.reporters", LIST, (), _INERT + "metrics go to Prometheus."),
    Setting(
        "kafka.metrics.polling.interval.secs",
        INT,
        10,
        _INERT + "metrics go to Prometheus.",
        at_least=1,
    ),
    Setting(
        "auto.include.jmx.reporter", BOOLEAN, True, _INERT + "there is no JMX.", is_hidden=True
    ),
    Setting(
        "telemetry.max.bytes",
        INT,
        1_048_576,
        "The largest telemetry that a client may push.",
        at_least=1,
    ),
]
