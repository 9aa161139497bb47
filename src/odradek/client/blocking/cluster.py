"""A cluster as a reader needs it: which topics, who leads, where partitions begin and end.

Questions go to the leaders of partitions. Leaders change and brokers go away, so a question
that fails with a retriable error is asked again, after a pause and with fresh metadata, until
the time for the request is over; only then its error is raised.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar
from uuid import UUID

from odradek.client.addresses import Address, parse_bootstrap_servers
from odradek.client.apis import LIST_OFFSETS, METADATA
from odradek.client.blocking.connection import BlockingConnection
from odradek.clock import Clock, SystemClock
from odradek.errors import BrokerError, ErrorCode
from odradek.model import NO_LEADER, TopicPartition
from odradek.protocol import messages
from odradek.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    decode_list_offsets_response,
    encode_list_offsets_request,
)
from odradek.protocol.primitives import ProtocolError

T = TypeVar("T")

RETRY_BACKOFF_MS: Final = 100
# A topic that was just created may not be known everywhere yet; one that does not exist
# should not make its user wait for the whole request time-out.
UNKNOWN_TOPIC_PATIENCE_MS: Final = 2_000
_CONSUMER: Final = -1
_READ_COMMITTED: Final = 1


@dataclass(frozen=True)
class PartitionLeader:
    """Who leads a partition, by broker id, and in which epoch."""

    broker_id: int
    epoch: int


@dataclass(frozen=True)
class TopicMetadata:
    """A topic with the leaders of its partitions, by index."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    leaders: Mapping[int, PartitionLeader]

    @property
    def partitions(self) -> list[TopicPartition]:
        """Its partitions, in order."""
        return [TopicPartition(self.name, index) for index in sorted(self.leaders)]


