"""Takes released records to the broker that leads their target: this one, or another by Produce.

Records that are due at the same time for several partitions of a broker share a request, and a slow
partition does not delay the others (`BatchedRequests`).
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NamedTuple

from odradek.client.apis import DESCRIBE_PRODUCERS, ClientApi
from odradek.config import BrokerConfig
from odradek.coordinator.transactions.commands import partitions_by_topic
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import BrokerRegistration, MetadataDelta
from odradek.model import AppendOrigin, TopicPartition
from odradek.replication.append import ACKS_ALL, AppendRequest, AppendResult
from odradek.replication.replica_manager import ReplicaManager
from odradek.replication.schedule.admission import is_schedule_topic
from odradek.replication.schedule.sender import (
    NO_SEQUENCE,
    NotAppended,
    OnLooked,
    OnSent,
    RecordSender,
    outcome_of,
)
from odradek.server.peers.batched_requests import BatchedRequests
from odradek.server.peers.broker_channel import BrokerChannel
from odradek.timer import Timer

# By the name of the topic, which is checked to be the same before.
_PRODUCE: Final = ClientApi(0, "Produce", 9, 12, 9, throttles_from=6)


class RoutedReleases(RecordSender):
    """Appends here what is led here, and asks other brokers for the rest."""

    def __init__(
        self,
        config: BrokerConfig,
        timer: Timer,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        open_channel: Callable[[BrokerRegistration], BrokerChannel],
    ) -> None:
        self._config: Final = config
        self._timer: Final = timer
        self._replicas: Final = replicas
        self._requests: Final[BatchedRequests[TopicPartition]] = BatchedRequests(
            metadata, timer, open_channel
        )
        metadata.on_published(self._on_published)

    def send(self, target: TopicPartition, batch: bytearray, on_done: OnSent) -> None:
        """See `RecordSender`."""
        image = self._replicas.partitions.image
        partition = image.partition(target)
        if partition is None:
            on_done(NotAppended(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{target} is not there"))
        elif is_schedule_topic(image, target.topic):
            # It became one after the record was taken. There the record's headers would schedule it
            # again, without end.
            on_done(NotAppended(ErrorCode.INVALID_RECORD, f"{target.topic} is a schedule topic"))
        elif partition.leader == self._config.broker_id:
            self._append(target, batch, on_done)
        elif partition.leader not in image.brokers:
            on_done(NotAppended(ErrorCode.LEADER_NOT_AVAILABLE, f"there is no leader of {target}"))
        else:
            self._ask(partition.leader, target, batch, on_done)

    def look(self, target: TopicPartition, producer_id: int, on_done: OnLooked) -> None:
        """See `RecordSender`."""
        partition = self._replicas.partitions.image.partition(target)
        if partition is None:
            on_done(BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif partition.leader == self._config.broker_id:
            on_done(self._last_sequence(target, producer_id))
        else:
            self._requests.ask(
                partition.leader,
                _LookForm(),
                {target: target},
                lambda _target, outcome: on_done(_sequence_told(outcome, producer_id)),
            )

    def _last_sequence(self, target: TopicPartition, producer_id: int) -> int | BrokerError:
        try:
            known = self._replicas.producers(target).get(producer_id)
        except BrokerError as error:
            return error
        return NO_SEQUENCE if known is None else known.last_sequence

    def _append(self, target: TopicPartition, batch: bytearray, on_done: OnSent) -> None:
        def on_appended(results: list[AppendResult]) -> None:
            result = results[0]
            error = outcome_of(result.error_code, result.error_message, result.base_offset)
            if error is not None and result.base_offset < 0 and not self._has_failed(target):
                error = NotAppended(error.code, error.message)  # a full disk
            on_done(error)

        timeout_ms: int = self._config["request.timeout.ms"]
        entries = [(target, memoryview(batch))]
        origin = AppendOrigin.CLIENT
        request = AppendRequest(ACKS_ALL, timeout_ms, origin, entries, on_appended)
        self._replicas.append_records([request])

    def _has_failed(self, target: TopicPartition) -> bool:
        partition = self._replicas.partitions.find(target)
        log = None if partition is None else partition.log
        return log is None or log.log_directory.failure is not None

    def _ask(self, leader: int, target: TopicPartition, batch: bytearray, on_done: OnSent) -> None:
        self._requests.ask(
            leader,
            _ProduceForm(self._config["request.timeout.ms"]),
            {target: (target, batch)},
            lambda _target, outcome: on_done(_told(outcome)),
            len(batch),
        )

    def _on_published(self, delta: MetadataDelta) -> None:
        """Stops waiting for brokers that are gone."""
        if delta.brokers_changed:
            # After the change is applied: an append in the middle of it would be too early.
            self._timer.call_threadsafe(self._requests.drop_gone)

    def close(self) -> None:
        """Closes the ways to other brokers."""
        self._requests.close()


class _ProduceForm(NamedTuple):
    """Batches together, one for a partition; see `RequestForm`."""

    timeout_ms: int

    @property
    def api(self) -> ClientApi:
        return _PRODUCE

    def name(self, question: "_Batch") -> TopicPartition:
        return question[0]

    def encode(self, questions: "Sequence[_Batch]") -> dict[str, object]:
        topics: dict[str, list[dict[str, object]]] = {}
        for target, batch in questions:
            partition = {"index": target.partition, "records": bytes(batch)}
            topics.setdefault(target.topic, []).append(partition)
        return {
            "transactional_id": None,
            "acks": ACKS_ALL,
            "timeout_ms": self.timeout_ms,
            "topic_data": [
                {"name": name, "partition_data": partitions} for name, partitions in topics.items()
            ],
        }

    def decode(self, response: Any) -> dict[Hashable, Any]:
        return {
            TopicPartition(topic.name, each.index): each
            for topic in response.responses
            for each in topic.partition_responses
        }


_Batch = tuple[TopicPartition, bytearray]


class _LookForm(NamedTuple):
    """Partitions whose producers are looked at together; see `RequestForm`."""

    api: ClientApi = DESCRIBE_PRODUCERS

    def name(self, question: TopicPartition) -> TopicPartition:
        return question

    def encode(self, questions: Sequence[TopicPartition]) -> dict[str, object]:
        return {
            "topics": [
                {"name": name, "partition_indexes": indexes}
                for name, indexes in partitions_by_topic(questions).items()
            ]
        }

    def decode(self, response: Any) -> dict[Hashable, Any]:
        return {
            TopicPartition(topic.name, each.partition_index): each
            for topic in response.topics
            for each in topic.partitions
        }


def _told(outcome: Any) -> BrokerError | None:
    if isinstance(outcome, BrokerError):
        return outcome
    code = ErrorCode(int(outcome.error_code))
    return outcome_of(code, outcome.error_message, outcome.base_offset)


def _sequence_told(outcome: Any, producer_id: int) -> int | BrokerError:
    if isinstance(outcome, BrokerError):
        return outcome
    code = ErrorCode(int(outcome.error_code))
    if code is not ErrorCode.NONE:
        return BrokerError(code, outcome.error_message or "")
    known = (each for each in outcome.active_producers if each.producer_id == producer_id)
    return next((each.last_sequence for each in known), NO_SEQUENCE)
