"""The clients for code that blocks.

`Producer`, `Consumer`, `ShareConsumer` and `Admin` are thin shells: names, arguments, defaults and
errors are those of `odradek.client`; calls that are awaited there block here. The work is done on
an event loop in a separate thread, which all such clients of a process share.

`Cluster` and `PartitionReader` need neither that loop nor a thread: Spark's workers read partitions
with them, one request at a time, without a group. None of them may be shared between threads.
"""

from typing import TYPE_CHECKING

from odradek._lazy import exports

if TYPE_CHECKING:
    from odradek.client.core.metadata import TopicMetadata
    from odradek.client.sync.admin import Admin
    from odradek.client.sync.cluster import Cluster
    from odradek.client.sync.connection import BlockingConnection
    from odradek.client.sync.consumer import Consumer
    from odradek.client.sync.partition_reader import Fetched, PartitionReader
    from odradek.client.sync.producer import Producer
    from odradek.client.sync.share_consumer import ShareConsumer

__all__ = [
    "Admin",
    "BlockingConnection",
    "Cluster",
    "Consumer",
    "Fetched",
    "PartitionReader",
    "Producer",
    "ShareConsumer",
    "TopicMetadata",
]

__getattr__ = exports(
    __name__,
    {
        "Admin": "odradek.client.sync.admin",
        "BlockingConnection": "odradek.client.sync.connection",
        "Cluster": "odradek.client.sync.cluster",
        "Consumer": "odradek.client.sync.consumer",
        "Fetched": "odradek.client.sync.partition_reader",
        "PartitionReader": "odradek.client.sync.partition_reader",
        "Producer": "odradek.client.sync.producer",
        "ShareConsumer": "odradek.client.sync.share_consumer",
        "TopicMetadata": "odradek.client.core.metadata",
    },
)
