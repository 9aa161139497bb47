"""A certificate authority that lives as long as its broker. Needs the extra `security`.

Its certificates are valid on every date: a library that moves time in tests moves that of this
process, but not the one by which OpenSSL, or a client in another process, judges them.
"""

from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_FROM: Final = datetime(1970, 1, 1, tzinfo=UTC)
# By RFC 5280 the date of what never ends.
_UNTIL: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


class Certificate(NamedTuple):
    """A certificate and its key, as PEM."""

    certificate: str
    key: str

    def __repr__(self) -> str:
        return "Certificate(...)"


class CertificateAuthority:
    """Issues certificates; clients that trust `certificate` accept them."""

    def __init__(self, valid_from: datetime = _FROM, valid_until: datetime = _UNTIL) -> None:
        """Raises:
        ImportError: the extra `security` is not installed.
        """
        try:
            import cryptography.x509  # noqa: F401 - whether it is there
        except ImportError as error:
            raise ImportError(
                "certificates need the extra `security`: pip install 'odradek[security]'"
            ) from error
        self._valid_from = valid_from
        self._valid_until = valid_until
        self._key = _new_key()
        self._name = _name("Odradek test authority")
        builder = self._builder(self._name, self._key.public_key(), is_authority=True)
        self._certificate = builder.sign(self._key, _sha256())
        self.certificate: Final[str] = _pem(self._certificate)

    def issue(self, common_name: str, hosts: tuple[str, ...] = ()) -> Certificate:
        """A certificate of that name, for a server at these hosts if there are any."""
        key = _new_key()
        builder = self._builder(_name(common_name), key.public_key(), is_authority=False)
        if hosts:
            builder = builder.add_extension(_alternative_names(hosts), critical=False)
        return Certificate(_pem(builder.sign(self._key, _sha256())), _key_pem(key))

    def _builder(self, name: Any, public_key: Any, *, is_authority: bool) -> Any:
        from cryptography import x509

        signs = is_authority
        usage = x509.KeyUsage(not signs, False, False, False, False, signs, signs, False, False)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._valid_from)
            .not_valid_after(self._valid_until)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )


def _new_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _sha256() -> Any:
    from cryptography.hazmat.primitives import hashes

    return hashes.SHA256()


def _name(common_name: str) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _alternative_names(hosts: tuple[str, ...]) -> Any:
    from cryptography import x509

    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return x509.SubjectAlternativeName(names)


def _pem(certificate: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    encoded: bytes = certificate.public_bytes(Encoding.PEM)
    return encoded.decode()


def _key_pem(key: Any) -> str:
    from cryptography.hazmat.primitives import serialization

    encoded: bytes = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return encoded.decode()
