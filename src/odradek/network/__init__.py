"""The floor that owns sockets: listeners, connections, admission, back-pressure.

It turns bytes into exchanges and answers into bytes. The `RequestHandler` that it gets knows what a
request means; this package imports no handler.
"""

from odradek.network.addresses import format_host_port
from odradek.network.listener import ListenerError, SocketOptions
from odradek.network.socket_server import NetworkLimits, SocketServer

__all__ = [
    "ListenerError",
    "NetworkLimits",
    "SocketOptions",
    "SocketServer",
    "format_host_port",
]
