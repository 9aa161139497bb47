"""Knocks at the brokers that a command is going to ask, and tells when nobody answers.

A client keeps trying, silently, and gives the reason only at the end: after 10 seconds, 30 or 60.
Brokers that talk TLS are only connected to: a broken handshake would be a line in their logs.
"""

import socket
import struct
import time
from enum import Enum
from functools import cache
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final

from odradek.cli.terminal import tell
from odradek.client.addresses import Address, parse_bootstrap_servers
from odradek.client.apis import API_VERSIONS

_KNOCK_S: Final = 1.0
_ANSWERS_S: Final = 2.0
_UNENCRYPTED: Final = ("PLAINTEXT", "SASL_PLAINTEXT")
_NO_CLIENT_ID: Final = -1
# Its size, API key, version, correlation id: every broker answers it, without a login.
_QUESTION: Final = struct.pack(">ihhih", 10, API_VERSIONS.key, 0, 0, _NO_CLIENT_ID)


class _Answer(Enum):
    """The outcome of a knock at an address."""

    NOTHING = "no connection, or none that lasts"
    CONNECTED = "a connection, and perhaps more to come"
    ANSWERED = "a broker"


@cache
def tell_if_nobody_answers(servers: object, protocol: object = None) -> None:
    """Reports at once if no broker accepts a connection and answers; `protocol` is the client's
    `security.protocol`."""
    try:
        addresses = parse_bootstrap_servers(str(servers))
    except ValueError:
        return  # for the client to refuse
    asks = str(protocol or _UNENCRYPTED[0]).upper() in _UNENCRYPTED
    heard: SimpleQueue[_Answer] = SimpleQueue()
    for address in addresses:
        # At once: each that does not answer takes its time.
        Thread(target=_knock, args=(address, asks, heard), daemon=True).start()
    best = _best(heard, len(addresses))
    if best is _Answer.NOTHING:
        tell(f"nothing listens at {servers} yet, trying on")
    elif best is _Answer.CONNECTED:
        tell(f"{servers} accepts connections, but no broker answers there yet, trying on")


def _best(heard: "SimpleQueue[_Answer]", count: int) -> _Answer:
    """The best that is heard from so many addresses; not of those that take too long, as one does
    whose name no server tells."""
    until_s = time.monotonic() + _ANSWERS_S
    best = _Answer.NOTHING
    while count:
        try:
            answer = heard.get(timeout=max(0, until_s - time.monotonic()))
        except Empty:
            break
        if answer is _Answer.ANSWERED:
            return answer
        if answer is _Answer.CONNECTED:
            best = answer
        else:
            count -= 1
    return best


def _knock(address: Address, asks: bool, heard: "SimpleQueue[_Answer]") -> None:
    try:
        with socket.create_connection((address.host, address.port), _KNOCK_S) as connection:
            if asks:
                heard.put(_Answer.CONNECTED)
                connection.settimeout(_ANSWERS_S)
                connection.sendall(_QUESTION)
            answered = not asks or bool(connection.recv(1))
    except (OSError, UnicodeError):  # the latter of names that no host can have
        answered = False
    heard.put(_Answer.ANSWERED if answered else _Answer.NOTHING)
