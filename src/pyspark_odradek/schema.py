"""The columns of a topic, with the names and types of Spark's Kafka connector.

`headers` is included only on request. Spark does not tell a Python data source which columns a
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
    """Returns the schema of these columns in this order; all are nullable, as the connector's."""
    return StructType([StructField(name, COLUMN_TYPES[name]) for name in columns])


def check_schema(schema: StructType) -> StructType:
    """Checks a schema that the user gives, which may have some of our columns.

    Raises:
        ValueError: it has an unknown column, or one of another type.
    """
    for field in schema:
        if COLUMN_TYPES.get(field.name) != field.dataType:
            raise ValueError(f"there is no column {field.name} of type {field.dataType}")
    return schema
