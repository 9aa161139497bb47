"""If one of these fails, a certificate that nobody can read ends in a trace."""

import os

import pytest

import odradek
from odradek.config import BrokerConfig
from odradek.model import EndPoint
from odradek.network.tls.terms import PeerRefused
from odradek.server.in_process.protected.authority import HOSTS, CertificateAuthority
from odradek.server.security.tls_terms import ListenerTls


def terms_of(broker):
    return broker._running()._security._tls["SSL"]


@pytest.mark.parametrize("certificate", [b"", b"\x30", b"\x30\x82\xff\xff", b"\x30\x00" * 50])
def test_a_certificate_that_cannot_be_read_is_refused_with_a_reason(certificate):
    """OpenSSL takes some that we do not: the loop would log a trace for each of them."""
    with (
        odradek.Broker(security="mtls", users={"alice": ""}) as broker,
        pytest.raises(PeerRefused, match="cannot be read: this is no certificate"),
    ):
        terms_of(broker).principal_of(certificate)


def test_a_file_that_vanishes_while_it_is_looked_at_is_looked_at_again(tmp_path, monkeypatch):
    """A trace would be logged: a certificate is often replaced by removing the old one first."""
    own = CertificateAuthority().issue("broker", HOSTS)
    store = tmp_path / "broker.pem"
    store.write_text(own.certificate + own.key)
    config = BrokerConfig(
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store), "listeners": "SSL://:0"}
    )
    terms = ListenerTls(config, EndPoint("SSL", "SSL", "", 0), is_between_brokers=False)
    looks = []

    def look(path, **options):
        looks.append(path)
        if looks.count(str(store)) == 2:
            raise FileNotFoundError(path)
        return real(path, **options)

    real = os.stat
    monkeypatch.setattr(os, "stat", look)
    before = terms.context()
    terms.renew(by_files=True)
    terms.renew(by_files=True)
    assert looks.count(str(store)) >= 2
    assert terms.context() is not before
