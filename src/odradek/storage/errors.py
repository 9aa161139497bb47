"""What only this floor has to tell apart. Interpreted, so that compiled modules can raise it."""

from odradek.records.errors import CorruptRecords


class OffsetWentBack(CorruptRecords):
    """A batch has an offset that an earlier one has, or has passed."""

    def __init__(self, offset: int, expected: int) -> None:
        super().__init__(f"offset {offset} where {expected} is due")
        self.offset = offset
