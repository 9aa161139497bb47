"""`SharePartitionManager`: the share partitions that are led here, as requests see them.

Finds or loads the share partitions of a request, reads logs and hands out their records, and parks
a fetch that found nothing. `share_partition` has the rules of one share partition.
"""

import logging
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Final

from odradek.background import do_each
from odradek.clock import Clock
from odradek.config.broker import BrokerConfig
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.group_settings import GroupSettings
from odradek.metadata.image import MetadataDelta, MetadataImage
from odradek.model import NO_LEADER_EPOCH, TopicPartition
from odradek.replication.delayed.keys import operation_key
from odradek.replication.fetch import ISOLATION_HIGH_WATERMARK, READ_COMMITTED, FetchResult
from odradek.replication.offset_lookup import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    find_offset,
)
from odradek.replication.partition import Partition
from odradek.replication.replica_manager import ReplicaManager
from odradek.replication.share.acknowledgements import AcknowledgementBatch
from odradek.replication.share.acquisition import AcquiredRecords, Wanted
from odradek.replication.share.delayed_fetch import DelayedShareFetch
from odradek.replication.share.fetch import (
    OnShareFetched,
    ReadBatches,
    ShareFetchParams,
    ShareFetchPartition,
    ShareFetchResult,
    read_info,
    read_params,
)
from odradek.replication.share.led_partition import LedSharePartition, SharePartitionStatus
from odradek.replication.share.limits import ShareLimits
from odradek.replication.share.persister import (
    UNINITIALIZED_START_OFFSET,
    OnPersisted,
    SharePartitionKey,
    SharePersister,
    ShareState,
    ShareSummary,
)
from odradek.replication.share.reset import reset_timestamp
from odradek.replication.share.share_partition import OnAcknowledged, SharePartition
from odradek.storage.log.log import Log
from odradek.timer import Timer

logger = logging.getLogger(__name__)

AVAILABLE: Final = "available"
"""Why share fetches are tried again."""

_FENCING: Final = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_REQUEST,
    }
)
"""Errors that mean that another leader or another state is in charge."""

