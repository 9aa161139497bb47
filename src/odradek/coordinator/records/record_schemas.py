"""Every field of the records of `__consumer_offsets`, `__transaction_state` and
`__share_group_state`, for tools.

Keyed by the number that a key begins with: the schema of the key and that of the value. The
coordinators themselves read and write these records in `group_records`, `offset_records`,
`consumer_group_records`, `share_group_records`, `transaction_records` and `share_state_records`.
The two members' fields of a classic
consumer group are records again, those of the client's own protocol.
"""

from typing import Final, NamedTuple

from odradek.protocol.schema import Field, Schema


class RecordSchemas(NamedTuple):
    """The key and the value of one kind of record."""

    key: Schema
    value: Schema


_GROUP_ID: Final = Field("groupId", "string")
_MEMBER_ID: Final = Field("memberId", "string")
_OFFSET_KEY: Final = (
    Field("group", "string"),
    Field("topic", "string"),
    Field("partition", "int32"),
)
_PARTITIONS: Final = (Field("topicId", "uuid"), Field("partitions", "[]int32"))
_TOPIC: Final = (Field("topicId", "uuid"), Field("topicName", "string"))
_TOPIC_PARTITIONS: Final = (*_TOPIC, Field("partitions", "[]int32"))
_ASSIGNED: Final = (*_PARTITIONS, Field("assignmentEpochs", "[]int32", tag=0))
_NAMED_PARTITIONS: Final = (Field("topic", "string"), Field("partitions", "[]int32"))

_OFFSET_VALUE: Final = Schema(
    "OffsetCommitValue",
    (
        Field("offset", "int64"),
        Field("leaderEpoch", "int32", since=3),
        Field("metadata", "string"),
        Field("commitTimestamp", "int64"),
        Field("expireTimestamp", "int64", since=1, until=1),
        Field("topicId", "uuid", since=4, tag=0),
    ),
    last_version=4,
    flexible_since=4,
)
_MEMBER: Final = (
    Field("memberId", "string"),
    Field("groupInstanceId", "string", since=3),
    Field("clientId", "string"),
    Field("clientHost", "string"),
    Field("rebalanceTimeout", "int32", since=1),
    Field("sessionTimeout", "int32"),
    Field("subscription", "bytes"),
    Field("assignment", "bytes"),
)
_GROUP_VALUE: Final = Schema(
    "GroupMetadataValue",
    (
        Field("protocolType", "string"),
        Field("generation", "int32"),
        Field("protocol", "string"),
        Field("leader", "string"),
        Field("currentStateTimestamp", "int64", since=2),
        Field("members", "[]struct", fields=_MEMBER),
    ),
    last_version=4,
    flexible_since=4,
)
_CLASSIC_MEMBER: Final = (
    Field("sessionTimeoutMs", "int32"),
    Field(
        "supportedProtocols",
        "[]struct",
        fields=(Field("name", "string"), Field("metadata", "bytes")),
    ),
)


def _key(name: str, *fields: Field) -> Schema:
    return Schema(name, fields)


def _value(name: str, *fields: Field) -> Schema:
    return Schema(name, fields, flexible_since=0)


def _target_epoch(group: str) -> RecordSchemas:
    """The epoch of a target assignment; `group` is the kind of group that it is for."""
    return RecordSchemas(
        _key(f"{group}TargetAssignmentMetadataKey", _GROUP_ID),
        _value(
            f"{group}TargetAssignmentMetadataValue",
            Field("assignmentEpoch", "int32"),
            Field("assignmentTimestamp", "int64", tag=0),
        ),
    )


def _target_member(group: str) -> RecordSchemas:
    """One member's part of a target assignment."""
    return RecordSchemas(
        _key(f"{group}TargetAssignmentMemberKey", _GROUP_ID, _MEMBER_ID),
        _value(
            f"{group}TargetAssignmentMemberValue",
            Field("topicPartitions", "[]struct", fields=_PARTITIONS),
        ),
    )


