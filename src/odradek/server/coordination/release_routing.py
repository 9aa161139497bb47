"""Takes released records to the broker that leads their target: this one, or another by Produce."""

from collections.abc import Callable
from typing import Any, Final

from odradek.client.apis import DESCRIBE_PRODUCERS, ClientApi
from odradek.config import BrokerConfig
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
from odradek.server.peers.broker_channel import BrokerChannel, BrokerChannels
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
        self._channels: Final = BrokerChannels(metadata, open_channel)

    def send(self, target: TopicPartition, batch: bytearray, on_done: OnSent) -> None:
        """See `RecordSender`."""
        image = self._replicas.partitions.image
        partition = image.partition(target)
        if partition is None:
            on_done(NotAppended(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{target} is not there"))
        elif is_schedule_topic(image, target.topic):
            # It was none when the record was taken. With its headers it would go round in circles.
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

            def on_answered(outcome: Any) -> None:
                on_done(_sequence_told(outcome, producer_id))

            topics = [{"name": target.topic, "partition_indexes": [target.partition]}]
            values = {"topics": topics}
            self._channels.ask(partition.leader, DESCRIBE_PRODUCERS, values, on_answered)

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
        def on_answered(outcome: Any) -> None:
            on_done(outcome if isinstance(outcome, BrokerError) else _told(outcome))

        partition = {"index": target.partition, "records": bytes(batch)}
        values = {
            "transactional_id": None,
            "acks": ACKS_ALL,
            "timeout_ms": self._config["request.timeout.ms"],
            "topic_data": [{"name": target.topic, "partition_data": [partition]}],
        }
        self._channels.ask(leader, _PRODUCE, values, on_answered)

    def apply_delta(self, delta: MetadataDelta) -> tuple[()]:
        """Waits no more for brokers that are gone."""
        if delta.brokers_changed:
            # Once the change is through; to append in the middle of one would be too early.
            self._timer.call_threadsafe(self._channels.drop_gone)
        return ()

    def close(self) -> None:
        """Closes the ways to other brokers."""
        self._channels.close()


def _told(answer: Any) -> BrokerError | None:
    for topic in answer.responses:
        for each in topic.partition_responses:
            code = ErrorCode(int(each.error_code))
            return outcome_of(code, each.error_message, each.base_offset)
    return BrokerError(ErrorCode.NETWORK_EXCEPTION, "an answer without a partition")


def _sequence_told(answer: Any, producer_id: int) -> int | BrokerError:
    if isinstance(answer, BrokerError):
        return answer
    for topic in answer.topics:
        for each in topic.partitions:
            code = ErrorCode(int(each.error_code))
            if code is not ErrorCode.NONE:
                return BrokerError(code, each.error_message or "")
            known = (one for one in each.active_producers if one.producer_id == producer_id)
            return next((one.last_sequence for one in known), NO_SEQUENCE)
    return BrokerError(ErrorCode.NETWORK_EXCEPTION, "an answer without a partition")
