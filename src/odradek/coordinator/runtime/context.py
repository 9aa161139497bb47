"""`ShardContext`: a partition that this broker leads, its shard, and its uncommitted writes and
waiting commands."""

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Generic, TypeVar

from odradek.coordinator.records.record import CoordinatorRecord
from odradek.coordinator.runtime.batches import Batch
from odradek.coordinator.runtime.shard import CoordinatorShard

S = TypeVar("S", bound=CoordinatorShard)


class ShardState(Enum):
    """The states of a shard."""

    LOADING = auto()
    ACTIVE = auto()
    FAILED = auto()


class ShardContext(Generic[S]):
    """Lives from the election of this broker to its resignation: each leader epoch has its own
    context.

    `in_flight` are the batches that the replicas have not got yet, in the order of the log;
    `busy` has the keys with uncommitted exclusive records, and the commands that wait for them.
    """

    def __init__(self, partition: int, leader_epoch: int) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.state = ShardState.LOADING
        self.is_led = True
        self.next_offset = 0
        self.end_offset = 0
        self.open_batch: Batch | None = None
        self.in_flight: list[Batch] = []
        self.busy: dict[str, deque[Callable[[], None]]] = {}
        self._shard: S | None = None

    def uncommitted(self) -> Iterator[CoordinatorRecord]:
        """The records on their way to the log, and those of the open batch."""
        batches = self.in_flight if self.open_batch is None else [*self.in_flight, self.open_batch]
        for batch in batches:
            for write in batch.writes:
                yield from write.records

    @property
    def is_in_charge(self) -> bool:
        """Whether the shard may write and replay."""
        return self.is_led and self.state is not ShardState.FAILED

    @property
    def shard(self) -> S:
        """The state of the partition."""
        shard = self._shard
        assert shard is not None, f"partition {self.partition} has no shard yet"
        return shard

    def attach(self, shard: S) -> None:
        """Gives the context its shard; done once, where it is made."""
        self._shard = shard
