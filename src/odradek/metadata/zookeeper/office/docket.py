"""`Docket`: the changes that a controller has to make, one after the other.

Each is worked out on the image that the one before it left, written to ZooKeeper, and published.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.changes import Change
from odradek.metadata.image import MetadataImage
from odradek.metadata.store import OnDone
from odradek.metadata.zookeeper.office.readings import rebased
from odradek.metadata.zookeeper.office.term import Term
from odradek.metadata.zookeeper.office.writing import StateWriter
from odradek.metadata.zookeeper.publishing import ImagePublisher
from odradek.model import TopicPartition

T = TypeVar("T")


def nobody_waits(outcome: object) -> None:
    """For a change that is answered to nobody; the watches tell what came of it."""


class Docket:
    """That of `term`. `on_refused` hears of partitions that turned out to be in another state,
    `on_done` that a change has been dealt with."""

    def __init__(
        self,
        term: Term,
        publisher: ImagePublisher,
        writer: StateWriter,
        on_refused: Callable[[set[TopicPartition]], None],
        on_done: Callable[[], None],
    ) -> None:
        self._term: Final = term
        self._publisher: Final = publisher
        self._writer: Final = writer
        self._on_refused: Final = on_refused
        self._on_done: Final = on_done
        self._queue: Final[deque[tuple[Callable[[], None], Callable[[BrokerError], None]]]] = (
            deque()
        )
        self._busy = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be done and nothing is under way."""
        return not self._busy and not self._queue

    def submit(
        self,
        prepare: Callable[[MetadataImage], Change[T]],
        on_done: OnDone[T] = nobody_waits,
        settle: Callable[[Change[T], set[TopicPartition]], T] | None = None,
        *,
        is_written: bool = False,
    ) -> None:
        """Works a change out when its turn has come, writes it unless it comes from ZooKeeper,
        publishes it and answers. `settle` makes the answer where some partitions could not be
        written."""
        begin = partial(self._begin, prepare, on_done, settle, is_written=is_written)
        self._queue.append((begin, on_done))
        self._drain()

    def refuse_all(self) -> None:
        """The term is over; who waits hears of it."""
        waiting = list(self._queue)
        self._queue.clear()
        for _, refuse in waiting:
            refuse(BrokerError(ErrorCode.NOT_CONTROLLER))

    def _drain(self) -> None:
        while self._queue and not self._busy and self._term.is_open:
            self._busy = True
            begin, _ = self._queue.popleft()
            begin()

    def _begin(
        self,
        prepare: Callable[[MetadataImage], Change[T]],
        on_done: OnDone[T],
        settle: Callable[[Change[T], set[TopicPartition]], T] | None,
        *,
        is_written: bool,
    ) -> None:
        # In the publisher's turn: the image must be what listeners have acted on.
        def work_out(image: MetadataImage) -> None:
            if not self._term.is_open:
                on_done(BrokerError(ErrorCode.NOT_CONTROLLER))
                return
            try:
                change = prepare(image)
            except BrokerError as error:
                self._end(partial(on_done, error))
                return
            if change.delta is None:
                self._end(lambda: on_done(change.result))
            elif is_written:
                self._written(change, set(), on_done, settle)
            else:
                self._writer.write(
                    change.delta, lambda refused: self._written(change, refused, on_done, settle)
                )

        self._publisher.publish(work_out)

    def _written(
        self,
        change: Change[T],
        refused: set[TopicPartition],
        on_done: OnDone[T],
        settle: Callable[[Change[T], set[TopicPartition]], T] | None,
    ) -> None:
        assert change.delta is not None, "something was written"
        delta = change.delta
        if not self._term.is_open:
            on_done(BrokerError(ErrorCode.NOT_CONTROLLER))
            return
        result = change.result if settle is None or not refused else settle(change, refused)

        def on_published() -> None:
            if refused:
                self._on_refused(refused)
            self._end(lambda: on_done(result))

        self._publisher.publish(lambda image: rebased(delta, image, refused), on_published)

    def _end(self, answer: Callable[[], None]) -> None:
        self._busy = False
        answer()
        self._on_done()
        self._drain()
