"""The files that the tools of `--command-config` take: Java's, in bytes, escapes and references."""

import argparse
from pathlib import Path

import pytest

from odradek.cli.tools.connection import NoAddress, client_config, read_properties
from odradek.config import ConfigError


def settings_in(path: Path) -> dict[str, object]:
    given = argparse.Namespace(
        command_config=str(path), command_property=[], bootstrap_server="127.0.0.1:9092"
    )
    return client_config(given)


def test_a_command_file_is_read_as_java_reads_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A password would be another one than for Kafka's tools, or the file refused."""
    monkeypatch.setenv("KEY_PASSWORD", "of the environment")
    file = tmp_path / "client.properties"
    file.write_bytes(
        b"ssl.keystore.password=Z\xfcrich\nclient.id=\\u20ac\nconfig.providers=env\n"
        b"config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
        b"ssl.key.password=${env:KEY_PASSWORD}\n"
    )
    assert settings_in(file) == {
        "ssl.keystore.password": "Zürich",
        "ssl.key.password": "of the environment",
        "client.id": "€",
        "bootstrap.servers": "127.0.0.1:9092",
    }


@pytest.mark.parametrize("text", ["client.id=a\\ud800", "unknown\\ud800=a"])
def test_what_no_message_can_have_is_refused(text: str, tmp_path: Path) -> None:
    """The tool would end with a traceback of Python's, about bytes or an encoding."""
    file = tmp_path / "client.properties"
    file.write_text(text)
    with pytest.raises(ConfigError):
        settings_in(file)


def test_half_a_character_is_told_by_its_property(tmp_path: Path) -> None:
    """Settings of `--add-config-file` and of formatters would be told as a fault of an encoding."""
    file = tmp_path / "some.properties"
    file.write_text("key.separator=\\u0000\nretention.ms=\\ud800")
    with pytest.raises(ConfigError, match=rf"^{file}: retention\.ms: Half a character"):
        read_properties(str(file))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("localhost:1,a b:1", "Invalid url in bootstrap.servers: a b:1"),
        ("localhost", "Invalid url in bootstrap.servers: localhost"),
        ("localhost:65536", "Invalid port in bootstrap.servers: localhost:65536"),
        ("localhost:1,", "Configuration 'bootstrap.servers' values must not be empty."),
    ],
)
def test_an_address_that_kafka_cannot_read_is_refused_in_its_words(text: str, words: str) -> None:
    given = argparse.Namespace(command_config=None, command_property=[], bootstrap_server=text)
    with pytest.raises(NoAddress) as caught:
        client_config(given)
    assert str(caught.value) == words


def test_an_address_that_kafka_can_read_is_taken() -> None:
    """A script of somebody who has no other would fail."""
    given = argparse.Namespace(
        command_config=None, command_property=[], bootstrap_server=" [::1]:9092 ,PLAINTEXT://a:1"
    )
    assert client_config(given)["bootstrap.servers"] == given.bootstrap_server
