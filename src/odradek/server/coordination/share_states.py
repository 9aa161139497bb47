"""Joins the share coordinator to this broker, and partitions' leaders to it wherever it is.

States that this broker coordinates need no request; others go to their coordinator, with the
requests that brokers of several machines would send.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from odradek.background import note_refusal, run_each
from odradek.client.apis import ClientApi
from odradek.clock import Clock
from odradek.config import BrokerConfig
from odradek.coordinator.records.share_state_records import ShareStateRecordCodec
from odradek.coordinator.runtime.partitioning import partition_for
from odradek.coordinator.runtime.settings import LOAD_SLICE_BYTES, RuntimeSettings
from odradek.coordinator.runtime.shard import Append, Execute
from odradek.coordinator.share.shard import ShareShard
from odradek.coordinator.share.share_coordinator import ShareCoordinator, coordinator_key
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import BrokerRegistration, MetadataDelta
from odradek.model import SHARE_GROUP_STATE_TOPIC, TopicPartition
from odradek.replication.delayed.delete_records import DeleteRecordsResult
from odradek.replication.replica_manager import ReplicaManager
from odradek.replication.share.persister import (
    OnPersisted,
    SharePartitionKey,
    SharePersister,
    ShareState,
    ShareSummary,
    StateBatch,
)
from odradek.replication.share.states import RecordState
from odradek.server.coordination.base import Coordination, ReplicatedLog
from odradek.server.peers.batched_requests import BatchedRequests
from odradek.server.peers.broker_channel import BrokerChannel
from odradek.timer import Timer

R = TypeVar("R")

_INITIALIZE: Final = ClientApi(83, "InitializeShareGroupState", 0, 0, 0)
_READ: Final = ClientApi(84, "ReadShareGroupState", 0, 0, 0)
_WRITE: Final = ClientApi(85, "WriteShareGroupState", 0, 1, 0)
_DELETE: Final = ClientApi(86, "DeleteShareGroupState", 0, 0, 0)
_SUMMARY: Final = ClientApi(87, "ReadShareGroupStateSummary", 0, 1, 0)
_STATE_BYTES: Final = 32
"""How much of a request a batch of records takes up."""


class ShareCoordination(Coordination[ShareShard]):
    """The share coordinator of one broker; `states` reaches that of every share partition.

    `create_topic` makes the topic of states, unless it is there, and calls back.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        timer: Timer,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        open_channel: Callable[[BrokerRegistration], BrokerChannel],
        create_topic: Callable[[Callable[[], None]], None],
    ) -> None:
        super().__init__(
            SHARE_GROUP_STATE_TOPIC,
            config,
            clock,
            timer,
            replicas,
            metadata,
            ShareStateRecordCodec(),
            self._make_shard,
            RuntimeSettings(
                config["share.coordinator.state.topic.compression.codec"],
                min(config["share.coordinator.load.buffer.size"], LOAD_SLICE_BYTES),
                config["share.coordinator.write.timeout.ms"],
            ),
            "ShareStateWrite",
        )
        self._clock = clock
        self._config = config
        self._replicas = replicas
        self._log = ReplicatedLog(SHARE_GROUP_STATE_TOPIC, replicas)
        self.coordinator = ShareCoordinator(
            self._runtime, timer.call_threadsafe, self._end_of, self._delete_before
        )
        self._requests = BatchedRequests[SharePartitionKey](metadata, timer, open_channel)
        self.states = RoutedShareStates(
            config.broker_id, self.coordinator, metadata, self._requests, create_topic
        )
        metadata.on_published(self._on_published)
        self._repeat(
            lambda: config["share.coordinator.state.topic.prune.interval.ms"],
            self._tidy_up,
        )

    def _on_published(self, delta: MetadataDelta) -> None:
        """Stops waiting for brokers that are gone, and forgets deleted topics."""
        # After the change is applied: an append in the middle of it would be too early.
        if delta.brokers_changed:
            self._timer.call_threadsafe(self._requests.drop_gone)
        if delta.topics_removed and delta.are_deleted:
            self._timer.call_threadsafe(self._forget_topics)

    def _tidy_up(self) -> None:
        """Also forgets what was deleted while nobody could write that down."""
        run_each([self._forget_topics, self.coordinator.prune])

    def _forget_topics(self) -> None:
        # Else a topic may only be unknown as yet.
        if self._metadata.is_current:
            self.coordinator.forget_topics()

    def shutdown(self) -> None:
        """Also closes the ways to other brokers."""
        run_each([super().shutdown, self._requests.close])

    def _make_shard(
        self, partition: int, _leader_epoch: int, _append: Append, _execute: Execute
    ) -> ShareShard:
        return ShareShard(partition, self._config, self._clock, self._count_of)

    def _count_of(self, topic_id: Any) -> int | None:
        topic = self._metadata.image.topic_by_id(topic_id)
        return None if topic is None else len(topic.partitions)

    def _end_of(self, partition: int) -> int:
        return self._log.bounds(partition).end_offset

    def _delete_before(self, partition: int, offset: int) -> None:
        topic_partition = TopicPartition(SHARE_GROUP_STATE_TOPIC, partition)
        timeout_ms: int = self._config["share.coordinator.write.timeout.ms"]
        self._replicas.delete_records(timeout_ms, True, [(topic_partition, offset)], _on_cut_off)


