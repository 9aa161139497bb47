"""If one of these fails, a log is full of connections that were none, or names an old reason."""

import logging
from collections.abc import Callable

import pytest

pytest.importorskip("kazoo")
pytest.importorskip("puresasl")

from kazoo.client import KazooState
from kazoo.exceptions import AuthFailedError, ConnectionDropped, NoAuthError
from kazoo.protocol.connection import ConnectionHandler
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from odradek.clock import ManualClock
from odradek.metadata.store import MetadataStoreError
from odradek.metadata.zookeeper.client import ZooKeeperLogin, ZooKeeperSettings
from odradek.metadata.zookeeper.connection import connecting
from odradek.metadata.zookeeper.connection.session import KazooSession
from odradek.timer import SystemTimer

SETTINGS = ZooKeeperSettings("127.0.0.1:1/chroot", 6_000, 1_000, login=ZooKeeperLogin("ann", "pw"))


@pytest.mark.parametrize(
    ("path", "is_readable"),
    [
        *(("/brokers/ids/1", True), ("/config/topics/t", True), ("/config/clients/c", True)),
        *(("/kafka-acl/Topic/t", True), ("/delegation_token", True)),
        *(("/config/users/alice", False), ("/config/users/alice/clients/c", False)),
        *(("/config/brokers/1", False), ("/delegation_token/tokens/t", False)),
    ],
)
def test_a_node_is_the_brokers_and_its_secrets_nobody_else_s(path: str, is_readable: bool) -> None:
    """Any client of ZooKeeper could read the keys of users, or write what brokers obey."""
    settings = SETTINGS._replace(protects_nodes=True)
    expected = [*CREATOR_ALL_ACL, *(READ_ACL_UNSAFE if is_readable else ())]
    assert connecting.node_acl(settings, path) == expected
    assert connecting.node_acl(SETTINGS, path) == OPEN_ACL_UNSAFE


def test_old_consumers_may_create_their_nodes() -> None:
    """Kafka leaves their folder open, too: nobody knows as whom they come."""
    settings = SETTINGS._replace(protects_nodes=True)
    assert connecting.node_acl(settings, "/consumers") == OPEN_ACL_UNSAFE


class Ensemble:
    """Lets a user in, or not."""

    def __init__(self) -> None:
        self.refuses = True

    def log_in(self, _connection: ConnectionHandler, _host: str, _timeout_s: float) -> None:
        if self.refuses:
            raise AuthFailedError


@pytest.fixture
def ensemble(monkeypatch: pytest.MonkeyPatch) -> Ensemble:
    ensemble = Ensemble()
    monkeypatch.setattr(
        ConnectionHandler,
        "_authenticate_with_sasl",
        lambda connection, host, timeout_s: ensemble.log_in(connection, host, timeout_s),
    )
    return ensemble


def attempt(log_in: Callable[[str, float], None], *, fails: bool) -> None:
    if fails:
        with pytest.raises(ConnectionDropped):
            log_in("127.0.0.1", 1.0)
    else:
        log_in("127.0.0.1", 1.0)


def test_a_refused_login_is_told_once(ensemble: Ensemble, caplog: pytest.LogCaptureFixture) -> None:
    """kazoo tells of a connection and its loss with every attempt, each second for hours."""
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    session = KazooSession(SETTINGS, SystemTimer(clock), clock, lambda _turn: None)
    log_in = session._client._connection._authenticate_with_sasl
    for refused in (False, True, True, True, False, False):
        ensemble.refuses = refused
        session._on_state(KazooState.CONNECTED)
        attempt(log_in, fails=refused)
        session._on_state(KazooState.SUSPENDED)
    connected, lost = "Connected to ZooKeeper", "The connection to ZooKeeper is lost"
    logged = [record.getMessage().partition(";")[0].partition(":")[0] for record in caplog.records]
    assert logged == [
        *(connected, lost),
        *(connected, "No connection to ZooKeeper"),
        *("Logged in to ZooKeeper", lost),
        *(connected, lost),
    ]


def test_a_later_refusal_has_its_own_reason(
    ensemble: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that of a login that one host refused before another took it."""
    client = connecting.new_client(SETTINGS)
    log_in = client._connection._authenticate_with_sasl
    attempt(log_in, fails=True)
    ensemble.refuses = False
    attempt(log_in, fails=False)

    def refuse(_path: str) -> None:
        raise NoAuthError

    monkeypatch.setattr(connecting, "connect", lambda _client, _settings: None)
    monkeypatch.setattr(client, "ensure_path", refuse)
    with pytest.raises(MetadataStoreError) as refusal:
        connecting.connect_to_root(client, SETTINGS)
    assert str(refusal.value).endswith("cannot be used: NoAuthError()")
