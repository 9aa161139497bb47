"""Avro's binary encoding, read with the writer's schema into the reader's.

`parse` reads a schema, `spark_type` is the column for it, `resolve` makes the function that
decodes: compiled once from both schemas, so that decoding a value looks at neither. Types of unions
are the same as in Spark's own Avro package: null and one other type give that type; several give a
struct with a member for each.
"""

import json
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from pyspark.sql import types as t

from pyspark_odradek.formats import limits
from pyspark_odradek.formats.bytestream import ByteStream
from pyspark_odradek.formats.errors import Undecodable, UnusableSchema

Read = Callable[[ByteStream], Any]
# A schema: the name of a primitive type, a list (a union), or an object. Names of types that were
# defined before are replaced by their definitions.
Schema = Any

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAY: Final = date(1970, 1, 1)
_PRIMITIVES: Final[dict[str, t.DataType]] = {
    "null": t.NullType(),
    "boolean": t.BooleanType(),
    "int": t.IntegerType(),
    "long": t.LongType(),
    "float": t.FloatType(),
    "double": t.DoubleType(),
    "bytes": t.BinaryType(),
    "string": t.StringType(),
}
_WIDER: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_TIMES: Final = {"timestamp-millis": 1000, "timestamp-micros": 1}
_BITS: Final = {"int": 32, "long": 64}
# The types that each logical type may have; with other types it is ignored, as the standard says.
_WRITTEN_AS: Final = {
    "date": ("int",),
    "decimal": ("bytes", "fixed"),
    **dict.fromkeys(_TIMES, ("long",)),
}
_MOST_DIGITS: Final = 38
# A default is not of its type.
_UNFIT: Final = (Undecodable, ValueError, ArithmeticError)


def parse(text: str) -> Schema:
    """Parses a schema, and replaces its names by their types.

    Raises:
        UnusableSchema: it is malformed, or a type contains itself, which no table can, or there are
            too many types.
    """
    try:
        schema = _expand(json.loads(text), "", {}, ())
        count = _count_types(schema, {})
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UnusableSchema(f"this is no Avro schema: {error!r}") from None
    if count > limits.MOST_TYPES:
        raise UnusableSchema(f"this Avro schema has {count} types, which is too many")
    return schema


def _count_types(schema: Schema, counted: dict[int, int]) -> int:
    """Counts all types of a schema; types of one name are one object and count once."""
    if id(schema) not in counted:
        counted[id(schema)] = 1 + sum(_count_types(each, counted) for each in _within(schema))
    return counted[id(schema)]


def _within(schema: Schema) -> list[Schema]:
    match _base(schema):
        case "union":
            return list(schema)
        case "record":
            return [each["type"] for each in schema["fields"]]
        case "array":
            return [schema["items"]]
        case "map":
            return [schema["values"]]
    return []


def _expand(node: Any, space: str, known: dict[str, Any], inside: tuple[str, ...]) -> Schema:
    if isinstance(node, str):
        if node in _PRIMITIVES:
            return node
        name = node if "." in node or not space else f"{space}.{node}"
        if name in inside:
            raise UnusableSchema(f"type {name} contains itself, which no table can")
        return known[name]
    if isinstance(node, list):
        return [_expand(each, space, known, inside) for each in node]
    kind = node["type"]
    if kind == "array":
        return {**node, "items": _expand(node["items"], space, known, inside)}
    if kind == "map":
        return {**node, "values": _expand(node["values"], space, known, inside)}
    if kind in ("record", "error"):
        space, name = _name_of(node, space)
        fields = [
            {**each, "type": _expand(each["type"], space, known, (*inside, name))}
            for each in node["fields"]
        ]
        known[name] = {**node, "type": "record", "name": name, "fields": fields}
        return known[name]
    if kind in ("enum", "fixed"):
        _, name = _name_of(node, space)
        _ = node["symbols" if kind == "enum" else "size"]
        known[name] = {**node, "name": name}
        return known[name]
    if "logicalType" in node and isinstance(kind, str) and kind in _PRIMITIVES:
        return node
    return _expand(kind, space, known, inside)


