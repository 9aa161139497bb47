"""The state of the brokers, as far as a question concerns it: plain values, at one moment."""

from typing import Final, NamedTuple

from odradek.model import TopicPartition

KINDS: Final = ("group", "topic", "client", "transaction")


class Question(NamedTuple):
    """The subject of a question: its kind is one of `KINDS`."""

    kind: str
    name: str


class Reading(NamedTuple):
    """A fetch that waits for records of a partition."""

    client_id: str
    offset: int
    min_bytes: int
    missing: str
    waited_ms: int
    is_committed_only: bool


class OpenTransaction(NamedTuple):
    """A transaction in a partition: consumers with read_committed stop at its first record. The id
    is empty where another broker coordinates it."""

    producer_id: int
    transactional_id: str
    first_offset: int
    open_ms: int


class PartitionPicture(NamedTuple):
    """A partition, and how far a group has come in it."""

    where: TopicPartition
    leader: int
    replicas: int
    isr: int
    least_isr: int
    start_offset: int
    high_watermark: int
    end_offset: int
    last_stable_offset: int
    committed: int | None
    transactions: tuple[OpenTransaction, ...]
    readings: tuple[Reading, ...]

    @property
    def waiting_records(self) -> int:
        """How many records the group has not committed, of those that can be read."""
        first = self.start_offset if self.committed is None else self.committed
        return max(self.high_watermark - max(first, self.start_offset), 0)


class MemberPicture(NamedTuple):
    """A member of a group; `is_awaited` while the others wait for it."""

    member_id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    to_revoke: tuple[TopicPartition, ...]
    is_awaited: bool


class GroupPicture(NamedTuple):
    """A group, for how long it has been in its state (None: not known), and what it reads."""

    group_id: str
    kind: str
    state: str
    since_ms: int | None
    members: tuple[MemberPicture, ...]
    missing_topics: tuple[str, ...]
    partitions: tuple[PartitionPicture, ...]


class TransactionPicture(NamedTuple):
    """A transactional id."""

    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    since_ms: int
    partitions: tuple[TopicPartition, ...]
    leaderless: tuple[TopicPartition, ...]


class Picture(NamedTuple):
    """Everything that the causes look at. `missing` says why the subject of the question does not
    exist."""

    question: Question
    missing: str = ""
    is_paused: bool = False
    faults: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    throttled: tuple[tuple[str, int], ...] = ()
    """Clients that a quota holds back, and for how long yet, in milliseconds."""
    groups: tuple[GroupPicture, ...] = ()
    partitions: tuple[PartitionPicture, ...] = ()
    """Of a topic."""
    readings: tuple[tuple[TopicPartition, Reading], ...] = ()
    """Of a client."""
    transaction: TransactionPicture | None = None
