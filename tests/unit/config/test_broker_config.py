"""BrokerConfig decides between the layers; a mistake runs the broker with wrong values."""

import pytest

from odradek.config import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerConfig, ConfigError, ConfigSource
from odradek.config.group import GROUP_SETTINGS, GROUP_SYNONYMS
from odradek.config.topic import BROKER_SYNONYMS, LogConfig
from odradek.model import EndPoint


def test_defaults_of_the_tables_satisfy_their_own_bounds() -> None:
    """A default that its own row refuses could be read but never be set."""
    for row in [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values(), *GROUP_SETTINGS.values()]:
        text = row.render(row.default)
        if text is not None:
            assert row.parse(text) == row.default, row.name


def test_synonyms_exist_and_agree_in_type() -> None:
    """A topic setting's default is the broker's value, unparsed: the types must be the same."""
    for name, synonyms in BROKER_SYNONYMS.items():
        for synonym in synonyms:
            broker_type = BROKER_SETTINGS[synonym.name].type
            assert broker_type == TOPIC_SETTINGS[name].type or synonym.factor > 1, synonym.name
    assert set(GROUP_SYNONYMS.values()) <= set(BROKER_SETTINGS)


def test_topic_defaults_equal_the_topic_table_on_an_untouched_broker() -> None:
    """Both tables state the defaults; they must not drift apart."""
    defaults = BrokerConfig().topic_defaults()
    assert defaults == {name: row.default for name, row in TOPIC_SETTINGS.items()}


def test_unknown_settings_are_collected() -> None:
    """They are named in one warning, and are no error."""
    config = BrokerConfig({"zz.top": "1", "no.such": "2", "num.partitions": "3"})
    assert config.unknown == ["no.such", "zz.top"]
    assert config.num_partitions == config["num.partitions"] == 3


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-1", "log.retention.hours": "1"}, -1),
    ],
)
def test_retention_takes_the_finest_unit(properties: dict[str, str], retention_ms: int) -> None:
    """Kafka: ms over minutes over hours. Wrong precedence deletes people's data."""
    assert BrokerConfig(properties).log_defaults.retention_ms == retention_ms


def test_log_config_lays_the_topic_over_the_broker() -> None:
    """The topic's own setting wins, the broker's is the default."""
    broker = BrokerConfig({"log.segment.bytes": "2048", "log.cleanup.policy": "compact"})
    config = LogConfig.from_settings({"segment.bytes": "1024"}, broker.topic_defaults())
    assert config.segment_bytes == 1024
    assert config.cleanup_policy == {"compact"}
    assert config.compact
    assert not config.delete


@pytest.mark.parametrize(
    "overrides",
    [
        {"no.such": "1"},
        {"segment.bytes": "13"},
        {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
        {"remote.storage.enable": "true"},
        {"message.format.version": "new"},
        {"leader.replication.throttled.replicas": "0:1,x"},
        {"leader.replication.throttled.replicas": "0:1, *"},
        {"follower.replication.throttled.replicas": "*,*"},
        {"follower.replication.throttled.replicas": "0:" + "1" * 5000},
    ],
)
def test_log_config_refuses(overrides: dict[str, str]) -> None:
    """Each of these would make a topic that cannot do what it says."""
    with pytest.raises(ConfigError):
        LogConfig.from_settings(overrides, BrokerConfig().topic_defaults())


@pytest.mark.parametrize("text", [" *", "0:1, 1:1", ",0:1", ""])
def test_throttled_replicas_that_kafka_takes(text: str) -> None:
    """A star alone, or pairs; empty elements are passed over."""
    settings = {"leader.replication.throttled.replicas": text}
    LogConfig.from_settings(settings, BrokerConfig().topic_defaults())


def test_stored_settings_that_cannot_be_used_are_left_out() -> None:
    """A cluster of another version may have set them; raised, they would keep a broker down."""
    stored = {
        "message.downconversion.enable": "true",
        "segment.bytes": "many",
        "remote.storage.enable": "true",
        "retention.ms": "5",
        "max.compaction.lag.ms": "1000",
    }
    broker = BrokerConfig({"log.cleaner.min.compaction.lag.ms": "5000"})
    config, problems = LogConfig.from_stored(stored, broker.topic_defaults())
    assert config.retention_ms == 5
    assert config.segment_bytes == 1 << 30
    assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms) == (5000, 1000)
    assert [each.name for each in problems] == list(stored)[:3]


