"""If one of these fails, a job that was given a token cannot come in, or comes in for longer, or as
somebody else."""

import asyncio

import pytest

import odradek
from odradek.client.errors import AuthenticationError, KafkaError
from odradek.client.sync import Admin, Producer
from odradek.errors import ErrorCode
from odradek.metadata.kept_tokens import INFORMATION, token_resource
from odradek.model import KafkaPrincipal

USERS = {"alice": "secret", "bob": "geheim", "carol": "caché"}
KEY = {"delegation.token.secret.key": "the brokers' own"}
DAY_MS = 86_400_000


def by_token(broker, token, password=None):
    """The settings of a client that has nothing but a token."""
    line = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{token.token_id}" password="{password or token.password}" tokenauth=true;'
    )
    return {**broker.login("alice").client(), "sasl.jaas.config": line}


def refused(call, *arguments, **named):
    with pytest.raises(KafkaError) as caught:
        call(*arguments, **named)
    return caught.value.code


@pytest.fixture
def broker():
    with odradek.Broker(security="scram", users=USERS, config=KEY) as broker:
        broker.create_topic("t")
        yield broker


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_somebody_comes_in_by_a_token_and_gets_no_other_one(broker, mechanism):
    with Admin(config=broker.login("alice").client()) as admin:
        token = admin.create_delegation_token(["User:bob"])
        assert token.owner == KafkaPrincipal("User", "alice")
        assert token.password not in repr(token)
    settings = {**by_token(broker, token), "sasl.mechanism": mechanism}
    with Producer(config=settings) as producer:
        assert producer.send("t", b"x").result().offset == 0
    with Admin(config=settings) as admin:
        not_allowed = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert refused(admin.create_delegation_token) == not_allowed
        assert refused(admin.renew_delegation_token, token.hmac) == not_allowed
        assert refused(admin.expire_delegation_token, token.hmac) == not_allowed
        assert refused(admin.describe_delegation_tokens) == not_allowed
    with pytest.raises(AuthenticationError), Admin(config=by_token(broker, token, "eA==")) as admin:
        admin.list_topics()


def test_tokens_that_are_not_understood_are_nobodys(broker):
    """Fails when one token that another version, or any writer to ZooKeeper, stores has every
    request about tokens fail."""
    with Admin(config=broker.login("alice").client()) as admin:
        token = admin.create_delegation_token()
        image = broker._running().metadata.image
        [good] = [each for each in image.configs if each.name == token.token_id]
        text = image.config(good)[INFORMATION]
        expiry = f'"expiryTimestamp":{token.expiry_ms}'
        garbage = {
            "late": text.replace(expiry, '"expiryTimestamp":1e999').replace(good.name, "late"),
            "long": text.replace(expiry, f'"expiryTimestamp":{2**64}').replace(good.name, "long"),
            "half": text.replace("alice", "\\ud800").replace(good.name, "half"),
            "other": text,
        }
        assert len({text, *garbage.values()}) == len(garbage)

        async def spoil():
            done = asyncio.get_running_loop().create_future()
            changes = {token_resource(name): {INFORMATION: each} for name, each in garbage.items()}
            broker._running().controller.alter_kept(lambda _image: changes, done.set_result)
            return await done

        assert broker._wait(spoil()) is None
        assert [each.token_id for each in admin.describe_delegation_tokens()] == [token.token_id]
        assert admin.renew_delegation_token(token.hmac) > 0
        admin.expire_delegation_token(token.hmac, -1)
        assert admin.describe_delegation_tokens() == []
        broker._running().tokens.remove_expired()


def test_a_token_is_no_password_and_a_password_no_token(broker):
    with Admin(config=broker.login("alice").client()) as admin:
        token = admin.create_delegation_token()
    line = by_token(broker, token)["sasl.jaas.config"]
    for wrong in (
        line.replace("tokenauth=true", ""),
        line.replace(token.token_id, "alice").replace(token.password, "secret"),
    ):
        settings = {**by_token(broker, token), "sasl.jaas.config": wrong}
        with pytest.raises(AuthenticationError), Admin(config=settings) as admin:
            admin.list_topics()


