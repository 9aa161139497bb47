"""A cluster as a reader needs it: which topics, who leads, where partitions begin and end.

Questions go to the leaders of partitions. Leaders change and brokers go away, so a question
that fails with a retriable error is asked again, after a pause and with fresh metadata, until
the time for the request is over; only then its error is raised.
"""

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from odradek.client.addresses import Address, parse_bootstrap_servers
from odradek.client.apis import LIST_OFFSETS, METADATA
from odradek.client.blocking.connection import BlockingConnection
from odradek.client.core.consuming.list_offsets import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    lease_request,
    list_offsets_request,
)
from odradek.client.core.metadata import (
    ClusterMetadata,
    TopicMetadata,
    decode_metadata_response,
    encode_metadata_request,
)
from odradek.client.core.retries import Attempts, ExponentialBackoff
from odradek.client.errors import KafkaError, NetworkError, StaleMetadata, raise_for
from odradek.client.settings import RETRY_BACKOFF_MAX_MS, RETRY_BACKOFF_MS
from odradek.clock import Clock, SystemClock
from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.list_offsets import (
    LeaseTerms,
    decode_list_offsets_response,
    encode_list_offsets_request,
)
from odradek.protocol.primitives import ProtocolError

T = TypeVar("T")

_HELD_AT_ONCE: Final = 50


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
        self._backoff = ExponentialBackoff(RETRY_BACKOFF_MS, RETRY_BACKOFF_MAX_MS, random.Random())
        self._metadata = ClusterMetadata()
        self._connections: dict[Address, BlockingConnection] = {}

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes every connection."""
        for address in list(self._connections):
            self._disconnect(address)

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id, once it was asked for topics."""
        return self._metadata.cluster_id

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicMetadata]:
        """Asks for the named topics, or for all. Topics are never created by asking.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION when a name is unknown, or what keeps
                the brokers from answering.
        """
        wanted = None if names is None else sorted(set(names))
        return self.retrying(lambda: self._ask_topics(wanted))

    def topic(self, name: str) -> TopicMetadata:
        """A topic as last heard of, or asked for.

        Raises:
            KafkaError: as for `topics`, at the first attempt.
        """
        known = self._metadata.topics.get(name)
        return known if known is not None else self._ask_topics([name])[name]

    def list_offsets(
        self, positions: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, int | None]:
        """Offsets for timestamps, or for -1 (end) and -2 (beginning), of many partitions.

        `None` says that no record has this timestamp or a later one. The end is the high
        watermark, or the last stable offset when `read_committed`.

        Raises:
            KafkaError: a partition could not be asked.
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

    def hold(self, terms: LeaseTerms, offsets: Mapping[TopicPartition, int]) -> None:
        """Asks all replicas in sync for a lease on records, from offsets on.

        A few partitions at a time, so that no broker is kept from other work. Other brokers than
        ours pass over the question.

        Raises:
            KafkaError: one of them could not be asked; the others were.
        """
        by_address: dict[Address, list[TopicPartition]] = defaultdict(list)
        for partition in offsets:
            self.topic(partition.topic)
            for address in self._in_sync(partition):
                by_address[address].append(partition)
        failure: KafkaError | None = None
        for address, partitions in by_address.items():
            try:
                for first in range(0, len(partitions), _HELD_AT_ONCE):
                    few = partitions[first : first + _HELD_AT_ONCE]
                    self._ask_lease(address, terms, {each: offsets[each] for each in few})
            except KafkaError as error:
                failure = error
        if failure is not None:
            raise failure

    def leader_of(self, partition: TopicPartition) -> Address:
        """Where the leader of a partition listens.

        Raises:
            KafkaError: the partition does not exist, or has no leader now.
        """
        if partition.partition not in self.topic(partition.topic).partition_metadata:
            raise StaleMetadata(str(partition), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        leader = self._metadata.leader_of(partition)
        if leader is None:
            raise StaleMetadata(str(partition), ErrorCode.LEADER_NOT_AVAILABLE)
        return leader.address

    def connection(self, address: Address) -> BlockingConnection:
        """The connection to a broker.

        Raises:
            KafkaError: nobody answers there.
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
        attempts = Attempts(self._backoff, self._clock.monotonic_ms(), self.request_timeout_ms)
        while True:
            try:
                return attempt()
            except BrokerError as error:
                wait_ms = attempts.after_failure(error.code, self._clock.monotonic_ms())
                if wait_ms is None:
                    raise
                self.forget(disconnect=error.code == ErrorCode.NETWORK_EXCEPTION)
            time.sleep(wait_ms / 1000)

    def forget(self, *, disconnect: bool) -> None:
        """Drops what is known of leaders, and the connections too when one has failed."""
        self._metadata = self._metadata.without_topics(self._metadata.topics)
        if disconnect:
            self.close()

    def _disconnect(self, address: Address) -> None:
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    def any_connection(self) -> BlockingConnection:
        """A connection to whichever broker answers; those seen before come first.

        Raises:
            KafkaError: no broker does.
        """
        known = [node.address for node in self._metadata.nodes.values()]
        candidates = dict.fromkeys([*self._connections, *known, *self._bootstrap])
        last_error: KafkaError | None = None
        for address in candidates:
            try:
                return self.connection(address)
            except KafkaError as error:
                last_error = error
        assert last_error is not None, "there is always a bootstrap address"
        raise last_error

    def _ask_topics(self, names: list[str] | None) -> dict[str, TopicMetadata]:
        connection = self.any_connection()
        version = connection.agree(METADATA)
        answer = connection.request(METADATA, version, [encode_metadata_request(names, version)])
        try:
            response = decode_metadata_response(answer.frame, version, answer.position)
        except ProtocolError as error:
            raise NetworkError(str(error)) from error
        for topic in response.topics.values():
            # In a list of everything a topic may just be on its way out; a name that was
            # asked for is owed an answer.
            if names is not None:
                raise_for(topic.error_code, topic.name)
        self._metadata = self._metadata.merged(response, is_complete=names is None)
        return {
            name: self._metadata.topics[name]
            for name in response.topics
            if name in self._metadata.topics
        }

    def _in_sync(self, partition: TopicPartition) -> list[Address]:
        known = self._metadata.partition(partition)
        ids = known.in_sync_replicas if known is not None else ()
        return [self._metadata.nodes[each].address for each in ids if each in self._metadata.nodes]

    def _ask_lease(
        self, address: Address, terms: LeaseTerms, offsets: Mapping[TopicPartition, int]
    ) -> None:
        connection = self.connection(address)
        version = connection.agree(LIST_OFFSETS)
        request = lease_request(terms, offsets, self.request_timeout_ms)
        # What the answer says of offsets is of no interest, a follower knows none.
        connection.request(LIST_OFFSETS, version, encode_list_offsets_request(request, version))

    def _ask_offsets(
        self, address: Address, questions: Mapping[TopicPartition, int], read_committed: bool
    ) -> dict[TopicPartition, int | None]:
        connection = self.connection(address)
        version = connection.agree(LIST_OFFSETS)
        isolation_level = READ_COMMITTED if read_committed else READ_UNCOMMITTED
        request = list_offsets_request(
            questions, self._metadata, isolation_level, self.request_timeout_ms
        )
        body = encode_list_offsets_request(request, version)
        answer = connection.request(LIST_OFFSETS, version, body)
        try:
            response = decode_list_offsets_response(answer.frame, version, answer.position)
        except ProtocolError as error:
            raise NetworkError(str(error)) from error
        offsets: dict[TopicPartition, int | None] = {}
        for topic in response.topics:
            for partition in topic.partitions:
                name = TopicPartition(topic.name, partition.index)
                raise_for(partition.error_code, str(name))
                offsets[name] = partition.offset if partition.offset >= 0 else None
        return offsets
