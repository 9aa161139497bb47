"""What console-producer sends. If these fail, records are not those that Apache Kafka's tool makes
of the same lines, or go elsewhere."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import odradek
from odradek.cli.main import main

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