def _on_cut_off(results: Sequence[DeleteRecordsResult]) -> None:
    """Logs the refusals: the next round cuts off what is left."""
    for each in results:
        note_refusal(f"{each.topic_partition} is cut off later", each.error)


class RoutedShareStates(SharePersister):
    """Asks the broker that coordinates a share partition; makes the topic of states at first."""

    def __init__(
        self,
        broker_id: int,
        local: SharePersister,
        metadata: MetadataCache,
        requests: BatchedRequests[SharePartitionKey],
        create_topic: Callable[[Callable[[], None]], None],
    ) -> None:
        self._broker_id = broker_id
        self._local = local
        self._metadata = metadata
        self._requests = requests
        self._create_topic = create_topic

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, on_done: OnPersisted
    ) -> None:
        """See `SharePersister`."""
        data = {"state_epoch": state_epoch, "start_offset": start_offset}
        self._route(
            key,
            lambda: self._local.initialize(key, state_epoch, start_offset, on_done),
            (_INITIALIZE, data, _no_fields),
            on_done,
        )

    def delete(self, key: SharePartitionKey, on_done: OnPersisted) -> None:
        """See `SharePersister`."""
        local = lambda: self._local.delete(key, on_done)  # noqa: E731 - one of five alike
        self._route(key, local, (_DELETE, {}, _no_fields), on_done)

    def write(
        self, key: SharePartitionKey, leader_epoch: int, state: ShareState, on_done: OnPersisted
    ) -> None:
        """See `SharePersister`."""
        data = {
            "state_epoch": state.state_epoch,
            "leader_epoch": leader_epoch,
            "start_offset": state.start_offset,
            "delivery_complete_count": state.delivery_complete_count,
            "state_batches": [_batch_fields(each) for each in state.batches],
        }
        self._route(
            key,
            lambda: self._local.write(key, leader_epoch, state, on_done),
            (_WRITE, data, _no_fields),
            on_done,
        )

    def read(
        self,
        key: SharePartitionKey,
        leader_epoch: int,
        on_done: Callable[[ShareState | BrokerError], None],
    ) -> None:
        """See `SharePersister`."""
        self._route(
            key,
            lambda: self._local.read(key, leader_epoch, on_done),
            (_READ, {"leader_epoch": leader_epoch}, _state),
            on_done,
        )

    def summarize(
        self,
        key: SharePartitionKey,
        leader_epoch: int,
        on_done: Callable[[ShareSummary | BrokerError], None],
    ) -> None:
        """See `SharePersister`."""
        self._route(
            key,
            lambda: self._local.summarize(key, leader_epoch, on_done),
            (_SUMMARY, {"leader_epoch": leader_epoch}, _summary),
            on_done,
        )

    def _route(
        self,
        key: SharePartitionKey,
        local: Callable[[], None],
        question: "tuple[ClientApi, Mapping[str, Any], Callable[[Any], R]]",
        on_done: Callable[[R | BrokerError], None],
    ) -> None:
        topic = self._metadata.image.topic(SHARE_GROUP_STATE_TOPIC)
        if topic is None:
            self._create_topic(lambda: self._route_to_topic(key, local, question, on_done))
        else:
            self._route_to_topic(key, local, question, on_done)

    def _route_to_topic(
        self,
        key: SharePartitionKey,
        local: Callable[[], None],
        question: "tuple[ClientApi, Mapping[str, Any], Callable[[Any], R]]",
        on_done: Callable[[R | BrokerError], None],
    ) -> None:
        topic = self._metadata.image.topic(SHARE_GROUP_STATE_TOPIC)
        if topic is None:
            on_done(BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        partition = partition_for(coordinator_key(key), len(topic.partitions))
        coordinator = topic.partitions[partition].leader
        if coordinator == self._broker_id:
            local()
            return
        api, data, decode = question
        form = _StatesForm(api, key.group_id)
        size_bytes = _STATE_BYTES * len(data.get("state_batches", ()))
        self._requests.ask(
            coordinator,
            form,
            {key: (key, data)},
            lambda _key, outcome: on_done(_answered(outcome, decode)),
            size_bytes,
        )


class _StatesForm(NamedTuple):
    """One question about states of one group; see `RequestForm`."""

    api: ClientApi
    group_id: str

    def name(self, question: "_Question") -> SharePartitionKey:
        return question[0]

    def encode(self, questions: "Sequence[_Question]") -> dict[str, object]:
        topics: dict[UUID, list[dict[str, object]]] = {}
        for key, data in questions:
            partitions = topics.setdefault(key.topic_id, [])
            partitions.append({"partition": key.partition, **data})
        return {
            "group_id": self.group_id,
            "topics": [
                {"topic_id": topic_id, "partitions": partitions}
                for topic_id, partitions in topics.items()
            ],
        }

    def decode(self, response: Any) -> dict[Hashable, Any]:
        return {
            SharePartitionKey(self.group_id, topic.topic_id, each.partition): each
            for topic in response.results
            for each in topic.partitions
        }


_Question = tuple[SharePartitionKey, Mapping[str, Any]]


def _no_fields(_fields: Any) -> None:
    """Returns None: an answer without an error says no more."""


def _answered(outcome: Any, decode: Callable[[Any], R]) -> R | BrokerError:
    """A coordinator's answer about one partition. An unreadable response, newer or broken, is an
    error as well, so the caller is answered."""
    if isinstance(outcome, BrokerError):
        is_reached = outcome.code is ErrorCode.UNKNOWN_SERVER_ERROR
        return outcome if is_reached else BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    try:
        code = ErrorCode(int(outcome.error_code))
        if code is not ErrorCode.NONE:
            return BrokerError(code, outcome.error_message or "")
        return decode(outcome)
    except ValueError as error:
        return BrokerError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"a share state cannot be understood: {error}"
        )


def _batch_fields(batch: StateBatch) -> dict[str, object]:
    return {
        "first_offset": batch.first_offset,
        "last_offset": batch.last_offset,
        "delivery_state": int(batch.state),
        "delivery_count": batch.delivery_count,
        "due_ms": batch.due_ms,
    }


def _state(result: Any) -> ShareState:
    batches = tuple(
        StateBatch(
            each.first_offset,
            each.last_offset,
            RecordState(each.delivery_state),
            each.delivery_count,
            each.due_ms,
        )
        for each in result.state_batches
    )
    return ShareState(result.state_epoch, result.start_offset, batches)


def _summary(result: Any) -> ShareSummary:
    return ShareSummary(
        result.state_epoch,
        result.leader_epoch,
        result.start_offset,
        getattr(result, "delivery_complete_count", -1),
    )
