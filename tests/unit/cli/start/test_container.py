"""The settings that the container image makes of its environment; the names are those that Apache
Kafka 4.3's `KafkaDockerWrapper` makes of it."""

import argparse
import re
from pathlib import Path

import pytest

from odradek.cli import container
from odradek.cli.container import settings_of
from odradek.cli.start import collect_settings
from odradek.config.files.properties import load_properties
from odradek.security.jaas import parse_jaas


@pytest.mark.parametrize(
    ("variable", "setting"),
    [
        ("KAFKA_NODE_ID", "node.id"),
        ("KAFKA_A__B", "a_b"),
        ("KAFKA_C___D", "c-d"),
        ("KAFKA_E____F", "e-.f"),
        ("KAFKA_KAFKA_X", "kafka.x"),
        ("KAFKA_lower_Case", "lower.case"),
        ("KAFKA_JMX_PORT", "jmx.port"),
        (
            "KAFKA_LISTENER_NAME_SSL_SCRAM___SHA___256_SASL_JAAS_CONFIG",
            "listener.name.ssl.scram-sha-256.sasl.jaas.config",
        ),
    ],
)
def test_the_name_of_a_setting(variable: str, setting: str) -> None:
    """A compose file's settings would be others, or none."""
    assert settings_of({variable: "x y=z", "PATH": "/bin", "KAFKAX": "1"}) == {setting: "x y=z"}


@pytest.mark.parametrize(
    "variable", ["KAFKA_OPTS", "KAFKA_HEAP_OPTS", "KAFKA_VERSION", "KAFKA_LOG4J_ROOT_LOGLEVEL"]
)
def test_what_is_for_javas_machine_is_no_setting(variable: str) -> None:
    """Each start would warn of settings that nobody knows."""
    assert settings_of({variable: "-Xmx1G", "KAFKA_": "nothing"}) == {}


def test_a_value_is_read_as_from_a_file() -> None:
    """Apache's image writes a file of properties; an escaped comma would be two characters."""
    assert settings_of({"KAFKA_A": "x\\,y\\u00e4", "KAFKA_EMPTY": ""}) == {"a": "x,yä", "empty": ""}


def test_a_value_has_all_of_its_lines() -> None:
    """The lines of a private key would be settings that nobody knows, and named in the log."""
    key = "-----BEGIN PRIVATE KEY-----\nMIIE==\n-----END PRIVATE KEY-----"
    given = {"KAFKA_SSL_KEYSTORE_KEY": f"{key}\n", "KAFKA_A": "x\r\ny", "KAFKA_B": "x\\\r\n  y"}
    assert settings_of(given) == {"ssl.keystore.key": key, "a": "x\ny", "b": "xy"}


def test_a_backslash_at_the_end_of_a_value_takes_in_no_other() -> None:
    """Apache's image loses one of the other settings then, whichever comes next."""
    assert settings_of({"KAFKA_A": "C:\\\\x\\", "KAFKA_B": "y"}) == {"a": "C:\\x", "b": "y"}


def test_secrets_are_files(tmp_path: Path) -> None:
    """A broker with TLS would have no certificate."""
    (tmp_path / "password").write_text("secret\n")
    given = {
        "KAFKA_SSL_KEYSTORE_FILENAME": "broker.jks",
        "KAFKA_SSL_KEYSTORE_CREDENTIALS": "password",
        "KAFKA_SSL_KEY_CREDENTIALS": "password",
    }
    assert settings_of(given, str(tmp_path)) == {
        "ssl.keystore.location": f"{tmp_path}/broker.jks",
        "ssl.keystore.password": "secret",
        "ssl.key.password": "secret",
    }


