"""The floor that owns sockets: listeners, connections, admission, back-pressure.

It turns bytes into exchanges and answers into bytes. What a request means is known to the
`RequestHandler` it is handed; nothing here imports a handler.
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
