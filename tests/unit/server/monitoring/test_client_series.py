"""The metrics that clients push, as a scrape and a test see them: of real clients, and of hostile
ones."""

import urllib.request
from uuid import UUID

import pytest
from confluent_kafka import Consumer, Producer
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open
from prometheus_client.parser import text_string_to_metric_families as read_text
from tests.deadlines import deadline_s
from tests.otlp import gauge, point, pushed, total

import odradek
from odradek.cli.everyday.monitoring.metrics import read_series
from odradek.client import ConfigChange, ConfigResource, ConfigResourceType
from odradek.client.sync import Admin
from odradek.clock import ManualClock
from odradek.handlers.telemetry.client_metrics import Client
from odradek.handlers.telemetry.pushed_metrics import PushedMetrics
from odradek.server.monitoring.client_series import add_client_series, client_samples
from odradek.server.monitoring.exposition import Exposition

RECEIVING = {"telemetry.receiver": "true", "metrics.listener": "http://127.0.0.1:0"}
LATENCY = "name=org.apache.kafka.producer.request.latency.max,client_id=shop,"
ASSIGNED = "name=org.apache.kafka.consumer.coordinator.assigned.partitions,client_id=desk,"


def shown(pushed_metrics, most=1000):
    """The series, by name and labels, as both of Prometheus's parsers read them."""
    out = Exposition(0)
    list(add_client_series(out, pushed_metrics, most))
    read = []
    for text, parse in (("".join(out.text()), read_text), ("".join(out.open_metrics()), read_open)):
        samples = [sample for family in parse(text) for sample in family.samples]
        series = [(each.name, frozenset(each.labels.items())) for each in samples]
        assert len(series) == len(set(series))
        read.append({key: each.value for key, each in zip(series, samples, strict=True)})
    assert read[0] == read[1]
    return read[0]


def receiver(*metrics, clients=1, client_id="shop", resource=None):
    kept = PushedMetrics(ManualClock())
    for number in range(clients):
        data = kept.read(pushed(*metrics, resource=resource))
        client = Client(client_id, "lib", "1", "192.0.2.7", "40000")
        kept.take(UUID(int=2 + number), client, data, 1000, is_last=False)
    return kept


def test_librdkafka_pushes_for_real():
    """Fails when clients do not find the receiver, or what they push is not understood."""
    with odradek.Broker(config=RECEIVING) as broker:
        broker.create_topic("orders", 2)
        resource = ConfigResource(ConfigResourceType.CLIENT_METRICS, "all")
        changes = [ConfigChange("metrics", "*"), ConfigChange("interval.ms", "100")]
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            assert admin.alter_configs({resource: changes}) == {resource: None}
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        producer = Producer({**servers, "client.id": "shop"})
        consumer = Consumer({**servers, "client.id": "desk", "group.id": "readers"})
        consumer.subscribe(["orders"])
        found = {}
        # A latency of less than a millisecond is 0 to librdkafka.
        while not (LATENCY in found and found.get(ASSIGNED) == 2):
            producer.produce("orders", b"record")
            producer.poll(0.01)
            consumer.poll(0.01)
            for bean, value in broker.metrics().items():
                found |= {key: value for key in (LATENCY, ASSIGNED) if key in bean}
        url = f"{broker.metrics_url}/metrics"
        with urllib.request.urlopen(url, timeout=deadline_s(30)) as answer:
            text = answer.read().decode()
        samples = [sample for family in read_text(text) for sample in family.samples]
        by_name = {sample.name: sample.labels for sample in samples}
        labels = by_name["odradek_client_consumer_coordinator_assigned_partitions"]
        assert labels.keys() == {"client_id", "client_instance_id", "group_id"}
        assert (labels["client_id"], labels["group_id"]) == ("desk", "readers")
        assert "node_id" in by_name["odradek_client_producer_node_request_latency_avg"]
        printed, _ = read_series(text, "odradek_client_producer")
        assert any('client_id="shop"' in series for series in printed)
        consumer.close()
        assert producer.flush(deadline_s(30)) == 0


def test_without_a_receiver_clients_are_not_asked():
    """Fails when every client of a broker with Kafka's defaults pushes."""
    with odradek.Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("orders", b"record")
        assert producer.flush(deadline_s(30)) == 0
        assert [name for name in broker.metrics() if "Telemetry" in name] == []
        assert [name for name in broker.metrics() if name.startswith("odradek.client")] == []


def test_kafkas_names_become_prometheuss():
    """Fails when a board has to know what each client calls things."""
    kept = receiver(
        gauge("org.apache.kafka.consumer.fetch.manager.records-lag", point(3, {"partition": 1})),
        total("org.apache.kafka.consumer.sent.total", point(4)),
        resource={"group_id": "g"},
    )
    who = {
        ("client_id", "shop"),
        ("client_instance_id", "AAAAAAAAAAAAAAAAAAAAAg"),
        ("group_id", "g"),
    }
    lag = "odradek_client_consumer_fetch_manager_records_lag"
    assert (
        shown(kept).items()
        >= {
            (lag, frozenset({*who, ("partition", "1")})): 3.0,
            ("odradek_client_consumer_sent_total", frozenset(who)): 4.0,
            ("odradek_telemetry_clients", frozenset()): 1.0,
        }.items()
    )
    assert [sample.bean for sample in client_samples(kept)][1] == (
        "odradek.client:type=client-metrics,name=org.apache.kafka.consumer.sent.total,"
        "client_id=shop,client_instance_id=AAAAAAAAAAAAAAAAAAAAAg,group_id=g"
    )


HOSTILE = (
    gauge("a.b", point(1)),
    gauge("a_b", point(2)),
    total("a.b.total", point(3)),
    gauge("a.b.bucket", point(3, {"le": "1"})),
    gauge("a.b.created", point(3)),
    gauge("a.b.info", point(3)),
    gauge("1", point(4, {"1": "x", "": "y", "__name__": "z", "client_id": "other"})),
    gauge("...", point(5, {"a.b": "x", "a-b": "y"})),
    gauge('x"} 1\n# EOF\n', point(6, {'k"': 'v"} 1\n# EOF\n\\'})),
    gauge("telemetry.clients", point(7)),
    gauge("ä", point(8, {"ö": "ü"})),
)


@pytest.mark.parametrize("client_id", ["shop", '"} 1\n', "ü\\"])
def test_no_client_can_spoil_a_scrape(client_id):
    """Fails when one client's words make Prometheus refuse what all the others have."""
    series = shown(receiver(*HOSTILE, client_id=client_id, clients=2))
    assert ("odradek_telemetry_clients", frozenset()) in series
    assert len([name for name, _ in series if name == "odradek_client_a_b"]) == 2
    ids = {value for _, labels in series for key, value in labels if key == "client_id"}
    assert ids == {client_id}


def test_series_are_bounded_and_what_is_left_out_is_said():
    """Fails when a scrape grows with every client, or is short without a word."""
    kept = receiver(gauge("a", point(1)), gauge("b", point(1)), clients=4)
    series = shown(kept, 5)
    assert len([name for name, _ in series if name.startswith("odradek_client_")]) == 4
    assert series["odradek_telemetry_values_not_shown", frozenset()] == 4.0


def test_others_run_between_the_values_of_one_client():
    """Fails when a client with a thousand values holds up the broker at every scrape."""
    kept = receiver(gauge("a", *(point(1, {"n": number}) for number in range(50))))
    steps = add_client_series(Exposition(0), kept, 1000)
    for _ in range(10):
        next(steps)
    kept.forget(UUID(int=2))
    assert len(list(steps)) == 41
