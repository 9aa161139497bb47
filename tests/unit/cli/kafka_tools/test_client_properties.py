"""Properties of Kafka's clients that ours do not have. If these fail, a tool does something else
than its command line says, without a word, or refuses a file that Kafka's tool takes."""

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

import odradek
from odradek.cli.main import AS_KAFKA, main
from odradek.cli.tools.client_properties import check_properties, partitioner_of
from odradek.client.core.admin_types import GroupDescription
from odradek.client.settings import (
    ADMIN_SETTINGS,
    CONSUMER_SETTINGS,
    PRODUCER_SETTINGS,
    SHARE_CONSUMER_SETTINGS,
)
from odradek.client.sync import Admin, Consumer
from odradek.config.definition import ConfigError, Setting

ROUND_ROBIN = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
Piped = Callable[[str], str]
JMX = "org.apache.kafka.common.metrics.JmxReporter"


@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [
        (PRODUCER_SETTINGS, "partitioner.class", "com.example.Mine"),
        (PRODUCER_SETTINGS, "partitioner.class", ""),
        (PRODUCER_SETTINGS, "partitioner.ignore.keys", "true"),
        (PRODUCER_SETTINGS, "transaction.two.phase.commit.enable", "true"),
        (PRODUCER_SETTINGS, "metadata.max.idle.ms", "10"),
        (PRODUCER_SETTINGS, "interceptor.classes", "com.example.Mine"),
        (CONSUMER_SETTINGS, "interceptor.classes", "com.example.Mine"),
        (SHARE_CONSUMER_SETTINGS, "interceptor.classes", ""),
        (SHARE_CONSUMER_SETTINGS, "isolation.level", "read_committed"),
        (ADMIN_SETTINGS, "metric.reporters", "com.example.Mine"),
        (ADMIN_SETTINGS, "sasl.login.class", "com.example.Mine"),
        (ADMIN_SETTINGS, "sasl.oauthbearer.assertion.file", "token.jwt"),
        (ADMIN_SETTINGS, "send.buffer.bytes", "-5"),
        (ADMIN_SETTINGS, "metadata.recovery.strategy", "somehow"),
        (ADMIN_SETTINGS, "sasl.kerberos.ticket.renew.jitter", "some"),
        (ADMIN_SETTINGS, "sasl.oauthbearer.clock.skew.seconds", "some"),
        (ADMIN_SETTINGS, "ssl.protocol", "SSLv3"),
        (ADMIN_SETTINGS, "ssl.provider", "BCFIPS"),
        (PRODUCER_SETTINGS, "transactional.id", ""),
        (CONSUMER_SETTINGS, "group.instance.id", ""),
        (CONSUMER_SETTINGS, "group.instance.id", "a/b"),
        (CONSUMER_SETTINGS, "group.instance.id", ".."),
        (SHARE_CONSUMER_SETTINGS, "max.poll.interval.ms", "long"),
    ],
)
def test_what_is_not_here_is_refused(
    settings: Mapping[str, Setting], name: str, value: str
) -> None:
    with pytest.raises(ConfigError, match=f"for configuration {name}: .+"):
        check_properties({name: value}, settings)


@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [
        (PRODUCER_SETTINGS, "partitioner.class", ROUND_ROBIN),
        (PRODUCER_SETTINGS, "partitioner.ignore.keys", "false"),
        (PRODUCER_SETTINGS, "key.serializer", "com.example.Overridden"),
        (PRODUCER_SETTINGS, "group.id", "of-a-consumer"),
        (PRODUCER_SETTINGS, "nonsense", "1"),
        (CONSUMER_SETTINGS, "partitioner.class", "of.a.Producer"),
        (CONSUMER_SETTINGS, "interceptor.classes", ""),
        (ADMIN_SETTINGS, "interceptor.classes", "of.a.Producer"),
        (ADMIN_SETTINGS, "metric.reporters", JMX),
        (ADMIN_SETTINGS, "metadata.recovery.strategy", "none"),
        (ADMIN_SETTINGS, "send.buffer.bytes", "-1"),
        (ADMIN_SETTINGS, "ssl.protocol", "TLSv1.2"),
        (ADMIN_SETTINGS, "ssl.provider", "SunJSSE"),
        (CONSUMER_SETTINGS, "group.instance.id", "a.b-c_1"),
        (CONSUMER_SETTINGS, "group.remote.assignor", ""),
        (SHARE_CONSUMER_SETTINGS, "max.poll.interval.ms", "5"),
    ],
)
def test_what_changes_nothing_is_taken(
    settings: Mapping[str, Setting], name: str, value: str
) -> None:
    check_properties({name: value}, settings)


