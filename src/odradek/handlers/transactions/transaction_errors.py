"""The errors of transactions for older versions of requests."""

from typing import Final

from odradek.errors import ErrorCode

_OLDER: Final = {ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH}


def as_known(code: ErrorCode, version: int, fenced_version: int) -> ErrorCode:
    """The code for a version of the request: those before `fenced_version` do not know
    PRODUCER_FENCED."""
    return code if version >= fenced_version else _OLDER.get(code, code)
