"""Values as they come out of `decode` are in the files of its table as they are.

What a column of Spark's can hold is said in `tests/property/test_decoded_values.py` without Spark.
If this fails it was said wrongly: Spark makes something up, or a value ends the job.
"""

import json
import math
import struct
from datetime import UTC
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t
from tests.property.test_decoded_values import (
    avro_records,
    avro_scalars,
    avro_value,
    columns,
    damaged,
    descriptors,
    document_of,
    parts,
)

from pyspark_odradek.formats import Decoder, Undecodable, UnusableSchema, decoder_for
from pyspark_odradek.pipelines.decode import decoded

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

MANY = {"min_size": 20, "max_size": 20}
# Each is a job of Spark's: what fails is not made smaller.
few = settings(max_examples=2, phases=[Phase.generate])


def told(column: t.DataType, value: Any) -> Any:
    """A value, of a decoder or of a file, so that both are equal where they are the same."""
    if value is None:
        return None
    match column:
        case t.StructType():
            inner = value.values() if isinstance(value, dict) else value
            fields = zip(column.fields, inner, strict=True)
            return [told(each.dataType, part) for each, part in fields]
        case t.ArrayType():
            return [told(column.elementType, each) for each in value]
        case t.MapType():
            pairs = value.items() if isinstance(value, dict) else value
            return {told(column.keyType, k): told(column.valueType, v) for k, v in pairs}
        case t.TimestampType():
            return value.replace(tzinfo=UTC)
        case t.FloatType() if math.isfinite(value):
            return struct.unpack("<f", struct.pack("<f", value))[0]
        case t.FloatType() | t.DoubleType() if math.isnan(value):
            return "NaN"
    return value


def check(spark: Any, place: Path, decoder: Decoder, values: list[bytes]) -> None:
    records = spark.createDataFrame(list(enumerate(values)), "n INT, value BINARY").coalesce(1)
    decoded(records, decoder).select("n", "_row", "_reason").write.mode("overwrite").parquet(
        str(place)
    )
    [file] = place.glob("part-*")
    rows = pq.read_table(file, coerce_int96_timestamp_unit="us").to_pylist()
    assert [row["n"] for row in rows] == list(range(len(values)))
    for value, row in zip(values, rows, strict=True):
        found, why = told(decoder.type, row["_row"]), row["_reason"]
        try:
            assert (found, why) == (told(decoder.type, decoder.decode(value)), None), value
        except (Undecodable, UnusableSchema):
            assert (found, why is None) == (None, False), value


@few
@given(st.data())
def test_json(spark, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    schema = t.StructType()
    for name in ("a", "b", "c"):
        schema = schema.add(name, data.draw(columns), data.draw(st.booleans()))
    values = data.draw(st.lists(damaged(document_of(schema).map(str.encode)), **MANY))
    decoder = decoder_for("json", schema=schema, registry=None, subject="")
    check(spark, tmp_path_factory.mktemp("json"), decoder, values)


@few
@given(st.data())
def test_avro(spark, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    place = tmp_path_factory.mktemp("avro")
    schema = data.draw(avro_records(avro_scalars).filter(lambda each: each["fields"]))
    (place / "s.avsc").write_text(json.dumps(schema))
    decoder = decoder_for("avro", schema=str(place / "s.avsc"), registry=None, subject="")
    check(spark, place / "out", decoder, data.draw(st.lists(damaged(avro_value(schema)), **MANY)))


@few
@given(descriptors(), st.lists(st.lists(parts, max_size=4).map(b"".join), **MANY))
def test_protobuf(
    spark, tmp_path_factory: pytest.TempPathFactory, schema: bytes, values: list[bytes]
) -> None:
    place = tmp_path_factory.mktemp("protobuf")
    (place / "s.desc").write_bytes(schema)
    decoder = decoder_for("protobuf", schema=str(place / "s.desc"), registry=None, subject="")
    check(spark, place / "out", decoder, values)
