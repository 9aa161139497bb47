"""The port to ZooKeeper: kazoo in a broker, a tree in memory in tests.

Requests are pipelined and take effect in the order of the calls. Each is answered exactly once, on
the broker's loop, never before the call has returned. Without a connection they wait; a request
whose connection broke is repeated, so a change may find that it has been made before. Only the end
of the session ends them all, with SESSION_LOST.

A read may have an `on_changed`, which is called once: when the node has changed, or when that is
unknown because the connection was lost. The callback reads again, and misses nothing: the new read
is watched from the same moment on. The ensemble does not watch a node that could not be read, so
`on_changed` is also called some time after a refused read.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.store import MetadataStoreError

if TYPE_CHECKING:
    from odradek.tls import TlsSettings

logger: Final = logging.getLogger(__name__)

LOST: Final = BrokerError(
    ErrorCode.BROKER_NOT_AVAILABLE, "The ZooKeeper session has ended; the outcome is unknown."
)


class ZooKeeperLogin(NamedTuple):
    """The user as whom a broker logs in by SASL (DIGEST-MD5)."""

    username: str
    password: str

    def __repr__(self) -> str:
        return f"ZooKeeperLogin({self.username})"


class ZooKeeperSettings(NamedTuple):
    """The ensemble's address (`host:port,host:port/chroot`), the time-outs, the TLS settings and
    the login, if any. With `protects_nodes` the created nodes are protected by ACLs."""

    connect: str
    session_timeout_ms: int
    connection_timeout_ms: int
    max_in_flight: int = 100
    tls: "TlsSettings | None" = None
    login: ZooKeeperLogin | None = None
    protects_nodes: bool = False


class Failure(Enum):
    """The reason why a request failed."""

    NO_NODE = auto()
    NODE_EXISTS = auto()
    BAD_VERSION = auto()
    NOT_EMPTY = auto()
    SESSION_LOST = auto()
    REFUSED = auto()
    """By rules of the ensemble: no permission, too large, read-only."""


class Node(NamedTuple):
    """The content of a node. `version` rises with every change of it, `created` is the number of
    the transaction that made it, `owner` the session of an ephemeral node (0: it stays)."""

    data: bytes
    version: int
    created: int
    owner: int


class Create(NamedTuple):
    """Makes a node; a `sequential` one gets a number behind its name."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class SetData(NamedTuple):
    """Changes the content of a node, if it has that version (-1: any)."""

    path: str
    data: bytes
    version: int


class Delete(NamedTuple):
    """Removes a node, if it has that version (-1: any) and no children."""

    path: str
    version: int = -1


class Check(NamedTuple):
    """Fails the whole transaction if the node is not of that version."""

    path: str
    version: int


Operation: TypeAlias = Create | SetData | Delete | Check


class Refusal(NamedTuple):
    """A refused transaction, without effect: the place of the first operation that failed, and the
    reason."""

    place: int
    failure: Failure


Created: TypeAlias = tuple[str, ...]
"""The paths of the nodes that a transaction has made, in its order."""
OnNode: TypeAlias = Callable[[Node | Failure | None], None]
OnChildren: TypeAlias = Callable[[tuple[str, ...] | Failure], None]
OnCommitted: TypeAlias = Callable[[Created | Refusal], None]
OnChanged: TypeAlias = Callable[[], None]


def note_refused(what: str, outcome: Created | Refusal) -> None:
    """Logs what it means that a transaction is refused, if it is: nobody waits for it. That a node
    is gone means nothing."""
    if isinstance(outcome, Refusal) and outcome.failure is not Failure.NO_NODE:
        logger.info("%s: %s", what, outcome.failure.name)


class ZooKeeperClient(ABC):
    """A session with an ensemble; the next one, after one was lost."""

    @abstractmethod
    def start(self) -> None:
        """Connects; blocks.

        Raises:
            MetadataStoreError: nobody answers in time, or the client library is missing.
        """

    @abstractmethod
    def close(self) -> None:
        """Ends the session, and with it its ephemeral nodes. Waiting calls are answered with
        SESSION_LOST; may block for a moment."""

    @property
    @abstractmethod
    def session_id(self) -> int:
        """The present session, as `Node.owner` names it."""

    @abstractmethod
    def on_session_lost(self, listener: Callable[[], None]) -> None:
        """Calls `listener` when the session is over, or must be considered so. Requests made from
        then on belong to the next session. Ephemeral nodes may still be there: then the ensemble
        has not noticed, and `session_id` says that they are ours."""

    @abstractmethod
    def get(self, path: str, on_done: OnNode, on_changed: OnChanged | None = None) -> None:
        """Reads a node, or finds that there is none."""

    @abstractmethod
    def children(self, path: str, on_done: OnChildren, on_changed: OnChanged | None = None) -> None:
        """Reads the names of a node's children."""

    @abstractmethod
    def commit(self, operations: Sequence[Operation], on_done: OnCommitted) -> None:
        """Does all operations or none."""

    # Blocking, for the start

    @abstractmethod
    def read_now(self, paths: Sequence[str]) -> Mapping[str, Node | None]:
        """Reads nodes; raises MetadataStoreError."""

    @abstractmethod
    def children_now(self, path: str) -> tuple[str, ...]:
        """Reads names; raises MetadataStoreError."""

    @abstractmethod
    def commit_now(self, operations: Sequence[Operation]) -> Created | Refusal:
        """Does all operations or none; raises MetadataStoreError."""


def unexpected(failure: object) -> MetadataStoreError:
    """The error for an unexpected outcome."""
    return MetadataStoreError(f"ZooKeeper refuses: {failure}")


def refused(failure: object) -> BrokerError:
    """The error that answers a failed write."""
    if failure is Failure.SESSION_LOST:
        return LOST
    return BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"ZooKeeper refuses: {failure}")
