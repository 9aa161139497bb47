"""Connects kazoo to an ensemble: over TLS, logged in, and with ACLs for created nodes, if the
settings ask for them."""

import logging
import warnings
from typing import Any, Final

from kazoo import exceptions, security
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.retry import KazooRetry

from odradek.metadata.store import MetadataStoreError
from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.client import ZooKeeperLogin, ZooKeeperSettings
from odradek.tls import TlsError, TlsSettings, client_context

logger = logging.getLogger(__name__)

RECONNECT_MAX_S: Final = 1.0
# kazoo warns of every attempt to connect; here a missing connection is logged once.
_KAZOO_LOG: Final = logging.getLogger(f"{__name__}.kazoo")
_KAZOO_LOG.setLevel(logging.ERROR)


def new_client(settings: ZooKeeperSettings) -> KazooClient:
    """A client that is not connected yet.

    Raises:
        MetadataStoreError: a setting cannot be used, or a library is missing.
    """
    client = _new_client(settings)
    if settings.login is not None:
        _Login(client, settings.login).take_part()
    return client


def connect(client: KazooClient, settings: ZooKeeperSettings) -> None:
    """Connects and logs in; blocks. Nothing is created.

    Raises:
        MetadataStoreError: nobody answers in time, or the login is refused.
    """
    timeout_s = settings.connection_timeout_ms / 1000
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the root of this cluster may not exist yet
            client.start(timeout=timeout_s)
        if settings.login is not None:
            # kazoo is connected before it has logged in.
            client.exists_async("/").get(timeout=timeout_s)
    except (KazooTimeoutError, exceptions.ZookeeperError) as error:
        client.stop()
        client.close()
        raise MetadataStoreError(_unconnected(client, settings, error)) from error


def connect_to_root(client: KazooClient, settings: ZooKeeperSettings) -> None:
    """Connects, and creates the chroot, where one is named and missing; blocks.

    Raises:
        MetadataStoreError: it cannot be reached, or the chroot cannot be created.
    """
    connect(client, settings)
    if client.chroot:
        try:
            client.ensure_path("/")
        except exceptions.ZookeeperError as error:
            raise MetadataStoreError(_unusable(settings, repr(error))) from error


def is_refused(client: KazooClient) -> bool:
    """Whether the last login failed. kazoo is connected before it logs in, so it tells of a
    connection, and of its loss, with each attempt."""
    return getattr(client.handler, "refused_login", None) is not None


def node_acl(settings: ZooKeeperSettings, path: str) -> list[security.ACL]:
    """The ACL of a node that the broker creates, as Kafka's: the broker's user may do everything,
    others may read what is no secret."""
    if not settings.protects_nodes or path == znodes.CONSUMERS:
        return list(security.OPEN_ACL_UNSAFE)
    if path.startswith(znodes.SECRET):
        return list(security.CREATOR_ALL_ACL)
    return [*security.CREATOR_ALL_ACL, *security.READ_ACL_UNSAFE]


class SecureHandler(SequentialThreadingHandler):  # type: ignore[misc, unused-ignore]
    """kazoo's threads, with connections over TLS by Kafka's settings: kazoo's own also trust the
    system's certificates, in addition to the configured ones."""

    def __init__(self, settings: TlsSettings) -> None:
        """Raises:
        TlsError: a store cannot be used.
        """
        super().__init__()
        self._context = client_context(settings)
        self.failed_tls: str | None = None

    def create_connection(
        self, address: Any, hostname: str | None = None, timeout: float | None = None, **_: Any
    ) -> Any:
        """A connection whose other side is authenticated."""
        plain = super().create_connection(address, timeout=timeout)
        plain.settimeout(timeout)
        try:
            return self._context.wrap_socket(plain, server_hostname=hostname)
        except OSError as error:
            self.failed_tls = f"TLS: {getattr(error, 'verify_message', None) or error}"
            raise

    def select(self, *lists: Any, **options: Any) -> Any:
        """Also finds bytes that TLS has decrypted with an earlier answer: they are no longer in the
        socket, and kazoo would wait for the next ping and consider the connection lost."""
        # By their methods: this floor may not import sockets or TLS.
        decrypted = [each for each in lists[0] if hasattr(each, "pending") and each.pending()]
        return (decrypted, [], []) if decrypted else super().select(*lists, **options)


class _Login:
    """A login that kazoo repeats with the next connection when it has failed. The ensemble refuses
    one by hanging up, as it also does when it is restarted in that moment; kazoo would end for
    good."""

    def __init__(self, client: KazooClient, login: ZooKeeperLogin) -> None:
        self._client: Final = client
        self._username: Final = login.username
        self._log_in: Final = client._connection._authenticate_with_sasl
        client.handler.refused_login = None

    def take_part(self) -> None:
        """Stands in for kazoo's own login."""
        self._client._connection._authenticate_with_sasl = self._try

    def _try(self, host: str, timeout_s: float) -> None:
        try:
            self._log_in(host, timeout_s)
        except exceptions.KazooException as error:
            self._note(f"it refuses the login of the user {self._username!r}, or hung up during it")
            raise exceptions.ConnectionDropped("The login failed") from error
        if is_refused(self._client):
            logger.info("Logged in to ZooKeeper")
        self._client.handler.refused_login = None

    def _note(self, failure: str) -> None:
        level = logging.DEBUG if is_refused(self._client) else logging.ERROR
        logger.log(level, "No connection to ZooKeeper: %s", failure)
        self._client.handler.refused_login = failure


def _new_client(settings: ZooKeeperSettings) -> KazooClient:
    retry = KazooRetry(max_tries=-1, delay=0.1, max_delay=RECONNECT_MAX_S)
    try:
        handler = None if settings.tls is None else SecureHandler(settings.tls)
    except TlsError as error:
        raise MetadataStoreError(f"zookeeper.ssl: {error}") from error
    try:
        return KazooClient(
            settings.connect,
            timeout=settings.session_timeout_ms / 1000,
            connection_retry=retry,
            logger=_KAZOO_LOG,
            handler=handler,
            sasl_options=_sasl_options(settings),
            default_acl=node_acl(settings, "/"),
        )
    except ValueError as error:
        raise MetadataStoreError(f"zookeeper.connect {settings.connect!r}: {error}") from error


def _sasl_options(settings: ZooKeeperSettings) -> dict[str, str] | None:
    if settings.login is None:
        return None
    try:
        import puresasl  # noqa: F401 - kazoo's own import of it fails in silence
    except ImportError as error:
        raise MetadataStoreError(
            "A login to ZooKeeper needs the library pure-sasl: pip install 'odradek[zookeeper]'"
        ) from error
    return {"mechanism": "DIGEST-MD5", **settings.login._asdict()}


def _unconnected(client: KazooClient, settings: ZooKeeperSettings, error: Exception) -> str:
    failures = (getattr(client.handler, name, None) for name in ("refused_login", "failed_tls"))
    failure = next(filter(None, failures), None)
    if isinstance(error, KazooTimeoutError):
        reason = f" ({failure})" if failure else ""
        within = f"within {settings.connection_timeout_ms} ms"
        return f"ZooKeeper at {settings.connect} cannot be reached {within}{reason}"
    return _unusable(settings, failure or repr(error))


def _unusable(settings: ZooKeeperSettings, reason: str) -> str:
    return f"ZooKeeper at {settings.connect} cannot be used: {reason}"
