"""If these fail, a job changed from `kafka` to `odradek` reads something else, or is refused."""

import pickle
import re

import pytest

from odradek.client.errors import KafkaError
from odradek.model import TopicPartition
from odradek.tables.columns import HEADERS, PLAIN_COLUMNS
from odradek.tables.plan.bounds import open_cluster
from odradek.tables.plan.offsets import EARLIEST, LATEST, AtTime, EndOfLog, ExactOffsets
from odradek.tables.plan.options import ClientOptions, ReadOptions, TopicSelection
from pyspark_odradek.options import parse_columns, parse_options

BASE = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}


def parse(streaming: bool = False, **options: str) -> ReadOptions:
    named = {name.replace("_", "."): value for name, value in options.items()}
    return parse_options({**BASE, **named}, streaming=streaming)


def test_names_count_in_any_case() -> None:
    options = parse_options(
        {"KAFKA.BOOTSTRAP.SERVERS": "h:1", "Subscribe": "b, a,b", "MAXOFFSETSPERTRIGGER": "5"},
        streaming=True,
    )
    assert options.selection == TopicSelection(names=("a", "b"))
    assert options.max_offsets_per_trigger == 5


def test_a_batch_reads_everything_and_a_stream_what_is_new() -> None:
    assert parse().starting == EndOfLog(EARLIEST)
    assert parse().ending == EndOfLog(LATEST)
    assert parse(streaming=True).starting == EndOfLog(LATEST)


def test_a_time_goes_before_times_and_these_before_offsets() -> None:
    assert parse(startingTimestamp="12", startingOffsets="earliest").starting == AtTime(12)
    offsets = ExactOffsets({TopicPartition("t", 0): 3})
    assert parse(startingOffsets='{"t":{"0":3}}').starting == offsets


def test_options_travel_to_workers() -> None:
    options = parse(startingOffsets='{"t":{"0":3}}', path="/a, /b")
    assert pickle.loads(pickle.dumps(options)) == options
    assert options.log_dirs == ("/a", "/b")


def test_options_that_only_tune_the_connector_are_taken_and_do_nothing() -> None:
    assert parse(kafka_max_poll_records="1") == parse()


def test_a_query_is_seen_as_the_group_that_options_name() -> None:
    """Dashboards look for the group that the connector's query had."""
    assert parse().group == "spark.{}"
    assert parse(groupIdPrefix="etl").group == "etl.{}"
    assert parse(groupIdPrefix="etl", kafka_group_id="billing").group == "billing"


