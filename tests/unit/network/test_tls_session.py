"""If one of these fails, answers over TLS come torn or out of order, or fill a broker's memory."""

import asyncio
import logging
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import uvloop
from tests.unit.network.fakes import FakeHandler, FakeTransport, Harness, framed
from tests.unit.network.records_of_tls import HANDSHAKE, KEY_UPDATE, Records
from tools.pem_stores import pem_stores

from odradek.clock import ManualClock
from odradek.log_limit import LimitedLog
from odradek.model import ANONYMOUS, EndPoint
from odradek.network import NetworkLimits, SocketServer
from odradek.network.secured import SecuredListener
from odradek.network.tls.protocol import SCRATCH_BYTES, TlsListener
from odradek.network.tls.session import (
    MOST_UNREAD_BYTES,
    PIECE_BYTES,
    RECORD_BYTES,
    TlsSession,
)
from odradek.network.tls.terms import PeerRefused
from odradek.protocol.exchange import Exchange
from odradek.server.in_process.protected.authority import CertificateAuthority
from odradek.timer import SystemTimer

pytest.importorskip("cryptography", reason="the extra `security`")

LARGE = bytes(range(256)) * 4096
# Headers and tags of the records of a piece, and the record that passes its end.
MOST_HELD = PIECE_BYTES + 20_000
CLOSE_NOTIFY = b""
MOST_LOOKS = 100


class SlowSocket(FakeTransport):
    """Holds what is written until it is told to deliver; full from the first byte on."""

    def __init__(self) -> None:
        super().__init__()
        self.session: TlsSession | None = None
        self.is_slow = False
        self.most_held = 0
        self.is_full = False
        self.breaks = False
        self.looks_at_its_end = 0

    def is_closing(self) -> bool:
        if self.closed or self.aborted:
            self.looks_at_its_end += 1
            assert self.looks_at_its_end < MOST_LOOKS, "the loop hangs"
        return self.closed or self.aborted

    def get_extra_info(self, name: str) -> None:
        return None

    def writelines(self, buffers: list[bytes]) -> None:
        super().writelines(buffers)
        if self.breaks:
            self.abort()
            return
        if not self.is_slow:
            return
        self.unread_bytes = len(self.written)
        self.most_held = max(self.most_held, self.unread_bytes)
        if not self.is_full:
            self.is_full = True
            self.session.pause_writing()

    def take(self) -> bytes:
        """Hands out the held bytes, as the client gets them; afterwards there is room."""
        taken, self.writes, self.unread_bytes = self.written, [], 0
        if self.is_full:
            self.is_full = False
            self.session.resume_writing()
        return taken


class Broken(FakeHandler):
    """A handler that fails at every request."""

    def handle_frame(self, exchange: Exchange) -> None:
        raise ZeroDivisionError


class Terms:
    """A listener's: one certificate, and everybody is nobody."""

    def __init__(self, made: ssl.SSLContext) -> None:
        self._made = made

    def context(self) -> ssl.SSLContext:
        return self._made

    def principal_of(self, certificate):
        return ANONYMOUS


class Refusing(Terms):
    """Admits nobody; the subject of a certificate may have any characters."""

    def principal_of(self, certificate):
        raise PeerRefused("no rule matches CN=a\nWARNING b")


class Watching(Terms):
    """Sees how much lies before OpenSSL when it reads."""

    most = 0

    def context(self):
        return self

    def wrap_bio(self, incoming, outgoing, *, server_side):
        tls = self._made.wrap_bio(incoming, outgoing, server_side=server_side)

        def read(size, view):
            Watching.most = max(Watching.most, incoming.pending)
            return tls.read(size, view)

        names = ("do_handshake", "getpeercert", "pending", "write")
        return SimpleNamespace(read=read, **{name: getattr(tls, name) for name in names})


