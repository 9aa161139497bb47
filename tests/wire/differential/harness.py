"""Asks two brokers the same and tells where the answers differ, field by field.

A scenario is a function that asks a `Peer`: any API in any version, with plain values or with
bytes of its own making. It is run against Apache Kafka and against ours; what each answered is
kept, decoded by one and the same codec, and compared. Ids, times and addresses can never be
equal, so they are replaced by what they are; texts of errors and of documentation are our own, so
only their presence counts; lists whose order means nothing are sorted. Everything else that may
differ stands in `ALLOWED`, with its reason.
"""

import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final, NamedTuple
from uuid import UUID

from kio.schema.index import api_key_map
from tests.deadlines import deadline_s

from odradek.errors import ErrorCode
from odradek.model import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from odradek.protocol import messages
from odradek.protocol.framing import SIZE_BYTES, encode_size
from odradek.protocol.header import (
    NEVER_FLEXIBLE,
    decode_response_header,
    encode_request_header,
    request_header_version,
    response_header_version,
)
from odradek.protocol.primitives import ProtocolError
from odradek.protocol.schemas.message_tables import MESSAGES

TIMEOUT_S: Final = deadline_s(30)
SETTLING_S: Final = deadline_s(20)
RETRY_S: Final = 0.05
HEARING_S: Final = deadline_s(1)
EVENTUALLY_S: Final = deadline_s(3)
CLOSED: Final = "the connection was closed"
ABSENT: Final = "nothing"
API_KEYS: Final = {name: key for key, name in api_key_map.items()} | {
    pair.name: key for key, pair in MESSAGES.items()
}

_UUID: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|(?<![\w-])(?=[\w-]*[A-Z0-9])[\w-]{22}(?![\w-])"
)
# Fields whose text is our own, and fields that stand for something of the broker's very own.
_WORDS: Final = {"error_message", "acknowledge_error_message", "documentation"}
_OWN: Final = {
    "cluster_id": "a cluster id",
    "host": "a host",
    "port": "a port",
    "log_dir": "a directory",
    "total_bytes": "the volume's",
    "usable_bytes": "the volume's",
    "producer_id": "a producer id",
    "throttle_time": "a time",
}
# What tells the elements of a list apart. Their order means nothing, and Kafka's is often that of
# a hash table, so elements are compared with those of the same identity.
_IDENTITIES: Final = (
    ("name",),
    ("topic",),
    ("topic_name", "partition_index"),
    ("topic_name",),
    ("group_id",),
    ("transactional_id",),
    ("member_id",),
    ("api_key",),
    ("resource_type", "resource_name"),
    ("resource_name",),
    ("partition_index",),
    ("partition",),
    ("partition_id",),
    ("entity",),
    ("entity_type",),
    ("key",),
)


class Allowed(NamedTuple):
    """A difference that is meant: where it is (`api.field.field`, a pattern) and why."""

    where: str
    why: str


ALLOWED: Final = (
    Allowed(r"api_versions\.finalized_features_epoch", "the offset of Kafka's metadata log"),
    Allowed(r"api_versions\.api_keys\.[012]\.min_version", "old clients are served for longer"),
    Allowed(r".*\.configs\.message\.format\.version", "for clients of before 0.11"),
    Allowed(r".*\.configs\.schedule\..*", "Kafka has no schedule topics"),
    Allowed(r".*\.configs\.share\.release\.backoff\..*", "Kafka holds no record back"),
    Allowed(
        r"describe_configs\.results\.4/0?1\.configs\.(log\.dirs|(advertised\.)?listeners"
        r"|listener\.security\.protocol\.map|controller\..*|process\.roles|log\.segment\.bytes)"
        r"(\..*)?",
        "what a node is started with, and its quorum",
    ),
    Allowed(
        r"produce\.responses\.unreadable-\w+\..*\.(error_message|log_start_offset)",
        "of records that no codec can unpack Kafka says no more than UNKNOWN_SERVER_ERROR",
    ),
    Allowed(
        r"(produce|describe_producers|describe_configs|create_partitions"
        r"|alter_partition_reassignments)\..*\.error_message",
        "we say why where Kafka does not",
    ),
    Allowed(
        r"create_partitions\.results\.grows-(too-far|after)\.error_code",
        "of new partitions that are too many Kafka adds those that fit, says UNKNOWN_SERVER_ERROR, "
        "and refuses all topics that follow",
    ),
    Allowed(
        r"describe_quorum\.(topics|nodes)\..*\.(leader_epoch|high_watermark|log_end_offset|listeners"
        r"|last_.*_timestamp)(\..*)?",
        "there is no Raft quorum: the controller stands for it",
    ),
    Allowed(r"api_versions\.api_keys\.64", "a broker that is alone is not to be unregistered"),
    Allowed(r"describe_configs\.results\.8/.*\.configs\.root\.value", "Kafka logs errors in tests"),
    # Not served yet; each goes from here with the work that serves it.
    Allowed(r"api_versions\..*_features\.streams\.version(\..*)?", "such groups"),
    Allowed(
        r"api_versions\.supported_features\.eligible\.leader\.replicas\.version(\..*)?",
        "eligible leader replicas",
    ),
    Allowed(r"api_versions\.api_keys\.8[01]", "voters of a Raft quorum, which is not ours"),
    Allowed(r"api_versions\.api_keys\.8[89]", "streams groups"),
)

