"""`ReplicationControl`: gives partitions new leaders when replicas come and go, and ends
reassignments when the new replicas have caught up.

It listens to the metadata after all others, and acts while its broker is the controller.
`elections` and `reassignments` plan its changes. A change that the store refuses, since it was
overtaken or could not be written, is planned again with the next one.
"""

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from odradek.controller.answers import all_partitions, one_each
from odradek.controller.replicas.elections import MayElectUnclean, plan_failover
from odradek.controller.replicas.reassignments import plan_completions
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import (
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from odradek.metadata.store import ListenerStage, MetadataStore, PartitionChange
from odradek.model import NO_LEADER, ConfigResourceType, TopicPartition

_LOG: Final = logging.getLogger(__name__)


class ReplicationControl:
    """Acts, while `broker_id` is the controller, when a change has left a partition without a live
    leader, or with all replicas of its reassignment in sync."""

    def __init__(
        self, store: MetadataStore, broker_id: int, may_elect_unclean: MayElectUnclean
    ) -> None:
        self._store: Final = store
        self._broker_id: Final = broker_id
        self._may_elect_unclean: Final = may_elect_unclean
        self._refused: set[TopicPartition] = set()
        store.subscribe(ListenerStage.CONTROLLER, self._apply_delta)

    def _apply_delta(self, delta: MetadataDelta) -> tuple[()]:
        image = delta.image
        refused, self._refused = self._refused, set()
        if image.controller_id == self._broker_id:
            takes_office = delta.previous.controller_id != self._broker_id
            concerned = all_partitions(image) if takes_office else _concerned(delta)
            again = [each for each in refused if image.partition(each) is not None]
            changes = self._plan(image, list(dict.fromkeys([*concerned, *again])))
            if changes:
                self._store.change_partitions(changes, partial(self._on_changed, changes))
        return ()

    def _plan(
        self, image: MetadataImage, concerned: Sequence[TopicPartition]
    ) -> list[PartitionChange]:
        """Plans the next step of a partition: first its leader, the rest with the next delta."""
        elections = plan_failover(image, concerned, self._may_elect_unclean)
        _tell_of_losses(image, elections)
        elected = {change.topic_partition for change in elections}
        rest = [each for each in concerned if each not in elected]
        return elections + plan_completions(image, rest)

    def _on_changed(
        self,
        changes: Sequence[PartitionChange],
        outcome: list[PartitionImage | BrokerError] | BrokerError,
    ) -> None:
        if isinstance(outcome, BrokerError) and outcome.code is not ErrorCode.BROKER_NOT_AVAILABLE:
            _LOG.error("leaders could not be elected: %s", outcome)
        for change, each in zip(changes, one_each(outcome, len(changes)), strict=True):
            if isinstance(each, BrokerError):
                self._refused.add(change.topic_partition)


def _tell_of_losses(image: MetadataImage, elections: Sequence[PartitionChange]) -> None:
    for change in elections:
        partition = image.partition(change.topic_partition)
        if partition is not None and change.leader not in (NO_LEADER, *partition.isr):
            text = "%s: broker %d leads, which was not in sync: what it has missed is lost"
            _LOG.warning(text, change.topic_partition, change.leader)


def _concerned(delta: MetadataDelta) -> list[TopicPartition]:
    """The partitions that have changed, and those without a leader whose settings have: an
    election that was not allowed may be so now."""
    changed = [TopicPartition(topic.name, each.partition) for topic, each in delta.partitions()]
    leaderless = [
        TopicPartition(topic.name, each.partition)
        for topic in _reconfigured(delta)
        for each in topic.partitions
        if each.leader == NO_LEADER
    ]
    return list(dict.fromkeys(changed + leaderless))


def _reconfigured(delta: MetadataDelta) -> Iterable[TopicImage]:
    """The topics whose settings have changed: all of them with those of a broker."""
    topics = delta.image.topics
    if any(each.type is ConfigResourceType.BROKER for each in delta.configs_changed):
        return topics.values()
    named = {each.name for each in delta.configs_changed if each.type is ConfigResourceType.TOPIC}
    return [topics[name] for name in named & topics.keys()]
