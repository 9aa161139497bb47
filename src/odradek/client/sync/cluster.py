"""A cluster for a reader: topics, leaders, and the bounds of partitions.

`ClusterCore`, for one blocking thread. It asks the leaders of partitions. Leaders change and
brokers go away, so it forgets its leaders after every failure.
"""

import math
import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from odradek.client.addresses import Address
from odradek.client.apis import LIST_OFFSETS, ClientApi
from odradek.client.core.cluster import ClusterCore, Message
from odradek.client.core.consuming.list_offsets import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    by_leader,
    lease_request,
    list_offsets_gen,
    no_leader,
)
from odradek.client.core.freshness import BROKERS_ALONE, Subject
from odradek.client.core.metadata import ClusterMetadata, TopicMetadata
from odradek.client.core.retries import TimeLimit
from odradek.client.core.waits import Gen, Pause
from odradek.client.errors import KafkaError, StaleMetadata, raise_for
from odradek.client.security import NO_SECURITY, ClientSecurity
from odradek.client.settings import ADMIN_SETTINGS, ClientSettings
from odradek.client.sync.connection import BlockingConnection
from odradek.client.sync.waiting import wait
from odradek.clock import Clock, SystemClock
from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.direct.list_offsets import (
    LeaseTerms,
    decode_list_offsets_response,
    encode_list_offsets_request,
)
from odradek.suggestions import no_topic

T = TypeVar("T")

_HELD_AT_ONCE: Final = 50


