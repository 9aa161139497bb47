"""`ShareGroupCoordinator`: the share groups of this broker, as handlers see them.

Between the commands of a group it asks the share coordinator to make and delete the states of the
group's partitions: they are made before a member is assigned the partitions, and deleted before the
group is. The group's records name the states under way, so a request is repeated after a failure.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import TypeVar
from uuid import UUID

from odradek.background import do_each, do_each_in_turns, run_each
from odradek.coordinator.assignors import Partitions
from odradek.coordinator.group_shard import GroupShard
from odradek.coordinator.modern.partitions import NO_PARTITIONS, difference
from odradek.coordinator.offsets.in_flight import OffsetsInFlight
from odradek.coordinator.runtime.response_errors import response_error
from odradek.coordinator.runtime.runtime import CoordinatorRuntime
from odradek.coordinator.runtime.shard import CoordinatorResult
from odradek.coordinator.share_groups.requests import (
    DescribedShareGroup,
    ShareHeartbeatRequest,
    ShareHeartbeatResult,
    ShareOffset,
    check_share_heartbeat,
)
from odradek.errors import BrokerError, ErrorCode
from odradek.replication.share.persister import (
    UNINITIALIZED_START_OFFSET,
    SharePartitionKey,
    SharePersister,
    ShareSummary,
)

logger = logging.getLogger(__name__)

R = TypeVar("R")

UNKNOWN_EPOCH = -1
SLICE_PARTITIONS = 500
Errors = dict[tuple[UUID, int], BrokerError | None]


class ShareGroupCoordinator:
    """See the module; `states` reaches the share coordinator of every partition."""

    def __init__(self, runtime: CoordinatorRuntime[GroupShard], states: SharePersister) -> None:
        self._runtime = runtime
        self._states = states
        self._turns: dict[str, list[Callable[[Partitions], None]]] = {}
        """The groups whose states are being made or deleted, and who has that to do next."""

    # Members

    def heartbeat(
        self,
        request: ShareHeartbeatRequest,
        on_done: Callable[[ShareHeartbeatResult | BrokerError], None],
    ) -> None:
        """ShareGroupHeartbeat; answered when what it changed is committed."""

        def beat() -> None:
            self._execute(request.group_id, lambda shard: shard.share.heartbeat(request), on_done)

        try:
            check_share_heartbeat(request)
            groups = self._runtime.shard(request.group_id).share
            missing = groups.missing_states(request)
        except BrokerError as error:
            on_done(error)
            return
        groups.on_arrival(request)
        if missing:
            self._make_states(request.group_id, missing, beat)
        else:
            beat()

    # States

    def _take_turn(self, group_id: str, wait: Callable[[Partitions], None]) -> bool:
        """Whether the caller may make or delete the group's states now, which one request does at a
        time: a state that is made twice loses its acknowledgements, and a state that is deleted
        meanwhile would be assigned. Otherwise `wait` is called later with the states that the
        request before has tried to make."""
        waiting = self._turns.get(group_id)
        if waiting is not None:
            waiting.append(wait)
            return False
        self._turns[group_id] = []
        return True

    def _end_turn(self, group_id: str, then: Callable[[], None], tried: Partitions) -> None:
        waiting = self._turns.pop(group_id)
        run_each([then, *(partial(go_on, tried) for go_on in waiting)])

    def _in_turn(
        self,
        group_id: str,
        work: Callable[[Callable[[R], None]], None],
        on_done: Callable[[R], None],
    ) -> None:
        """Runs an operator's work on states in its turn, which ends with the outcome."""

        def end(outcome: R) -> None:
            self._end_turn(group_id, lambda: on_done(outcome), NO_PARTITIONS)

        if self._take_turn(group_id, lambda _tried: self._in_turn(group_id, work, on_done)):
            work(end)

    def _make_states(
        self,
        group_id: str,
        wanted: Partitions,
        then: Callable[[], None],
        tried: Partitions = NO_PARTITIONS,
    ) -> None:
        """Makes states, except for those that were tried just now. A state that cannot be made is
        tried again with the next heartbeat."""
        partitions = difference(wanted, tried)
        if not partitions:
            then()
        elif self._take_turn(group_id, partial(self._make_states, group_id, partitions, then)):
            self._make(group_id, partitions, then)

    def _make(self, group_id: str, partitions: Partitions, then: Callable[[], None]) -> None:
        end = partial(self._end_turn, group_id, then, partitions)

        def on_made(errors: Errors) -> None:
            made = _where(errors, lambda error: error is None)
            self._execute(
                group_id,
                lambda shard: shard.share.end_states(group_id, made),
                lambda _outcome: end(),  # the next heartbeat tries again
            )

        def on_begun(begun: tuple[int, Partitions] | BrokerError) -> None:
            if isinstance(begun, BrokerError):
                end()
                return
            epoch, missing = begun
            self._initialize(group_id, missing, epoch, on_made)

        self._execute(
            group_id, lambda shard: shard.share.begin_states(group_id, partitions), on_begun
        )

    def _initialize(
        self,
        group_id: str,
        partitions: Partitions,
        epoch: int,
        on_done: Callable[[Errors], None],
        starts: Mapping[tuple[UUID, int], int] | None = None,
    ) -> None:
        starts = starts or {}

        def ask(key: SharePartitionKey, take: Callable[[BrokerError | None], None]) -> None:
            start = starts.get((key.topic_id, key.partition), UNINITIALIZED_START_OFFSET)
            self._states.initialize(key, epoch, start, take)

        _for_each(group_id, partitions, ask, on_done)

    def describe(self, group_id: str) -> DescribedShareGroup:
        """ShareGroupDescribe: one group.

        Raises:
            BrokerError: there is none, or this broker cannot answer for it.
        """
        if not group_id:
            raise BrokerError(ErrorCode.INVALID_GROUP_ID)
        return self._runtime.shard(group_id).share.describe(group_id)

    # Offsets

    def _read_by(self, group_id: str) -> Partitions:
        group = self._runtime.shard(group_id).share.find(group_id)
        return NO_PARTITIONS if group is None else group.initialized

    def describe_offsets(
        self,
        group_id: str,
        wanted: Partitions | None,
        on_done: Callable[[list[ShareOffset] | BrokerError], None],
        defer: Callable[[Callable[[], None]], None],
    ) -> None:
        """DescribeShareGroupOffsets: the group's offsets, by default of every partition that it has
        read, which only its coordinator knows; a missing group has none. Many partitions are asked
        for in slices, each after the first when `defer` calls."""
        try:
            partitions = self._read_by(group_id) if wanted is None else wanted
        except BrokerError as error:
            on_done(error)
            return
        found: dict[int, ShareOffset] = {}
        keys = _keys(group_id, partitions)
        if not keys:
            on_done([])

        def take(at: int, outcome: ShareSummary | BrokerError) -> None:
            found[at] = _offset(keys[at], outcome)
            if len(found) == len(keys):
                on_done([found[each] for each in range(len(keys))])

        def ask(at: int) -> None:
            self._states.summarize(keys[at], UNKNOWN_EPOCH, partial(take, at))

        do_each_in_turns(range(len(keys)), ask, SLICE_PARTITIONS, defer)

    def alter_offsets(
        self,
        group_id: str,
        starts: Mapping[tuple[UUID, int], int],
        on_done: Callable[[Errors | BrokerError], None],
    ) -> None:
        """AlterShareGroupOffsets: sets the offsets of a group without members, or of one that does
        not exist yet."""
        self._in_turn(group_id, lambda end: self._alter_offsets(group_id, starts, end), on_done)

    def _alter_offsets(
        self,
        group_id: str,
        starts: Mapping[tuple[UUID, int], int],
        on_done: Callable[[Errors | BrokerError], None],
    ) -> None:
        partitions = _by_topic(starts)

        def on_made(errors: Errors) -> None:
            made = _where(errors, lambda error: error is None)
            self._execute(
                group_id,
                lambda shard: shard.share.end_states(group_id, made),
                lambda outcome: on_done(outcome if isinstance(outcome, BrokerError) else errors),
            )

        def on_begun(epoch: int | BrokerError) -> None:
            if isinstance(epoch, BrokerError):
                on_done(epoch)
            elif partitions:
                self._initialize(group_id, partitions, epoch, on_made, starts)
            else:
                on_done({})

        self._execute(
            group_id,
            lambda shard: shard.share.begin_alteration(group_id, partitions),
            on_begun,
        )

    def delete_offsets(
        self,
        group_id: str,
        topic_ids: Sequence[UUID],
        on_done: Callable[[Mapping[UUID, BrokerError | None] | BrokerError], None],
    ) -> None:
        """DeleteShareGroupOffsets: makes a group without members forget that it has read those
        topics."""
        self._in_turn(group_id, lambda end: self._delete_offsets(group_id, topic_ids, end), on_done)

    def _delete_offsets(
        self,
        group_id: str,
        topic_ids: Sequence[UUID],
        on_done: Callable[[Mapping[UUID, BrokerError | None] | BrokerError], None],
    ) -> None:
        def on_deleted(errors: Errors) -> None:
            by_topic: dict[UUID, BrokerError | None] = dict.fromkeys(topic_ids)
            for (topic_id, _), error in errors.items():
                by_topic[topic_id] = by_topic.get(topic_id) or error
            gone = [each for each, error in by_topic.items() if error is None]
            self._execute(
                group_id,
                lambda shard: shard.share.end_deletion(group_id, gone),
                lambda outcome: on_done(outcome if isinstance(outcome, BrokerError) else by_topic),
            )

        self._delete_states(group_id, topic_ids, on_deleted, on_done)

    def _delete_states(
        self,
        group_id: str,
        topic_ids: Iterable[UUID] | None,
        on_deleted: Callable[[Errors], None],
        on_refused: Callable[[BrokerError], None],
    ) -> None:
        def on_begun(leaving: Partitions | BrokerError) -> None:
            if isinstance(leaving, BrokerError):
                on_refused(leaving)
            else:
                _for_each(group_id, leaving, self._delete_state, on_deleted)

        self._execute(
            group_id, lambda shard: shard.share.begin_deletion(group_id, topic_ids), on_begun
        )

    def _delete_state(
        self, key: SharePartitionKey, on_done: Callable[[BrokerError | None], None]
    ) -> None:
        """Deletes one state; the states of a deleted topic are deleted already."""

        def on_deleted(error: BrokerError | None) -> None:
            is_gone = error is not None and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            on_done(None if is_gone else error)

        self._states.delete(key, on_deleted)

    # Deletion

    def has(self, group_id: str) -> bool:
        """Whether this broker coordinates a share group of that id."""
        try:
            return self._runtime.shard(group_id).share.find(group_id) is not None
        except BrokerError:
            return False

    def delete_group(self, group_id: str, on_done: Callable[[BrokerError | None], None]) -> None:
        """DeleteGroups: a share group, its states first."""
        self._in_turn(group_id, lambda end: self._delete_group(group_id, end), on_done)

    def _delete_group(self, group_id: str, on_done: Callable[[BrokerError | None], None]) -> None:
        def delete(shard: GroupShard) -> CoordinatorResult[None]:
            in_flight = OffsetsInFlight(self._runtime.uncommitted(group_id))
            return shard.offsets.delete_group(group_id, in_flight)

        def on_deleted(errors: Errors) -> None:
            failed = next((each for each in errors.values() if each is not None), None)
            if failed is not None:
                on_done(failed)
                return
            self._execute(group_id, delete, on_done)

        self._delete_states(group_id, None, on_deleted, on_done)

    # The runtime

    def _execute(
        self,
        group_id: str,
        command: Callable[[GroupShard], CoordinatorResult[R]],
        on_done: Callable[[R | BrokerError], None],
    ) -> None:
        def on_outcome(outcome: R | BrokerError) -> None:
            if isinstance(outcome, BrokerError):
                outcome = response_error(outcome)
                logger.info("share group %s is refused: %s", group_id, outcome)
            on_done(outcome)

        self._runtime.execute(group_id, command, on_outcome, exclusive=True, expires=True)


