"""Metadata, DescribeTopicPartitions and DescribeCluster: what a client sees of the cluster."""

import dataclasses
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from odradek.handlers.table import UNTOLD_TIMEOUT_MS, ZOOKEEPER_API_TABLE
from odradek.metadata.image import NO_CONTROLLER, MetadataDelta
from odradek.protocol import messages

METADATA, DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS = 3, 60, 75
VERSIONS = range(14)


def names(answer):
    return [topic.name for topic in answer.topics]


def errors(answer):
    return [topic.error_code for topic in answer.topics]


@pytest.mark.parametrize("version", VERSIONS)
def test_all_topics(cluster, version):
    """A client that asks for everything would miss topics, or not find their leaders."""
    cluster.create("orders", 3)
    cluster.create("payments")
    answer = cluster.ask(METADATA, version, topics=[] if version == 0 else None)
    assert sorted(names(answer)) == ["orders", "payments"]
    orders = next(topic for topic in answer.topics if topic.name == "orders")
    assert [partition.partition_index for partition in orders.partitions] == [0, 1, 2]
    for partition in orders.partitions:
        assert partition.error_code is ErrorCode.none
        assert partition.leader_id == 1
        assert partition.replica_nodes == (1,)
        assert partition.isr_nodes == (1,)
    broker = answer.brokers[0]
    assert (broker.node_id, broker.host, broker.port) == (1, "127.0.0.1", 9092)


def test_identity(cluster):
    """Tools would show no cluster id or controller."""
    answer = cluster.ask(METADATA, 13, topics=[])
    assert answer.cluster_id == cluster.cache.image.cluster_id
    assert answer.controller_id == 1


def test_while_there_is_no_controller_clients_are_told_of_the_last_one(cluster):
    """librdkafka is told of none, asks nobody any more and creates no topic for a whole minute."""
    before = cluster.cache.image
    deposed = dataclasses.replace(before, controller_id=NO_CONTROLLER)
    cluster.cache.publish(MetadataDelta(before, deposed))
    assert cluster.ask(METADATA, 13, topics=[]).controller_id == 1
    assert cluster.ask(DESCRIBE_CLUSTER, 0).controller_id == 1
    succeeded = dataclasses.replace(deposed, controller_id=2)
    cluster.cache.publish(MetadataDelta(deposed, succeeded))
    assert cluster.ask(METADATA, 13, topics=[]).controller_id == 2
    assert cluster.ask(DESCRIBE_CLUSTER, 0).controller_id == 2


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_no_topics(cluster, version):
    """A client that only wants the brokers would be sent every topic."""
    cluster.create("orders")
    answer = cluster.ask(METADATA, version, topics=[])
    assert answer.topics == ()
    assert len(answer.brokers) == 1


def ask_untold(cluster, api_key, version, **fields):
    """Asks a broker that has just come to a ZooKeeper cluster and was told nothing yet."""
    cluster.cache.is_told = False
    cluster.replace(apis=ZOOKEEPER_API_TABLE)
    exchange = cluster.exchange(api_key, version, messages.encode_request(api_key, version, fields))
    cluster.dispatcher().handle_frame(exchange)
    assert exchange.sent is None
    return exchange


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_that_was_told_nothing_yet_waits_for_its_controller(cluster, version):
    """Clients would take topics for gone, or make them anew, since a broker has just started."""
    exchange = ask_untold(cluster, METADATA, version, topics=[{"name": "orders"}])
    cluster.create("orders", 3)
    assert exchange.sent is None
    cluster.cache.tell()
    answer = cluster.answer(exchange, METADATA, version)
    assert [len(topic.partitions) for topic in answer.topics] == [3]
    assert len(answer.brokers) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_that_waits_in_vain_is_passed_over(cluster, version):
    """A client would hang on a broker that no controller speaks to, or create topics that exist."""
    exchange = ask_untold(cluster, METADATA, version, topics=[{"name": "orders"}])
    cluster.timer.advance_clock(UNTOLD_TIMEOUT_MS - 1)
    assert exchange.sent is None
    cluster.timer.advance_clock(1)
    answer = cluster.answer(exchange, METADATA, version)
    assert errors(answer) == [ErrorCode.leader_not_available]
    assert answer.brokers == ()
    assert "orders" not in cluster.cache.image.topics


