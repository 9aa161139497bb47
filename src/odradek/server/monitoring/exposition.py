"""`Exposition`: metrics as Prometheus's text, or as OpenMetrics.

All series of one name have to be together, whatever their source, so they are gathered by name
first. Labels are escaped; the names of Kafka's metrics become those that jmx_exporter gives them by
Strimzi's rules, so that boards made for these fill:

    kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=orders
        kafka_server_brokertopicmetrics_bytesin_total{topic="orders"}
    kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Fetch
        kafka_network_requestmetrics_totaltimems_count{request="Fetch"}
        kafka_network_requestmetrics_totaltimems{request="Fetch",quantile="0.99"}
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from odradek.metrics import Histogram, Meter, Sample
from odradek.metrics.histogram import QUANTILES

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
UNTYPED: Final = "untyped"
"""The type of counters whose name does not end in `_total`: parsers would rename them."""

TEXT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_NO_NAME: Final = re.compile(r"[^a-zA-Z0-9_:]")
_NO_LABEL: Final = re.compile(r"[^a-zA-Z0-9_]")
_PER_SECOND: Final = re.compile(r"PerSec\w*$")
_PERCENT: Final = re.compile(r"-?[Pp]ercent\w*$")
_TOTAL: Final = "_total"
_SOFTWARE: Final = "clientSoftwareName"

Tags = Sequence[tuple[str, str]]


class Exposition:
    """Takes series in any order, and writes them."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._families: dict[str, tuple[str, list[str]]] = {}

    def add(self, name: str, kind: str, tags: Tags, value: float) -> None:
        """A series under a separate name."""
        _, lines = self._families.setdefault(name, (kind, []))
        lines.append(f"{name}{_labels(tags)} {_number(value)}\n")

    def add_bean(self, sample: Sample) -> None:
        """A metric of Kafka's, under the name that jmx_exporter gives it."""
        value, name, tags = sample.value, sample.name, sample.tags
        begin = f"{sample.group}_{sample.type}_"
        if isinstance(value, Meter):
            if _PER_SECOND.search(name):
                name = _PER_SECOND.sub("", name)
            self.add(_name(f"{begin}{name}{_TOTAL}"), COUNTER, tags, value.count)
        elif isinstance(value, Histogram):
            self._add_distribution(_name(begin + name), tags, value)
        elif sample.is_attribute:
            if tags and tags[0][0] == _SOFTWARE:
                name = f"{name}_software"
            kind = COUNTER if name.endswith("-total") else GAUGE
            self.add(_name(begin + name), kind, tags, value)
        else:
            if _PERCENT.search(name):
                name = f"{_PERCENT.sub('', name)}_percent"
            self.add(_name(begin + name), GAUGE, tags, value)

    def _add_distribution(self, name: str, tags: Tags, histogram: Histogram) -> None:
        self.add(f"{name}_count", UNTYPED, tags, histogram.count)
        for share, value in zip(QUANTILES, histogram.quantiles(), strict=True):
            self.add(name, GAUGE, (*tags, ("quantile", str(share))), value)

    def text(self) -> Iterator[str]:
        """Prometheus's text format, name by name."""
        for name, (kind, lines) in self._families.items():
            yield f"# TYPE {name} {kind}\n"
            yield "".join(lines)

    def open_metrics(self) -> Iterator[str]:
        """OpenMetrics, where no counter's family has `_total` in its name, and "unknown" stands
        for what has no type."""
        for name, (kind, lines) in self._families.items():
            family = name.removesuffix(_TOTAL) if kind == COUNTER else name
            yield f"# TYPE {family} {'unknown' if kind == UNTYPED else kind}\n"
            yield "".join(lines)
        yield "# EOF\n"


def _name(text: str) -> str:
    return _NO_NAME.sub("_", text).lower()


def _labels(tags: Tags) -> str:
    if not tags:
        return ""
    return (
        "{" + ",".join(f'{_NO_LABEL.sub("_", tag)}="{_escaped(text)}"' for tag, text in tags) + "}"
    )


def _escaped(text: str) -> str:
    """Escapes a label's value; lone surrogates are replaced."""
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return escaped.encode("utf-8", "replace").decode()


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