def _keys(group_id: str, partitions: Partitions) -> list[SharePartitionKey]:
    return [
        SharePartitionKey(group_id, topic_id, index)
        for topic_id in sorted(partitions, key=attrgetter("int"))
        for index in sorted(partitions[topic_id])
    ]


def _for_each(
    group_id: str,
    partitions: Partitions,
    ask: Callable[[SharePartitionKey, Callable[[BrokerError | None], None]], None],
    on_done: Callable[[Errors], None],
) -> None:
    """Asks for each partition, and calls back with the errors when all are answered."""
    errors: Errors = {}
    keys = _keys(group_id, partitions)
    if not keys:
        on_done(errors)

    def take(key: SharePartitionKey, error: BrokerError | None) -> None:
        errors[key.topic_id, key.partition] = error
        if len(errors) == len(keys):
            on_done(errors)

    def ask_one(key: SharePartitionKey) -> None:
        try:
            ask(key, partial(take, key))
        except Exception:  # of any kind: it will not call back
            if (key.topic_id, key.partition) not in errors:
                take(key, BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR))
            raise

    do_each(keys, ask_one)


def _where(errors: Errors, holds: Callable[[BrokerError | None], bool]) -> Partitions:
    return _by_topic([each for each, error in errors.items() if holds(error)])


def _by_topic(partitions: Iterable[tuple[UUID, int]]) -> Partitions:
    found: dict[UUID, set[int]] = {}
    for topic_id, index in partitions:
        found.setdefault(topic_id, set()).add(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in found.items()}


def _offset(key: SharePartitionKey, outcome: ShareSummary | BrokerError) -> ShareOffset:
    if isinstance(outcome, BrokerError):
        return ShareOffset(key.topic_id, key.partition, error=outcome)
    return ShareOffset(
        key.topic_id,
        key.partition,
        outcome.start_offset,
        outcome.leader_epoch,
        outcome.delivery_complete_count,
    )
