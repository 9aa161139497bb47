"""Transactions across brokers: markers to the leaders, and questions to the coordinators.

This broker handles the partitions and ids that it leads or coordinates without a request; all
others go to their broker, with the requests that brokers of several machines would send. Markers
and questions have separate connections, and share requests (`BatchedRequests`). For an unreachable
broker the caller gets a retriable error.
"""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Final

from odradek.background import do_each
from odradek.client.apis import ClientApi
from odradek.clock import Clock
from odradek.config import BrokerConfig
from odradek.coordinator.group_coordinator import GroupCoordinator
from odradek.coordinator.runtime.batches import EndMarker
from odradek.coordinator.runtime.partitioning import partition_for
from odradek.coordinator.transactions.commands import partitions_by_topic
from odradek.coordinator.transactions.markers import MarkerWrite, MarkerWriter, OnMarked
from odradek.coordinator.transactions.requests import AddPartitionsRequest
from odradek.coordinator.transactions.writes import OnCodes, TransactionWrites
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import BrokerRegistration
from odradek.model import (
    GROUP_METADATA_TOPIC,
    TRANSACTION_STATE_TOPIC,
    AppendOrigin,
    TopicPartition,
    TransactionResult,
)
from odradek.replication.append import ACKS_ALL, AppendRequest, AppendResult
from odradek.replication.replica_manager import ReplicaManager
from odradek.server.peers.batched_requests import BatchedRequests
from odradek.server.peers.broker_channel import BrokerChannel
from odradek.timer import Timer

SLICE_PARTITIONS: Final = 200
"""How many partitions have their end markers written before others get their turn."""

_WRITE_TXN_MARKERS: Final = ClientApi(27, "WriteTxnMarkers", 1, 2, 1)
_ADD_PARTITIONS_TO_TXN: Final = ClientApi(24, "AddPartitionsToTxn", 4, 5, 3)


