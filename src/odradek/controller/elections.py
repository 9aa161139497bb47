"""Chooses leaders for ElectLeaders (R17). Pure: an image in, a change or an error out."""

from odradek.controller.results import ElectionType
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import MetadataImage, PartitionImage
from odradek.metadata.store import PartitionChange
from odradek.model import TopicPartition


def plan_election(
    image: MetadataImage, topic_partition: TopicPartition, election_type: ElectionType
) -> PartitionChange:
    """The change that gives the partition its new leader.

    Raises:
        BrokerError: the partition is unknown, needs no election, or nobody may lead.
    """
    partition = image.partition(topic_partition)
    if partition is None:
        message = f"No such topic-partition: {topic_partition}"
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    if election_type is ElectionType.PREFERRED:
        leader, isr = _preferred(image, partition), partition.isr
    else:
        leader, isr = _unclean(image, partition)
    return PartitionChange(topic_partition, partition.partition_epoch, leader, isr)


def _preferred(image: MetadataImage, partition: PartitionImage) -> int:
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        raise BrokerError(ErrorCode.ELECTION_NOT_NEEDED)
    if preferred not in partition.isr or not _is_live(image, partition, preferred):
        message = f"The preferred leader {preferred} is not in sync or not available."
        raise BrokerError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message)
    return preferred


def _unclean(image: MetadataImage, partition: PartitionImage) -> tuple[int, tuple[int, ...]]:
    """A live replica, one in sync if there is any; one that is not becomes the whole ISR."""
    if partition.leader in image.brokers:
        raise BrokerError(ErrorCode.ELECTION_NOT_NEEDED)
    live = [replica for replica in partition.replicas if _is_live(image, partition, replica)]
    if not live:
        raise BrokerError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    in_sync = [replica for replica in live if replica in partition.isr]
    return (in_sync[0], partition.isr) if in_sync else (live[0], (live[0],))


def _is_live(image: MetadataImage, partition: PartitionImage, replica: int) -> bool:
    return replica in image.brokers and replica not in partition.offline
