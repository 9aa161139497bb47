"""If one of these fails, who has tokens of an issuer does not come in, or does not stay in."""

import asyncio
import subprocess
import sys
import threading

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from tests.deadlines import deadline_s
from tests.issuers import Issuer, says, token

import odradek
from odradek.client import Admin, Producer
from odradek.client.addresses import Address
from odradek.client.aio.connection import open_connection
from odradek.client.apis import API_VERSIONS
from odradek.client.errors import AuthenticationError
from odradek.client.security import ClientSecurity, client_security
from odradek.client.settings import ADMIN_SETTINGS, ClientSettings
from odradek.client.sync import BlockingConnection, Cluster
from odradek.clock import ManualClock, SystemClock

SECRET = "an-issuer-s-secret"


@pytest.fixture
def issuer():
    with Issuer() as one:
        yield one


@pytest.fixture(scope="module")
def broker():
    with odradek.Broker(security="oauth", users={"alice": ""}) as one:
        one.create_topic("t")
        yield one


def settings(broker, issuer):
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": issuer.url,
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": SECRET,
        "sasl.login.retry.backoff.max.ms": "0",
    }


def address(broker):
    host, port = broker.bootstrap_servers.split(":")
    return Address(host, int(port))


def security(broker, issuer):
    return client_security(ClientSettings(ADMIN_SETTINGS, settings(broker, issuer), {}))


def test_our_clients_come_in_with_one_token_for_all_their_connections(broker, issuer):
    async def work():
        async with Producer(config=settings(broker, issuer)) as producer:
            return await producer.send_and_wait("t", b"x")

    assert asyncio.run(work()).offset >= 0
    assert len(issuer.asked) == 1
    with Cluster(broker.bootstrap_servers, security=security(broker, issuer)) as cluster:
        assert "t" in cluster.topics()
    assert len(issuer.asked) == 2


def test_a_tool_comes_in_and_tells_a_refusal_in_one_sentence(broker, issuer, tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in settings(broker, issuer).items()))
    command = [sys.executable, "-m", "odradek", "topics", "--list"]
    command += ["--bootstrap-server", broker.bootstrap_servers, "--command-config", str(file)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=deadline_s(120), check=False
    )
    assert done.stdout == "t\n", done.stderr
    issuer.then = [says(401, b'{"error":"invalid_client"}')]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=deadline_s(120), check=False
    )
    assert done.returncode == 1
    said = f"the token endpoint {issuer.url}: it answers 401 (invalid_client)"
    assert said in done.stdout + done.stderr
    assert SECRET not in done.stdout + done.stderr


def test_librdkafka_comes_in_with_tokens_of_the_same_issuer(broker, issuer):
    admin = AdminClient(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": SECRET,
            "sasl.oauthbearer.token.endpoint.url": issuer.url,
        }
    )
    assert "t" in admin.list_topics(timeout=deadline_s(30)).topics
    assert confluent_kafka.version()
    assert issuer.asked[0].form == {"grant_type": ["client_credentials"]}


def test_a_token_that_the_broker_refuses_is_an_error_of_its_own(broker, issuer):
    issuer.make_token = lambda: token(alg="none", nbf=4_000_000_000)

    async def work():
        async with Admin(config=settings(broker, issuer)) as admin:
            await admin.list_topics()

    with pytest.raises(AuthenticationError, match="invalid_token"):
        asyncio.run(work())


def test_a_session_is_renewed_on_its_connection_with_a_fresh_token(broker, issuer):
    """The connection is the same, nothing is lost, and the broker has seen a second token."""
    issuer.make_token = lambda: token(lifetime_s=3600, jti=len(issuer.asked))

    async def work():
        own = security(broker, issuer)
        connection = await open_connection(address(broker), "t", 30_000, security=own)
        begun = connection._renew_at_s
        own.login._held = own.login._held._replace(refresh_at_ms=0)
        connection._renew_at_s = 0
        answers = [connection.request(API_VERSIONS, 0, [b""], 30_000) for _ in range(3)]
        await asyncio.gather(*answers)
        while connection._renewal is not None or connection._core._login_steps is not None:
            await connection.request(API_VERSIONS, 0, [b""], 30_000)
        assert begun < connection._renew_at_s < float("inf")
        assert not connection.is_closed
        connection.close()

    asyncio.run(work())
    assert len(issuer.asked) == 2


class OnClock:
    """A broker and an issuer on a clock that the test moves, and a connection to that broker."""

    def __init__(self, issuer, broker, clock):
        self.clock = clock
        self.broker = broker
        self.login = security(broker, issuer).login
        self.login._wall_ms = clock.wall_ms
        self.address = address(broker)
        issuer.make_token = self.token

    def token(self):
        now_s = self.clock.wall_ms() / 1000
        return token(iat=now_s, exp=now_s + 3600)

    async def open(self):
        own = ClientSecurity(None, self.login)
        return await open_connection(self.address, "t", 30_000, security=own)

    async def ask(self, connection):
        return await connection.request(API_VERSIONS, 0, [b""], 30_000)


@pytest.fixture
def on_clock(issuer):
    clock = ManualClock(wall_ms=SystemClock().wall_ms())
    with odradek.Broker(security="oauth", users={"alice": ""}, clock=clock) as broker:
        yield OnClock(issuer, broker, clock)


