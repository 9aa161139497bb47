"""The client without I/O: bytes and times come in, bytes and decisions go out.

Two shells drive it: `odradek.client.aio` on an event loop, `odradek.client.sync` on a thread.
What needs the time is handed it in milliseconds, what needs chance a `random.Random`.
"""
