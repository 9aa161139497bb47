"""If one of these fails, a wrong password is taken, or a right one is not."""

import hmac

import pytest

from odradek.security.sasl.mechanism import SaslAuthenticationError
from odradek.security.sasl.plain import PlainClient, PlainServer

USERS = {"alice": "secret", "Ἀλίκη": "пароль"}


@pytest.mark.parametrize("name", USERS)
def test_who_knows_the_password_is_let_in(name):
    server, client = PlainServer(USERS.get), PlainClient(name, USERS[name])
    assert client.evaluate(server.evaluate(client.first())) is None
    assert (server.is_complete, client.is_complete) == (True, True)
    assert server.authorization_id == name


@pytest.mark.parametrize(
    "message",
    [
        b"\0alice\0wrong",
        b"\0alice\0secret ",
        b"\0bob\0secret",
        b"bob\0alice\0secret",
        *(b"", b"alice", b"\0alice", b"\0\0secret", b"\0alice\0", b"\0alice\0se\0cret"),
        b"\xff\0\xff",
    ],
)
def test_others_are_told_why(message):
    server = PlainServer(USERS.get)
    with pytest.raises(SaslAuthenticationError):
        server.evaluate(message)
    assert not server.is_complete


@pytest.mark.parametrize("name", ["alice", "nobody"])
@pytest.mark.parametrize("password", ["secret", "s", "x" * 10_000])
def test_every_guess_is_compared_alike(monkeypatch, name, password):
    """The time of an answer would tell how much of a password is right, or who is a user."""
    compared = []

    def compare(one, other):
        compared.append((len(one), len(other)))
        return real(one, other)

    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", compare)
    server = PlainServer(USERS.get)
    try:
        server.evaluate(PlainClient(name, password).first())
    except SaslAuthenticationError:
        assert (name, password) != ("alice", "secret")
    assert compared == [(32, 32)]
