"""The records that an Apache Kafka without ZooKeeper writes into `__cluster_metadata-0`, as far as
they matter.

A record's value is a frame version (1), the number of its type and its version, all unsigned
varints, then its fields. `METADATA_RECORDS` holds the types for topics, settings, users, tokens,
ACLs and quotas; the others (features, brokers) are skipped. `CONTROL_RECORDS` are the quorum's own,
in control batches, by the number in the control key.
"""

from typing import Final

from odradek.protocol.primitives import ProtocolError, Reader
from odradek.protocol.schema import Field, Json, Schema, decode

TOPIC_RECORD: Final = 2
PARTITION_RECORD: Final = 3
CONFIG_RECORD: Final = 4
PARTITION_CHANGE_RECORD: Final = 5
REMOVE_TOPIC_RECORD: Final = 9
DELEGATION_TOKEN_RECORD: Final = 10
USER_SCRAM_CREDENTIAL_RECORD: Final = 11
CLIENT_QUOTA_RECORD: Final = 14
PRODUCER_IDS_RECORD: Final = 15
ACCESS_CONTROL_ENTRY_RECORD: Final = 18
REMOVE_ACCESS_CONTROL_ENTRY_RECORD: Final = 19
REMOVE_USER_SCRAM_CREDENTIAL_RECORD: Final = 22
BEGIN_TRANSACTION_RECORD: Final = 23
END_TRANSACTION_RECORD: Final = 24
ABORT_TRANSACTION_RECORD: Final = 25
REMOVE_DELEGATION_TOKEN_RECORD: Final = 26

_FRAME_VERSION: Final = 1
_FLEXIBLE: Final = 0


def _schema(name: str, *fields: Field, last_version: int = 0) -> Schema:
    return Schema(name, fields, last_version, _FLEXIBLE)


METADATA_RECORDS: Final[dict[int, Schema]] = {
    TOPIC_RECORD: _schema("TopicRecord", Field("name", "string"), Field("topicId", "uuid")),
    PARTITION_RECORD: _schema(
        "PartitionRecord",
        Field("partitionId", "int32"),
        Field("topicId", "uuid"),
        Field("replicas", "[]int32"),
        Field("isr", "[]int32"),
        Field("removingReplicas", "[]int32"),
        Field("addingReplicas", "[]int32"),
        Field("leader", "int32"),
        Field("leaderRecoveryState", "int8", tag=0),
        Field("leaderEpoch", "int32"),
        Field("partitionEpoch", "int32"),
        Field("directories", "[]uuid", since=1),
        Field("eligibleLeaderReplicas", "[]int32", since=2, tag=1),
        Field("lastKnownElr", "[]int32", since=2, tag=2),
        last_version=2,
    ),
    PARTITION_CHANGE_RECORD: _schema(
        "PartitionChangeRecord",
        Field("partitionId", "int32"),
        Field("topicId", "uuid"),
        Field("isr", "[]int32", tag=0),
        Field("leader", "int32", tag=1),
        Field("replicas", "[]int32", tag=2),
        Field("removingReplicas", "[]int32", tag=3),
        Field("addingReplicas", "[]int32", tag=4),
        Field("leaderRecoveryState", "int8", tag=5),
        Field("directories", "[]uuid", since=1, tag=8),
        Field("eligibleLeaderReplicas", "[]int32", since=2, tag=6),
        Field("lastKnownElr", "[]int32", since=2, tag=7),
        last_version=2,
    ),
    CONFIG_RECORD: _schema(
        "ConfigRecord",
        Field("resourceType", "int8"),
        Field("resourceName", "string"),
        Field("name", "string"),
        Field("value", "string"),
    ),
    REMOVE_TOPIC_RECORD: _schema("RemoveTopicRecord", Field("topicId", "uuid")),
    PRODUCER_IDS_RECORD: _schema(
        "ProducerIdsRecord",
        Field("brokerId", "int32"),
        Field("brokerEpoch", "int64"),
        Field("nextProducerId", "int64"),
    ),
    BEGIN_TRANSACTION_RECORD: _schema("BeginTransactionRecord", Field("name", "string", tag=0)),
    END_TRANSACTION_RECORD: _schema("EndTransactionRecord"),
    ABORT_TRANSACTION_RECORD: _schema("AbortTransactionRecord", Field("reason", "string", tag=0)),
    DELEGATION_TOKEN_RECORD: _schema(
        "DelegationTokenRecord",
        Field("owner", "string"),
        Field("requester", "string"),
        Field("renewers", "[]string"),
        Field("issueTimestamp", "int64"),
        Field("maxTimestamp", "int64"),
        Field("expirationTimestamp", "int64"),
        Field("tokenId", "string"),
    ),
    REMOVE_DELEGATION_TOKEN_RECORD: _schema(
        "RemoveDelegationTokenRecord", Field("tokenId", "string")
    ),
    USER_SCRAM_CREDENTIAL_RECORD: _schema(
        "UserScramCredentialRecord",
        Field("name", "string"),
        Field("mechanism", "int8"),
        Field("salt", "bytes"),
        Field("storedKey", "bytes"),
        Field("serverKey", "bytes"),
        Field("iterations", "int32"),
    ),
    REMOVE_USER_SCRAM_CREDENTIAL_RECORD: _schema(
        "RemoveUserScramCredentialRecord", Field("name", "string"), Field("mechanism", "int8")
    ),
    CLIENT_QUOTA_RECORD: _schema(
        "ClientQuotaRecord",
        Field(
            "entity",
            "[]struct",
            fields=(Field("entityType", "string"), Field("entityName", "string")),
        ),
        Field("key", "string"),
        Field("value", "float64"),
        Field("remove", "bool"),
    ),
    ACCESS_CONTROL_ENTRY_RECORD: _schema(
        "AccessControlEntryRecord",
        Field("id", "uuid"),
        Field("resourceType", "int8"),
        Field("resourceName", "string"),
        Field("patternType", "int8"),
        Field("principal", "string"),
        Field("host", "string"),
        Field("operation", "int8"),
        Field("permissionType", "int8"),
    ),
    REMOVE_ACCESS_CONTROL_ENTRY_RECORD: _schema(
        "RemoveAccessControlEntryRecord", Field("id", "uuid")
    ),
}

