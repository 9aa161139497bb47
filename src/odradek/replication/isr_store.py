"""The port through which a leader changes its ISR.

The set is the metadata store's to keep, since the next leader is chosen from it. A leader
proposes, the store compares epochs and accepts or refuses, and only then does the leader act
on it.
"""

from collections.abc import Callable

from mypy_extensions import mypyc_attr

from odradek.errors import BrokerError
from odradek.metadata.image import PartitionImage
from odradek.model import TopicPartition

OnIsrChanged = Callable[[PartitionImage | BrokerError], None]


@mypyc_attr(allow_interpreted_subclasses=True)
class IsrStore:
    """Where proposals for a new ISR go."""

    def change_isr(
        self,
        topic_partition: TopicPartition,
        leader_epoch: int,
        partition_epoch: int,
        in_sync_replicas: tuple[int, ...],
        on_done: OnIsrChanged,
    ) -> None:
        """Proposes the set under the epochs that the leader knows.

        `on_done` gets the partition's new state, or why it was refused
        (FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION, ...), at once or later on the loop.
        """
        raise NotImplementedError
