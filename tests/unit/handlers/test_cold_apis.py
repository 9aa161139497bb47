"""The administrative APIs from request to response, over a real controller and store."""

from types import SimpleNamespace

import pytest
from kio.schema.errors import ErrorCode

from odradek.handlers.table import API_TABLE
from odradek.model import TopicPartition

API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, INIT_PRODUCER_ID = 18, 19, 20, 22
DESCRIBE_CONFIGS, ALTER_CONFIGS, DESCRIBE_LOG_DIRS, CREATE_PARTITIONS = 32, 33, 35, 37
ELECT_LEADERS, INCREMENTAL_ALTER_CONFIGS = 43, 44
UPDATE_FEATURES = 57
TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8


# ApiVersions


@pytest.mark.parametrize("version", range(5))
def test_api_versions_is_the_table(cluster, version):
    """Clients would send what is not served, or not send what is."""
    software = {"client_software_name": "librdkafka", "client_software_version": "2.11.0-rc1"}
    answer = cluster.ask(API_VERSIONS, version, **software)
    assert answer.error_code is ErrorCode.none
    told = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    shown = [api for api in API_TABLE.values() if not api.is_hidden]
    assert told == {api.key: (api.min_version, api.max_version) for api in shown}


@pytest.mark.parametrize("version", [5, 99, -1])
def test_api_versions_falls_back_to_version_0(cluster, version):
    """A client newer than the broker could not find out which version to use."""
    exchange = cluster.exchange(API_VERSIONS, version, b"")
    cluster.dispatcher().handle_frame(exchange)
    answer = cluster.answer(exchange, API_VERSIONS, 0)
    assert answer.error_code is ErrorCode.unsupported_version
    row = answer.api_keys[0]
    assert (row.api_key, row.min_version, row.max_version) == (API_VERSIONS, 0, 4)


@pytest.mark.parametrize("name", ["", "-kafka", "kafka-", "ka fka", "kafka\n"])
def test_api_versions_refuses_odd_software(cluster, name):
    """Text from outside would become part of metric names."""
    for software in ((name, "1.0"), ("kafka", name)):
        answer = cluster.ask(
            API_VERSIONS, 3, client_software_name=software[0], client_software_version=software[1]
        )
        assert answer.error_code is ErrorCode.invalid_request


# Features


def finalized(cluster):
    answer = cluster.ask(API_VERSIONS, 4, client_software_name="a", client_software_version="1")
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    return levels, answer.finalized_features_epoch


def update(cluster, version, *updates, **fields):
    asked = [
        {"feature": name, "max_version_level": level, "upgrade_type": kind}
        for name, level, kind in updates
    ]
    return cluster.ask(UPDATE_FEATURES, version, feature_updates=asked, timeout_ms=1, **fields)


UPGRADE, SAFE, UNSAFE = 1, 2, 3


@pytest.mark.parametrize("version", [1, 2])
def test_features_are_lowered_and_raised(cluster, version):
    """Clients look at the epoch first: at an equal one they keep the levels that they know."""
    before, epoch = finalized(cluster)
    lower = (("group.version", 0, SAFE), ("transaction.version", 1, UNSAFE))
    assert update(cluster, version, *lower, validate_only=True).error_code is ErrorCode.none
    assert finalized(cluster) == (before, epoch)
    assert update(cluster, version, *lower).error_code is ErrorCode.none
    lowered = {"metadata.version": 30, "share.version": 1, "transaction.version": 1}
    assert finalized(cluster) == (lowered, epoch + 1)
    higher = (("group.version", 1, UPGRADE), ("transaction.version", 2, UPGRADE))
    assert update(cluster, version, *higher).error_code is ErrorCode.none
    assert finalized(cluster) == (before, epoch + 2)


@pytest.mark.parametrize(
    "refused",
    [
        ("group.version", 0, UPGRADE),
        ("group.version", 2, UPGRADE),
        ("transaction.version", -1, SAFE),
        ("metadata.version", 29, SAFE),
        ("metadata.version", 29, UNSAFE),
        ("no.such.feature", 1, UPGRADE),
        ("group.version", 0, 0),
        ("group.version", 0, 9),
    ],
)
def test_one_feature_that_cannot_be_changed_keeps_the_others_from_it(cluster, refused):
    before = finalized(cluster)
    answer = update(cluster, 2, ("transaction.version", 0, SAFE), refused)
    assert answer.error_code is ErrorCode.invalid_update_version
    assert refused[0] in answer.error_message
    assert finalized(cluster) == before


def test_a_feature_is_not_raised_by_a_downgrade(cluster):
    update(cluster, 2, ("group.version", 0, SAFE))
    for kind in (SAFE, UNSAFE):
        answer = update(cluster, 2, ("group.version", 1, kind))
        assert answer.error_code is ErrorCode.invalid_update_version


