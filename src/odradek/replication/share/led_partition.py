"""`LedSharePartition`: a share partition whose log is led here, from the reading of its state to
the end of the leadership.

    INITIALIZING ──state──► ACTIVE ◄──the same state── CHECKING ◄──somebody reads── UNUSED
         │ error             │ │                           │                          ▲
         ▼                   │ └───────nobody reads────────┼──────────────────────────┘
       FAILED                └──another leader or state────┴─► FENCED

FAILED and FENCED ones are not used any more: the next request begins with another one. While no
member reads an operator may set the group's offsets, so the next reader has the state checked.
"""

from enum import Enum

from odradek.errors import BrokerError
from odradek.model import TopicPartition
from odradek.replication.share.persister import (
    UNINITIALIZED_START_OFFSET,
    SharePartitionKey,
    ShareState,
    ShareSummary,
)
from odradek.replication.share.share_partition import SharePartition


class SharePartitionStatus(Enum):
    """The states of the diagram above."""

    INITIALIZING = "initializing"
    ACTIVE = "active"
    UNUSED = "unused"
    CHECKING = "checking"
    FAILED = "failed"
    FENCED = "fenced"


class LedSharePartition:
    """A share partition in one epoch of its leader; `error` is why it failed, `stored` the last
    known state of the coordinator."""

    def __init__(
        self,
        key: SharePartitionKey,
        topic_partition: TopicPartition,
        leader_epoch: int,
        records: SharePartition,
    ) -> None:
        self.key = key
        self.topic_partition = topic_partition
        self.leader_epoch = leader_epoch
        self.records = records
        self.status = SharePartitionStatus.INITIALIZING
        self.error: BrokerError | None = None
        self.stored = ShareSummary(0, leader_epoch, UNINITIALIZED_START_OFFSET)

    @property
    def is_active(self) -> bool:
        """Whether records may be handed out."""
        return self.status is SharePartitionStatus.ACTIVE

    @property
    def is_loaded(self) -> bool:
        """Whether the state of the records is known."""
        return self.is_active or self.status in (
            SharePartitionStatus.UNUSED,
            SharePartitionStatus.CHECKING,
        )

    def is_stored_as(self, summary: ShareSummary) -> bool:
        """Whether the coordinator still has this state. A recreated one may have the same epoch,
        and a start that an operator has set; it differs in that no leader has read it and no record
        in it is finished."""
        return summary == self.stored

    def on_stored(self, state: ShareState) -> None:
        """Takes over the coordinator's state, which was read or written."""
        self.stored = ShareSummary(
            state.state_epoch,
            self.leader_epoch,
            state.start_offset,
            state.delivery_complete_count,
        )

    def fail(self, error: BrokerError) -> None:
        """Fails the share partition: its state could not be read."""
        self.status = SharePartitionStatus.FAILED
        self.error = error
        self.records.close()

    def fence(self) -> None:
        """Fences the share partition: another broker leads, or the state was replaced."""
        self.status = SharePartitionStatus.FENCED
        self.records.close()
