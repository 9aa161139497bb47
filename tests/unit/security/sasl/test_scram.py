"""If one of these fails, SCRAM is not what others speak, or lets somebody else in."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rounds import rounds

from odradek.security.sasl import scram
from odradek.security.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512, SaslError
from odradek.security.sasl.scram_client import ScramClient
from odradek.security.sasl.scram_server import ScramServer

SALT = b"0123456789abcdef"
KNOWN = {
    mechanism: scram.credential(mechanism, "secret", SALT, 4096)
    for mechanism in scram.SCRAM_MECHANISMS
}


def log_in(mechanism, server_name, client_name, password):
    """Carries a login out; returns the server."""
    known = {server_name: KNOWN[mechanism]}
    server = ScramServer(mechanism, known.get, "server")
    client = ScramClient(mechanism, client_name, password, "client")
    last = client.evaluate(server.evaluate(client.first()))
    assert client.evaluate(server.evaluate(last)) is None
    assert client.is_complete
    return server


def test_the_example_of_rfc_7677():
    salt = scram.base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    known = scram.credential(SCRAM_SHA_256, "pencil", salt, 4096)
    nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    server = ScramServer(SCRAM_SHA_256, {"user": known}.get, nonce)
    client = ScramClient(SCRAM_SHA_256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    first = server.evaluate(client.first())
    whole = f"rOprNGfwEbeRWgbNEkqO{nonce}"
    assert first.decode() == f"r={whole},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    last = client.evaluate(first)
    assert last.decode() == f"c=biws,r={whole},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert server.evaluate(last) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])
@settings(max_examples=rounds(25), deadline=None)
@given(name=st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1))
def test_names_of_all_kinds_log_in(mechanism, name):
    assert log_in(mechanism, name, name, "secret").authorization_id == name


@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("bob", "secret")])
def test_a_wrong_password_and_an_unknown_user_are_refused(name, password):
    with pytest.raises(SaslError, match="Invalid"):
        log_in(SCRAM_SHA_256, "alice", name, password)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,n=alice",
        b"n,,r=nonce",
        b"p=tls-unique,,n=alice,r=nonce",
        b"y,,n=alice,r=nonce",
        b"n,,n=al=2Gice,r=nonce",
        b"n,,n=alice,r=non,ce",
        b"n,,n=\xff,r=nonce",
        b"n,a=bob,n=alice,r=nonce",
        b"n,,n=,r=nonce",
    ],
)
def test_a_first_message_that_is_none_is_refused(message):
    with pytest.raises(SaslError):
        ScramServer(SCRAM_SHA_256, {"alice": KNOWN[SCRAM_SHA_256]}.get, "server").evaluate(message)


@pytest.mark.parametrize(
    "replaced", [(b"client", b"other"), (b",p=", b",p=AA"), (b"c=biws", b"c=")]
)
def test_a_last_message_of_another_login_is_refused(replaced):
    server = ScramServer(SCRAM_SHA_256, {"alice": KNOWN[SCRAM_SHA_256]}.get, "server")
    client = ScramClient(SCRAM_SHA_256, "alice", "secret", "client")
    last = client.evaluate(server.evaluate(client.first()))
    with pytest.raises(SaslError):
        server.evaluate(last.replace(*replaced))
    assert not server.is_complete


def test_a_login_that_was_listened_to_cannot_be_repeated():
    """The nonce of the broker is another one, though the client's is the same."""
    server = ScramServer(SCRAM_SHA_256, {"alice": KNOWN[SCRAM_SHA_256]}.get, "server")
    client = ScramClient(SCRAM_SHA_256, "alice", "secret", "client")
    first = client.first()
    last = client.evaluate(server.evaluate(first))
    assert server.evaluate(last)
    another = ScramServer(SCRAM_SHA_256, {"alice": KNOWN[SCRAM_SHA_256]}.get, "another")
    another.evaluate(first)
    with pytest.raises(SaslError, match="nonce"):
        another.evaluate(last)
    with pytest.raises(SaslError, match="Invalid client credentials"):
        another.evaluate(last.replace(b"clientserver", b"clientanother"))


def test_a_nonce_that_begins_twice_is_taken_as_kafka_takes_it():
    """librdkafka before 2.6.1, which is in kcat of today's distributions, could not log in."""
    server = ScramServer(SCRAM_SHA_256, {"alice": KNOWN[SCRAM_SHA_256]}.get, "server")
    first = server.evaluate(b"n,,n=alice,r=client").decode()
    without_proof = "c=biws,r=clientclientserver"
    signed = f"n=alice,r=client,{first},{without_proof}"
    salted = scram.salted_password(SCRAM_SHA_256, "secret", SALT, 4096)
    signature = scram.signature(SCRAM_SHA_256, KNOWN[SCRAM_SHA_256].stored_key, signed)
    proof = scram.xor(scram.client_key(SCRAM_SHA_256, salted), signature)
    assert server.evaluate(scram.client_final_text(without_proof, proof).encode())
    assert server.is_complete


def test_too_few_iterations_are_not_enough():
    weak = scram.credential(SCRAM_SHA_256, "secret", SALT, 4095)
    server = ScramServer(SCRAM_SHA_256, {"alice": weak}.get, "server")
    with pytest.raises(SaslError, match="less than the minimum"):
        server.evaluate(b"n,,n=alice,r=nonce")


def test_extensions_that_are_not_known_are_passed_over():
    server = ScramServer(SCRAM_SHA_256, {"alice": KNOWN[SCRAM_SHA_256]}.get, "server")
    assert server.evaluate(b"n,,n=alice,r=nonce,tokenauth=false").startswith(b"r=nonceserver,")


def test_a_broker_that_does_not_know_the_password_is_found_out():
    client = ScramClient(SCRAM_SHA_256, "alice", "secret", "client")
    client.evaluate(b"r=clientserver,s=MDEyMw==,i=4096")
    with pytest.raises(SaslError):
        client.evaluate(b"v=AAAA")


@pytest.mark.parametrize("first", ["r=server,s=AA==,i=4096", "r=client,s=AA==,i=4096", "e=no"])
def test_a_broker_that_answers_another_login_is_not_trusted(first):
    with pytest.raises(SaslError):
        ScramClient(SCRAM_SHA_256, "alice", "secret", "client").evaluate(first.encode())


def test_a_broker_cannot_keep_a_client_busy():
    """The answering side may be anybody, and the event loop would stand still for minutes."""
    client = ScramClient(SCRAM_SHA_256, "alice", "secret", "client")
    with pytest.raises(SaslError, match="999999999 iterations"):
        client.evaluate(b"r=clientserver,s=MDEyMw==,i=999999999")


def test_credentials_are_kept_as_kafka_keeps_them_and_not_shown():
    known = KNOWN[SCRAM_SHA_512]
    text = scram.credential_text(known)
    assert text.startswith("salt=MDEyMzQ1Njc4OWFiY2RlZg==,stored_key=")
    assert text.endswith(",iterations=4096")
    assert scram.parse_credential(text) == known
    assert repr(known) == "ScramCredential(4096 iterations)"
