"""The schema of a table whose batches have several schemas, since the data's own changed.

A column that was added later is null in earlier batches; an `int` that became a `long` is a `long`
in all of them, which Spark can read from either type, but does not merge by itself. Names that
differ in case are one column, unless Spark tells them apart.
"""

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StructField,
    StructType,
)

from pyspark_odradek.pipelines.running.settings import PipelineError

# The wider types that each of these may be read as.
_WIDER: Final[dict[DataType, tuple[DataType, ...]]] = {
    IntegerType(): (LongType(), DoubleType()),
    FloatType(): (DoubleType(),),
}


def schema_of(documents: Iterable[dict[str, Any]], *, by_case: bool = False) -> StructType | None:
    """Returns the schema of batches from their documents; None if one lacks its schema.

    With `by_case` names that differ in case are two columns.

    Raises:
        PipelineError: a column has two types without a common wider one.
    """
    told = [document.get("schema") for document in documents]
    if not told or None in told:
        return None
    name_of: Callable[[str], str] = str if by_case else str.lower
    found = reduce(lambda one, other: widened(one, other, "", name_of), map(_type_of, told))
    assert isinstance(found, StructType), "a table has columns"
    return found


def widened(one: DataType, other: DataType, name: str, name_of: Callable[[str], str]) -> DataType:
    """Returns a type that can hold values of both. Fields with the same `name_of` are one.

    Raises:
        PipelineError: there is none.
    """
    if one == other or one in _WIDER.get(other, ()):
        return one
    if other in _WIDER.get(one, ()):
        return other
    match one, other:
        case StructType(), StructType():
            theirs = {name_of(field.name): field for field in other.fields}
            both = [(mine, theirs.pop(name_of(mine.name), mine)) for mine in one.fields]
            fields = [_field(mine, their, name, name_of) for mine, their in both]
            return StructType([*fields, *theirs.values()])
        case ArrayType(), ArrayType():
            return ArrayType(widened(one.elementType, other.elementType, name, name_of))
        case MapType(), MapType():
            key = widened(one.keyType, other.keyType, name, name_of)
            return MapType(key, widened(one.valueType, other.valueType, name, name_of))
    raise PipelineError(
        f"column {name} is {one.simpleString()} in some batches and {other.simpleString()} in "
        "others: read them apart"
    )


def _field(
    one: StructField, other: StructField, name: str, name_of: Callable[[str], str]
) -> StructField:
    path = f"{name}.{one.name}".removeprefix(".")
    return StructField(one.name, widened(one.dataType, other.dataType, path, name_of))


def _type_of(told: Any) -> DataType:
    return StructType.fromJson(told)