def test_small_segments_and_old_formats_are_legal() -> None:
    """R8 asks for them, unlike Kafka 4."""
    settings = {"segment.bytes": "1024", "index.interval.bytes": "100"}
    settings["message.format.version"] = "0.9.0-IV0"
    config = LogConfig.from_settings(settings, BrokerConfig().topic_defaults())
    assert (config.segment_bytes, config.index_interval_bytes) == (1024, 100)
    assert config.message_format_version == "0.9.0-IV0"


def test_dynamic_layers_win_over_static_ones_and_are_announced() -> None:
    """This broker over all brokers over the file over the table."""
    config = BrokerConfig({"max.connections": "10"})
    heard: list[frozenset[str]] = []
    config.subscribe(heard.append)
    config.update_dynamic(cluster={"max.connections": "20"}, broker={})
    assert config.max_connections == 20
    config.update_dynamic(cluster={"max.connections": "20"}, broker={"max.connections": "30"})
    assert config.max_connections == 30
    assert [layer.source for layer in config.layers("max.connections")] == [
        ConfigSource.DYNAMIC_BROKER_CONFIG,
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
        ConfigSource.STATIC_BROKER_CONFIG,
        ConfigSource.DEFAULT_CONFIG,
    ]
    config.update_dynamic(cluster={}, broker={})
    assert config.max_connections == 10
    assert heard == [frozenset({"max.connections"})] * 3


def test_a_listener_may_have_a_value_of_its_own() -> None:
    """Set for one listener only, it would be taken and do nothing; misspelt, nobody would know."""
    config = BrokerConfig({"listener.name.internal.max.connection.creation.rate": "5"})
    heard: list[frozenset[str]] = []
    config.subscribe(heard.append)
    rate = "max.connection.creation.rate"
    assert config.for_listener("INTERNAL", rate) == 5
    assert config.for_listener("PLAINTEXT", rate) is None
    config.update_dynamic(cluster={f"listener.name.plaintext.{rate}": "7"}, broker={})
    assert config.for_listener("PLAINTEXT", rate) == 7
    config.update_dynamic(cluster={}, broker={})
    assert config.for_listener("PLAINTEXT", rate) is None
    assert heard == [frozenset({f"listener.name.plaintext.{rate}"})] * 2
    with pytest.raises(ConfigError, match=rate):
        BrokerConfig({f"listener.name.internal.{rate}": "many"})


def test_a_change_of_the_brokers_default_reaches_topics() -> None:
    """Topics without a setting of their own follow the broker at once."""
    config = BrokerConfig()
    config.update_dynamic(cluster={"log.retention.ms": "5"}, broker={})
    assert config.log_defaults.retention_ms == 5


@pytest.mark.parametrize(
    ("settings", "per_broker"),
    [
        ({"num.partitions": "3"}, True),
        ({"listeners": "PLAINTEXT://:1"}, False),
        ({"max.connections": "-1"}, True),
        ({"max.connections.per.ip.overrides": "1.2.3.4"}, True),
        ({"listener.name.internal.ssl.keystore.type": "PEM"}, False),
        ({"ssl.keystore.type": "PEM"}, True),
        ({"num.io.threads": "17"}, True),
        ({"num.io.threads": "3"}, True),
        ({"log.cleaner.threads": "0"}, True),
        ({"metric.reporters": "no.such.Class"}, True),
    ],
)
def test_check_dynamic_refuses(settings: dict[str, str], per_broker: bool) -> None:
    """Read-only, out of scope, out of bounds, malformed, too big a step, not for all listeners."""
    with pytest.raises(ConfigError):
        BrokerConfig().check_dynamic(settings, per_broker=per_broker)


def test_a_stored_setting_that_cannot_be_used_is_left_out() -> None:
    """Illegal, unchangeable, out of scope, too long a number: the others are used all the same."""
    config = BrokerConfig()
    problems = config.update_dynamic(
        cluster={"max.connections": "5", "log.retention.ms": "x", "advertised.listeners": "x"},
        broker={
            "log.roll.ms": "0",
            "num.partitions": "7",
            "max.connections.per.ip.overrides": "::1:" + "9" * 5000,
        },
    )
    assert config.max_connections == 5
    assert config.num_partitions == 1
    assert [each.name for each in problems] == [
        "log.retention.ms",
        "advertised.listeners",
        "log.roll.ms",
        "num.partitions",
        "max.connections.per.ip.overrides",
    ]


