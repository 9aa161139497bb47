"""Which event loop a broker runs on: uvloop where it is installed, asyncio's own otherwise."""

import asyncio


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A fresh loop of the best kind there is."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
