"""If these fail, a write goes elsewhere than its options say, or its mistakes are found late."""

import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from pyspark_odradek.schema import spark_schema
from pyspark_odradek.sink import check_columns
from pyspark_odradek.sink_options import SinkOptions, parse_sink_options

BASE = {"kafka.bootstrap.servers": "h:1", "topic": "t"}


def parse(*, streaming: bool = False, **options: str) -> SinkOptions:
    named = {name.replace("_", "."): value for name, value in options.items()}
    return parse_sink_options({**BASE, **named}, streaming=streaming)


def schema(**types: DataType) -> StructType:
    return StructType([StructField(name, each) for name, each in types.items()])


def test_options_are_the_producers() -> None:
    options = parse(kafka_compression_type="zstd", kafka_batch_size="1000", keepTimestamps="true")
    assert (options.topic, options.bootstrap_servers) == ("t", "h:1")
    assert (options.write.codec, options.write.batch_bytes) == (4, 1000)
    assert options.keep_timestamps


def test_a_level_is_for_its_codec() -> None:
    levels = {"kafka_compression_zstd_level": "19", "kafka_compression_gzip_level": "9"}
    assert parse(kafka_compression_type="ZSTD", **levels).write.level == 19
    assert parse(kafka_compression_type="lz4", **levels).write.level is None


def test_settings_of_the_producer_that_tune_nothing_here_are_accepted() -> None:
    """A job is changed to this sink by its format alone."""
    assert parse(kafka_linger_ms="20", kafka_metadata_recovery_strategy="none") == parse()


def test_a_stream_may_be_written_exactly_once() -> None:
    options = parse(streaming=True, exactlyOnce="true", queryName="q")
    assert (options.exactly_once, options.query_name) == (True, "q")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kafka_bootstrap_servers": " "}, "say where to write"),
        ({"exactlyOnce": "true"}, "exactlyOnce is for streams"),
        ({"kafka_acks": "0"}, "kafka.acks: 0 could lose records"),
        ({"kafka_enable_idempotence": "false"}, "could write a record twice"),
        ({"kafka_transactional_id": "x"}, "kafka.transactional.id is not supported"),
        ({"kafka_compression_type": "brotli"}, "'brotli' is none of none, gzip, snappy"),
        (
            {"kafka_compression_type": "gzip", "kafka_compression_gzip_level": "10"},
            "level: '10' is no level from -1 to 9",
        ),
        ({"kafka_partitioner_ignore_keys": "true"}, "say the column partition"),
        ({"kafka_batch_size": "0"}, "no whole number of at least 1"),
        ({"topik": "t"}, "did you mean topic"),
        ({"kafka_security_protocol": "SSL"}, "SSL is not supported"),
    ],
)
def test_mistakes_are_told_before_anything_is_written(options: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse(**options)


def test_exactly_once_needs_a_topic_for_its_marker() -> None:
    with pytest.raises(ValueError, match="needs the option topic"):
        parse(streaming=True, exactlyOnce="true", topic="")


def test_what_was_read_can_be_written() -> None:
    columns = ("key", "value", "topic", "partition", "timestamp", "headers", "offset")
    check_columns(parse(keepTimestamps="true"), spark_schema(columns))
    check_columns(parse(), schema(value=StringType(), timestamp=LongType(), other=LongType()))


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ({"key": BinaryType()}, {}, "no column value"),
        ({"value": LongType()}, {}, "column value is of type bigint, not binary or string"),
        (
            {"value": BinaryType(), "partition": LongType()},
            {},
            "column partition is of type bigint",
        ),
        ({"value": BinaryType()}, {"topic": ""}, "the option topic, or a column topic"),
        ({"value": BinaryType()}, {"keepTimestamps": "true"}, "there is no column timestamp"),
        ({"value": BinaryType(), "headers": StringType()}, {}, "column headers is of type string"),
        ({"value": BinaryType(), "topic": IntegerType()}, {"topic": ""}, "topic is of type int"),
        (
            {"value": BinaryType(), "timestamp": LongType()},
            {"keepTimestamps": "true"},
            "column timestamp is of type bigint, not timestamp",
        ),
    ],
)
def test_columns_that_cannot_be_written_are_refused(columns, options, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_columns(parse(**options), schema(**columns))
