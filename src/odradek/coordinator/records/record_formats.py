"""`RecordFormat`: one kind of record whose key is a number and names, and whose value has version 0
and compact lengths, as all of Kafka's newer groups have in `__consumer_offsets`."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from odradek.coordinator.records.record import CoordinatorRecord, RecordError
from odradek.protocol.primitives import ProtocolError, Reader, Writer

FLEXIBLE: Final = True
_VERSION: Final = 0


class RecordFormat(NamedTuple):
    """A kind of record: its number, the type of its key, and what writes and reads its value."""

    number: int
    key: Any
    write: Callable[[Writer, Any], None]
    read: Callable[[Reader], object]

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        """The bytes of its key and value; a tombstone has no value."""
        return self._encode_key(record.key), self._encode_value(record.value)

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord:
        """Reads a record of this kind.

        Raises:
            RecordError: it is malformed.
        """
        return CoordinatorRecord(
            self._decode_key(key), None if value is None else self._decode_value(value)
        )

    def _encode_key(self, key: Any) -> bytes:
        writer = Writer()
        writer.int16(self.number)
        for name in key:
            writer.string(name, False)
        return writer.to_bytes()

    def _encode_value(self, value: object) -> bytes | None:
        if value is None:
            return None
        writer = Writer()
        writer.int16(_VERSION)
        self.write(writer, value)
        return writer.to_bytes()

    def _decode_key(self, data: bytes) -> object:
        reader = Reader(memoryview(data), 2)
        try:
            return self.key(*[reader.string(False) for _ in self.key._fields])
        except ProtocolError as error:
            raise RecordError(f"a {self.key.__name__} is malformed: {error}") from error

    def _decode_value(self, data: bytes) -> object:
        reader = Reader(memoryview(data))
        try:
            version = reader.int16()
            if version != _VERSION:
                raise RecordError(
                    f"a value for key {self.number} has the unknown version {version}"
                )
            return self.read(reader)
        except ProtocolError as error:
            raise RecordError(f"a value for key {self.number} is malformed: {error}") from error


def write_int32s(writer: Writer, numbers: tuple[int, ...]) -> None:
    """An array of numbers, such as the indexes of partitions."""
    writer.array_length(len(numbers), FLEXIBLE)
    for number in numbers:
        writer.int32(number)


def read_int32s(reader: Reader) -> tuple[int, ...]:
    """Reads what `write_int32s` wrote."""
    return tuple([reader.int32() for _ in range(reader.array_length(FLEXIBLE, 4))])