_PASSING: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Transient errors of reading a state: the fetch finds nothing, the next tries again. Clients take
these codes of a partition for an error to tell their users."""

_CLIENT_CODES: Final = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.INVALID_REQUEST: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class SharePartitionManager:
    """See the module. Called on the broker's loop only; `states` stores the states of records."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        timer: Timer,
        replicas: ReplicaManager,
        states: SharePersister,
    ) -> None:
        self._config = config
        self._clock = clock
        self._timer = timer
        self._replicas = replicas
        self._states = states
        self._purgatory = replicas.purgatories.share_fetch
        self.partitions: dict[SharePartitionKey, LedSharePartition] = {}

    # Fetching

    def fetch(
        self,
        params: ShareFetchParams,
        partitions: list[ShareFetchPartition],
        on_done: OnShareFetched,
    ) -> DelayedShareFetch | None:
        """Hands out records, at once or when there are some; returns the wait, if there is one."""
        for each in partitions:
            self._find_or_load(each)
        fetch = DelayedShareFetch(params, partitions, self._has_enough, self._collect, on_done)
        keys: list[Hashable] = [params.member_id]
        for each in partitions:
            keys += (each.key, operation_key(each.topic_partition))
        if params.max_wait_ms <= 0:
            fetch.force_complete()
            return None
        return None if self._purgatory.try_complete_else_watch(fetch, keys) else fetch

    def _has_enough(self, params: ShareFetchParams, partitions: list[ShareFetchPartition]) -> bool:
        """Whether a fetch can be answered."""
        found_bytes = 0
        for each in partitions:
            led = self._find_or_load(each)
            if led is None or (led.error is not None and led.error.code not in _PASSING):
                return True
            if led.is_active:
                try:
                    found_bytes += self._available_bytes(params, each, led)
                except BrokerError:
                    return True
        return 0 < found_bytes >= params.min_bytes

    def _available_bytes(
        self, params: ShareFetchParams, partition: ShareFetchPartition, led: LedSharePartition
    ) -> int:
        """How many bytes can be handed out; 1 means some, if more need not be known."""
        log = self._log(partition.topic_partition)
        led.records.on_log_start(log.log_start_offset)
        if not led.records.can_acquire:
            return 0
        offset = led.records.next_fetch_offset
        if offset >= self._end(partition.key.group_id, log):
            return 0
        if params.min_bytes <= 1:
            return 1
        return self._read(partition, offset, params.max_bytes).size_bytes

    def _collect(
        self, params: ShareFetchParams, partitions: list[ShareFetchPartition]
    ) -> list[ShareFetchResult]:
        """Hands out available records, one partition after the other, up to the limits."""
        results: list[ShareFetchResult] = []
        left_records, left_bytes = params.max_records, params.max_bytes
        for each in partitions:
            result = self._collect_one(params, each, left_records, left_bytes)
            left_records -= sum(one.last_offset - one.first_offset + 1 for one in result.acquired)
            left_bytes -= sum(map(len, result.records))
            results.append(result)
        return results

    def _collect_one(
        self,
        params: ShareFetchParams,
        partition: ShareFetchPartition,
        max_records: int,
        max_bytes: int,
    ) -> ShareFetchResult:
        result = ShareFetchResult()
        try:
            led = self._find_or_load(partition)
            if led is None:
                # Raises the reason why it is not led here.
                self._log(partition.topic_partition)
                return ShareFetchResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if led.error is not None:
                self._forget(led)
                if led.error.code in _PASSING:
                    return result
                raise led.error
            if led.is_active and max_records > 0 and max_bytes > 0:
                wanted = Wanted(max_records, params.batch_size, params.limits_records)
                self._acquire(params.member_id, partition, led, wanted, max_bytes, result)
        except BrokerError as error:
            return ShareFetchResult(_CLIENT_CODES.get(error.code, error.code), error.message)
        return result

    def _acquire(
        self,
        member_id: str,
        partition: ShareFetchPartition,
        led: LedSharePartition,
        wanted: Wanted,
        max_bytes: int,
        result: ShareFetchResult,
    ) -> None:
        """Reads and locks. Records that turn out to be missing, or invisible, are skipped."""
        log = self._log(partition.topic_partition)
        records = led.records
        records.on_log_start(log.log_start_offset)
        offset = -1
        while records.can_acquire and offset < records.next_fetch_offset:
            offset = records.next_fetch_offset
            read = self._read(partition, offset, max_bytes)
            if not read.size_bytes:
                return
            batches = ReadBatches(read)
            acquired: list[AcquiredRecords] = records.acquire(
                member_id, wanted, offset, batches.ranges(), batches.aborted_ranges()
            )
            if acquired:
                result.acquired = acquired
                result.records = batches.records_of(acquired)
                return

    def _read(self, partition: ShareFetchPartition, offset: int, max_bytes: int) -> FetchResult:
        level = self._isolation_level(partition.key.group_id)
        params = read_params(max_bytes, level)
        info = read_info(partition, offset, max_bytes)
        result = self._replicas.partitions.read(params, [info])[0]
        if result.error_code is not ErrorCode.NONE:
            raise BrokerError(result.error_code)
        return result

    # Acknowledging

    def acknowledge(
        self,
        partition: ShareFetchPartition,
        member_id: str,
        batches: Sequence[AcknowledgementBatch],
        on_done: OnAcknowledged,
    ) -> None:
        """Acknowledges records of one partition; see `SharePartition.acknowledge`."""
        led = self.partitions.get(partition.key)
        if led is None or not led.is_active or not self._is_led(led):
            # As in Kafka, also where another broker leads: nothing is acquired here.
            on_done(BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            return

        def on_stored(error: BrokerError | None) -> None:
            if error is not None and error.code in _CLIENT_CODES and not _is_form(error):
                error = BrokerError(_CLIENT_CODES[error.code], error.message)
            on_done(error)

        led.records.acknowledge(member_id, batches, on_stored)

    def release_member(self, group_id: str, member_id: str) -> None:
        """Releases the records of a member that is gone; they may be handed out again."""
        active = [each for each in self.partitions.values() if each.is_active]
        held = [each for each in active if each.key.group_id == group_id]
        do_each(held, lambda led: led.records.release(member_id))

    def suspend_group(self, group_id: str) -> None:
        """Marks the group's share partitions as unused, since no member reads here any more. Their
        states are checked before the next read: an operator may have set other offsets meanwhile.
        """
        for led in self.partitions.values():
            if led.key.group_id == group_id and led.is_active:
                led.status = SharePartitionStatus.UNUSED

    # Loading

    def _find_or_load(self, partition: ShareFetchPartition) -> LedSharePartition | None:
        """The share partition, which may be loading still; None if it is not led here."""
        led = self.partitions.get(partition.key)
        if led is not None:
            if self._is_led(led):
                if led.status is SharePartitionStatus.UNUSED:
                    self._check(led)
                return led
            self._drop(led)
        found = self._replicas.partitions.find(partition.topic_partition)
        if found is None or not found.is_leader or found.log is None:
            return None
        if found.log.topic_id != partition.key.topic_id:
            return None
        return self._load(partition, found)

    def _check(self, led: LedSharePartition) -> None:
        led.status = SharePartitionStatus.CHECKING
        key, epoch = led.key, led.leader_epoch
        on_done = partial(self._on_summary, led)
        self._ask(led, lambda: self._states.summarize(key, epoch, on_done))

    def _on_summary(self, led: LedSharePartition, outcome: ShareSummary | BrokerError) -> None:
        if led.status is not SharePartitionStatus.CHECKING:
            return
        if isinstance(outcome, BrokerError) or not led.is_stored_as(outcome):
            self._drop(led)
            return
        led.status = SharePartitionStatus.ACTIVE
        self._wake(led.key)

    def _load(self, partition: ShareFetchPartition, found: Partition) -> LedSharePartition:
        key = partition.key

        # Two functions side by side: mypyc does not find `led` from one within the other.
        def on_stored(state: ShareState, on_done: OnPersisted, error: BrokerError | None) -> None:
            if error is None:
                led.on_stored(state)
            self._on_stored(led, error, on_done)

        def send(state: ShareState, on_done: OnPersisted) -> None:
            on_sent = partial(on_stored, state, on_done)
            self._states.write(key, found.leader_epoch, state, on_sent)

        records = SharePartition(
            self._timer,
            _CachedLimits(key.group_id, self._config, self._image).current,
            send,
            lambda: self._wake(key),
            self._clock.wall_ms,
        )
        led = LedSharePartition(key, partition.topic_partition, found.leader_epoch, records)
        self.partitions[key] = led
        on_done = partial(self._on_state, led)
        self._ask(led, lambda: self._states.read(key, found.leader_epoch, on_done))
        return led

    def _ask(self, led: LedSharePartition, ask: Callable[[], None]) -> None:
        """Asks for a state. If that raises, an answer may never come: the share partition is
        dropped, and the next request makes another one."""
        try:
            ask()
        except Exception:  # of any kind: see above
            self._drop(led)
            raise

    def _on_state(self, led: LedSharePartition, outcome: ShareState | BrokerError) -> None:
        if led.status is not SharePartitionStatus.INITIALIZING:
            return
        try:
            if isinstance(outcome, BrokerError):
                raise outcome
            led.on_stored(outcome)
            if outcome.start_offset == UNINITIALIZED_START_OFFSET:
                outcome = outcome._replace(start_offset=self._first_offset(led))
            led.records.begin(outcome)
            led.status = SharePartitionStatus.ACTIVE
        except BrokerError as error:
            logger.info("share partition %s cannot begin: %s", led.key, error)
            led.fail(error)
        self._wake(led.key)

    def _first_offset(self, led: LedSharePartition) -> int:
        """Where a group begins if it has never read the partition."""
        settings = GroupSettings("share", led.key.group_id, self._config, self._image())
        policy: str = settings.value("auto.offset.reset")
        timestamp = reset_timestamp(policy, self._clock.wall_ms())
        partition = self._replicas.partition(led.topic_partition)
        found = find_offset(partition, timestamp, ISOLATION_HIGH_WATERMARK, NO_LEADER_EPOCH, True)
        if found.offset >= 0:
            return found.offset
        name = LATEST_TIMESTAMP if timestamp != EARLIEST_TIMESTAMP else EARLIEST_TIMESTAMP
        return find_offset(partition, name, ISOLATION_HIGH_WATERMARK, NO_LEADER_EPOCH, True).offset

    def _on_stored(
        self,
        led: LedSharePartition,
        error: BrokerError | None,
        on_done: OnPersisted,
    ) -> None:
        on_done(error)
        if error is not None and error.code in _FENCING:
            logger.info("share partition %s is fenced: %s", led.key, error)
            self._drop(led)

    # Ends

    def apply_delta(self, delta: MetadataDelta) -> tuple[()]:
        """Drops share partitions that are led elsewhere or deleted."""
        changed = {
            TopicPartition(topic.name, image.partition) for topic, image in delta.partitions()
        }
        gone = {topic.topic_id for topic in delta.topics_removed}
        for led in list(self.partitions.values()):
            moved = led.topic_partition in changed and not self._is_led(led)
            if moved or led.key.topic_id in gone:
                self._drop(led)
        return ()

    def _is_led(self, led: LedSharePartition) -> bool:
        found = self._replicas.partitions.find(led.topic_partition)
        return (
            found is not None
            and found.is_leader
            and found.leader_epoch == led.leader_epoch
            and found.log is not None
            and found.log.topic_id == led.key.topic_id
        )

    def _drop(self, led: LedSharePartition) -> None:
        self._forget(led)
        led.fence()
        # At the next turn: this may be in the middle of an answer.
        self._timer.call_threadsafe(lambda: self._wake(led.key))

    def _forget(self, led: LedSharePartition) -> None:
        if self.partitions.get(led.key) is led:
            del self.partitions[led.key]

    def shutdown(self) -> None:
        """Ends all locks."""
        for led in list(self.partitions.values()):
            self._forget(led)
            led.fence()

    # Help

    def _wake(self, key: SharePartitionKey) -> None:
        self._purgatory.check_and_complete(key, AVAILABLE)

    def _image(self) -> MetadataImage:
        return self._replicas.partitions.image

    def _log(self, topic_partition: TopicPartition) -> Log:
        return self._replicas.partition(topic_partition).leader_log()

    def _end(self, group_id: str, log: Log) -> int:
        """The end of the records that the group may read."""
        if self._isolation_level(group_id) == READ_COMMITTED:
            return log.last_stable_offset
        return log.high_watermark

    def _isolation_level(self, group_id: str) -> int:
        settings = GroupSettings("share", group_id, self._config, self._image())
        return READ_COMMITTED if settings.value("isolation.level") == "read_committed" else 0


class _CachedLimits:
    """The limits of a group, read again when the metadata has changed."""

    def __init__(
        self, group_id: str, config: BrokerConfig, image: Callable[[], MetadataImage]
    ) -> None:
        self._group_id = group_id
        self._config = config
        self._image = image
        self._of: MetadataImage | None = None
        self._limits = ShareLimits()

    def current(self) -> ShareLimits:
        """The limits as they are."""
        image = self._image()
        if image is not self._of:
            settings = GroupSettings("share", self._group_id, self._config, image)
            self._limits = ShareLimits(
                settings.number("record.lock.duration.ms"),
                settings.number("delivery.count.limit"),
                settings.number("partition.max.record.locks"),
                settings.value("renew.acknowledge.enable"),
                settings.value("release.backoff.ms"),
                settings.value("release.backoff.multiplier"),
                settings.value("release.backoff.max.ms"),
            )
            self._of = image
        return self._limits


def _is_form(error: BrokerError) -> bool:
    """Whether the member's request is at fault, and not the coordinator."""
    return error.code is ErrorCode.INVALID_REQUEST
