"""`odradek configs` of users, on a broker in the process. If these fail, the scripts that make the
users of a new broker do not, or show a password.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import odradek
from odradek.cli.main import main
from odradek.client.sync import Admin

ADMIN = {"admin": "first"}


@pytest.fixture
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker(security="scram", users=ADMIN) as broker:
        yield broker


def changed(
    broker: odradek.Broker, folder: Path, *words: str, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """The outcome of a command line, and everything that it showed."""
    file = folder / "admin.properties"
    settings = broker.login("admin").java()
    settings.pop("bootstrap.servers")
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    server = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", str(file))
    status = main(["configs", *server, *words])
    shown = capsys.readouterr()
    return status, shown.out + shown.err


def test_a_user_from_the_first_password_to_the_last(
    broker: odradek.Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bob = ("--entity-type", "users", "--entity-name", "bob")

    def alter(flag: str, value: str) -> tuple[int, str]:
        return changed(broker, tmp_path, "--alter", *bob, flag, value, capsys=capsys)

    for added in ("SCRAM-SHA-256=[iterations=8192,password=a,b=c]", "SCRAM-SHA-512=[password=d]"):
        assert alter("--add-config", added) == (0, "Completed updating config for user bob.\n")
    with Admin(config=broker.login("bob", password="a,b=c").client()) as admin:
        admin.list_topics()
    told = changed(
        broker, tmp_path, "--describe", "--user", "bob", "--format", "json", capsys=capsys
    )
    scram = {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 4096}
    assert (told[0], json.loads(told[1])) == (0, [{"entity": {"user": "bob"}, "scram": scram}])
    for mechanism in scram:
        assert alter("--delete-config", mechanism)[0] == 0
    assert changed(broker, tmp_path, "--describe", "--user", "bob", capsys=capsys) == (0, "")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("iterations=x,password=s3cret", "Invalid credential property SCRAM_SHA_256=[hidden]\n"),
        ("iterations=,password=s3cret", "Invalid credential property SCRAM_SHA_256=[hidden]\n"),
        ("pasword=s3cret", "Invalid credential property SCRAM_SHA_256=[hidden]\n"),
        ("s3cret", "Invalid credential property SCRAM_SHA_256=[hidden]\n"),
        (
            "iterations=4095,password=s3cret",
            "Iterations 4095 is less than the minimum 4096 required for SCRAM-SHA-256\n",
        ),
    ],
)
def test_a_credential_that_is_none_is_not_shown(
    value: str,
    said: str,
    broker: odradek.Broker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Kafka's tool shows all of it, in the log of whatever runs the script."""
    words = ("--alter", "--user", "bob", "--add-config", f"SCRAM-SHA-256=[{value}]")
    assert changed(broker, tmp_path, *words, capsys=capsys) == (1, said)
