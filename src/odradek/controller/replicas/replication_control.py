"""`ReplicationControl`: gives partitions new leaders when replicas come and go, and ends
reassignments when the new replicas have caught up.

It listens to the metadata after everybody else, and acts while its broker is the controller.
What it asks for is worked out by `elections` and `reassignments`; a change that was overtaken is
refused by the store, and what overtook it is looked at in its turn.
"""

import logging
from collections.abc import Sequence
from typing import Final

from odradek.controller.answers import all_partitions
from odradek.controller.replicas.elections import MayElectUnclean, plan_failover
from odradek.controller.replicas.reassignments import plan_completions
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import MetadataDelta, MetadataImage, PartitionImage
from odradek.metadata.store import ListenerStage, MetadataStore, PartitionChange
from odradek.model import NO_LEADER, TopicPartition

_LOG: Final = logging.getLogger(__name__)


class ReplicationControl:
    """Acts, while `broker_id` is the controller, where a change has left a partition without a
    leader that lives, or with all that its reassignment waited for."""

    def __init__(
        self, store: MetadataStore, broker_id: int, may_elect_unclean: MayElectUnclean
    ) -> None:
        self._store: Final = store
        self._broker_id: Final = broker_id
        self._may_elect_unclean: Final = may_elect_unclean
        store.subscribe(ListenerStage.CONTROLLER, self._apply_delta)

    def _apply_delta(self, delta: MetadataDelta) -> tuple[()]:
        image = delta.image
        if image.controller_id == self._broker_id:
            takes_office = delta.previous.controller_id != self._broker_id
            concerned = all_partitions(image) if takes_office else _changed_partitions(delta)
            changes = self._plan(image, concerned)
            if changes:
                self._store.change_partitions(changes, self._on_changed)
        return ()

    def _plan(
        self, image: MetadataImage, concerned: Sequence[TopicPartition]
    ) -> list[PartitionChange]:
        """A partition that needs a leader gets that first; the rest follows from the next delta."""
        elections = plan_failover(image, concerned, self._may_elect_unclean)
        _tell_of_losses(image, elections)
        elected = {change.topic_partition for change in elections}
        rest = [each for each in concerned if each not in elected]
        return elections + plan_completions(image, rest)

    def _on_changed(self, outcome: list[PartitionImage | BrokerError] | BrokerError) -> None:
        if isinstance(outcome, BrokerError) and outcome.code is not ErrorCode.BROKER_NOT_AVAILABLE:
            _LOG.error("leaders could not be elected: %s", outcome)


def _tell_of_losses(image: MetadataImage, elections: Sequence[PartitionChange]) -> None:
    for change in elections:
        partition = image.partition(change.topic_partition)
        if partition is not None and change.leader not in (NO_LEADER, *partition.isr):
            text = "%s: broker %d leads, which was not in sync: what it has missed is lost"
            _LOG.warning(text, change.topic_partition, change.leader)


def _changed_partitions(delta: MetadataDelta) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, partition.partition) for topic, partition in delta.partitions()
    ]
