"""Avro's binary form, read with the schema that it was written with into another's shape.

`parse` reads a schema, `spark_type` is the column for it, `resolve` makes the function that
decodes: compiled once from both schemas, so that a value costs no look at either. Types of
unions are those of Spark's own Avro package: null and one other is that other; several are a
struct with a member for each.
"""

import decimal
import json
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from pyspark.sql import types as t

from pyspark_odradek.formats.bytestream import ByteStream
from pyspark_odradek.formats.errors import Undecodable, UnusableSchema

Read = Callable[[ByteStream], Any]
# A schema: the name of a primitive type, a list (a union), or an object. Names of types that
# were defined before are replaced by what they stand for.
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


def parse(text: str) -> Schema:
    """A schema as it is written, its names replaced by their types.

    Raises:
        UnusableSchema: it is not one, or a type contains itself, which no table can.
    """
    try:
        return _expand(json.loads(text), "", {}, ())
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnusableSchema(f"this is no Avro schema: {error!r}") from None


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
        known[name] = {**node, "name": name}
        return known[name]
    if "logicalType" in node:
        return node
    return _expand(kind, space, known, inside)


def _name_of(node: Mapping[str, Any], space: str) -> tuple[str, str]:
    name: str = node["name"]
    if "." in name:
        return name.rpartition(".")[0], name
    space = node.get("namespace", space)
    return space, f"{space}.{name}" if space else name


def spark_type(schema: Schema) -> t.DataType:
    """The type of a column for a schema."""
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
            return t.DecimalType(schema["precision"], schema.get("scale", 0))
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


def resolve(writer: Schema, reader: Schema) -> Read:
    """The function that reads what `writer` describes and gives what `reader` does.

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
            return lambda stream: dict(entries(stream))
        case "enum":
            return _enum(writer, reader)
    return _scalar(writer, reader)


def _resolve_later(writer: Schema, reader: Schema) -> Read:
    """A branch that cannot be read matters only to a value that has it."""
    try:
        return resolve(writer, reader)
    except Undecodable as error:
        reason = str(error)

        def fail(_: ByteStream) -> Any:
            raise Undecodable(reason)

        return fail


def _into_union(writer: Schema, reader: list[Schema]) -> Read:
    same = [branch for branch in reader if _kind(branch) == _kind(writer) and _fits(writer, branch)]
    fitting = same or [branch for branch in reader if _fits(writer, branch)]
    if not fitting:
        raise Undecodable(f"{_shown(writer)} cannot be read as {_shown(reader)}")
    read, members = resolve(writer, fitting[0]), _members(reader)
    if len(members) == 1 or fitting[0] == "null":
        return read
    place, size = members.index(fitting[0]), len(members)
    return lambda stream: tuple(read(stream) if at == place else None for at in range(size))


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
        if "default" not in each:
            raise Undecodable(f"field {each['name']} is missing and has no default")
        values[at] = _default(each["default"], each["type"])

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
            if count < 0:  # The block's size follows, for those who pass over it.
                stream.zigzag()
                count = -count
            found.extend(item(stream) for _ in range(count))
        return found

    return read


def _enum(writer: Schema, reader: Schema) -> Read:
    known = set(reader["symbols"])
    symbols = [symbol if symbol in known else reader.get("default") for symbol in writer["symbols"]]

    def read(stream: ByteStream) -> str:
        place = stream.zigzag()
        symbol: str | None = _chosen(symbols, place)
        if symbol is None:
            raise Undecodable(f"{reader['name']} has no symbol {writer['symbols'][place]}")
        return symbol

    return read


def _scalar(writer: Schema, reader: Schema) -> Read:
    kind = _kind(reader)
    plain = _plain(writer)
    if kind == "date":
        return lambda stream: _FIRST_DAY + timedelta(days=plain(stream))
    if kind in _TIMES:
        unit = _TIMES[kind]
        return lambda stream: _EPOCH + timedelta(microseconds=plain(stream) * unit)
    if kind == "decimal":
        scale = reader.get("scale", 0)
        return lambda stream: decimal.Decimal(
            int.from_bytes(plain(stream), "big", signed=True)
        ).scaleb(-scale)
    if kind in ("float", "double") and _base(writer) in ("int", "long"):
        return lambda stream: float(plain(stream))
    if kind == "string" and _base(writer) == "bytes":
        return _string
    if kind == "bytes" and _base(writer) == "string":
        return _bytes
    return plain


def _plain(schema: Schema) -> Read:
    match _base(schema):
        case "null":
            return lambda _: None
        case "boolean":
            return lambda stream: stream.take(1) != b"\0"
        case "int" | "long":
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


def _bytes(stream: ByteStream) -> bytes:
    return stream.take(stream.zigzag())


def _string(stream: ByteStream) -> str:
    return stream.text(_bytes(stream))


def _default(value: Any, schema: Schema) -> Any:
    """A default, which is written as JSON, as a value."""
    if isinstance(schema, list):
        branch = schema[0]
        inner, members = _default(value, branch), _members(schema)
        if len(members) == 1 or branch == "null":
            return inner
        return tuple(inner if member is branch else None for member in members)
    match _kind(schema):
        case "record":
            return tuple(
                _default(value.get(each["name"], each.get("default")), each["type"])
                for each in schema["fields"]
            )
        case "array":
            return [_default(each, schema["items"]) for each in value]
        case "map":
            return {name: _default(each, schema["values"]) for name, each in value.items()}
        case "bytes" | "fixed":
            return value.encode("latin-1")
        case "float" | "double":
            return float(value)
        case "decimal":
            data = value.encode("latin-1")
            number = decimal.Decimal(int.from_bytes(data, "big", signed=True))
            return number.scaleb(-schema.get("scale", 0))
        case "date":
            return _FIRST_DAY + timedelta(days=value)
    if _kind(schema) in _TIMES:
        return _EPOCH + timedelta(microseconds=value * _TIMES[_kind(schema)])
    return value


def _fits(writer: Schema, reader: Schema) -> bool:
    one, other = _base(writer), _base(reader)
    if one == other:
        if one in ("record", "enum", "fixed"):
            same_name = writer["name"].rpartition(".")[2] == reader["name"].rpartition(".")[2]
            return (same_name or one == "record") and writer.get("size") == reader.get("size")
        return True
    return other in _WIDER.get(one, ())


def _base(schema: Schema) -> str:
    """The type as it is written, whatever it stands for."""
    if isinstance(schema, list):
        return "union"
    return schema if isinstance(schema, str) else schema["type"]


def _kind(schema: Schema) -> str:
    """The type as it is meant; logical types that are not known are what they are written as."""
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    known = logical in ("date", "decimal") or logical in _TIMES
    return logical if logical is not None and known else _base(schema)


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
