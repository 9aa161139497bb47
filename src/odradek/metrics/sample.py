"""`Sample`: a metric under Kafka's name, in the form that reporters get.

Kafka has two registries. A metric of the older one has its own bean
(`kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=orders`), with attributes such as
`Count` or `Value`. A metric of the newer one is an attribute, such as `connection-count`, of a bean
that it shares.
"""

from typing import Final, NamedTuple

from odradek.metrics.histogram import Histogram
from odradek.metrics.meter import Meter

Value = int | float | Meter | Histogram

_PERCENTILES: Final = ("50th", "75th", "95th", "98th", "99th", "999th")


class Sample(NamedTuple):
    """One metric: `group` and `type` as in its bean's name, `tags` in their order there.

    `is_attribute` is one of the newer registry."""

    group: str
    type: str
    name: str
    value: Value
    tags: tuple[tuple[str, str], ...] = ()
    is_attribute: bool = False

    @property
    def bean(self) -> str:
        """The name of its bean."""
        parts = [f"type={self.type}"]
        if not self.is_attribute:
            parts.append(f"name={self.name}")
        parts += [f"{tag}={_quoted(text)}" for tag, text in self.tags]
        return f"{self.group}:{','.join(parts)}"

    def attributes(self, now_ms: int) -> dict[str, float]:
        """Its values by the names that Kafka gives them."""
        value = self.value
        if isinstance(value, Meter):
            one, five, fifteen, mean = value.rates(now_ms)
            return {
                "Count": value.count,
                "OneMinuteRate": one,
                "FiveMinuteRate": five,
                "FifteenMinuteRate": fifteen,
                "MeanRate": mean,
            }
        if isinstance(value, Histogram):
            quantiles = zip(_PERCENTILES, value.quantiles(), strict=True)
            return {
                "Count": value.count,
                "Min": value.least,
                "Max": value.most,
                "Mean": value.mean,
                "StdDev": value.deviation,
                **{f"{place}Percentile": each for place, each in quantiles},
            }
        return {self.name if self.is_attribute else "Value": value}


def _quoted(text: str) -> str:
    """A tag's text as an object name has it: quoted where it would be misread."""
    if not set(text) & set(',=:"*?\n\\'):
        return text
    for sign in '\\"*?':
        text = text.replace(sign, f"\\{sign}")
    text = text.replace("\n", "\\n")
    return f'"{text}"'
