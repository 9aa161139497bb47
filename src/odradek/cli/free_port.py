"""Finds a port for a server that cannot ask the kernel for a free one, or that restarts on its own.

The kernel may give an ephemeral port away again as soon as it is free: to another test's server, or
to a client that tries to reach the stopped server, and then connects to itself. So the port is
taken from outside the ephemeral range.
"""

import random
import socket
from pathlib import Path

FIRST_PORT = 10_000
RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """Returns a local port that is free now."""
    first_given = int(RANGE_FILE.read_text().split()[0]) if RANGE_FILE.exists() else FIRST_PORT
    ports = list(range(FIRST_PORT, first_given))
    random.shuffle(ports)
    # If the kernel uses all of them, they are used here too.
    for port in [*ports, 0]:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError("no local port is free")
