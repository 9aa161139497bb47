"""A record as a consumer gives it."""

from collections.abc import Callable
from typing import Any, NamedTuple

Deserializer = Callable[[bytes], Any]


class ConsumerRecord(NamedTuple):
    """A record as a consumer gives it; `timestamp_type` is 0 CreateTime, 1 LogAppendTime."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any
    headers: list[tuple[str, bytes | None]]
    leader_epoch: int
