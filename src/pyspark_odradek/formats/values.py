"""`decoder_for`: creates the decoder of a value's bytes into a row, with the row's type."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import types as t

from pyspark_odradek.formats import avro, jsons, protobuf
from pyspark_odradek.formats.bytestream import ByteStream
from pyspark_odradek.formats.errors import Undecodable, UnusableSchema
from pyspark_odradek.formats.registry import (
    AVRO,
    JSON,
    PROTOBUF,
    Registry,
    RegistryUnavailable,
    Schema,
    read_schema_file,
)

FORMATS: Final = {"json": JSON, "avro": AVRO, "protobuf": PROTOBUF}
_MAGIC: Final = 0
_PREFIX_BYTES: Final = 5

Read = Callable[[bytes], Any]


class Decoder:
    """Decodes values. It is sent to workers; the decoders that it makes stay in their process."""

    def __init__(self, shape: "Shape", registry: Registry | None) -> None:
        self.type: Final = shape.type
        self._shape: Final = shape
        self._registry: Final = registry
        self._readers: dict[object, Read | Undecodable | UnusableSchema] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_readers": {}}

    def decode(self, value: bytes) -> Any:
        """A row, in the types of `type`.

        Raises:
            Undecodable: it is not one; the text says why.
            UnusableSchema: nothing that has its schema can be read.
            RegistryUnavailable: it cannot be known now.
        """
        try:
            return self._read(value)
        except (Undecodable, UnusableSchema, RegistryUnavailable):
            raise
        except Exception as error:  # noqa: BLE001 - whatever one is made of, the others go on
            raise Undecodable(f"it is not what its schema says: {error}") from None

    def _read(self, value: bytes) -> Any:
        if self._registry is None:
            return self._reader(None, None)(value)
        if len(value) < _PREFIX_BYTES or value[0] != _MAGIC:
            raise Undecodable("it does not begin with a registry's prefix")
        number = int.from_bytes(value[1:_PREFIX_BYTES], "big")
        return self._reader(number, self._registry)(value[_PREFIX_BYTES:])

    def _reader(self, number: int | None, registry: Registry | None) -> Read:
        reader = self._readers.get(number)
        if reader is None:
            try:
                with _telling_of_schemas():
                    written = None
                    if number is not None and registry is not None:
                        written = registry.by_id(number)
                    reader = self._shape.reader(written)
            except (Undecodable, UnusableSchema) as error:
                # Remembered, so many values with a missing schema cause one request to the
                # registry.
                reader = type(error)(str(error))
            self._readers[number] = reader
        if isinstance(reader, (Undecodable, UnusableSchema)):
            raise reader
        return reader


class Shape:
    """The schema of a table's column, in one format."""

    type: t.DataType

    def reader(self, written: Schema | None) -> Read:
        """Returns the reader of values that were written with a schema; None means the table's own.

        Raises:
            Undecodable: such values cannot be read into this shape.
        """
        raise NotImplementedError


def decoder_for(
    kind: str, *, schema: str | t.StructType | None, registry: str | None, subject: str
) -> Decoder:
    """The decoder of a format: `json`, `avro` or `protobuf`.

    `schema` is the table's: a file, or of JSON its columns; without it, it is the newest
    of the `subject`. With a `registry`, values have its prefix.

    Raises:
        UnusableSchema: there is no schema, or none that a table can have.
        RegistryUnavailable: the registry does not answer.
    """
    found = Registry(registry) if registry is not None else None
    if kind not in FORMATS:
        raise UnusableSchema(f"there is no format {kind!r}, only {', '.join(FORMATS)}")
    if isinstance(schema, t.StructType):
        if kind != "json":
            raise UnusableSchema(f"columns alone do not say how values of {kind} are written")
        return Decoder(_JsonShape(schema), found)
    if schema is not None:
        document = read_schema_file(schema)
    elif found is not None:
        document = found.newest(subject)
    else:
        raise UnusableSchema(
            "say what is in a value (--schema), or where its schemas are (--registry)"
        )
    if document.kind != FORMATS[kind]:
        raise UnusableSchema(f"the schema is one of {document.kind}, not of {FORMATS[kind]}")
    with _telling_of_schemas():
        return Decoder(_shape_of(document, has_prefix=found is not None), found)


@contextmanager
def _telling_of_schemas() -> Iterator[None]:
    """Reports an error within a schema as the schema's."""
    try:
        yield
    except (Undecodable, UnusableSchema, RegistryUnavailable):
        raise
    except Exception as error:  # noqa: BLE001 - whatever its parts are made of
        raise UnusableSchema(f"its schema cannot be used: {error!r}") from None


def _shape_of(document: Schema, *, has_prefix: bool) -> "Shape":
    if document.kind == AVRO:
        return _AvroShape(document)
    if document.kind == PROTOBUF:
        return _ProtobufShape(document, has_prefix)
    return _JsonShape(jsons.spark_type(document.texts[-1].decode()))


class _AvroShape(Shape):
    def __init__(self, schema: Schema) -> None:
        self._schema: Final = avro.parse(schema.texts[-1].decode())
        self.type = avro.spark_type(self._schema)

    def reader(self, written: Schema | None) -> Read:
        writer = self._schema
        if written is not None:
            _check_kind(written, AVRO)
            writer = avro.parse(written.texts[-1].decode())
        read = avro.resolve(writer, self._schema)

        def whole(value: bytes) -> Any:
            stream = ByteStream(value)
            row = read(stream)
            if not stream.is_at_end:
                raise Undecodable("there are bytes left behind its last field")
            return row

        return whole


class _ProtobufShape(Shape):
    def __init__(self, schema: Schema, has_prefix: bool) -> None:
        self._schema: Final = _descriptors(schema)
        self._name: Final = self._schema.name_at((0,))
        self._has_prefix: Final = has_prefix
        self.type = protobuf.spark_type(self._schema, self._name)

    def reader(self, written: Schema | None) -> Read:
        read = protobuf.message_reader(self._schema, self._name)
        if not self._has_prefix or written is None:
            return read
        _check_kind(written, PROTOBUF)
        writer = _descriptors(written)

        def behind_indexes(value: bytes) -> Any:
            stream = ByteStream(value)
            name = writer.name_at(_indexes(stream))
            if name != self._name:
                raise Undecodable(f"it is a {name[1:]}, not a {self._name[1:]}")
            return read(stream.rest())

        return behind_indexes


class _JsonShape(Shape):
    def __init__(self, type: t.DataType) -> None:
        self.type = type
        self._convert: Final = jsons.converter(type)

    def reader(self, written: Schema | None) -> Read:
        if written is not None:
            _check_kind(written, JSON)

        return lambda value: self._convert(jsons.parse(value))


def _indexes(stream: ByteStream) -> tuple[int, ...]:
    """Reads which message of the file it is; a single zero stands for the first one."""
    count = stream.zigzag()
    if count < 0:
        raise Undecodable("there is no list of indexes behind its prefix")
    return tuple(stream.zigzag() for _ in range(count)) or (0,)


def _check_kind(schema: Schema, kind: str) -> None:
    if schema.kind != kind:
        raise Undecodable(f"its schema is one of {schema.kind}, not of {kind}")


def _descriptors(schema: Schema) -> protobuf.Descriptors:
    if schema.is_set:
        return protobuf.read_set(schema.texts[-1])
    return protobuf.read_files(schema.texts)
