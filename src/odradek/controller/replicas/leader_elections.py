"""`LeaderElections`: elects leaders, and gives leaderships away or back, on request."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from odradek.background import note_refusals
from odradek.config import BrokerConfig
from odradek.controller.answers import (
    all_partitions,
    election_result,
    in_request_order,
    one_each,
    plan_each,
    time_left,
    was_needed,
)
from odradek.controller.delayed_operations import DelayedElectLeader, TopicKey
from odradek.controller.replicas.elections import (
    plan_balance,
    plan_controlled_shutdown,
    plan_election,
)
from odradek.controller.results import ElectionResult, ElectionType
from odradek.controller.slices import Defer, OnSlice, slice_by_slice
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import PartitionImage
from odradek.metadata.store import MetadataStore, OnDone, PartitionChange
from odradek.model import TopicPartition
from odradek.purgatory import DelayedOperationPurgatory

logger = logging.getLogger(__name__)


class LeaderElections:
    """Carried out by `store`, for the broker `broker_id`; waiting requests are in `purgatory`."""

    def __init__(
        self,
        store: MetadataStore,
        cache: MetadataCache,
        config: BrokerConfig,
        broker_id: int,
        purgatory: DelayedOperationPurgatory,
    ) -> None:
        self._store: Final = store
        self._cache: Final = cache
        self._config: Final = config
        self._broker_id: Final = broker_id
        self._purgatory: Final = purgatory

    def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Sequence[TopicPartition] | None,
        timeout_ms: int,
        on_done: Callable[[list[ElectionResult]], None],
        *,
        defer: Defer | None = None,
    ) -> None:
        """Elects leaders; for all partitions (None) only those that needed an election are
        answered."""
        left_ms = time_left(self._purgatory.timer, timeout_ms)

        def elect(some: Sequence[TopicPartition], on_some: OnSlice[ElectionResult]) -> None:
            image = self._cache.image
            plans = plan_each(
                some, lambda tp: plan_election(image, tp, election_type), lambda tp: tp
            )
            accepted = [plan for plan in plans if isinstance(plan, PartitionChange)]

            def on_elected(outcomes: list[PartitionImage | BrokerError]) -> None:
                rest = in_request_order(plans, outcomes)
                results = [election_result(*pair) for pair in zip(some, rest, strict=True)]
                on_some([each for each in results if partitions is not None or was_needed(each)])

            if accepted:
                self._elect(accepted, left_ms(), on_elected)
            else:
                on_elected([])

        every = all_partitions(self._cache.image) if partitions is None else partitions
        slice_by_slice(list(dict.fromkeys(every)), elect, on_done, defer, self._store.sync)

    def hand_over(self, on_done: OnDone[None]) -> None:
        """Gives this broker's leaderships to in-sync replicas, and leaves every ISR that has
        another member: the broker is about to stop."""
        changes = plan_controlled_shutdown(self._cache.image, self._broker_id)
        if changes:
            self._store.change_partitions(changes, lambda _: on_done(None))
        else:
            on_done(None)

    def balance_leaders(self) -> None:
        """Gives leaderships back to preferred replicas, while this broker is the controller and
        where the imbalance is larger than `leader.imbalance.per.broker.percentage`."""
        image = self._cache.image
        if image.controller_id == self._broker_id:
            allowed: int = self._config["leader.imbalance.per.broker.percentage"]
            changes = plan_balance(image, allowed)
            if changes:
                logger.info("leaderships go back to preferred replicas: %d", len(changes))
                self._store.change_partitions(changes, partial(_note_refusals, len(changes)))

    def _elect(
        self,
        changes: Sequence[PartitionChange],
        timeout_ms: int,
        on_done: Callable[[list[PartitionImage | BrokerError]], None],
    ) -> None:
        """Stores an election, and answers when the chosen replicas lead: the outcome of each
        partition, REQUEST_TIMED_OUT if that is not so, or not known, in time."""
        timed_out = BrokerError(ErrorCode.REQUEST_TIMED_OUT)
        outcomes: list[PartitionImage | BrokerError] = [timed_out] * len(changes)

        def on_elected(late: frozenset[TopicPartition]) -> None:
            on_done(
                [
                    timed_out if change.topic_partition in late else each
                    for change, each in zip(changes, outcomes, strict=True)
                ]
            )

        operation = DelayedElectLeader(timeout_ms, self._cache, on_elected)

        def on_stored(outcome: list[PartitionImage | BrokerError] | BrokerError) -> None:
            if not operation.is_completed:
                outcomes[:] = one_each(outcome, len(changes))
                both = zip(changes, outcomes, strict=True)
                chosen = [change for change, each in both if isinstance(each, PartitionImage)]
                operation.on_stored({each.topic_partition: each.leader for each in chosen})

        self._store.change_partitions(changes, on_stored)
        keys = [
            TopicKey(name) for name in dict.fromkeys(each.topic_partition.topic for each in changes)
        ]
        self._purgatory.try_complete_else_watch(operation, keys)


def _note_refusals(count: int, outcome: list[PartitionImage | BrokerError] | BrokerError) -> None:
    """Logs the refusals: those leaderships go back with the next round."""
    outcomes = one_each(outcome, count)
    note_refusals("leaderships that go back later", outcomes)