class Pair:
    """A broker's session whose handshake is done, and the client at its other end."""

    def __init__(
        self,
        server: ssl.SSLContext,
        client: ssl.SSLContext,
        terms: type[Terms] = Terms,
        *,
        is_held: bool = False,
    ) -> None:
        self.harness = Harness()
        self.socket = SlowSocket()
        log = LimitedLog(logging.getLogger("test"), self.harness.clock)
        self.session = self.socket.session = TlsSession(terms(server), log, self.socket)
        self.connection = self.harness.connect(self.session)
        if is_held:
            self.connection.hold()
        self.session.admit(lambda _: self.connection)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(self._in, self._out, server_hostname="127.0.0.1")
        self.shake_hands()
        self.socket.is_slow = True

    def shake_hands(self) -> None:
        for _ in range(3):
            with suppress(ssl.SSLWantReadError):
                self.client.do_handshake()
            self.exchange()

    def exchange(self) -> None:
        """Carries what either has for the other."""
        if self._out.pending:
            self.session.received(memoryview(self._out.read()))
        self._in.write(self.socket.take())

    def ask(self, *bodies: bytes) -> None:
        """Sends requests; the handler's answer is the same."""
        self.client.write(framed(*bodies))
        self.session.received(memoryview(self._out.read()))

    def read(self) -> bytes:
        """All that can be read now, and `CLOSE_NOTIFY` at the end."""
        found = []
        with suppress(ssl.SSLWantReadError):
            while got := self.client.read(1 << 20):
                found.append(got)
        return b"".join(found)

    def deliver(self) -> bytes:
        """Delivers what the socket holds, and lets the broker's loop turn once."""
        self._in.write(self.socket.take())
        self.harness.turn()
        return self.read()

    def drain(self, most: int = 1000) -> bytes:
        """Delivers until nothing is left."""
        found = b""
        for _ in range(most):
            if not self.socket.writes:
                return found
            found += self.deliver()
        raise AssertionError("it never ends")


@pytest.fixture(scope="module")
def contexts(tmp_path_factory):
    home = tmp_path_factory.mktemp("tls")
    authority = CertificateAuthority()
    stores = pem_stores(authority, home)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(stores["ssl.keystore.location"])
    client = ssl.create_default_context(cadata=authority.certificate)
    client.keylog_filename = str(home / "keys")
    return server, client


@pytest.fixture
def pair(contexts):
    return Pair(*contexts)


def test_an_answer_is_encrypted_as_the_socket_takes_it(pair):
    pair.ask(LARGE, b"second")
    assert len(pair.harness.handler.handled) == 1, "nothing is handled while an answer waits"
    assert pair.session.get_write_buffer_size() >= len(LARGE)
    begun = pair.deliver()
    assert len(pair.harness.handler.handled) == 1, "the rest of the answer still waits"
    assert begun + pair.drain() == framed(LARGE, b"second")
    assert pair.socket.most_held <= MOST_HELD
    assert pair.session.get_write_buffer_size() == 0


def test_a_fast_socket_takes_all_of_it_at_once(pair):
    pair.socket.is_slow = False
    pair.ask(LARGE)
    pair.exchange()
    assert pair.read() == framed(LARGE)


def test_what_is_written_while_the_socket_is_full_comes_behind(pair):
    pieces = [struct.pack(">i", number) * 10_000 for number in range(20)]
    for piece in pieces:
        pair.session.writelines([piece[:5], piece[5:]])
    assert pair.drain() == b"".join(pieces)
    assert pair.socket.most_held <= MOST_HELD


def test_a_session_that_closes_sends_what_waits_and_then_its_end(pair):
    pair.session.writelines([LARGE])
    pair.session.close()
    assert pair.socket.closed
    pair._in.write(pair.socket.take())
    found = pair.read()
    assert found == LARGE
    assert pair.client.read(1) == CLOSE_NOTIFY


def test_a_closed_session_writes_nothing_more(pair):
    pair.session.close()
    pair.session.close()
    pair.session.writelines([LARGE])
    assert pair.session.get_write_buffer_size() == pair.socket.unread_bytes


@pytest.mark.parametrize("end", [TlsSession.abort, TlsSession.lost])
def test_what_waits_is_forgotten_when_the_session_ends(pair, end):
    pair.ask(LARGE)
    end(pair.session)
    pair.socket.take()
    assert not pair.socket.written, "it went on"
    assert pair.session.get_write_buffer_size() == 0
    if end is TlsSession.lost:
        assert pair.harness.answers.used_bytes == 0


def test_a_client_that_stops_sending_does_not_hang_the_broker(pair):
    """The transport closes at the end of what the client sends, and drains what it holds."""
    pair.ask(LARGE)
    pair.socket.close()
    pair.deliver()
    assert not pair.socket.writes
    assert pair.session.get_write_buffer_size() == 0


def test_a_client_that_is_gone_does_not_hang_the_broker(pair):
    """The transport finds out with the first piece, and says so to the protocol in a later turn."""
    pair.socket.breaks = True
    pair.ask(LARGE)
    assert pair.session.get_write_buffer_size() == 0


