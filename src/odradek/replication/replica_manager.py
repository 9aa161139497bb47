"""Takes requests to the partitions, and parks those that have to wait. Decides nothing itself.

`partition` has the rules of one partition, `append` appends requests together, `partition_table`
reads many partitions for a fetch, `role_changes` applies metadata changes. Everything is called on
the broker's loop and calls back on it; nothing here blocks.

An answer to acks=all leaves when every in-sync replica has the records. With one replica
that is the moment of the append, since the high watermark is then the log end.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from odradek.background import SlicedRound, do_each, run_each
from odradek.clock import Clock
from odradek.config.broker import BrokerConfig
from odradek.errors import BrokerError, ErrorCode, without_frames
from odradek.metadata.image import MetadataDelta, PartitionImage
from odradek.metadata.store import MetadataStore, PartitionChange
from odradek.model import INTERNAL_TOPICS, TopicPartition
from odradek.replication.alter_log_dirs import ReplicaAlterLogDirsManager
from odradek.replication.append import ACKS_ALL, AppendRequest, AppendResult, RequestAppender
from odradek.replication.delayed.delete_records import (
    DelayedDeleteRecords,
    DeleteRecordsResult,
    OnDeleted,
)
from odradek.replication.delayed.fetch import AwaitedFetch, DelayedFetch
from odradek.replication.delayed.keys import operation_key
from odradek.replication.delayed.produce import DelayedProduce
from odradek.replication.delayed.purgatories import (
    COMMITTED,
    FOLLOWER_FETCH,
    ROLE,
    ReplicationPurgatories,
)
from odradek.replication.fetch import FetchInfo, FetchParams, FetchResult, OnFetched
from odradek.replication.isr_meters import IsrMeters
from odradek.replication.partition import OnIsrChanged, Partition
from odradek.replication.partition_table import PartitionTable
from odradek.replication.quota import ReplicationQuota
from odradek.replication.replica_selector import replica_selector
from odradek.replication.role_changes import RoleChanges
from odradek.replication.traffic import Traffic
from odradek.replication.unchanged_read import kept_read
from odradek.storage.manager.log_manager import LogManager
from odradek.storage.producers.producer_state import ProducerStateManager
from odradek.timer import PeriodicTask, Timer

# The pause until a log that could not be opened is tried again.
_REOPEN_MS: Final = 1000
# How many partitions one turn of the loop looks at.
SLICE_PARTITIONS: Final = 200

logger = logging.getLogger(__name__)


class ReplicaManager:
    """This broker's replicas as requests see them; `partitions` are those that it hosts."""

    def __init__(
        self,
        broker_id: int,
        config: BrokerConfig,
        clock: Clock,
        timer: Timer,
        log_manager: LogManager,
        store: MetadataStore,
        leader_quota: ReplicationQuota,
    ) -> None:
        self.broker_id = broker_id
        self._config = config
        self._clock = clock
        self._store = store
        self._log_manager = log_manager
        self.purgatories = ReplicationPurgatories(
            timer,
            broker_id,
            produce_purge_interval=config["producer.purgatory.purge.interval.requests"],
            fetch_purge_interval=config["fetch.purgatory.purge.interval.requests"],
            delete_records_purge_interval=config[
                "delete.records.purgatory.purge.interval.requests"
            ],
            share_fetch_purge_interval=config["share.fetch.purgatory.purge.interval.requests"],
        )
        self.partitions = PartitionTable(
            broker_id, clock, leader_quota, replica_selector(config["replica.selector.class"])
        )
        self.traffic = Traffic(clock)
        self.isr_meters = IsrMeters(clock)
        self._appender = RequestAppender(self.partitions, self.purgatories, self.traffic)
        self._roles = RoleChanges(
            broker_id,
            config,
            self.partitions,
            self.purgatories,
            log_manager,
            self._make_partition,
            timer.call_threadsafe,
        )
        self.log_dir_moves = ReplicaAlterLogDirsManager(
            self.partitions, log_manager, config, timer, self._on_moved
        )
        self._move_listeners: list[Callable[[TopicPartition], None]] = []
        config.subscribe(self._on_broker_config)
        self._lagging = SlicedRound(
            lambda: tuple(self.partitions),
            self._maybe_shrink_isr,
            SLICE_PARTITIONS,
            timer.call_threadsafe,
        )
        self._shrinking = PeriodicTask(
            timer, lambda: config.replica_lag_time_max_ms // 2, self.maybe_shrink_isrs
        )
        self._reopening = PeriodicTask(timer, lambda: _REOPEN_MS, self.reopen)

    # Partitions

    def partition(self, topic_partition: TopicPartition) -> Partition:
        """A partition with a replica here; raises as `PartitionTable.get`."""
        return self.partitions.get(topic_partition)

    def producers(self, topic_partition: TopicPartition) -> ProducerStateManager:
        """The producers of a log that is led here.

        Raises:
            BrokerError: it is not.
        """
        return self.partition(topic_partition).leader_log().producers

    def apply_delta(self, delta: MetadataDelta) -> list[TopicPartition]:
        """Follows a change of the metadata; to be called before its image is published. Returns the
        replicas that cannot be served here."""
        self.partitions.image = delta.image
        for topic in delta.topics_removed:
            self.traffic.forget(topic.name)
        unserved = self._roles.apply(delta)
        self.log_dir_moves.resume()
        return unserved

    def resign(self) -> None:
        """Leads nothing any more, until the metadata says so again; waiting requests are
        answered."""
        partitions = tuple(self.partitions)
        do_each(partitions, lambda partition: partition.resign())
        self.purgatories.wake_each([each.operation_key for each in partitions], ROLE)

    def on_log_dir_failure(self, directory: str) -> None:
        """Takes the partitions of a failed log directory offline and says so to the cluster."""
        failed = self.partitions.in_directory(directory)
        for partition in failed:
            partition.make_offline()
        self._store.report_offline([each.topic_partition for each in failed], self.broker_id)
        self.purgatories.wake_each([each.operation_key for each in failed], ROLE)

    def reopen(self) -> None:
        """Tries again to open logs that could not be opened; reports the opened ones to the
        cluster."""
        opened = self._roles.open_again()
        if opened:
            self._store.report_online(opened, self.broker_id)

    def _make_partition(self, topic_partition: TopicPartition) -> Partition:
        return Partition(
            topic_partition,
            self.broker_id,
            self._clock,
            self._config.replica_lag_time_max_ms,
            self._propose_isr,
            self.on_committed,
        )

    def _propose_isr(self, change: PartitionChange, on_done: OnIsrChanged) -> None:
        before = self.partition(change.topic_partition).isr_size

        def on_changed(outcome: list[PartitionImage | BrokerError] | BrokerError) -> None:
            done = outcome if isinstance(outcome, BrokerError) else outcome[0]
            self.isr_meters.count(before, done)
            on_done(done)

        self._store.change_partitions([change], on_changed)

    def on_committed(self, partition: Partition) -> None:
        """Wakes the operations and followers that wait for the high watermark of a partition."""
        self.purgatories.wake_all(partition.operation_key, COMMITTED)

    def on_moved(self, listener: Callable[[TopicPartition], None]) -> None:
        """Calls `listener` with each partition that has another log object, since it has moved to
        another directory."""
        self._move_listeners.append(listener)

    def _on_moved(self, partition: Partition) -> None:
        """Wakes the operations that wait for the partition, since its log has moved."""
        run_each(
            [
                lambda: self.purgatories.wake_all(partition.operation_key, ROLE),
                *(partial(each, partition.topic_partition) for each in self._move_listeners),
            ]
        )

    def _on_broker_config(self, _names: frozenset[str]) -> None:
        self._roles.refresh_configs()

    # Appending

    def append_records(self, requests: Sequence[AppendRequest]) -> None:
        """Appends several requests with one write per partition, then answers each.

        The entries' views are not looked at any more when this returns.
        """
        answers = self._appender.append(requests)
        for request, results in zip(requests, answers, strict=True):
            if request.required_acks == ACKS_ALL:
                self._await_replicas(request, results)
            else:
                request.on_done(results)

    def _await_replicas(self, request: AppendRequest, results: list[AppendResult]) -> None:
        keys = [
            operation_key(each.topic_partition)
            for each in results
            if each.error_code == ErrorCode.NONE
        ]
        if not keys:
            request.on_done(results)
            return
        produce = DelayedProduce(request.timeout_ms, results, self.partitions, request.on_done)
        self.purgatories.produce.try_complete_else_watch(produce, keys)

    # Fetching

    def fetch_messages(
        self, params: FetchParams, infos: list[FetchInfo], on_done: OnFetched
    ) -> DelayedFetch | None:
        """Reads, and answers at once or when there is enough; returns the wait, if there is one."""
        results = self.partitions.read(params, infos)
        if params.is_from_follower:
            self._record_follower(params, infos, results)
        if _answer_at_once(params, results):
            on_done(results)
            return None
        awaited = [
            AwaitedFetch(info, result.fetch_offset_metadata)
            for info, result in zip(infos, results, strict=True)
        ]
        fetch = DelayedFetch(params, awaited, self.partitions, on_done)
        keys = [operation_key(info.topic_partition) for info in infos]
        if self.purgatories.fetch.try_complete_else_watch(fetch, keys):
            return None
        return fetch

    def _record_follower(
        self, params: FetchParams, infos: list[FetchInfo], results: list[FetchResult]
    ) -> None:
        """Records a follower's log end before its fetch is answered or parked, and wakes
        produces."""
        moved = []
        now_ms = self._clock.monotonic_ms()
        for info, result in zip(infos, results, strict=True):
            kept = info.kept
            if kept is not None:
                kept.record(now_ms)
                continue
            partition = self.partitions.find(info.topic_partition)
            if partition is None:
                logger.warning(
                    "follower %d fetches %s, which is not here",
                    params.replica_id,
                    info.topic_partition,
                )
            elif result.error_code == ErrorCode.NONE and result.diverging_epoch < 0:
                try:
                    changed = partition.record_follower_fetch(
                        params.replica_id,
                        info.fetch_offset,
                        info.log_start_offset,
                        params.replica_epoch,
                    )
                except BrokerError as error:
                    result.refuse(error.code)
                    continue
                if changed:
                    moved.append(partition.operation_key)
                info.kept = kept_read(partition, params, info, result)
        self.purgatories.wake_each(moved, FOLLOWER_FETCH)

    # Deleting

    def delete_records(
        self,
        timeout_ms: int,
        internal_topics_allowed: bool,
        entries: Sequence[tuple[TopicPartition, int]],
        on_done: OnDeleted,
    ) -> None:
        """Moves log starts up; `on_done` is called once all live replicas have followed."""
        results = [
            self._delete_before(topic_partition, offset, internal_topics_allowed)
            for topic_partition, offset in entries
        ]
        waiting = [each for each in results if each.error is None]
        if not waiting:
            on_done(results)
            return
        keys = [operation_key(each.topic_partition) for each in waiting]
        operation = DelayedDeleteRecords(timeout_ms, results, self.partitions, on_done)
        self.purgatories.delete_records.try_complete_else_watch(operation, keys)

    def _delete_before(
        self, topic_partition: TopicPartition, offset: int, internal_topics_allowed: bool
    ) -> DeleteRecordsResult:
        try:
            if topic_partition.topic in INTERNAL_TOPICS and not internal_topics_allowed:
                raise BrokerError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"records of the internal topic {topic_partition.topic} cannot be deleted",
                )
            partition = self.partitions.get(topic_partition)
            requested_offset = partition.delete_records(offset)
        except BrokerError as error:
            return DeleteRecordsResult(topic_partition, error=without_frames(error))
        return DeleteRecordsResult(topic_partition, requested_offset)

    # Upkeep

    def maybe_shrink_isrs(self) -> None:
        """Proposes smaller ISRs where followers have been behind for too long, some partitions in
        a turn of the loop."""
        self._lagging.begin()

    def _maybe_shrink_isr(self, partition: Partition) -> None:
        if not self._shrinking.cancelled:
            partition.maybe_shrink_isr()

    def shutdown(self) -> None:
        """Ends the upkeep and all waiting; the logs are closed by their manager."""
        self._shrinking.cancel()
        self._reopening.cancel()
        self.log_dir_moves.shutdown()
        self.purgatories.shutdown()


def _answer_at_once(params: FetchParams, results: list[FetchResult]) -> bool:
    """Whether there is nothing to wait for: enough bytes, a failure, or no patience."""
    if params.max_wait_ms <= 0 or not results:
        return True
    size_bytes = 0
    for result in results:
        if result.error_code != ErrorCode.NONE or result.diverging_epoch >= 0:
            return True
        if result.preferred_read_replica >= 0:
            return True
        size_bytes += result.size_bytes
    return size_bytes >= params.min_bytes
