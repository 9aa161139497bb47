"""The series of metrics that clients push (KIP-714), under names that begin with `odradek_client_`.

Kafka's clients call a metric `org.apache.kafka.producer.request.latency.avg`; here it is
`odradek_client_producer_request_latency_avg`. Labels name the client, and the client's own
attributes of a value, such as the node or the partition.

Names, attributes and kinds are a client's own words. Two clients could call a gauge what is
another's counter, or give a name twice that differs in signs which Prometheus does not know; a
reader would refuse the whole scrape. So none has a type, and if a client has the same series twice
only the first is served.
"""

import re
from collections.abc import Iterator
from typing import Final

from odradek.handlers.telemetry.pushed_metrics import MetricName, PushedMetrics, PushingClient
from odradek.metrics import Sample
from odradek.protocol.uuids import uuid_text
from odradek.server.monitoring.exposition import COUNTER, GAUGE, UNTYPED, Exposition

KAFKAS: Final = "org.apache.kafka."
CLIENT: Final = "odradek_client_"

_NO_NAME: Final = re.compile(r"[^a-zA-Z0-9]+")

Tags = tuple[tuple[str, str], ...]


def client_samples(pushed: PushedMetrics) -> Iterator[Sample]:
    """All values, as metrics of a bean for each."""
    for client in pushed.clients():
        own = _tags_of(client)
        for metric, value in client.values.items():
            yield Sample("odradek.client", "client-metrics", metric.name, value, _tags(metric, own))


def add_client_series(out: Exposition, pushed: PushedMetrics, most: int) -> Iterator[None]:
    """Adds up to `most` series of values, of whole clients; others may run whenever it yields."""
    shown = not_shown = 0
    for client in pushed.clients():
        if shown + len(client.values) > most:
            not_shown += len(client.values)
            continue
        shown += len(client.values)
        yield from _add_client(out, client)
    counts = pushed.counts()
    for name, value in (
        ("odradek_telemetry_clients", counts.clients),
        ("odradek_telemetry_values", counts.values),
        ("odradek_telemetry_names", counts.names),
        ("odradek_telemetry_values_not_shown", not_shown),
    ):
        out.add(name, GAUGE, (), value)
    out.add("odradek_telemetry_values_left_out_total", COUNTER, (), counts.left_out)


def _add_client(out: Exposition, client: PushingClient) -> Iterator[None]:
    own = _tags_of(client)
    name, version = client.client.client_software_name, client.client.client_software_version
    software = (("client_software_name", name), ("client_software_version", version))
    address = (("client_source_address", client.client.client_source_address),)
    out.add("odradek_telemetry_client_info", GAUGE, (*own, *software, *address), 1)
    yield
    known: set[tuple[str, Tags]] = set()
    for metric, value in client.values.items():
        series = CLIENT + _word(metric.name.removeprefix(KAFKAS)), _tags(metric, own)
        if series not in known:
            known.add(series)
            out.add(series[0], UNTYPED, series[1], value)
        yield


def _tags_of(client: PushingClient) -> Tags:
    who = client.client.client_id
    return (("client_id", who), ("client_instance_id", uuid_text(client.id)), *client.resource)


def _tags(metric: MetricName, own: Tags) -> Tags:
    """Legal labels, each once: those that the broker sets come first."""
    tags = dict(own)
    for key, text in metric.attributes:
        tags.setdefault(_word(key), text)
    return tuple(tags.items())


def _word(text: str) -> str:
    """A part of a name: letters, digits and single low lines; it does not begin with a digit."""
    word = _NO_NAME.sub("_", text).strip("_").lower()
    return word if word and not word[0].isdigit() else f"of_{word}"
