"""What a client that does not speak Kafka's protocol seems to speak instead.

Its first bytes make no size that is allowed, which is how it is found out; what they are tells
the person who reads the log what was set up wrongly. Said only for people: whatever the guess,
the connection is closed.
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
