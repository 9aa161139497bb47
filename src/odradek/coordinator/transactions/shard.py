"""`TransactionShard`: the transactional ids of one partition of `__transaction_state`.

Holds the values, which records replace, and the markers that are on their way because of them.
"""

import logging
from collections.abc import Callable
from typing import cast

from odradek.background import do_each
from odradek.clock import Clock
from odradek.coordinator.records.record import CoordinatorRecord
from odradek.coordinator.records.transaction_records import (
    TransactionKey,
    TransactionState,
    TransactionValue,
)
from odradek.coordinator.runtime.partition_writer import OnCommitted
from odradek.coordinator.runtime.shard import Append, CoordinatorShard
from odradek.coordinator.transactions.commands import TransactionCommands
from odradek.coordinator.transactions.markers import MarkerSender, MarkerWriter
from odradek.coordinator.transactions.states import is_prepared
from odradek.coordinator.transactions.transaction import is_timed_out
from odradek.purgatory import DelayedOperationPurgatory

logger = logging.getLogger(__name__)


class TransactionServices:
    """Services that transactional ids need, one for all partitions of a broker.

    `defer` runs something at the loop's next turn.
    """

    def __init__(
        self,
        writer: MarkerWriter,
        markers: DelayedOperationPurgatory,
        defer: Callable[[Callable[[], None]], None],
        clock: Clock,
    ) -> None:
        self.writer = writer
        self.markers = markers
        self.defer = defer
        self.clock = clock


class TransactionShard(CoordinatorShard):
    """One partition's transactional ids. Called on the broker's loop only.

    `ongoing` are those with an open transaction, so that time-outs need not look at all ids;
    `is_changing` says whether a change of an id is being written.
    """

    def __init__(
        self,
        partition: int,
        coordinator_epoch: int,
        services: TransactionServices,
        append: Append,
        is_changing: Callable[[str], bool],
    ) -> None:
        self.partition = partition
        self.transactions: dict[str, TransactionValue] = {}
        self.ongoing: set[str] = set()
        self.commands = TransactionCommands(self.transactions, is_changing)
        self._services = services
        self._append = append
        self._is_led = True
        self._markers = MarkerSender(
            coordinator_epoch, services.writer, services.markers, self._complete
        )

    def replay(self, record: CoordinatorRecord, producer_id: int) -> None:  # noqa: ARG002
        """See `CoordinatorShard`."""
        transactional_id = cast(TransactionKey, record.key).transactional_id
        value = cast(TransactionValue | None, record.value)
        self.ongoing.discard(transactional_id)
        if value is None or value.state is TransactionState.DEAD:
            self.transactions.pop(transactional_id, None)
            return
        if value.state is TransactionState.PREPARE_EPOCH_FENCE:
            # This state is never written. Its transaction is open, so the time-out has to end it.
            logger.warning("transactional id %s is stored as being fenced", transactional_id)
            value = value._replace(state=TransactionState.ONGOING)
        self.transactions[transactional_id] = value
        if value.state is TransactionState.ONGOING:
            self.ongoing.add(transactional_id)

    def on_loaded(self) -> None:
        """Continues with decided transactions, once the metadata change is complete."""
        prepared = [
            transactional_id
            for transactional_id, value in self.transactions.items()
            if is_prepared(value.state)
        ]
        if prepared:
            self._services.defer(lambda: self._send_all(prepared))

    def on_unloaded(self) -> None:
        """See `CoordinatorShard`."""
        self._is_led = False
        self._markers.drop_all()

    def send_markers(self, transactional_id: str) -> None:
        """Sends the markers of an id, if the end of its transaction is decided."""
        value = self.transactions.get(transactional_id)
        if value is not None and is_prepared(value.state) and self._is_led:
            self._markers.send(transactional_id, value)

    def _complete(self, transactional_id: str, on_committed: OnCommitted) -> None:
        """Writes the last record. Not a command: no command changes an id between its decision and
        this."""
        record = self.commands.completed(transactional_id, self._services.clock.wall_ms())
        self._append([record], on_committed, None)

    def timed_out(self, now_ms: int) -> list[str]:
        """The ids whose transactions have been open for too long."""
        return [each for each in self.ongoing if is_timed_out(self.transactions[each], now_ms)]

    def _send_all(self, transactional_ids: list[str]) -> None:
        do_each(transactional_ids, self.send_markers)
