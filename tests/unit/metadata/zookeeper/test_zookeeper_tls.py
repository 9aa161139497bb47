"""If one of these fails, brokers tell ZooKeeper's secrets to whoever is in between.

The ensemble is a socket that takes TLS and says what a session begins and ends with.
"""

import socket
import struct
import sys
import threading

import pytest
from tests.deadlines import deadline_s

pytest.importorskip("kazoo")

from odradek.config import BrokerConfig, ConfigError
from odradek.config.protection import check_protection
from odradek.metadata.store import MetadataStoreError
from odradek.metadata.zookeeper.connection import connecting
from odradek.server.in_process.protected.authority import CertificateAuthority
from odradek.server.security.zookeeper import zookeeper_settings
from odradek.tls import KeyStore, TlsSettings, TrustStore, server_context

PATIENCE_MS = 10_000
NO_NODE = -101


class FakeZooKeeper:
    """Takes connections one after another until it is closed."""

    def __init__(self, context):
        self._context = context
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.certificates = []
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _serve(self):
        while True:
            try:
                accepted, _ = self._socket.accept()
            except OSError:
                return
            try:
                with self._context.wrap_socket(accepted, server_side=True) as connected:
                    self.certificates.append(connected.getpeercert())
                    self._speak(connected, connected.makefile("rb"))
            except OSError:
                continue

    def _speak(self, connected, received):
        answer = None
        begun = struct.pack(">iiqi", 0, PATIENCE_MS, 1, 16) + bytes(16) + b"\0"
        while head := received.read(4):
            request = received.read(int.from_bytes(head, "big"))
            answer = begun if answer is None else request[:4] + bytes(12)
            connected.sendall(len(answer).to_bytes(4, "big") + answer)


@pytest.fixture(scope="module")
def authority():
    return CertificateAuthority()


@pytest.fixture
def stores(authority, tmp_path):
    """A context of the ensemble's, and the broker's settings."""
    own = authority.issue("zookeeper", ("127.0.0.1",))
    broker = authority.issue("broker")
    (tmp_path / "trust.pem").write_text(authority.certificate)
    (tmp_path / "broker.pem").write_text(broker.key + broker.certificate)
    context = server_context(
        TlsSettings(
            KeyStore(key=own.key, certificate_chain=own.certificate),
            TrustStore(certificates=authority.certificate),
            client_auth="required",
        )
    )
    return context, {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.location": str(tmp_path / "broker.pem"),
        "zookeeper.ssl.truststore.location": str(tmp_path / "trust.pem"),
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
    }


def config_of(given, port=1, patience_ms=PATIENCE_MS):
    return BrokerConfig(
        {
            "zookeeper.connect": f"127.0.0.1:{port}",
            "zookeeper.connection.timeout.ms": str(patience_ms),
            **given,
        }
    )


def begun(config):
    """Begins a session, and ends it."""
    settings = zookeeper_settings(config)
    client = connecting.new_client(settings)
    try:
        connecting.connect(client, settings)
        assert client.client_id is not None
    finally:
        client.stop()
        client.close()


def test_a_session_over_tls_with_a_certificate_of_the_broker_s(stores):
    context, given = stores
    with FakeZooKeeper(context) as ensemble:
        begun(config_of(given, ensemble.port))
    assert ensemble.certificates[0]["subject"] == ((("commonName", "broker"),),)


class AnswersTogether(FakeZooKeeper):
    """Answers two questions at once, in one record of TLS, and lets sessions live so long that no
    ping brings the second answer to light."""

    def _speak(self, connected, received):
        answers = []
        begun = struct.pack(">iiqi", 0, 100 * PATIENCE_MS, 1, 16) + bytes(16) + b"\0"
        while head := received.read(4):
            request = received.read(int.from_bytes(head, "big"))
            answer = request[:4] + struct.pack(">qi", 1, NO_NODE) if answers else begun
            answers.append(len(answer).to_bytes(4, "big") + answer)
            if len(answers) != 2:
                connected.sendall(b"".join(answers[1:] if len(answers) == 3 else answers[-1:]))


def test_answers_that_come_in_one_record_are_heard_at_once(stores):
    """Each would be heard with the next one only, and the connection be taken for lost."""
    context, given = stores
    with AnswersTogether(context) as ensemble:
        settings = zookeeper_settings(config_of(given, ensemble.port))
        client = connecting.new_client(settings)
        try:
            connecting.connect(client, settings)
            promises = [client.exists_async(path) for path in ("/a", "/b")]
            assert [each.get(timeout=deadline_s(5)) for each in promises] == [None, None]
        finally:
            client.stop()
            client.close()


