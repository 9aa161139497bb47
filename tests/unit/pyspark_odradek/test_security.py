"""TLS and SASL of source and sink, without a JVM: what a query's planning and its tasks do with
their options. If these fail, brokers that ask for them cannot be reached, or a secret is shown.
"""

import asyncio
import pickle
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace

import pyarrow as pa
import pytest
from tests.issuers import Issuer
from tests.unit.pyspark_odradek.test_progress import progress

import odradek
from odradek.client import Admin
from odradek.client.security_options import SecurityOptions
from odradek.config.definition import ConfigError
from odradek.model import TopicPartition
from odradek.tables.write.query_run import QueryRun
from pyspark_odradek.errors import SourceError
from pyspark_odradek.options import parse_options
from pyspark_odradek.pipelines import Outcome, PipelineError, PipelineSettings, report_page
from pyspark_odradek.pipelines.bookkeeping.described import describe
from pyspark_odradek.pipelines.ends.snapshots import topic_spans
from pyspark_odradek.pipelines.ends.topics import create_topic
from pyspark_odradek.pipelines.running import runner
from pyspark_odradek.progress import ProgressGroups
from pyspark_odradek.schema import spark_schema
from pyspark_odradek.sink import commit_prepared, write_batches, write_once
from pyspark_odradek.sink_options import parse_sink_options
from pyspark_odradek.source import BatchReader, StreamReader
from pyspark_odradek.tasks import ReadTask

USERS = {"alice": "s3cret"}
ROWS = [b"a", b"b"]
SCHEMA = spark_schema(("value",))
SASL = {
    "kafka.bootstrap.servers": "h:1",
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="s3cret";'
    ),
}


@pytest.fixture(scope="module", params=["scram+tls", "mtls", "plain"])
def broker(request: pytest.FixtureRequest) -> Iterator[odradek.Broker]:
    with odradek.Broker(security=request.param, users=USERS) as broker:
        yield broker


def settings_of(broker: odradek.Broker, topic: str) -> PipelineSettings:
    login = broker.login("alice").java()
    return PipelineSettings(broker.bootstrap_servers, topic, security=SecurityOptions.of(login))


def batches() -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pylist([{"value": row} for row in ROWS])


def test_what_is_written_is_read_by_planning_and_tasks(broker: odradek.Broker) -> None:
    """By batches, by streams, and exactly once; each is sent to its tasks as it is."""
    options = broker.login("alice").spark()
    create_topic(settings_of(broker, "t").brokers, "t")
    sink = parse_sink_options({**options, "topic": "t"}, streaming=True)
    assert write_batches(pickle.loads(pickle.dumps(sink)), batches()).records == 2
    run = QueryRun("q", "q", "run", TopicPartition("t", 0))
    prepared = write_once(pickle.loads(pickle.dumps(sink)), batches(), run, 0, 0)
    commit_prepared(sink, [prepared], 0)
    committed = {**options, "subscribe": "t", "kafka.isolation.level": "read_committed"}
    reader = BatchReader(parse_options(committed, streaming=False), SCHEMA)
    assert read(reader, reader.partitions()) == ROWS * 2
    stream = StreamReader(
        parse_options({**committed, "startingOffsets": "earliest"}, streaming=True), SCHEMA
    )
    begin = stream.initialOffset()
    end = stream.latestOffset(begin, stream.getDefaultReadLimit())
    assert read(stream, stream.partitions(begin, end)) == ROWS * 2
    stream.stop()


def test_tasks_come_in_with_tokens_of_an_issuer() -> None:
    """Jobs have their login from an identity provider; each task asking it would be too many."""
    with Issuer() as issuer, odradek.Broker(security="oauth", users=USERS) as broker:
        broker.create_topic("t", partitions=2)
        for partition, value in enumerate(ROWS):
            broker.produce("t", value, partition=partition)
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.login.callback.handler.class": (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
            ),
            "kafka.sasl.oauthbearer.token.endpoint.url": issuer.url,
            "kafka.sasl.jaas.config": (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
                'clientId="etl" clientSecret="s3cret" scope="kafka";'
            ),
        }
        found = parse_options({**options, "subscribe": "t"}, streaming=False)
        reader = BatchReader(found, SCHEMA)
        tasks = reader.partitions()
        assert len(tasks) == 2
        assert sorted(read(reader, tasks)) == ROWS
        sink = parse_sink_options({**options, "topic": "t"}, streaming=False)
        assert write_batches(pickle.loads(pickle.dumps(sink)), batches()).records == 2
        assert "s3cret" not in repr(found) + repr(sink)
        [asked] = issuer.asked
        assert asked.form == {"grant_type": ["client_credentials"], "scope": ["kafka"]}


def read(reader: BatchReader | StreamReader, tasks: object) -> list[bytes]:
    """The values that the tasks of a reader read, each in another process as it were."""
    assert isinstance(tasks, list | tuple)
    found = []
    for task in tasks:
        assert isinstance(task, ReadTask)
        there, piece = pickle.loads(pickle.dumps((reader_for_tasks(reader), task)))
        for batch in there.read(piece):
            found += batch.column("value").to_pylist()
    return found


def reader_for_tasks(reader: BatchReader | StreamReader) -> BatchReader:
    return BatchReader(reader._options, reader._schema)


def test_one_who_may_not_come_in_is_told_so(broker: odradek.Broker) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "t"}
    hasty = {**options, "kafka.request.timeout.ms": "300"}
    with pytest.raises(SourceError):
        BatchReader(parse_options(hasty, streaming=False), SCHEMA).partitions()


