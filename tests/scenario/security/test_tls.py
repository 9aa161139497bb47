"""If one of these fails, a broker with TLS serves somebody it should not, or nobody at all."""

import asyncio
import logging
import os
import socket
import ssl
import threading
from contextlib import suppress

import pytest
from tests.deadlines import deadline_ms, deadline_s
from tests.scenario.security.conftest import connected

import odradek
from odradek.client import Admin, ConfigChange, ConfigResource, ConfigResourceType, Producer
from odradek.client.addresses import Address
from odradek.client.aio.connection import open_connection
from odradek.client.errors import KafkaError, NetworkError
from odradek.client.security import ClientSecurity
from odradek.errors import ErrorCode
from odradek.event_loop import new_event_loop
from odradek.server.in_process.protected.authority import HOSTS, CertificateAuthority

pytest.importorskip("cryptography", reason="the extra `security`")

USERS = {"alice": "secret"}


@pytest.fixture(scope="module")
def tls():
    with odradek.Broker(security="tls") as broker:
        broker.create_topic("t")
        yield broker


def produce(settings, value=b"x", count=1):
    async def work():
        async with Producer(config=settings) as producer:
            sent = [await producer.send("t", value) for _ in range(count)]
            return [await each for each in sent]

    return asyncio.run(asyncio.wait_for(work(), deadline_s(60)))


@pytest.mark.parametrize("security", ["tls", "mtls", "plain+tls", "scram+tls", "oauth+tls"])
def test_records_go_and_come_through_tls(security):
    with odradek.Broker(security=security, users=USERS) as broker:
        broker.create_topic("t")
        value = os.urandom(300_000)
        login = broker.login("alice")
        produce(login.client(), value, 20)

        async def consume():
            from odradek.client import Consumer

            settings = {**login.client(), "auto.offset.reset": "earliest", "group.id": "g"}
            found = []
            async with Consumer(config=settings, topics=["t"]) as consumer:
                async for record in consumer:
                    found.append(record.value)
                    if len(found) == 20:
                        return found
            return found

        assert asyncio.run(asyncio.wait_for(consume(), deadline_s(60))) == [value] * 20


def test_a_client_without_a_certificate_is_refused_and_the_reason_logged(caplog):
    with odradek.Broker(security="mtls", users=USERS) as broker:
        settings = broker.login("alice").client()
        for name in [name for name in settings if "keystore" in name]:
            del settings[name]
        with pytest.raises(KafkaError):
            produce(
                {
                    **settings,
                    "max.block.ms": 500,
                    "delivery.timeout.ms": 1000,
                    "request.timeout.ms": 500,
                    "linger.ms": 0,
                }
            )
        assert "peer did not return a certificate" in caplog.text


def test_what_no_tls_is_explained(caplog):
    # A broker of its own: one that explained the same a moment ago says nothing.
    with odradek.Broker(security="tls") as broker, connected(broker) as wire:
        wire.ask(18, 0)
        assert wire.frame() is None
    assert "the client uses PLAINTEXT or SASL_PLAINTEXT where this listener has TLS" in caplog.text


def test_tls_where_there_is_none_is_explained(caplog):
    with odradek.Broker() as broker, connected(broker) as wire:
        context = ssl.create_default_context()
        with pytest.raises((ssl.SSLError, ConnectionError)):
            context.wrap_socket(wire.socket, server_hostname="localhost")
        assert "the client uses SSL where this listener has PLAINTEXT" in caplog.text


@pytest.mark.parametrize(
    "rest", [b"", b"\x03", b"\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\0" * 9]
)
def test_handshakes_that_are_none(tls, rest):
    with connected(tls) as wire:
        wire.socket.sendall(b"\x16" + rest)
        wire.socket.shutdown(socket.SHUT_WR)
        while wire.socket.recv(1000):
            pass
    assert produce(tls.login("anybody", "").client())


def test_a_broker_that_hangs_up_at_once_leaves_no_traceback():
    """As a proxy does whose broker is away: it may be gone before the handshake begins."""
    told = []
    security = ClientSecurity(ssl.create_default_context())

    def hang_up(listener):
        with suppress(OSError):
            while True:
                listener.accept()[0].close()

    async def connect_again_and_again(address):
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context))
        for _ in range(300):
            with pytest.raises(NetworkError):
                await open_connection(address, "c", deadline_ms(30_000), security=security)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=hang_up, args=(listener,)).start()
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(connect_again_and_again(Address(*listener.getsockname())))
        listener.shutdown(socket.SHUT_RDWR)
    assert told == []


@pytest.mark.parametrize("count", [300, pytest.param(1_000, marks=pytest.mark.slow)])
def test_many_handshakes_that_never_end_cost_little_and_are_closed(count):
    from odradek.server import network_settings

    before = network_settings.SETUP_MAX_MS
    network_settings.SETUP_MAX_MS = 3_000
    held = []
    try:
        with odradek.Broker(security="tls") as broker:
            broker.create_topic("t")
            host, port = broker.bootstrap_servers.rsplit(":", 1)
            for _ in range(count):
                one = socket.create_connection((host, int(port)), 30)
                one.sendall(b"\x16\x03\x01\x02\x00")
                held.append(one)
            assert produce(broker.login("anybody", "").client())
            assert all(one.recv(1) == b"" for one in held)
    finally:
        network_settings.SETUP_MAX_MS = before
        for one in held:
            one.close()