# Topics


@pytest.mark.parametrize("version", range(2, 8))
def test_create_topics(cluster, version):
    """A topic would be created otherwise than asked for."""
    wish = {
        "name": "orders",
        "num_partitions": 3,
        "replication_factor": 1,
        "configs": [{"name": "retention.ms", "value": "60000"}],
    }
    answer = cluster.ask(CREATE_TOPICS, version, topics=[wish], timeout_ms=1000)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.none]
    topic = cluster.cache.image.topic("orders")
    assert len(topic.partitions) == 3
    assert cluster.cache.image.topic_config("orders") == {"retention.ms": "60000"}
    if version >= 5:
        assert answer.topics[0].num_partitions == 3
        assert answer.topics[0].replication_factor == 1
        values = {config.name: config.value for config in answer.topics[0].configs}
        assert values["retention.ms"] == "60000"
    if version >= 7:
        assert answer.topics[0].topic_id == topic.topic_id


def test_create_topics_by_assignment(cluster):
    """A manual assignment would be ignored."""
    wish = {
        "name": "orders",
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": index, "broker_ids": [1]} for index in (0, 1)],
    }
    answer = cluster.ask(CREATE_TOPICS, 7, topics=[wish])
    assert answer.topics[0].num_partitions == 2


def test_create_topics_validate_only(cluster):
    """A trial would create a topic."""
    wish = {"name": "orders", "num_partitions": 1, "replication_factor": 1}
    answer = cluster.ask(CREATE_TOPICS, 7, topics=[wish], validate_only=True)
    assert answer.topics[0].error_code is ErrorCode.none
    assert cluster.cache.image.topic("orders") is None


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"name": "a b"}, ErrorCode.invalid_topic_exception),
        ({"num_partitions": 0}, ErrorCode.invalid_partitions),
        ({"replication_factor": 2}, ErrorCode.invalid_replication_factor),
        ({"configs": [{"name": "no.such", "value": "1"}]}, ErrorCode.invalid_config),
        ({"configs": [{"name": "retention.ms", "value": "x"}]}, ErrorCode.invalid_config),
        ({"name": "taken"}, ErrorCode.topic_already_exists),
    ],
)
def test_create_topics_refuses_one_and_creates_the_others(cluster, change, expected):
    """One bad topic would spoil a request, or pass."""
    cluster.create("taken")
    good = {"name": "good", "num_partitions": 1, "replication_factor": 1}
    answer = cluster.ask(CREATE_TOPICS, 7, topics=[{**good, "name": "bad", **change}, good])
    assert [topic.error_code for topic in answer.topics] == [expected, ErrorCode.none]
    assert answer.topics[0].error_message
    assert answer.topics[0].configs == ()


@pytest.mark.parametrize("version", range(1, 7))
def test_delete_topics(cluster, version):
    """A topic would stay, or an unknown one look deleted."""
    topic_id = cluster.create("orders").topic_id
    if version < 6:
        fields = {"topic_names": ["orders", "nothing"]}
    else:
        fields = {"topics": [{"name": None, "topic_id": topic_id}, {"name": "nothing"}]}
    answer = cluster.ask(DELETE_TOPICS, version, timeout_ms=1000, **fields)
    assert [result.name for result in answer.responses] == ["orders", "nothing"]
    assert [result.error_code for result in answer.responses] == [
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
    ]
    assert cluster.cache.image.topic("orders") is None


def test_delete_topics_by_name_and_id_at_once(cluster):
    """Two answers to the question which topic is meant would be guessed between."""
    topic_id = cluster.create("orders").topic_id
    entry = {"name": "orders", "topic_id": topic_id}
    answer = cluster.ask(DELETE_TOPICS, 6, topics=[entry])
    assert answer.responses[0].error_code is ErrorCode.invalid_request
    assert cluster.cache.image.topic("orders") is not None


@pytest.mark.parametrize(
    ("version", "expected"),
    [(2, ErrorCode.invalid_request), (3, ErrorCode.topic_deletion_disabled)],
)
def test_delete_topics_switched_off(cluster_with, version, expected):
    """An old client would be sent an error code that it does not know."""
    cluster = cluster_with({"delete.topic.enable": "false"})
    cluster.create("orders")
    answer = cluster.ask(DELETE_TOPICS, version, topic_names=["orders"])
    assert answer.responses[0].error_code is expected


