"""`Responder`: the little of HTTP/1.1 that a scrape needs, and a clear answer to all else.

One request a connection, answered and closed. The head is bounded in size and time, so are the
connections, and the time that a client may take for its answer. If only this machine can connect, a
request that names another host is refused: a web page could send one by its own host name that
resolves here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from odradek.network.listener import SocketOptions, bind_socket

logger = logging.getLogger(__name__)

HEAD_BYTES: Final = 8192
HEAD_SECONDS: Final = 10.0
"""In which a request's first word comes, and the rest of its head."""
ANSWER_SECONDS: Final = 30.0
MOST_CONNECTIONS: Final = 32
"""How many connections are answered; as many again get an error, all others are dropped."""
LINGER_SECONDS: Final = 1.0
PLAIN_TEXT: Final = "text/plain; charset=utf-8"

_HEAD: Final = b"HEAD "
_END_OF_HEAD: Final = b"\r\n\r\n"
_VERSIONS: Final = ("HTTP/1.0", "HTTP/1.1")
_METHODS: Final = ("GET", "HEAD")


class HttpRequest(NamedTuple):
    """A request that can be answered."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]


class HttpAnswer(NamedTuple):
    """The answer to one; `chunks` follow one another."""

    status: HTTPStatus
    chunks: list[bytes]
    content_type: str = PLAIN_TEXT


class HttpError(Exception):
    """A request that is refused, with the reason in words."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status: Final = status


Answer = Callable[[HttpRequest], Awaitable[HttpAnswer]]


class Responder:
    """Serves `answer` on one address."""

    def __init__(self, answer: Answer) -> None:
        self._answer: Final = answer
        self._server: asyncio.Server | None = None
        self._open: Final[set[asyncio.Task[None]]] = set()
        self._is_local = False
        self.url = ""

    async def start(self, host: str, port: int) -> None:
        """Accepts connections.

        Raises:
            OSError: the address cannot be had.
        """
        bound = bind_socket(host, port, SocketOptions())
        try:
            # Before the loop does it again, whose errors have their own words.
            bound.listen()
            server = await asyncio.start_server(self._serve, sock=bound, limit=HEAD_BYTES)
        except OSError:
            bound.close()
            raise
        self._server = server
        address = server.sockets[0].getsockname()
        self._is_local = ip_address(address[0]).is_loopback
        shown = f"[{address[0]}]" if ":" in address[0] else address[0]
        self.url = f"http://{shown}:{address[1]}"

    async def stop(self) -> None:
        """Accepts no more, and ends what is being answered."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio runs this as a task"
        if len(self._open) >= 2 * MOST_CONNECTIONS:
            writer.transport.abort()
            return
        self._open.add(task)
        try:
            answer, is_head = await self._respond(reader)
            await asyncio.wait_for(_send(writer, answer, is_head), ANSWER_SECONDS)
            await asyncio.wait_for(_linger(reader, writer), LINGER_SECONDS)
        except (OSError, TimeoutError, asyncio.CancelledError):
            writer.transport.abort()  # gone, or too slow, or the broker stops
        finally:
            self._open.discard(task)
            writer.close()

    async def _respond(self, reader: asyncio.StreamReader) -> tuple[HttpAnswer, bool]:
        """The answer, and whether the client wants no more than its head, whatever it is."""
        is_head = False
        try:
            beginning = await _in_time(reader.readexactly(len(_HEAD)))
            is_head = beginning == _HEAD
            request = self._parse(beginning + await _in_time(reader.readuntil(_END_OF_HEAD)))
            if len(self._open) > MOST_CONNECTIONS:
                raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections")
            return await self._answer(request), is_head
        except HttpError as error:
            return _refusal(error.status, str(error)), is_head
        except OSError:
            raise
        except Exception:  # a mistake of ours ends one scrape, not the broker
            logger.exception("metrics could not be collected")
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            reason = "metrics could not be collected; the broker's log says why"
            return _refusal(status, reason), is_head

    def _parse(self, head: bytes) -> HttpRequest:
        request = parse_head(head)
        if self._is_local:
            check_host(request.headers.get("host", "localhost"))
        return request


async def _in_time(reading: Coroutine[None, None, bytes]) -> bytes:
    """A part of a request's head.

    Raises:
        HttpError: it does not come in time, ends too soon, or is too long.
    """
    try:
        return await asyncio.wait_for(reading, HEAD_SECONDS)
    except asyncio.LimitOverrunError:
        status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        raise HttpError(status, f"a request has {HEAD_BYTES} bytes at most") from None
    except asyncio.IncompleteReadError:
        raise HttpError(HTTPStatus.BAD_REQUEST, "the request is cut off") from None
    except TimeoutError:
        reason = f"a request comes within {HEAD_SECONDS:g} s"
        raise HttpError(HTTPStatus.REQUEST_TIMEOUT, reason) from None


def parse_head(head: bytes) -> HttpRequest:
    """Reads a request's head, the empty line included.

    Raises:
        HttpError: it is none, or asks for more than is served.
    """
    try:
        text = head.removesuffix(_END_OF_HEAD).decode("ascii")
    except UnicodeDecodeError:
        raise HttpError(HTTPStatus.BAD_REQUEST, "a request's head is ASCII") from None
    first, *lines = text.split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/"):
        raise HttpError(HTTPStatus.BAD_REQUEST, "this is no request of HTTP/1.1")
    method, target, version = words
    if version not in _VERSIONS:
        status = HTTPStatus.HTTP_VERSION_NOT_SUPPORTED
        raise HttpError(status, "HTTP/1.1 is spoken here")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise HttpError(HTTPStatus.BAD_REQUEST, "a header is NAME: VALUE")
        name = name.lower()
        if name == "host" and name in headers:
            raise HttpError(HTTPStatus.BAD_REQUEST, "a request has one Host")
        headers[name] = value.strip()
    if version == "HTTP/1.1" and "host" not in headers:
        raise HttpError(HTTPStatus.BAD_REQUEST, "a request of HTTP/1.1 has a Host")
    if method not in _METHODS:
        raise HttpError(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are served")
    try:
        url = urlsplit(target)
        query = dict(parse_qsl(url.query, errors="strict", max_num_fields=16))
    except ValueError:
        raise HttpError(HTTPStatus.BAD_REQUEST, "the path cannot be read") from None
    return HttpRequest(url.path, query, headers)


def check_host(host: str) -> None:
    """Refuses a request that means another host than this machine.

    Raises:
        HttpError: it does.
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
        is_here = name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        is_here = False
    if not is_here:
        raise HttpError(HTTPStatus.MISDIRECTED_REQUEST, "this is served to localhost only")


def _refusal(status: HTTPStatus, reason: str) -> HttpAnswer:
    return HttpAnswer(status, [f"{reason}\n".encode()])


async def _send(writer: asyncio.StreamWriter, answer: HttpAnswer, is_head: bool) -> None:
    status = answer.status
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {sum(map(len, answer.chunks))}",
        "X-Content-Type-Options: nosniff",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    writer.write("\r\n".join([*lines, "", ""]).encode())
    if not is_head:
        for chunk in answer.chunks:
            writer.write(chunk)
            await writer.drain()
    await writer.drain()


async def _linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Takes what the client still sends: with bytes that nobody has read, closing would cut off the
    answer on its way."""
    if writer.can_write_eof():
        writer.write_eof()
    while await reader.read(HEAD_BYTES):
        pass
