"""If one of these fails, a key store that Kafka reads is refused, or a wrong one is taken."""

import ssl
from datetime import UTC, datetime

import pytest

from odradek.tls import KeyStore, TlsError, TlsSettings, TrustStore, client_context, server_context
from odradek.tls.contexts import openssl_name

pytest.importorskip("cryptography", reason="the extra `security`")

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from odradek.security.distinguished_name import subject_of
from odradek.server.in_process.protected.authority import HOSTS, CertificateAuthority

NOW = datetime.now(UTC)

ODD_PEM = "-----BEGIN CERTIFICATE-----\nMIIBé\n-----END CERTIFICATE-----"


@pytest.fixture(scope="module")
def authority():
    return CertificateAuthority()


@pytest.fixture(scope="module")
def own(authority):
    return authority.issue("broker", HOSTS)


def encrypted(pem):
    key = serialization.load_pem_private_key(pem.encode(), None)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"key-secret"),
    ).decode()


def as_pkcs12(own, authority):
    key = serialization.load_pem_private_key(own.key.encode(), None)
    certificate = x509.load_pem_x509_certificate(own.certificate.encode())
    trusted = x509.load_pem_x509_certificate(authority.certificate.encode())
    encryption = serialization.BestAvailableEncryption(b"store-secret")
    return pkcs12.serialize_key_and_certificates(b"broker", key, certificate, [trusted], encryption)