@pytest.mark.parametrize("version", range(4))
def test_create_partitions(cluster, version):
    """A topic would not grow, or shrink."""
    cluster.create("orders", 2)
    topics = [{"name": "orders", "count": 4, "assignments": None}]
    answer = cluster.ask(CREATE_PARTITIONS, version, topics=topics, timeout_ms=1000)
    assert answer.results[0].error_code is ErrorCode.none
    assert len(cluster.cache.image.topic("orders").partitions) == 4
    topics = [{"name": "orders", "count": 3, "assignments": [{"broker_ids": [1]}]}]
    answer = cluster.ask(CREATE_PARTITIONS, version, topics=topics)
    assert answer.results[0].error_code is ErrorCode.invalid_partitions


@pytest.mark.parametrize("version", range(3))
def test_elect_leaders(cluster, version):
    """A partition that is led as it should be would look like a failed election."""
    cluster.create("orders")
    asked = [{"topic": "orders", "partitions": [0]}, {"topic": "nothing", "partitions": [0]}]
    answer = cluster.ask(ELECT_LEADERS, version, topic_partitions=asked, timeout_ms=1000)
    results = {
        topic.topic: topic.partition_result[0].error_code
        for topic in answer.replica_election_results
    }
    assert results == {
        "nothing": ErrorCode.unknown_topic_or_partition,
        "orders": ErrorCode.election_not_needed,
    }


def test_elect_leaders_of_everything_tells_what_was_needed(cluster):
    """A tool would list every partition of the cluster as an error."""
    cluster.create("orders")
    answer = cluster.ask(ELECT_LEADERS, 2, election_type=0, topic_partitions=None)
    assert [(each.topic, each.partition_result) for each in answer.replica_election_results] == [
        ("orders", ())
    ]


def test_elect_leaders_of_an_unknown_type(cluster):
    """An election of some other kind would be held."""
    asked = [{"topic": "orders", "partitions": [0]}]
    answer = cluster.ask(ELECT_LEADERS, 2, election_type=7, topic_partitions=asked)
    assert answer.error_code is ErrorCode.invalid_request


# Settings


def described(cluster, version=4, kind=TOPIC, name="orders", keys=None, **fields):
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    return cluster.ask(DESCRIBE_CONFIGS, version, resources=[resource], **fields).results[0]


@pytest.mark.parametrize("version", range(1, 5))
def test_describe_topic_configs(cluster, version):
    """Tools would show wrong settings, or not where they come from."""
    cluster.create("orders", **{"retention.ms": "60000"})
    result = described(cluster, version, include_synonyms=True)
    entries = {entry.name: entry for entry in result.configs}
    retention = entries["retention.ms"]
    assert (retention.value, retention.config_source) == ("60000", 1)
    assert retention.synonyms[0].source == 1
    assert entries["segment.bytes"].config_source == 5
    assert len(entries) > 25
    assert result.resource_name == "orders"


def test_describe_some_configs(cluster):
    """A client that asks for one setting would be sent all."""
    cluster.create("orders")
    result = described(cluster, keys=["cleanup.policy"], include_documentation=True)
    assert [(entry.name, entry.value) for entry in result.configs] == [("cleanup.policy", "delete")]
    assert result.configs[0].documentation
    assert result.configs[0].synonyms == ()


def test_describe_broker_configs(cluster):
    """A broker would show nothing of itself, or something of another."""
    entries = {entry.name: entry for entry in described(cluster, kind=BROKER, name="1").configs}
    assert entries["broker.id"].value == "1"
    assert entries["broker.id"].read_only
    assert described(cluster, kind=BROKER, name="7").error_code is ErrorCode.invalid_request


@pytest.mark.parametrize("kind", [0, 1, 99, -5])
def test_describe_configs_of_what_has_none(cluster, kind):
    """A kind of resource that is not known would be an exception."""
    result = described(cluster, kind=kind, name="1")
    assert result.error_code is ErrorCode.invalid_request
    assert result.resource_type == kind


def test_describe_configs_of_an_unknown_topic(cluster):
    """Defaults would be shown for a topic that is not there."""
    assert described(cluster).error_code is ErrorCode.unknown_topic_or_partition


def resource(configs, name="orders"):
    return {"resource_type": TOPIC, "resource_name": name, "configs": configs}


@pytest.mark.parametrize("version", range(3))
def test_alter_configs_replaces(cluster, version):
    """A setting that is left out would stay."""
    cluster.create("orders", **{"retention.ms": "60000"})
    change = resource([{"name": "segment.bytes", "value": "1048576"}])
    unknown = resource([], "nothing")
    answer = cluster.ask(ALTER_CONFIGS, version, resources=[change, unknown])
    assert [result.error_code for result in answer.responses] == [
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
    ]
    assert answer.responses[0].resource_name == "orders"
    assert cluster.cache.image.topic_config("orders") == {"segment.bytes": "1048576"}


