"""If these fail, `odradek pipeline` misreads its flags or hides what went wrong."""

import argparse
from pathlib import Path

import pytest

from odradek.cli import pipeline

WHERE = ["--bootstrap-server", "h:1", "--topic", "t"]


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    pipeline.add_arguments(parser)
    parser.set_defaults(parser=parser)
    return parser.parse_args(words)


@pytest.mark.parametrize(
    ("text", "words"), [("30s", "30 seconds"), ("5m", "5 minutes"), ("1h", "1 hours")]
)
def test_an_interval_is_put_into_sparks_words(text: str, words: str) -> None:
    assert parse("archive", *WHERE, "--every", text).every == words


@pytest.mark.parametrize(
    "flags",
    [["--every", "0s"], ["--every", "fast"], ["--once", "--every", "1s"], ["--max-records", "0"]],
)
def test_wrong_usage_ends_with_2(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse("archive", *WHERE, *flags)
    assert caught.value.code == 2
    assert flags[0] in capsys.readouterr().err


def test_a_password_of_the_environment_is_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference itself would be the password, and nobody be logged in."""
    monkeypatch.setenv("PASSWORD", "of the environment")
    file = tmp_path / "client.properties"
    file.write_text(
        "config.providers=env\n"
        "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
        "ssl.key.password=${env:PASSWORD}\n"
    )
    assert pipeline._security(str(file)).given == (("ssl.key.password", "of the environment"),)


def test_an_unknown_pipeline_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert pipeline.run(parse("archiv", *WHERE)) == 2
    said = capsys.readouterr().err
    assert "there is no pipeline 'archiv' (did you mean archive?), only archive, compact," in said


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["audit", "--every", "1h"], "audit does nothing with --every"),
        (["audit", "--isolation-level", "read_committed"], "nothing with --isolation-level"),
        (["latest", "--max-records", "5", "--allow-loss"], "--allow-loss, --max-records"),
        (["query", "--from", "d"], "query does nothing with --from"),
        (["latest", "--to", "d", "--report", "/nowhere/r.html"], "there is no directory /nowhere"),
        (["latest", "--to", "d", "--report", "/"], "--report /: it is a directory"),
        (["volume", "--command-config", "/nowhere/c"], "--command-config /nowhere/c: No such file"),
    ],
)
def test_what_a_pipeline_cannot_use_is_refused_before_it_starts(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pipeline.run(parse(words[0], *WHERE, *words[1:])) == 2
    assert told in capsys.readouterr().err


def test_flags_are_settings_and_others_keep_their_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark_odradek import pipelines

    seen = []

    def note(_: str, settings: pipelines.PipelineSettings, **__: object) -> pipelines.Outcome:
        seen.append(settings)
        return pipelines.Outcome()

    monkeypatch.setattr(pipelines, "run_pipeline", note)
    flags = ["--to", "d", "--data-dir", "/data", "--max-records", "7", "--file-size", "64k"]
    assert pipeline.run(parse("archive", *WHERE, *flags, "--once")) == 0
    [settings] = seen
    assert settings == pipelines.PipelineSettings(
        "h:1", "t", to="d", path="/data", max_offsets_per_trigger=7, file_bytes=65_536
    )


def test_a_file_of_client_settings_says_how_brokers_are_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark_odradek import pipelines

    seen = []

    def note(_: str, settings: pipelines.PipelineSettings, **__: object) -> pipelines.Outcome:
        seen.append(settings)
        return pipelines.Outcome()

    monkeypatch.setattr(pipelines, "run_pipeline", note)
    file = tmp_path / "client.properties"
    lines = ["client.id=x", "security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN"]
    file.write_text("\n".join([*lines, "sasl.username=alice", "sasl.password=secret"]))
    report = tmp_path / "report.html"
    flags = ["--command-config", str(file), "--report", str(report)]
    assert pipeline.run(parse("volume", *WHERE, *flags)) == 0
    options = seen[0].source_options()
    assert options["kafka.sasl.password"] == "secret"
    assert "kafka.client.id" not in options
    page = report.read_text()
    assert "security.protocol=SASL_PLAINTEXT" in page
    assert "secret" not in page


def test_a_failure_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyspark_odradek import GatewayError, pipelines

    def fail(*_: object, **__: object) -> None:
        raise GatewayError("no Java here")

    monkeypatch.setattr(pipelines, "run_pipeline", fail)
    assert pipeline.run(parse("archive", *WHERE, "--to", "d")) == 1
    assert capsys.readouterr().err == "odradek pipeline: no Java here\n"


def test_help_lists_the_pipelines() -> None:
    assert "archive   keep every record" in pipeline.epilog()
