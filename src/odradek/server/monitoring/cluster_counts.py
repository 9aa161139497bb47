"""Counts over the metadata of the whole cluster, made once for each image, not for each look."""

from typing import NamedTuple

from odradek.metadata.image import MetadataImage


class ClusterCounts(NamedTuple):
    """The counts of `kafka.controller`."""

    topics: int = 0
    partitions: int = 0
    offline_partitions: int = 0
    imbalanced_partitions: int = 0
    reassigning_partitions: int = 0


class CountedImage:
    """Remembers the counts of the image that it was asked about last."""

    def __init__(self) -> None:
        self._topics: object = None
        self._counts = ClusterCounts()

    def counts(self, image: MetadataImage) -> ClusterCounts:
        """The counts of an image."""
        if image.topics is not self._topics:
            self._topics = image.topics
            self._counts = _count(image)
        return self._counts


def _count(image: MetadataImage) -> ClusterCounts:
    topics = partitions = offline = imbalanced = reassigning = 0
    for topic in image.topics.values():
        topics += 1
        for partition in topic.partitions:
            partitions += 1
            offline += partition.leader < 0
            imbalanced += partition.leader != partition.preferred_leader
            reassigning += partition.is_reassigning
    return ClusterCounts(topics, partitions, offline, imbalanced, reassigning)
