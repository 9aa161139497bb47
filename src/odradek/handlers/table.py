"""The table of APIs: what a request is routed by, and what ApiVersions is answered from.

A row names an API, the versions that are served, the first flexible one, who handles it and
who answers when the handler fails. The versions are Kafka 4.2's, and below them what
clients that are still about need: Produce from 0 and Fetch from 0 for the oldest mode of
librdkafka and for kafkajs, ListOffsets from 0 likewise. An API is advertised by having its row
here, and by nothing else.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from odradek.handlers import (
    alter_configs,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)
from odradek.handlers.context import Api

_ROWS: Final = (
    Api(0, "Produce", 0, 13, 9, produce.handle, produce.fail),
    Api(1, "Fetch", 0, 18, 12, fetch.handle, fetch.fail),
    Api(2, "ListOffsets", 0, 11, 6, list_offsets.handle, list_offsets.fail),
    Api(3, "Metadata", 0, 13, 9, metadata.handle, metadata.fail),
    Api(8, "OffsetCommit", 2, 10, 8, offset_commit.handle, offset_commit.fail),
    Api(9, "OffsetFetch", 1, 10, 6, offset_fetch.handle, offset_fetch.fail),
    Api(10, "FindCoordinator", 0, 6, 3, find_coordinator.handle, find_coordinator.fail),
    Api(11, "JoinGroup", 0, 9, 6, join_group.handle, join_group.fail),
    Api(12, "Heartbeat", 0, 4, 4, heartbeat.handle, heartbeat.fail),
    Api(13, "LeaveGroup", 0, 5, 4, leave_group.handle, leave_group.fail),
    Api(14, "SyncGroup", 0, 5, 4, sync_group.handle, sync_group.fail),
    Api(15, "DescribeGroups", 0, 6, 5, describe_groups.handle, describe_groups.fail),
    Api(16, "ListGroups", 0, 5, 3, list_groups.handle, list_groups.fail),
    Api(18, "ApiVersions", 0, 4, 3, api_versions.handle, api_versions.fail),
    Api(19, "CreateTopics", 2, 7, 5, create_topics.handle, create_topics.fail),
    Api(20, "DeleteTopics", 1, 6, 4, delete_topics.handle, delete_topics.fail),
    Api(21, "DeleteRecords", 0, 2, 2, delete_records.handle, delete_records.fail),
    Api(22, "InitProducerId", 0, 5, 2, init_producer_id.handle, init_producer_id.fail),
    Api(
        23,
        "OffsetForLeaderEpoch",
        2,
        4,
        4,
        offset_for_leader_epoch.handle,
        offset_for_leader_epoch.fail,
    ),
    Api(32, "DescribeConfigs", 1, 4, 4, describe_configs.handle, describe_configs.fail),
    Api(33, "AlterConfigs", 0, 2, 2, alter_configs.handle, alter_configs.fail),
    Api(35, "DescribeLogDirs", 1, 4, 2, describe_log_dirs.handle, describe_log_dirs.fail),
    Api(37, "CreatePartitions", 0, 3, 2, create_partitions.handle, create_partitions.fail),
    Api(42, "DeleteGroups", 0, 2, 2, delete_groups.handle, delete_groups.fail),
    Api(43, "ElectLeaders", 0, 2, 2, elect_leaders.handle, elect_leaders.fail),
    Api(
        44,
        "IncrementalAlterConfigs",
        0,
        1,
        1,
        incremental_alter_configs.handle,
        incremental_alter_configs.fail,
    ),
    Api(47, "OffsetDelete", 0, 0, 1, offset_delete.handle, offset_delete.fail),
    Api(60, "DescribeCluster", 0, 2, 0, describe_cluster.handle, describe_cluster.fail),
    Api(61, "DescribeProducers", 0, 0, 0, describe_producers.handle, describe_producers.fail),
    Api(
        68,
        "ConsumerGroupHeartbeat",
        0,
        1,
        0,
        consumer_group_heartbeat.handle,
        consumer_group_heartbeat.fail,
    ),
    Api(
        69,
        "ConsumerGroupDescribe",
        0,
        1,
        0,
        consumer_group_describe.handle,
        consumer_group_describe.fail,
    ),
    Api(
        75,
        "DescribeTopicPartitions",
        0,
        0,
        0,
        describe_topic_partitions.handle,
        describe_topic_partitions.fail,
    ),
)

API_TABLE: Final[Mapping[int, Api]] = MappingProxyType({row.key: row for row in _ROWS})