def test_a_broker_that_ends_does_not_hang_at_a_client_that_is_gone(pair):
    pair.ask(LARGE)
    pair.socket.aborted = True
    pair.session.close()
    assert pair.session.get_write_buffer_size() == pair.socket.unread_bytes


def test_a_request_is_answered_and_the_session_closed_when_its_client_ends_it_at_once(pair):
    """Client programs that read from a pipe send both in one go, and wait for the broker's end."""
    pair.socket.is_slow = False
    pair.client.write(framed(b"last"))
    with suppress(ssl.SSLWantReadError):
        pair.client.unwrap()
    pair.session.received(memoryview(pair._out.read()))
    assert pair.socket.closed


def test_records_that_are_none_end_the_session_in_the_middle_of_an_answer(pair):
    pair.ask(LARGE)
    pair.session.received(memoryview(b"\x17\x03\x03\x00\x20" + bytes(32)))
    assert pair.socket.closed
    pair.socket.take()
    assert pair.session.get_write_buffer_size() == 0


def test_a_refused_certificate_cannot_write_lines_into_the_log(contexts, caplog):
    pair = Pair(*contexts, terms=Refusing)
    assert pair.socket.closed
    (line,) = caplog.messages
    assert line.endswith("no rule matches CN=a\\nWARNING b")


def test_many_small_records_in_one_read_are_all_decrypted(pair):
    bodies = [b"%d" % number for number in range(500)]
    for body in bodies:
        pair.client.write(framed(body))
    pair.socket.is_slow = False
    pair.session.received(memoryview(pair._out.read()))
    assert pair.harness.handler.handled == bodies


def test_what_came_while_reading_was_paused_is_decrypted_in_a_turn_of_its_own(pair):
    async def work() -> None:
        pair.session.pause_reading()
        pair.ask(b"early")
        assert not pair.harness.handler.handled
        pair.session.resume_reading()
        assert not pair.harness.handler.handled
        await asyncio.sleep(0)
        assert pair.harness.handler.handled == [b"early"]

    asyncio.run(work())


def test_a_mistake_in_that_turn_ends_the_connection(pair):
    """Its client would wait for ever: it is no read, for which the transport would end it."""

    async def work() -> None:
        found = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: found.append(told))
        pair.session.pause_reading()
        pair.ask(b"early")
        pair.harness.context.handler = Broken()
        pair.session.resume_reading()
        await asyncio.sleep(0)
        assert isinstance(found[0]["exception"], ZeroDivisionError)
        assert pair.socket.aborted

    asyncio.run(work())


def records_of(pair: Pair) -> Records:
    """Makes the next records in place of the client."""
    assert pair.client.cipher()[0] == "TLS_AES_256_GCM_SHA384"
    return Records(Path(pair.client.context.keylog_filename))


@pytest.mark.parametrize("end", ["response", "close"])
def test_a_client_that_breaks_off_in_the_middle_of_new_keys_fails_alone(pair, end, caplog):
    """OpenSSL refuses to write there, and the stack may be of the request that completes this."""
    records = records_of(pair)
    for record in (records.record(framed(b"parked")), records.record(KEY_UPDATE[:4], HANDSHAKE)):
        pair.session.received(memoryview(record))
    if end == "close":
        pair.socket.is_full = True
        pair.session.pause_writing()
    (exchange,) = pair.harness.handler.parked
    exchange.send([LARGE])
    if end == "close":
        pair.session.close()
    assert pair.socket.aborted
    assert pair.session.get_write_buffer_size() == 0
    assert "TLS takes no response" in caplog.text


def test_a_client_of_whom_half_a_record_has_come_costs_no_buffer(pair):
    pair.client.write(framed(b"a"))
    record = pair._out.read()
    pair.session.received(memoryview(record[:10]))
    assert not pair.connection.buffer_bytes
    pair.session.received(memoryview(record[10:]))
    assert pair.deliver() == framed(b"a")


def test_a_client_that_renews_its_keys_is_served_on(pair):
    pair.socket.is_slow = False
    records = records_of(pair)
    for _ in range(10):
        pair.session.received(memoryview(records.key_update() + records.record(framed(b"a"))))
        pair.exchange()
        assert pair.read() == framed(b"a")


