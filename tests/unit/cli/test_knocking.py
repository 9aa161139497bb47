"""A command tells of brokers that are not there, before it asks them."""

import contextlib
import socket
import threading
from typing import Any

import pytest
from tests.deadlines import deadline_s

from odradek import Broker
from odradek.cli.knocking import tell_if_nobody_answers

Captured = pytest.CaptureFixture[str]


def test_who_waits_for_a_broker_that_is_away_is_told_at_once(
    capsys: Captured,
) -> None:
    """A command would be silent for as long as a client tries, 10 or 30 seconds."""
    with Broker() as broker:
        there = broker.bootstrap_servers
        tell_if_nobody_answers(there)
        tell_if_nobody_answers(f"127.0.0.1:1,{there}")
        tell_if_nobody_answers("no address")
        assert capsys.readouterr().err == ""
        port = there.split(":")[1]
    for _ in range(2):
        tell_if_nobody_answers(f"localhost:{port}")
    assert capsys.readouterr().err == (
        f"odradek: nothing listens at localhost:{port} yet, trying on\n"
    )
    tell_if_nobody_answers("no..host:9092")
    assert capsys.readouterr().err == "odradek: nothing listens at no..host:9092 yet, trying on\n"


def test_an_address_whose_name_nobody_tells_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """A machine without its name server would have a command be silent for half a minute."""
    is_over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: is_over.wait(deadline_s(60)) and [])
    tell_if_nobody_answers("far.example:9092,away.example:9092")
    assert not is_over.is_set()
    is_over.set()
    assert "odradek: nothing listens at far.example:9092,away" in capsys.readouterr().err


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT", "ssl", "SASL_SSL"])
@pytest.mark.parametrize("is_silent", [True, False])
def test_who_listens_and_does_not_answer_is_told_of(
    protocol: str, is_silent: bool, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """A stopped broker, or the forwarded port of a container whose broker is not there yet. With
    TLS nothing is asked, which would be a failed handshake in the broker's log."""
    asked: list[bytes] = []

    class Connection(contextlib.nullcontext[Any]):
        settimeout = close = lambda *_: None

        def __enter__(self) -> Any:
            return self

        def sendall(self, data: bytes) -> None:
            asked.append(data)

        def recv(self, _size: int) -> bytes:
            if is_silent:
                raise TimeoutError
            return b""

    monkeypatch.setattr(socket, "create_connection", lambda *_: Connection())
    servers = f"silent-{is_silent}:9092"
    tell_if_nobody_answers(servers, protocol)
    told = f"odradek: {servers} accepts connections, but no broker answers there yet, trying on\n"
    assert (capsys.readouterr().err, len(asked)) == (
        ("", 0) if "SSL" in protocol.upper() else (told, 1)
    )


def test_brokers_that_are_away_are_knocked_at_together(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """Ten addresses behind a firewall that answers nothing would take ten seconds."""
    together = threading.Barrier(3, timeout=deadline_s(60))

    def refuse(_address: tuple[str, int], _timeout: float) -> None:
        together.wait()
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", refuse)
    tell_if_nobody_answers("10.0.0.1:9092,10.0.0.2:9092,10.0.0.3:9092")
    assert "odradek: nothing listens at 10.0.0.1:9092," in capsys.readouterr().err
