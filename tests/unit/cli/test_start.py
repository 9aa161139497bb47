"""`odradek start`: settings and their precedence, refusals in one line, help from the table."""

import argparse
from pathlib import Path

import pytest

from odradek.cli.main import build_parser, main
from odradek.cli.start import DEFAULT_DATA_DIR, collect_settings


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
        (["--listener", "SSL://127.0.0.1:0"], "SSL is not supported"),
        (["--zookeeper", "localhost:2181"], "not available yet"),
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
        [],
    ],
)
def test_wrong_usage_is_status_2(words: list[str]) -> None:
    """Goal: scripts can tell a typing mistake from a refusal."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2


def test_help_lists_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: the table is the documentation."""
    with pytest.raises(SystemExit):
        main(["start", "--help"])
    out = capsys.readouterr().out
    assert "--listener NAME://HOST:PORT" in out
    assert "log.segment.bytes  (int, default 1073741824)" in out
