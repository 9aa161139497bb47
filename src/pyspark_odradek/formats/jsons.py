"""JSON, and the part of JSON Schema that defines the columns of a table."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

from pyspark.sql import types as t

from pyspark_odradek.formats import limits
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
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORDS: Final = {"true": True, "false": False}
_NOT_A_NUMBER: Final = Decimal("NaN")


class Number:
    """A number in its written form: a float would lose digits that a column shows."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text: Final = text


def spark_type(text: str) -> t.DataType:
    """The type of a column for a JSON Schema; a value without a type there becomes text.

    Raises:
        UnusableSchema: it is none, or a type contains itself, which no table can, or there are
            too many.
    """
    try:
        document = json.loads(text)
        return _type_of(document, document, (), limits.TypeCount())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnusableSchema(f"this is no JSON Schema: {error!r}") from None


def _type_of(
    node: Mapping[str, Any],
    root: Mapping[str, Any],
    seen: tuple[str, ...],
    count: limits.TypeCount,
) -> t.DataType:
    count.add()
    if "$ref" in node:
        return _referenced(node["$ref"], root, seen, count)
    for choice in ("oneOf", "anyOf"):
        others = [each for each in node.get(choice, ()) if each.get("type") != "null"]
        if len(others) == 1:
            return _type_of(others[0], root, seen, count)
    kind = node.get("type", "object" if "properties" in node else None)
    if isinstance(kind, list):
        others = [each for each in kind if each != "null"]
        kind = others[0] if len(others) == 1 else None
    if kind == "array":
        return t.ArrayType(_type_of(node.get("items", {}), root, seen, count))
    if kind == "object" and "properties" in node:
        fields = node["properties"].items()
        return t.StructType(
            [t.StructField(name, _type_of(each, root, seen, count)) for name, each in fields]
        )
    if kind == "object":
        more = node.get("additionalProperties")
        value = _type_of(more if isinstance(more, dict) else {}, root, seen, count)
        return t.MapType(t.StringType(), value)
    return t.StringType() if kind is None else _TYPES[kind]


def _referenced(
    place: str, root: Mapping[str, Any], seen: tuple[str, ...], count: limits.TypeCount
) -> t.DataType:
    if place in seen:
        raise UnusableSchema(f"{place} contains itself, which no table can")
    if not place.startswith("#/"):
        raise UnusableSchema(f"{place} is in another schema, which is not read")
    node: Any = root
    for name in place[2:].split("/"):
        node = node[name]
    return _type_of(node, root, (*seen, place), count)


def parse(value: bytes) -> Any:
    """Parses a value into dicts, lists, texts and `Number`s.

    Raises:
        Undecodable: it has a number that JSON does not allow, or an object with a key twice.
        ValueError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    return json.loads(
        value,
        parse_float=Number,
        parse_int=Number,
        parse_constant=_refuse,
        object_pairs_hook=_object,
    )


def _refuse(text: str) -> Any:
    raise Undecodable(f"{text} is no number of JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise Undecodable(f"an object has the key {json.dumps(name)[:_SHOWN]} twice")
    return found


def converter(type: t.DataType) -> Convert:
    """The function that converts the result of `parse` to a column's value.

    A missing field is null, one without a column is ignored, and a text column takes anything, as
    JSON.

    Raises:
        UnusableSchema: JSON has nothing for such a column.
    """
    match type:
        case t.StructType():
            names = [each.name for each in type.fields]
            columns = [_given(each.dataType, each.nullable) for each in type.fields]
            return lambda value: _row(value, names, columns)
        case t.ArrayType():
            item = _given(type.elementType, type.containsNull)
            return _of(list, "a list", lambda value: [item(each) for each in value])
        case t.MapType():
            key, inner = _key(type.keyType), _given(type.valueType, type.valueContainsNull)
            return _of(dict, "an object", lambda value: _entries(value, key, inner))
        case t.StringType():
            return _text
        case t.BooleanType():
            return _of(bool, "true or false", bool)
        case t.DoubleType():
            return _of(Number, "a number", _float)
        case t.FloatType():
            return _of(Number, "a number", _single)
        case t.DecimalType():
            fitting = limits.decimal(type.precision, type.scale)
            return _of((Number, str), "a number", lambda value: fitting(_decimal(value)))
        case t.TimestampType():
            return _of(str, "a time", _time)
        case t.DateType():
            return _of(str, "a date", date.fromisoformat)
    bits = next((bits for kind, bits in _INTEGERS.items() if isinstance(type, kind)), None)
    if bits is not None:
        return _integer(bits)
    raise UnusableSchema(f"JSON has nothing for a column of type {type.simpleString()}")


def _given(type: t.DataType, is_nullable: bool) -> Convert:
    convert = converter(type)
    if is_nullable:
        return convert

    def given(value: Any) -> Any:
        if value is None:
            raise Undecodable("it is not there, and may not be null")
        return convert(value)

    return given


def _key(type: t.DataType) -> Convert:
    """Converts keys, which are texts in JSON, to the type of the key."""
    convert = converter(type)
    match type:
        case t.StringType():
            return convert
        case t.NumericType():
            return lambda key: convert(Number(key) if _NUMBER.fullmatch(key) else key)
        case t.BooleanType():
            return lambda key: convert(_WORDS.get(key, key))
        case t.TimestampType() | t.DateType():
            return convert
    raise UnusableSchema(f"JSON has no keys of type {type.simpleString()}")


def _entries(value: dict[str, Any], key: Convert, inner: Convert) -> dict[Any, Any]:
    entries = {key(name): inner(each) for name, each in value.items()}
    if len(entries) < len(value):
        raise Undecodable("two keys of a map are the same")
    return entries


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return limits.text(value) if isinstance(value, str) else _as_json(value)


def _decimal(value: Number | str) -> Decimal:
    written = value.text if isinstance(value, Number) else value
    # In Python `_` may stand between digits.
    number = _NOT_A_NUMBER if "_" in written else _exact(written)
    if number.is_finite():
        return number
    why = "is not a number" if isinstance(value, str) else "has too large an exponent"
    raise Undecodable(f"{_as_json(value)[:_SHOWN]} {why}")


def _exact(text: str) -> Decimal:
    try:
        return Decimal(text)
    except ArithmeticError:
        return _NOT_A_NUMBER


def _float(value: Number) -> float:
    number = float(value.text)
    if math.isinf(number):
        raise Undecodable(f"{value.text[:_SHOWN]} is too large")
    return number


def _single(value: Number) -> float:
    try:
        return limits.single(_float(value))
    except OverflowError:
        raise Undecodable(f"{value.text[:_SHOWN]} is too large") from None


def _integer(bits: int) -> Convert:
    fitting, shown = limits.integer(bits), f"a number of {bits} bits"

    def convert(value: Number) -> int:
        if not value.text.removeprefix("-").isdecimal():
            raise Undecodable(f"{value.text[:_SHOWN]} is not {shown}")
        return fitting(int(value.text))

    return _of(Number, shown, convert)


def _as_json(value: Any) -> str:
    match value:
        case Number():
            return value.text
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
    def checked(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, kind):
            raise Undecodable(f"{_as_json(value)[:_SHOWN]} is not {shown}")
        return convert(value)

    return checked


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return limits.moment(time if time.tzinfo is not None else time.replace(tzinfo=UTC))
