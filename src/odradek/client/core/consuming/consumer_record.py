"""A record as a consumer returns it. Compiled: no other object is made so often."""

import json
from collections.abc import Callable
from typing import Any, Final

from mypy_extensions import mypyc_attr

_SHOWN: Final = 100  # of a value, in an error
RecordHeaders = list[tuple[str, bytes | None]]


class DeserializeByTopic:
    """A function that makes a key or a value, and is given the topic and the headers as well."""

    def __init__(self, make: Callable[[str, RecordHeaders, bytes], Any]) -> None:
        self.make = make


Deserializing = Callable[[bytes], Any] | DeserializeByTopic


# Out of the garbage collector's sight: it would look at each record again and again, and none is in
# a cycle unless a deserializer's object holds on to the very record that it came in.
@mypyc_attr(acyclic=True)
class ConsumerRecord:
    """A record as a consumer gives it; `timestamp_type` is 0 CreateTime, 1 LogAppendTime. A share
    consumer's has a `delivery_count`: how often it was handed out so far, to any member."""

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int,
        timestamp_type: int,
        key: Any,
        value: Any,
        headers: RecordHeaders | None,
        leader_epoch: int,
        delivery_count: int | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.leader_epoch = leader_epoch
        self.delivery_count = delivery_count
        self._headers = headers

    @property
    def headers(self) -> RecordHeaders:
        """Names and values, in the order in which they were sent."""
        # Most have none, and their list is created only on request.
        if self._headers is None:
            self._headers = []
        return self._headers

    def json(self) -> Any:
        """Parses the value as JSON; None where there is no value.

        Raises:
            ValueError: it is no JSON.
        """
        if self.value is None:
            return None
        try:
            return json.loads(self.value)
        except ValueError as error:
            reason = str(error)
        where = f"{self.topic}-{self.partition} at offset {self.offset}"
        # Not within the handler: compiled code would show the parser's error above this one.
        raise ValueError(f"the value of {where} is no JSON: {self.value[:_SHOWN]!r} ({reason})")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self) -> str:
        return (
            f"ConsumerRecord(topic={self.topic!r}, partition={self.partition}, "
            f"offset={self.offset}, timestamp={self.timestamp}, "
            f"timestamp_type={self.timestamp_type}, key={self.key!r}, value={self.value!r}, "
            f"headers={self.headers!r}, leader_epoch={self.leader_epoch})"
        )

    def __reduce__(self) -> tuple[type["ConsumerRecord"], tuple[Any, ...]]:
        """How `pickle` and `copy` make another."""
        return ConsumerRecord, self._fields()

    def _fields(self) -> tuple[Any, ...]:
        return (
            self.topic,
            self.partition,
            self.offset,
            self.timestamp,
            self.timestamp_type,
            self.key,
            self.value,
            self.headers,
            self.leader_epoch,
            self.delivery_count,
        )
