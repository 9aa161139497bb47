"""How large the records of an archive are, and of which time: what a topic has to take, and not to
remove."""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

_OF_A_HEADER: Final = 10
# What the log has beside keys, values and headers, where each record is a batch of its own.
_OF_A_RECORD: Final = 97


@dataclass(frozen=True)
class Extent:
    """The size of the largest record and of the largest partition, in bytes and not compressed,
    the latter at most; the first and last time of a record, in milliseconds; and how many records
    have no key.
    """

    largest_record: int
    largest_partition: int
    oldest_ms: int
    newest_ms: int
    without_key: int


def extent_of(records: DataFrame) -> Extent:
    """Returns the extent of records, of which there is one at least."""
    size, time = _size(records), f.unix_millis("timestamp")
    of_all = records.groupBy("partition").agg(
        f.max(size).alias("record"),
        f.sum(size + f.lit(_OF_A_RECORD)).alias("partition_bytes"),
        f.min(time).alias("oldest"),
        f.max(time).alias("newest"),
        f.count_if(f.isnull("key")).alias("without_key"),
    )
    found = of_all.agg(
        f.max("record"),
        f.max("partition_bytes"),
        f.min("oldest"),
        f.max("newest"),
        f.sum("without_key"),
    ).collect()
    return Extent(*found[0])


def _size(records: DataFrame) -> Column:
    in_headers = f.aggregate(
        f.coalesce("headers", f.array().cast(records.schema["headers"].dataType)),
        f.lit(0).cast("long"),
        lambda total, each: (
            total + _bytes_in(each["key"]) + _bytes_in(each["value"]) + f.lit(_OF_A_HEADER)
        ),
    )
    return _bytes_in(f.col("key")) + _bytes_in(f.col("value")) + in_headers


def _bytes_in(column: Column) -> Column:
    return f.coalesce(f.octet_length(column), f.lit(0)).cast("long")
