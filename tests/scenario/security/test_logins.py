"""If one of these fails, a broker with SASL lets somebody in, keeps somebody out, or falls over."""

import asyncio
import json
import logging
from pathlib import Path

import pytest
from tests.deadlines import deadline_s
from tests.scenario.security.conftest import connected

import odradek
from odradek.client import Admin, Consumer, Producer
from odradek.client.core.admin_types import ConfigResource, NewTopic
from odradek.client.errors import AuthenticationError
from odradek.model import ConfigResourceType

PAGE = Path(__file__).parents[3] / "docs/operating/security.md"
USERS = {"alice": "pa55word", "bob": "geheim"}
TOKENS = {"delegation.token.secret.key": "the brokers' own"}


@pytest.fixture(scope="module")
def plain():
    with odradek.Broker(security="plain", users=USERS) as broker:
        broker.create_topic("t")
        yield broker


def produced(broker, login, topic="t"):
    async def produce():
        async with Producer(config=login.client()) as producer:
            return await (await producer.send(topic, b"x"))

    return asyncio.run(produce())


@pytest.mark.parametrize("word", ["plain", "scram", "oauth"])
def test_a_user_comes_in_and_all_sides_of_the_client_work(word):
    with odradek.Broker(security=word, users=USERS) as broker:
        login = broker.login("alice")

        async def work():
            async with Admin(config=login.client()) as admin:
                await admin.create_topics([NewTopic("t", 2)])
            async with Producer(config=login.client(), transactional_id="tx") as producer:
                await producer.init_transactions()
                async with producer.transaction():
                    await producer.send("t", b"x")
            settings = {**login.client(), "group.id": "g", "auto.offset.reset": "earliest"}
            async with Consumer(config=settings, topics=["t"]) as consumer:
                async for record in consumer:
                    return record.value
            return None

        assert asyncio.run(asyncio.wait_for(work(), deadline_s(60))) == b"x"


@pytest.mark.parametrize("word", ["plain", "scram"])
def test_a_wrong_password_is_refused_at_once_and_logged_without_it(word, caplog):
    with odradek.Broker(security=word, users=USERS) as broker:
        broker.create_topic("t")
        caplog.set_level(logging.DEBUG)
        with pytest.raises(AuthenticationError, match="SASL_AUTHENTICATION_FAILED"):
            produced(broker, broker.login("alice", "wr0ng-passw0rd"))
        with pytest.raises(AuthenticationError):
            produced(broker, broker.login("mallory", "wr0ng-passw0rd"))
        assert "failed authentication with" in caplog.text
        assert "wr0ng-passw0rd" not in caplog.text
        assert produced(broker, broker.login("bob")).offset == 0


@pytest.mark.parametrize(("name", "password"), [("nobody", "x"), ("alice", "a guess")])
def test_the_log_says_what_the_page_says(name, password, caplog):
    """A line that is looked up would not be found."""
    with odradek.Broker(security="scram", users=USERS) as broker:
        broker.create_topic("t")
        with pytest.raises(AuthenticationError):
            produced(broker, broker.login(name, password))
    [said] = [each for each in caplog.messages if "failed authentication" in each]
    line = said.partition(": ")[2].replace("SCRAM-SHA-256", "SCRAM-SHA-512")
    assert f"| `{line}` |" in PAGE.read_text(encoding="utf-8")


def test_noise_on_the_port_hides_no_refused_login(caplog):
    """A check of the port's health every second would leave out all that is said of clients."""
    clock = odradek.ManualClock()  # within one moment
    with odradek.Broker(security="scram+tls", users=USERS, clock=clock) as broker:
        broker.create_topic("t")
        with connected(broker) as wire:
            wire.send(b"no TLS")
            assert wire.frame() is None
        with pytest.raises(AuthenticationError):
            produced(broker, broker.login("alice", "a guess"))
    assert "what it sends is no TLS" in caplog.text
    assert "Invalid client credentials" in caplog.text