@pytest.mark.parametrize("api_key", [DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS])
def test_descriptions_wait_for_the_controller_too(cluster, api_key):
    """A tool would print that there are no topics, or no controller."""
    exchange = ask_untold(cluster, api_key, 0)
    cluster.cache.tell()
    assert cluster.answer(exchange, api_key, 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_missing_topic_is_created_and_answered(cluster, version):
    """A producer's first record would wait for a second round of metadata."""
    answer = cluster.ask(METADATA, version, topics=[{"name": "orders"}])
    assert errors(answer) == [ErrorCode.none]
    assert len(answer.topics[0].partitions) == 1
    assert answer.topics[0].partitions[0].leader_id == 1


def test_the_client_can_forbid_creation(cluster):
    """A consumer with a typo would create a topic."""
    answer = cluster.ask(METADATA, 4, topics=[{"name": "orders"}], allow_auto_topic_creation=False)
    assert errors(answer) == [ErrorCode.unknown_topic_or_partition]
    assert cluster.cache.image.topic("orders") is None


def test_the_broker_can_forbid_creation(cluster_with):
    """`auto.create.topics.enable=false` would be ignored."""
    cluster = cluster_with({"auto.create.topics.enable": "false"})
    answer = cluster.ask(METADATA, 12, topics=[{"name": "orders"}])
    assert errors(answer) == [ErrorCode.unknown_topic_or_partition]


@pytest.mark.parametrize("creation", [True, False])
@pytest.mark.parametrize("name", ["", ".", "..", "or ders", "x" * 250, "naïve"])
def test_an_illegal_name(cluster, name, creation):
    """A client would ask again and again for a topic that can never be."""
    answer = cluster.ask(METADATA, 9, topics=[{"name": name}], allow_auto_topic_creation=creation)
    assert errors(answer) == [ErrorCode.invalid_topic_exception]


def test_a_topic_is_answered_once(cluster):
    """A name that is asked for twice would be created or answered twice."""
    answer = cluster.ask(METADATA, 9, topics=[{"name": "orders"}, {"name": "orders"}])
    assert names(answer) == ["orders"]


def test_by_id(cluster):
    """A client that knows a topic by its id would not find it."""
    topic_id = cluster.create("orders").topic_id
    unknown = UUID(int=99)
    answer = cluster.ask(
        METADATA, 12, topics=[{"topic_id": topic_id, "name": None}, {"topic_id": unknown}]
    )
    assert names(answer) == ["orders", None]
    assert errors(answer) == [ErrorCode.none, ErrorCode.unknown_topic_id]
    assert answer.topics[1].topic_id == unknown


def test_an_unknown_id_has_an_empty_name_where_null_is_not_allowed(cluster):
    """The answer could not be written."""
    answer = cluster.ask(METADATA, 10, topics=[{"topic_id": UUID(int=99), "name": ""}])
    assert names(answer) == [""]


def test_the_end_points_are_those_of_the_listener(cluster):
    """A client from outside would be sent to an address inside."""
    cluster.register(1, ("PLAINTEXT", "127.0.0.1", 9092), ("OUTSIDE", "kafka.example", 19092))
    answer = cluster.ask(METADATA, 9, "OUTSIDE", topics=[])
    assert [(broker.host, broker.port) for broker in answer.brokers] == [("kafka.example", 19092)]


@pytest.mark.parametrize(
    ("version", "expected"),
    [(5, ErrorCode.leader_not_available), (6, ErrorCode.listener_not_found)],
)
def test_a_leader_without_the_listener(cluster, version, expected):
    """A client would be given a leader that it cannot look up."""
    cluster.create("orders")
    partition = cluster.ask(METADATA, version, "OUTSIDE", topics=None).topics[0].partitions[0]
    assert partition.error_code is expected
    assert partition.leader_id == -1
    assert partition.offline_replicas == (1,)


def test_a_partition_without_a_leader(cluster):
    """A client would send records to a broker that refuses them."""
    cluster.create("orders", 2)
    (topic,) = cluster.cache.image.topics.values()
    gone = topic.partitions[0]._replace(leader=-1, offline=(1,))
    cluster.cache.image = cluster.cache.image.with_topics([topic.with_partitions([gone])])
    partitions = cluster.ask(METADATA, 13, topics=None).topics[0].partitions
    assert partitions[0].error_code is ErrorCode.leader_not_available
    assert partitions[0].offline_replicas == (1,)
    assert partitions[1].error_code is ErrorCode.none


def test_internal_topics_are_marked(cluster):
    """Consumers of a pattern would subscribe to the broker's own topics."""
    cluster.create("__consumer_offsets")
    assert cluster.ask(METADATA, 1, topics=None).topics[0].is_internal


def test_describe_cluster(cluster):
    """Admin clients would find no brokers."""
    for version in range(3):
        answer = cluster.ask(DESCRIBE_CLUSTER, version, endpoint_type=1)
        assert answer.cluster_id == cluster.cache.image.cluster_id
        assert answer.controller_id == 1
        assert [broker.broker_id for broker in answer.brokers] == [1]


@pytest.mark.parametrize(
    ("endpoint_type", "expected"),
    [(2, ErrorCode.mismatched_endpoint_type), (7, ErrorCode.unsupported_endpoint_type)],
)
def test_describe_cluster_of_other_end_points(cluster, endpoint_type, expected):
    """A client that looks for controllers would take brokers for them."""
    answer = cluster.ask(DESCRIBE_CLUSTER, 1, endpoint_type=endpoint_type)
    assert answer.error_code is expected
    assert answer.brokers == ()


def describe(cluster, limit=2000, cursor=None, topics=()):
    return cluster.ask(
        DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=[{"name": name} for name in topics],
        response_partition_limit=limit,
        cursor=cursor,
    )


def test_describe_topic_partitions_in_pieces(cluster):
    """A tool that pages through topics would miss partitions or see them twice."""
    cluster.create("a", 2)
    cluster.create("b", 3)
    cluster.create("c", 1)
    seen, cursor, pages = [], None, 0
    while True:
        answer = describe(cluster, 2, cursor)
        pages += 1
        for topic in answer.topics:
            seen += [(topic.name, partition.partition_index) for partition in topic.partitions]
        if answer.next_cursor is None:
            break
        cursor = {
            "topic_name": answer.next_cursor.topic_name,
            "partition_index": answer.next_cursor.partition_index,
        }
    assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]
    assert pages == 3


