"""Asks the kernel which descriptors are ready now, without waiting.

The loop finds out by itself and needs none of this. This shows that no event is left: only then has
a broker whose clock was moved by hand settled.
"""

import select
from collections.abc import Iterable
from typing import Final

# Windows has no poll, and none of its numbers.
READ: Final[int] = getattr(select, "POLLIN", 1)
WRITE: Final[int] = getattr(select, "POLLOUT", 4)


def any_ready(awaited: Iterable[tuple[int, int]]) -> bool:
    """Whether one of the descriptors is ready for what is awaited of it, `READ` and `WRITE`."""
    events = dict(awaited)
    if not hasattr(select, "poll"):
        reads = [each for each, wanted in events.items() if wanted & READ]
        writes = [each for each, wanted in events.items() if wanted & WRITE]
        return any(select.select(reads, writes, (), 0)) if reads or writes else False
    poll = select.poll()
    for descriptor, wanted in events.items():
        poll.register(descriptor, wanted)
    return any(found & events[descriptor] for descriptor, found in poll.poll(0))