def test_new_certificates_count_for_new_connections_and_bad_ones_for_nobody(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    authority = CertificateAuthority()
    path = tmp_path / "broker.pem"

    def write(name, hosts=HOSTS):
        own = authority.issue(name, hosts)
        path.write_text(own.certificate + own.key)

    write("first")
    clock = odradek.ManualClock()
    config = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(path),
        "security.inter.broker.protocol": "SSL",
        "ssl.allow.dn.changes": True,
    }
    with odradek.Broker(listeners="SSL://127.0.0.1:0", config=config, clock=clock) as broker:
        context = ssl.create_default_context(cadata=authority.certificate)

        def connect():
            host, port = broker.bootstrap_servers.rsplit(":", 1)
            plain = socket.create_connection((host, int(port)), 30)
            return context.wrap_socket(plain, server_hostname="localhost")

        def shown(one):
            return dict(each[0] for each in one.getpeercert()["subject"])["commonName"]

        old = connect()
        assert shown(old) == "first"
        path.write_text("nonsense")
        clock.advance(60_000)
        assert "keeps its certificates" in caplog.text
        with connect() as one:
            assert shown(one) == "first"
        write("third", HOSTS[:1])
        clock.advance(60_000)
        assert "lacks alternative names of the old one (ssl.allow.san.changes" in caplog.text
        with connect() as one:
            assert shown(one) == "first"
        write("second", (*HOSTS, "elsewhere"))
        clock.advance(60_000)
        with connect() as one:
            assert shown(one) == "second"
        old.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\x07\xff\xff")
        assert old.recv(8)[4:8] == b"\0\0\0\x07"
        old.close()


def test_another_key_store_by_a_setting_of_the_running_broker(tmp_path):
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    authority = CertificateAuthority()
    for name in ("first", "second"):
        own = authority.issue(name, HOSTS)
        (tmp_path / name).write_text(own.certificate + own.key)
    config = {
        "listener.name.ssl.ssl.keystore.location": str(tmp_path / "first"),
        "security.inter.broker.protocol": "SSL",
        "ssl.allow.dn.changes": True,
    }
    with odradek.Broker(listeners="SSL://127.0.0.1:0", config=config) as broker:
        trusted = {
            "security.protocol": "ssl",
            "ssl.ca.pem": authority.certificate,
            "bootstrap.servers": broker.bootstrap_servers,
        }
        entry = ConfigEntry(
            "listener.name.ssl.ssl.keystore.location",
            str(tmp_path / "second"),
            incremental_operation=AlterConfigOpType.SET,
        )
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        admin = AdminClient({**trusted, "log_level": 0})
        [done] = admin.incremental_alter_configs([resource]).values()
        done.result(deadline_s(30))
        context = ssl.create_default_context(cadata=authority.certificate)
        host, port = broker.bootstrap_servers.rsplit(":", 1)
        with (
            socket.create_connection((host, int(port)), 30) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as one,
        ):
            [[[_, name]]] = one.getpeercert()["subject"]
        assert name == "second"


def test_a_certificate_of_somebody_else_is_refused_while_the_broker_runs(tmp_path, caplog):
    """A mistaken copy of a file would have every client that knows the broker turn away."""
    authority = CertificateAuthority()
    path = tmp_path / "broker.pem"
    path.write_text("".join(authority.issue("first", HOSTS)))
    clock = odradek.ManualClock()
    config = {"ssl.keystore.location": str(path), "security.inter.broker.protocol": "SSL"}
    with odradek.Broker(listeners="SSL://127.0.0.1:0", config=config, clock=clock):
        path.write_text("".join(authority.issue("second", HOSTS)))
        clock.advance(60_000)
    assert "is of CN=second, the old one of CN=first (ssl.allow.dn.changes" in caplog.text


@pytest.mark.parametrize("text", ["none", "second"])
def test_a_bad_certificate_by_a_setting_is_answered_and_the_old_one_stays(tmp_path, text):
    """Somebody would believe the renewal done until the old certificate ends."""
    authority = CertificateAuthority()
    (tmp_path / "first").write_text("".join(authority.issue("first", HOSTS)))
    bad = tmp_path / "bad"
    bad.write_text(text if text == "none" else "".join(authority.issue(text, HOSTS)))
    setting = "listener.name.ssl.ssl.keystore.location"
    config = {setting: str(tmp_path / "first"), "security.inter.broker.protocol": "SSL"}
    with odradek.Broker(listeners="SSL://127.0.0.1:0", config=config) as broker:
        trusted = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": authority.certificate,
        }
        resource = ConfigResource(ConfigResourceType.BROKER, "1")

        async def alter():
            async with Admin(config=trusted) as admin:
                return await admin.alter_configs({resource: [ConfigChange(setting, str(bad))]})

        refusal = asyncio.run(asyncio.wait_for(alter(), deadline_s(60)))[resource]
        assert refusal.code == ErrorCode.INVALID_REQUEST
        assert "Listener SSL cannot use these settings" in str(refusal)
        context = ssl.create_default_context(cadata=authority.certificate)
        host, port = broker.bootstrap_servers.rsplit(":", 1)
        with (
            socket.create_connection((host, int(port)), 30) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as one,
        ):
            [[[_, name]]] = one.getpeercert()["subject"]
        assert name == "first"