GROUP_RECORDS: Final[dict[int, RecordSchemas]] = {
    0: RecordSchemas(
        Schema("LegacyOffsetCommitKey", _OFFSET_KEY),
        _OFFSET_VALUE._replace(name="LegacyOffsetCommitValue", last_version=0),
    ),
    1: RecordSchemas(Schema("OffsetCommitKey", _OFFSET_KEY), _OFFSET_VALUE),
    2: RecordSchemas(_key("GroupMetadataKey", Field("group", "string")), _GROUP_VALUE),
    3: RecordSchemas(
        _key("ConsumerGroupMetadataKey", _GROUP_ID),
        _value(
            "ConsumerGroupMetadataValue",
            Field("epoch", "int32"),
            Field("metadataHash", "int64", tag=0),
        ),
    ),
    4: RecordSchemas(
        _key("ConsumerGroupPartitionMetadataKey", _GROUP_ID),
        _value(
            "ConsumerGroupPartitionMetadataValue",
            Field(
                "topics",
                "[]struct",
                fields=(
                    Field("topicId", "uuid"),
                    Field("topicName", "string"),
                    Field("numPartitions", "int32"),
                    Field(
                        "partitionMetadata",
                        "[]struct",
                        fields=(Field("partition", "int32"), Field("racks", "[]string")),
                    ),
                ),
            ),
        ),
    ),
    5: RecordSchemas(
        _key("ConsumerGroupMemberMetadataKey", _GROUP_ID, _MEMBER_ID),
        _value(
            "ConsumerGroupMemberMetadataValue",
            Field("instanceId", "string"),
            Field("rackId", "string"),
            Field("clientId", "string"),
            Field("clientHost", "string"),
            Field("subscribedTopicNames", "[]string"),
            Field("subscribedTopicRegex", "string"),
            Field("rebalanceTimeoutMs", "int32"),
            Field("serverAssignor", "string"),
            Field("classicMemberMetadata", "struct", tag=0, fields=_CLASSIC_MEMBER),
        ),
    ),
    6: _target_epoch("ConsumerGroup"),
    7: _target_member("ConsumerGroup"),
    8: RecordSchemas(
        _key("ConsumerGroupCurrentMemberAssignmentKey", _GROUP_ID, _MEMBER_ID),
        _value(
            "ConsumerGroupCurrentMemberAssignmentValue",
            Field("memberEpoch", "int32"),
            Field("previousMemberEpoch", "int32"),
            Field("state", "int8"),
            Field("assignedPartitions", "[]struct", fields=_ASSIGNED),
            Field("partitionsPendingRevocation", "[]struct", fields=_ASSIGNED),
        ),
    ),
    10: RecordSchemas(
        _key("ShareGroupMemberMetadataKey", _GROUP_ID, _MEMBER_ID),
        _value(
            "ShareGroupMemberMetadataValue",
            Field("rackId", "string"),
            Field("clientId", "string"),
            Field("clientHost", "string"),
            Field("subscribedTopicNames", "[]string"),
        ),
    ),
    11: RecordSchemas(
        _key("ShareGroupMetadataKey", _GROUP_ID),
        _value(
            "ShareGroupMetadataValue",
            Field("epoch", "int32"),
            Field("metadataHash", "int64"),
        ),
    ),
    12: _target_epoch("ShareGroup"),
    13: _target_member("ShareGroup"),
    14: RecordSchemas(
        _key("ShareGroupCurrentMemberAssignmentKey", _GROUP_ID, _MEMBER_ID),
        _value(
            "ShareGroupCurrentMemberAssignmentValue",
            Field("memberEpoch", "int32"),
            Field("previousMemberEpoch", "int32"),
            Field("state", "int8"),
            Field("assignedPartitions", "[]struct", fields=_PARTITIONS),
        ),
    ),
    15: RecordSchemas(
        _key("ShareGroupStatePartitionMetadataKey", _GROUP_ID),
        _value(
            "ShareGroupStatePartitionMetadataValue",
            Field("initializingTopics", "[]struct", fields=_TOPIC_PARTITIONS),
            Field("initializedTopics", "[]struct", fields=_TOPIC_PARTITIONS),
            Field("deletingTopics", "[]struct", fields=_TOPIC),
        ),
    ),
    16: RecordSchemas(
        _key("ConsumerGroupRegularExpressionKey", _GROUP_ID, Field("regularExpression", "string")),
        _value(
            "ConsumerGroupRegularExpressionValue",
            Field("topics", "[]string"),
            Field("version", "int64"),
            Field("timestamp", "int64"),
        ),
    ),
}