@pytest.mark.parametrize("name", ["fetchOffset.numRetries", "fetchOffset.retryIntervalMs"])
def test_options_of_the_connector_that_could_do_nothing_are_refused(name: str) -> None:
    """Users who set them would believe that they are heeded."""
    with pytest.raises(ValueError, match=rf"{name} is not supported"):
        parse(**{name.replace(".", "_"): "3"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"assign": '{"t":[0]}'}, "exactly one of"),
        ({"startingOffsets": "latest"}, "cannot start at the latest"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "cannot start at the latest"),
        ({"endingOffsets": "earliest"}, "cannot end at the earliest"),
        ({"maxOffsetPerTrigger": "1"}, "did you mean maxOffsetsPerTrigger"),
        ({"minPartitions": "0"}, "at least 1"),
        ({"minPartitions": "-1"}, "whole number"),
        ({"failOnDataLoss": "no"}, "neither true nor false"),
        ({"subscribe": " , "}, "no topic"),
        ({"startingOffsetsByTimestampStrategy": "soon"}, "neither error nor latest"),
        ({"kafka.isolation.level": "dirty"}, "no level"),
        ({"kafka.sasl.jaas.confg": "x"}, "did you mean kafka.sasl.jaas.config"),
        ({"kafka.auto.offset.reset": "earliest"}, "startingOffsets"),
        ({"kafka.value.deserializer": "x"}, "cast it in Spark"),
        ({"kafka.isolation.level": "read_committed", "path": "/d"}, "leave out path"),
        ({"kafka.bootstrap.servers": ""}, "where to read"),
        ({"kafka.bootstrap.servers": "a b:1"}, "^Invalid url in kafka.bootstrap.servers: a b:1$"),
    ],
)
def test_mistakes_are_named(options: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_options({**BASE, **options}, streaming=False)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(ValueError, match="stream"):
        parse(streaming=True, endingOffsets="latest")


def test_a_pattern_must_match_the_whole_name() -> None:
    selection = TopicSelection(pattern="order.*")
    assert selection.takes("orders")
    assert not selection.takes("my-orders")
    with pytest.raises(ValueError, match="regular expression"):
        parse_options({"kafka.bootstrap.servers": "h:1", "subscribePattern": "("}, streaming=False)


def test_a_pattern_is_one_of_javas() -> None:
    """A job that changed from the connector read other topics, or none, and nobody told it."""
    given = {"kafka.bootstrap.servers": "h:1", "subscribePattern": r"\Qteam.\E\p{Lower}+(?<n>\d)?"}
    selection = parse_options(given, streaming=False).selection
    assert selection.takes("team.red1")
    assert not selection.takes("team-red")
    refused = {**given, "subscribePattern": "team-[a-z&&[^x]]"}
    with pytest.raises(ValueError, match="cannot be matched here: RE2 has no intersections"):
        parse_options(refused, streaming=False)


def test_columns_are_the_connectors_unless_some_are_asked_for() -> None:
    assert parse_columns({}) == PLAIN_COLUMNS
    assert parse_columns({"includeHeaders": "True"}) == (*PLAIN_COLUMNS, HEADERS)
    assert parse_columns({"columns": "Offset, KEY,offset"}) == ("offset", "key")
    with pytest.raises(ValueError, match="there is no column 'body'"):
        parse_columns({"columns": "key,body"})


def test_a_misspelt_setting_of_the_client_is_refused() -> None:
    """It would be taken for one that only tunes the connector."""
    with pytest.raises(ValueError, match=r"did you mean kafka\.fetch\.max\.bytes"):
        parse(kafka_fetch_max_byte="1")


def test_a_trigger_may_wait_for_more() -> None:
    options = parse(streaming=True, minOffsetsPerTrigger="5", maxTriggerDelay="2m")
    assert (options.min_offsets_per_trigger, options.max_trigger_delay_ms) == (5, 120_000)
    assert parse(streaming=True, maxTriggerDelay="1500").max_trigger_delay_ms == 1500
    with pytest.raises(ValueError, match="minOffsetsPerTrigger: 9 is more than the 5"):
        parse(streaming=True, minOffsetsPerTrigger="9", maxOffsetsPerTrigger="5")
    with pytest.raises(ValueError, match="'soon' is no time"):
        parse(streaming=True, maxTriggerDelay="soon")


@pytest.mark.parametrize(
    ("patiently", "limit"),
    [(False, "60 ms (kafka.request.timeout.ms)"), (True, "90 ms (kafkaConsumer.pollTimeoutMs)")],
)
def test_an_error_names_the_option_that_limits_the_wait(patiently: bool, limit: str) -> None:
    """A reader would look for an option that does not exist."""
    options = parse(
        kafka_bootstrap_servers="127.0.0.1:1",
        kafka_request_timeout_ms="60",
        kafkaConsumer_pollTimeoutMs="90",
    )
    refused = pytest.raises(KafkaError, match=rf"within {re.escape(limit)}$")
    with open_cluster(options, patiently=patiently) as cluster, refused:
        cluster.topics()


def test_an_error_of_a_reader_without_options_names_none() -> None:
    client = ClientOptions("127.0.0.1:1", request_timeout_ms=60)
    options = ReadOptions(TopicSelection(names=("t",)), client)
    refused = pytest.raises(KafkaError, match=r"within 60 ms$")
    with open_cluster(options, patiently=False) as cluster, refused:
        cluster.topics()
