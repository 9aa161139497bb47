"""Batches of a table whose schema has changed: if these fail, some of them are not read."""

import pytest
from pyspark.sql import types as t

from pyspark_odradek.pipelines.ends.schemas import schema_of
from pyspark_odradek.pipelines.running.settings import PipelineError

INT, LONG, STRING = t.IntegerType(), t.LongType(), t.StringType()


def row(**fields: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, each) for name, each in fields.items()])


def documents(*schemas: t.StructType) -> list[dict[str, object]]:
    return [{"schema": schema.jsonValue()} for schema in schemas]


def test_a_type_that_grew_is_the_larger_one_in_all_batches() -> None:
    """Spark refuses to merge the two."""
    floats, doubles = (t.MapType(STRING, each) for each in (t.FloatType(), t.DoubleType()))
    small = row(key=STRING, value=row(n=INT, many=t.ArrayType(INT), by=floats))
    large = row(key=STRING, value=row(n=LONG, many=t.ArrayType(LONG), by=doubles, new=INT))
    assert schema_of(documents(small, large, small)) == large


def test_a_key_of_a_map_that_grew_is_the_larger_one_in_all_batches() -> None:
    """Protobuf's `map<int32, ...>` may become one of `int64`: Spark failed on the larger keys, and
    on all where a key was text by then."""
    small, large, text = (row(value=t.MapType(key, INT)) for key in (INT, LONG, STRING))
    assert schema_of(documents(small, large, small)) == large
    with pytest.raises(PipelineError, match=r"column value is int .* and string"):
        schema_of(documents(small, text))


def test_names_that_differ_in_case_are_one_column_unless_spark_tells_them_apart() -> None:
    """Spark refuses to read two: the table could not be read any more."""
    both = documents(row(value=row(Id=INT, shop=STRING)), row(value=row(shop=STRING, id=LONG)))
    assert schema_of(both) == row(value=row(Id=LONG, shop=STRING))
    assert schema_of(both, by_case=True) == row(value=row(Id=INT, shop=STRING, id=LONG))


def test_types_that_do_not_go_together_are_named() -> None:
    """Spark would say so in the middle of a read, without the column."""
    both = documents(row(value=row(n=INT)), row(value=row(n=STRING)))
    with pytest.raises(PipelineError, match=r"column value\.n is int .* and string"):
        schema_of(both)


def test_a_table_that_does_not_tell_its_schema_is_read_as_its_files_are() -> None:
    """Only those of `decode` change."""
    assert schema_of([]) is None
    assert schema_of([*documents(row(n=INT)), {}]) is None
