"""The client without I/O: bytes and times come in, bytes and decisions go out.

Two shells drive it: `odradek.client.aio` on an event loop, `odradek.client.sync` on a thread. Code
that needs the time gets it in milliseconds, code that needs randomness a `random.Random`.
"""
