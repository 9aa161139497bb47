"""The steps before a record is put into a batch: interceptors, serializers of keys and values."""

import logging
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from odradek.client.core.producing.intake import GivenHeaders, Lot, as_headers
from odradek.client.errors import KafkaError
from odradek.client.record_metadata import RecordMetadata

_LOGGER: Final = logging.getLogger(__name__)


@runtime_checkable
class TopicSerializer(Protocol):
    """Makes bytes of a key or a value, knowing the topic and the headers, which it may add to."""

    def serialize(
        self, topic: str, headers: list[tuple[str, bytes | None]], value: Any, /
    ) -> bytes | None:
        """The bytes of a value."""
        ...


Serializer = Callable[[Any], bytes | None] | TopicSerializer


class ProducerRecord(NamedTuple):
    """The arguments of `send`, as interceptors see them."""

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: GivenHeaders | None = ()


class ProducerInterceptor(Protocol):
    """Sees records before they are serialized, and their results. Exceptions are logged."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """May change a record; returns the one to send."""
        ...

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        """Called when a record is in the log, or has failed: its offset is -1 then, and its
        partition, too, if it had none before."""
        ...


class Preparation:
    """The functions a producer was given for these steps."""

    def __init__(
        self,
        key_serializer: Serializer | None,
        value_serializer: Serializer | None,
        interceptors: Sequence[ProducerInterceptor],
    ) -> None:
        self._key_serializer = _knowing_topic(key_serializer)
        self._value_serializer = _knowing_topic(value_serializer)
        self.interceptors: Final = tuple(interceptors)
        self.serializes: Final = key_serializer is not None or value_serializer is not None

    def intercept(self, record: ProducerRecord) -> ProducerRecord:
        """The record to send after all interceptors."""
        for interceptor in self.interceptors:
            try:
                record = interceptor.on_send(record)
            except Exception:  # a user's interceptor, without which the record is good
                _LOGGER.warning(
                    "an interceptor failed; the record is sent without it", exc_info=True
                )
        return record

    def lots(
        self,
        topic: str,
        values: Sequence[Any],
        keys: Sequence[Any] | None,
        headers: Sequence[GivenHeaders | None] | None,
        timestamps_ms: Sequence[int | None] | None,
        partition: int | None,
    ) -> list[Lot]:
        """Groups the records of `send_many` by topic; interceptors may send them to more than
        one."""
        is_serialized = self.serializes
        if not self.interceptors and not is_serialized:
            return [Lot(topic, partition, values, keys, headers, timestamps_ms)]
        absent = (None,) * len(values)
        records = [
            self.intercept(ProducerRecord(topic, value, key, partition, timestamp_ms, given))
            for value, key, timestamp_ms, given in zip(
                values,
                absent if keys is None else keys,
                absent if timestamps_ms is None else timestamps_ms,
                absent if headers is None else headers,
                strict=True,
            )
        ]
        lots: list[Lot] = []
        index = 0
        for (name, number), group in groupby(records, lambda each: (each.topic, each.partition)):
            some = list(group)
            if is_serialized:
                some = [
                    each._replace(key=key, value=value, headers=given)
                    for each in some
                    for key, value, given in (
                        self.serialized(name, each.key, each.value, each.headers),
                    )
                ]
            lots.append(
                Lot(
                    name,
                    number,
                    [each.value for each in some],
                    [each.key for each in some],
                    [each.headers for each in some],
                    [each.timestamp_ms for each in some],
                    first_index=index,
                )
            )
            index += len(some)
        return lots

    def serialized(
        self, topic: str, key: Any, value: Any, headers: GivenHeaders | None
    ) -> tuple[Any, Any, list[tuple[str, bytes | None]]]:
        """Key, value and headers as bytes; serializers see the headers, and may add some."""
        written = as_headers(headers)
        if self._key_serializer is not None:
            key = self._key_serializer(topic, written, key)
        if self._value_serializer is not None:
            value = self._value_serializer(topic, written, value)
        return key, value, written


def _knowing_topic(
    serializer: Serializer | None,
) -> Callable[[str, list[tuple[str, bytes | None]], Any], bytes | None] | None:
    """Wraps a serializer as one that gets the topic and the headers."""
    if serializer is None:
        return None
    if isinstance(serializer, TopicSerializer):
        return serializer.serialize
    return lambda _, __, value: serializer(value)
