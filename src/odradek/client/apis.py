"""Which APIs clients speak and in which versions; one of them is agreed on with each broker."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.client.errors import UnsupportedVersion
from odradek.protocol.header import NEVER_FLEXIBLE


class ClientApi(NamedTuple):
    """An API with the versions that a client here can write and read.

    `flexible_from` is the first version with compact lengths and tagged fields.
    """

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int = NEVER_FLEXIBLE


PRODUCE: Final = ClientApi(0, "Produce", 3, 13, 9)
FETCH: Final = ClientApi(1, "Fetch", 4, 17, 12)
LIST_OFFSETS: Final = ClientApi(2, "ListOffsets", 1, 11, 6)
METADATA: Final = ClientApi(3, "Metadata", 4, 13, 9)
OFFSET_COMMIT: Final = ClientApi(8, "OffsetCommit", 2, 9, 8)
# Names topics by id, which whoever commits has to know.
OFFSET_COMMIT_BY_ID: Final = ClientApi(8, "OffsetCommit", 10, 10, 8)
OFFSET_FETCH: Final = ClientApi(9, "OffsetFetch", 1, 9, 6)
FIND_COORDINATOR: Final = ClientApi(10, "FindCoordinator", 0, 6, 3)
JOIN_GROUP: Final = ClientApi(11, "JoinGroup", 2, 9, 6)
HEARTBEAT: Final = ClientApi(12, "Heartbeat", 0, 4, 4)
LEAVE_GROUP: Final = ClientApi(13, "LeaveGroup", 0, 5, 4)
SYNC_GROUP: Final = ClientApi(14, "SyncGroup", 0, 5, 4)
DESCRIBE_GROUPS: Final = ClientApi(15, "DescribeGroups", 0, 6, 5)
LIST_GROUPS: Final = ClientApi(16, "ListGroups", 0, 5, 3)
API_VERSIONS: Final = ClientApi(18, "ApiVersions", 0, 4, 3)
CREATE_TOPICS: Final = ClientApi(19, "CreateTopics", 2, 7, 5)
DELETE_TOPICS: Final = ClientApi(20, "DeleteTopics", 1, 6, 4)
DELETE_RECORDS: Final = ClientApi(21, "DeleteRecords", 0, 2, 2)
INIT_PRODUCER_ID: Final = ClientApi(22, "InitProducerId", 0, 5, 2)
ADD_PARTITIONS_TO_TXN: Final = ClientApi(24, "AddPartitionsToTxn", 0, 3, 3)
ADD_OFFSETS_TO_TXN: Final = ClientApi(25, "AddOffsetsToTxn", 0, 4, 3)
END_TXN: Final = ClientApi(26, "EndTxn", 0, 5, 3)
WRITE_TXN_MARKERS: Final = ClientApi(27, "WriteTxnMarkers", 1, 2, 1)
TXN_OFFSET_COMMIT: Final = ClientApi(28, "TxnOffsetCommit", 0, 5, 3)
DESCRIBE_CONFIGS: Final = ClientApi(32, "DescribeConfigs", 1, 4, 4)
ALTER_REPLICA_LOG_DIRS: Final = ClientApi(34, "AlterReplicaLogDirs", 1, 2, 2)
DESCRIBE_LOG_DIRS: Final = ClientApi(35, "DescribeLogDirs", 1, 5, 2)
CREATE_PARTITIONS: Final = ClientApi(37, "CreatePartitions", 0, 3, 2)
DELETE_GROUPS: Final = ClientApi(42, "DeleteGroups", 0, 2, 2)
ELECT_LEADERS: Final = ClientApi(43, "ElectLeaders", 0, 2, 2)
INCREMENTAL_ALTER_CONFIGS: Final = ClientApi(44, "IncrementalAlterConfigs", 0, 1, 1)
ALTER_PARTITION_REASSIGNMENTS: Final = ClientApi(45, "AlterPartitionReassignments", 0, 1, 0)
LIST_PARTITION_REASSIGNMENTS: Final = ClientApi(46, "ListPartitionReassignments", 0, 0, 0)
OFFSET_DELETE: Final = ClientApi(47, "OffsetDelete", 0, 0)
DESCRIBE_CLUSTER: Final = ClientApi(60, "DescribeCluster", 0, 2, 0)
DESCRIBE_PRODUCERS: Final = ClientApi(61, "DescribeProducers", 0, 0, 0)
UNREGISTER_BROKER: Final = ClientApi(64, "UnregisterBroker", 0, 0, 0)
DESCRIBE_TRANSACTIONS: Final = ClientApi(65, "DescribeTransactions", 0, 0, 0)
LIST_TRANSACTIONS: Final = ClientApi(66, "ListTransactions", 0, 2, 0)
CONSUMER_GROUP_HEARTBEAT: Final = ClientApi(68, "ConsumerGroupHeartbeat", 0, 1, 0)
CONSUMER_GROUP_DESCRIBE: Final = ClientApi(69, "ConsumerGroupDescribe", 0, 1, 0)
DESCRIBE_TOPIC_PARTITIONS: Final = ClientApi(75, "DescribeTopicPartitions", 0, 0, 0)
LIST_CONFIG_RESOURCES: Final = ClientApi(74, "ListConfigResources", 0, 1, 0)

VersionRanges = Mapping[int, tuple[int, int]]


def agree(api: ClientApi, broker: VersionRanges) -> int:
    """The highest version that both sides speak.

    Raises:
        UnsupportedVersion: there is none.
    """
    lowest, highest = broker.get(api.key, (0, -1))
    version = min(api.max_version, highest)
    if version < max(api.min_version, lowest):
        raise UnsupportedVersion(
            f"{api.name}: the broker has versions {lowest} to {highest}, "
            f"this client {api.min_version} to {api.max_version}",
        )
    return version
