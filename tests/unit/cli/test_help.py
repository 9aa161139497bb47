"""`odradek help`."""

import pytest

from odradek.cli.main import main


def test_help_with_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`odradek help fsck` shows something else than `odradek fsck --help`."""
    with pytest.raises(SystemExit) as ended:
        main(["fsck", "--help"])
    asked = capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["help", "fsck"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == asked


@pytest.mark.parametrize("command", ["consume", "produce", "groups", "schedules", "top"])
def test_commands_for_people_are_none_of_kafkas(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their tables are our own; a script that counts on columns of Kafka's would break."""
    with pytest.raises(SystemExit):
        main(["help", command])
    assert "Kafka's tool" not in " ".join(capsys.readouterr().out.split())


def test_help_alone_is_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """The word that every tool knows would be said not to exist."""
    assert main(["help"]) == 0
    assert "exit status:" in capsys.readouterr().out


def test_settings_of_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    """The settings are nowhere in the terminal, or all 300 of them at once."""
    assert main(["help", "settings", "segment.bytes"]) == 0
    said = capsys.readouterr().out
    assert "  log.segment.bytes  (int, default 1073741824)\n" in said
    assert "  segment.bytes  (int, default 1073741824)\n" in said
    assert "retention" not in said


def test_values_that_kafka_refuses_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """A test's small segments would be taken for something that Kafka 4 has, too: it refuses them,
    with `Value must be at least 1048576`."""
    assert main(["help", "settings", "segment.bytes"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("Less than 1048576 is for tests, and not in Kafka 4.") == 2


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["help", "strat"], 2, "there is no help about 'strat' (did you mean start?)"),
        (["help", "settings", "num.partitons"], 1, "(did you mean num.partitions?)"),
    ],
)
def test_mistyped(
    words: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slip of the finger is answered without the word that was meant."""
    assert main(words) == status
    assert said in capsys.readouterr().err
