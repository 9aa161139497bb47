"""`ShareCoordinator`: the share partitions that this broker coordinates, as handlers see them.

Runs commands on the shard of a share partition, one at a time for each. The writes of one turn of
the loop share a batch.
"""

import base64
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from odradek.coordinator.records.record import CoordinatorRecord
from odradek.coordinator.runtime.response_errors import response_error
from odradek.coordinator.runtime.runtime import CoordinatorRuntime
from odradek.coordinator.runtime.shard import CoordinatorResult, Uncommitted
from odradek.coordinator.share.shard import ShareShard
from odradek.errors import BrokerError
from odradek.replication.share.persister import (
    OnPersisted,
    SharePartitionKey,
    SharePersister,
    ShareState,
    ShareSummary,
)

logger = logging.getLogger(__name__)

R = TypeVar("R")


def coordinator_key(key: SharePartitionKey) -> str:
    """The name by which a share partition's coordinator is found, as Kafka writes it."""
    topic_id = base64.urlsafe_b64encode(key.topic_id.bytes).decode().rstrip("=")
    return f"{key.group_id}:{topic_id}:{key.partition}"


class ShareCoordinator(SharePersister):
    """See the module; `defer` runs something at the loop's next turn, `delete_before` cuts off the
    head of a partition of the topic, `end_of` returns its end offset."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[ShareShard],
        defer: Callable[[Callable[[], None]], None],
        end_of: Callable[[int], int],
        delete_before: Callable[[int, int], None],
    ) -> None:
        self.runtime = runtime
        self._defer = defer
        self._end_of = end_of
        self._delete_before = delete_before
        self._will_flush = False

    # Requests

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, on_done: OnPersisted
    ) -> None:
        """InitializeShareGroupState: one partition."""
        self._execute(key, lambda shard: shard.initialize(key, state_epoch, start_offset), on_done)

    def write(
        self, key: SharePartitionKey, leader_epoch: int, state: ShareState, on_done: OnPersisted
    ) -> None:
        """WriteShareGroupState: one partition."""
        self._execute(key, lambda shard: shard.write(key, leader_epoch, state), on_done)

    def delete(self, key: SharePartitionKey, on_done: OnPersisted) -> None:
        """DeleteShareGroupState: one partition."""
        self._execute(key, lambda shard: shard.delete(key), on_done)

    def read(
        self,
        key: SharePartitionKey,
        leader_epoch: int,
        on_done: Callable[[ShareState | BrokerError], None],
    ) -> None:
        """ReadShareGroupState: one partition."""
        self._execute(key, lambda shard: shard.read(key, leader_epoch), on_done)

    def summarize(
        self,
        key: SharePartitionKey,
        leader_epoch: int,
        on_done: Callable[[ShareSummary | BrokerError], None],
    ) -> None:
        """ReadShareGroupStateSummary: one partition."""
        self._execute(
            key,
            lambda shard: CoordinatorResult((), shard.summarize(key, leader_epoch)),
            on_done,
        )

    def _execute(
        self,
        key: SharePartitionKey,
        command: Callable[[ShareShard], CoordinatorResult[R]],
        on_done: Callable[[R | BrokerError], None],
    ) -> None:
        refusals: list[BrokerError] = []

        def run(shard: ShareShard) -> CoordinatorResult[R]:
            try:
                return command(shard)
            except BrokerError as error:
                refusals.append(error)
                raise

        def on_outcome(outcome: R | BrokerError) -> None:
            # Errors of the state go to the caller as they are, those of the log are translated.
            is_the_logs = isinstance(outcome, BrokerError) and outcome not in refusals
            on_done(response_error(outcome) if is_the_logs else outcome)  # type: ignore[arg-type]

        self.runtime.execute(
            coordinator_key(key), run, on_outcome, linger=True, exclusive=True, expires=True
        )
        if not self._will_flush:
            self._will_flush = True
            self._defer(self._flush)

    def _flush(self) -> None:
        self._will_flush = False
        self.runtime.flush()

    # Upkeep

    def prune(self) -> None:
        """Cuts off the part of the log that is not needed; called from time to time. States that
        have been quiet since the last time are stored anew, so that older records can go."""
        self.runtime.sweep(self._pruned, _log_refusal)

    def _pruned(
        self, shard: ShareShard, uncommitted: Uncommitted
    ) -> Iterator[Sequence[CoordinatorRecord]]:
        if shard.needed_offset:
            self._delete_before(shard.partition, shard.needed_offset)
        # Uncommitted records lie before the end, but would count as written after it.
        if next(uncommitted(), None) is None:
            shard.mark(self._end_of(shard.partition))
        yield from shard.refresh(uncommitted)

    def forget_topics(self) -> None:
        """Deletes the states of deleted topics."""
        self.runtime.sweep(_forgotten, _log_refusal)


def _forgotten(
    shard: ShareShard, _uncommitted: Uncommitted
) -> Iterator[Sequence[CoordinatorRecord]]:
    return shard.forget_topics()


def _log_refusal(error: Exception) -> None:
    logger.info("states of share groups are tidied up later: %s", error)
