"""What the kernel holds for us at this moment, asked without waiting.

The loop finds out by itself and needs none of this. It is for who wants to know that nothing is
left to be found: a broker whose clock was moved by hand is at rest only then.
"""

import select
from collections.abc import Iterable
from typing import Final

READ: Final = select.POLLIN
WRITE: Final = select.POLLOUT


def any_ready(awaited: Iterable[tuple[int, int]]) -> bool:
    """Whether one of the descriptors is ready for what is awaited of it, `READ` and `WRITE`."""
    events = dict(awaited)
    poll = select.poll()
    for descriptor, wanted in events.items():
        poll.register(descriptor, wanted)
    return any(found & events[descriptor] for descriptor, found in poll.poll(0))