class LocalMarkers(MarkerWriter):
    """Writes end markers into the partitions that this broker leads.

    Markers for `__consumer_offsets` go through the group coordinator, which has the pending offsets
    of the transaction. While this broker does not know all partitions (`knows_all`), one that it
    does not know may be there. A marker that the replicas do not have after `request.timeout.ms`
    answers REQUEST_TIMED_OUT.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        groups: GroupCoordinator,
        metadata: MetadataCache,
        knows_all: Callable[[], bool],
        clock: Clock,
        config: BrokerConfig,
    ) -> None:
        self._replicas = replicas
        self._groups = groups
        self._metadata = metadata
        self._knows_all = knows_all
        self._clock = clock
        self._config = config

    def write(
        self, marker: EndMarker, partitions: Sequence[TopicPartition], on_done: OnMarked
    ) -> None:
        """See `MarkerWriter`."""
        logs: list[TopicPartition] = []
        for each in partitions:
            if self._metadata.image.partition(each) is None:
                unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                on_done(each, unknown if self._knows_all() else _marked(unknown))
            elif each.topic == GROUP_METADATA_TOPIC:
                self._write_to_group(marker, each, on_done)
            else:
                logs.append(each)
        if logs:
            self._write_to_logs(marker, logs, on_done)

    def _write_to_group(
        self, marker: EndMarker, topic_partition: TopicPartition, on_done: OnMarked
    ) -> None:
        def on_written(error: BrokerError | None) -> None:
            on_done(topic_partition, ErrorCode.NONE if error is None else _marked(error.code))

        timeout_ms: int = self._config["request.timeout.ms"]
        self._groups.complete_transaction(topic_partition.partition, marker, timeout_ms, on_written)

    def _write_to_logs(
        self, marker: EndMarker, partitions: list[TopicPartition], on_done: OnMarked
    ) -> None:
        def on_appended(results: list[AppendResult]) -> None:
            do_each(results, lambda each: on_done(each.topic_partition, _marked(each.error_code)))

        batch = marker.batch(self._clock.wall_ms())
        entries = [(each, memoryview(bytearray(batch))) for each in partitions]
        request = AppendRequest(
            ACKS_ALL,
            self._config["request.timeout.ms"],
            AppendOrigin.COORDINATOR,
            entries,
            on_appended,
            marker.transaction_version,
        )
        self._replicas.append_records([request])


class SlicedMarkers(MarkerWriter):
    """Writes the markers of many partitions in slices, of which `defer` runs each but the first at
    the loop's next turn. As in Kafka a write that was begun is completed, even if the connection
    that asked for it is gone; and it comes before later writes. A coordinator that has lost its
    connection asks again, and once it is answered the producer may write on under the same epoch: a
    marker that came behind would end its next transaction.

    A fault of ours fails only its partition: that is answered with an error, and the coordinator
    tries it again. `defer` raises the fault.
    """

    def __init__(self, markers: MarkerWriter, defer: Callable[[Callable[[], None]], None]) -> None:
        self._markers = markers
        self._defer = defer
        self._waiting: deque[MarkerWrite] = deque()
        self._is_closed = False

    def write(
        self, marker: EndMarker, partitions: Sequence[TopicPartition], on_done: OnMarked
    ) -> None:
        """See `MarkerWriter`."""
        self.write_each([(marker, partitions, on_done)])

    def write_each(self, writes: Sequence[MarkerWrite]) -> None:
        """See `MarkerWriter`."""
        is_first = not self._waiting
        self._waiting.extend(writes)
        if is_first:
            self._write_some()

    def _write_some(self) -> None:
        if self._is_closed:
            return
        writes = self._take_slice()
        if self._waiting:
            self._defer(self._write_some)
        do_each(writes, lambda each: self._write_slice(*each))

    def _take_slice(self) -> list[MarkerWrite]:
        """Takes what has waited longest, for as many partitions as a slice has."""
        taken: list[MarkerWrite] = []
        room = SLICE_PARTITIONS
        while self._waiting and room > 0:
            marker, partitions, on_done = self._waiting.popleft()
            if len(partitions) > room:
                self._waiting.appendleft((marker, partitions[room:], on_done))
            taken.append((marker, partitions[:room], on_done))
            room -= len(taken[-1][1])
        return taken

    def _write_slice(
        self, marker: EndMarker, partitions: Sequence[TopicPartition], on_done: OnMarked
    ) -> None:
        """Writes markers together, or each for itself where that fails."""
        unanswered = dict.fromkeys(partitions)

        def take(partition: TopicPartition, code: ErrorCode) -> None:
            if partition in unanswered:
                del unanswered[partition]
                on_done(partition, code)

        try:
            self._markers.write(marker, partitions, take)
        except Exception as error:  # noqa: BLE001 - the others are answered before it is raised
            left = list(unanswered)
            unanswered.clear()
            if len(partitions) > 1:
                for each in left:
                    self._write_slice(marker, [each], on_done)
            else:
                self._defer(partial(_raise, error))
                for each in left:
                    on_done(each, ErrorCode.UNKNOWN_SERVER_ERROR)

    def close(self) -> None:
        """Writes nothing any more: the logs are about to be closed."""
        self._is_closed = True


def _raise(error: Exception) -> None:
    raise error


def _marked(code: ErrorCode) -> ErrorCode:
    """A partition that the metadata has and the log directory lacks is about to come or to go, and
    groups may not be coordinated here, or not yet. All these are answered with the one error at
    which Kafka's transaction coordinator tries again."""
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _RETRIED else code


_RETRIED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class RoutedMarkers(MarkerWriter):
    """Sends each partition's marker to its leader; `requests` are those under way to others."""

    def __init__(
        self,
        broker_id: int,
        local: MarkerWriter,
        metadata: MetadataCache,
        timer: Timer,
        open_channel: Callable[[BrokerRegistration], BrokerChannel],
    ) -> None:
        self._broker_id = broker_id
        self._local = local
        self._metadata = metadata
        self.requests: Final[BatchedRequests[TopicPartition]] = BatchedRequests(
            metadata, timer, open_channel
        )

    def write(
        self, marker: EndMarker, partitions: Sequence[TopicPartition], on_done: OnMarked
    ) -> None:
        """See `MarkerWriter`."""
        image = self._metadata.image
        by_leader: dict[int, list[TopicPartition]] = {}
        for each in partitions:
            partition = image.partition(each)
            leader = self._broker_id if partition is None else partition.leader
            by_leader.setdefault(leader, []).append(each)
        do_each(by_leader.items(), lambda each: self._write_to(each[0], marker, each[1], on_done))

    def _write_to(
        self, leader: int, marker: EndMarker, partitions: list[TopicPartition], on_done: OnMarked
    ) -> None:
        if leader == self._broker_id:
            self._local.write(marker, partitions, on_done)
            return

        def on_code(topic_partition: TopicPartition, code: ErrorCode | BrokerError) -> None:
            on_done(topic_partition, _marked(_NO_ANSWER if isinstance(code, BrokerError) else code))

        questions = {each: (marker, each) for each in partitions}
        self.requests.ask(leader, _MARKERS, questions, on_code)


