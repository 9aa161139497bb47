"""Names of beans and attributes, as Kafka's object names have them."""

import pytest

from odradek.metrics import Histogram, Meter, Sample


@pytest.mark.parametrize(
    ("topic", "shown"),
    [("orders", "orders"), ("a,b", '"a,b"'), ('a"b*', '"a\\"b\\*"'), ("a\nb", '"a\\nb"')],
)
def test_a_bean_has_its_tags_quoted_where_they_would_be_misread(topic, shown):
    """Fails when a client's word could stand for another bean's name."""
    sample = Sample("kafka.server", "T", "N", 1, (("topic", topic),))
    assert sample.bean == f"kafka.server:type=T,name=N,topic={shown}"


def test_a_meter_has_the_attributes_of_kafkas():
    """Fails when scripts that read the attributes find others."""
    attributes = Sample("g", "t", "n", Meter(0)).attributes(0)
    assert list(attributes) == [
        "Count",
        "OneMinuteRate",
        "FiveMinuteRate",
        "FifteenMinuteRate",
        "MeanRate",
    ]


def test_a_histogram_has_the_attributes_of_kafkas():
    """Fails when scripts that read the attributes find others."""
    attributes = Sample("g", "t", "n", Histogram()).attributes(0)
    assert list(attributes) == [
        "Count",
        "Min",
        "Max",
        "Mean",
        "StdDev",
        "50thPercentile",
        "75thPercentile",
        "95thPercentile",
        "98thPercentile",
        "99thPercentile",
        "999thPercentile",
    ]


def test_an_attribute_shares_its_bean():
    """Fails when the newer registry's metrics have beans of their own."""
    sample = Sample("kafka.server", "socket-server-metrics", "connection-count", 3, (), True)
    assert sample.bean == "kafka.server:type=socket-server-metrics"
    assert sample.attributes(0) == {"connection-count": 3}
