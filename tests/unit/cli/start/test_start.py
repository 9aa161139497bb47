"""`odradek start`: settings and their precedence, refusals in one line, help from the table."""

import argparse
from pathlib import Path

import pytest

from odradek.cli.main import build_parser, main
from odradek.cli.start import DEFAULT_DATA_DIR, collect_settings, configure
from odradek.config.suggestions import with_suggestion
from odradek.server.errors import StartError


def parse(*words: str) -> argparse.Namespace:
    return build_parser(["start", *words]).parse_args(["start", *words])


def test_nothing_given_is_a_broker_with_a_directory_here() -> None:
    """Goal: `odradek start` alone works."""
    assert collect_settings(parse()) == {"log.dirs": DEFAULT_DATA_DIR, "broker.id": "1"}


def test_flags_go_before_set_before_the_file(tmp_path: Path) -> None:
    """Goal: the order of precedence that the help promises."""
    file = tmp_path / "server.properties"
    file.write_text("broker.id=7\nlog.dirs=/from/file\nnum.partitions=3\nnum.io.threads=9\n")
    settings = collect_settings(
        parse(
            "--config",
            str(file),
            "--set",
            "num.partitions=5",
            "--set",
            "broker.id=8",
            "--data-dir",
            "/from/flag",
            "--broker-id",
            "9",
            "--listener",
            "PLAINTEXT://:1",
            "--listener",
            "SSL://:2",
        )
    )
    assert settings == {
        "broker.id": "9",
        "log.dirs": "/from/flag",
        "num.partitions": "5",
        "num.io.threads": "9",
        "listeners": "PLAINTEXT://:1,SSL://:2",
    }


@pytest.mark.parametrize(
    "text",
    [
        "SCRAM-SHA-1=[name=a,password=geheim]",
        "SCRAM-SHA-256=[name=a,iterations=4,password=geheim]",
        "SCRAM-SHA-256=[name=,password=geheim]",
        "a:geheim",
    ],
)
def test_a_mistyped_user_is_refused_without_the_password(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would stand in the log of whatever starts the broker."""
    with pytest.raises(SystemExit) as ended:
        main(["start", "--add-scram", text])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "--add-scram" in said
    assert "geheim" not in said


IMPATIENT = ["--broker-id", "1", "--set", "zookeeper.connection.timeout.ms=1"]


@pytest.mark.parametrize(
    ("words", "listeners"),
    [
        (["--port", "9093"], "PLAINTEXT://:9093"),
        (["--listener", "localhost:9093"], "PLAINTEXT://localhost:9093"),
        (["--listener", "[::1]:0"], "PLAINTEXT://[::1]:0"),
        (["--listener", ":1", "--listener", "IN://h:2"], "PLAINTEXT://:1,IN://h:2"),
    ],
)
def test_an_address_needs_no_protocol(words: list[str], listeners: str) -> None:
    """Goal: who only wants another port need not know what a listener's name is."""
    assert collect_settings(parse(*words))["listeners"] == listeners


def test_an_unknown_setting_is_named_with_the_likely_one() -> None:
    """A mistyped setting would be ignored, and nobody would see which one was meant."""
    assert with_suggestion("num.partition") == "num.partition (did you mean num.partitions?)"
    assert with_suggestion("num_partitions") == "num_partitions (did you mean num.partitions?)"
    assert with_suggestion("retention.ms") == "retention.ms (did you mean log.retention.ms?)"
    assert with_suggestion("no.such") == "no.such"


def test_a_files_log_dir_is_kept(tmp_path: Path) -> None:
    """Goal: the older name of the setting is not overruled by our default."""
    file = tmp_path / "server.properties"
    file.write_text("log.dir=/old/name\nnode.id=4\n")
    assert collect_settings(parse("--config", str(file))) == {
        "log.dir": "/old/name",
        "node.id": "4",
    }


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--set", "log.segment.bytes=x"], "log.segment.bytes"),
        (["--listener", "PLAINTEXT://nowhere"], "NAME://host:port"),
        (["--listener", "SSL://127.0.0.1:0"], "neither ssl.keystore.location nor"),
        (["--zookeeper", "127.0.0.1:0", "--port", "0", *IMPATIENT], "cannot be reached"),
        (["--config", "/does/not/exist"], "No such file"),
        (["--data-dir", "/dev/null/data"], "/dev/null"),
        (["--set", "broker.id=-1"], "broker.id"),
    ],
)
def test_refusals_are_one_line(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Goal: exit status 1 and a sentence, never a traceback."""
    place = [] if "--data-dir" in words else ["--data-dir", str(tmp_path / "data")]
    assert main(["start", *place, *words]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert reason in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    [
        ["start", "--set", "novalue"],
        ["start", "--broker-id", "x"],
        ["start", "--broker-id", "-5"],
        ["start", "--port", "65536"],
        ["start", "--port", "-1"],
        ["start", "--port", "1", "--listener", ":2"],
    ],
)
def test_wrong_usage_is_status_2(words: list[str]) -> None:
    """Goal: scripts can tell a typing mistake from a refusal."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2


def test_help_names_the_flags_and_where_the_settings_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Goal: `--help` is read in one look, and leads on."""
    with pytest.raises(SystemExit):
        main(["start", "--help"])
    out = capsys.readouterr().out
    assert "--listener [NAME://]HOST:PORT" in out
    assert "`odradek help settings` explains the settings" in out
    assert len(out.splitlines()) < 60


def test_a_broker_of_a_cluster_takes_kafkas_defaults(tmp_path: Path) -> None:
    """Internal topics would have one replica, and be lost with a broker."""
    given = {"broker.id": "3", "zookeeper.connect": "zk:2181"}
    assert configure(given)["offsets.topic.replication.factor"] == 3
    assert configure({"broker.id": "3"})["offsets.topic.replication.factor"] == 1


def test_a_broker_without_a_number_keeps_that_of_its_directory(tmp_path: Path) -> None:
    """It would be another broker after every start, and its replicas be lost to the cluster."""
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1004\ncluster.id=c\n")
    given = {"zookeeper.connect": "zk:2181", "log.dirs": str(tmp_path)}
    assert configure(given).broker_id == 1004
    without = {"zookeeper.connect": "zk:2181", "log.dirs": str(tmp_path / "new")}
    with pytest.raises(StartError, match="needs a broker"):
        configure({**without, "broker.id.generation.enable": "false"})


def test_in_a_cluster_no_number_is_made_up() -> None:
    """Several brokers that were given none would all be the first one."""
    assert "broker.id" not in collect_settings(parse("--zookeeper", "zk:2181"))
    assert collect_settings(parse())["broker.id"] == "1"


def test_a_value_that_stands_elsewhere_is_looked_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Data would go to a folder named `${env:KAFKA_DATA}`."""
    monkeypatch.setenv("KAFKA_DATA", "/of/the/environment")
    file = tmp_path / "server.properties"
    file.write_text(
        "config.providers=env\nlog.dirs=${env:KAFKA_DATA}\n"
        "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
    )
    config = configure(collect_settings(parse("--config", str(file))))
    assert (config.log_dirs, config.unknown) == (("/of/the/environment",), [])


def test_a_files_bytes_are_javas(tmp_path: Path) -> None:
    """A folder with an umlaut would be another one than Kafka's, or the file refused."""
    file = tmp_path / "server.properties"
    file.write_bytes(b"log.dirs=/srv/Z\xfcrich\n")
    assert collect_settings(parse("--config", str(file)))["log.dirs"] == "/srv/Zürich"
