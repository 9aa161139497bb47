"""A broker's certificate for TLS, in PEM files, for tests and benchmarks."""

from pathlib import Path

from odradek.server.in_process.protected.authority import HOSTS, CertificateAuthority


def pem_stores(authority: CertificateAuthority, home: Path) -> dict[str, str]:
    """The settings of a broker's stores, whose files are written into `home`."""
    own = authority.issue("broker", HOSTS)
    (home / "broker.pem").write_text(own.certificate + own.key)
    (home / "trusted.pem").write_text(authority.certificate)
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(home / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(home / "trusted.pem"),
    }