@pytest.mark.parametrize("version", range(2))
def test_incremental_alter_configs(cluster, version):
    """A setting that is not named would go, or one that is named stay."""
    cluster.create("orders", **{"retention.ms": "60000", "cleanup.policy": "delete"})
    change = resource(
        [
            {"name": "retention.ms", "config_operation": 1, "value": None},
            {"name": "segment.bytes", "config_operation": 0, "value": "1048576"},
            {"name": "cleanup.policy", "config_operation": 2, "value": "compact"},
        ]
    )
    answer = cluster.ask(INCREMENTAL_ALTER_CONFIGS, version, resources=[change])
    assert answer.responses[0].error_code is ErrorCode.none
    assert cluster.cache.image.topic_config("orders") == {
        "segment.bytes": "1048576",
        "cleanup.policy": "delete,compact",
    }


def test_alter_configs_validate_only(cluster):
    """A trial would change settings."""
    cluster.create("orders")
    change = resource([{"name": "segment.bytes", "value": "1048576"}])
    answer = cluster.ask(ALTER_CONFIGS, 2, resources=[change], validate_only=True)
    assert answer.responses[0].error_code is ErrorCode.none
    assert cluster.cache.image.topic_config("orders") == {}


# Producer ids


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id(cluster, version):
    """Two idempotent producers would share an id, and lose records."""
    answers = [cluster.ask(INIT_PRODUCER_ID, version, transactional_id=None) for _ in range(3)]
    assert len({answer.producer_id for answer in answers}) == 3
    assert {answer.producer_epoch for answer in answers} == {0}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"transactional_id": None, "producer_id": 5}, ErrorCode.invalid_request),
        ({"transactional_id": None, "producer_epoch": 5}, ErrorCode.invalid_request),
    ],
)
def test_init_producer_id_refuses(cluster, fields, expected):
    """A producer that contradicts itself would get an id."""
    answer = cluster.ask(INIT_PRODUCER_ID, 4, **fields)
    assert answer.error_code is expected
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


# Data directories


class Volume:
    def __init__(self, fails=False):
        self.fails = fails

    def space(self, path):
        if self.fails:
            raise OSError(5, "Input/output error", path)
        return 1000, 400


def directory(path, failure=None, fails=False):
    return SimpleNamespace(path=path, failure=failure, file_system=Volume(fails))


@pytest.fixture
def with_logs(cluster):
    good, failed, dying = (
        directory("/data/a"),
        directory("/data/b", failure=OSError()),
        directory("/data/c", fails=True),
    )

    def log(topic, partition, home):
        return SimpleNamespace(
            topic_partition=TopicPartition(topic, partition),
            log_directory=home,
            segments=SimpleNamespace(size_bytes=100 + partition),
            high_watermark=7,
            log_end_offset=7,
        )

    logs = [log("orders", 1, good), log("orders", 0, good), log("payments", 0, failed)]
    futures = SimpleNamespace(all=lambda: [log("payments", 3, good)])
    manager = SimpleNamespace(directories=[good, failed, dying], logs=lambda: logs, futures=futures)
    moves = SimpleNamespace(offset_lag=lambda future: 4)
    cluster.replace(log_manager=manager, replicas=SimpleNamespace(log_dir_moves=moves))
    return cluster


@pytest.mark.parametrize("version", range(1, 5))
def test_describe_log_dirs(with_logs, version):
    """Consoles would show wrong topic sizes, or hide a failed disk."""
    results = with_logs.ask(DESCRIBE_LOG_DIRS, version, topics=None).results
    assert [result.log_dir for result in results] == ["/data/a", "/data/b", "/data/c"]
    storage_error = ErrorCode.kafka_storage_error
    assert [result.error_code for result in results] == [
        ErrorCode.none,
        storage_error,
        storage_error,
    ]
    orders, payments = results[0].topics
    assert (orders.name, payments.name) == ("orders", "payments")
    (future,) = payments.partitions
    assert (future.partition_index, future.is_future_key, future.offset_lag) == (3, True, 4)
    assert not any(each.is_future_key or each.offset_lag for each in orders.partitions)
    sizes = [(each.partition_index, each.partition_size) for each in orders.partitions]
    assert sizes == [(0, 100), (1, 101)]
    assert results[1].topics == ()
    if version >= 4:
        assert (results[0].total_bytes, results[0].usable_bytes) == (1000, 400)
        assert (results[1].total_bytes, results[1].usable_bytes) == (-1, -1)


def test_describe_log_dirs_of_some_partitions(with_logs):
    """A question about one topic would be answered with all."""
    topics = [{"topic": "orders", "partitions": [1]}]
    results = with_logs.ask(DESCRIBE_LOG_DIRS, 4, topics=topics).results
    assert [each.partition_index for each in results[0].topics[0].partitions] == [1]
