"""The clients for code that blocks: `Producer`, `Consumer`, `Admin` as they are for asyncio.

Thin shells: names, arguments, defaults and errors are those of `odradek.client`; what is awaited
there is waited for here. The work is done on an event loop in a thread of its own, which all such
clients of a process share. Who needs neither that thread nor a group (Spark's workers) reads with
`odradek.client.blocking`.
"""

from odradek.client.sync.admin import Admin
from odradek.client.sync.consumer import Consumer
from odradek.client.sync.producer import Producer

__all__ = ["Admin", "Consumer", "Producer"]