TRANSACTION_RECORDS: Final[dict[int, RecordSchemas]] = {
    0: RecordSchemas(
        _key("TransactionLogKey", Field("transactionalId", "string")),
        Schema(
            "TransactionLogValue",
            (
                Field("producerId", "int64"),
                Field("previousProducerId", "int64", since=1, tag=0),
                Field("nextProducerId", "int64", since=1, tag=1),
                Field("producerEpoch", "int16"),
                Field("nextProducerEpoch", "int16", since=1, tag=3),
                Field("transactionTimeoutMs", "int32"),
                Field("transactionStatus", "int8"),
                Field(
                    "transactionPartitions",
                    "[]struct",
                    fields=(Field("topic", "string"), Field("partitionIds", "[]int32")),
                ),
                Field("transactionLastUpdateTimestampMs", "int64"),
                Field("transactionStartTimestampMs", "int64"),
                Field("clientTransactionVersion", "int16", since=1, tag=2),
            ),
            last_version=1,
            flexible_since=1,
        ),
    ),
}

_SHARE_PARTITION: Final = (_GROUP_ID, Field("topicId", "uuid"), Field("partition", "int32"))
_DELIVERY_COMPLETE_COUNT: Final = Field("deliveryCompleteCount", "int32", tag=0)
_STATE_BATCHES: Final = Field(
    "stateBatches",
    "[]struct",
    fields=(
        Field("firstOffset", "int64"),
        Field("lastOffset", "int64"),
        Field("deliveryState", "int8"),
        Field("deliveryCount", "int16"),
    ),
)
SHARE_STATE_RECORDS: Final[dict[int, RecordSchemas]] = {
    0: RecordSchemas(
        _key("ShareSnapshotKey", *_SHARE_PARTITION),
        _value(
            "ShareSnapshotValue",
            Field("snapshotEpoch", "int32"),
            Field("stateEpoch", "int32"),
            Field("leaderEpoch", "int32"),
            Field("startOffset", "int64"),
            _DELIVERY_COMPLETE_COUNT,
            Field("createTimestamp", "int64"),
            Field("writeTimestamp", "int64"),
            _STATE_BATCHES,
        ),
    ),
    1: RecordSchemas(
        _key("ShareUpdateKey", *_SHARE_PARTITION),
        _value(
            "ShareUpdateValue",
            Field("snapshotEpoch", "int32"),
            Field("leaderEpoch", "int32"),
            Field("startOffset", "int64"),
            _DELIVERY_COMPLETE_COUNT,
            _STATE_BATCHES,
        ),
    ),
}

CONSUMER_SUBSCRIPTION: Final = Schema(
    "ConsumerProtocolSubscription",
    (
        Field("topics", "[]string"),
        Field("userData", "bytes"),
        Field("ownedPartitions", "[]struct", since=1, fields=_NAMED_PARTITIONS),
        Field("generationId", "int32", since=2),
        Field("rackId", "string", since=3),
    ),
    last_version=3,
)
CONSUMER_ASSIGNMENT: Final = Schema(
    "ConsumerProtocolAssignment",
    (
        Field("assignedPartitions", "[]struct", fields=_NAMED_PARTITIONS),
        Field("userData", "bytes"),
    ),
    last_version=3,
)
