"""Certificates that are wrong, on either side. If one of these fails, somebody comes in with one,
or nobody learns what is wrong with it."""

import socket
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from tests.deadlines import deadline_s

import odradek
from odradek.client.errors import AuthenticationError
from odradek.client.security import client_security
from odradek.client.settings import ADMIN_SETTINGS, ClientSettings
from odradek.client.sync import Admin
from odradek.client.sync.cluster import Cluster
from odradek.tls import KeyStore, TlsSettings, TrustStore, client_context

pytest.importorskip("cryptography", reason="the extra `security`")

from odradek.server.in_process.protected.authority import (
    HOSTS,
    Certificate,
    CertificateAuthority,
    _key_pem,
)

NOW = datetime.now(UTC)
AUTHORITY = CertificateAuthority()
OF_OLD = CertificateAuthority(valid_until=NOW - timedelta(days=1))
TO_COME = CertificateAuthority(valid_from=NOW + timedelta(days=1))
STRANGER = CertificateAuthority()
# One by itself, which nobody else has signed.
ALONE = Certificate(STRANGER.certificate, _key_pem(STRANGER._key))
TRUSTED = "".join(each.certificate for each in (AUTHORITY, OF_OLD, TO_COME))
MANY = tuple(f"host-{number}.example.org" for number in range(300))


def broker_with(own, **more):
    config = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": own.key,
        "ssl.keystore.certificate.chain": own.certificate,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": TRUSTED,
        "security.inter.broker.protocol": "SSL",
        **more,
    }
    return odradek.Broker(listeners="SSL://127.0.0.1:0", config=config)


def settings_of(broker, own=None):
    timeout_ms = int(deadline_s(20) * 1000)
    found = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": TRUSTED,
        "default.api.timeout.ms": timeout_ms,
        "request.timeout.ms": timeout_ms,
    }
    if own is not None:
        found |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": own.key,
            "ssl.keystore.certificate.chain": own.certificate,
        }
    return found


def ask(settings):
    with Admin(config=settings) as admin:
        return admin.list_topics()


def ask_blocking(settings):
    servers = settings["bootstrap.servers"]
    security = client_security(ClientSettings(ADMIN_SETTINGS, settings, {}))
    with Cluster(servers, security=security) as cluster:
        return cluster.topics()


SIGNED = "name who signed it in ssl.truststore.location"
OF_BROKERS = [
    (AUTHORITY.issue("b", ("elsewhere",)), "not valid for .*: reach the broker by a name that"),
    (OF_OLD.issue("b", HOSTS), "certificate has expired"),
    (TO_COME.issue("b", HOSTS), "certificate is not yet valid"),
    (STRANGER.issue("b", HOSTS), f"unable to get local issuer certificate: {SIGNED}"),
    (ALONE, f"self.signed certificate: {SIGNED}"),
]


@pytest.mark.parametrize("asks", [ask, ask_blocking])
@pytest.mark.parametrize(("own", "words"), OF_BROKERS)
def test_a_client_says_what_is_wrong_with_a_broker_s(own, words, asks):
    """It said CERTIFICATE_VERIFY_FAILED of all alike."""
    said = f"TLS: the broker's certificate: .*{words}"
    with broker_with(own) as broker, pytest.raises(AuthenticationError, match=said):
        asks(settings_of(broker))


OF_CLIENTS = [
    (OF_OLD.issue("c"), "certificate has expired"),
    (TO_COME.issue("c"), "certificate is not yet valid"),
    (STRANGER.issue("c"), "unable to get local issuer certificate"),
    (ALONE, "signed certificate"),
]


def shown_to(broker, own):
    """Whatever a broker says to a client with this certificate, and how that ends."""
    mine = KeyStore(key=own.key, certificate_chain=own.certificate)
    context = client_context(TlsSettings(mine, TrustStore(certificates=TRUSTED)))
    host, port = broker.bootstrap_servers.rsplit(":", 1)
    plain = socket.create_connection((host, int(port)), deadline_s(30))
    # In TLS 1.3 the handshake is over for the client before the broker has looked.
    with plain, context.wrap_socket(plain, server_hostname="localhost") as one:
        return one.recv(1)


@pytest.mark.parametrize(("own", "words"), OF_CLIENTS)
def test_a_broker_logs_what_is_wrong_with_a_client_s(own, words, caplog):
    good = AUTHORITY.issue("broker", HOSTS)
    with broker_with(good, **{"ssl.client.auth": "required"}) as broker:
        with pytest.raises(ssl.SSLError, match=r"(?i)alert"):
            shown_to(broker, own)
        assert words in caplog.text
        assert ask(settings_of(broker, AUTHORITY.issue("c"))) is not None


def test_an_authority_s_certificates_are_good_on_every_date():
    """A library that moves the date of tests moves that by which they are made, and not the one by
    which OpenSSL, or a client in another process, judges them."""
    from cryptography.x509 import load_pem_x509_certificate

    for text in (AUTHORITY.certificate, AUTHORITY.issue("b", HOSTS).certificate):
        certificate = load_pem_x509_certificate(text.encode())
        years = certificate.not_valid_before_utc.year, certificate.not_valid_after_utc.year
        assert years == (1970, 9999)


def test_three_hundred_names_are_not_too_many():
    """A certificate of many names is longer than what TLS has in one record's first bytes."""
    own = AUTHORITY.issue("many", (*MANY, *HOSTS))
    with broker_with(own, **{"ssl.client.auth": "required"}) as broker:
        settings = settings_of(broker, AUTHORITY.issue("c", MANY))
        assert ask(settings) is not None
        assert ask_blocking(settings) is not None
