"""Applies a change of the metadata to the replicas of this broker.

Partitions that name this broker get a log and a role; partitions that no longer name it lose both.
A log is deleted when its topic is deleted or its broker is no replica any more, and for no other
reason; if that happened while the broker was away its log is renamed, since no request tells it to
delete it. When the new image is published for clients, everything here has happened, so a partition
in a client's metadata can be appended to. A log that does not open is reported back: the partition
is published as offline instead, and noted, since a disk that was only full may have room later
(`open_again`).
"""

import logging
from collections.abc import Callable
from typing import Final
from uuid import UUID

from odradek.background import do_each_in_turns
from odradek.config.broker import BrokerConfig
from odradek.config.topic import LogConfig
from odradek.errors import BrokerError
from odradek.metadata.image import (
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from odradek.model import ConfigResourceType, TopicPartition
from odradek.replication.delayed.keys import TopicPartitionOperationKey
from odradek.replication.delayed.purgatories import ROLE, ReplicationPurgatories
from odradek.replication.partition import Partition
from odradek.replication.partition_table import PartitionTable
from odradek.storage.manager.log_manager import LogManager

# How many topics are handed their settings in one turn of the loop.
SLICE_TOPICS: Final = 200

logger = logging.getLogger(__name__)


class RoleChanges:
    """Applies deltas to a `PartitionTable`. Called on the broker's loop only, at whose next turn
    `defer` runs something."""

    def __init__(
        self,
        broker_id: int,
        config: BrokerConfig,
        partitions: PartitionTable,
        purgatories: ReplicationPurgatories,
        log_manager: LogManager,
        make_partition: Callable[[TopicPartition], Partition],
        defer: Callable[[Callable[[], None]], None],
    ) -> None:
        self._broker_id = broker_id
        self._config = config
        self._partitions = partitions
        self._purgatories = purgatories
        self._log_manager = log_manager
        self._make_partition = make_partition
        self._defer = defer
        # The topic defaults that the logs have.
        self._defaults = config.topic_defaults()
        # The partitions whose logs could not be opened; True for a new replica, which never had
        # one.
        self._unopened: dict[TopicPartition, bool] = {}
        # The partitions whose logs could not be deleted.
        self._undeleted: set[TopicPartition] = set()
        # The logged faults in topics' settings, so each is logged once.
        self._told: dict[str, list[str]] = {}
        self._changed: list[TopicPartitionOperationKey] = []

    def apply(self, delta: MetadataDelta) -> list[TopicPartition]:
        """Applies `delta` to the roles and logs here; returns the partitions whose logs did not
        open. Requests that wait for any of them are woken once, when all have changed."""
        unserved = []
        for topic in delta.topics_removed:
            self._told.pop(topic.name, None)
            # Another topic of the same name is no order to delete the logs of this one: they stay,
            # or are set aside.
            end = self._let_go if topic.name in delta.replaced else self._drop
            for gone in topic.partitions:
                end(TopicPartition(topic.name, gone.partition))
        # A start brings all partitions: their topic's settings are read once.
        configs: dict[str, LogConfig] = {}
        for topic, partition_image in delta.partitions():
            topic_partition = TopicPartition(topic.name, partition_image.partition)
            if self._broker_id not in partition_image.replicas:
                self._leave(topic_partition, partition_image)
                continue
            if topic.name not in configs:
                configs[topic.name] = self._log_config(delta.image, topic.name)
            is_new = delta.is_new_replica(topic, partition_image, self._broker_id)
            if not self._host(topic, partition_image, configs[topic.name], is_new=is_new):
                unserved.append(topic_partition)
        for resource in delta.configs_changed:
            if resource.type == ConfigResourceType.TOPIC:
                self._update_configs(delta.image, resource.name)
        changed, self._changed = self._changed, []
        self._purgatories.wake_each(changed, ROLE)
        return unserved

    def open_again(self) -> list[TopicPartition]:
        """Tries again to open or delete logs that could not be; returns the partitions whose logs
        are open now."""
        for each in sorted(self._undeleted):
            self._delete(each)
        # A copy: an attempt may change the set.
        return [each for each in sorted(self._unopened) if self._can_open(each)]

    def _can_open(self, topic_partition: TopicPartition) -> bool:
        image = self._partitions.image
        topic, is_new = image.topic(topic_partition.topic), self._unopened.get(topic_partition)
        if topic is None or is_new is None:
            return False
        config = self._log_config(image, topic.name)
        try:
            self._log_manager.get_or_create(topic_partition, topic.topic_id, config, is_new=is_new)
        except BrokerError:
            return False
        self._undeleted.discard(topic_partition)
        return True

    def refresh_configs(self) -> None:
        """Hands every log its settings anew, some topics in a turn of the loop, where the broker's
        defaults for topics have changed."""
        defaults = self._config.topic_defaults()
        if defaults == self._defaults:
            return
        self._defaults = defaults
        names = {partition.topic_partition.topic for partition in self._partitions}
        do_each_in_turns(names, self._refresh_config, SLICE_TOPICS, self._defer)

    def _refresh_config(self, topic: str) -> None:
        self._update_configs(self._partitions.image, topic)

    def _host(
        self, topic: TopicImage, image: PartitionImage, config: LogConfig, *, is_new: bool
    ) -> bool:
        """Takes the replica's role up; False when its log cannot be opened or its disk fails."""
        topic_partition = TopicPartition(topic.name, image.partition)
        if topic_partition in self._undeleted:
            self._delete(topic_partition)
        partition = self._partitions.find(topic_partition)
        if partition is None:
            partition = self._make_partition(topic_partition)
            self._partitions.add(partition)
        is_served = True
        if self._broker_id in image.offline:
            partition.make_offline()
            if self._broker_id in self._partitions.image.brokers:
                # The broker is alive and its log was offline: the log may be usable again, and is
                # tried.
                self._unopened.setdefault(topic_partition, is_new)
        else:
            is_served = self._open(partition, topic.topic_id, image, config, is_new=is_new)
        self._changed.append(partition.operation_key)
        return is_served

    def _open(
        self,
        partition: Partition,
        topic_id: UUID,
        image: PartitionImage,
        config: LogConfig,
        *,
        is_new: bool,
    ) -> bool:
        topic_partition = partition.topic_partition
        try:
            log = self._log_manager.get_or_create(topic_partition, topic_id, config, is_new=is_new)
        except BrokerError as error:
            if topic_partition not in self._unopened:
                logger.error("%s is offline here: %s", topic_partition, error)
                self._unopened[topic_partition] = is_new
            partition.make_offline()
            return False
        self._unopened.pop(topic_partition, None)
        self._undeleted.discard(topic_partition)
        if image.leader == self._broker_id:
            partition.make_leader(image, log)
        else:
            partition.make_follower(image, log)
        return partition.log is not None

    def _leave(self, topic_partition: TopicPartition, image: PartitionImage) -> None:
        """Drops a partition of which the broker is no replica. A partition without known replicas
        may still be the broker's, and stays."""
        if self._partitions.find(topic_partition) is not None:
            self._drop(topic_partition)
        elif image.replicas and topic_partition not in self._undeleted:
            self._set_aside(topic_partition)

    def _set_aside(self, topic_partition: TopicPartition) -> None:
        try:
            self._log_manager.set_aside(topic_partition)
        except BrokerError as error:
            logger.error("the log of %s stays where it is: %s", topic_partition, error)

    def _drop(self, topic_partition: TopicPartition) -> None:
        """Drops a replica, and deletes its log."""
        if self._let_go(topic_partition):
            self._delete(topic_partition)

    def _delete(self, topic_partition: TopicPartition) -> None:
        try:
            self._log_manager.delete(topic_partition)
        except BrokerError as error:
            if topic_partition not in self._undeleted:
                logger.error("the log of %s cannot be deleted yet: %s", topic_partition, error)
                self._undeleted.add(topic_partition)
        else:
            self._undeleted.discard(topic_partition)

    def _let_go(self, topic_partition: TopicPartition) -> bool:
        """Gives up a replica, if there is one; requests that wait for it are answered."""
        self._unopened.pop(topic_partition, None)
        partition = self._partitions.remove(topic_partition)
        if partition is None:
            return False
        partition.make_offline()
        self._changed.append(partition.operation_key)
        return True

    def _update_configs(self, image: MetadataImage, topic: str) -> None:
        topic_image = image.topic(topic)
        if topic_image is None:
            return
        config = self._log_config(image, topic)
        for each in topic_image.partitions:
            partition = self._partitions.find(TopicPartition(topic, each.partition))
            if partition is not None and partition.log is not None:
                partition.log.update_config(config)

    def _log_config(self, image: MetadataImage, topic: str) -> LogConfig:
        """The settings of a topic; leaves out stored ones that cannot be used."""
        stored = image.topic_config(topic)
        config, problems = self._config.log_config(stored)
        told = [str(each) for each in problems]
        if told != self._told.get(topic, []):
            self._told[topic] = told
            for problem in told:
                logger.error("a setting of topic %s is not used: %s", topic, problem)
        return config