def test_passwords_are_shown_nowhere(plain):
    login = plain.login("alice")
    resource = ConfigResource(ConfigResourceType.BROKER, "1")

    async def described():
        async with Admin(config=login.client()) as admin:
            return await admin.describe_configs([resource], include_synonyms=True)

    shown = asyncio.run(described())
    name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    assert name in shown[resource]
    for text in (repr(shown), repr(plain), repr(login), plain.report()):
        assert "pa55word" not in text
        assert "geheim" not in text


def test_tokens_expire_on_the_test_s_clock(caplog):
    clock = odradek.ManualClock()
    with odradek.Broker(security="oauth", users={"alice": ""}, clock=clock) as broker:
        broker.create_topic("t")
        login = broker.login("alice")
        settings = {**login.client(), "sasl.oauthbearer.token.provider": lambda: login.token(5_000)}

        async def produce():
            async with Producer(config=settings) as producer:
                await (await producer.send("t", b"1"))
                clock.advance(6_000)
                # The session has ended: the connection is closed, and a new token shown.
                await (await producer.send("t", b"2"))

        asyncio.run(asyncio.wait_for(produce(), deadline_s(60)))
        assert len(broker.records("t")) == 2

        old = login.token(1_000)
        clock.advance(2_000)
        settings["sasl.oauthbearer.token.provider"] = lambda: old
        with pytest.raises(AuthenticationError, match="invalid_token"):
            asyncio.run(asyncio.wait_for(produce(), deadline_s(60)))
        assert "refused a token: it has expired 1000 ms ago" in caplog.text


@pytest.mark.parametrize("wall_ms", [10**12, 4 * 10**12])
def test_tokens_are_good_on_the_broker_s_date_and_on_the_clients(wall_ms):
    """librdkafka refuses a token that has expired by the machine's date, and the broker one that
    is good only later by its own."""
    clock = odradek.ManualClock(wall_ms=wall_ms)
    config = {"message.timestamp.type": "LogAppendTime"}
    with odradek.Broker(security="oauth", users=USERS, clock=clock) as broker:
        broker.create_topic("t", config=config)
        login = broker.login("alice")

        async def produce():
            async with Producer(config=login.client()) as producer:
                await producer.send_and_wait("t", b"1")

        asyncio.run(asyncio.wait_for(produce(), deadline_s(60)))
        from confluent_kafka import Producer as ConfluentProducer

        told = []
        producer = ConfluentProducer(login.confluent())
        producer.produce("t", b"2", on_delivery=lambda error, _: told.append(error))
        assert producer.flush(deadline_s(60)) == 0
        assert told == [None]
        assert [each.value for each in broker.records("t")] == [b"1", b"2"]


def test_a_user_s_password_is_changed_while_the_broker_runs():
    with odradek.Broker(security="scram", users=USERS) as broker:
        broker.create_topic("t")
        from confluent_kafka.admin import (
            AdminClient,
            ScramCredentialInfo,
            ScramMechanism,
            UserScramCredentialDeletion,
            UserScramCredentialUpsertion,
        )

        admin = AdminClient({**broker.login("alice").confluent(), "log_level": 0})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 5000)
        upsertion = UserScramCredentialUpsertion("carol", info, b"new-secret")
        [done] = admin.alter_user_scram_credentials([upsertion]).values()
        done.result(deadline_s(20))
        assert produced(broker, broker.login("carol", "new-secret")).offset == 0
        described = admin.describe_user_scram_credentials(["carol"])["carol"].result(deadline_s(20))
        assert [each.iterations for each in described.scram_credential_infos] == [5000]
        deletion = UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_256)
        [done] = admin.alter_user_scram_credentials([deletion]).values()
        done.result(deadline_s(20))
        with pytest.raises(AuthenticationError):
            produced(broker, broker.login("carol", "new-secret"))


def test_a_broker_that_starts_again_knows_its_users():
    broker = odradek.Broker(security="scram+tls", users=USERS).start()
    try:
        broker.create_topic("t")
        broker.restart()
        assert produced(broker, broker.login("alice")).offset == 0
    finally:
        broker.stop()


# --- what does not keep to the protocol ----------------------------------------------------------


