"""Reading a cluster without an event loop: one thread, one request at a time.

`Cluster` finds leaders and asks them for offsets and records; `BlockingConnection` is one
socket. Neither may be shared between threads.
"""

from odradek.client.blocking.cluster import Cluster
from odradek.client.blocking.connection import BlockingConnection
from odradek.client.blocking.partition_reader import Fetched, PartitionReader
from odradek.client.core.metadata import TopicMetadata

__all__ = ["BlockingConnection", "Cluster", "Fetched", "PartitionReader", "TopicMetadata"]
