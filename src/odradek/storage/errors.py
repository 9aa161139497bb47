"""The errors that only this floor has to tell apart. Interpreted, so that compiled modules can
raise them."""

import errno
from typing import Final

from odradek.errors import reason_of
from odradek.records.errors import CorruptRecords

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The numbers of the errors of a disk without room."""


class OffsetWentBack(CorruptRecords):
    """A batch has an offset that is not above an earlier batch's."""

    def __init__(self, offset: int, expected: int) -> None:
        super().__init__(f"offset {offset} where {expected} is due")
        self.offset = offset


class MisleadingIndex(CorruptRecords):
    """An index that contradicts the records of its segment."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")


def half_done(path: str, cause: OSError) -> OSError:
    """The failure of a change that could neither be finished nor taken back.

    It is EIO, whatever the cause: even if only room was missing, the files do not match the log any
    more, so their directory has to go offline.
    """
    return OSError(errno.EIO, f"a change stopped half-way ({reason_of(cause)})", path)