def _name_of(node: Mapping[str, Any], space: str) -> tuple[str, str]:
    name: str = node["name"]
    if "." in name:
        return name.rpartition(".")[0], name
    space = node.get("namespace", space)
    return space, f"{space}.{name}" if space else name


def spark_type(schema: Schema) -> t.DataType:
    """The type of a column for a schema.

    Raises:
        UnusableSchema: there is none.
    """
    if isinstance(schema, list):
        members = _members(schema)
        if len(members) == 1:
            return spark_type(members[0])
        fields = [t.StructField(f"member{i}", spark_type(m)) for i, m in enumerate(members)]
        return t.StructType(fields)
    kind = _kind(schema)
    match kind:
        case "date":
            return t.DateType()
        case "decimal":
            return _decimal_type(schema["precision"], schema.get("scale", 0))
        case "record":
            return t.StructType(
                [t.StructField(each["name"], spark_type(each["type"])) for each in schema["fields"]]
            )
        case "array":
            return t.ArrayType(spark_type(schema["items"]))
        case "map":
            return t.MapType(t.StringType(), spark_type(schema["values"]))
        case "enum":
            return t.StringType()
        case "fixed":
            return t.BinaryType()
    return t.TimestampType() if kind in _TIMES else _PRIMITIVES[kind]


def _decimal_type(precision: int, scale: int) -> t.DecimalType:
    if precision > _MOST_DIGITS:
        raise UnusableSchema(f"Spark has no decimals of {precision} digits")
    return t.DecimalType(precision, scale)


def resolve(writer: Schema, reader: Schema) -> Read:
    """Returns the function that reads values of `writer` as values of `reader`.

    Raises:
        Undecodable: the one cannot be read as the other.
    """
    if isinstance(writer, list):
        branches = [_resolve_later(branch, reader) for branch in writer]
        return lambda stream: _chosen(branches, stream.zigzag())(stream)
    if isinstance(reader, list):
        return _into_union(writer, reader)
    if not _fits(writer, reader):
        raise Undecodable(f"{_shown(writer)} cannot be read as {_shown(reader)}")
    match _base(writer):
        case "record":
            return _record(writer, reader)
        case "array":
            return _blocks(resolve(writer["items"], reader["items"]))
        case "map":
            value = resolve(writer["values"], reader["values"])
            entries = _blocks(lambda stream: (_string(stream), value(stream)))
            return lambda stream: _map(entries(stream))
        case "enum":
            return _enum(writer, reader)
    return _scalar(writer, reader)


def _resolve_later(writer: Schema, reader: Schema) -> Read:
    """Defers the error: a branch that cannot be read matters only to values that have it."""
    try:
        return resolve(writer, reader)
    except Undecodable as error:
        reason = str(error)

        def fail(_: ByteStream) -> Any:
            raise Undecodable(reason)

        return fail


def _into_union(writer: Schema, reader: list[Schema]) -> Read:
    fitting = [branch for branch in reader if _fits(writer, branch)]
    if not fitting:
        raise Undecodable(f"{_shown(writer)} cannot be read as {_shown(reader)}")
    branch, members = max(fitting, key=lambda each: _likeness(writer, each)), _members(reader)
    read = resolve(writer, branch)
    if len(members) == 1 or branch == "null":
        return read
    place, size = members.index(branch), len(members)
    return lambda stream: tuple(read(stream) if at == place else None for at in range(size))


def _likeness(writer: Schema, reader: Schema) -> tuple[bool, ...]:
    """Returns how well a branch matches the written type: by its kind, its full name, its short
    name.
    """
    if _kind(writer) != _kind(reader) or not isinstance(writer, dict):
        return (_kind(writer) == _kind(reader),)
    one, other = writer.get("name", ""), reader.get("name", "")
    return (True, one == other, _own_name(one) == _own_name(other))


def _own_name(name: str) -> str:
    return name.rpartition(".")[2]


