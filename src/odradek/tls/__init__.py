"""TLS by Kafka's settings: key stores, trust stores and contexts, for brokers and clients alike."""

from odradek.tls.contexts import (
    CLIENT_AUTH,
    TlsSettings,
    client_context,
    server_context,
)
from odradek.tls.stores import KeyStore, TlsError, TrustStore, read_identity

__all__ = [
    "CLIENT_AUTH",
    "KeyStore",
    "TlsError",
    "TlsSettings",
    "TrustStore",
    "client_context",
    "read_identity",
    "server_context",
]
