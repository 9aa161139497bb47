"""The columns of a topic, by the names that Spark's Kafka connector gives them."""

from typing import Final

HEADERS: Final = "headers"
PLAIN_COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
)
COLUMNS: Final = (*PLAIN_COLUMNS, HEADERS)