def test_the_limit_ends_an_answer_between_topics(cluster):
    """A topic would be shown without its partitions."""
    cluster.create("a", 2)
    cluster.create("b", 1)
    answer = describe(cluster, 2)
    assert names(answer) == ["a"]
    assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ("b", 0)


def test_a_cursor_at_a_topic_that_is_gone(cluster):
    """Paging would begin anew when a topic is deleted meanwhile."""
    cluster.create("c")
    answer = describe(cluster, cursor={"topic_name": "b", "partition_index": 5})
    assert names(answer) == ["c"]
    assert [partition.partition_index for partition in answer.topics[0].partitions] == [0]


def test_describe_unknown_topics(cluster):
    """`kafka-topics --describe` of a topic that is not there would show nothing."""
    answer = describe(cluster, topics=["nothing", "no thing"])
    assert dict(zip(names(answer), errors(answer), strict=True)) == {
        "no thing": ErrorCode.invalid_topic_exception,
        "nothing": ErrorCode.unknown_topic_or_partition,
    }


def test_a_negative_cursor_is_refused(cluster):
    """Partitions would be counted from the end."""
    answer = describe(cluster, cursor={"topic_name": "a", "partition_index": -1}, topics=["a"])
    assert errors(answer) == [ErrorCode.invalid_request]
