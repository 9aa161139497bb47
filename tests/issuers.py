"""A small issuer of tokens on a real socket, which can misbehave in many ways."""

import json
import select
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs

from odradek.clock import SystemClock
from odradek.security.sasl.claims import encode_unsigned

Behaviour = Callable[["_Handler"], None]


class Asked(NamedTuple):
    """A request that the issuer was sent."""

    method: str
    path: str
    headers: dict[str, str]
    form: dict[str, list[str]]


def token(subject="alice", lifetime_s=3600, **claims):
    """A token that nobody has signed; a claim of None is left out."""
    now_s = SystemClock().wall_ms() / 1000
    own = {"sub": subject, "iat": now_s, "exp": now_s + lifetime_s, **claims}
    return encode_unsigned({name: value for name, value in own.items() if value is not None})


def says(status=200, body=b"", **headers):
    """Answers so."""

    def behave(handler):
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return behave


def gives(text):
    """Gives this token."""
    body = json.dumps({"access_token": text, "token_type": "Bearer"}).encode()
    return says(200, body, **{"Content-Type": "application/json"})


def drips(handler):
    """Answers a byte at a time, for as long as anybody listens."""
    beginning = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n{"
    try:
        for number in range(1_000_000):
            handler.connection.sendall(beginning[number : number + 1] or b" ")
            readable, _, _ = select.select([handler.connection], [], [], 0.002)
            if readable and not handler.connection.recv(1):
                return
    except OSError:
        return


def is_silent(handler):
    """Takes the question, and says nothing until the other side has gone."""
    while handler.connection.recv(1024):
        pass


def raw(content):
    """Sends these bytes, which may be no HTTP, and closes."""
    return lambda handler: handler.connection.sendall(content)


def endless(handler):
    """Never comes to the end of its answer."""
    try:
        handler.connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            handler.connection.sendall(b"x" * 65536)
    except OSError:
        return


class Issuer:
    """`then` is what it does next, request by request; without that it gives tokens for alice."""

    def __init__(self, context=None):
        self.then: list[Behaviour] = []
        self.asked: list[Asked] = []
        self.make_token = token
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler, bind_and_activate=False)
        self._server.issuer = self
        self._server.daemon_threads = False
        self._server.server_bind()
        self._server.server_activate()
        if context is not None:
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        scheme = "http" if context is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}/token"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}
        )

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        issuer = self.server.issuer
        length = int(self.headers.get("Content-Length", 0))
        form = parse_qs(self.rfile.read(length).decode())
        issuer.asked.append(Asked(self.command, self.path, dict(self.headers), form))
        behave = issuer.then.pop(0) if issuer.then else gives(issuer.make_token())
        behave(self)

    do_GET = do_POST  # noqa: N815 - the library's name

    def handle(self):
        try:
            super().handle()
        except OSError:
            return  # whoever asked has gone, or speaks no TLS

    def log_message(self, *_):
        pass


def closed_port():
    """A port at which nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