def shake_hands(server, client, host="localhost"):
    """A handshake in memory; returns both ends."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = server.wrap_bio(to_server, to_client, server_side=True)
    other = client.wrap_bio(to_client, to_server, server_hostname=host)
    done = set()
    for _ in range(10):
        for end in (other, one):
            try:
                end.do_handshake()
                done.add(end)
            except ssl.SSLWantReadError:
                pass
    assert len(done) == 2
    return one, other


def test_pem_as_text_in_one_line_and_in_files(authority, own, tmp_path):
    client = client_context(TlsSettings(trust_store=TrustStore(certificates=authority.certificate)))
    one_line = KeyStore(
        key=own.key.replace("\n", " "), certificate_chain=own.certificate.replace("\n", " ")
    )
    together = tmp_path / "broker.pem"
    together.write_text(own.certificate + own.key)
    for store in (one_line, KeyStore(location=str(together), type="PEM")):
        shake_hands(server_context(TlsSettings(store)), client)


def test_an_encrypted_key_needs_its_password(authority, own):
    key = encrypted(own.key)
    store = KeyStore(key=key, certificate_chain=own.certificate, key_password="key-secret")
    server_context(TlsSettings(store))
    for password in (None, "wrong"):
        with pytest.raises(TlsError, match=r"ssl\.key\.password") as caught:
            server_context(TlsSettings(store._replace(key_password=password)))
        assert "key-secret" not in str(caught.value)


@pytest.mark.parametrize("type", ["PKCS12", "JKS"])
def test_pkcs12_under_either_name(authority, own, tmp_path, type):
    path = tmp_path / "broker.p12"
    path.write_bytes(as_pkcs12(own, authority))
    store = KeyStore(location=str(path), password="store-secret", type=type)
    trusted = TrustStore(location=str(path), password="store-secret", type=type)
    shake_hands(
        server_context(TlsSettings(store)), client_context(TlsSettings(trust_store=trusted))
    )
    with pytest.raises(TlsError, match="the password is wrong"):
        server_context(TlsSettings(store._replace(password="wrong")))


def test_a_store_that_only_java_reads_is_refused_with_the_command_that_converts_it(tmp_path):
    path = tmp_path / "broker.jks"
    path.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    with pytest.raises(TlsError, match=r"keytool -importkeystore -srckeystore .*broker\.jks"):
        server_context(TlsSettings(KeyStore(location=str(path))))


@pytest.mark.parametrize(
    ("store", "text"),
    [
        (KeyStore(), "there is neither ssl.keystore.location nor"),
        (KeyStore(location="/does/not/exist"), "No such file"),
        (KeyStore(key="no pem", certificate_chain=""), "has no PEM"),
        (KeyStore(key="x"), "without ssl.keystore.certificate.chain"),
        (KeyStore(location="/dev/null"), "has no PEM"),
        (KeyStore(location="/dev/null", type="BCFKS"), "BCFKS is none of"),
        (KeyStore(location="a\0b"), "cannot be a path"),
        (KeyStore(key=ODD_PEM, certificate_chain=""), "ssl.keystore.key has PEM with characters"),
    ],
)
def test_a_store_that_is_none_is_refused(store, text):
    with pytest.raises(TlsError, match=text):
        server_context(TlsSettings(store))


@pytest.mark.parametrize(("has", "lacks"), [("certificate", "key"), ("key", "certificate")])
def test_a_store_with_half_of_what_it_needs_says_which(own, tmp_path, has, lacks):
    """OpenSSL tells of its library alone, and the password looks wrong."""
    path = tmp_path / "half.pem"
    path.write_text(getattr(own, has))
    with pytest.raises(TlsError, match=rf"half\.pem has no {lacks}"):
        server_context(TlsSettings(KeyStore(location=str(path), type="PEM")))
    given = {"key": own.key, "certificate": own.certificate} | {lacks: ""}
    half = KeyStore(key=given["key"], certificate_chain=given["certificate"])
    with pytest.raises(TlsError, match=rf"ssl\.keystore\.key has no {lacks}"):
        server_context(TlsSettings(half))


def test_a_trust_store_of_odd_characters_is_refused():
    """A file that is spoilt while the broker runs would be logged with a trace."""
    with pytest.raises(TlsError, match=r"ssl\.truststore\.certificates has PEM with characters"):
        client_context(TlsSettings(trust_store=TrustStore(certificates=ODD_PEM)))


def test_names_are_checked_unless_that_is_off(authority, own):
    store = KeyStore(key=own.key, certificate_chain=own.certificate)
    server = server_context(TlsSettings(store))
    trusted = TrustStore(certificates=authority.certificate)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, client_context(TlsSettings(trust_store=trusted)), "elsewhere")
    settings = TlsSettings(trust_store=trusted, checks_host_name=False)
    shake_hands(server, client_context(settings), "elsewhere")


def test_certificates_of_clients(authority, own):
    store = KeyStore(key=own.key, certificate_chain=own.certificate)
    trusted = TrustStore(certificates=authority.certificate)
    alice = authority.issue("alice,=é")
    named = KeyStore(key=alice.key, certificate_chain=alice.certificate)
    required = server_context(TlsSettings(store, trusted, client_auth="required"))
    one, _ = shake_hands(required, client_context(TlsSettings(named, trusted)))
    assert subject_of(one.getpeercert(True)) == "CN=alice\\,\\=é"
    with pytest.raises(ssl.SSLError):
        shake_hands(required, client_context(TlsSettings(trust_store=trusted)))
    requested = server_context(TlsSettings(store, trusted, client_auth="requested"))
    one, _ = shake_hands(requested, client_context(TlsSettings(trust_store=trusted)))
    assert one.getpeercert(True) is None


@pytest.mark.parametrize(
    ("protocols", "suites", "version", "cipher"),
    [
        (("TLSv1.2", "TLSv1.3"), (), "TLSv1.3", None),
        (("TLSv1.2",), (), "TLSv1.2", None),
        (
            ("TLSv1.2", "TLSv1.3"),
            ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",),
            "TLSv1.2",
            "ECDHE-ECDSA-AES128-GCM-SHA256",
        ),
    ],
)
def test_versions_and_suites(authority, own, protocols, suites, version, cipher):
    store = KeyStore(key=own.key, certificate_chain=own.certificate)
    server = server_context(TlsSettings(store, TrustStore(), protocols, suites))
    trusted = TrustStore(certificates=authority.certificate)
    one, _ = shake_hands(server, client_context(TlsSettings(trust_store=trusted)))
    assert one.version() == version
    assert cipher in (None, one.cipher()[0])


@pytest.mark.parametrize(
    ("protocols", "suites", "text"),
    [
        (("TLSv1.1",), (), "ssl.enabled.protocols"),
        (("TLSv1.3",), ("TLS_AES_128_GCM_SHA256",), "cannot leave out single suites"),
        (("TLSv1.2",), ("TLS_NO_SUCH",), "none of TLS_NO_SUCH is served"),
        (("TLSv1.2",), ("A\0B",), "is served here"),
    ],
)
def test_what_cannot_be_had_is_refused(own, protocols, suites, text):
    store = KeyStore(key=own.key, certificate_chain=own.certificate)
    with pytest.raises(TlsError, match=text):
        server_context(TlsSettings(store, TrustStore(), protocols, suites))


@pytest.mark.parametrize(
    ("standard", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_suites_by_their_standard_names(standard, openssl):
    assert openssl_name(standard) == openssl


def test_the_subject_is_written_as_java_writes_it(authority):
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "c"),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, " b#"),
            x509.NameAttribute(NameOID.COMMON_NAME, "a"),
            x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@b.c"),
        ]
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW.replace(year=NOW.year + 1, day=1))
        .sign(key, hashes.SHA256())
    )
    encoded = certificate.public_bytes(serialization.Encoding.DER)
    assert subject_of(encoded) == "1.2.840.113549.1.9.1=#16056140622e63,CN=a,OU=\\ b#,O=c,C=DE"
    for end in range(0, len(encoded), 7):
        with pytest.raises(ValueError, match="no certificate"):
            subject_of(encoded[:end])


def test_a_client_cannot_ask_for_one_handshake_after_another(own):
    """Each of them is dear, and no limit on connections counts them."""
    context = server_context(TlsSettings(KeyStore(key=own.key, certificate_chain=own.certificate)))
    assert context.options & ssl.OP_NO_RENEGOTIATION
