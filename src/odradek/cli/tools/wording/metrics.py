"""The table that Kafka's tools end with on `--print-metrics`.

Kafka's clients keep some hundred metrics. The ones that our client counts have Kafka's names; the
others have no row.
"""

from collections.abc import Mapping
from typing import Final

# The groups in which the totals of a topic are beside those of all topics.
_BY_TOPIC: Final = {
    "producer-metrics": "producer-topic-metrics",
    "consumer-fetch-manager-metrics": "consumer-fetch-manager-metrics",
}


def print_metrics(group: str, client_id: str, topics: Mapping[str, Mapping[str, int]]) -> None:
    """Prints totals by topic and name, and over all topics; `group` is the group of the latter."""
    rows: dict[str, int] = {}
    for topic, totals in topics.items():
        for name, value in totals.items():
            whole = f"{group}:{name}:{{client-id={client_id}}}"
            rows[whole] = rows.get(whole, 0) + value
            rows[f"{_BY_TOPIC[group]}:{name}:{{client-id={client_id}, topic={topic}}}"] = value
    width = max(map(len, rows), default=0)
    print(f"\n{'Metric Name':<{width}}   Value")
    for name, value in sorted(rows.items()):
        print(f"{name:<{width}} : {value:.3f}")
