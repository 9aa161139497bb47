"""The columns of a topic, as Spark's Kafka connector names and types them.

`headers` comes only when it is asked for. Spark does not tell a Python data source which columns a
query needs, so the option `columns` does: unread columns cost nothing.
"""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from odradek.tables.columns import HEADERS

COLUMN_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}


def spark_schema(columns: tuple[str, ...]) -> StructType:
    """The schema of these columns, in this order; like the connector's, all may be null."""
    return StructType([StructField(name, COLUMN_TYPES[name]) for name in columns])


def check_schema(schema: StructType) -> StructType:
    """The schema that a read is asked for, which may be some columns of ours.

    Raises:
        ValueError: it has a column that we do not have, or one of another type.
    """
    for field in schema:
        if COLUMN_TYPES.get(field.name) != field.dataType:
            raise ValueError(f"there is no column {field.name} of type {field.dataType}")
    return schema
