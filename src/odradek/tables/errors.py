"""The errors of a read that are not wrong options."""


class MissingData(Exception):
    """Records are missing: deleted, truncated, or behind a torn tail.

    `next_offset` is the next existing offset, as far as that is known; None if nothing follows.
    """

    def __init__(self, what: str, next_offset: int | None = None) -> None:
        super().__init__(what)
        self.next_offset = next_offset


class DataLoss(Exception):
    """Missing records in a read that must not lose any (`failOnDataLoss`, on by default)."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. Records may have been deleted before they were read, or the topic "
            "recreated; set failOnDataLoss to false to continue with the records that are left."
        )


class WrongPath(Exception):
    """A directory that is missing, or belongs to another cluster: nothing may be read from it.

    Never counts as missing records, whatever `failOnDataLoss` says: all would be missing.
    """


class DamagedRecords(Exception):
    """Records are damaged; they are never skipped."""


class OutdatedQuery(Exception):
    """A query with exactly-once writes that may not write any more: another run has gone
    further."""
