"""`Admin`: everything that the command line and a console need, batched, on an event loop.

One call may have many items, each of which succeeds or fails independently: the result has its
value or its `KafkaError`. An error of the whole call (no broker answers) is raised. Retriable
errors are retried item by item until `default.api.timeout.ms` is over.
"""

from odradek.client.aio.admin.acls import AclCalls
from odradek.client.aio.admin.cluster import ClusterCalls
from odradek.client.aio.admin.configs import ConfigCalls
from odradek.client.aio.admin.groups import GroupCalls
from odradek.client.aio.admin.offsets import OffsetCalls
from odradek.client.aio.admin.partitions import PartitionCalls
from odradek.client.aio.admin.quotas import QuotaCalls
from odradek.client.aio.admin.reassignments import ReassignmentCalls
from odradek.client.aio.admin.share_groups import ShareGroupCalls
from odradek.client.aio.admin.tokens import TokenCalls
from odradek.client.aio.admin.topics import TopicCalls
from odradek.client.aio.admin.transactions import TransactionCalls


class Admin(
    TopicCalls,
    ConfigCalls,
    GroupCalls,
    OffsetCalls,
    ShareGroupCalls,
    PartitionCalls,
    ReassignmentCalls,
    ClusterCalls,
    TransactionCalls,
    AclCalls,
    QuotaCalls,
    TokenCalls,
):
    """Looks at a cluster and changes it.

        async with Admin("localhost:9092") as admin:
            await admin.create_topics([NewTopic("orders", partitions=3)])

    Settings have Kafka's names, in `config` or with underscores as keywords.
    """


__all__ = ["Admin"]
