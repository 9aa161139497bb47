"""The subscription that members of protocol type "consumer" put into their metadata.

Members choose partitions among themselves, so a coordinator need not understand them; it looks
only to know which topics the group still reads, for the expiry and deletion of offsets.
"""

from odradek.protocol.primitives import ProtocolError, Reader


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a subscription; None when it is not one."""
    reader = Reader(memoryview(metadata))
    try:
        if reader.int16() < 0:
            return None
        return frozenset([reader.string(False) for _ in range(reader.array_length(False, 2))])
    except ProtocolError:
        return None
