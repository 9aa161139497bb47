"""The rules of one partition: appends, reads, and what is committed.

A `Partition` joins a log (what this broker has) with a role (what the metadata says). It is
a leader with an `InSyncReplicas`, a follower, or offline when its log directory failed. It
answers questions and changes its own state; it never waits and wakes nobody: methods that
may have moved the high watermark say so, and the replica manager does the waking.

Two epochs guard it. The leader epoch counts leaderships: a request with another one belongs to an
earlier leadership, or to one that this broker does not know yet. The partition epoch counts changes
of the ISR, so that the store can refuse a stale proposal.

The high watermark never goes back while this broker leads, is never above the log end, and stays
while fewer replicas are in sync than `min.insync.replicas`.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from mypy_extensions import mypyc_attr

from odradek.clock import Clock
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import PartitionImage
from odradek.metadata.store import PartitionChange
from odradek.model import (
    NO_LEADER,
    NO_LEADER_EPOCH,
    UNKNOWN_OFFSET,
    AppendOrigin,
    TopicPartition,
)
from odradek.records.validate import Batches
from odradek.replication.delayed.keys import operation_key
from odradek.replication.delayed.replica_states import EpochEndOffset, ReadableEnd
from odradek.replication.fetch import (
    ISOLATION_LOG_END,
    ISOLATION_TXN_COMMITTED,
    FetchInfo,
    FetchParams,
    FetchResult,
)
from odradek.replication.in_sync_replicas import Follower, InSyncReplicas
from odradek.storage.log.log import Log
from odradek.storage.log.offset_metadata import LogAppendInfo, LogOffsetMetadata, LogReadInfo

logger = logging.getLogger(__name__)

OnIsrChanged = Callable[[PartitionImage | BrokerError], None]
ProposeIsr = Callable[[PartitionChange, OnIsrChanged], None]

HIGH_WATERMARK_OFFSET: Final = -1  # DeleteRecords: everything that is committed


@mypyc_attr(allow_interpreted_subclasses=True)
class Partition:
    """One replica of one partition on this broker. Called on the broker's loop only."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        broker_id: int,
        clock: Clock,
        replica_lag_time_max_ms: int,
        propose_isr: ProposeIsr,
        on_committed: Callable[["Partition"], None],
    ) -> None:
        self.topic_partition = topic_partition
        self.operation_key = operation_key(topic_partition)
        self.broker_id = broker_id
        self.log: Log | None = None
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_LEADER_EPOCH
        self.partition_epoch = -1
        self.leader_epoch_start_offset = UNKNOWN_OFFSET
        self.in_sync_replicas: InSyncReplicas | None = None  # while this broker leads
        self._clock = clock
        self._lag_max_ms = replica_lag_time_max_ms
        self._propose_isr = propose_isr
        self._on_committed = on_committed

    # Roles

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition."""
        return self.in_sync_replicas is not None

    @property
    def isr_size(self) -> int:
        """How many replicas are in sync; 0 where this broker does not lead."""
        in_sync = self.in_sync_replicas
        return 0 if in_sync is None else len(in_sync.committed)

    def make_leader(self, image: PartitionImage, log: Log) -> bool:
        """Becomes, or stays, the leader as the metadata says; True if the leadership is new. If the
        disk fails, the partition is offline."""
        self.log = log
        is_new = not self.is_leader or image.leader_epoch != self.leader_epoch
        is_same_state = image.partition_epoch == self.partition_epoch
        self._take_over(image)
        now_ms = self._clock.monotonic_ms()
        log_end_offset = log.log_end_offset
        if is_new:
            # It may not append anything before it is killed.
            log.try_to_finish_truncation()
            self.leader_epoch_start_offset = log_end_offset
            log.appender.assign_epoch(image.leader_epoch, log_end_offset)
            if log.log_directory.failure is not None:
                self.make_offline()
                return False
            self.in_sync_replicas = InSyncReplicas(
                self.broker_id, image.replicas, image.isr, now_ms, log_end_offset
            )
        else:
            self._in_sync().assign(
                image.replicas, image.isr, now_ms, log_end_offset, is_same_state=is_same_state
            )
        self._in_sync().note_offline(image.offline)
        self.maybe_increment_leader_high_watermark()
        return is_new

    def make_follower(self, image: PartitionImage, log: Log) -> bool:
        """Gives up leading, if it did; True when the leader or its epoch changed."""
        self.log = log
        changed = (
            self.is_leader
            or image.leader != self.leader_id
            or image.leader_epoch != self.leader_epoch
        )
        self.in_sync_replicas = None
        self._take_over(image)
        return changed

    def resign(self) -> None:
        """Stops leading without a successor; requests get NOT_LEADER_OR_FOLLOWER."""
        self.in_sync_replicas = None
        self.leader_id = NO_LEADER

    def make_offline(self) -> None:
        """Drops the log, whose directory has failed; requests get KAFKA_STORAGE_ERROR."""
        self.log = None
        self.in_sync_replicas = None

    def _take_over(self, image: PartitionImage) -> None:
        self.leader_id = image.leader
        self.leader_epoch = image.leader_epoch
        self.partition_epoch = image.partition_epoch

    # Finding the log

    def local_log(self, current_leader_epoch: int, only_leader: bool) -> Log:
        """This replica's log, if the caller's view of the leadership agrees with ours.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH or
                NOT_LEADER_OR_FOLLOWER.
        """
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            self._refuse_epoch(current_leader_epoch)
        log = self.log
        if log is None:
            raise BrokerError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {self.topic_partition} is offline"
            )
        if only_leader and self.in_sync_replicas is None:
            raise BrokerError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self.broker_id} does not lead {self.topic_partition}; "
                f"broker {self.leader_id} does in epoch {self.leader_epoch}",
            )
        return log

    def leader_log(self) -> Log:
        """The log, if this broker leads; raises as `local_log` does."""
        return self.local_log(NO_LEADER_EPOCH, True)

    def _refuse_epoch(self, current_leader_epoch: int) -> None:
        if current_leader_epoch < self.leader_epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        else:
            code = ErrorCode.UNKNOWN_LEADER_EPOCH
        raise BrokerError(
            code,
            f"{self.topic_partition} is in leader epoch {self.leader_epoch}, "
            f"the request speaks of {current_leader_epoch}",
        )

    def _in_sync(self) -> InSyncReplicas:
        in_sync = self.in_sync_replicas
        assert in_sync is not None, f"{self.topic_partition} is asked for an ISR but not led here"
        return in_sync

    # Appending

    def append_to_leader(
        self, batches: Sequence[Batches], origin: AppendOrigin, transaction_version: int
    ) -> list[LogAppendInfo | BrokerError]:
        """Appends several requests' batches at once; each gets its own outcome.

        Does not move the high watermark: the fetches are woken in between.

        Raises:
            BrokerError: this broker cannot append at all (not leader, storage, damaged records).
        """
        log = self.leader_log()
        if log.is_half_truncated:
            # When it followed: the producers may be those of other records.
            log.finish_truncation()
        return log.appender.append_as_leader(
            batches, self.leader_epoch, origin, transaction_version
        )

    def refuse_under_min_in_sync(self) -> BrokerError | None:
        """The error for an append with acks=all while too few replicas are in sync; else None."""
        in_sync = self.in_sync_replicas
        if in_sync is None or self.log is None:
            return None
        minimum = in_sync.effective_min_in_sync(self.log.config.min_insync_replicas)
        if len(in_sync.committed) >= minimum:
            return None
        return BrokerError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{self.topic_partition} has {len(in_sync.committed)} in-sync replicas, "
            f"min.insync.replicas asks for {minimum}",
        )

    def has_enough_replicas(self, required_offset: int) -> bool:
        """Whether everything below `required_offset` is committed.

        The high watermark is asked, not the replicas, so that what is acknowledged can also
        be read.

        Raises:
            BrokerError: NOT_ENOUGH_REPLICAS_AFTER_APPEND, or as `leader_log`.
        """
        log = self.leader_log()
        if log.high_watermark < required_offset:
            return False
        in_sync = self._in_sync()
        minimum = in_sync.effective_min_in_sync(log.config.min_insync_replicas)
        if len(in_sync.maximal) < minimum:
            raise BrokerError(
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                f"{self.topic_partition} was left with {len(in_sync.maximal)} in-sync "
                f"replicas, min.insync.replicas asks for {minimum}",
            )
        return True

    def maybe_increment_leader_high_watermark(self) -> bool:
        """Moves the high watermark to the smallest log end of the in-sync replicas; True if it
        moved.

        It stays while they are fewer than `min.insync.replicas` (KIP-966): their records could be
        lost with them, so consumers may not read these yet.
        """
        in_sync = self.in_sync_replicas
        log = self.log
        if in_sync is None or log is None:
            return False
        committed = log.log_end_offset
        if in_sync.followers:
            minimum = in_sync.effective_min_in_sync(log.config.min_insync_replicas)
            if len(in_sync.committed) < minimum:
                return False
            committed = in_sync.high_watermark(
                committed, self._clock.monotonic_ms(), self._lag_max_ms
            )
        if committed <= log.high_watermark:
            return False
        log.update_high_watermark(committed)
        return True

    # Reading

    def read(
        self, params: FetchParams, info: FetchInfo, max_bytes: int, min_one_message: bool
    ) -> FetchResult:
        """Reads one partition for a consumer or a follower.

        Raises:
            BrokerError: OFFSET_OUT_OF_RANGE, INCONSISTENT_TOPIC_ID, or as `local_log`; for a
                broker that is no replica as `_follower`.
        """
        log = self._log_to_read(params, info)
        if params.is_from_follower:
            self._follower(params.replica_id, info.current_leader_epoch)
        result = self._result_of(log)
        if info.last_fetched_epoch >= 0:
            diverging = self.diverging_end(info, params)
            # Such a reader starts over, whatever its history.
            if diverging is not None and info.fetch_offset >= log.log_start_offset:
                result.diverging_epoch = diverging.leader_epoch
                result.diverging_end_offset = diverging.end_offset
                return result
        upper_offset = self._upper_offset(log, params)
        found = log.read(info.fetch_offset, max_bytes, upper_offset, min_one_message)
        result.fetch_offset_metadata = found.fetch_offset_metadata
        result.records = [*found.records]
        result.size_bytes = found.size_bytes
        if params.isolation == ISOLATION_TXN_COMMITTED:
            result.aborted = _aborted(log, found)
        return result

    def refer(self, params: FetchParams, info: FetchInfo, replica_id: int) -> FetchResult:
        """Sends a consumer to another replica, with the partition's offsets; raises as `read` does,
        except for the offset."""
        result = self._result_of(self._log_to_read(params, info))
        result.preferred_read_replica = replica_id
        return result

    def _log_to_read(self, params: FetchParams, info: FetchInfo) -> Log:
        log = self.local_log(info.current_leader_epoch, params.fetch_only_leader)
        if info.topic_id is not None and info.topic_id != log.topic_id:
            raise BrokerError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{self.topic_partition} belongs to topic {log.topic_id}, not {info.topic_id}",
            )
        return log

    def _result_of(self, log: Log) -> FetchResult:
        result = FetchResult(self.topic_partition)
        result.high_watermark = log.high_watermark
        result.last_stable_offset = log.last_stable_offset
        result.log_start_offset = log.log_start_offset
        result.log_end_offset = log.log_end_offset
        return result

    def followers_with(self, offset: int) -> list[Follower]:
        """The followers whose logs hold `offset`, as far as the leader knows; none elsewhere."""
        if self.in_sync_replicas is None:
            return []
        return [
            follower
            for follower in self.in_sync_replicas.followers.values()
            if not follower.is_offline
            and 0 <= follower.log_start_offset <= offset <= follower.log_end_offset
        ]

    def _upper_offset(self, log: Log, params: FetchParams) -> int:
        if params.isolation == ISOLATION_LOG_END:
            return log.log_end_offset
        if params.isolation == ISOLATION_TXN_COMMITTED:
            return log.last_stable_offset
        return log.high_watermark

    def readable_end(self, info: FetchInfo, params: FetchParams) -> ReadableEnd:
        """The end of this reader's view; raises as `local_log` does."""
        log = self.local_log(info.current_leader_epoch, params.fetch_only_leader)
        upper_offset = self._upper_offset(log, params)
        place = log.convert_offset(upper_offset) or LogOffsetMetadata(upper_offset)
        return ReadableEnd(place, log.log_end_offset)

    def diverging_end(self, info: FetchInfo, params: FetchParams) -> EpochEndOffset | None:
        """The point at which the reader's history diverges from this log's, or None if it does not.

        Raises:
            BrokerError: OFFSET_OUT_OF_RANGE when this log cannot tell, or as `local_log`.
        """
        end = self.end_offset_of_epoch(
            info.last_fetched_epoch, info.current_leader_epoch, params.fetch_only_leader
        )
        if end.leader_epoch < 0 or end.end_offset < 0:
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} does not know epoch {info.last_fetched_epoch}",
            )
        if end.leader_epoch < info.last_fetched_epoch or end.end_offset < info.fetch_offset:
            return end
        return None

    def end_offset_of_epoch(
        self, leader_epoch: int, current_leader_epoch: int, only_leader: bool
    ) -> EpochEndOffset:
        """The largest known epoch not above `leader_epoch`, and where it ends here."""
        log = self.local_log(current_leader_epoch, only_leader)
        epoch, end_offset = log.leader_epochs.end_offset_for(leader_epoch, log.log_end_offset)
        return EpochEndOffset(epoch, end_offset)

    # Followers

    def record_follower_fetch(
        self, replica_id: int, fetch_offset: int, log_start_offset: int, replica_epoch: int = -1
    ) -> bool:
        """Takes over a follower's log end from its fetch; True when the high watermark or the
        follower's log start or end has moved.

        Raises:
            BrokerError: STALE_BROKER_EPOCH, or as `leader_log` and `_follower`.
        """
        log = self.leader_log()
        follower = self._follower(replica_id, NO_LEADER_EPOCH)
        if replica_epoch < follower.broker_epoch:
            raise BrokerError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"broker {replica_id} fetches in epoch {replica_epoch}, "
                f"it was in {follower.broker_epoch} before",
            )
        follower.broker_epoch = replica_epoch
        old_start = follower.log_start_offset
        old_end = follower.log_end_offset
        follower.record_fetch(
            fetch_offset, log_start_offset, log.log_end_offset, self._clock.monotonic_ms()
        )
        self._maybe_expand_isr(replica_id)
        moved = self.maybe_increment_leader_high_watermark()
        return moved or old_start != follower.log_start_offset or old_end != fetch_offset

    def _follower(self, replica_id: int, current_leader_epoch: int) -> Follower:
        """The state of a follower. A broker with the right epoch that is no replica may know of a
        reassignment before this broker does, so it gets an error after which it asks again.

        Raises:
            BrokerError: UNKNOWN_LEADER_EPOCH, or NOT_LEADER_OR_FOLLOWER for one that says no epoch.
        """
        follower = self._in_sync().followers.get(replica_id)
        if follower is not None:
            return follower
        knows_epoch = current_leader_epoch >= 0
        raise BrokerError(
            ErrorCode.UNKNOWN_LEADER_EPOCH if knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"broker {replica_id} is no replica of {self.topic_partition}",
        )

    def _maybe_expand_isr(self, replica_id: int) -> None:
        in_sync = self._in_sync()
        high_watermark = self.leader_log().high_watermark
        if in_sync.may_join(replica_id, high_watermark, self.leader_epoch_start_offset):
            self._propose(in_sync.committed | {replica_id})

    def maybe_shrink_isr(self) -> None:
        """Proposes an ISR without the followers that have been behind for too long."""
        in_sync = self.in_sync_replicas
        if in_sync is None or self.log is None:
            return
        lagging = in_sync.out_of_sync(
            self.log.log_end_offset, self._clock.monotonic_ms(), self._lag_max_ms
        )
        if lagging:
            logger.info("%s: out of sync: %s", self.topic_partition, sorted(lagging))
            self._propose(in_sync.committed - lagging)

    def _propose(self, members: frozenset[int]) -> None:
        in_sync = self._in_sync()
        in_sync.propose(members)

        def on_done(outcome: PartitionImage | BrokerError) -> None:
            # Otherwise the outcome belongs to another leadership, or the metadata has brought it
            # already, and another proposal may be open.
            if self.in_sync_replicas is in_sync and in_sync.proposed is members:
                self._on_proposal_completed(in_sync, outcome)

        change = PartitionChange(
            self.topic_partition, self.partition_epoch, self.broker_id, tuple(sorted(members))
        )
        self._propose_isr(change, on_done)

    def _on_proposal_completed(
        self, in_sync: InSyncReplicas, outcome: PartitionImage | BrokerError
    ) -> None:
        if isinstance(outcome, BrokerError):
            logger.warning("%s: the ISR stays: %s", self.topic_partition, outcome)
            in_sync.complete_proposal(in_sync.committed)
        else:
            self.partition_epoch = outcome.partition_epoch
            in_sync.complete_proposal(outcome.isr)
        self.maybe_increment_leader_high_watermark()
        self._on_committed(self)

    # Deleting

    def delete_records(self, before_offset: int) -> int:
        """Moves the log start up to `before_offset` (-1: the high watermark); returns it.

        Raises:
            BrokerError: POLICY_VIOLATION for a topic that is only compacted,
                OFFSET_OUT_OF_RANGE, or as `leader_log`.
        """
        log = self.leader_log()
        if "delete" not in log.config.cleanup_policy:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION,
                f"{self.topic_partition}: cleanup.policy does not include delete",
            )
        offset = log.high_watermark if before_offset == HIGH_WATERMARK_OFFSET else before_offset
        if not 0 <= offset <= log.high_watermark:
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition}: cannot delete before {before_offset}, "
                f"the high watermark is {log.high_watermark}",
            )
        log.maybe_increment_log_start_offset(offset)
        return offset

    def low_watermark(self, alive_brokers: frozenset[int] | None) -> int:
        """The smallest log start of the live replicas; raises as `leader_log` does."""
        log = self.leader_log()
        return self._in_sync().low_watermark(log.log_start_offset, alive_brokers)


def _aborted(log: Log, found: LogReadInfo) -> list[tuple[int, int]]:
    """The aborted transactions with records among those that were found."""
    if found.size_bytes == 0:
        return []
    fetch_offset = found.fetch_offset_metadata.message_offset
    transactions = log.reader.aborted_transactions(fetch_offset, log.reader.end_of(found))
    return [(each.producer_id, each.first_offset) for each in transactions]
