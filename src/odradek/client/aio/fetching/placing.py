"""Finds the positions of partitions: a requested offset, the committed one, or the policy's; and
checks that the current leader still has the records read before."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final
from uuid import UUID

from odradek.client.aio.cluster import ClusterClient
from odradek.client.aio.offsets import ask_epoch_ends, list_offsets
from odradek.client.core.admin_types import CommittedOffset
from odradek.client.core.consuming.list_offsets import READ_COMMITTED, READ_UNCOMMITTED, Answers
from odradek.client.core.consuming.positions import (
    EpochEnd,
    Fetched,
    PartitionPosition,
    Positions,
)
from odradek.client.core.consuming.reset_policy import ResetPolicy
from odradek.client.core.metadata import ClusterMetadata
from odradek.client.errors import KafkaError, LogTruncated, NoOffsetForPartition, OffsetOutOfRange
from odradek.errors import ErrorCode
from odradek.model import NO_LEADER_EPOCH, TopicPartition

_LOGGER: Final = logging.getLogger(__name__)
Committed = Callable[[list[TopicPartition]], Awaitable[dict[TopicPartition, CommittedOffset]]]


class Placing:
    """Belongs to one consumer. `committed` looks up the offsets of its group, if it has one.

    `on_placed` gets partitions that can be fetched, `on_error` a leader's error about one,
    `tell_reader` errors that only the reader can decide about.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        positions: Positions,
        reset_policy: ResetPolicy,
        committed: Committed | None,
        *,
        on_placed: Callable[[Iterable[TopicPartition]], None],
        on_error: Callable[[TopicPartition, PartitionPosition, KafkaError], None],
        tell_reader: Callable[[KafkaError], None],
    ) -> None:
        self._cluster = cluster
        self._positions = positions
        self._reset_policy = reset_policy
        self._committed = committed
        self._on_placed = on_placed
        self._on_error = on_error
        self._tell_reader = tell_reader

    async def place(self, unplaced: list[TopicPartition]) -> None:
        """Finds positions: a requested offset, else the committed one, else the policy's."""
        states = {each: state for each in unplaced if (state := self._positions.get(each))}
        fresh = {each: state for each, state in states.items() if state.reset is None}
        if fresh and self._committed is not None:
            topics = self._cluster.metadata
            try:
                found = await self._committed(list(fresh))
            except KafkaError as error:
                are_here = all(self._positions.get(each) is fresh[each] for each in fresh)
                if error.retriable or are_here:
                    raise
                return  # it may be of one that is not assigned any more: the others ask again
            # Those of recreated topics are asked for again.
            fresh = {each: fresh[each] for each in fresh if not self._is_recreated(topics, each)}
            for partition, committed in found.items():
                state = self._positions.get(partition)
                # A partition that went and came back meanwhile may have other commits by now.
                if state is None or state is not fresh.get(partition):
                    continue
                if state.position is None and state.reset is None:
                    state.seek(committed.offset, committed.leader_epoch)
                    state.topic_id = self._id_of(topics, partition)
        unknown = {
            each: self._state(each) for each in self._positions.unplaced() if each in unplaced
        }
        left = {
            each: known
            for each, known in unknown.items()
            if known.reset is not None or known is fresh.get(each)
        }
        self._on_placed(set(unplaced) - left.keys())
        questions = {each: self._reset_of(each) for each in left}
        if questions:
            await self._reset(questions, left)

    def _state(self, partition: TopicPartition) -> PartitionPosition:
        state = self._positions.get(partition)
        assert state is not None, f"{partition} is not assigned"
        return state

    def _reset_of(self, partition: TopicPartition) -> int:
        asked = self._state(partition).reset
        if asked is not None:
            return asked
        timestamp = self._reset_policy.question(self._cluster.clock.wall_ms())
        if timestamp is None:
            raise NoOffsetForPartition(
                f"{partition} has no committed offset, and auto.offset.reset is none",
                ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        return timestamp

    async def _reset(
        self,
        questions: dict[TopicPartition, int],
        states: dict[TopicPartition, PartitionPosition],
    ) -> None:
        settings = self._cluster.settings
        is_committed_only = settings.text("isolation.level").lower() == "read_committed"
        level = READ_COMMITTED if is_committed_only else READ_UNCOMMITTED
        failures: dict[TopicPartition, KafkaError] = {}
        topics = self._cluster.metadata
        seeks = {each: state.seeks for each, state in states.items()}

        def is_asked(partition: TopicPartition) -> bool:
            state = states[partition]
            # One that came back meanwhile begins with what the group has committed by now.
            is_here = self._positions.get(partition) is state
            # Nor is this the end for one who has gone to the end again: it may be another.
            return (
                is_here
                and state.seeks == seeks[partition]
                and not self._is_recreated(topics, partition)
            )

        def tell(answers: Answers) -> None:
            for partition, answer in answers.items():
                state = states[partition]
                if isinstance(answer, KafkaError):
                    failures[partition] = answer
                elif not is_asked(partition):
                    continue
                elif answer.offset >= 0:
                    state.seek(answer.offset, answer.leader_epoch)
                    state.validated_epoch = self._leader_epoch(partition)
                    state.topic_id = self._id_of(topics, partition)
                else:
                    state.seek_by(-1)  # no record is that young: the end
            self._on_placed(
                each
                for each, answer in answers.items()
                if not isinstance(answer, KafkaError) or not is_asked(each)
            )

        await list_offsets(self._cluster, questions, level, tell)
        # Nobody is told of the others: the partition may be another's.
        told = [error for each, error in failures.items() if is_asked(each)]
        if told:
            raise next((each for each in told if not each.retriable), told[0])

    def _is_recreated(self, before: ClusterMetadata, partition: TopicPartition) -> bool:
        """Whether the topic of a partition is another by now: an offset of the one that was asked
        about would skip records of it."""
        topic = partition.topic
        return self._cluster.metadata.has_other(topic, before.topic_id(topic))

    def _id_of(self, before: ClusterMetadata, partition: TopicPartition) -> UUID | None:
        """The topic that a position is in: none of another that comes before it is fetched from."""
        topic = partition.topic
        return before.topic_id(topic) or self._cluster.metadata.topic_id(topic)

    def _leader_epoch(self, partition: TopicPartition) -> int:
        known = self._cluster.metadata.partition(partition)
        return NO_LEADER_EPOCH if known is None else known.leader_epoch

    # --- whether the leader has the read records (KIP-320) ----------------------------------

    async def validate(self, node_id: int, asked: dict[TopicPartition, Fetched]) -> None:
        """Asks a leader of a newer epoch where the last read record's epoch ends in its log."""
        answers = await ask_epoch_ends(self._cluster, node_id, asked)
        for partition, answer in answers.items():
            state = self._positions.get(partition)
            fetched = asked[partition]
            # One that was moved by `seek` meanwhile is asked for again, if an epoch came with it.
            if state is None or fetched[:2] != (state.fetch_offset, state.fetch_leader_epoch):
                continue
            if isinstance(answer, KafkaError):
                self._on_error(partition, state, answer)
            elif answer is None or (answer.leader_epoch >= 0 and fetched.offset <= answer.offset):
                state.validated_epoch = fetched.validator
            else:
                self._on_truncated(partition, state, answer)

    def _on_truncated(
        self, partition: TopicPartition, state: PartitionPosition, end: EpochEnd
    ) -> None:
        """Handles truncation: the log has lost fetched records, and perhaps even returned ones."""
        state.drop_fetched()
        assert state.position is not None, "something was fetched"
        is_known = end.leader_epoch >= 0 and end.offset >= 0
        if is_known and state.position <= end.offset:
            return
        if self._reset_policy.question(0) is None:
            self._tell_reader(LogTruncated(partition, end.offset))
        elif not is_known:
            self.begin_anew(state, f"it is unknown where the log of {partition} was cut off")
        else:
            _LOGGER.warning(
                "the log of %s was truncated at %d: reading continues there instead of at %d",
                partition,
                end.offset,
                state.position,
            )
            state.seek(end.offset, end.leader_epoch)

    def begin_anew(self, state: PartitionPosition, reason: str) -> None:
        """Moves to the policy's position, or leaves an error for the reader without a policy."""
        question = self._reset_policy.question(self._cluster.clock.wall_ms())
        if question is None:
            text = f"{reason}, and auto.offset.reset is none"
            self._tell_reader(OffsetOutOfRange(text, ErrorCode.OFFSET_OUT_OF_RANGE))
            return
        _LOGGER.info("%s: reset", reason)
        state.seek_by(question)
