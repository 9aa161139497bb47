"""The terms that a listener with TLS sets for its clients."""

import ssl
from typing import Protocol

from odradek.model import KafkaPrincipal


class PeerRefused(Exception):
    """A certificate whose principal is not admitted; the text is for the log."""


class TlsTerms(Protocol):
    """The terms a listener sets for its clients."""

    def context(self) -> ssl.SSLContext:
        """The newest context, for a connection that has just come."""
        ...

    def principal_of(self, certificate: bytes | None) -> KafkaPrincipal:
        """The principal of a certificate, in DER; None without a certificate.

        Raises:
            PeerRefused: it is not admitted.
        """
        ...
