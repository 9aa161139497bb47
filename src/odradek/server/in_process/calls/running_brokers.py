"""The running brokers of a program, and which of them to ask.

One for `odradek.Broker`, several for `odradek.Cluster`: callers need not know. All calls are their
loop's.
"""

from collections.abc import Callable, Sequence
from typing import Final

from odradek.controller import CreateTopicResult
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import MetadataImage, PartitionImage, TopicImage
from odradek.model import GROUP_METADATA_TOPIC, TopicPartition
from odradek.server.awaiting import outcome
from odradek.server.broker import BrokerServer
from odradek.server.coordination.coordinators import TOPIC_CHANGE_TIMEOUT_MS
from odradek.suggestions import did_you_mean, name_of


class RunningBrokers:
    """`running` has the brokers that run at the moment."""

    def __init__(self, running: Sequence[BrokerServer]) -> None:
        self._running: Final = running

    @property
    def all(self) -> Sequence[BrokerServer]:
        """Lists the brokers that run.

        Raises:
            RuntimeError: none does.
        """
        if not self._running:
            raise RuntimeError("the broker is not running")
        return self._running

    @property
    def image(self) -> MetadataImage:
        """The metadata that they share."""
        return self.all[0].metadata.image

    @property
    def controller(self) -> BrokerServer:
        """The one that creates topics and elects leaders; raises as `leader`."""
        return self._by_id(self.image.controller_id, ErrorCode.BROKER_NOT_AVAILABLE, "controller")

    def find(self, name: str) -> TopicImage | None:
        """The metadata of a topic; None if there is no such topic."""
        return self.image.topic(name_of("a topic", name))

    def topic(self, name: str) -> TopicImage:
        """The metadata of a topic.

        Raises:
            BrokerError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        topic = self.find(name)
        if topic is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, self.no_topic(name))
        return topic

    def no_topic(self, name: str) -> str:
        """That there is no topic of that name, and which one was meant."""
        return no_topic(self.image, name)

    async def auto_create(self, name: str) -> None:
        """Creates a topic as for a client that asks for its metadata.

        Raises:
            BrokerError: its name is illegal, or nobody can create it now.
        """
        controller = self.controller.controller

        def create(on_done: Callable[[list[CreateTopicResult] | BrokerError], None]) -> None:
            controller.auto_create_topics([name], TOPIC_CHANGE_TIMEOUT_MS, on_done)

        [result] = await outcome(create)
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise BrokerError(result.error_code, result.message or "")

    def leader(self, where: TopicPartition) -> BrokerServer:
        """The broker that leads a partition.

        Raises:
            BrokerError: there is no such partition, or nobody leads it.
        """
        leader = partition_of(self.image, where).leader
        return self._by_id(leader, ErrorCode.LEADER_NOT_AVAILABLE, f"leader of {where}")

    def coordinator(self, group: str) -> BrokerServer:
        """The broker that coordinates a group.

        Raises:
            BrokerError: there has been no group yet, or nobody coordinates this one.
        """
        return self.leader(self.group_partition(group))

    def group_partition(self, group: str) -> TopicPartition:
        """The partition with a group's records; raises as `coordinator`."""
        index = self.all[0].coordinators.groups.coordinator.runtime.partition_of(group)
        return TopicPartition(GROUP_METADATA_TOPIC, index)

    def _by_id(self, broker_id: int, code: ErrorCode, who: str) -> BrokerServer:
        for server in self.all:
            if server.config.broker_id == broker_id:
                return server
        raise BrokerError(code, f"there is no {who}")


def partition_of(image: MetadataImage, where: TopicPartition) -> PartitionImage:
    """A partition's metadata.

    Raises:
        BrokerError: UNKNOWN_TOPIC_OR_PARTITION.
    """
    found = image.partition(where)
    if found is None:
        is_there = image.topic(where.topic) is not None
        text = f"there is no partition {where}" if is_there else no_topic(image, where.topic)
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    return found


def no_topic(image: MetadataImage, name: str) -> str:
    """That there is no topic of that name, and which one was meant."""
    return f"there is no topic called {name!r}{did_you_mean(name, image.topics)}"