def test_an_ensemble_that_nobody_vouches_for_is_told_nothing(stores, authority):
    _, given = stores
    other = CertificateAuthority().issue("zookeeper", ("127.0.0.1",))
    wrong_host = authority.issue("zookeeper", ("example.org",))
    for certificate, text in ((other, "unable to get|self-signed|signature"), (wrong_host, "IP")):
        key_store = KeyStore(key=certificate.key, certificate_chain=certificate.certificate)
        with FakeZooKeeper(server_context(TlsSettings(key_store))) as ensemble:
            with pytest.raises(MetadataStoreError, match=rf"cannot be reached .*TLS: .*({text})"):
                begun(config_of(given, ensemble.port, patience_ms=300))
            assert ensemble.certificates == []


def test_host_names_may_go_unchecked(stores, authority):
    _, given = stores
    certificate = authority.issue("zookeeper", ("example.org",))
    key_store = KeyStore(key=certificate.key, certificate_chain=certificate.certificate)
    given["zookeeper.ssl.endpoint.identification.algorithm"] = ""
    with FakeZooKeeper(server_context(TlsSettings(key_store))) as ensemble:
        begun(config_of(given, ensemble.port))


@pytest.mark.parametrize(
    ("given", "lowest", "highest"),
    [
        ({}, "TLSv1_2", "TLSv1_3"),
        ({"zookeeper.ssl.protocol": "TLSv1.3"}, "TLSv1_3", "TLSv1_3"),
        ({"zookeeper.ssl.enabled.protocols": "TLSv1.2"}, "TLSv1_2", "TLSv1_2"),
    ],
)
def test_versions(stores, given, lowest, highest):
    """Ensembles of ZooKeeper 3.9 take no 1.2, those of 3.5 no 1.3."""
    settings = zookeeper_settings(config_of(stores[1] | given))
    context = connecting.SecureHandler(settings.tls)._context
    assert (context.minimum_version.name, context.maximum_version.name) == (lowest, highest)


def test_a_store_that_cannot_be_used_is_told(stores):
    _, given = stores
    given["zookeeper.ssl.truststore.location"] = "/no/such/file"
    with pytest.raises(MetadataStoreError, match=r"zookeeper\.ssl: .*No such file"):
        begun(config_of(given))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"zookeeper.set.acl": "true"}, "ZooKeeper would not know this broker: name a user"),
        ({"zookeeper.ssl.crl.enable": "true"}, "revoked certificates"),
        ({"zookeeper.ssl.ocsp.enable": "true"}, "revoked certificates"),
        ({"zookeeper.ssl.keystore.location": "x"}, "protects nothing without"),
        ({"zookeeper.ssl.truststore.location": "x"}, "protects nothing without"),
    ],
)
def test_protection_that_there_would_not_be_refuses_the_start(given, text):
    """They were named in a line of the log, or not at all, and the nodes were open."""
    with pytest.raises(ConfigError, match=text):
        check_protection(config_of(given), {"zookeeper.connect": "localhost:2181", **given})


DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"


def settings_with(line):
    return zookeeper_settings(config_of({"zookeeper.sasl.jaas.config": line}))


def test_a_login_and_what_is_shown_of_it():
    settings = settings_with(f'{DIGEST} required username="broker" password=\'a"b\';')
    assert settings.login == ("broker", 'a"b')
    assert 'a"b' not in repr(settings)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("x", "a JAAS configuration is"),
        (f"{DIGEST} required username=geheim;", "password must be given"),
        (f"{DIGEST} required geheim=x;", "username and password must be given"),
        (f'{DIGEST} required username=a password="geheimß";', "must be ASCII"),
        ("com.sun.security.auth.module.Krb5LoginModule required geheim=x;", f"only {DIGEST}"),
    ],
)
def test_a_malformed_login_refuses_the_start(line, text):
    with pytest.raises(ConfigError, match=text) as refusal:
        settings_with(line)
    assert refusal.value.name == "zookeeper.sasl.jaas.config"
    assert "geheim" not in str(refusal.value)


def test_a_login_without_its_library_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "puresasl", None)
    settings = settings_with(f"{DIGEST} required username=a password=b;")
    with pytest.raises(MetadataStoreError, match=r"pip install 'odradek\[zookeeper\]'"):
        connecting.new_client(settings)


def test_nodes_may_be_protected_by_a_certificate(stores):
    """A Kafka whose brokers have certificates for ZooKeeper needs no user."""
    given = {**stores[1], "zookeeper.set.acl": "true"}
    check_protection(config_of(given), {"zookeeper.connect": "localhost:2181", **given})
    assert zookeeper_settings(config_of(given)).protects_nodes
    del given["zookeeper.ssl.keystore.location"]
    with pytest.raises(ConfigError, match="ZooKeeper would not know this broker"):
        check_protection(config_of(given), {"zookeeper.connect": "localhost:2181", **given})
