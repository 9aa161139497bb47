"""The functions that a consumer was given to make keys and values of bytes."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from odradek.client.core.consuming.consumer_record import (
    DeserializeByTopic,
    Deserializing,
    RecordHeaders,
)


@runtime_checkable
class TopicDeserializer(Protocol):
    """Makes a key or a value of bytes, knowing the topic and the headers."""

    def deserialize(self, topic: str, headers: RecordHeaders, data: bytes, /) -> Any:
        """The value of some bytes."""
        ...


Deserializer = Callable[[bytes], Any] | TopicDeserializer


def deserializing(deserializer: Deserializer | None) -> Deserializing | None:
    """A deserializer as the reader of records takes it."""
    if isinstance(deserializer, TopicDeserializer):
        return DeserializeByTopic(deserializer.deserialize)
    return deserializer
