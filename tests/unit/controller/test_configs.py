"""Settings are described with their sources and changed by Kafka's rules."""

from collections.abc import Callable
from typing import Any

import pytest

from odradek.config import ConfigSource, SettingType
from odradek.controller import AlterOperation, ConfigAlteration, CreatableTopic
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata import ConfigResource
from odradek.model import ConfigResourceType

TOPIC = ConfigResource.topic("a")
BROKER = ConfigResource(ConfigResourceType.BROKER, "1")
ALL_BROKERS = ConfigResource(ConfigResourceType.BROKER, "")
SET, DELETE, APPEND, SUBTRACT = AlterOperation


def _code_of(call: Callable[[], object]) -> object:
    """The error code that a call ends with."""
    with pytest.raises(BrokerError) as caught:
        call()
    return caught.value.code


def _entry(kit: Any, resource: ConfigResource, name: str) -> Any:
    (entry,) = kit.controller.describe_configs(resource, [name])
    return entry


def _incremental(kit: Any, resource: ConfigResource, *steps: Any, **kwargs: Any) -> Any:
    alterations = [ConfigAlteration(*step) for step in steps]
    ask = kit.controller.incremental_alter_configs
    (result,) = kit.ask(ask, [(resource, alterations)], **kwargs)
    return result.error_code