def _record(writer: Schema, reader: Schema) -> Read:
    places: dict[str, int] = {}
    for place, each in enumerate(reader["fields"]):
        for name in (each["name"], *each.get("aliases", ())):
            places[name] = place
    steps: list[tuple[int | None, Read]] = []
    values: list[Any] = [None] * len(reader["fields"])
    missing = dict(enumerate(reader["fields"]))
    for each in writer["fields"]:
        at = places.get(each["name"])
        wanted = each["type"] if at is None else reader["fields"][at]["type"]
        steps.append((at, resolve(each["type"], wanted)))
        if at is not None:
            missing.pop(at, None)
    for at, each in missing.items():
        values[at] = _default_of(each)

    def read(stream: ByteStream) -> tuple[Any, ...]:
        row = list(values)
        for place, step in steps:
            value = step(stream)
            if place is not None:
                row[place] = value
        return tuple(row)

    return read


def _blocks(item: Read) -> Read:
    def read(stream: ByteStream) -> list[Any]:
        found: list[Any] = []
        while count := stream.zigzag():
            if count < 0:  # The block's size follows, for readers that skip it.
                stream.zigzag()
                count = -count
            stream.expect(count)
            found.extend(item(stream) for _ in range(count))
        return found

    return read


def _map(entries: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(entries)
    if len(found) < len(entries):
        raise Undecodable("two keys of a map are the same")
    return found


def _enum(writer: Schema, reader: Schema) -> Read:
    known = set(reader["symbols"])
    spare = reader.get("default") if reader.get("default") in known else None
    symbols = [symbol if symbol in known else spare for symbol in writer["symbols"]]

    def read(stream: ByteStream) -> str:
        place = stream.zigzag()
        symbol: str | None = _chosen(symbols, place)
        if symbol is None:
            raise Undecodable(f"{reader['name']} has no symbol {writer['symbols'][place]}")
        return symbol

    return read


def _scalar(writer: Schema, reader: Schema) -> Read:
    plain = _plain(writer)
    # The reader's unit counts only for a number that had none.
    meant = _meant(writer if _is_time(writer) and _is_time(reader) else reader)
    if meant is not None:
        return lambda stream: meant(plain(stream))
    base = _base(writer)
    match _base(reader):
        case "float" | "double" if base in ("int", "long"):
            return lambda stream: float(plain(stream))
        case "string" if base == "bytes":
            return _string
        case "bytes" if base == "string":
            return _bytes
    return plain


def _meant(schema: Schema) -> Callable[[Any], Any] | None:
    """The function that converts the written value to a time or a decimal; None for other types."""
    match kind := _kind(schema):
        case "date":
            return lambda days: _FIRST_DAY + timedelta(days=days)
        case "decimal":
            pointed = limits.unscaled(schema["precision"], schema.get("scale", 0))
            return lambda data: pointed(int.from_bytes(data, "big", signed=True))
    if kind in _TIMES:
        unit = _TIMES[kind]
        return lambda count: _EPOCH + timedelta(microseconds=count * unit)
    return None


def _plain(schema: Schema) -> Read:
    match _base(schema):
        case "null":
            return lambda _: None
        case "boolean":
            return _boolean
        case "int":
            fitting = limits.integer(32)
            return lambda stream: fitting(stream.zigzag())
        case "long":
            return ByteStream.zigzag
        case "float":
            return lambda stream: stream.fixed(_FLOAT)
        case "double":
            return lambda stream: stream.fixed(_DOUBLE)
        case "bytes":
            return _bytes
        case "fixed":
            size = schema["size"]
            return lambda stream: stream.take(size)
    return _string


def _boolean(stream: ByteStream) -> bool:
    byte = stream.take(1)[0]
    if byte > 1:
        raise Undecodable(f"byte {byte} is neither true nor false")
    return byte == 1


def _bytes(stream: ByteStream) -> bytes:
    return stream.take(stream.zigzag())


def _string(stream: ByteStream) -> str:
    return stream.text(_bytes(stream))


def _default_of(field: Mapping[str, Any]) -> Any:
    """Returns the value of a field that was not written.

    Raises:
        Undecodable: the field has no default.
        UnusableSchema: the default is of another type.
    """
    if "default" not in field:
        raise Undecodable(f"field {field['name']} is missing and has no default")
    try:
        return _default(field["default"], field["type"])
    except (*_UNFIT, UnusableSchema) as error:
        raise UnusableSchema(f"the default of field {field['name']}: {error}") from None


def _default(value: Any, schema: Schema) -> Any:
    """Converts a default, which is written as JSON, to a value."""
    if isinstance(schema, list):
        return _default_of_union(value, schema)
    found = _plain_default(value, schema)
    meant = _meant(schema)
    return found if meant is None else meant(found)


def _default_of_union(value: Any, union: list[Schema]) -> Any:
    """The default in the first branch that accepts it."""
    members = _members(union)
    for branch in union:
        with suppress(*_UNFIT):
            inner = _default(value, branch)
            if len(members) == 1 or branch == "null":
                return inner
            return tuple(inner if member is branch else None for member in members)
    raise Undecodable(f"{value!r} is none of {_shown(union)}")


def _plain_default(value: Any, schema: Schema) -> Any:
    base, is_number = _base(schema), not isinstance(value, bool)
    match value:
        case dict() if base == "record":
            given = ({**each, "default": value[each["name"]]} if each["name"] in value else each
                     for each in schema["fields"])  # fmt: skip
            return tuple(map(_default_of, given))
        case dict() if base == "map":
            return {name: _default(each, schema["values"]) for name, each in value.items()}
        case list() if base == "array":
            return [_default(each, schema["items"]) for each in value]
        case str() if base in ("bytes", "fixed"):
            return _sized(value.encode("latin-1"), schema)
        case str() if base == "string" or (base == "enum" and value in schema["symbols"]):
            return limits.text(value)
        case int() if base in _BITS and is_number:
            return limits.integer(_BITS[base])(value)
        case int() | float() if base in ("float", "double") and is_number:
            return limits.single(float(value)) if base == "float" else float(value)
        case bool() if base == "boolean":
            return value
        case None if base == "null":
            return None
    raise Undecodable(f"{value!r} is not of type {_shown(schema)}")


def _sized(data: bytes, schema: Schema) -> bytes:
    if _base(schema) == "fixed" and len(data) != schema["size"]:
        raise Undecodable(f"{len(data)} bytes are not of type {_shown(schema)}")
    return data


def _fits(writer: Schema, reader: Schema) -> bool:
    one, other = _base(writer), _base(reader)
    if one != other:
        return other in _WIDER.get(one, ()) and _means_the_same(writer, reader)
    if one in ("record", "enum", "fixed"):
        same_name = _own_name(writer["name"]) == _own_name(reader["name"])
        same_size = writer.get("size") == reader.get("size")
        return (same_name or one == "record") and same_size and _means_the_same(writer, reader)
    return _means_the_same(writer, reader)


def _means_the_same(writer: Schema, reader: Schema) -> bool:
    """Whether both are the same kind of time or decimal, or one has no logical type: a day is not a
    millisecond.
    """
    one, other = _kind(writer), _kind(reader)
    if one == _base(writer) or other == _base(reader):
        return True
    if one in _TIMES:
        return other in _TIMES
    return one == other and writer.get("scale", 0) == reader.get("scale", 0)


def _base(schema: Schema) -> str:
    """The type in the encoding, without its logical type."""
    if isinstance(schema, list):
        return "union"
    return schema if isinstance(schema, str) else schema["type"]


def _kind(schema: Schema) -> str:
    """The logical type; the encoded type if there is none or it is unknown."""
    base = _base(schema)
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if not isinstance(logical, str) or base not in _WRITTEN_AS.get(logical, ()):
        return base
    return base if logical == "decimal" and not _is_decimal(schema) else logical


def _is_decimal(schema: Mapping[str, Any]) -> bool:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int or type(scale) is not int:
        return False
    return precision > 0 and 0 <= scale <= precision


def _is_time(schema: Schema) -> bool:
    return _kind(schema) in _TIMES


def _members(union: list[Schema]) -> list[Schema]:
    return [branch for branch in union if branch != "null"] or ["null"]


def _chosen(choices: list[Any], place: int) -> Any:
    if not 0 <= place < len(choices):
        raise Undecodable(f"there is no choice {place} among {len(choices)}")
    return choices[place]


def _shown(schema: Schema) -> str:
    if isinstance(schema, list):
        return f"[{', '.join(map(_shown, schema))}]"
    return schema if isinstance(schema, str) else schema.get("name", _kind(schema))