def test_renewers_and_owners_renew_and_expire_a_token_and_others_do_not(broker):
    logins = {name: Admin(config=broker.login(name).client()) for name in USERS}
    alice, bob, carol = logins.values()
    try:
        token = alice.create_delegation_token(["User:bob"], max_lifetime_ms=DAY_MS)
        assert token.expiry_ms == token.max_ms == token.issue_ms + DAY_MS
        assert bob.renew_delegation_token(token.hmac) == token.max_ms
        mismatch = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert refused(carol.renew_delegation_token, token.hmac) == mismatch
        assert refused(carol.expire_delegation_token, token.hmac) == mismatch
        unknown = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert refused(alice.renew_delegation_token, b"none") == unknown
        assert alice.expire_delegation_token(token.hmac, 1_000) < token.max_ms
        (found,) = bob.describe_delegation_tokens()
        assert found.hmac == token.hmac
        assert bob.describe_delegation_tokens(["User:carol"]) == []
        assert bob.describe_delegation_tokens([]) == []
        bob.expire_delegation_token(token.hmac)
        assert alice.describe_delegation_tokens() == []
        group = ErrorCode.INVALID_PRINCIPAL_TYPE
        assert refused(alice.create_delegation_token, ["Group:g"]) == group
    finally:
        for each in logins.values():
            each.close()


def test_a_token_lasts_as_long_as_the_clock_says():
    clock = odradek.ManualClock()
    config = {**KEY, "delegation.token.expiry.check.interval.ms": 10_000}
    with odradek.Broker(security="scram", users=USERS, config=config, clock=clock) as broker:
        broker.create_topic("t")
        with Admin(config=broker.login("alice").client()) as admin:
            token = admin.create_delegation_token(max_lifetime_ms=5_000)
            with Producer(config=by_token(broker, token)) as producer:
                producer.send("t", b"x").result()
                clock.advance(4_000)
                producer.send("t", b"y").result()
                clock.advance(1_500)
                with pytest.raises(KafkaError):
                    producer.send("t", b"z").result()
            expired = ErrorCode.DELEGATION_TOKEN_EXPIRED
            assert refused(admin.renew_delegation_token, token.hmac) == expired
            assert len(admin.describe_delegation_tokens()) == 1
            clock.advance(5_000)
            assert admin.describe_delegation_tokens() == []
        assert len(broker.records("t")) == 2


def test_tokens_outlive_a_restart_and_are_not_given_without_a_key(broker):
    with Admin(config=broker.login("alice").client()) as admin:
        token = admin.create_delegation_token()
    broker.restart()
    with Admin(config=by_token(broker, token)) as admin:
        assert admin.list_topics()
    with (
        odradek.Broker(security="scram", users=USERS) as other,
        Admin(config=other.login("alice").client()) as admin,
    ):
        assert refused(admin.create_delegation_token) == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    with (
        odradek.Broker(config=KEY) as open_to_all,
        Admin(open_to_all.bootstrap_servers) as admin,
    ):
        not_allowed = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert refused(admin.create_delegation_token) == not_allowed


def test_acls_say_who_makes_and_sees_tokens_of_others():
    acls = ["User:bob create-tokens user:User:alice", "User:carol describe-tokens user:User:alice"]
    with odradek.Broker(security="scram", users=USERS, acls=acls, config=KEY) as broker:
        logins = {name: Admin(config=broker.login(name).client()) for name in USERS}
        alice, bob, carol = logins.values()
        try:
            token = bob.create_delegation_token(owner="User:alice")
            assert (token.owner.name, token.requester.name) == ("alice", "bob")
            denied = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
            assert refused(carol.create_delegation_token, owner="User:alice") == denied
            assert refused(alice.create_delegation_token, owner="User:bob") == denied
            bob.create_delegation_token()
            assert len(bob.describe_delegation_tokens()) == 2
            assert [each.token_id for each in carol.describe_delegation_tokens()] == [
                token.token_id
            ]
        finally:
            for each in logins.values():
                each.close()