class Cluster:
    """Connections to the brokers of a cluster, opened when they are needed.

    Used by one thread. `request_timeout_ms` is for one question with all its retries.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        client_id: str = "odradek",
        request_timeout_ms: int = 30_000,
        clock: Clock | None = None,
    ) -> None:
        self._bootstrap = parse_bootstrap_servers(bootstrap_servers)
        self._client_id = client_id
        self.request_timeout_ms = request_timeout_ms
        self._clock = clock if clock is not None else SystemClock()
        self._brokers: dict[int, Address] = {}
        self._topics: dict[str, TopicMetadata] = {}
        self._connections: dict[Address, BlockingConnection] = {}

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes every connection."""
        for address in list(self._connections):
            self._disconnect(address)

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicMetadata]:
        """Asks for the named topics, or for all. Topics are never created by asking.

        Raises:
            BrokerError: UNKNOWN_TOPIC_OR_PARTITION when a name is unknown, or what keeps
                the brokers from answering.
        """
        wanted = None if names is None else sorted(set(names))
        return self.retrying(lambda: self._ask_topics(wanted))

    def topic(self, name: str) -> TopicMetadata:
        """A topic as last heard of, or asked for.

        Raises:
            BrokerError: as for `topics`, at the first attempt.
        """
        known = self._topics.get(name)
        return known if known is not None else self._ask_topics([name])[name]

    def list_offsets(
        self, positions: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, int | None]:
        """Offsets for timestamps, or for -1 (end) and -2 (beginning), of many partitions.

        `None` says that no record has this timestamp or a later one. The end is the high
        watermark, or the last stable offset when `read_committed`.

        Raises:
            BrokerError: a partition could not be asked.
        """
        found: dict[TopicPartition, int | None] = {}

        def ask_missing() -> dict[TopicPartition, int | None]:
            missing = {part: at for part, at in positions.items() if part not in found}
            by_leader: dict[Address, dict[TopicPartition, int]] = defaultdict(dict)
            for partition, position in missing.items():
                by_leader[self.leader_of(partition)][partition] = position
            for address, questions in by_leader.items():
                found.update(self._ask_offsets(address, questions, read_committed))
            return found

        return self.retrying(ask_missing) if positions else found

    def leader_of(self, partition: TopicPartition) -> Address:
        """Where the leader of a partition listens.

        Raises:
            BrokerError: the partition does not exist, or has no leader now.
        """
        leader = self.topic(partition.topic).leaders.get(partition.partition)
        if leader is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(partition))
        address = self._brokers.get(leader.broker_id)
        if leader.broker_id == NO_LEADER or address is None:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, str(partition))
        return address

    def connection(self, address: Address) -> BlockingConnection:
        """The connection to a broker.

        Raises:
            BrokerError: NETWORK_EXCEPTION.
        """
        connection = self._connections.get(address)
        if connection is None:
            timeout_s = self.request_timeout_ms / 1000
            connection = BlockingConnection(address, client_id=self._client_id, timeout_s=timeout_s)
            self._connections[address] = connection
        return connection

    def retrying(self, attempt: Callable[[], T]) -> T:
        """Makes attempts until one succeeds, fails for good, or the time is over.

        Raises:
            BrokerError: the error of the last attempt.
        """
        started_ms = self._clock.monotonic_ms()
        while True:
            try:
                return attempt()
            except BrokerError as error:
                waited_ms = self._clock.monotonic_ms() - started_ms
                if not error.code.retriable or waited_ms >= self._patience_ms(error.code):
                    raise
                self.forget(disconnect=error.code == ErrorCode.NETWORK_EXCEPTION)
            time.sleep(RETRY_BACKOFF_MS / 1000)

    def forget(self, *, disconnect: bool) -> None:
        """Drops what is known of leaders, and the connections too when one has failed."""
        self._topics.clear()
        if disconnect:
            self.close()

    def _patience_ms(self, code: ErrorCode) -> int:
        unknown = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return UNKNOWN_TOPIC_PATIENCE_MS if unknown else self.request_timeout_ms

    def _disconnect(self, address: Address) -> None:
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    def _any_connection(self) -> BlockingConnection:
        """A connection to whichever broker answers; those seen before come first."""
        candidates = dict.fromkeys([*self._connections, *self._brokers.values(), *self._bootstrap])
        last_error: BrokerError | None = None
        for address in candidates:
            try:
                return self.connection(address)
            except BrokerError as error:
                last_error = error
        assert last_error is not None, "there is always a bootstrap address"
        raise last_error

    def _ask_topics(self, names: list[str] | None) -> dict[str, TopicMetadata]:
        connection = self._any_connection()
        version = connection.agree(METADATA)
        wanted = None if names is None else [{"name": name} for name in names]
        values = {"topics": wanted, "allow_auto_topic_creation": False}
        request = messages.encode_request(METADATA.key, version, values)
        answer = connection.request(METADATA, version, [request])
        try:
            response = messages.decode_response(METADATA.key, version, *answer)
        except ProtocolError as error:
            raise BrokerError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
        self._brokers = {
            broker.node_id: Address(broker.host, broker.port) for broker in response.brokers
        }
        topics = {topic.name: topic for topic in response.topics}
        for topic in topics.values():
            # In a list of everything a topic may just be on its way out; a name that was
            # asked for is owed an answer.
            if topic.error_code and names is not None:
                raise BrokerError(ErrorCode(int(topic.error_code)), topic.name)
        found = {name: _read_topic(topic) for name, topic in topics.items() if not topic.error_code}
        self._topics.update(found)
        return found

    def _ask_offsets(
        self, address: Address, questions: Mapping[TopicPartition, int], read_committed: bool
    ) -> dict[TopicPartition, int | None]:
        connection = self.connection(address)
        version = connection.agree(LIST_OFFSETS)
        request = ListOffsetsRequest(
            _CONSUMER,
            self._questions_by_topic(questions),
            _READ_COMMITTED if read_committed else 0,
            self.request_timeout_ms,
        )
        body = encode_list_offsets_request(request, version)
        answer = connection.request(LIST_OFFSETS, version, body)
        try:
            response = decode_list_offsets_response(answer.frame, version, answer.position)
        except ProtocolError as error:
            raise BrokerError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
        offsets: dict[TopicPartition, int | None] = {}
        for topic in response.topics:
            for partition in topic.partitions:
                name = TopicPartition(topic.name, partition.index)
                if partition.error_code:
                    raise BrokerError(ErrorCode(partition.error_code), str(name))
                offsets[name] = partition.offset if partition.offset >= 0 else None
        return offsets

    def _questions_by_topic(
        self, questions: Mapping[TopicPartition, int]
    ) -> list[ListOffsetsTopic]:
        by_topic: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
        for partition, position in questions.items():
            leader = self.topic(partition.topic).leaders[partition.partition]
            by_topic[partition.topic].append(
                ListOffsetsPartition(partition.partition, position, leader.epoch)
            )
        return [ListOffsetsTopic(name, partitions) for name, partitions in by_topic.items()]


def _read_topic(topic: messages.Message) -> TopicMetadata:
    """A topic from a Metadata answer; partitions in trouble are there without a leader."""
    return TopicMetadata(
        topic.name,
        getattr(topic, "topic_id", None),
        bool(topic.is_internal),
        {
            partition.partition_index: PartitionLeader(
                partition.leader_id, getattr(partition, "leader_epoch", -1)
            )
            for partition in topic.partitions
        },
    )
