"""The records that console-producer sends. If these fail, records are not those that Apache Kafka's
tool makes of the same lines, or go elsewhere."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import odradek
from odradek.cli.main import main

PROPERTY = "--reader-property"
Send = Callable[..., int]


@pytest.fixture
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker() as broker:
        yield broker


@pytest.fixture
def send(broker: odradek.Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Send:
    """Sends text to a topic."""

    def call(topic: str, text: bytes, *words: str) -> int:
        file = tmp_path / "text"
        file.write_bytes(text)
        with file.open() as lines:
            monkeypatch.setattr("sys.stdin", lines)
            where = ["--bootstrap-server", broker.bootstrap_servers, "--topic", topic]
            return main(["console-producer", *where, *words])

    return call


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (b"a\rb\n", [b"a", b"b"]),
        (b"a\r\n\r\nb", [b"a", b"", b"b"]),
        (b"a\r\r\nb\r", [b"a", b"", b"b"]),
        (b"\r", [b""]),
        (b"\n", [b""]),
        (b"", []),
    ],
)
def test_a_line_ends_as_for_java(
    broker: odradek.Broker, send: Send, text: bytes, values: list[bytes]
) -> None:
    broker.create_topic("t")
    assert send("t", text) == 0
    assert [record.value for record in broker.records("t")] == values


def test_a_line_reader_may_choose_the_topic(
    broker: odradek.Broker, send: Send, tmp_path: Path
) -> None:
    """Only its flags do: its file is below the topic that the tool is given."""
    config = tmp_path / "reader.properties"
    config.write_text("topic=file\n")
    for topic in ("t", "other"):
        broker.create_topic(topic)
    assert send("t", b"a\n", "--reader-config", str(config)) == 0
    assert send("t", b"b\n", PROPERTY, "topic=other") == 0
    assert [record.value for record in broker.records("t")] == [b"a"]
    assert [record.value for record in broker.records("other")] == [b"b"]


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("LineMessageReader", 0),
        ("org.apache.kafka.tools.LineMessageReader", 0),
        ("kafka.tools.ConsoleProducer$LineMessageReader", 0),
        ("com.example.LineMessageReader", 2),
    ],
)
def test_the_reader_of_lines_goes_by_its_old_name_and_its_new(
    broker: odradek.Broker, send: Send, name: str, status: int
) -> None:
    try:
        found = send("t", b"v\n", "--line-reader", name)
    except SystemExit as ended:
        found = ended.code
    assert found == status


def test_an_empty_codec_is_gzip(broker: odradek.Broker, send: Send) -> None:
    """As one without a value: a script's variable is unset."""
    assert send("t", b"v\n", "--compression-codec", "") == 0
    assert send("t", b"v\n", "--compression-codec", "lz9") == 1


def test_a_topic_without_a_name_is_refused(
    broker: odradek.Broker, send: Send, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script whose variable is unset waits for a minute, or for ever."""
    assert send("", b"v\n", "--max-block-ms", "500") == 1
    assert "name is illegal" in capsys.readouterr().err
    where = ["--bootstrap-server", broker.bootstrap_servers, "--timeout-ms", "500"]
    for words in (["--topic", ""], ["--topic", "", "--partition", "0"]):
        assert main(["console-consumer", *where, *words]) == 1
        assert "name is illegal" in capsys.readouterr().err
    assert main(["console-consumer", *where, "--include", ""]) == 1
    assert "the pattern is empty" in capsys.readouterr().err
