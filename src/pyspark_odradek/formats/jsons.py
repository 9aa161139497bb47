"""JSON, and the part of JSON Schema that says which columns a table has."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any, Final

from pyspark.sql import types as t

from pyspark_odradek.formats.errors import Undecodable, UnusableSchema

Convert = Callable[[Any], Any]
_SHOWN: Final = 40
_INTEGERS: Final[dict[type[t.DataType], int]] = {
    t.ByteType: 8,
    t.ShortType: 16,
    t.IntegerType: 32,
    t.LongType: 64,
}
_TYPES: Final[dict[str, t.DataType]] = {
    "string": t.StringType(),
    "integer": t.LongType(),
    "number": t.DoubleType(),
    "boolean": t.BooleanType(),
    "null": t.NullType(),
}


def spark_type(text: str) -> t.DataType:
    """The type of a column for a JSON Schema; what has no type there is text.

    Raises:
        UnusableSchema: it is none, or a type contains itself, which no table can.
    """
    try:
        document = json.loads(text)
        return _type_of(document, document, ())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnusableSchema(f"this is no JSON Schema: {error!r}") from None


def _type_of(node: Mapping[str, Any], root: Mapping[str, Any], seen: tuple[str, ...]) -> t.DataType:
    if "$ref" in node:
        return _referenced(node["$ref"], root, seen)
    for choice in ("oneOf", "anyOf"):
        others = [each for each in node.get(choice, ()) if each.get("type") != "null"]
        if len(others) == 1:
            return _type_of(others[0], root, seen)
    kind = node.get("type", "object" if "properties" in node else None)
    if isinstance(kind, list):
        others = [each for each in kind if each != "null"]
        kind = others[0] if len(others) == 1 else None
    if kind == "array":
        return t.ArrayType(_type_of(node.get("items", {}), root, seen))
    if kind == "object" and "properties" in node:
        fields = node["properties"].items()
        return t.StructType(
            [t.StructField(name, _type_of(each, root, seen)) for name, each in fields]
        )
    if kind == "object":
        more = node.get("additionalProperties")
        value = _type_of(more if isinstance(more, dict) else {}, root, seen)
        return t.MapType(t.StringType(), value)
    return t.StringType() if kind is None else _TYPES[kind]


def _referenced(place: str, root: Mapping[str, Any], seen: tuple[str, ...]) -> t.DataType:
    if place in seen:
        raise UnusableSchema(f"{place} contains itself, which no table can")
    if not place.startswith("#/"):
        raise UnusableSchema(f"{place} is in another schema, which is not read")
    node: Any = root
    for name in place[2:].split("/"):
        node = node[name]
    return _type_of(node, root, (*seen, place))


def converter(type: t.DataType) -> Convert:
    """The function that makes a column's value of what JSON has for it.

    What is missing is null, what has no column is passed over, and a text column takes
    anything, as JSON.
    """
    match type:
        case t.StructType():
            names = [each.name for each in type.fields]
            columns = [converter(each.dataType) for each in type.fields]
            return lambda value: _row(value, names, columns)
        case t.ArrayType():
            item = converter(type.elementType)
            return _of(list, "a list", lambda value: [item(each) for each in value])
        case t.MapType():
            inner = converter(type.valueType)
            return _of(dict, "an object", lambda value: {k: inner(v) for k, v in value.items()})
        case t.StringType():
            return lambda value: (
                value if value is None or isinstance(value, str) else _as_json(value)
            )
        case t.BooleanType():
            return _of(bool, "true or false", bool)
        case t.FloatType() | t.DoubleType():
            return _of((int, float, Decimal), "a number", float)
        case t.DecimalType():
            return _of((int, Decimal, str), "a number", Decimal)
        case t.TimestampType():
            return _of(str, "a time", _time)
        case t.DateType():
            return _of(str, "a date", date.fromisoformat)
    bits = next((bits for kind, bits in _INTEGERS.items() if isinstance(type, kind)), None)
    if bits is not None:
        return _of(int, f"a number of {bits} bits", partial(_fitting, bits))
    raise UnusableSchema(f"JSON has nothing for a column of type {type.simpleString()}")


def keeps_digits(type: t.DataType) -> bool:
    """Whether a column shows a number as it is written, which a float may not be able to."""
    match type:
        case t.StructType():
            return any(keeps_digits(each.dataType) for each in type.fields)
        case t.ArrayType():
            return keeps_digits(type.elementType)
        case t.MapType():
            return keeps_digits(type.valueType)
    return isinstance(type, t.StringType | t.DecimalType)


def _as_json(value: Any) -> str:
    """The text of a value that was read with `parse_float=Decimal`."""
    match value:
        case Decimal():
            return str(value)
        case dict():
            inner = (f"{json.dumps(name)}: {_as_json(each)}" for name, each in value.items())
            return f"{{{', '.join(inner)}}}"
        case list():
            return f"[{', '.join(map(_as_json, value))}]"
    return json.dumps(value)


def _row(value: Any, names: list[str], columns: list[Convert]) -> tuple[Any, ...] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise Undecodable(f"{_as_json(value)[:_SHOWN]} is not an object")
    row = []
    for name, column in zip(names, columns, strict=True):
        try:
            row.append(column(value.get(name)))
        except (Undecodable, ValueError, ArithmeticError) as error:
            raise Undecodable(f"field {name}: {error}") from None
    return tuple(row)


def _of(kind: Any, shown: str, convert: Convert) -> Convert:
    wants_bool = kind is bool

    def checked(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, kind) or isinstance(value, bool) != wants_bool:
            raise Undecodable(f"{_as_json(value)[:_SHOWN]} is not {shown}")
        return convert(value)

    return checked


def _fitting(bits: int, value: int) -> int:
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise Undecodable(f"{value} is not a number of {bits} bits")
    return value


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