def test_a_topics_settings_name_their_sources(kit_with: Any) -> None:
    """Topic over this broker over all brokers over the file over the default."""
    kit = kit_with({"log.retention.ms": "3600000", "log.retention.hours": "2"})
    kit.must_create("a")
    assert _entry(kit, TOPIC, "retention.ms").value == "3600000"
    assert _entry(kit, TOPIC, "retention.ms").source is ConfigSource.STATIC_BROKER_CONFIG
    _incremental(kit, ALL_BROKERS, ("log.retention.ms", SET, "30"))
    _incremental(kit, BROKER, ("log.retention.ms", SET, "20"))
    _incremental(kit, TOPIC, ("retention.ms", SET, "10"))
    entry = _entry(kit, TOPIC, "retention.ms")
    assert (entry.value, entry.type) == ("10", SettingType.LONG)
    assert [(each.name, each.value, each.source.name) for each in entry.synonyms] == [
        ("retention.ms", "10", "DYNAMIC_TOPIC_CONFIG"),
        ("log.retention.ms", "20", "DYNAMIC_BROKER_CONFIG"),
        ("log.retention.ms", "30", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        ("log.retention.ms", "3600000", "STATIC_BROKER_CONFIG"),
        ("log.retention.hours", "2", "STATIC_BROKER_CONFIG"),
        ("log.retention.hours", "168", "DEFAULT_CONFIG"),
    ]
    _incremental(kit, TOPIC, ("retention.ms", DELETE, None))
    assert _entry(kit, TOPIC, "retention.ms").value == "20"


def test_a_brokers_settings_tell_what_may_change(kit_with: Any) -> None:
    """Tools show these flags; a password's value never leaves."""
    kit = kit_with({"ssl.key.password": "hunter2"})
    entry = _entry(kit, BROKER, "num.partitions")
    assert (entry.value, entry.is_read_only) == ("1", True)
    assert entry.source is ConfigSource.DEFAULT_CONFIG
    assert entry.documentation
    secret = _entry(kit, BROKER, "ssl.key.password")
    assert (secret.value, secret.is_sensitive) == (None, True)
    assert "hunter2" not in repr(kit.controller.describe_configs(BROKER))
    assert _entry(kit, BROKER, "log.retention.ms").value is None
    assert not _entry(kit, BROKER, "log.retention.ms").is_read_only


def test_describing_all_settings_needs_no_names(kit: Any) -> None:
    """Every row of the table, sorted."""
    kit.must_create("a")
    names = [entry.name for entry in kit.controller.describe_configs(TOPIC)]
    assert names == sorted(names)
    assert len(names) == len(set(names)) > 30
    assert kit.controller.describe_configs(ALL_BROKERS) == []
    group = ConfigResource(ConfigResourceType.GROUP, "g")
    assert _entry(kit, group, "consumer.session.timeout.ms").value == "45000"


def test_describing_what_is_not_there(kit: Any) -> None:
    """Unknown topic, another broker, a kind without settings."""
    describe = kit.controller.describe_configs
    assert _code_of(lambda: describe(TOPIC)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    other = ConfigResource(ConfigResourceType.BROKER, "2")
    assert _code_of(lambda: describe(other)) is ErrorCode.INVALID_REQUEST
    nothing = ConfigResource(ConfigResourceType.UNKNOWN, "x")
    assert _code_of(lambda: describe(nothing)) is ErrorCode.INVALID_REQUEST


def test_alter_configs_replaces_everything(kit: Any) -> None:
    """A setting that is left out goes back to its default: the old API's trap, kept as it is."""
    kit.must_create("a", retention_ms="5")
    change = [(TOPIC, [("segment.bytes", "1024")])]
    kit.ask(kit.controller.alter_configs, change, validate_only=True)
    assert kit.cache.image.topic_config("a") == {"retention.ms": "5"}
    (result,) = kit.ask(kit.controller.alter_configs, change)
    assert result.error_code is ErrorCode.NONE
    assert kit.cache.image.topic_config("a") == {"segment.bytes": "1024"}


def test_lists_are_edited_from_what_is_in_force(kit: Any) -> None:
    """APPEND to a list that the topic does not set begins from the default, without doubles."""
    kit.must_create("a")
    assert not _incremental(kit, TOPIC, ("cleanup.policy", APPEND, "compact,delete"))
    assert kit.cache.image.topic_config("a") == {"cleanup.policy": "delete,compact"}
    assert not _incremental(kit, TOPIC, ("cleanup.policy", SUBTRACT, "delete"))
    assert kit.cache.image.topic_config("a") == {"cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("resource", "steps", "code"),
    [
        (TOPIC, [("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
        (TOPIC, [("no.such", SET, "1")], ErrorCode.INVALID_CONFIG),
        (TOPIC, [("no.such", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        (TOPIC, [("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        (TOPIC, [("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        (TOPIC, [("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
        (TOPIC, [("retention.ms", SET, "1")] * 2, ErrorCode.INVALID_REQUEST),
        (TOPIC, [("cleanup.policy", APPEND, "burn")], ErrorCode.INVALID_CONFIG),
        (
            ConfigResource.topic("b"),
            [("retention.ms", SET, "1")],
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (BROKER, [("num.partitions", SET, "3")], ErrorCode.INVALID_REQUEST),
        (ALL_BROKERS, [("listeners", SET, "PLAINTEXT://:1")], ErrorCode.INVALID_REQUEST),
        (
            ConfigResource(ConfigResourceType.BROKER, "2"),
            [("max.connections", SET, "1")],
            ErrorCode.INVALID_REQUEST,
        ),
        (ConfigResource(ConfigResourceType.UNKNOWN, "x"), [], ErrorCode.INVALID_REQUEST),
        (
            ConfigResource(ConfigResourceType.GROUP, "g"),
            [("consumer.session.timeout.ms", SET, "0")],
            ErrorCode.INVALID_CONFIG,
        ),
    ],
)
def test_refuses(kit: Any, resource: ConfigResource, steps: list[Any], code: ErrorCode) -> None:
    """A resource with one fault is not stored at all."""
    kit.must_create("a")
    assert _incremental(kit, resource, *steps) is code
    assert not kit.cache.image.configs


def test_a_broker_setting_works_at_once(kit: Any) -> None:
    """A change of an operator at run time needs no restart, and can be taken back."""
    assert not _incremental(kit, BROKER, ("max.connections", SET, "7"))
    assert kit.config.max_connections == 7
    assert not _incremental(kit, BROKER, ("max.connections", DELETE, None))
    assert kit.config.max_connections == (1 << 31) - 1


def test_a_resource_named_twice_is_refused(kit: Any) -> None:
    """Which of the two should win?"""
    kit.must_create("a")
    change = [(TOPIC, {"retention.ms": "1"}), (TOPIC, {"retention.ms": "2"})]
    results = kit.ask(kit.controller.alter_configs, change)
    assert {result.error_code for result in results} == {ErrorCode.INVALID_REQUEST}


def test_a_name_that_nobody_knows_is_kept_and_shown_to_nobody(kit: Any) -> None:
    """A plug-in's setting may be a secret: it is taken, and described without its value."""
    assert not _incremental(kit, BROKER, ("no.such", SET, "hunter2"))
    entry = _entry(kit, BROKER, "no.such")
    assert (entry.value, entry.is_sensitive, entry.is_read_only) == (None, True, True)
    assert entry.source is ConfigSource.DYNAMIC_BROKER_CONFIG


@pytest.fixture
def slow_kit(kit_with: Any) -> Any:
    """A controller whose store has written a change only when it is told so."""
    kit = kit_with()
    kit.must_create("a")
    kit.hold_commits()
    return kit


def test_two_changes_at_once_are_both_made(slow_kit: Any) -> None:
    """The second is planned on what the first has left; else it would undo it."""
    answers: list[Any] = []
    for value in ("0:1", "1:1"):
        step = ConfigAlteration("leader.replication.throttled.replicas", APPEND, value)
        slow_kit.controller.incremental_alter_configs([(TOPIC, [step])], answers.append)
    slow_kit.commit_all()
    assert [result.error_code for (result,) in answers] == [ErrorCode.NONE] * 2
    settings = slow_kit.cache.image.topic_config("a")
    assert settings == {"leader.replication.throttled.replicas": "0:1,1:1"}


def test_two_topics_at_once_do_not_collide(slow_kit: Any) -> None:
    """`b.c` and `b_c` would be one in metrics, also when both are asked for at once."""
    answers: list[list[Any]] = [[], []]
    for name, on_done in zip(("b.c", "b_c"), answers, strict=True):
        slow_kit.controller.create_topics([CreatableTopic(name, 1, 1)], 1000, on_done.extend)
    slow_kit.commit_all()
    codes = [result.error_code for (result,) in answers]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION]


@pytest.mark.parametrize("name", ["b.c", "plain"])
def test_a_topic_asked_for_twice_at_once_is_made_once(slow_kit: Any, name: str) -> None:
    """Clients that start together create the topic that they share."""
    answers: list[list[Any]] = [[], []]
    for on_done in answers:
        slow_kit.controller.create_topics([CreatableTopic(name, 1, 1)], 1000, on_done.extend)
    slow_kit.commit_all()
    codes = [result.error_code for (result,) in answers]
    assert codes == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]


def test_a_change_that_raises_holds_up_no_other(kit: Any) -> None:
    """Else one mistake in a plan would be the end of all administration."""
    with pytest.raises(AttributeError):
        kit.controller.incremental_alter_configs([(TOPIC, [None])], lambda _: None)
    kit.must_create("a")


BAD = {"message.downconversion.enable": "true", "segment.bytes": "many", "retention.ms": "5"}


def test_what_another_version_has_stored_can_be_seen_and_mended(kit: Any) -> None:
    """Neither describing nor altering may be refused for a setting that nobody here knows."""
    kit.must_create("a")
    kit.store.alter_configs({TOPIC: BAD}, lambda _: None)
    assert _entry(kit, TOPIC, "segment.bytes").value == "many"
    assert _entry(kit, TOPIC, "retention.ms").value == "5"
    assert _incremental(kit, TOPIC, ("retention.ms", SET, "6")) is ErrorCode.INVALID_CONFIG
    assert not _incremental(kit, TOPIC, ("segment.bytes", SET, "1048576"))
    assert not _incremental(kit, TOPIC, ("message.downconversion.enable", DELETE, None))
    assert kit.cache.image.topic_config("a") == {"retention.ms": "5", "segment.bytes": "1048576"}


def test_a_list_grows_no_longer_than_a_field_of_text(kit: Any) -> None:
    """Else it is stored, and its topic can never be described again."""
    kit.must_create("a")
    name = "leader.replication.throttled.replicas"
    long = ",".join(f"{number}:1" for number in range(4_500))
    assert not _incremental(kit, TOPIC, (name, SET, long))
    more = ",".join(f"{number}:1" for number in range(4_500, 6_000))
    assert _incremental(kit, TOPIC, (name, APPEND, more)) is ErrorCode.INVALID_CONFIG
    assert kit.cache.image.topic_config("a") == {name: long}


def test_a_default_that_contradicts_a_topic_is_taken(kit: Any) -> None:
    """As in Kafka both are in force; only the topic cannot be altered until they agree again."""
    kit.must_create("a", max_compaction_lag_ms="1000")
    lag = "log.cleaner.min.compaction.lag.ms"
    assert not _incremental(kit, ALL_BROKERS, (lag, SET, "5000"))
    assert _entry(kit, TOPIC, "min.compaction.lag.ms").value == "5000"
    assert _incremental(kit, TOPIC, ("retention.ms", SET, "6")) is ErrorCode.INVALID_CONFIG
    assert not _incremental(kit, TOPIC, ("max.compaction.lag.ms", SET, "5000"))


def test_a_stored_setting_of_a_broker_that_is_not_used_is_told_once(
    kit: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Other settings are used all the same, and the log is not filled with every change."""
    kit.store.alter_configs(
        {ALL_BROKERS: {"max.connections": "5", "log.retention.ms": "x"}}, lambda _: None
    )
    assert kit.config.max_connections == 5
    kit.store.alter_configs({ALL_BROKERS: {"max.connections": "6"}}, lambda _: None)
    assert kit.config.max_connections == 6
    assert [each.getMessage() for each in caplog.records] == [
        "a setting changed at run time is not used: Invalid value x for configuration "
        "log.retention.ms: Not a number of type LONG"
    ]


@pytest.mark.parametrize(
    ("properties", "value", "source"),
    [
        ({}, None, ConfigSource.DEFAULT_CONFIG),
        (
            {"advertised.listeners": "PLAINTEXT://broker.example:9092"},
            "PLAINTEXT://broker.example:9092",
            ConfigSource.STATIC_BROKER_CONFIG,
        ),
    ],
)
def test_where_a_broker_can_be_reached_is_shown_as_it_was_set(
    kit_with: Any, properties: dict[str, str], value: str | None, source: ConfigSource
) -> None:
    """A setting that a broker's own properties make would be shown as nobody's."""
    entry = _entry(kit_with(properties), BROKER, "advertised.listeners")
    assert (entry.value, entry.source) == (value, source)