_Marker = tuple[EndMarker, TopicPartition]


class _Markers:
    """Markers together; see `RequestForm`."""

    @property
    def api(self) -> ClientApi:
        return _WRITE_TXN_MARKERS

    def name(self, question: _Marker) -> tuple[int, TopicPartition]:
        marker, topic_partition = question
        return marker.producer_id, topic_partition

    def encode(self, questions: Sequence[_Marker]) -> dict[str, object]:
        partitions: dict[EndMarker, list[TopicPartition]] = {}
        for marker, topic_partition in questions:
            partitions.setdefault(marker, []).append(topic_partition)
        return {
            "markers": [
                {
                    "producer_id": marker.producer_id,
                    "producer_epoch": marker.producer_epoch,
                    "transaction_result": marker.result is TransactionResult.COMMIT,
                    "coordinator_epoch": marker.coordinator_epoch,
                    "transaction_version": marker.transaction_version,
                    "topics": [
                        {"name": name, "partition_indexes": indexes}
                        for name, indexes in partitions_by_topic(marked).items()
                    ],
                }
                for marker, marked in partitions.items()
            ]
        }

    def decode(self, response: Any) -> dict[Hashable, ErrorCode]:
        return {
            (marker.producer_id, TopicPartition(topic.name, each.partition_index)): ErrorCode(
                int(each.error_code)
            )
            for marker in response.markers
            for topic in marker.topics
            for each in topic.partitions
        }


_MARKERS: Final = _Markers()
_NO_ANSWER: Final = ErrorCode.NETWORK_EXCEPTION


class RoutedWrites(TransactionWrites):
    """Asks the broker that coordinates a transactional id; `requests` are those under way."""

    def __init__(
        self,
        broker_id: int,
        local: TransactionWrites,
        metadata: MetadataCache,
        timer: Timer,
        open_channel: Callable[[BrokerRegistration], BrokerChannel],
    ) -> None:
        self._broker_id = broker_id
        self._local = local
        self._metadata = metadata
        self.requests: Final[BatchedRequests[str]] = BatchedRequests(metadata, timer, open_channel)

    def add_or_verify(
        self, request: AddPartitionsRequest, verify_only: bool, on_done: OnCodes
    ) -> None:
        """See `TransactionWrites`."""
        coordinator = self._coordinator_id(request.transactional_id)
        if coordinator == self._broker_id:
            self._local.add_or_verify(request, verify_only, on_done)
            return

        def on_codes(_id: str, codes: _Codes | BrokerError) -> None:
            told = {} if isinstance(codes, BrokerError) else codes
            on_done([told.get(each, _NO_ANSWER) for each in request.partitions])

        questions = {request.transactional_id: (request, verify_only)}
        self.requests.ask(coordinator, _WRITES, questions, on_codes)

    def _coordinator_id(self, transactional_id: str) -> int:
        """This broker where there is no topic: it says so."""
        topic = self._metadata.image.topic(TRANSACTION_STATE_TOPIC)
        if topic is None:
            return self._broker_id
        return topic.partitions[partition_for(transactional_id, len(topic.partitions))].leader


_Write = tuple[AddPartitionsRequest, bool]
_Codes = dict[TopicPartition, ErrorCode]


class _Writes:
    """Questions about writes together; see `RequestForm`."""

    @property
    def api(self) -> ClientApi:
        return _ADD_PARTITIONS_TO_TXN

    def name(self, question: _Write) -> str:
        return question[0].transactional_id

    def encode(self, questions: Sequence[_Write]) -> dict[str, object]:
        return {
            "transactions": [
                {
                    "transactional_id": request.transactional_id,
                    "producer_id": request.producer.producer_id,
                    "producer_epoch": request.producer.producer_epoch,
                    "verify_only": verify_only,
                    "topics": [
                        {"name": name, "partitions": indexes}
                        for name, indexes in partitions_by_topic(request.partitions).items()
                    ],
                }
                for request, verify_only in questions
            ]
        }

    def decode(self, response: Any) -> dict[Hashable, _Codes]:
        return {
            transaction.transactional_id: {
                TopicPartition(topic.name, each.partition_index): ErrorCode(
                    int(each.partition_error_code)
                )
                for topic in transaction.topic_results
                for each in topic.results_by_partition
            }
            for transaction in response.results_by_transaction
        }


_WRITES: Final = _Writes()
