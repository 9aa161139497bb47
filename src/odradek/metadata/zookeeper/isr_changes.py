"""`IsrChanges`: sends the ISR changes of this broker's leaders to the controller.

One request is under way at a time, with all changes since the last one. A leader keeps its proposal
open until the outcome is known: a request without an answer is repeated, to the controller of that
time, and at once when another one is elected, since the earlier one may hang.
INVALID_UPDATE_VERSION is no outcome either, for the change may have been overtaken by itself; the
outcome is the state that the controller sends, which the leader waits for. Only a refusal that
means that nothing was done, and that a repetition is useless, ends a proposal.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.control import AlterPartition
from odradek.metadata.engine import BrokerView
from odradek.metadata.image import PartitionImage
from odradek.metadata.store import OnDone, PartitionChange
from odradek.metadata.zookeeper.membership import Membership
from odradek.timer import Timer, TimerTask

RETRY_MS: Final = 50
_OVERTAKEN: Final = (
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.FENCED_LEADER_EPOCH,
)
_NOT_TO_BE_DONE: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INELIGIBLE_REPLICA,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
    ErrorCode.INVALID_REQUEST,
)


class _Question(NamedTuple):
    change: PartitionChange
    topic_id: UUID | None
    leader_epoch: int
    on_done: OnDone[PartitionImage]


class IsrChanges:
    """Asks for the broker of `membership`."""

    def __init__(
        self,
        membership: Membership,
        timer: Timer,
        view: BrokerView,
        *,
        ask: Callable[[AlterPartition, OnDone[list[PartitionImage | BrokerError]]], None],
        on_answer: Callable[[PartitionChange, PartitionImage, Callable[[], None]], None],
    ) -> None:
        """`ask` sends a request to the current controller, `on_answer` publishes an outcome and
        calls back."""
        self._membership: Final = membership
        self._timer: Final = timer
        self._view: Final = view
        self._ask_controller: Final = ask
        self._on_answer: Final = on_answer
        self._waiting: list[_Question] = []
        self._asked: list[_Question] = []
        self._asked_epoch = 0
        self._overtaken: list[_Question] = []
        self._retry = self._retrial()
        view.follow(lambda _: self._on_published())

    def submit(
        self,
        wanted: Sequence[PartitionChange],
        on_done: OnDone[list[PartitionImage | BrokerError]],
    ) -> None:
        """Requests other in-sync replicas of partitions that this broker leads."""
        results: dict[int, PartitionImage | BrokerError] = {}

        def on_each(index: int, outcome: PartitionImage | BrokerError) -> None:
            results[index] = outcome
            if len(results) == len(wanted):
                on_done([results[each] for each in range(len(wanted))])

        for index, change in enumerate(wanted):
            topic = self._view.image.topic(change.topic_partition.topic)
            topic_id = None if topic is None else topic.topic_id
            partition = self._view.image.partition(change.topic_partition)
            epoch = -1 if partition is None else partition.leader_epoch
            self._waiting.append(_Question(change, topic_id, epoch, partial(on_each, index)))
        self._ask()

    def lose(self) -> None:
        """Ends the session: this broker leads nothing any more."""
        self._retry.cancel()
        given_up = [*self._asked, *self._waiting, *self._overtaken]
        self._asked, self._waiting, self._overtaken = [], [], []
        for question in given_up:
            question.on_done(BrokerError(ErrorCode.NOT_CONTROLLER))

    def _ask(self) -> None:
        if self._asked or not self._waiting or self._retry.is_pending:
            return
        past: list[_Question] = []
        asked: list[_Question] = []
        for question in self._waiting:
            (past if self._is_past(question) else asked).append(question)
        self._asked, self._waiting = asked, []
        self._asked_epoch = self._view.image.controller_epoch
        for question in past:
            question.on_done(BrokerError(ErrorCode.UNKNOWN_TOPIC_ID))
        if not asked:
            return
        request = AlterPartition(
            self._membership.broker_id,
            self._membership.epoch,
            [question.change for question in asked],
            [question.leader_epoch for question in asked],
        )

        def on_done(outcome: list[PartitionImage | BrokerError] | BrokerError) -> None:
            if self._asked is not asked:
                return  # the session has ended meanwhile, or there is another controller
            if isinstance(outcome, BrokerError):
                # No controller answers, or the broker is not the controller, or not yet.
                self._take_back()
                self._ask_again()
                return
            self._asked = []
            for question, each in zip(asked, outcome, strict=True):
                self._settle(question, each)
            self._ask()

        self._ask_controller(request, on_done)

    def _take_back(self) -> None:
        """Puts the unanswered changes back into the queue."""
        self._asked, self._waiting = [], self._asked + self._waiting

    def _on_published(self) -> None:
        self._answer_overtaken()
        if self._asked and self._view.image.controller_epoch != self._asked_epoch:
            self._take_back()
            self._ask()

    def _is_past(self, question: _Question) -> bool:
        """Whether another topic has the name: its epochs start again, and no controller can
        distinguish a request about the earlier topic from one about states that it does not know
        yet."""
        topic = self._view.image.topic(question.change.topic_partition.topic)
        return topic is not None and topic.topic_id != question.topic_id

    def _answer_overtaken(self) -> None:
        """Answers overtaken requests with the current state."""
        still = []
        for question in self._overtaken:
            partition = self._view.image.partition(question.change.topic_partition)
            if (
                partition is None
                or partition.partition_epoch > question.change.partition_epoch
                or self._is_past(question)
            ):
                question.on_done(BrokerError(ErrorCode.INVALID_UPDATE_VERSION))
            else:
                still.append(question)
        self._overtaken = still

    def _settle(self, question: _Question, outcome: PartitionImage | BrokerError) -> None:
        if isinstance(outcome, PartitionImage):
            self._on_answer(question.change, outcome, lambda: question.on_done(outcome))
        elif outcome.code in _OVERTAKEN:
            self._overtaken.append(question)
            self._answer_overtaken()
        elif outcome.code in _NOT_TO_BE_DONE:
            question.on_done(outcome)
        else:
            # NOT_CONTROLLER: it has not seen the state that this is about. KAFKA_STORAGE_ERROR:
            # ZooKeeper has refused to write it. After any other error the outcome is unknown.
            self._waiting.append(question)
            self._ask_again()

    def _ask_again(self) -> None:
        if not self._retry.is_pending:
            self._retry = self._retrial()
            self._timer.add(self._retry)

    def _retrial(self) -> TimerTask:
        return TimerTask(RETRY_MS, lambda: self._view.attempt(self._ask))
