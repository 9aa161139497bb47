"""`ControllerEventQueue`: the changes that a controller makes, in the queue of its broker's engine.

A change is committed by writing the partition states to ZooKeeper. States that another controller
has written meanwhile are refused there, and are neither acted on, published nor answered as done.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, TypeVar

from odradek.background import note_refusal, note_refusals
from odradek.controller.answers import one_each
from odradek.controller.elected.context import ControllerContext
from odradek.controller.elected.image_changes import with_partitions, without_refused
from odradek.controller.elected.state_writer import Refused, StateWriter
from odradek.controller.slices import SLICE_ITEMS
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.changes import Change
from odradek.metadata.engine import BrokerView, OnCommitted, Plan
from odradek.metadata.image import MetadataImage, PartitionImage
from odradek.metadata.store import OnDone, PartitionChange
from odradek.model import TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")
Settle = Callable[[Change[T], Refused], T]
"""Makes the answer where some partitions could not be written."""

_UNWRITTEN: Final = (ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.KAFKA_STORAGE_ERROR)


class ControllerEventQueue:
    """Belongs to the controller of `context`. `on_refused` hears of partitions whose states could
    not be written, `on_done` that a change has been dealt with."""

    def __init__(
        self,
        context: ControllerContext,
        view: BrokerView,
        writer: StateWriter,
        on_refused: Callable[[Collection[TopicPartition]], None],
        on_done: Callable[[], None],
    ) -> None:
        self._context: Final = context
        self._view: Final = view
        self._writer: Final = writer
        self._on_refused: Final = on_refused
        self._on_done: Final = on_done
        self._count = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be done and nothing is under way."""
        return not self._count

    def submit(
        self,
        plan: Plan[T],
        on_done: OnDone[T] | None = None,
        settle: Settle[T] | None = None,
        *,
        is_written: bool = False,
    ) -> None:
        """Makes a change when its turn has come; one that was read from ZooKeeper `is_written`
        already. NOT_CONTROLLER when another controller has been elected by then. Without `on_done`
        a refusal is logged; partitions that could not be written go to `on_refused` besides."""
        refused: dict[TopicPartition, ErrorCode] = {}

        def plan_elected(image: MetadataImage) -> Change[T]:
            if not self._context.is_open:
                raise BrokerError(ErrorCode.NOT_CONTROLLER)
            return plan(image)

        def commit(change: Change[Any], on_committed: OnCommitted) -> None:
            def on_written(found: Refused) -> None:
                refused.update(found)
                on_committed(_without(change, found, settle))

            if change.delta is None:
                on_committed(change)
            else:
                self._writer.write(change.delta, on_written)

        def answer(outcome: T | BrokerError) -> None:
            self._count -= 1
            if refused and self._context.is_open:
                self._on_refused(refused)
            if on_done is not None:
                on_done(outcome)
            elif self._context.is_open:
                note_refusal("a change of the controller is not made", outcome)
            if self._context.is_open:
                self._on_done()

        self._count += 1
        self._view.submit(plan_elected, answer, None if is_written else commit)

    def change_each(
        self,
        partitions: Collection[TopicPartition],
        plan: Callable[[MetadataImage, TopicPartition], PartitionChange | None],
        on_unwritten: Callable[[Collection[TopicPartition]], None] | None = None,
    ) -> None:
        """Changes partitions by `plan`, and skips those for which it raises a BrokerError;
        `on_unwritten` gets those that could not be written. Many are several changes, one behind
        the other."""
        wanted = list(partitions)
        for start in range(0, max(1, len(wanted)), SLICE_ITEMS):
            self._change_some(wanted[start : start + SLICE_ITEMS], plan, on_unwritten)

    def _change_some(
        self,
        partitions: Iterable[TopicPartition],
        plan: Callable[[MetadataImage, TopicPartition], PartitionChange | None],
        on_unwritten: Callable[[Collection[TopicPartition]], None] | None,
    ) -> None:
        planned: list[PartitionChange] = []

        def prepare(image: MetadataImage) -> Change[list[PartitionImage | BrokerError]]:
            for each in partitions:
                try:
                    change = plan(image, each)
                except BrokerError as error:
                    logger.info("%s is ignored: %s", each, error)
                    continue
                if change is not None:
                    planned.append(change)
            return with_partitions(image, planned, self._context.broker_id)

        def on_done(outcome: list[PartitionImage | BrokerError] | BrokerError) -> None:
            refused = [
                (change.topic_partition, each)
                for change, each in zip(planned, one_each(outcome, len(planned)), strict=True)
                if isinstance(each, BrokerError)
            ]
            if on_unwritten is not None:
                on_unwritten([each for each, error in refused if error.code in _UNWRITTEN])
            elif self._context.is_open:
                note_refusals("partitions that are not changed", [error for _, error in refused])

        self.submit(prepare, on_done, with_refusals(planned))

    def refuse_all(self) -> None:
        """Another controller has been elected; waiting changes are answered with NOT_CONTROLLER."""
        self._view.engine.refuse_commits(BrokerError(ErrorCode.NOT_CONTROLLER))


def with_refusals(wanted: Sequence[PartitionChange]) -> Settle[list[PartitionImage | BrokerError]]:
    """Makes the answer of `changes.change_partitions`: an error for each that was not written."""
    return lambda change, refused: [
        BrokerError(refused[each.topic_partition]) if each.topic_partition in refused else outcome
        for each, outcome in zip(wanted, change.result, strict=True)
    ]


def _without(change: Change[T], refused: Refused, settle: Settle[T] | None) -> Change[T]:
    if not refused or change.delta is None:
        return change
    result = change.result if settle is None else settle(change, refused)
    return Change(result, without_refused(change.delta, refused))