def test_a_client_that_asks_for_new_keys_and_reads_none_is_dropped(pair, caplog):
    """Each of the requests has an answer of the same size, which waits in memory for it."""
    records = records_of(pair)
    for _ in range(100):
        pair.session.received(memoryview(b"".join(records.key_update() for _ in range(500))))
        if pair.socket.aborted:
            break
    assert pair.socket.aborted
    assert pair.socket.most_held < MOST_UNREAD_BYTES + SCRATCH_BYTES
    assert "asks TLS for more and more" in caplog.text


async def turns_until_it_reads(pair: Pair) -> int:
    """Lets the loop turn; no request is handled before."""
    for turns in range(MOST_LOOKS):
        if pair.socket.reading:
            return turns
        assert not pair.harness.handler.handled
        await asyncio.sleep(0)
    raise AssertionError("it reads no more")


def test_others_have_their_turn_while_a_client_sends_new_keys_alone(pair):
    """OpenSSL takes tens of microseconds for each, and all that it has in one call."""

    async def work() -> None:
        pair.socket.is_slow = False
        records = records_of(pair)
        keys = b"".join(records.key_update() for _ in range(4000))
        shared = bytearray(keys + records.record(framed(b"a")))
        pair.session.received(memoryview(shared))
        shared[:] = bytes(len(shared))  # it is another connection's now
        assert not pair.socket.reading
        assert not pair.connection.buffer_bytes
        assert await turns_until_it_reads(pair) > 1
        assert pair.harness.handler.handled == [b"a"]

    asyncio.run(work())


def test_reading_begins_again_when_both_the_connection_and_the_session_are_ready(pair):
    async def work() -> None:
        pair.socket.is_slow = False
        records = records_of(pair)
        keys = b"".join(records.key_update() for _ in range(2000))
        pair.session.received(memoryview(keys + records.record(framed(b"a"))))
        pair.session.pause_reading()
        await asyncio.sleep(0)
        assert not pair.socket.reading
        pair.session.resume_reading()
        assert not pair.socket.reading, "the session is not ready"
        await turns_until_it_reads(pair)
        assert pair.harness.handler.handled == [b"a"]

    asyncio.run(work())


def test_openssl_gets_little_at_once(contexts):
    """Its BIO keeps the memory of the most that it held, as long as the connection lives."""
    pair = Pair(*contexts, terms=Watching)
    pair.socket.is_slow = False
    pair.ask(LARGE)
    pair.exchange()
    assert pair.read() == framed(LARGE)
    assert 0 < Watching.most < 3 * RECORD_BYTES


def test_a_handshake_waits_for_the_turn_of_its_connection(contexts):
    """It costs more than all that a rate of connections would hold back otherwise."""

    async def work() -> None:
        pair = Pair(*contexts, is_held=True)
        assert not pair.socket.written
        assert pair.client.version() is None
        pair.connection.let_in()
        await asyncio.sleep(0)
        pair.exchange()
        pair.shake_hands()
        pair.ask(b"first")
        assert pair.deliver() == framed(b"first")

    asyncio.run(work())


