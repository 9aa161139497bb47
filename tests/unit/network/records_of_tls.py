"""Records of TLS 1.3 as a client could make them: Python's `ssl` makes proper ones alone."""

import hashlib
import hmac
import struct
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

HANDSHAKE = 22
APPLICATION_DATA = 23
# It asks the other side for new keys, too.
KEY_UPDATE = bytes([24, 0, 0, 1, 1])


class Records:
    """Goes on for a client, of `TLS_AES_256_GCM_SHA384`, which has sent nothing since its
    handshake."""

    def __init__(self, key_log: Path) -> None:
        lines = [line.split() for line in key_log.read_text().splitlines()]
        found = [line[2] for line in lines if line[0] == "CLIENT_TRAFFIC_SECRET_0"]
        self._use(bytes.fromhex(found[-1]))

    def record(self, content: bytes, kind: int = APPLICATION_DATA) -> bytes:
        """One record, encrypted."""
        inner = content + bytes([kind])
        header = b"\x17\x03\x03" + struct.pack(">H", len(inner) + 16)
        number = self._sequence.to_bytes(12, "big")
        self._sequence += 1
        nonce = bytes(one ^ other for one, other in zip(self._iv, number, strict=True))
        return header + self._cipher.encrypt(nonce, inner, header)

    def key_update(self) -> bytes:
        """A record after which the client uses new keys, and so shall the broker."""
        record = self.record(KEY_UPDATE, HANDSHAKE)
        self._use(_expanded(self._secret, b"traffic upd", 48))
        return record

    def _use(self, secret: bytes) -> None:
        self._secret = secret
        self._sequence = 0
        self._cipher = AESGCM(_expanded(secret, b"key", 32))
        self._iv = _expanded(secret, b"iv", 12)


def _expanded(secret: bytes, label: bytes, size: int) -> bytes:
    """HKDF-Expand-Label of RFC 8446, for no more than one hash."""
    info = struct.pack(">HB", size, 6 + len(label)) + b"tls13 " + label + b"\0"
    return hmac.new(secret, info + b"\x01", hashlib.sha384).digest()[:size]
