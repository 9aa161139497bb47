"""The wire as a client sees it: any Kafka broker, ours or another.

`Producer`, `Consumer`, `ShareConsumer` and `Admin` are for asyncio; those of `sync` for blocking
code, on a separate thread; its `PartitionReader` for code without even that thread: Spark's
workers. `aio` and `sync` are shells around one `core`, which decides what to send, when to try
again and what an answer means, and has no socket, thread, clock or randomness. No module here knows
how a broker works inside.
"""

from typing import TYPE_CHECKING

from odradek._lazy import exports

if TYPE_CHECKING:
    from odradek.acl import (
        AccessControlEntry,
        AclBinding,
        AclFilter,
        AclResourceType,
        PatternType,
        PermissionType,
        ResourcePattern,
    )
    from odradek.client.aio.admin import Admin
    from odradek.client.aio.consumer import Consumer
    from odradek.client.aio.consuming.handout import ConsumerInterceptor
    from odradek.client.aio.group import RebalanceListener
    from odradek.client.aio.producer import Producer
    from odradek.client.aio.producing.delivery_reports import OnDelivery
    from odradek.client.aio.share_consumer import ShareConsumer
    from odradek.client.core.admin_types import (
        ClusterDescription,
        CommittedOffset,
        ConfigChange,
        ConfigEntry,
        ConfigOperation,
        ConfigResource,
        CreatedTopic,
        DelegationToken,
        ElectionType,
        FeatureDescription,
        GroupDescription,
        GroupListing,
        LogDirDescription,
        NewPartitions,
        NewTopic,
        OffsetAndTimestamp,
        PartitionReassignment,
        ProducerState,
        QuorumDescription,
        QuorumReplica,
        ScramPassword,
        ShareGroupOffset,
        TransactionDescription,
        TransactionListing,
    )
    from odradek.client.core.consuming.consumer_record import ConsumerRecord
    from odradek.client.core.consuming.deserializers import Deserializer, TopicDeserializer
    from odradek.client.core.consuming.list_offsets import EARLIEST, LATEST, MAX_TIMESTAMP
    from odradek.client.core.groups.assignors import Assignor
    from odradek.client.core.groups.group_metadata import GroupMetadata
    from odradek.client.core.metadata import TopicMetadata
    from odradek.client.core.producing.preparing import (
        ProducerInterceptor,
        ProducerRecord,
        Serializer,
        TopicSerializer,
    )
    from odradek.client.core.sharing.acknowledgements import AcknowledgeType
    from odradek.client.errors import KafkaError
    from odradek.client.record_metadata import RecordMetadata
    from odradek.model import AclOperation, ConfigResourceType, TopicPartition
    from odradek.protocol.consumer_protocol import Subscription
    from odradek.records.columnar import ColumnBuffers

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "AccessControlEntry",
    "AcknowledgeType",
    "AclBinding",
    "AclFilter",
    "AclOperation",
    "AclResourceType",
    "Admin",
    "Assignor",
    "ClusterDescription",
    "ColumnBuffers",
    "CommittedOffset",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "ConfigResourceType",
    "Consumer",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "CreatedTopic",
    "DelegationToken",
    "Deserializer",
    "ElectionType",
    "FeatureDescription",
    "GroupDescription",
    "GroupListing",
    "GroupMetadata",
    "KafkaError",
    "LogDirDescription",
    "NewPartitions",
    "NewTopic",
    "OffsetAndTimestamp",
    "OnDelivery",
    "PartitionReassignment",
    "PatternType",
    "PermissionType",
    "Producer",
    "ProducerInterceptor",
    "ProducerRecord",
    "ProducerState",
    "QuorumDescription",
    "QuorumReplica",
    "RebalanceListener",
    "RecordMetadata",
    "ResourcePattern",
    "ScramPassword",
    "Serializer",
    "ShareConsumer",
    "ShareGroupOffset",
    "Subscription",
    "TopicDeserializer",
    "TopicMetadata",
    "TopicPartition",
    "TopicSerializer",
    "TransactionDescription",
    "TransactionListing",
]

__getattr__ = exports(
    __name__,
    {
        "AccessControlEntry": "odradek.acl",
        "AcknowledgeType": "odradek.client.core.sharing.acknowledgements",
        "AclBinding": "odradek.acl",
        "AclFilter": "odradek.acl",
        "PatternType": "odradek.acl",
        "PermissionType": "odradek.acl",
        "ResourcePattern": "odradek.acl",
        "AclOperation": "odradek.model",
        "AclResourceType": "odradek.acl",
        "Admin": "odradek.client.aio.admin",
        "Assignor": "odradek.client.core.groups.assignors",
        "ClusterDescription": "odradek.client.core.admin_types",
        "CommittedOffset": "odradek.client.core.admin_types",
        "ConfigChange": "odradek.client.core.admin_types",
        "ConfigEntry": "odradek.client.core.admin_types",
        "ConfigOperation": "odradek.client.core.admin_types",
        "ConfigResource": "odradek.client.core.admin_types",
        "Consumer": "odradek.client.aio.consumer",
        "ConsumerInterceptor": "odradek.client.aio.consuming.handout",
        "ConsumerRecord": "odradek.client.core.consuming.consumer_record",
        "CreatedTopic": "odradek.client.core.admin_types",
        "DelegationToken": "odradek.client.core.admin_types",
        "ScramPassword": "odradek.client.core.admin_types",
        "EARLIEST": "odradek.client.core.consuming.list_offsets",
        "ElectionType": "odradek.client.core.admin_types",
        "GroupDescription": "odradek.client.core.admin_types",
        "QuorumReplica": "odradek.client.core.admin_types",
        "QuorumDescription": "odradek.client.core.admin_types",
        "FeatureDescription": "odradek.client.core.admin_types",
        "GroupListing": "odradek.client.core.admin_types",
        "GroupMetadata": "odradek.client.core.groups.group_metadata",
        "KafkaError": "odradek.client.errors",
        "LATEST": "odradek.client.core.consuming.list_offsets",
        "MAX_TIMESTAMP": "odradek.client.core.consuming.list_offsets",
        "NewPartitions": "odradek.client.core.admin_types",
        "NewTopic": "odradek.client.core.admin_types",
        "OffsetAndTimestamp": "odradek.client.core.admin_types",
        "PartitionReassignment": "odradek.client.core.admin_types",
        "Producer": "odradek.client.aio.producer",
        "RebalanceListener": "odradek.client.aio.group",
        "RecordMetadata": "odradek.client.record_metadata",
        "ShareGroupOffset": "odradek.client.core.admin_types",
        "ShareConsumer": "odradek.client.aio.share_consumer",
        "ConfigResourceType": "odradek.model",
        "TopicMetadata": "odradek.client.core.metadata",
        "TopicPartition": "odradek.model",
        "TransactionDescription": "odradek.client.core.admin_types",
        "TransactionListing": "odradek.client.core.admin_types",
        "ColumnBuffers": "odradek.records.columnar",
        "Deserializer": "odradek.client.core.consuming.deserializers",
        "LogDirDescription": "odradek.client.core.admin_types",
        "ProducerState": "odradek.client.core.admin_types",
        "Subscription": "odradek.protocol.consumer_protocol",
        "OnDelivery": "odradek.client.aio.producing.delivery_reports",
        "ProducerInterceptor": "odradek.client.core.producing.preparing",
        "ProducerRecord": "odradek.client.core.producing.preparing",
        "Serializer": "odradek.client.core.producing.preparing",
        "TopicDeserializer": "odradek.client.core.consuming.deserializers",
        "TopicSerializer": "odradek.client.core.producing.preparing",
    },
)
