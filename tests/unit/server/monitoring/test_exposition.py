"""Metrics as text: the names that boards know, and nothing that a parser stumbles over."""

import pytest

from odradek.metrics import Histogram, Meter, Sample
from odradek.server.monitoring.exposition import GAUGE, Exposition


def text_of(*samples):
    out = Exposition(0)
    for sample in samples:
        out.add_bean(sample)
    return "".join(out.text()).splitlines()


def counted(amount):
    meter = Meter(0)
    meter.mark(0, amount)
    return meter


@pytest.mark.parametrize(
    ("sample", "line"),
    [
        (
            Sample(
                "kafka.server", "BrokerTopicMetrics", "BytesInPerSec", counted(7), (("topic", "t"),)
            ),
            'kafka_server_brokertopicmetrics_bytesin_total{topic="t"} 7',
        ),
        (
            Sample("kafka.server", "ReplicaManager", "UnderReplicatedPartitions", 2),
            "kafka_server_replicamanager_underreplicatedpartitions 2",
        ),
        (
            Sample("kafka.server", "KafkaRequestHandlerPool", "RequestHandlerAvgIdlePercent", 0.5),
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent 0.5",
        ),
        (
            Sample(
                "kafka.server",
                "socket-server-metrics",
                "connection-count",
                3,
                (("listener", "L"), ("networkProcessor", "0")),
                True,
            ),
            'kafka_server_socket_server_metrics_connection_count{listener="L",'
            'networkProcessor="0"} 3',
        ),
        (
            Sample(
                "kafka.server",
                "socket-server-metrics",
                "connections",
                1,
                (("clientSoftwareName", "java"), ("clientSoftwareVersion", "4.3")),
                True,
            ),
            "kafka_server_socket_server_metrics_connections_software"
            '{clientSoftwareName="java",clientSoftwareVersion="4.3"} 1',
        ),
        (
            Sample("kafka.coordinator.group", "GroupMetadataManager", "NumGroups", 4),
            "kafka_coordinator_group_groupmetadatamanager_numgroups 4",
        ),
    ],
)
def test_names_are_those_of_strimzis_rules(sample, line):
    """Fails when a board that is made for these rules stays empty."""
    assert text_of(sample)[-1] == line


def test_a_distribution_is_a_count_and_quantiles():
    """Fails when request times cannot be drawn."""
    histogram = Histogram()
    histogram.update(0, 5)
    tags = (("request", "Fetch"),)
    lines = text_of(Sample("kafka.network", "RequestMetrics", "TotalTimeMs", histogram, tags))
    assert 'kafka_network_requestmetrics_totaltimems_count{request="Fetch"} 1' in lines
    assert 'kafka_network_requestmetrics_totaltimems{request="Fetch",quantile="0.99"} 5.0' in lines


def test_the_series_of_a_name_stand_together():
    """Fails when a scrape is refused because a name begins a second time."""
    lines = text_of(
        Sample("g", "T", "APerSec", counted(1)),
        Sample("g", "T", "B", 1),
        Sample("g", "T", "APerSec", counted(2), (("topic", "t"),)),
    )
    assert lines == [
        "# TYPE g_t_a_total counter",
        "g_t_a_total 1",
        'g_t_a_total{topic="t"} 2',
        "# TYPE g_t_b gauge",
        "g_t_b 1",
    ]


HOSTILE = 'a"b\\c\nd{}, ö\ud800'


@pytest.mark.parametrize("is_open", [False, True])
def test_prometheus_reads_labels_that_a_client_chose(is_open):
    """Fails when a client's word ends a label, a line or the encoding."""
    parser = pytest.importorskip("prometheus_client.parser")
    openmetrics = pytest.importorskip("prometheus_client.openmetrics.parser")
    out = Exposition(0)
    out.add("x", GAUGE, (("client", HOSTILE),), 1)
    out.add_bean(Sample("g", "T", "NPerSec", counted(3)))
    histogram = Histogram()
    out.add_bean(Sample("g", "T", "H", histogram))
    text = "".join(out.open_metrics() if is_open else out.text()).encode().decode()
    read = openmetrics if is_open else parser
    families = list(read.text_string_to_metric_families(text))
    found = {sample.name: sample for family in families for sample in family.samples}
    assert found["x"].labels == {"client": HOSTILE.replace("\ud800", "?")}
    assert found["g_t_n_total"].value == 3
    assert found["g_t_h_count"].value == 0