class Cluster(ClusterCore[BlockingConnection]):
    """Connections to the brokers of a cluster, opened when they are needed.

    Used by one thread. One answer may take `request_timeout_ms`, a question with all its retries
    `api_timeout_ms`, by default as long. An answer, or a connection, never takes more than half of
    the time that is left to its question: another broker is asked then, however many are silent.
    Errors call the limit of a question `limited_by`, the setting of whoever made this cluster; ""
    where there is none. By default it is the argument.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        client_id: str = "odradek",
        request_timeout_ms: int = 30_000,
        api_timeout_ms: int | None = None,
        clock: Clock | None = None,
        security: ClientSecurity = NO_SECURITY,
        limited_by: str | None = None,
    ) -> None:
        self.api_timeout_ms = request_timeout_ms if api_timeout_ms is None else api_timeout_ms
        argument = "request_timeout_ms" if api_timeout_ms is None else "api_timeout_ms"
        self._limited_by = argument if limited_by is None else limited_by
        self._limit: TimeLimit | None = None  # of the question under way
        given = {
            "bootstrap.servers": bootstrap_servers,
            "client.id": client_id,
            "request.timeout.ms": max(1, min(request_timeout_ms, self.api_timeout_ms // 2)),
        }
        clock = clock if clock is not None else SystemClock()
        settings = ClientSettings(ADMIN_SETTINGS, given, {})
        super().__init__(settings, clock, random.Random(), "reader")
        self._security = security

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes every connection."""
        self._connections.close()

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id, after a request for topics."""
        return self.metadata.cluster_id

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicMetadata]:
        """Asks for the named topics, or for all. Topics are never created by asking.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION if a name is unknown, with the probably intended
                one, or the error that keeps the brokers from answering.
        """
        if names is None:
            return self.retrying(lambda: self._ask_topics(None))
        wanted = sorted(set(names))
        try:
            return self.retrying(lambda: self._ask_topics(wanted))
        except StaleMetadata as error:
            raise self._told_which(wanted, error) from None

    def topic(self, name: str) -> TopicMetadata:
        """A topic by the last metadata, or by a request.

        Raises:
            KafkaError: as for `topics`, at the first attempt.
        """
        known = self.metadata.topics.get(name)
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
        level = READ_COMMITTED if read_committed else READ_UNCOMMITTED

        def ask_missing() -> dict[TopicPartition, int | None]:
            missing = {part: at for part, at in positions.items() if part not in found}
            for name in {partition.topic for partition in missing}:
                self.topic(name)
            led, leaderless = by_leader(missing, self.metadata)
            for partition in leaderless:
                raise no_leader(self.metadata, partition)
            for node_id, partitions in led.items():
                questions = {each: missing[each] for each in partitions}
                answers = self._wait(list_offsets_gen(self, node_id, questions, level))
                for partition, answer in answers.items():
                    if isinstance(answer, KafkaError):
                        raise answer
                    found[partition] = answer.offset if answer.offset >= 0 else None
            return found

        return self.retrying(ask_missing) if positions else found

    def hold(self, terms: LeaseTerms, offsets: Mapping[TopicPartition, int]) -> None:
        """Asks all replicas in sync for a lease on records, from offsets on.

        A few partitions at a time, so that no broker is blocked. Other brokers than ours ignore the
        request.

        Raises:
            KafkaError: one of them could not be asked; the others were.
        """
        by_node: dict[int, list[TopicPartition]] = defaultdict(list)
        for partition in offsets:
            self.topic(partition.topic)
            known = self.metadata.partition(partition)
            for node_id in () if known is None else known.in_sync_replicas:
                if node_id in self.metadata.nodes:
                    by_node[node_id].append(partition)
        failure: KafkaError | None = None
        with self._limited():
            for node_id, partitions in by_node.items():
                try:
                    for first in range(0, len(partitions), _HELD_AT_ONCE):
                        few = partitions[first : first + _HELD_AT_ONCE]
                        self._ask_lease(node_id, terms, {each: offsets[each] for each in few})
                except KafkaError as error:
                    failure = error
        if failure is not None:
            raise failure

    def leader_id(self, partition: TopicPartition) -> int:
        """The broker that leads a partition.

        Raises:
            KafkaError: the partition does not exist, or has no leader now.
        """
        self.topic(partition.topic)
        leader = self.metadata.leader_of(partition)
        if leader is None:
            raise no_leader(self.metadata, partition)
        return leader.id

    def connection(self, node_id: int | None) -> BlockingConnection:
        """The connection to a broker, or to any that answers, once it does not throttle this
        client.

        Raises:
            KafkaError: none can be opened.
        """
        return self._wait(self.unthrottled_gen(node_id))

    def call(self, node_id: int | None, api: ClientApi, values: Mapping[str, object]) -> Message:
        """Asks a broker, or any; see `call_gen`.

        Raises:
            KafkaError: no answer came.
        """
        return self._wait(self.call_gen(node_id, api, values))

    def retrying(self, attempt: Callable[[], T]) -> T:
        """Makes attempts until one succeeds, fails for good, or the time is over.

        Raises:
            BrokerError: the error of the last attempt; it names the limit if that has ended them.
        """
        failures: list[BrokerError] = []
        with self._limited(failures) as limit:
            found: T = wait(self.retrying_gen(attempt, limit, failures), limit)
        return found

    def _wait(self, gen: Gen[T]) -> T:
        with self._limited() as limit:
            return wait(gen, limit)

    @contextmanager
    def _limited(self, failures: Sequence[BrokerError] = ()) -> Iterator[TimeLimit]:
        """The time of a question, and of its nested questions."""
        if self._limit is not None:
            yield self._limit
            return
        limit = self._limit = TimeLimit(self.clock, self.api_timeout_ms, self._limited_by)
        try:
            yield limit
        except TimeoutError:
            self.forget(disconnect=True)  # an answer to this question may come yet
            raise limit.overdue(failures[-1] if failures else None) from None
        finally:
            self._limit = None

    def _share_s(self) -> float:
        """The time for one wait of a question."""
        return math.inf if self._limit is None else self._limit.left_ms / 2_000

    def forget(self, *, disconnect: bool) -> None:
        """Forgets all leaders and, with `disconnect`, closes all connections."""
        self.metadata = self.metadata.without_topics(self.metadata.topics)
        if disconnect:
            self.close()

    def refresh_gen(self, names: Iterable[str]) -> Gen[ClusterMetadata]:
        """See `ClusterCore`: the request is not shared, only delayed if it comes too soon."""
        wanted = set(names)
        subjects: Collection[Subject] = wanted or {BROKERS_ALONE}
        wait_ms = self._freshness.wait_ms(subjects, self.clock.monotonic_ms())
        if wait_ms:
            yield Pause(wait_ms)
        return (yield from self.update_gen(subjects, wanted))

    def _connect(self, address: Address, setup_timeout_ms: int) -> BlockingConnection:
        return BlockingConnection(
            address,
            client_id=self._client_id,
            timeout_s=self.request_timeout_ms / 1000,
            setup_timeout_s=min(setup_timeout_ms, self.request_timeout_ms) / 1000,
            share_s=self._share_s,
            security=self._security,
        )

    def _opened(self, address: Address, channel: str) -> BlockingConnection:
        return self._wait(self._connections.open_gen(address, channel))

    def forget_whom_to_ask(self, error: BrokerError) -> None:
        """See `ClusterCore`."""
        super().forget_whom_to_ask(error)
        self.forget(disconnect=error.code == ErrorCode.NETWORK_EXCEPTION)

    def _ask_topics(self, names: list[str] | None) -> dict[str, TopicMetadata]:
        answer = self._wait(self.metadata_gen(names))
        for topic in answer.topics.values():
            # In a list of everything a topic may just be on its way out; a name that was
            # asked for is owed an answer.
            if names is not None:
                raise_for(topic.error_code, topic.name)
        known = self.metadata.topics
        return {name: known[name] for name in answer.topics if name in known}

    def _told_which(self, names: list[str], error: StaleMetadata) -> StaleMetadata:
        """The error with the missing names, and the probably intended ones."""
        known = self.topics()
        missing = [name for name in names if name not in known]
        told = "; ".join(no_topic(name, known) for name in missing)
        return StaleMetadata(told, error.code) if missing else error

    def _ask_lease(
        self, node_id: int, terms: LeaseTerms, offsets: Mapping[TopicPartition, int]
    ) -> None:
        request = lease_request(terms, offsets, self.request_timeout_ms)
        # The offsets in the response do not matter, a follower knows none.
        self._wait(
            self.exchange_gen(
                node_id,
                LIST_OFFSETS,
                lambda version: encode_list_offsets_request(request, version),
                decode_list_offsets_response,
            )
        )
