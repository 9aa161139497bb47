"""Recognizes clients that speak another protocol than Kafka's.

Their first bytes make no size that is allowed. The guess goes into the log, to show what was
configured wrongly; the connection is closed in any case.
"""

from typing import Final

_TLS_HANDSHAKE: Final = b"\x16\x03"
_HTTP_METHODS: Final = (b"GET ", b"PUT ", b"POST", b"HEAD", b"OPTI", b"PATC", b"DELE", b"CONN")
_HTTP_2: Final = b"PRI "


def describe(first_bytes: bytes) -> str:
    """A remark to put behind the reason, or nothing."""
    if first_bytes.startswith(_TLS_HANDSHAKE):
        return ". This looks like TLS: the client uses SSL where this listener has PLAINTEXT"
    if first_bytes.startswith((*_HTTP_METHODS, _HTTP_2)):
        return ". This looks like HTTP: Kafka clients speak a protocol of their own on this port"
    return ""
