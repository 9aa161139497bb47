"""`TransactionCoordinator`: the facade that handlers speak to, and the upkeep of time.

Runs commands on the shard of a transactional id, one at a time for each id, fetches producer ids
for commands that need one, and sends markers after every decision. Failures of the log are answered
with the codes that clients know (`response_errors`).
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from odradek.background import do_each
from odradek.clock import Clock
from odradek.config.broker import BrokerConfig
from odradek.coordinator.records.transaction_records import TransactionValue
from odradek.coordinator.regular_expressions import matching_names
from odradek.coordinator.runtime.response_errors import response_error
from odradek.coordinator.runtime.runtime import CoordinatorRuntime
from odradek.coordinator.runtime.shard import CoordinatorResult
from odradek.coordinator.transactions.requests import (
    AddPartitionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListedTransaction,
    ProducerAnswer,
    ProducerIdAndEpoch,
    TransactionFilter,
)
from odradek.coordinator.transactions.shard import TransactionShard
from odradek.coordinator.transactions.writes import OnCodes, TransactionWrites
from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition

logger = logging.getLogger(__name__)

R = TypeVar("R")

NextProducerId = Callable[[Callable[[int | BrokerError], None]], None]
OnAnswer = Callable[[ProducerAnswer], None]
OnCode = Callable[[ErrorCode], None]


class TransactionCoordinator(TransactionWrites):
    """The transactional ids that this broker coordinates. Called on the broker's loop only.

    `transaction_version` is the cluster's version of transactions.
    """

    def __init__(
        self,
        runtime: CoordinatorRuntime[TransactionShard],
        clock: Clock,
        config: BrokerConfig,
        next_producer_id: NextProducerId,
        transaction_version: Callable[[], int],
    ) -> None:
        self._runtime = runtime
        self._clock = clock
        self._config = config
        self._next_producer_id = next_producer_id
        self._transaction_version = transaction_version

    # Producers

    def init_producer_id(self, request: InitProducerIdRequest, on_done: OnAnswer) -> None:
        """InitProducerId with a transactional id."""
        if not request.transactional_id:
            on_done(ProducerAnswer(ErrorCode.INVALID_REQUEST))
            return
        if not 0 < request.timeout_ms <= self._config["transaction.max.timeout.ms"]:
            on_done(ProducerAnswer(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
            return
        self._run_with_id(
            request.transactional_id,
            lambda shard, spare_id: shard.commands.init_producer_id(
                request, self._transaction_version(), self._clock.wall_ms(), spare_id
            ),
            on_done,
        )

    def end(self, request: EndTxnRequest, on_done: OnAnswer) -> None:
        """EndTxn; answered when the decision is stored, before the markers are written."""
        if not request.transactional_id:
            on_done(ProducerAnswer(ErrorCode.INVALID_REQUEST))
            return
        self._run_with_id(
            request.transactional_id,
            lambda shard, spare_id: shard.commands.end(request, self._clock.wall_ms(), spare_id),
            on_done,
        )

    def add_partitions(self, request: AddPartitionsRequest, on_done: OnCode) -> None:
        """AddPartitionsToTxn and AddOffsetsToTxn."""
        if not request.transactional_id:
            on_done(ErrorCode.INVALID_REQUEST)
            return
        self._execute(
            request.transactional_id,
            lambda shard: shard.commands.add_partitions(request, self._clock.wall_ms()),
            lambda outcome: on_done(outcome.code if isinstance(outcome, BrokerError) else outcome),
        )

    def verify_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Sequence[TopicPartition],
    ) -> list[ErrorCode]:
        """AddPartitionsToTxn that only asks: one code for each partition."""
        if not transactional_id:
            return [ErrorCode.INVALID_REQUEST] * len(partitions)
        try:
            commands = self._shard(transactional_id).commands
            return commands.verify_partitions(transactional_id, producer, partitions)
        except BrokerError as error:
            return [error.code] * len(partitions)

    def add_or_verify(
        self, request: AddPartitionsRequest, verify_only: bool, on_done: OnCodes
    ) -> None:
        """See `TransactionWrites`; of ids that this broker coordinates."""
        if verify_only:
            who = (request.transactional_id, request.producer)
            on_done(self.verify_partitions(*who, request.partitions))
        else:
            count = len(request.partitions)
            self.add_partitions(request, lambda code: on_done([code] * count))

    def _run_with_id(
        self,
        transactional_id: str,
        command: Callable[[TransactionShard, int | None], CoordinatorResult[ProducerAnswer | None]],
        on_done: OnAnswer,
        spare_id: int | None = None,
    ) -> None:
        """Runs a command, and again with a new producer id if it needs one."""

        def on_id(outcome: int | BrokerError) -> None:
            if isinstance(outcome, BrokerError):
                on_done(ProducerAnswer(outcome.code))
            else:
                self._run_with_id(transactional_id, command, on_done, outcome)

        def on_outcome(outcome: ProducerAnswer | BrokerError | None) -> None:
            if isinstance(outcome, BrokerError):
                on_done(ProducerAnswer(outcome.code))
            elif outcome is None:
                self._next_producer_id(on_id)
            else:
                on_done(outcome)

        self._execute(
            transactional_id,
            lambda shard: _with_markers(shard, transactional_id, command(shard, spare_id)),
            on_outcome,
        )

    # Time

    def abort_timed_out(self) -> None:
        """Aborts the transactions that are open for too long; called periodically, which also
        repeats refused writes."""
        now_ms = self._clock.wall_ms()
        late = [each for shard in self._runtime.shards() for each in shard.timed_out(now_ms)]
        do_each(late, lambda each: self._abort_timed_out(each, now_ms))

    def _abort_timed_out(self, transactional_id: str, now_ms: int) -> None:
        version = self._transaction_version()

        def on_done(answer: ProducerAnswer) -> None:
            _log_refusal(transactional_id, answer.error_code)

        if not self._runtime.is_busy(transactional_id):
            self._run_with_id(
                transactional_id,
                lambda shard, spare_id: shard.commands.abort_timed_out(
                    transactional_id, version, now_ms, spare_id
                ),
                on_done,
            )

    def expire_ids(self) -> None:
        """Removes the ids that were not used for long; called periodically, which also repeats
        refused writes."""
        now_ms = self._clock.wall_ms()
        expiration_ms = self._config["transactional.id.expiration.ms"]
        silent = [
            each
            for shard in self._runtime.shards()
            for each in shard.commands.expired(now_ms, expiration_ms)
        ]
        try:
            do_each(silent, lambda each: self._expire(each, now_ms, expiration_ms))
        finally:
            self._runtime.flush()

    def _expire(self, transactional_id: str, now_ms: int, expiration_ms: int) -> None:
        def on_done(outcome: BrokerError | None) -> None:
            if outcome is not None:
                _log_refusal(transactional_id, outcome.code)

        if not self._runtime.is_busy(transactional_id):
            self._runtime.execute(
                transactional_id,
                lambda shard: shard.commands.expire(transactional_id, now_ms, expiration_ms),
                on_done,
                linger=True,
                exclusive=True,
            )

    # Administration

    def describe(self, transactional_id: str) -> TransactionValue:
        """DescribeTransactions: one id.

        Raises:
            BrokerError: INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND, or this broker cannot
                answer for the id.
        """
        if not transactional_id:
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        value = self._shard(transactional_id).transactions.get(transactional_id)
        if value is None:
            raise BrokerError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return value

    def list_transactions(
        self, wanted: TransactionFilter, pattern: str | None
    ) -> list[ListedTransaction]:
        """ListTransactions: the ids that are `wanted` and match the pattern as a whole.

        Raises:
            BrokerError: COORDINATOR_LOAD_IN_PROGRESS, the list would not be whole;
                INVALID_REGULAR_EXPRESSION.
        """
        if self._runtime.is_loading:
            raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        now_ms = self._clock.wall_ms()
        found = [
            ListedTransaction(transactional_id, value.producer_id, value.state)
            for shard in self._runtime.shards()
            for transactional_id, value in shard.transactions.items()
            if wanted.admits(value, now_ms)
        ]
        if not pattern:
            return found
        names = matching_names(pattern, [each.transactional_id for each in found])
        return [each for each in found if each.transactional_id in names]

    # The runtime

    def shards(self) -> Iterator[TransactionShard]:
        """The partitions of transactional ids that are coordinated here."""
        return self._runtime.shards()

    def _shard(self, transactional_id: str) -> TransactionShard:
        try:
            return self._runtime.shard(transactional_id)
        except BrokerError as error:
            raise response_error(error) from error

    def _execute(
        self,
        transactional_id: str,
        command: Callable[[TransactionShard], CoordinatorResult[R]],
        on_done: Callable[[R | BrokerError], None],
    ) -> None:
        def on_outcome(outcome: R | BrokerError) -> None:
            on_done(response_error(outcome) if isinstance(outcome, BrokerError) else outcome)

        # While a change of the id is being written the command does not wait for its turn: it is
        # refused.
        is_first = not self._runtime.is_busy(transactional_id)
        self._runtime.execute(transactional_id, command, on_outcome, exclusive=is_first)


def _log_refusal(transactional_id: str, code: ErrorCode) -> None:
    """Logs the refusal of a step that no client has asked for."""
    if code is not ErrorCode.NONE:
        logger.info("transactional id %s: %s", transactional_id, code.name)


def _with_markers(
    shard: TransactionShard, transactional_id: str, result: CoordinatorResult[R]
) -> CoordinatorResult[R]:
    """Sends markers after a command that has decided an end, once that is replayed. If this broker
    has lost the id by then, the new coordinator finds the decision."""
    result.follow_up = partial(shard.send_markers, transactional_id)
    return result
