"""A broker's metrics after traffic of real clients: counts that are right, and boards that fill."""

import asyncio
import json
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.deadlines import deadline_s

import odradek
from odradek import ManualClock
from odradek.server.errors import StartError
from odradek.server.monitoring.monitoring import SLICE_SECONDS, in_slices

LISTENER = {"metrics.listener": "http://127.0.0.1:0"}
BOARD = Path(__file__).resolve().parents[4] / "deploy" / "grafana" / "odradek.json"
TRAFFIC = "kafka.server:type=BrokerTopicMetrics,name="
REQUESTS = "kafka.network:type=RequestMetrics,name="


def scrape(broker, accept=""):
    request = urllib.request.Request(f"{broker.metrics_url}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=deadline_s(30)) as answer:
        return answer.read().decode()


def produce(broker, topic, count):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(count):
        producer.produce(topic, b"value %d" % number, partition=0)
    assert producer.flush(deadline_s(30)) == 0


def consume(broker, topic, count, group="readers"):
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    read = []
    while len(read) < count:
        read += [each for each in consumer.consume(count, 5) if each.error() is None]
    consumer.commit(offsets=[TopicPartition(topic, 0, count)], asynchronous=False)
    return consumer


@pytest.fixture(scope="module")
def busy():
    """A broker that has been written, read, and asked for what it has not."""
    with odradek.Broker(config={**LISTENER, "auto.create.topics.enable": False}) as broker:
        broker.create_topic("orders", 2)
        produce(broker, "orders", 10)
        consumer = consume(broker, "orders", 4)
        asking = Producer({"bootstrap.servers": broker.bootstrap_servers})
        assert (
            asking.list_topics("missing", timeout=deadline_s(5)).topics["missing"].error is not None
        )
        transactional = Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "payer"}
        )
        transactional.init_transactions(deadline_s(30))
        transactional.begin_transaction()
        transactional.produce("orders", b"paid", partition=1)
        transactional.commit_transaction(deadline_s(30))
        yield broker
        consumer.close()


def test_records_and_bytes_are_counted_by_topic_and_in_all(busy):
    """Fails when a board shows other traffic than there was."""
    metrics = busy.metrics()
    assert metrics[f"{TRAFFIC}MessagesInPerSec,topic=orders"]["Count"] >= 11
    assert metrics[f"{TRAFFIC}BytesInPerSec,topic=orders"]["Count"] > 11 * len(b"value 0")
    assert metrics[f"{TRAFFIC}BytesOutPerSec,topic=orders"]["Count"] > 0
    whole = metrics[f"{TRAFFIC}MessagesInPerSec"]["Count"]
    of_topics = sum(
        value["Count"]
        for name, value in metrics.items()
        if name.startswith(f"{TRAFFIC}MessagesInPerSec,topic=")
    )
    assert whole == of_topics


def test_requests_are_counted_by_api_version_and_error(busy):
    """Fails when a request is counted twice, or not at all, or an error is lost."""
    metrics = busy.metrics()
    total = metrics[f"{REQUESTS}TotalTimeMs,request=Fetch"]["Count"]
    assert total == metrics[f"{REQUESTS}TotalTimeMs,request=FetchConsumer"]["Count"] > 0
    produced = [
        value["Count"]
        for name, value in metrics.items()
        if name.startswith(f"{REQUESTS}RequestsPerSec,request=Produce,")
    ]
    assert sum(produced) == metrics[f"{REQUESTS}LocalTimeMs,request=Produce"]["Count"] > 0
    name = f"{REQUESTS}ErrorsPerSec,request=Metadata,error=UNKNOWN_TOPIC_OR_PARTITION"
    assert metrics[name]["Count"] > 0


def test_what_is_there_is_shown(busy):
    """Fails when partitions, groups, sessions, software or the controller are not counted."""
    metrics = busy.metrics()
    assert metrics["kafka.controller:type=KafkaController,name=ActiveControllerCount"] == 1
    assert metrics["kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions"] == 0
    log = "kafka.log:type=Log,name=LogEndOffset,topic=orders,partition=0"
    assert metrics[log] == 10
    groups = "kafka.server:type=group-coordinator-metrics,protocol=classic"
    assert metrics[groups]["group-count"] == 1
    software = [name for name in metrics if "clientSoftwareName" in name]
    assert any("librdkafka" in name or "confluent" in name for name in software)


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
def test_prometheus_reads_all_of_it(busy, accept):
    """Fails when one series makes a scrape useless."""
    parser = pytest.importorskip("prometheus_client.parser")
    openmetrics = pytest.importorskip("prometheus_client.openmetrics.parser")
    text = scrape(busy, accept)
    read = openmetrics if accept else parser
    families = list(read.text_string_to_metric_families(text))
    series = [
        (sample.name, tuple(sorted(sample.labels.items())))
        for family in families
        for sample in family.samples
    ]
    assert len(series) == len(set(series)) > 500


def test_groups_are_told_of_as_kafka_exporter_does(busy):
    """Fails when boards made for kafka_exporter show no lag."""
    lines = scrape(busy).splitlines()
    tags = 'consumergroup="readers",partition="0",topic="orders"'
    assert f"kafka_consumergroup_current_offset{{{tags}}} 4" in lines
    assert f"kafka_consumergroup_lag{{{tags}}} 6" in lines
    assert 'kafka_consumergroup_members{consumergroup="readers"} 1' in lines
    assert 'kafka_topic_partition_current_offset{partition="0",topic="orders"} 10' in lines
    assert "kafka_brokers 1" in lines


