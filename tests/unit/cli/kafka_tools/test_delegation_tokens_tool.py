"""`odradek delegation-tokens`, on a broker in the process."""

import json
from pathlib import Path

import pytest

import odradek
from odradek.cli.main import main

USERS = {"alice": "secret", "bob": "geheim"}
KEY = {"delegation.token.secret.key": "the brokers' own"}


def test_a_token_from_its_creation_to_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An administrator could not give a job a token, or take it back."""
    with odradek.Broker(security="scram", users=USERS, config=KEY) as broker:
        for name in USERS:
            settings = broker.login(name).java()
            settings.pop("bootstrap.servers")
            lines = [f"{setting}={value}\n" for setting, value in settings.items()]
            (tmp_path / name).write_text("".join(lines))

        def ours(who: str, *words: str) -> tuple[int, str]:
            server = ("--bootstrap-server", broker.bootstrap_servers)
            config = ("--command-config", str(tmp_path / who))
            status = main(["delegation-tokens", *server, *config, *words])
            shown = capsys.readouterr()
            return status, shown.out + shown.err

        status, shown = ours("alice", "--create", "--renewer-principal", "User:bob")
        assert status == 0
        title, row = shown.splitlines()
        assert title.split()[:2] == ["TOKENID", "HMAC"]
        token_id, hmac, owner, requester, renewers, *_ = row.split()
        assert (owner, requester, renewers) == ("User:alice", "User:alice", "User:bob")
        _, shown = ours("bob", "--describe", "--format", "json")
        assert [each["token_id"] for each in json.loads(shown)] == [token_id]
        status, shown = ours("bob", "--renew", "--hmac", hmac, "--renew-time-period", "1000")
        assert shown.startswith("Completed renew operation. New expiry date : ")
        assert ours("bob", "--expire", "--hmac", hmac)[0] == 0
        status, shown = ours("bob", "--renew", "--hmac", hmac)
        assert status == 1
        assert "Error while executing delegation token command : " in shown
        assert ours("bob", "--renew", "--hmac", "no base64!")[0] == 1
        assert ours("alice", "--describe", "--owner-principal", "User:alice")[1] == f"{title}\n"
