"""Transactions across brokers: markers to the leaders, and questions to the coordinators.

What this broker leads or coordinates is done here without a request; the rest goes to the broker
that does, with the requests that brokers of several machines would send. A broker that cannot be
reached is answered for with an error that whoever asked tries again after.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from odradek.client.apis import ClientApi
from odradek.clock import Clock
from odradek.coordinator.group_coordinator import GroupCoordinator
from odradek.coordinator.runtime.batches import EndMarker
from odradek.coordinator.runtime.partitioning import partition_for
from odradek.coordinator.transactions.commands import partitions_by_topic
from odradek.coordinator.transactions.markers import MarkerWriter, OnMarked
from odradek.coordinator.transactions.requests import AddPartitionsRequest
from odradek.coordinator.transactions.writes import OnCodes, TransactionWrites
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.model import (
    GROUP_METADATA_TOPIC,
    TRANSACTION_STATE_TOPIC,
    AppendOrigin,
    TopicPartition,
    TransactionResult,
)
from odradek.replication.append import ACKS_ALL, AppendRequest, AppendResult
from odradek.replication.replica_manager import ReplicaManager
from odradek.server.coordination.base import NEVER_MS
from odradek.server.peers.broker_channel import BrokerChannels

_WRITE_TXN_MARKERS: Final = ClientApi(27, "WriteTxnMarkers", 1, 2, 1)
_ADD_PARTITIONS_TO_TXN: Final = ClientApi(24, "AddPartitionsToTxn", 4, 5, 3)
_VERIFY_PARTITIONS: Final = ClientApi(24, "AddPartitionsToTxn", 4, 4, 3)


class LocalMarkers(MarkerWriter):
    """Writes end markers into the partitions that this broker leads.

    Those of `__consumer_offsets` go by way of the group coordinator, which has the offsets that
    they decide.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        groups: GroupCoordinator,
        metadata: MetadataCache,
        clock: Clock,
    ) -> None:
        self._replicas = replicas
        self._groups = groups
        self._metadata = metadata
        self._clock = clock

    def write(
        self, marker: EndMarker, partitions: Sequence[TopicPartition], on_done: OnMarked
    ) -> None:
        """See `MarkerWriter`."""
        logs: list[TopicPartition] = []
        for each in partitions:
            if self._metadata.image.partition(each) is None:
                on_done(each, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
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
            on_done(topic_partition, ErrorCode.NONE if error is None else error.code)

        self._groups.complete_transaction(topic_partition.partition, marker, on_written)

    def _write_to_logs(
        self, marker: EndMarker, partitions: list[TopicPartition], on_done: OnMarked
    ) -> None:
        def on_appended(results: list[AppendResult]) -> None:
            for result in results:
                on_done(result.topic_partition, _marked(result.error_code))

        batch = marker.batch(self._clock.wall_ms())
        entries = [(each, memoryview(bytearray(batch))) for each in partitions]
        request = AppendRequest(
            ACKS_ALL,
            NEVER_MS,
            AppendOrigin.COORDINATOR,
            entries,
            on_appended,
            marker.transaction_version,
        )
        self._replicas.append_records([request])


def _marked(code: ErrorCode) -> ErrorCode:
    """Unknown to the log but not to the metadata: it is about to come, or to go."""
    return _RETRIED.get(code, code)


_RETRIED: Final = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.NOT_LEADER_OR_FOLLOWER}


class RoutedMarkers(MarkerWriter):
    """Sends each partition's marker to its leader."""

    def __init__(
        self, broker_id: int, local: MarkerWriter, metadata: MetadataCache, channels: BrokerChannels
    ) -> None:
        self._broker_id = broker_id
        self._local = local
        self._metadata = metadata
        self._channels = channels

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
        for leader, led in by_leader.items():
            if leader == self._broker_id:
                self._local.write(marker, led, on_done)
            else:
                self._ask(leader, marker, led, on_done)

    def _ask(
        self, leader: int, marker: EndMarker, partitions: list[TopicPartition], on_done: OnMarked
    ) -> None:
        def on_answered(outcome: Any) -> None:
            codes = {} if isinstance(outcome, BrokerError) else _marker_codes(outcome)
            for each in partitions:
                on_done(each, _marked(codes.get(each, ErrorCode.NETWORK_EXCEPTION)))

        self._channels.ask(
            leader, _WRITE_TXN_MARKERS, _marker_request(marker, partitions), on_answered
        )


def _marker_request(marker: EndMarker, partitions: list[TopicPartition]) -> dict[str, object]:
    topics = partitions_by_topic(partitions)
    return {
        "markers": [
            {
                "producer_id": marker.producer_id,
                "producer_epoch": marker.producer_epoch,
                "transaction_result": marker.result is TransactionResult.COMMIT,
                "coordinator_epoch": marker.coordinator_epoch,
                "transaction_version": marker.transaction_version,
                "topics": [
                    {"name": name, "partition_indexes": indexes} for name, indexes in topics.items()
                ],
            }
        ]
    }


def _marker_codes(answer: Any) -> dict[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic.name, each.partition_index): ErrorCode(int(each.error_code))
        for marker in answer.markers
        for topic in marker.topics
        for each in topic.partitions
    }


class RoutedWrites(TransactionWrites):
    """Asks the broker that coordinates a transactional id."""

    def __init__(
        self,
        broker_id: int,
        local: TransactionWrites,
        metadata: MetadataCache,
        channels: BrokerChannels,
    ) -> None:
        self._broker_id = broker_id
        self._local = local
        self._metadata = metadata
        self._channels = channels

    def add_or_verify(
        self, request: AddPartitionsRequest, verify_only: bool, on_done: OnCodes
    ) -> None:
        """See `TransactionWrites`."""
        coordinator = self._coordinator_id(request.transactional_id)
        if coordinator == self._broker_id:
            self._local.add_or_verify(request, verify_only, on_done)
            return

        def on_answered(outcome: Any) -> None:
            codes = {} if isinstance(outcome, BrokerError) else _write_codes(outcome)
            missing = ErrorCode.NETWORK_EXCEPTION
            on_done([codes.get(each, missing) for each in request.partitions])

        api = _VERIFY_PARTITIONS if verify_only else _ADD_PARTITIONS_TO_TXN
        self._channels.ask(coordinator, api, _write_request(request, verify_only), on_answered)

    def _coordinator_id(self, transactional_id: str) -> int:
        """This broker where there is no topic: it says so."""
        topic = self._metadata.image.topic(TRANSACTION_STATE_TOPIC)
        if topic is None:
            return self._broker_id
        return topic.partitions[partition_for(transactional_id, len(topic.partitions))].leader


def _write_request(request: AddPartitionsRequest, verify_only: bool) -> Mapping[str, object]:
    topics = partitions_by_topic(request.partitions)
    transaction = {
        "transactional_id": request.transactional_id,
        "producer_id": request.producer.producer_id,
        "producer_epoch": request.producer.producer_epoch,
        "verify_only": verify_only,
        "topics": [{"name": name, "partitions": indexes} for name, indexes in topics.items()],
    }
    return {"transactions": [transaction]}


def _write_codes(answer: Any) -> dict[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic.name, each.partition_index): ErrorCode(int(each.partition_error_code))
        for transaction in answer.results_by_transaction
        for topic in transaction.topic_results
        for each in topic.results_by_partition
    }
