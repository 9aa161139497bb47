"""The fields of a partition in Metadata and DescribeTopicPartitions.

A leader that the client could not reach is not shown as one: a partition without a leader is
LEADER_NOT_AVAILABLE, and so is one whose leader has no listener of the name that the client
came in by (newer clients are told LISTENER_NOT_FOUND). Both make a client ask again.
"""

from odradek.errors import ErrorCode
from odradek.metadata.image import MetadataImage, PartitionImage
from odradek.model import NO_LEADER


def partition_fields(
    image: MetadataImage, partition: PartitionImage, listener_name: str, unlisted: ErrorCode
) -> dict[str, object]:
    """The fields of one partition; `unlisted` is the error for a leader without the listener."""
    error = _leader_error(image, partition, listener_name, unlisted)
    return {
        "error_code": error,
        "partition_index": partition.partition,
        "leader_id": partition.leader if error is ErrorCode.NONE else NO_LEADER,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "offline_replicas": _offline(image, partition, listener_name),
    }


def _leader_error(
    image: MetadataImage, partition: PartitionImage, listener_name: str, unlisted: ErrorCode
) -> ErrorCode:
    leader = image.brokers.get(partition.leader)
    if leader is None:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return ErrorCode.NONE if leader.endpoint(listener_name) is not None else unlisted


def _offline(image: MetadataImage, partition: PartitionImage, listener_name: str) -> list[int]:
    """The unreachable replicas: broker gone, directory failed, or no such listener."""
    return [
        replica
        for replica in partition.replicas
        if replica in partition.offline or not is_reachable(image, replica, listener_name)
    ]


def is_reachable(image: MetadataImage, broker_id: int, listener_name: str) -> bool:
    """Whether the broker is alive and has a listener of that name."""
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.endpoint(listener_name) is not None


def broker_fields(
    image: MetadataImage, listener_name: str, id_name: str
) -> list[dict[str, object]]:
    """The brokers that can be reached by a listener, in the order of their ids."""
    brokers: list[dict[str, object]] = []
    for broker_id in sorted(image.brokers):
        broker = image.brokers[broker_id]
        endpoint = broker.endpoint(listener_name)
        if endpoint is not None:
            where = {"host": endpoint.host, "port": endpoint.port, "rack": broker.rack}
            brokers.append({id_name: broker_id, **where})
    return brokers