def test_a_connection_outlives_the_token_that_it_came_with(on_clock, issuer):
    async def work():
        connection = await on_clock.open()
        for _ in range(3):
            on_clock.clock.advance(3_100_000)  # past its part, and later past the first one's end
            connection._renew_at_s = 0
            await on_clock.ask(connection)
            while connection._renewal or connection._core._login_steps:
                await on_clock.ask(connection)
        connection.close()

    asyncio.run(work())
    assert len(issuer.asked) == 4


def test_a_connection_that_was_idle_until_its_session_was_over_loses_no_request(on_clock, issuer):
    """A request that leaves while a token is asked for would have the broker close it."""

    async def work():
        connection = await on_clock.open()
        on_clock.clock.advance(4_000_000)
        connection._renew_at_s = connection._over_at_s = 0
        await asyncio.gather(*(on_clock.ask(connection) for _ in range(5)))
        assert not connection.is_closed
        connection.close()

    asyncio.run(work())
    assert len(issuer.asked) == 2


def test_a_producer_without_acknowledgements_renews_its_session_too(on_clock, issuer):
    """Fails when the session is not renewed: no answer tells the producer that its records go to a
    closed connection.
    """
    on_clock.broker.create_topic("t")

    async def work():
        config = {**settings(on_clock.broker, issuer), "acks": "0", "enable.idempotence": "false"}
        async with Producer(config=config) as producer:
            cluster = producer._cluster
            cluster._security.login._wall_ms = on_clock.clock.wall_ms
            await producer.send_and_wait("t", b"0")
            (connection,) = cluster._connections.open
            for number in range(1, 4):
                on_clock.clock.advance(3_100_000)
                connection._renew_at_s = 0
                await producer.send_and_wait("t", b"%d" % number)
                while connection._renewal or connection._core._login_steps:
                    await asyncio.sleep(0)
            assert [connection] == cluster._connections.open
            await cluster.refresh(["t"])  # behind the records on the same connection

    asyncio.run(work())
    assert [each.value for each in on_clock.broker.records("t")] == [b"0", b"1", b"2", b"3"]
    assert len(issuer.asked) == 4


def test_what_nobody_acknowledges_is_not_heaped_up_while_a_token_is_asked_for(on_clock, issuer):
    """Fails when a fast producer fills the memory behind an issuer that takes its time."""
    on_clock.broker.create_topic("t")
    may_answer = threading.Event()

    async def work():
        config = {**settings(on_clock.broker, issuer), "acks": "0", "enable.idempotence": "false"}
        async with Producer(config=config) as producer:
            login = producer._cluster._security.login
            login._wall_ms = on_clock.clock.wall_ms
            await producer.send_and_wait("t", b"0")
            (connection,) = producer._cluster._connections.open
            ask = login._ask
            login._ask = lambda: may_answer.wait(deadline_s(60)) and ask()
            on_clock.clock.advance(4_000_000)
            connection._renew_at_s = connection._over_at_s = 0
            sent = asyncio.ensure_future(producer.send_and_wait("t", b"1"))
            while connection._renewal is None:
                await asyncio.sleep(0)
            for _ in range(100):
                await asyncio.sleep(0)
            assert not sent.done()
            may_answer.set()
            await sent
            await producer._cluster.refresh(["t"])  # behind the record on the same connection
            assert [connection] == producer._cluster._connections.open

    try:
        asyncio.run(work())
    finally:
        may_answer.set()
    assert [each.value for each in on_clock.broker.records("t")] == [b"0", b"1"]


def test_a_blocking_connection_renews_its_session_with_a_fresh_token(broker, issuer):
    own = security(broker, issuer)
    connection = BlockingConnection(
        address(broker), client_id="t", timeout_s=deadline_s(30), security=own
    )
    own.login._held = own.login._held._replace(refresh_at_ms=0)
    connection._renew_at_s = 0
    connection.request(API_VERSIONS, 0, [b""])
    connection.close()
    assert len(issuer.asked) == 2


def test_a_connection_whose_session_cannot_be_renewed_tells_why(broker, issuer):
    async def work():
        own = security(broker, issuer)
        connection = await open_connection(address(broker), "t", 30_000, security=own)
        held = own.login._held
        own.login._held = held._replace(
            refresh_at_ms=0, token=held.token._replace(expires_wall_ms=0)
        )
        issuer.then = [says(403)]
        connection._renew_at_s = 0

        async def ask_on():
            while True:
                await connection.request(API_VERSIONS, 0, [b""], 30_000)

        with pytest.raises(AuthenticationError, match="answers 403"):
            await ask_on()

    asyncio.run(work())


def test_brokers_come_to_each_other_with_tokens_of_an_issuer(issuer):
    issuer.make_token = lambda: token("broker")
    config = {
        "sasl.oauthbearer.token.endpoint.url": issuer.url,
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": SECRET,
    }
    with odradek.Cluster(brokers=2, security="oauth", users={"alice": ""}, config=config) as two:
        two.create_topic("t", partitions=1, replication_factor=2)

        async def work():
            config = {**two.login("alice").client(), "acks": "all"}
            async with Producer(config=config) as producer:
                return await producer.send_and_wait("t", b"x")

        assert asyncio.run(work()).offset == 0
    assert issuer.asked
    assert all(SECRET not in repr(each.form) for each in issuer.asked)