def given(
    words: list[str],
    environment: dict[str, str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, str]:
    """The settings that the image's broker is started with."""
    started: list[dict[str, str]] = []

    def start(arguments: argparse.Namespace) -> int:
        started.append(collect_settings(arguments))
        return 0

    monkeypatch.setattr("odradek.cli.start.run", start)
    monkeypatch.setattr(container.os, "environ", environment)
    assert container.main(["/var/lib/odradek", str(folder), *words]) == 0
    return started[0]


@pytest.mark.parametrize("name", ["latin", "a\\u0000b"])
def test_a_secret_that_cannot_be_read_names_its_file(name: str, tmp_path: Path) -> None:
    """The owner of several of them would look at each byte of all."""
    (tmp_path / "latin").write_bytes(b"Z\xfcrich")
    with pytest.raises(ValueError, match=f"^{re.escape(f'{tmp_path}/{name}')}: "):
        settings_of({"KAFKA_SSL_KEY_CREDENTIALS": name}, str(tmp_path))


HERE = {"log.dirs": "/var/lib/odradek", "broker.id": "1"}


def test_without_anything_clients_of_the_host_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`docker run -p 9092:9092` would not do."""
    assert given([], {}, tmp_path, monkeypatch) == {
        "listeners": "PLAINTEXT://0.0.0.0:9092",
        "advertised.listeners": "PLAINTEXT://localhost:9092",
        **HERE,
    }


@pytest.mark.parametrize(
    ("words", "environment", "settings"),
    [
        (["--port", "7"], {}, {**HERE, "listeners": "PLAINTEXT://:7"}),
        ([], {"LISTENERS": "PLAINTEXT://:1"}, {**HERE, "listeners": "PLAINTEXT://:1"}),
        (["--port", "7"], {"LISTENERS": "A://:1"}, {**HERE, "listeners": "PLAINTEXT://:7"}),
        ([], {"LOG_DIRS": "/data"}, {**HERE, "log.dirs": "/data"}),
        ([], {"LOG_DIR": "/data"}, {"log.dir": "/data", "broker.id": "1"}),
        (["--data-dir", "/d"], {"LOG_DIRS": "/data"}, {**HERE, "log.dirs": "/d"}),
        (["--set", "a=1"], {"A": "2"}, {**HERE, "a": "1"}),
        (
            [],
            {"ADVERTISED_LISTENERS": "A://b:1, B://[::1]:2"},
            {
                **HERE,
                "advertised.listeners": "A://b:1, B://[::1]:2",
                "listeners": "A://:1,B://:2",
            },
        ),
        (
            [],
            {"ADVERTISED_LISTENERS": "PLAINTEXT://b:1"},
            {**HERE, "advertised.listeners": "PLAINTEXT://b:1"},
        ),
        ([], {"___A": "1"}, {**HERE, "-a": "1"}),
    ],
)
def test_flags_and_the_environment_take_the_place_of_the_defaults(
    words: list[str],
    environment: dict[str, str],
    settings: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A listener that was asked for would contradict one that was not."""
    variables = {f"KAFKA_{name}": value for name, value in environment.items()}
    assert given(words, variables, tmp_path, monkeypatch) == settings


def test_a_mounted_file_comes_before_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings that were mounted would be passed over."""
    file = tmp_path / "server.properties"
    file.write_text("log.dirs=/data\nnum.partitions=3\nlog.retention.ms=1\n")
    environment = {"KAFKA_NUM_PARTITIONS": "5"}
    settings = {**HERE, "log.dirs": "/data", "num.partitions": "5", "log.retention.ms": "1"}
    assert given([], environment, tmp_path, monkeypatch) == settings


JAAS = """
// of the broker; no "quotes"
KafkaServer {
    org.apache.kafka.common.security.plain.PlainLoginModule required
    username="admin" password="a;d}m//in"  /* it is
    long */ user_admin="a;d}m//in";
    org.apache.kafka.common.security.scram.ScramLoginModule required username="s" password="t";
};
inside.KafkaServer { org.apache.kafka.common.security.plain.PlainLoginModule required user_b="c"; };
Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="z"; };
"""
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_logins_of_a_file_are_those_of_the_listeners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients could not log in to the broker of Apache's own compose file with SASL."""
    file = tmp_path / "broker_jaas.conf"
    file.write_text(JAAS)
    environment = {
        "KAFKA_LISTENERS": "INSIDE://:1,Outside://:2,OWN://:3",
        "KAFKA_LISTENER_NAME_OWN_PLAIN_SASL_JAAS_CONFIG": "of its own",
        "KAFKA_OPTS": f"-Xmx1G -Djava.security.auth.login.config={file} -Dx=y",
    }
    settings = given([], environment, tmp_path, monkeypatch)
    assert (
        settings["listener.name.inside.plain.sasl.jaas.config"] == f'{PLAIN} required user_b="c";'
    )
    assert "listener.name.inside.scram-sha-256.sasl.jaas.config" not in settings
    outside = parse_jaas(settings["listener.name.outside.plain.sasl.jaas.config"])
    assert outside == (
        PLAIN,
        {"username": "admin", "password": "a;d}m//in", "user_admin": "a;d}m//in"},
    )
    scram = parse_jaas(settings["listener.name.outside.scram-sha-512.sasl.jaas.config"])
    assert scram.options == {"username": "s", "password": "t"}
    assert settings["listener.name.own.plain.sasl.jaas.config"] == "of its own"
    assert "zookeeper.sasl.jaas.config" not in settings, "there is no ZooKeeper"


