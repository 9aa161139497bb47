"""Hostile HTTP: a clear answer, and never more than a connection's worth of memory or time."""

import asyncio
from http import HTTPStatus

import pytest

from odradek.server.monitoring import responder as responder_module
from odradek.server.monitoring.responder import HttpAnswer, HttpError, HttpRequest, Responder

GOOD = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def answer(request: HttpRequest) -> HttpAnswer:
    if request.path == "/broken":
        raise RuntimeError("on purpose")
    if request.path != "/metrics":
        raise HttpError(HTTPStatus.NOT_FOUND, "there is only /metrics here")
    return HttpAnswer(HTTPStatus.OK, [b"one\n", b"two\n"])


def ask(*parts: bytes, eof: bool = True, others: int = 0) -> bytes:
    """The responder's answer to these bytes, with other connections open."""

    async def work() -> bytes:
        responder = Responder(answer)
        await responder.start("127.0.0.1", 0)
        port = int(responder.url.rpartition(":")[2])
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(others)]
        while len(responder._open) < others:
            await asyncio.sleep(0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
            if eof:
                writer.write_eof()
            return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            for each in [writer, *(other for _, other in idle)]:
                each.close()
            await responder.stop()

    return asyncio.run(work())


def test_a_scrape_is_answered_and_the_connection_closed():
    """Fails when Prometheus gets nothing, or waits for more."""
    head, _, body = ask(GOOD).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 8" in head
    assert body == b"one\ntwo\n"


def test_head_has_the_length_and_no_body():
    """Fails when a probe reads an answer that it did not ask for."""
    head, _, body = ask(GOOD.replace(b"GET", b"HEAD")).partition(b"\r\n\r\n")
    assert b"Content-Length: 8" in head
    assert body == b""


@pytest.mark.parametrize(
    ("rest", "status"),
    [
        (b"/secret HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"/metrics HTTP/1.1\r\n\r\n", 400),
        (b"/metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        (b"/metrics HTTP/1.1\r\nHost: loc", 400),
        (b"/" + b"a" * 20_000 + b" HTTP/1.1\r\n", 431),
        (b"/broken HTTP/1.1\r\nHost: localhost\r\n\r\n", 500),
    ],
)
def test_a_head_that_is_refused_has_no_body_either(rest, status):
    """Fails when a proxy that keeps connections takes a refusal's words for the next answer."""
    head, _, body = ask(b"HEAD " + rest).partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert body == b""


def test_a_request_in_pieces_is_one():
    """Fails when a slow network is taken for a bad client."""
    assert ask(GOOD[:3], GOOD[3:20], GOOD[20:]).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x00\xa5\x01\x00\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n : folded\r\n\r\n", 400),
        (b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /metrics?" + b"a=1&" * 20 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: loc", 400),
        (b"POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"PRI * HTTP/2.0\r\n\r\n", 505),
        (b"GET /secret HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        (b"GET /metrics HTTP/1.1\r\nHost: [\r\n\r\n", 421),
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n", 431),
        (b"GET /broken HTTP/1.1\r\nHost: localhost\r\n\r\n", 500),
    ],
)
def test_what_cannot_be_served_is_refused_in_words(request_bytes, status, caplog):
    """Fails when a bad request is answered as a good one, or with nothing at all."""
    head, _, body = ask(request_bytes).partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert body.endswith(b"\n")
    assert len(body) > 5
    assert [each.levelname for each in caplog.records] == (["ERROR"] if status == 500 else [])


@pytest.mark.parametrize("host", [b"127.0.0.1:9404", b"[::1]:9404", b"LOCALHOST"])
def test_this_machine_may_be_named_as_one_likes(host):
    """Fails when a scrape of this machine is taken for one from a web page."""
    assert ask(GOOD.replace(b"localhost", host)).startswith(b"HTTP/1.1 200 ")


def test_a_client_that_says_nothing_is_told_and_dropped(monkeypatch):
    """Fails when idle connections fill the listener for ever."""
    monkeypatch.setattr(responder_module, "HEAD_SECONDS", 0.01)
    assert ask(b"GET /met", eof=False).startswith(b"HTTP/1.1 408 ")


def test_connections_are_bounded(monkeypatch):
    """Fails when anybody can have as many connections as the process has descriptors."""
    monkeypatch.setattr(responder_module, "MOST_CONNECTIONS", 1)
    assert ask(GOOD, others=1).startswith(b"HTTP/1.1 503 ")
    assert ask(GOOD, others=2) == b""


def test_who_does_not_read_is_dropped(monkeypatch):
    """Fails when an answer that nobody takes keeps its memory."""
    monkeypatch.setattr(responder_module, "ANSWER_SECONDS", 0.01)
    ended = []

    async def large(_request: HttpRequest) -> HttpAnswer:
        return HttpAnswer(HTTPStatus.OK, [bytes(1 << 20)] * 64)

    async def work() -> None:
        responder = Responder(large)
        await responder.start("127.0.0.1", 0)
        port = int(responder.url.rpartition(":")[2])
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(GOOD)
        await writer.drain()
        while not responder._open:
            await asyncio.sleep(0)
        await asyncio.gather(*responder._open, return_exceptions=True)
        ended.append(not responder._open)
        writer.close()
        await responder.stop()

    asyncio.run(work())
    assert ended == [True]