def test_every_query_of_the_board_has_series(busy):
    """Fails when a panel of our own board would stay empty."""
    series = [
        (found[1], dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', found[2] or "")))
        for found in re.finditer(r"^([a-z_0-9]+)(\{.*\})? \S+$", scrape(busy), re.MULTILINE)
    ]
    queries = [
        target["expr"]
        for panel in json.loads(BOARD.read_text())["panels"]
        for target in panel.get("targets", ())
    ]
    assert len(queries) > 30
    for query in queries:
        selected = re.findall(r"\b((?:kafka|odradek)_[a-z_0-9]+)(?:\{([^}]*)\})?", query)
        assert selected, query
        for name, matchers in selected:
            wanted = re.findall(r'(\w+)(=~|!=|=)"([^"]*)"', matchers)
            assert any(
                name == found and all(matches(labels, *each) for each in wanted)
                for found, labels in series
            ), query


def matches(labels, name, how, value):
    if name == "instance":  # which Prometheus adds
        return True
    has = labels.get(name, "")
    return has != value if how == "!=" else has == value


def test_the_lag_in_time_is_that_of_the_next_record():
    """Fails when a group that stands still seems to keep up."""
    clock = ManualClock()
    with odradek.Broker(config=LISTENER, clock=clock) as broker:
        broker.create_topic("orders")
        broker.produce("orders", "first")
        clock.advance(90_000)
        broker.produce("orders", "second")
        broker.reset("billing", to="earliest", topics=["orders"])
        name = "odradek_consumergroup_lag_seconds_max"
        assert f'{name}{{consumergroup="billing"}} 90.0' in scrape(broker)
        clock.advance(5_000)
        assert f'{name}{{consumergroup="billing"}} 95.0' in scrape(broker)
        broker.reset("billing", to={("orders", 0): 1})
        assert f'{name}{{consumergroup="billing"}} 5.0' in scrape(broker)
        broker.reset("billing", to="latest")
        assert f'{name}{{consumergroup="billing"}} 0.0' in scrape(broker)


def test_too_many_partitions_have_no_series_of_their_own():
    """Fails when ten thousand partitions make a scrape of a hundred thousand lines."""
    with odradek.Broker(config={**LISTENER, "metrics.max.partitions": 2}) as broker:
        broker.create_topic("small", 2)
        assert 'kafka_log_log_size{topic="small"' in scrape(broker)
        broker.create_topic("large", 1)
        text = scrape(broker)
        assert "kafka_log_log_size" not in text
        assert "kafka_topic_partition_current_offset" not in text
        assert "odradek_metrics_partitions_left_out 3" in text
        assert "kafka_server_replicamanager_partitioncount 3" in text


def test_a_topic_that_is_gone_is_counted_no_more():
    """Fails when topics that come and go fill the memory."""
    with odradek.Broker() as broker:
        broker.create_topic("short-lived")
        broker.produce("short-lived", "x")
        assert f"{TRAFFIC}MessagesInPerSec,topic=short-lived" in broker.metrics()
        broker.delete_topic("short-lived")
        assert f"{TRAFFIC}MessagesInPerSec,topic=short-lived" not in broker.metrics()
        assert broker.metrics()[f"{TRAFFIC}MessagesInPerSec"]["Count"] == 1


def test_a_broker_without_a_listener_serves_nothing():
    """Fails when who asks for nothing has a port open."""
    with odradek.Broker() as broker:
        broker.metrics()
        assert broker.metrics_url == ""


@pytest.mark.parametrize("address", ["9404", "https://127.0.0.1:1", "http://[::1", "http://h:x/"])
def test_an_address_that_is_none_keeps_the_broker_from_starting(address):
    """Fails when a mistyped address is found out by the empty board."""
    broker = odradek.Broker(config={"metrics.listener": address})
    with pytest.raises(StartError, match=r"metrics\.listener is http://HOST:PORT"):
        broker.start()


def test_an_address_that_is_taken_keeps_the_broker_from_starting(busy):
    """Fails when two brokers of a machine are one on the board."""
    broker = odradek.Broker(config={"metrics.listener": busy.metrics_url})
    told = f"Cannot listen on {busy.metrics_url}: Address already in use; give another port, or "
    with pytest.raises(StartError, match=f"^{re.escape(told)}"):
        broker.start()


def test_a_restarted_broker_is_scraped_at_once():
    """Fails when a restart leaves the listener of the life before."""
    with odradek.Broker(config=LISTENER) as broker:
        before = broker.metrics_url
        broker.restart()
        assert "kafka_server_kafkaserver_brokerstate 3" in scrape(broker)
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(f"{before}/metrics", timeout=deadline_s(5))


def test_others_have_the_loop_between_slices():
    """Fails when a large scrape holds up the requests."""
    turns = []

    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(turns.append, "another")

        def step(number: int) -> int:
            until = loop.time() + SLICE_SECONDS
            while loop.time() < until:
                pass
            turns.append(number)
            return number

        assert await in_slices(map(step, range(3))) == [0, 1, 2]

    asyncio.run(work())
    assert turns[:2] == [0, "another"]
