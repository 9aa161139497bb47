"""Steps that records may have to pass before they are appended, and that may take time.

A produce request goes straight from being decoded to the append of its socket read, unless a
step stands between: verifying that its transaction is open, looking up a permission, unpacking
large batches on a helper thread. Such a step derives from `BeforeAppend` and is named in
`HandlerContext.before_append`; the produce handler has the steps done in that order.

    class Verification(BeforeAppend):
        def concerns(self, append):
            return append.transactional_id is not None

        def start(self, append, on_done):
            self._transactions.verify(
                append.transactional_id,
                [topic_partition for topic_partition, _ in append.sources()],
                lambda refused: on_done(refused),  # {} when all of them may be appended
            )

Meanwhile:

- A step that is done before `start` returns costs nothing: the request is appended together
  with the others of its socket read.
- Else its connection waits, as for any unanswered request: earlier requests on it are appended
  before, later ones are not read. The request keeps its frame, so the batches in `sources` stay as
  they are until `on_done` is called; no other code writes to them.
- Other connections continue. The result of a step may be outdated by the time of the append, so the
  log checks again what must be true then (Kafka's verification guard).
- `on_done` is called exactly once, on the loop. If the client has gone meanwhile, the records are
  appended all the same, as with Kafka; its answer is dropped.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from odradek.errors import BrokerError
from odradek.model import TopicPartition
from odradek.records.validate import Batches, PreparedRecords

if TYPE_CHECKING:
    from odradek.handlers.request import Request

Refusals = Mapping[TopicPartition, BrokerError]


def _nobody(_topic_partition: TopicPartition) -> bool:
    return False


class PendingAppend:
    """A produce request before its append.

    `entries` are the batches of the partitions that no step has refused yet; steps look at
    `sources`, and replace one by its prepared form with `prepare`. `is_denied` says which
    partitions its sender may not write to.
    """

    def __init__(
        self,
        request: "Request",
        required_acks: int,
        transactional_id: str | None,
        entries: list[tuple[TopicPartition, Batches]],
        is_denied: Callable[[TopicPartition], bool] = _nobody,
    ) -> None:
        self.request = request
        self.required_acks = required_acks
        self.transactional_id = transactional_id
        self.entries = entries
        self.is_denied = is_denied

    def sources(self) -> list[tuple[TopicPartition, memoryview]]:
        """The received batches, without the changes of earlier steps."""
        return [
            (where, records.source if isinstance(records, PreparedRecords) else records)
            for where, records in self.entries
        ]

    def prepare(self, position: int, prepared: PreparedRecords) -> None:
        """Prepares the append for the source at that position."""
        self.entries[position] = (self.entries[position][0], prepared)


@mypyc_attr(allow_interpreted_subclasses=True)
class BeforeAppend:
    """One step. The context's tuple has their order."""

    def concerns(self, append: PendingAppend) -> bool:
        """Whether the step applies to this request. Called for every request, so it must be
        quick."""
        raise NotImplementedError

    def start(self, append: PendingAppend, on_done: Callable[[Refusals], None]) -> None:
        """Does the step, then calls `on_done` with the partitions that may not be appended to."""
        raise NotImplementedError