def test_no_request_passes_before_a_login(plain):
    with connected(plain) as wire:
        wire.ask(3, 1, topics=[])
        assert wire.frame() is None
    with connected(plain) as wire:
        wire.ask(18, 0)
        assert wire.frame()
        wire.ask(3, 1, topics=[])
        assert wire.frame() is None


def test_raw_tokens_after_the_first_handshake(plain):
    with connected(plain) as wire:
        wire.ask(17, 0, mechanism="PLAIN")
        assert wire.frame()
        wire.send(b"\0alice\0pa55word")
        assert wire.frame() == b""
        wire.ask(3, 1, topics=[])
        assert wire.frame()


def test_every_login_by_scram_has_a_nonce_of_its_own():
    """A login that was listened to could be repeated."""
    answers = set()
    with odradek.Broker(security="scram", users=USERS, seed=1) as broker:
        for _ in range(3):
            with connected(broker) as wire:
                wire.ask(17, 0, mechanism="SCRAM-SHA-256")
                assert wire.frame()
                wire.send(b"n,,n=alice,r=always-the-same")
                answers.add(wire.frame())
    assert len(answers) == 3
    assert all(each.startswith(b"r=always-the-same") for each in answers)


def test_a_frame_before_a_login_is_small(plain):
    with connected(plain) as wire:
        wire.socket.sendall((524_289).to_bytes(4, "big"))
        assert wire.frame() is None
    with connected(plain) as wire:
        wire.ask(17, 1, mechanism="PLAIN")
        assert wire.frame()
        wire.ask(36, 2, auth_bytes=b"\0alice\0" + b"x" * 500_000)
        assert wire.frame()
        assert wire.frame() is None


def test_a_handshake_is_refused_on_a_listener_without_sasl():
    with odradek.Broker() as broker, connected(broker) as wire:
        wire.ask(17, 1, mechanism="PLAIN")
        assert wire.frame()[4:6] == (34).to_bytes(2, "big")
        wire.ask(36, 1, auth_bytes=b"")
        assert wire.frame()[4:6] == (34).to_bytes(2, "big")


def test_who_never_logs_in_is_closed():
    from odradek.server import network_settings

    before = network_settings.SETUP_MAX_MS
    network_settings.SETUP_MAX_MS = 50
    try:
        with (
            odradek.Broker(security="plain", users=USERS) as broker,
            connected(broker) as silent,
            connected(broker) as half,
        ):
            half.ask(17, 1, mechanism="PLAIN")
            assert half.frame()
            assert silent.frame() is None
            assert half.frame() is None
    finally:
        network_settings.SETUP_MAX_MS = before


def test_what_security_says_is_checked():
    with pytest.raises(ValueError, match="security is one of tls, mtls, plain"):
        odradek.Broker(security="kerberos")
    with pytest.raises(TypeError, match="users is a mapping of names to passwords"):
        odradek.Broker(security="plain", users=["alice"])
    with pytest.raises(ValueError, match="users need a broker with security="):
        odradek.Broker(users=USERS)
    with pytest.raises(ValueError, match="this broker has no authentication"):
        odradek.Broker().login("alice")
    with odradek.Broker(security="plain", users=USERS) as broker:
        with pytest.raises(ValueError, match="there is no user 'carol'; users= has alice, bob"):
            broker.login("carol")
        java = broker.login("alice").java()
        assert java["security.protocol"] == "SASL_PLAINTEXT"
        assert broker.login("alice").spark()["kafka.sasl.mechanism"] == "PLAIN"
        assert json.dumps(java)


@pytest.mark.odradek(security="plain", users={"alice": "secret"})
def test_the_mark_protects_the_fixture_s_broker(odradek_broker):
    odradek_broker.create_topic("t")
    assert produced(odradek_broker, odradek_broker.login("alice")).offset == 0