def test_the_login_of_a_file_to_zookeeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker of a compose file with both would be let into ZooKeeper by nobody."""
    login = 'org.apache.zookeeper.server.auth.DigestLoginModule required username="z";'
    for others in (JAAS, f"Client {{ {login} }};"):
        (tmp_path / "jaas.conf").write_text(others)
        environment = {
            "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181",
            "KAFKA_OPTS": f"-Djava.security.auth.login.config={tmp_path / 'jaas.conf'}",
        }
        settings = given([], environment, tmp_path, monkeypatch)
        assert settings["zookeeper.sasl.jaas.config"] == login


@pytest.mark.parametrize("text", [None, "Client { x required; };", 'KafkaServer { x required a="'])
def test_logins_that_cannot_be_read_are_told(
    text: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker would run, and let nobody in."""
    file = tmp_path / "broker_jaas.conf"
    if text is not None:
        file.write_text(text)
    options = f"-Djava.security.auth.login.config={file}"
    monkeypatch.setattr(container.os, "environ", {"KAFKA_OPTS": options})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("odradek.cli.start.run", pytest.fail)  # a broker would run
        assert container.main([str(tmp_path / "data"), str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"odradek: KAFKA_OPTS names {file} for the logins of the broker: ")
    assert said.count("\n") == 1
    assert "Errno" not in said


def test_a_file_behind_the_images_name_goes_over_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its data would be in the image's own folder, which nobody mounts then."""
    file = tmp_path / "my.properties"
    file.write_text("log.dir=/data\nnum.partitions=3\n")
    environment = {"KAFKA_NUM_PARTITIONS": "5"}
    settings = {"log.dir": "/data", "num.partitions": "3", "broker.id": "1"}
    assert given(["--config", str(file)], environment, tmp_path, monkeypatch) == settings


def test_a_mounted_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file put in place meanwhile would be half of what is decided."""
    file = tmp_path / "server.properties"
    file.write_text("log.dirs=/data\n")

    def load(path: str) -> dict[str, str]:
        settings = load_properties(path)
        file.write_text("log.dirs=/elsewhere\n")
        return settings

    monkeypatch.setattr(container, "load_properties", load)
    assert given([], {}, tmp_path, monkeypatch) == {**HERE, "log.dirs": "/data"}


def test_a_program_may_run_instead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A compose file that calls a shell would start a broker; Apache's own start is one."""
    ran: list[list[str]] = []

    def run_instead(_file: str, words: list[str]) -> None:
        ran.append(words)
        raise SystemExit

    monkeypatch.setattr(container.os, "execvp", run_instead)
    with pytest.raises(SystemExit):
        container.main(["/data", str(tmp_path), "bash", "-c", "true"])
    assert ran == [["bash", "-c", "true"]]
    with pytest.raises(SystemExit, match="2"):  # the broker's flag is wrong
        container.main(["/data", str(tmp_path), "/etc/kafka/docker/run", "--set", "a"])
    assert len(ran) == 1


def test_a_program_that_is_not_there_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A typing mistake behind the image's name would be answered with a traceback."""
    missing = str(tmp_path / "bsah")
    assert container.main(["/data", str(tmp_path), missing, "-c", "true"]) == 1
    assert capsys.readouterr().err == f"odradek: {missing}: No such file or directory\n"