def test_settings_of_a_broker_that_do_not_go_together_are_left_out() -> None:
    """The file may have changed since they were set; they must not keep the broker down."""
    config = BrokerConfig()
    broker = {"listeners": "X://:1", "max.connections": "4"}
    (problem,) = config.update_dynamic(cluster={"max.connections": "5"}, broker=broker)
    assert problem.name == "listeners"
    assert config.max_connections == 5
    assert config.update_dynamic(cluster={}, broker={"max.connections": "4"}) == []
    assert config.max_connections == 4


def test_any_two_legal_defaults_of_all_brokers_go_together() -> None:
    """Two settings that are each taken alone must not be refused when both are applied."""
    legal = {"log.cleaner.min.compaction.lag.ms": "5000", "log.cleaner.max.compaction.lag.ms": "1"}
    config = BrokerConfig()
    for name, text in legal.items():
        config.check_dynamic({name: text}, per_broker=False)
    assert config.update_dynamic(cluster=legal, broker={}) == []
    assert config.log_defaults.max_compaction_lag_ms == 1


def test_ids_directories_and_overrides() -> None:
    """The two names of an id must agree, and directories fall back."""
    assert BrokerConfig({"node.id": "4"}).broker_id == 4
    assert BrokerConfig().broker_id == -1
    with pytest.raises(ConfigError):
        BrokerConfig({"node.id": "4", "broker.id": "5"})
    assert BrokerConfig({"log.dir": "/a"}).log_dirs == ("/a",)
    assert BrokerConfig({"log.dir": "/a", "log.dirs": "/b, /c"}).log_dirs == ("/b", "/c")
    overrides = BrokerConfig({"max.connections.per.ip.overrides": "::1:3, host:4"})
    assert overrides.connections_per_ip_overrides == {"::1": 3, "host": 4}


def test_listeners() -> None:
    """R27: several, IPv6 in brackets, empty hosts, names of one's own."""
    config = BrokerConfig(
        {
            "listeners": "PLAINTEXT://[::1]:0,OUTSIDE://:9093",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SSL",
        }
    )
    assert config.listeners == [
        EndPoint("PLAINTEXT", "PLAINTEXT", "::1", 0),
        EndPoint("OUTSIDE", "SSL", "", 9093),
    ]
    assert config.advertised_listeners == config.listeners


@pytest.mark.parametrize(
    ("protocols", "reason"),
    [
        ("PLAINTEXT:PLAINTEXT,PLAINTEXT : plaintext", None),
        ("PLAINTEXT:PLAINTEXT,PLAINTEXT:SSL", "PLAINTEXT has two security protocols"),
        ("PLAINTEXT", "Value must be NAME:PROTOCOL"),
    ],
)
def test_a_name_has_one_protocol(protocols: str, reason: str | None) -> None:
    """A file that Kafka takes would be refused, or clients served without the TLS that one of its
    lines asks for."""
    settings = {"listener.security.protocol.map": protocols}
    if reason is None:
        BrokerConfig(settings)
        return
    with pytest.raises(ConfigError, match=f": {reason}$"):
        BrokerConfig(settings)


@pytest.mark.parametrize(
    "listeners",
    ["", "localhost:9092", "X://a:1", "PLAINTEXT://a:65536", "PLAINTEXT://a:1,PLAINTEXT://b:2"],
)
def test_refuses_listeners(listeners: str) -> None:
    """A broker that cannot be reached must say so when it starts."""
    with pytest.raises(ConfigError):
        BrokerConfig({"listeners": listeners})


@pytest.mark.parametrize("text", ["a:1," + " " * 32_000 + "x", "a" + ":1 " * 10_000 + "x"])
def test_a_long_text_is_refused_at_once(text: str) -> None:
    """A request may bring 32 KiB; a pattern that tries every way to read them hangs the broker."""
    for row in (
        BROKER_SETTINGS["max.connections.per.ip.overrides"],
        TOPIC_SETTINGS["leader.replication.throttled.replicas"],
    ):
        with pytest.raises(ConfigError):
            row.parse(text)
