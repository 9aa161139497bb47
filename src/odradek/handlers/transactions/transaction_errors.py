"""The errors of transactions for older versions of requests."""

from typing import Final

from odradek.errors import ErrorCode

_OLDER: Final = {ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH}


def as_known(code: ErrorCode, version: int, fenced_version: int) -> ErrorCode:
    """PRODUCER_FENCED in the words of versions before `fenced_version`, which do not know it."""
    return code if version >= fenced_version else _OLDER.get(code, code)