@pytest.mark.parametrize(
    ("protocol", "name", "value"),
    [
        ("classic", "group.remote.assignor", "uniform"),
        ("classic", "share.acknowledgement.mode", "explicit"),
        ("Consumer", "share.acquire.mode", "record_limit"),
        ("consumer", "session.timeout.ms", "10000"),
        ("consumer", "heartbeat.interval.ms", "1000"),
        ("consumer", "partition.assignment.strategy", "range"),
    ],
)
def test_what_only_the_other_protocol_of_groups_has_is_refused(
    protocol: str, name: str, value: str
) -> None:
    """It would have no effect, and nobody would be told."""
    said = f"{name} cannot be set when group.protocol={protocol.upper()}"
    given = {"group.protocol": protocol, name: value}
    with pytest.raises(ConfigError, match=re.escape(said)):
        check_properties(given, CONSUMER_SETTINGS)
    if protocol == "classic":  # which is the default
        with pytest.raises(ConfigError, match=re.escape(said)):
            check_properties({name: value}, CONSUMER_SETTINGS)


def test_records_go_around_whatever_their_keys() -> None:
    choose = partitioner_of({"partitioner.class": ROUND_ROBIN})
    assert choose is not None
    assert [choose(b"k", [0, 1, 2], [0, 2]) for _ in range(4)] == [0, 2, 0, 2]


@pytest.fixture
def piped() -> Iterator[Piped]:
    """Names a file that can be read once, as `<(...)` of a shell and `/dev/stdin` do."""
    with contextlib.ExitStack() as opened:

        def pipe(text: str) -> str:
            reader, writer = os.pipe()
            opened.callback(os.close, reader)
            os.write(writer, text.encode())
            os.close(writer)
            return f"/dev/fd/{reader}"

        yield pipe


@pytest.mark.parametrize("is_piped", [False, True])
@pytest.mark.parametrize(
    "tool", ["console-producer", "produce", "producer-perf-test", "verifiable-producer"]
)
def test_a_tool_that_sends_uses_the_partitioner(
    tool: str, is_piped: bool, piped: Piped, tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.write_text("a\nb\nc\nd\ne\nf\n", encoding="utf-8")
    with odradek.Broker() as broker, lines.open() as text, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", text)
        broker.create_topic("round", partitions=3)
        words = {
            "produce": ["round"],
            "console-producer": ["--topic", "round"],
            "producer-perf-test": [
                *("--topic", "round", "--num-records", "6", "--throughput", "-1"),
                *("--record-size", "1"),
            ],
            "verifiable-producer": ["--topic", "round", "--max-messages", "6"],
        }[tool]
        where = ["--bootstrap-server", broker.bootstrap_servers]
        setting = f"partitioner.class={ROUND_ROBIN}"
        partitioner = ["--command-property", setting]
        if is_piped:
            partitioner = ["--command-config", piped(f"{setting}\n")]
        elif tool == "verifiable-producer":  # which takes a file alone
            (tmp_path / "settings").write_text(f"{setting}\n", encoding="utf-8")
            partitioner = ["--command-config", str(tmp_path / "settings")]
        assert main([AS_KAFKA, tool, *words, *where, *partitioner]) == 0
        counts = [record.partition for record in broker.records("round")]
        assert sorted(counts) == [0, 0, 1, 1, 2, 2]


def test_two_clients_of_one_command_have_the_same_settings(
    piped: Piped, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second one would have those of an empty file: no password, no group, no limit."""
    with odradek.Broker() as broker:
        where = ["--bootstrap-server", broker.bootstrap_servers]
        # Which only the second one has.
        file = piped("max.poll.records=many\n")
        assert main(["groups", *where, "--command-config", file]) == 1
    assert "Invalid value many for configuration max.poll.records" in capsys.readouterr().err


def test_a_value_may_have_commas(capsys: pytest.CaptureFixture[str]) -> None:
    """The rest of a list would be taken for another property."""
    words = ["--bootstrap-server", "localhost:9", "--command-property", "client.id=a,retries=x"]
    main(["topics", *words, "--command-property", "default.api.timeout.ms=1,2", "--list"])
    said = capsys.readouterr().out
    assert "Invalid value 1,2 for configuration default.api.timeout.ms" in said


@pytest.mark.parametrize(
    ("classes", "chosen"),
    [
        ("RoundRobinAssignor, RangeAssignor", "roundrobin"),
        ("RangeAssignor,RoundRobinAssignor", "range"),
        ("CooperativeStickyAssignor", "cooperative-sticky"),
    ],
)
def test_assignors_go_by_kafkas_class_names_the_best_first(classes: str, chosen: str) -> None:
    """The only spelling that files of Kafka's consumers have would be refused, or in another
    order."""
    package = "org.apache.kafka.clients.consumer."
    strategy = ",".join(package + name.strip() for name in classes.split(","))
    settings = {"group.id": "g", "partition.assignment.strategy": strategy}
    with odradek.Broker() as broker:
        broker.create_topic("shared")
        with Consumer({"bootstrap.servers": broker.bootstrap_servers, **settings}) as consumer:
            consumer.subscribe(["shared"])
            while not consumer.assignment():
                consumer.getmany(timeout_ms=100)
            with Admin(broker.bootstrap_servers) as admin:
                found = admin.describe_groups(["g"])["g"]
                assert isinstance(found, GroupDescription)
                assert found.assignor == chosen