# Ours are of a cluster with ZooKeeper, Kafka's of one without.
ALLOWED_OF_THREE: Final = (
    Allowed(r"api_versions\.api_keys\.([4-7]|56|67)", "what ours say to each other"),
    Allowed(r"api_versions\.api_keys\.55", "there is no Raft quorum"),
    Allowed(r"describe_configs\.results\.4/0?1\.configs\.zookeeper\.connect", "ours meet there"),
    Allowed(
        r"(metadata|describe_topic_partitions)\.topics\.sweep-none\.partitions\..*",
        "made by asking, placed by chance",
    ),
    Allowed(
        r"(metadata|describe_cluster)\.controller_id",
        "Kafka names any broker, which passes on what is for the controller",
    ),
)


class Answer(NamedTuple):
    """A broker's answer: which request it was, and the decoded values."""

    request: str
    api: str
    values: Any


class Target(NamedTuple):
    """A broker that is asked, who replicates what it leads, and where the others are."""

    address: str
    replicas: tuple[int, ...] = (1,)
    others: tuple[str, ...] = ()

    @property
    def allowed(self) -> tuple[Allowed, ...]:
        """How it may differ."""
        return ALLOWED if len(self.replicas) == 1 else ALLOWED + ALLOWED_OF_THREE


class Peer:
    """One of the two brokers, on a connection of its own that is renewed when it was closed."""

    def __init__(
        self,
        target: Target,
        client_id: str = "differential",
        expected: list[Answer] | None = None,
        source: str | None = None,
    ) -> None:
        host, port = target.address.rsplit(":", 1)
        self._address = host, int(port)
        self.target: Final = target
        self._client_id = client_id
        self._source = None if source is None else (source, 0)
        self._expected = expected
        self._socket: socket.socket | None = None
        self.answers: list[Answer] = []

    def ask(self, api: str, version: int, **values: object) -> Any:
        """Sends a request of plain values (see `message_writer`), keeps and returns the answer;
        None when the broker closed the connection instead."""
        return self._keep(api, version, self._send(api, version, values), str(values))

    def ask_raw(self, api: str, version: int, body: bytes) -> Any:
        """`ask` with a body of the caller's own making."""
        return self._keep(api, version, self._exchange(api, version, body), body.hex())

    def ask_until(
        self, is_settled: Callable[[Any], bool], api: str, version: int, **values: object
    ) -> Any:
        """Asks again until the answer is a settled one, or time is up; keeps the last one."""
        deadline = time.monotonic() + SETTLING_S
        while True:
            answer = self._send(api, version, values)
            if (answer is not None and is_settled(answer)) or time.monotonic() > deadline:
                return self._keep(api, version, answer, str(values))
            time.sleep(RETRY_S)

    def ask_eventually(self, api: str, version: int, **values: object) -> Any:
        """`ask` for what Kafka's broker takes over from its controller later than it answers: it
        is asked again until it says what ours has said, or time is up."""
        deadline = time.monotonic() + EVENTUALLY_S
        while True:
            answer = self._send(api, version, values)
            if self._agrees(api, answer) or time.monotonic() > deadline:
                return self._keep(api, version, answer, str(values))
            time.sleep(RETRY_S)

    def let_hear(self) -> None:
        """Gives Kafka's coordinators the time to hear of what its broker answers already: nothing
        says when each of them has. Ours knows it at once."""
        if self._expected is not None:
            time.sleep(HEARING_S)

    def _agrees(self, api: str, answer: Any) -> bool:
        index = len(self.answers)
        if self._expected is None or index >= len(self._expected):
            return True
        mine = Answer("", api, CLOSED if answer is None else plain(answer))
        return not differences([mine], [self._expected[index]], self.target.allowed)

    def quietly(self, api: str, version: int, **values: object) -> Any:
        """Asks for what the scenario needs to go on; the answer is not compared."""
        return self._send(api, version, values)

    def prepare(self, api: str, version: int, **values: object) -> Any:
        """`quietly` for what has to succeed: it is asked again while the broker has not heard of
        something yet. What is refused fails here, and not where its absence shows."""
        deadline = time.monotonic() + SETTLING_S
        while True:
            answer = self._send(api, version, values)
            assert answer is not None, f"{api} v{version}: {CLOSED}"
            # A topic that a scenario before has made is there.
            codes = set(errors_of(answer)) - {ErrorCode.TOPIC_ALREADY_EXISTS}
            if not codes:
                return answer
            is_passing = all(code.retriable for code in codes) and time.monotonic() < deadline
            assert is_passing, f"{api} v{version}: {answer}"
            time.sleep(RETRY_S)

    def another(self, client_id: str) -> "Peer":
        """The same broker as another client; its answers are not compared."""
        return Peer(self.target, client_id)

    def follower(self) -> "Peer":
        """Another broker of the cluster, which leads nothing; its answers are compared as well."""
        target = self.target._replace(address=self.target.others[0])
        peer = Peer(target, self._client_id, self._expected)
        peer.answers = self.answers
        return peer

    def close(self) -> None:
        """Closes the connection; the next request opens another one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _keep(self, api: str, version: int, answer: Any, asked: str) -> Any:
        shown = CLOSED if answer is None else plain(answer)
        self.answers.append(Answer(f"{api} v{version} {_anonymous(asked)}", api, shown))
        return answer

    def _send(self, api: str, version: int, values: dict[str, Any]) -> Any:
        if api == "create_topics" and len(self.target.replicas) > 1:
            values = {
                **values,
                "topics": [self._replicated(each) for each in values["topics"] or ()],
            }
        return self._exchange(api, version, messages.encode_request(API_KEYS[api], version, values))

    def _replicated(self, topic: dict[str, Any]) -> dict[str, Any]:
        """A topic that would have one replica has all of them, and is led by the broker that is
        asked: by the first, where others would be led by chance."""
        if topic.get("assignments") or topic["replication_factor"] != 1:
            return topic
        assignments = [
            {"partition_index": index, "broker_ids": list(self.target.replicas)}
            for index in range(topic["num_partitions"])
        ]
        unset = {"num_partitions": -1, "replication_factor": -1}
        return topic | unset | {"assignments": assignments} if assignments else topic

    def _exchange(self, api: str, version: int, body: bytes) -> Any:
        key = API_KEYS[api]
        flexible_from = 0 if messages.is_flexible(key, version) else NEVER_FLEXIBLE
        header = encode_request_header(
            key, version, 1, self._client_id, request_header_version(key, version, flexible_from)
        )
        frame = self._call(header + body)
        if frame is None:
            return None
        header_version = response_header_version(key, version, flexible_from)
        try:
            position = decode_response_header(frame, header_version)[1]
            return messages.decode_response(key, version, frame, position)
        except ProtocolError as error:
            raise AssertionError(f"{api} v{version} answered what cannot be read") from error

    def _call(self, request: bytes) -> memoryview | None:
        """The answer to a request; None when the broker closed the connection instead."""
        if self._socket is None:
            self._socket = socket.create_connection(self._address, TIMEOUT_S, self._source)
        try:
            self._socket.sendall(encode_size(len(request)) + request)
            size = int.from_bytes(self._receive(SIZE_BYTES), "big")
            return memoryview(self._receive(size))
        except ConnectionError:
            self.close()
            return None

    def _receive(self, count: int) -> bytes:
        assert self._socket is not None
        received = bytearray()
        while len(received) < count:
            arrived = self._socket.recv(count - len(received))
            if not arrived:
                raise ConnectionResetError
            received += arrived
        return bytes(received)


Scenario = Callable[[Peer], None]
# By the numbers that FindCoordinator has for them.
_STATES: Final = (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC)


def lead_coordinators(target: Target) -> None:
    """Makes the broker that is asked lead all coordinators, once it knows of the others."""
    peer = Peer(target)
    peer.ask_until(
        lambda answer: len(answer.brokers) == len(target.replicas), "describe_cluster", 0
    )
    for kind, name in enumerate(_STATES):
        policy = "delete" if name == SHARE_GROUP_STATE_TOPIC else "compact"
        settings = [{"name": "cleanup.policy", "value": policy}]
        topic = {"name": name, "num_partitions": 4, "replication_factor": 1, "configs": settings}
        peer.prepare("create_topics", 7, topics=[topic], timeout_ms=9000)
        peer.ask_until(
            lambda answer: answer.coordinators[0].error_code == 0,
            *("find_coordinator", 6),
            key_type=kind,
            coordinator_keys=["differential:AAAAAAAAAAAAAAAAAAAATQ:0"],
        )
    peer.close()


def errors_of(value: Any) -> Iterator[ErrorCode]:
    """The errors in a decoded message, however deep they lie."""
    if isinstance(value, tuple):
        for each in value:
            yield from errors_of(each)
    elif is_dataclass(value):
        for each in fields(value):
            inner = getattr(value, each.name)
            if each.name.endswith("error_code") and int(inner):
                yield ErrorCode(int(inner))
            yield from errors_of(inner)


def plain(value: Any) -> Any:
    """A decoded message as dictionaries, lists and numbers."""
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if isinstance(value, timedelta):
        return messages.milliseconds(value)
    if isinstance(value, datetime):
        return "a time"
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, UUID):
        return "an id" if value.int else None
    return _anonymous(value) if isinstance(value, str) else value


def differences(
    kafka: list[Answer], ours: list[Answer], allowed: Iterable[Allowed] = ALLOWED
) -> list[str]:
    """Where the answers to one scenario differ and should not; each with the first request that
    showed it."""
    found: dict[str, str] = {}
    for theirs, mine in zip(kafka, ours, strict=False):
        for where, what in _compare(theirs.api, _own_words(theirs.values), _own_words(mine.values)):
            if not any(re.fullmatch(each.where, where) for each in allowed):
                found.setdefault(what, theirs.request)
    if len(kafka) != len(ours):
        found["the scenario"] = f"Kafka was asked {len(kafka)} times, ours {len(ours)} times"
    return [f"{what} ({request})" for what, request in found.items()]


def _own_words(value: Any, name: str = "") -> Any:
    """The value with what can never be equal replaced by what it is."""
    if isinstance(value, dict):
        return {key: _own_words(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [_own_words(each, name) for each in value]
    if name in _WORDS:
        return "a text" if value else None
    if name in _OWN and value not in (-1, "", None):
        return _OWN[name]
    if name == "session_id" and value:
        return "a session"
    if name == "subscription_id" and value:
        return "a number"
    return value


def _compare(where: str, theirs: Any, ours: Any) -> Iterator[tuple[str, str]]:
    """Pairs of a place and of what is different there; elements of lists are named by what
    tells them apart."""
    if isinstance(theirs, list) and isinstance(ours, list):
        theirs, ours = _by_identity(theirs, ours)
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in theirs | ours:
            yield from _compare(f"{where}.{name}", theirs.get(name, ABSENT), ours.get(name, ABSENT))
    elif theirs != ours:
        yield where, f"{where}: Kafka says {theirs!r}, ours {ours!r}"


def _by_identity(theirs: list[Any], ours: list[Any]) -> tuple[Any, Any]:
    """Both lists as dictionaries, where that can be."""
    for names in _IDENTITIES:
        if all(isinstance(each, dict) and each.keys() >= set(names) for each in theirs + ours):
            return _named(theirs, names), _named(ours, names)
    if theirs and ours and all(isinstance(each, dict) for each in theirs + ours):
        return dict(enumerate(theirs)), dict(enumerate(ours))
    return theirs, ours


def _named(elements: list[dict[str, Any]], names: tuple[str, ...]) -> dict[str, Any]:
    """The elements by their identity; of those that share one, by their order as well."""
    named: dict[str, Any] = {}
    for element in elements:
        identity = "/".join(_identity(element[name]) for name in names)
        while identity in named:
            identity += "'"
        named[identity] = element
    return named


def _identity(value: Any) -> str:
    """Of a list in whatever order."""
    return str(sorted(map(str, value)) if isinstance(value, list) else value)


def _anonymous(text: str) -> str:
    return _UUID.sub("ID", text)