def test_a_broker_without_security_imports_none_of_it():
    import subprocess
    import sys

    code = (
        "import odradek, sys\n"
        "with odradek.Broker() as b: b.create_topic('t')\n"
        "print([m for m in sys.modules if m.startswith('odradek.security') or "
        "m.startswith('odradek.tls') or m.startswith('odradek.server.security') or "
        "m.split('.')[0] in ('cryptography', 'joserfc')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=deadline_s(120),
        check=True,
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("word", ["scram", "scram+tls", "mtls"])
def test_the_blocking_client_comes_in(word):
    from odradek.client.security import client_security
    from odradek.client.settings import ADMIN_SETTINGS, ClientSettings
    from odradek.client.sync.cluster import Cluster

    with odradek.Broker(security=word, users=USERS) as broker:
        broker.create_topic("t")
        settings = ClientSettings(ADMIN_SETTINGS, broker.login("alice").client(), {})
        security = client_security(settings)
        with Cluster(broker.bootstrap_servers, security=security) as cluster:
            assert "t" in cluster.topics()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"security.protocol": "SASL_PLAINTEXT"}, "sasl.mechanism"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "say who logs in"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}, "which token"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/no/file"}, "No such file"),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": "hidden",
            },
            "a JAAS configuration is",
        ),
    ],
)
def test_a_client_s_settings_that_do_not_go_together_are_refused(settings, text):
    from odradek.client.security import client_security
    from odradek.client.settings import ADMIN_SETTINGS, ClientSettings

    with pytest.raises(ValueError, match=text) as caught:
        client_security(ClientSettings(ADMIN_SETTINGS, settings, {}))
    assert "hidden" not in str(caught.value)


def test_a_stranger_writes_no_lines_into_the_log(caplog):
    """A name with line breaks could make the log say that somebody else has come in."""
    name = "x\n2026-01-01 INFO all is well"
    with (
        odradek.Broker(security="scram", users=USERS, config=TOKENS) as broker,
        connected(broker) as wire,
    ):
        wire.ask(17, 1, mechanism="SCRAM-SHA-256")
        wire.frame()
        wire.ask(36, 2, auth_bytes=f"n,,n={name},r=abc,tokenauth=true".encode())
        assert wire.frame()
    refusals = [each.message for each in caplog.records if "Refused" in each.message]
    assert len(refusals) == 1
    assert "all is well" in refusals[0]
    assert "\n" not in refusals[0]


def test_a_credential_that_is_not_understood_lets_nobody_in(caplog):
    """Fails when a damaged credential, as any writer to ZooKeeper can store one, ends a broker or
    fills its log with traces.
    """
    with odradek.Broker(security="scram", users=USERS) as broker:
        broken = {"SCRAM-SHA-256": "salt=?,stored_key"}

        async def spoil():
            done = asyncio.get_running_loop().create_future()
            controller = broker._running().controller
            controller.alter_users(lambda _image: {"alice": broken}, done.set_result)
            return await done

        assert broker._wait(spoil()) is None
        with pytest.raises(AuthenticationError):
            produced(broker, broker.login("alice"))

        async def described():
            async with Admin(config=broker.login("bob").client()) as admin:
                return await admin.describe_scram_users()

        assert asyncio.run(described())["alice"] == {"SCRAM-SHA-512": 4096}
    assert "credential of user 'alice' is not understood" in caplog.text
    assert "Traceback" not in caplog.text


def test_a_blocking_connection_that_cannot_log_in_again_ends():
    """Fails when the connection stays open: a later request waits for a login that is not under
    way.
    """
    from odradek.client.addresses import Address
    from odradek.client.apis import API_VERSIONS
    from odradek.client.errors import NetworkError
    from odradek.client.security import client_security
    from odradek.client.settings import ADMIN_SETTINGS, TOKEN_PROVIDER, ClientSettings
    from odradek.client.sync import BlockingConnection

    with odradek.Broker(security="oauth", users=USERS) as broker:
        login = broker.login("alice")
        tokens = iter([login.token(lifetime_ms=60_000)])
        given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
        settings = ClientSettings(ADMIN_SETTINGS, given | {TOKEN_PROVIDER: tokens.__next__}, {})
        host, port = broker.bootstrap_servers.split(":")
        connection = BlockingConnection(
            Address(host, int(port)),
            client_id="t",
            timeout_s=deadline_s(30),
            security=client_security(settings),
        )
        connection._renew_at_s = 0
        with pytest.raises(NetworkError, match="the token provider failed: StopIteration"):
            connection.request(API_VERSIONS, 0, [b""])
        assert connection.is_closed
