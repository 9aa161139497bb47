"""If these fail, a tool shows or reads other topics than Kafka's would."""

import json

import pytest

import odradek
from odradek.cli.main import main
from odradek.client import Consumer
from odradek.client.errors import UsageError
from odradek.errors import ErrorCode

_NONE = "[a-z&&[^x]] cannot be matched here: RE2 has no intersections of classes: &&"


@pytest.fixture(scope="module")
def servers():
    with odradek.Broker() as broker:
        for topic in ("team-red", "team-Red", "team.red"):
            broker.create_topic(topic, partitions=1, config={})
        yield broker.bootstrap_servers


def test_tools_read_the_patterns_of_java(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    pattern = r"\Qteam-\E\p{Lower}+"
    tool = ["topics", "--bootstrap-server", servers, "--list", "--topic"]
    assert main([*tool, pattern]) == 0
    assert capsys.readouterr().out.split() == ["team-red"]
    assert main(["get-offsets", "--bootstrap-server", servers, "--topic", pattern]) == 0
    assert capsys.readouterr().out.split() == ["team-red:0:0"]
    everyday = ["topics", "--bootstrap-server", servers, "--format", "json", pattern]
    assert main(everyday) == 0
    assert [each["topic"] for each in json.loads(capsys.readouterr().out)] == ["team-red"]


@pytest.mark.parametrize(
    "tool",
    [
        ["topics"],
        ["topics", "--list", "--topic"],
        ["get-offsets", "--topic"],
        ["get-offsets", "--topic-partitions"],
        ["console-consumer", "--timeout-ms", "1", "--include"],
        ["consumer-perf-test", "--num-records", "1", "--include"],
    ],
)
def test_tools_refuse_what_they_would_read_otherwise(
    servers: str, tool: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command, *flags = tool
    assert main([command, "--bootstrap-server", servers, *flags, "[a-z&&[^x]]"]) == 1
    told = capsys.readouterr()
    assert _NONE in told.out + told.err


def test_consume_refuses_what_it_would_read_otherwise(
    servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    consume = ["consume", "--bootstrap-server", servers, "--group", "g", "^[a-z&&[^x]]$"]
    assert main(consume) == 1
    assert _NONE in capsys.readouterr().err


def test_a_consumer_refuses_what_it_would_read_otherwise() -> None:
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"})
    with pytest.raises(UsageError, match="RE2 has no intersections") as refused:
        consumer.subscribe(pattern="team-[a-z&&[^x]]")
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