def test_a_client_that_waits_for_its_turn_cannot_fill_the_memory(contexts, caplog):
    pair = Pair(*contexts, is_held=True)
    for _ in range(PIECE_BYTES // 1000):
        assert not pair.socket.aborted
        pair.session.received(memoryview(bytes(1000)))
    pair.session.received(memoryview(bytes(1000)))
    assert pair.socket.aborted
    assert "before it has an answer" in caplog.text


def test_a_client_that_goes_before_its_turn_is_forgotten(contexts):
    async def work() -> None:
        pair = Pair(*contexts, is_held=True)
        pair.session.lost()
        pair.connection.let_in()
        await asyncio.sleep(0)
        assert not pair.socket.written

    asyncio.run(work())


# Over real sockets

HUGE = bytes(range(256)) * (1 << 17)  # more than the kernel takes for a client that does not read
RESET = struct.pack("ii", 1, 0)


class Huge(FakeHandler):
    """Answers `small` with itself, and all others with more than a socket takes."""

    def handle_frame(self, exchange: Exchange) -> None:
        body = bytes(exchange.frame)
        self.handled.append(body)
        exchange.send([body] if body == b"small" else [HUGE[:10], HUGE[10:]])


class Site:
    """A server whose only listener has TLS."""

    def __init__(self, contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
        made, self.client_context = contexts
        clock = ManualClock()
        self.handler = Huge(clock)
        log = LimitedLog(logging.getLogger("test"), clock)
        self.server = SocketServer(
            [EndPoint("SSL", "SSL", "127.0.0.1", 0)],
            self.handler,
            clock,
            SystemTimer(clock),
            NetworkLimits(),
            asyncio.get_running_loop(),
            {"SSL": SecuredListener(TlsListener(Terms(made), log), None)},
        )

    async def connect(self) -> "Client":
        client = Client(self.client_context)
        await client.begin(self.server.endpoints[0].port)
        return client

    async def is_served(self) -> bool:
        """Whether another client gets its answer."""
        client = await self.connect()
        await client.ask(b"small")
        answer = await client.read(len(framed(b"small")))
        client.socket.close()
        return answer == framed(b"small")

    async def is_left_by_all(self) -> None:
        while self.server.quotas.total:
            await asyncio.sleep(0)


class Client:
    """A client that reads when it is told to."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_hostname="127.0.0.1")
        self._loop = asyncio.get_running_loop()

    async def begin(self, port: int) -> None:
        await self._loop.sock_connect(self.socket, ("127.0.0.1", port))
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.send()
                await self.receive()
            else:
                return await self.send()

    async def send(self, records: bytes = b"") -> None:
        await self._loop.sock_sendall(self.socket, records or self._out.read())

    async def receive(self) -> bool:
        records = await self._loop.sock_recv(self.socket, 1 << 20)
        self._in.write(records)
        return bool(records)

    async def ask(self, *bodies: bytes) -> None:
        self.tls.write(framed(*bodies))
        await self.send()

    async def read(self, most: int) -> bytes:
        """So many bytes, fewer at the end of the connection."""
        found = bytearray()
        while len(found) < most:
            try:
                got = self.tls.read(most - len(found))
                if not got:
                    break
                found += got
            except ssl.SSLWantReadError:
                if not await self.receive():
                    break
        return bytes(found)

    async def begin_to_read(self) -> None:
        """Gets the first bytes of an answer, the rest of which waits in the broker."""
        await self.ask(b"huge")
        assert await self.read(100) == framed(HUGE)[:100]


@pytest.fixture(params=[uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def run(request, contexts) -> Callable[[Callable[[Site], Awaitable[None]]], None]:
    async def work(test: Callable[[Site], Awaitable[None]]) -> None:
        # A time-out of pytest, too, ends what hangs in a callback with an error for the loop.
        errors = []
        asyncio.get_running_loop().set_exception_handler(lambda _, error: errors.append(error))
        site = Site(contexts)
        site.server.bind()
        await site.server.start()
        try:
            await test(site)
        finally:
            await site.server.stop()  # uvloop's end hangs at connections that are left
        assert not errors

    def start(test: Callable[[Site], Awaitable[None]]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(work(test))

    return start


def test_a_slow_client_gets_all_of_its_answers(run):
    async def test(site: Site) -> None:
        client = await site.connect()
        await client.ask(b"huge", b"small")
        assert await client.read(len(HUGE) + 13) == framed(HUGE, b"small")
        client.socket.close()

    run(test)


def test_a_client_that_sends_no_more_gets_its_answer_and_others_are_served(run):
    async def test(site: Site) -> None:
        client = await site.connect()
        await client.begin_to_read()
        client.socket.shutdown(socket.SHUT_WR)
        assert await site.is_served()
        assert await client.read(len(HUGE)) == framed(HUGE)[100:]
        client.socket.close()
        await site.is_left_by_all()
        assert site.server.answers.used_bytes == 0

    run(test)


def test_others_are_served_when_a_client_is_gone(run):
    async def test(site: Site) -> None:
        client = await site.connect()
        await client.begin_to_read()
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        client.socket.close()
        assert await site.is_served()
        await site.is_left_by_all()
        assert site.server.answers.used_bytes == 0

    run(test)


def test_a_client_that_sends_new_keys_alone_is_read_on(run):
    async def test(site: Site) -> None:
        client = await site.connect()
        records = Records(Path(client.tls.context.keylog_filename))
        keys = [records.key_update() for _ in range(8000)]
        await client.send(b"".join(keys) + records.record(framed(b"small")))
        assert await client.read(9) == framed(b"small")
        assert await site.is_served()
        client.socket.close()

    run(test)


def test_the_end_does_not_wait_for_a_client_that_does_not_read(run):
    async def test(site: Site) -> None:
        client = await site.connect()
        await client.begin_to_read()
        await site.server.stop()
        await site.is_left_by_all()
        assert site.server.answers.used_bytes == 0
        client.socket.close()

    run(test)
