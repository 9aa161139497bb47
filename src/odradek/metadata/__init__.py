"""Metadata of the cluster: the image that all floors read, and the store that keeps it."""

from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import (
    BrokerRegistration,
    ConfigResource,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from odradek.metadata.store import (
    ListenerStage,
    MetadataListener,
    MetadataStore,
    MetadataStoreError,
    NewPartitions,
    NewTopic,
    PartitionChange,
)
from odradek.model import ConfigResourceType

__all__ = [
    "BrokerRegistration",
    "ConfigResource",
    "ConfigResourceType",
    "ListenerStage",
    "MetadataCache",
    "MetadataDelta",
    "MetadataImage",
    "MetadataListener",
    "MetadataStore",
    "MetadataStoreError",
    "NewPartitions",
    "NewTopic",
    "PartitionChange",
    "PartitionImage",
    "TopicImage",
]
