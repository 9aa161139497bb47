"""If one of these fails, a certificate that nobody can read ends in a trace."""

import pytest

import odradek
from odradek.network.tls.terms import PeerRefused


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
