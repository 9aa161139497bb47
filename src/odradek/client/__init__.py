"""The wire as a client sees it: any Kafka broker, ours or another.

`Producer`, `Consumer` and `Admin` are for asyncio; those of `sync` for code that blocks, on a
thread of their own; `blocking` reads partitions where not even a thread is wanted: Spark's workers.
`aio` and `blocking` are shells around one `core`, which decides what is sent, when to try again and
what an answer means, and has no socket, thread, clock or dice of its own. Nothing here knows how a
broker works inside.
"""

from typing import TYPE_CHECKING

from odradek._lazy import exports

if TYPE_CHECKING:
    from odradek.client.aio.admin import Admin
    from odradek.client.aio.consumer import Consumer
    from odradek.client.aio.producer import Producer

__all__ = ["Admin", "Consumer", "Producer"]

__getattr__ = exports(
    __name__,
    {
        "Admin": "odradek.client.aio.admin",
        "Consumer": "odradek.client.aio.consumer",
        "Producer": "odradek.client.aio.producer",
    },
)
