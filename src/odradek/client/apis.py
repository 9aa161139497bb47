"""The APIs of clients with their versions; each connection agrees on one version with its
broker."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.client.errors import UnsupportedVersion
from odradek.protocol.header import NEVER_FLEXIBLE


class ClientApi(NamedTuple):
    """An API with the versions that a client here can write and read.

    `flexible_from` is the first version with compact lengths and tagged fields, `throttles_from`
    the first in which a broker leaves it to the client to wait as long as an answer says (KIP-219),
    `limited_by` the setting by which its answer is waited for.
    """

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int = NEVER_FLEXIBLE
    throttles_from: int = 0
    limited_by: str = "request.timeout.ms"


PRODUCE: Final = ClientApi(0, "Produce", 3, 13, 9, throttles_from=6)
FETCH: Final = ClientApi(1, "Fetch", 4, 17, 12, throttles_from=8)
LIST_OFFSETS: Final = ClientApi(2, "ListOffsets", 1, 11, 6, throttles_from=3)
METADATA: Final = ClientApi(3, "Metadata", 4, 13, 9, throttles_from=6)
OFFSET_COMMIT: Final = ClientApi(8, "OffsetCommit", 2, 9, 8, throttles_from=4)
# Names topics by id, which whoever commits has to know.
OFFSET_COMMIT_BY_ID: Final = ClientApi(8, "OffsetCommit", 10, 10, 8)
OFFSET_FETCH: Final = ClientApi(9, "OffsetFetch", 1, 9, 6, throttles_from=4)
FIND_COORDINATOR: Final = ClientApi(10, "FindCoordinator", 0, 6, 3, throttles_from=2)
JOIN_GROUP: Final = ClientApi(
    11, "JoinGroup", 2, 9, 6, throttles_from=3, limited_by="max.poll.interval.ms"
)
HEARTBEAT: Final = ClientApi(12, "Heartbeat", 0, 4, 4, throttles_from=2)
LEAVE_GROUP: Final = ClientApi(13, "LeaveGroup", 0, 5, 4, throttles_from=2)
SYNC_GROUP: Final = ClientApi(
    14, "SyncGroup", 0, 5, 4, throttles_from=2, limited_by="max.poll.interval.ms"
)
DESCRIBE_GROUPS: Final = ClientApi(15, "DescribeGroups", 0, 6, 5, throttles_from=2)
LIST_GROUPS: Final = ClientApi(16, "ListGroups", 0, 5, 3, throttles_from=2)
API_VERSIONS: Final = ClientApi(18, "ApiVersions", 0, 4, 3)
CREATE_TOPICS: Final = ClientApi(19, "CreateTopics", 2, 7, 5, throttles_from=3)
DELETE_TOPICS: Final = ClientApi(20, "DeleteTopics", 1, 6, 4, throttles_from=2)
DELETE_RECORDS: Final = ClientApi(21, "DeleteRecords", 0, 2, 2, throttles_from=1)
INIT_PRODUCER_ID: Final = ClientApi(22, "InitProducerId", 0, 5, 2, throttles_from=1)
# Before version 3 it is for brokers alone.
OFFSET_FOR_LEADER_EPOCH: Final = ClientApi(23, "OffsetForLeaderEpoch", 3, 4, 4)
ADD_PARTITIONS_TO_TXN: Final = ClientApi(24, "AddPartitionsToTxn", 0, 3, 3, throttles_from=1)
ADD_OFFSETS_TO_TXN: Final = ClientApi(25, "AddOffsetsToTxn", 0, 4, 3, throttles_from=1)
END_TXN: Final = ClientApi(26, "EndTxn", 0, 5, 3, throttles_from=1)
WRITE_TXN_MARKERS: Final = ClientApi(27, "WriteTxnMarkers", 1, 2, 1)
TXN_OFFSET_COMMIT: Final = ClientApi(28, "TxnOffsetCommit", 0, 5, 3, throttles_from=1)
DESCRIBE_ACLS: Final = ClientApi(29, "DescribeAcls", 1, 3, 2, throttles_from=1)
CREATE_ACLS: Final = ClientApi(30, "CreateAcls", 1, 3, 2, throttles_from=1)
DELETE_ACLS: Final = ClientApi(31, "DeleteAcls", 1, 3, 2, throttles_from=1)
DESCRIBE_CONFIGS: Final = ClientApi(32, "DescribeConfigs", 1, 4, 4, throttles_from=2)
ALTER_REPLICA_LOG_DIRS: Final = ClientApi(34, "AlterReplicaLogDirs", 1, 2, 2, throttles_from=1)
DESCRIBE_LOG_DIRS: Final = ClientApi(35, "DescribeLogDirs", 1, 5, 2, throttles_from=1)
CREATE_PARTITIONS: Final = ClientApi(37, "CreatePartitions", 0, 3, 2, throttles_from=1)
CREATE_DELEGATION_TOKEN: Final = ClientApi(38, "CreateDelegationToken", 1, 3, 2, throttles_from=1)
RENEW_DELEGATION_TOKEN: Final = ClientApi(39, "RenewDelegationToken", 1, 2, 2, throttles_from=1)
EXPIRE_DELEGATION_TOKEN: Final = ClientApi(40, "ExpireDelegationToken", 1, 2, 2, throttles_from=1)
DESCRIBE_DELEGATION_TOKEN: Final = ClientApi(
    41, "DescribeDelegationToken", 1, 3, 2, throttles_from=1
)
DELETE_GROUPS: Final = ClientApi(42, "DeleteGroups", 0, 2, 2, throttles_from=1)
ELECT_LEADERS: Final = ClientApi(43, "ElectLeaders", 0, 2, 2)
INCREMENTAL_ALTER_CONFIGS: Final = ClientApi(44, "IncrementalAlterConfigs", 0, 1, 1)
ALTER_PARTITION_REASSIGNMENTS: Final = ClientApi(45, "AlterPartitionReassignments", 0, 1, 0)
LIST_PARTITION_REASSIGNMENTS: Final = ClientApi(46, "ListPartitionReassignments", 0, 0, 0)
OFFSET_DELETE: Final = ClientApi(47, "OffsetDelete", 0, 0)
DESCRIBE_CLIENT_QUOTAS: Final = ClientApi(48, "DescribeClientQuotas", 0, 1, 1)
ALTER_CLIENT_QUOTAS: Final = ClientApi(49, "AlterClientQuotas", 0, 1, 1)
DESCRIBE_USER_SCRAM_CREDENTIALS: Final = ClientApi(50, "DescribeUserScramCredentials", 0, 0, 0)
ALTER_USER_SCRAM_CREDENTIALS: Final = ClientApi(51, "AlterUserScramCredentials", 0, 0, 0)
DESCRIBE_QUORUM: Final = ClientApi(55, "DescribeQuorum", 0, 2, 0)
DESCRIBE_CLUSTER: Final = ClientApi(60, "DescribeCluster", 0, 2, 0)
DESCRIBE_PRODUCERS: Final = ClientApi(61, "DescribeProducers", 0, 0, 0)
UNREGISTER_BROKER: Final = ClientApi(64, "UnregisterBroker", 0, 0, 0)
DESCRIBE_TRANSACTIONS: Final = ClientApi(65, "DescribeTransactions", 0, 0, 0)
LIST_TRANSACTIONS: Final = ClientApi(66, "ListTransactions", 0, 2, 0)
CONSUMER_GROUP_HEARTBEAT: Final = ClientApi(68, "ConsumerGroupHeartbeat", 0, 1, 0)
CONSUMER_GROUP_DESCRIBE: Final = ClientApi(69, "ConsumerGroupDescribe", 0, 1, 0)
SHARE_GROUP_HEARTBEAT: Final = ClientApi(76, "ShareGroupHeartbeat", 1, 1, 0)
SHARE_GROUP_DESCRIBE: Final = ClientApi(77, "ShareGroupDescribe", 1, 1, 0)
SHARE_FETCH: Final = ClientApi(78, "ShareFetch", 1, 2, 0)
SHARE_ACKNOWLEDGE: Final = ClientApi(79, "ShareAcknowledge", 1, 2, 0)
DESCRIBE_SHARE_GROUP_OFFSETS: Final = ClientApi(90, "DescribeShareGroupOffsets", 0, 1, 0)
ALTER_SHARE_GROUP_OFFSETS: Final = ClientApi(91, "AlterShareGroupOffsets", 0, 0, 0)
DELETE_SHARE_GROUP_OFFSETS: Final = ClientApi(92, "DeleteShareGroupOffsets", 0, 0, 0)
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
