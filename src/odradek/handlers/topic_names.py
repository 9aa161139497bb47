"""Topics by id, and the current leader of a partition, for Produce and Fetch."""

from uuid import UUID

from odradek.metadata.image import MetadataImage
from odradek.model import TopicPartition
from odradek.protocol.primitives import NodeEndpoint


def topic_name(image: MetadataImage, name: str | None, topic_id: UUID | None) -> str | None:
    """The name of a topic that a request names by name or id; None when the id is unknown."""
    if name is not None:
        return name
    if topic_id is None:
        return None
    topic = image.topic_by_id(topic_id)
    return None if topic is None else topic.name


def is_same_topic(image: MetadataImage, name: str, topic_id: UUID | None) -> bool:
    """Whether a topic that was looked up before has been neither deleted nor recreated since."""
    topic = image.topic(name)
    return topic is not None and topic.topic_id == topic_id


class CurrentLeaders:
    """The leaders to name in one answer (KIP-951), and the end points of all of them."""

    def __init__(self, image: MetadataImage, listener_name: str) -> None:
        self._image = image
        self._listener_name = listener_name
        self._endpoints: dict[int, NodeEndpoint] = {}

    def leader_of(self, topic_partition: TopicPartition) -> tuple[int, int]:
        """The leader's broker id and epoch, (-1, -1) when the partition is not known."""
        partition = self._image.partition(topic_partition)
        if partition is None:
            return -1, -1
        self._note_endpoint(partition.leader)
        return partition.leader, partition.leader_epoch

    def _note_endpoint(self, broker_id: int) -> None:
        broker = self._image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(self._listener_name)
        if broker is not None and endpoint is not None:
            self._endpoints[broker_id] = NodeEndpoint(
                broker_id, endpoint.host, endpoint.port, broker.rack
            )

    @property
    def endpoints(self) -> list[NodeEndpoint]:
        """The addresses of the named leaders."""
        return list(self._endpoints.values())
