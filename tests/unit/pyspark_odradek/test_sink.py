"""If these fail, a write goes elsewhere than its options say, or its mistakes are found late."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa
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

import odradek
from odradek import ConsumerRecord
from odradek.client.errors import KafkaError
from pyspark_odradek.schema import spark_schema
from pyspark_odradek.sink import check_columns, write_batches
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


def test_a_stream_to_one_topic_is_written_exactly_once_unless_told_otherwise() -> None:
    options = parse(streaming=True, queryName="q")
    assert (options.exactly_once, options.query_name) == (True, "q")
    assert not parse(streaming=True, exactlyOnce="false").exactly_once
    assert not parse(streaming=True, topic="").exactly_once
    assert not parse().exactly_once


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kafka_bootstrap_servers": " "}, "say where to write"),
        ({"kafka_bootstrap_servers": "a b:1"}, "^Invalid url in kafka.bootstrap.servers: a b:1$"),
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
        ({"kafka_security_protocol": "TLS"}, "kafka.security.protocol: "),
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


def written(batches: Sequence[pa.RecordBatch], **options: str) -> list[ConsumerRecord]:
    """The content of a topic of one partition when a task was given these batches."""
    with odradek.Broker() as broker:
        broker.create_topic("orders", partitions=1)
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "orders"} | options
        told = write_batches(parse_sink_options(options, streaming=False), iter(batches))
        records = list(broker.records("orders"))
        assert told.records == len(records)
        return records


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string()])
def test_all_of_a_column_is_written_however_arrow_keeps_it(kind: pa.DataType) -> None:
    values = [f"v{number}" * (number % 5) if number % 7 else None for number in range(50)]
    texts = pa.array(values).cast(kind)
    keys = pa.array([None, *values[1:]]).cast(kind)
    whole = pa.RecordBatch.from_arrays([keys, texts], names=["key", "value"])
    pieces = [whole.slice(0, 1), whole.slice(1, 20), whole.slice(5, 0), whole.slice(21)]
    expected = [value.encode() if value is not None else None for value in values]
    found = written(pieces)
    assert [record.value for record in found] == expected
    assert [record.key for record in found] == [None, *expected[1:]]


def test_headers_and_times_of_a_row_are_its_own() -> None:
    at = datetime(2026, 11, 23, 5, 30, tzinfo=UTC)
    headers = [[{"key": "trace", "value": b"1"}, {"key": "none", "value": None}], None, []]
    batch = pa.RecordBatch.from_pylist(
        [
            {"value": b"%d" % number, "headers": each, "timestamp": at + timedelta(seconds=number)}
            for number, each in enumerate(headers)
        ],
        schema=pa.schema(
            [
                ("value", pa.binary()),
                ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
                ("timestamp", pa.timestamp("us", "UTC")),
            ]
        ),
    )
    found = written([batch], keepTimestamps="true")
    first_ms = int(at.timestamp() * 1000)
    assert [(each.key, list(each.headers), each.timestamp) for each in found] == [
        (None, [("trace", b"1"), ("none", None)], first_ms),
        (None, [], first_ms + 1000),
        (None, [], first_ms + 2000),
    ]


def test_a_row_without_a_topic_is_refused() -> None:
    batch = pa.RecordBatch.from_pylist([{"topic": "orders", "value": b"1"}, {"value": b"2"}])
    with pytest.raises(ValueError, match="a row has no topic"):
        written([batch], topic="")


def test_an_error_names_the_option_that_limits_the_retries() -> None:
    """A reader would look for an option that does not exist."""
    options = parse(
        kafka_bootstrap_servers="127.0.0.1:1",
        kafka_request_timeout_ms="40",
        kafka_delivery_timeout_ms="60",
    )
    batch = pa.RecordBatch.from_pydict({"value": [b"x"]})
    with pytest.raises(KafkaError, match=r"within 60 ms \(kafka\.delivery\.timeout\.ms\)"):
        write_batches(options, iter([batch]))