_VOTER: Final = (Field("voterId", "int32"), Field("voterDirectoryId", "uuid", since=1))
LEADER_CHANGE: Final = 2
CONTROL_RECORDS: Final[dict[int, Schema]] = {
    LEADER_CHANGE: _schema(
        "LeaderChange",
        Field("version", "int16"),
        Field("leaderId", "int32"),
        Field("voters", "[]struct", fields=_VOTER),
        Field("grantingVoters", "[]struct", fields=_VOTER),
        last_version=1,
    ),
    3: _schema(
        "SnapshotHeader", Field("version", "int16"), Field("lastContainedLogTimestamp", "int64")
    ),
    4: _schema("SnapshotFooter", Field("version", "int16")),
    5: _schema("KRaftVersion", Field("version", "int16"), Field("kRaftVersion", "int16")),
    6: _schema(
        "KRaftVoters",
        Field("version", "int16"),
        Field(
            "voters",
            "[]struct",
            fields=(
                Field("voterId", "int32"),
                Field("voterDirectoryId", "uuid"),
                Field(
                    "endpoints",
                    "[]struct",
                    fields=(
                        Field("name", "string"),
                        Field("host", "string"),
                        Field("port", "uint16"),
                    ),
                ),
                Field(
                    "kRaftVersionFeature",
                    "struct",
                    fields=(
                        Field("minSupportedVersion", "int16"),
                        Field("maxSupportedVersion", "int16"),
                    ),
                ),
            ),
        ),
    ),
}


def decode_metadata_record(value: bytes) -> tuple[int, dict[str, Json]]:
    """The number and the fields of a metadata record; no fields for a type that is skipped.

    Raises:
        ProtocolError: it is malformed, or newer than this code knows.
    """
    reader = Reader(memoryview(value))
    frame_version, number, version = reader.uvarint(), reader.uvarint(), reader.uvarint()
    if frame_version != _FRAME_VERSION:
        raise ProtocolError(f"frame version {frame_version} is not {_FRAME_VERSION}", 0)
    schema = METADATA_RECORDS.get(number)
    return number, {} if schema is None else decode(schema, version, value, reader.position)


def decode_control_record(number: int, value: bytes) -> dict[str, Json]:
    """The fields of a quorum's control record; `number` is in `CONTROL_RECORDS`.

    Raises:
        ProtocolError: it is malformed.
    """
    # These bear their version inside; LeaderChange's voters grew a field with it.
    version = Reader(memoryview(value)).int16()
    return decode(CONTROL_RECORDS[number], version, value)