def test_a_pipeline_that_may_not_come_in_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """`lag` asks without Spark, and ended with a traceback."""
    spark = SimpleNamespace(streams=SimpleNamespace(addListener=lambda _: None))
    monkeypatch.setattr(runner, "session", lambda *_, **__: nullcontext(spark))
    with odradek.Broker(security="plain", users=USERS) as broker:
        login = broker.login("alice").java()
        forgotten = {name: text.replace("s3cret", "forgotten") for name, text in login.items()}
        settings = PipelineSettings(
            broker.bootstrap_servers, "t", security=SecurityOptions.of(forgotten)
        )
        with pytest.raises(PipelineError, match=r"^SASL_AUTHENTICATION_FAILED: .*or password$"):
            runner.run_pipeline("lag", settings)


def test_a_pipeline_without_an_address_says_so_before_spark_starts() -> None:
    """It ended with a traceback."""
    with pytest.raises(PipelineError, match=r"^Invalid url in bootstrap\.servers: a b:1$"):
        runner.run_pipeline("lag", PipelineSettings("a b:1", "t"))


def test_pipelines_look_after_topics_there(broker: odradek.Broker) -> None:
    settings = settings_of(broker, "made")
    assert topic_spans(settings) == {}
    create_topic(settings.brokers, "made", 2)
    assert describe(settings.brokers, "made").partitions == 2
    assert len(topic_spans(settings)) == 2


def test_the_groups_of_queries_are_there_too(broker: odradek.Broker) -> None:
    settings = settings_of(broker, "seen")
    create_topic(settings.brokers, "seen")
    listener = ProgressGroups(settings.brokers)
    listener.onQueryProgress(progress("q", '{"seen":{"0":5}}'))  # type: ignore[arg-type]
    listener.close(60)

    async def offsets() -> object:
        async with Admin(settings.brokers) as admin:
            return (await admin.list_group_offsets(["spark.q"]))["spark.q"]

    found = asyncio.run(offsets())
    assert isinstance(found, dict)
    assert found[TopicPartition("seen", 0)].offset == 5


def test_nothing_that_is_shown_has_a_secret() -> None:
    read_options = parse_options({**SASL, "subscribe": "t"}, streaming=True)
    write_options = parse_sink_options({**SASL, "topic": "t"}, streaming=True)
    security = read_options.client.security
    settings = PipelineSettings("h:1", "t", security=security)
    shown = [repr(read_options), repr(write_options), repr(settings), str(security)]
    shown.append(report_page("volume", settings, Outcome(), 1.0))
    for text in shown:
        assert "sasl.mechanism=PLAIN, sasl.jaas.config=[hidden]" in text
        assert "s3cret" not in text
    assert settings.source_options()["kafka.sasl.jaas.config"] == SASL["kafka.sasl.jaas.config"]


def test_what_anybody_may_see_of_a_query_does_not_say_where_to_log_in() -> None:
    reader = StreamReader(parse_options({**SASL, "subscribe": "t"}, streaming=True), SCHEMA)
    reader._latest_seen = None
    assert reader.reportLatestOffset() is None
    with pytest.raises(ValueError, match=r"name the brokers to commit to: bootstrap\.servers"):
        ProgressGroups({"security.protocol": "SSL"})


def reads(options: dict[str, str]) -> object:
    return parse_options({**options, "subscribe": "t"}, streaming=False)


def writes(options: dict[str, str]) -> object:
    return parse_sink_options({**options, "topic": "t"}, streaming=False)


@pytest.mark.parametrize("parse", [reads, writes])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kafka.security.protocol": "TLS"}, r"kafka\.security\.protocol: "),
        ({"kafka.sasl.mechanism": "GSSAPI"}, r"kafka\.sasl\.mechanism: it must be one of PLAIN"),
        ({"kafka.sasl.jaas.config": "s3cret"}, r"kafka\.sasl\.jaas\.config: a JAAS config"),
        ({"kafka.sasl.jaas.config": ""}, r"kafka\.sasl\.jaas\.config: neither it nor"),
        (
            {
                "kafka.security.protocol": "SSL",
                "kafka.ssl.truststore.location": "/nowhere/trust.pem",
                "kafka.ssl.truststore.type": "PEM",
                "kafka.ssl.truststore.password": "s3cret",
            },
            "/nowhere/trust.pem",
        ),
        ({"kafka.sasl.mechansim": "PLAIN"}, r"did you mean kafka\.sasl\.mechanism"),
        ({"kafka.sasl.kerberos.service.name": "k"}, "GSSAPI is not spoken"),
        ({"kafka.ssl.engine.factory.class": "a.B"}, "a provider of Java's"),
        (
            {"kafka.sasl.oauthbearer.token.provider": "a.b"},
            r"^kafka\.sasl\.oauthbearer\.token\.provider: it must be package\.module:function",
        ),
        ({"kafka.sasl.oauthbearer.expected.issuer": "i"}, "brokers check tokens"),
        (
            {"kafka.sasl.login.callback.handler.class": "com.example.Tokens"},
            r"kafka\.sasl\.login\.callback\.handler\.class: String must be one of",
        ),
    ],
)
def test_mistakes_are_named_and_secrets_are_not(
    parse: Callable[[dict[str, str]], object], options: dict[str, str], words: str
) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        parse({**SASL, **options})
    assert "s3cret" not in str(caught.value)


def test_without_a_protocol_nothing_is_protected() -> None:
    """As Kafka's clients have it: the rest is passed over."""
    unused = SecurityOptions.of({"ssl.truststore.location": "/nowhere"})
    assert unused.is_plaintext
    assert unused.security().tls is None
    with pytest.raises(ConfigError, match="say who logs in"):
        SecurityOptions.of({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"})
