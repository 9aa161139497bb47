"""`GroupCoordinator`: the groups of this broker, as handlers see them. A thin delegate.

Finds the shard that has the group and hands the request over; the group decides, by its kind. Every
request is answered exactly once by its callback, at once or when its records are committed. Error
codes are those that clients know (`response_errors`).
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

from odradek.background import run_each
from odradek.clock import Clock
from odradek.config.broker import BrokerConfig
from odradek.coordinator.assignors import assignor_names
from odradek.coordinator.classic.protocol import ClassicProtocol
from odradek.coordinator.classic.requests import (
    GroupDescription,
    JoinRequest,
    JoinResult,
    LeavingMember,
    OnJoined,
    OnSynced,
    SyncRequest,
    SyncResult,
    check_names,
    check_session,
)
from odradek.coordinator.consumer.requests import (
    DescribedGroup,
    HeartbeatRequest,
    HeartbeatResult,
    check_heartbeat,
)
from odradek.coordinator.group import Group
from odradek.coordinator.group_shard import GroupShard
from odradek.coordinator.modern.member_state import JOIN_EPOCH
from odradek.coordinator.offsets.in_flight import OffsetsInFlight
from odradek.coordinator.offsets.requests import FetchedOffsets, OffsetCommitRequest, TopicErrors
from odradek.coordinator.runtime.batches import EndMarker, Producer
from odradek.coordinator.runtime.response_errors import TOO_LARGE, response_code, response_error
from odradek.coordinator.runtime.runtime import CoordinatorRuntime
from odradek.coordinator.runtime.shard import CoordinatorResult
from odradek.errors import BrokerError, ErrorCode

logger = logging.getLogger(__name__)

R = TypeVar("R")

# A broker without the group, or that is still loading it, knows nothing of its members.
_ELSEWHERE: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class ListedGroup(NamedTuple):
    """A group, as ListGroups shows it."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class GroupCoordinator:
    """Groups and offsets of the partitions that this broker leads."""

    def __init__(
        self, runtime: CoordinatorRuntime[GroupShard], config: BrokerConfig, clock: Clock
    ) -> None:
        self.runtime = runtime
        self._config = config
        self._clock = clock
        self._topics_to_forget: dict[frozenset[str], int] = {}

    # Members that speak the classic protocol

    def join(self, request: JoinRequest, on_joined: OnJoined) -> None:
        """JoinGroup; answered when the group's generation begins."""

        def on_done(outcome: JoinResult | BrokerError) -> None:
            if isinstance(outcome, BrokerError):
                refusal = response_error(outcome)
                _log_refusal("JoinGroup", request.group_id, _joiner(request), refusal)
                member_id = "" if outcome.code in _ELSEWHERE else request.member_id
                on_joined(JoinResult(refusal.code, member_id))
            else:
                on_joined(outcome._replace(error_code=response_code(outcome.error_code)))

        def begin(members: ClassicProtocol) -> None:
            check_names(request)
            members.join(request, on_done)

        try:
            if request.group_id:
                check_session(request, self._config)
        except BrokerError as error:
            on_done(error)
            return
        self._on_arrival(request.group_id, request.member_id)
        self._begin(request.group_id, begin, on_done)

    def sync(self, request: SyncRequest, on_synced: OnSynced) -> None:
        """SyncGroup; answered when the member's assignment is committed."""

        def on_done(result: SyncResult) -> None:
            on_synced(result._replace(error_code=response_code(result.error_code)))

        def on_refused(error: BrokerError) -> None:
            _log_refusal("SyncGroup", request.group_id, request.member_id, error)
            on_done(SyncResult(error.code))

        self._on_arrival(request.group_id, request.member_id)
        self._begin(request.group_id, lambda members: members.sync(request, on_done), on_refused)

    def heartbeat(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        """Heartbeat; the code tells the member what to do."""
        try:
            members = self._named_shard(group_id).classic_protocol(group_id)
            members.heartbeat(group_id, member_id, group_instance_id, generation_id)
        except BrokerError as error:
            _log_refusal("Heartbeat", group_id, member_id, error)
            return error.code
        return ErrorCode.NONE

    def leave(
        self,
        group_id: str,
        members: Sequence[LeavingMember],
        on_done: Callable[[list[ErrorCode] | BrokerError], None],
    ) -> None:
        """LeaveGroup; one code for each member, when it is committed that they have left."""

        def on_left(outcome: list[ErrorCode] | BrokerError) -> None:
            codes = [outcome.code] * len(members) if isinstance(outcome, BrokerError) else outcome
            for member, code in zip(members, codes, strict=True):
                if code is not ErrorCode.NONE:
                    who = member.member_id or f"instance {member.group_instance_id}"
                    _log_refusal("LeaveGroup", group_id, who, BrokerError(code))
            on_done(_to_response(outcome))

        self._begin(group_id, lambda protocol: protocol.leave(group_id, members, on_left), on_left)

    def _begin(
        self,
        group_id: str,
        begin: Callable[[ClassicProtocol], None],
        on_refused: Callable[[BrokerError], None],
    ) -> None:
        """Handles a request by the group's kind, once no other request is about to change it."""
        if not group_id:
            on_refused(BrokerError(ErrorCode.INVALID_GROUP_ID))
            return

        def on_turn(outcome: ClassicProtocol | BrokerError) -> None:
            try:
                if isinstance(outcome, BrokerError):
                    raise outcome
                begin(outcome)
            except BrokerError as error:
                on_refused(error)

        self.runtime.execute(
            group_id,
            lambda shard: CoordinatorResult((), shard.classic_protocol(group_id)),
            on_turn,
            exclusive=True,
            expires=True,
        )

    def _on_arrival(self, group_id: str, member_id: str) -> None:
        """Renews the member's session at the request's arrival, however long it waits behind others
        of the group."""
        if self.runtime.is_busy(group_id):
            self.runtime.shard(group_id).on_arrival(group_id, member_id)

    # Members of consumer groups

    def consumer_heartbeat(
        self,
        request: HeartbeatRequest,
        api_version: int,
        on_done: Callable[[HeartbeatResult | BrokerError], None],
    ) -> None:
        """ConsumerGroupHeartbeat; answered when what it changed is committed."""

        def on_answered(outcome: HeartbeatResult | BrokerError) -> None:
            if isinstance(outcome, BrokerError):
                who = f"{request.member_id} (client {request.client_id} at {request.client_host})"
                _log_refusal("ConsumerGroupHeartbeat", request.group_id, who, outcome)
            on_done(outcome)

        try:
            check_heartbeat(request, api_version, assignor_names(self._config))
        except BrokerError as error:
            on_answered(error)
            return
        if request.member_epoch >= JOIN_EPOCH:
            self._on_arrival(request.group_id, request.member_id)
        self._execute(
            request.group_id,
            lambda shard: shard.consumer.heartbeat(request),
            on_answered,
            exclusive=True,
        )

    def describe_consumer_group(self, group_id: str) -> DescribedGroup:
        """ConsumerGroupDescribe: one consumer group.

        Raises:
            BrokerError: there is none, or this broker cannot answer for it.
        """
        return self._named_shard(group_id).consumer.describe(group_id)

    # Offsets

    def commit_offsets(
        self,
        request: OffsetCommitRequest,
        on_done: Callable[[TopicErrors | BrokerError], None],
        *,
        linger: bool = False,
    ) -> None:
        """OffsetCommit; answered when the offsets are committed. May `linger` until `flush`."""
        commit = _OffsetCommit(request, self._clock.wall_ms(), on_done)
        self.runtime.execute(request.group_id, commit.run, commit.on_written, linger=linger)

    def commit_offsets_in_transaction(
        self,
        request: OffsetCommitRequest,
        producer: Producer,
        on_done: Callable[[TopicErrors | BrokerError], None],
    ) -> None:
        """TxnOffsetCommit; answered when the offsets are in the log. They count once
        `complete_transaction` says so."""
        if not request.group_id:
            on_done(BrokerError(ErrorCode.INVALID_GROUP_ID))
            return
        if producer.producer_id < 0 or producer.producer_epoch < 0:
            # A transaction without a producer could never be ended.
            is_nobody = producer.producer_id < 0
            code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
            on_done(BrokerError(code if is_nobody else ErrorCode.INVALID_PRODUCER_EPOCH))
            return
        commit = _OffsetCommit(request, self._clock.wall_ms(), on_done)
        self.runtime.execute_transactional(
            request.group_id, producer, commit.run, commit.on_written
        )

    def complete_transaction(
        self,
        partition: int,
        marker: EndMarker,
        timeout_ms: int,
        on_done: Callable[[BrokerError | None], None],
    ) -> None:
        """Writes an end marker; see the runtime. `on_done` is called once."""
        self.runtime.complete_transaction(partition, marker, timeout_ms, on_done)

    def flush(self) -> None:
        """Appends the commits that linger."""
        self.runtime.flush()

    def fetch_offsets(
        self,
        group_id: str,
        member_id: str | None,
        member_epoch: int,
        *,
        require_stable: bool = False,
    ) -> FetchedOffsets:
        """OffsetFetch: all offsets of a group; none of one that has no offsets, as a share group.

        Raises:
            BrokerError: this broker cannot answer for the group, or may not.
        """
        shard = self.runtime.shard(group_id)
        group = shard.registry.get(group_id)
        if group is not None:
            try:
                group.check_offset_fetch(member_id, member_epoch)
            except BrokerError as error:
                if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
                return FetchedOffsets({})
        return shard.offset_store.fetch(group_id, require_stable)

    def delete_offsets(
        self,
        group_id: str,
        topics: Sequence[tuple[str, Sequence[int]]],
        on_done: Callable[[TopicErrors | BrokerError], None],
    ) -> None:
        """OffsetDelete."""
        if not group_id:
            on_done(BrokerError(ErrorCode.INVALID_GROUP_ID))
            return

        def delete(shard: GroupShard) -> CoordinatorResult[TopicErrors]:
            in_flight = OffsetsInFlight(self.runtime.uncommitted(group_id))
            return shard.offsets.delete(group_id, topics, in_flight)

        self._execute(group_id, delete, on_done)

    def expire_offsets(self) -> None:
        """Removes expired offsets and groups, in slices; called from time to time. Offsets that
        cannot be removed now are checked again the next time."""
        now_ms = self._clock.wall_ms()

        def expire() -> None:
            self.runtime.sweep(
                lambda shard, uncommitted: shard.upkeep.expire(now_ms, uncommitted),
                lambda error: logger.warning("expired offsets are not removed: %s", error),
            )

        forgotten, self._topics_to_forget = self._topics_to_forget, {}
        steps: list[Callable[[], None]] = [expire]
        steps += [partial(self._forget_topics, *each) for each in forgotten.items()]
        run_each(steps)

    def on_topics_deleted(self, topics: frozenset[str]) -> None:
        """Removes the offsets of topics that are gone, in slices."""
        self._forget_topics(topics, self._clock.wall_ms())

    def _forget_topics(self, topics: frozenset[str], deleted_ms: int) -> None:
        def again() -> None:
            later_ms = self._topics_to_forget.get(topics, deleted_ms)
            self._topics_to_forget[topics] = max(later_ms, deleted_ms)

        def on_refused(error: Exception) -> None:
            logger.warning("offsets of deleted topics are not removed: %s", error)
            again()

        self.runtime.sweep(
            lambda shard, uncommitted: shard.upkeep.delete_topics(topics, deleted_ms, uncommitted),
            on_refused,
        )
        if self.runtime.is_loading:
            again()  # loading partitions were skipped

    # Administration

    def describe_group(self, group_id: str) -> GroupDescription:
        """DescribeGroups: one classic group.

        Raises:
            BrokerError: there is none, or this broker cannot answer for it.
        """
        return self.runtime.shard(group_id).classic.describe(group_id)

    def list_groups(self, states: Iterable[str], types: Iterable[str]) -> list[ListedGroup]:
        """ListGroups: the groups in one of the states and of one of the types; empty: any.

        Raises:
            BrokerError: COORDINATOR_LOAD_IN_PROGRESS, the list would not be whole.
        """
        if self.runtime.is_loading:
            raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        wanted_states = {state.lower() for state in states}
        wanted_types = {kind.lower() for kind in types}
        return [
            ListedGroup(group.group_id, group.protocol_type, group.state_name, group.type.value)
            for group in self._groups()
            if (not wanted_states or group.state_name.lower() in wanted_states)
            and (not wanted_types or group.type.value in wanted_types)
        ]

    def _groups(self) -> Iterator[Group]:
        for shard in self.runtime.shards():
            yield from shard.registry

    def delete_group(self, group_id: str, on_done: Callable[[BrokerError | None], None]) -> None:
        """DeleteGroups: one group, with its offsets."""

        def delete(shard: GroupShard) -> CoordinatorResult[None]:
            in_flight = OffsetsInFlight(self.runtime.uncommitted(group_id))
            return shard.offsets.delete_group(group_id, in_flight)

        self._execute(group_id, delete, on_done, exclusive=True)

    def _execute(
        self,
        group_id: str,
        command: Callable[[GroupShard], CoordinatorResult[R]],
        on_done: Callable[[R | BrokerError], None],
        *,
        exclusive: bool = False,
    ) -> None:
        self.runtime.execute(
            group_id,
            command,
            lambda outcome: on_done(_to_response(outcome)),
            exclusive=exclusive,
            expires=True,
        )

    def _named_shard(self, group_id: str) -> GroupShard:
        """The shard of a group that must have a name."""
        if not group_id:
            raise BrokerError(ErrorCode.INVALID_GROUP_ID)
        return self.runtime.shard(group_id)


class _OffsetCommit:
    """One commit on its way; an object because closures take longer to make."""

    def __init__(
        self,
        request: OffsetCommitRequest,
        now_ms: int,
        on_done: Callable[[TopicErrors | BrokerError], None],
    ) -> None:
        self._request = request
        self._now_ms = now_ms
        self._on_done = on_done

    def run(self, shard: GroupShard) -> CoordinatorResult[TopicErrors]:
        return shard.offsets.commit(self._request, self._now_ms)

    def on_written(self, outcome: TopicErrors | BrokerError) -> None:
        if isinstance(outcome, BrokerError):
            outcome = self._refusal(outcome)
        self._on_done(outcome)

    def _refusal(self, error: BrokerError) -> BrokerError:
        code = response_code(error.code)
        if error.code in TOO_LARGE:
            code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        refusal = BrokerError(code, error.message)
        _log_refusal("OffsetCommit", self._request.group_id, self._request.member_id, refusal)
        return refusal


def _to_response(outcome: R | BrokerError) -> R | BrokerError:
    return response_error(outcome) if isinstance(outcome, BrokerError) else outcome


_EXPECTED: Final = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)


def _log_refusal(request: str, group_id: str, member: str, error: BrokerError) -> None:
    """Logs which request was refused and why, except for errors that are part of every rebalance or
    move."""
    if error.code not in _EXPECTED:
        who = f"member {member}" if member else "one who is no member"
        logger.info("group %s: %s of %s is refused: %s", group_id, request, who, error)


def _joiner(request: JoinRequest) -> str:
    return f"{request.member_id or 'to be'} (client {request.client_id} at {request.client_host})"
