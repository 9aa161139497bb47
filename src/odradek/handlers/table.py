"""The table of APIs: what a request is routed by, and what ApiVersions is answered from.

A row names an API, the versions that are served, the first flexible one, the module that handles
it and answers when the handler fails, what its caller must be allowed (Kafka's operation on the
kind of resource that the request is about), and what it uses up. The versions are Kafka 4.2's,
and below them what clients that are still about need: Produce from 0 and Fetch from 0 for the
oldest mode of librdkafka and for kafkajs, ListOffsets from 0 likewise. An API is advertised by
having its row here, unless that hides it, as Kafka does with what a broker has no use for.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, Protocol

from odradek.errors import ErrorCode
from odradek.handlers import fetch, list_offsets, produce
from odradek.handlers.api import ANYBODY, Api, Cost, Permission
from odradek.handlers.cluster import (
    api_versions,
    describe_cluster,
    describe_quorum,
    update_features,
)
from odradek.handlers.configs import (
    alter_configs,
    describe_client_quotas,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from odradek.handlers.context import HandlerContext
from odradek.handlers.groups import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from odradek.handlers.replicas import (
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    controlled_shutdown,
    describe_log_dirs,
    elect_leaders,
    leader_and_isr,
    list_partition_reassignments,
    stop_replica,
    update_metadata,
)
from odradek.handlers.request import Request
from odradek.handlers.telemetry import get_telemetry_subscriptions, push_telemetry
from odradek.handlers.topics import (
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_topic_partitions,
    metadata,
    offset_for_leader_epoch,
)
from odradek.handlers.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    allocate_producer_ids,
    describe_producers,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
)
from odradek.model import AclOperation, ResourceType


class _Handlers(Protocol):
    """A module of this package that serves an API."""

    def handle(self, context: HandlerContext, request: Request, /) -> None: ...

    def fail(self, request: Request, code: ErrorCode, /) -> None: ...


def _row(
    key: int,
    name: str,
    min_version: int,
    max_version: int,
    flexible_from: int,
    module: _Handlers,
    operation: AclOperation | None = None,
    resource: ResourceType = ResourceType.TOPIC,
    cost: Cost = Cost.REQUEST_TIME,
    is_hidden: bool = False,
) -> Api:
    """A row; without an operation anybody may ask."""
    permission = ANYBODY if operation is None else Permission(operation, resource)
    versions = (min_version, max_version, flexible_from)
    return Api(
        key,
        name,
        *versions,
        module.handle,
        module.fail,
        permission,
        cost,
        end_of_read=getattr(module, "end_of_read", None),
        is_hidden=is_hidden,
        refuse=getattr(module, "refuse", None),
    )


_READ, _WRITE, _CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
_DELETE, _ALTER, _DESCRIBE = AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
_CLUSTER_ACTION = AclOperation.CLUSTER_ACTION
_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
_MUTATIONS = Cost.CONTROLLER_MUTATIONS

# key, name, versions served from and to, the first flexible one, module; operation and resource
# that a caller must be allowed; what is used up besides time.
_ROWS: Final = (
    _row(0, "Produce", 0, 13, 9, produce, _WRITE, _TOPIC, Cost.PRODUCED_BYTES),
    _row(1, "Fetch", 0, 18, 12, fetch, _READ, _TOPIC, Cost.FETCHED_BYTES),
    _row(2, "ListOffsets", 0, 11, 6, list_offsets, _DESCRIBE, _TOPIC),
    _row(3, "Metadata", 0, 13, 9, metadata, _DESCRIBE, _TOPIC),
    _row(8, "OffsetCommit", 2, 10, 8, offset_commit, _READ, _GROUP),
    _row(9, "OffsetFetch", 1, 10, 6, offset_fetch, _DESCRIBE, _GROUP),
    _row(10, "FindCoordinator", 0, 6, 3, find_coordinator, _DESCRIBE, _GROUP),
    _row(11, "JoinGroup", 0, 9, 6, join_group, _READ, _GROUP),
    _row(12, "Heartbeat", 0, 4, 4, heartbeat, _READ, _GROUP),
    _row(13, "LeaveGroup", 0, 5, 4, leave_group, _READ, _GROUP),
    _row(14, "SyncGroup", 0, 5, 4, sync_group, _READ, _GROUP),
    _row(15, "DescribeGroups", 0, 6, 5, describe_groups, _DESCRIBE, _GROUP),
    _row(16, "ListGroups", 0, 5, 3, list_groups, _DESCRIBE, _GROUP),
    _row(18, "ApiVersions", 0, 4, 3, api_versions),
    _row(19, "CreateTopics", 2, 7, 5, create_topics, _CREATE, _TOPIC, _MUTATIONS),
    _row(20, "DeleteTopics", 1, 6, 4, delete_topics, _DELETE, _TOPIC, _MUTATIONS),
    _row(21, "DeleteRecords", 0, 2, 2, delete_records, _DELETE, _TOPIC),
    _row(22, "InitProducerId", 0, 5, 2, init_producer_id, _WRITE, _TRANSACTIONAL_ID),
    _row(23, "OffsetForLeaderEpoch", 2, 4, 4, offset_for_leader_epoch, _DESCRIBE, _TOPIC),
    _row(24, "AddPartitionsToTxn", 0, 5, 3, add_partitions_to_txn, _WRITE, _TRANSACTIONAL_ID),
    _row(25, "AddOffsetsToTxn", 0, 4, 3, add_offsets_to_txn, _WRITE, _TRANSACTIONAL_ID),
    _row(26, "EndTxn", 0, 5, 3, end_txn, _WRITE, _TRANSACTIONAL_ID),
    _row(27, "WriteTxnMarkers", 1, 2, 1, write_txn_markers, _CLUSTER_ACTION, _CLUSTER),
    _row(28, "TxnOffsetCommit", 0, 5, 3, txn_offset_commit, _WRITE, _TRANSACTIONAL_ID),
    _row(32, "DescribeConfigs", 1, 4, 4, describe_configs, _DESCRIBE_CONFIGS, _TOPIC),
    _row(33, "AlterConfigs", 0, 2, 2, alter_configs, _ALTER_CONFIGS, _TOPIC),
    _row(34, "AlterReplicaLogDirs", 1, 2, 2, alter_replica_log_dirs, _ALTER, _CLUSTER),
    _row(35, "DescribeLogDirs", 1, 5, 2, describe_log_dirs, _DESCRIBE, _CLUSTER),
    _row(37, "CreatePartitions", 0, 3, 2, create_partitions, _ALTER, _TOPIC, _MUTATIONS),
    _row(42, "DeleteGroups", 0, 2, 2, delete_groups, _DELETE, _GROUP),
    _row(43, "ElectLeaders", 0, 2, 2, elect_leaders, _ALTER, _CLUSTER),
    _row(44, "IncrementalAlterConfigs", 0, 1, 1, incremental_alter_configs, _ALTER_CONFIGS, _TOPIC),
    _row(
        45,
        "AlterPartitionReassignments",
        0,
        1,
        0,
        alter_partition_reassignments,
        _ALTER,
        _CLUSTER,
    ),
    _row(
        46,
        "ListPartitionReassignments",
        0,
        0,
        0,
        list_partition_reassignments,
        _DESCRIBE,
        _CLUSTER,
    ),
    _row(47, "OffsetDelete", 0, 0, 1, offset_delete, _DELETE, _GROUP),
    _row(48, "DescribeClientQuotas", 0, 1, 1, describe_client_quotas, _DESCRIBE_CONFIGS, _CLUSTER),
    _row(55, "DescribeQuorum", 0, 2, 0, describe_quorum, _DESCRIBE, _CLUSTER),
    _row(57, "UpdateFeatures", 0, 2, 0, update_features, _ALTER, _CLUSTER),
    _row(60, "DescribeCluster", 0, 2, 0, describe_cluster, _DESCRIBE, _CLUSTER),
    _row(61, "DescribeProducers", 0, 0, 0, describe_producers, _READ, _TOPIC),
    _row(65, "DescribeTransactions", 0, 0, 0, describe_transactions, _DESCRIBE, _TRANSACTIONAL_ID),
    _row(66, "ListTransactions", 0, 2, 0, list_transactions, _DESCRIBE, _TRANSACTIONAL_ID),
    _row(68, "ConsumerGroupHeartbeat", 0, 1, 0, consumer_group_heartbeat, _READ, _GROUP),
    _row(69, "ConsumerGroupDescribe", 0, 1, 0, consumer_group_describe, _DESCRIBE, _GROUP),
    _row(71, "GetTelemetrySubscriptions", 0, 0, 0, get_telemetry_subscriptions, is_hidden=True),
    _row(72, "PushTelemetry", 0, 0, 0, push_telemetry, is_hidden=True),
    _row(74, "ListConfigResources", 0, 1, 0, list_config_resources, _DESCRIBE_CONFIGS, _CLUSTER),
    _row(75, "DescribeTopicPartitions", 0, 0, 0, describe_topic_partitions, _DESCRIBE, _TOPIC),
)

API_TABLE: Final[Mapping[int, Api]] = MappingProxyType({row.key: row for row in _ROWS})

_CONTROL_ROWS: Final = (
    _row(4, "LeaderAndIsr", 0, 7, 4, leader_and_isr, _CLUSTER_ACTION, _CLUSTER),
    _row(5, "StopReplica", 0, 4, 2, stop_replica, _CLUSTER_ACTION, _CLUSTER),
    _row(6, "UpdateMetadata", 0, 8, 6, update_metadata, _CLUSTER_ACTION, _CLUSTER),
    _row(7, "ControlledShutdown", 0, 3, 3, controlled_shutdown, _CLUSTER_ACTION, _CLUSTER),
    _row(56, "AlterPartition", 2, 3, 0, alter_partition, _CLUSTER_ACTION, _CLUSTER),
    _row(67, "AllocateProducerIds", 0, 0, 0, allocate_producer_ids, _CLUSTER_ACTION, _CLUSTER),
)

_CONTROLLERS_ALONE: Final = frozenset({19, 20, 37, 43, 45, 46, 57})
_RAFT_ALONE: Final = frozenset({55})
_TOLD_BY_CONTROLLER: Final = frozenset({3, 60, 75})
UNTOLD_TIMEOUT_MS: Final = 5_000


def _by_controller(row: Api) -> Api:
    """A row that only the controller serves; clients of the others look for it and ask again."""
    fail = row.fail
    assert fail is not None, f"{row.name} has no place to say so"

    def handle(context: HandlerContext, request: Request) -> None:
        if context.metadata.image.controller_id == context.broker_id:
            row.handle(context, request)
        else:
            fail(request, ErrorCode.NOT_CONTROLLER)

    return replace(row, handle=handle)


def _once_told(row: Api) -> Api:
    """A row that is not served before a broker that has just come was told what there is: clients
    would take topics for gone, or know of no broker to ask again."""

    def handle(context: HandlerContext, request: Request) -> None:
        if context.metadata.is_told:
            row.handle(context, request)
        else:
            request.body()  # while its frame is there
            context.controller.await_metadata(
                UNTOLD_TIMEOUT_MS, request.guard(lambda: row.handle(context, request))
            )

    return replace(row, handle=handle)


ZOOKEEPER_API_TABLE: Final[Mapping[int, Api]] = MappingProxyType(
    {row.key: row for row in (*_ROWS, *_CONTROL_ROWS) if row.key not in _RAFT_ALONE}
    | {key: _by_controller(API_TABLE[key]) for key in _CONTROLLERS_ALONE}
    | {key: _once_told(API_TABLE[key]) for key in _TOLD_BY_CONTROLLER}
)
"""What a broker serves whose metadata lies in ZooKeeper: what a controller commands, too, and what
a controller alone decides there. Nobody asks it for a quorum."""
