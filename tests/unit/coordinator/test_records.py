"""The formats of `__consumer_offsets`, to the byte where Kafka's are known."""

from uuid import UUID

import pytest

from odradek.coordinator.records import consumer_group_records as consumer
from odradek.coordinator.records.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadataValue,
    decode_group_value,
    encode_group_value,
)
from odradek.coordinator.records.offset_records import (
    OffsetAndMetadata,
    OffsetCommitKey,
    decode_offset_value,
)
from odradek.coordinator.records.record import CoordinatorRecord, RecordError
from odradek.coordinator.records.record_codec import GroupRecordCodec

CODEC = GroupRecordCodec()
TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
MEMBER = MemberMetadataValue("c-1", "i-1", "c", "/127.0.0.1", 60_000, 10_000, b"sub", b"share")
GROUP = GroupMetadataValue("consumer", 3, "range", "c-1", 1_700_000_000_000, (MEMBER,))
TOPICS = (consumer.TopicPartitions(TOPIC_ID, (0, 1, 5)), consumer.TopicPartitions(None, (), ()))

RECORDS = [
    (OffsetCommitKey("g", "t", 7), OffsetAndMetadata(42, 3, "note", 1_700_000_000_000)),
    (OffsetCommitKey("g", "t", 7), OffsetAndMetadata(42, 3, "", 17, -1, TOPIC_ID)),
    (OffsetCommitKey("g", "t", 7), OffsetAndMetadata(42, -1, "n", 17, 99)),
    (OffsetCommitKey("gruppe-ü-🧵", "t", 0), OffsetAndMetadata(2**62, -1, "m" * 4096, 1)),
    (OffsetCommitKey("", "t", 0), None),
    (GroupMetadataKey("g"), GROUP),
    (GroupMetadataKey("g"), GROUP._replace(protocol_name=None, leader_id=None, members=())),
    (GroupMetadataKey("g"), None),
    (consumer.ConsumerGroupMetadataKey("g"), consumer.ConsumerGroupMetadataValue(5, -77)),
    (consumer.ConsumerGroupMetadataKey("g"), consumer.ConsumerGroupMetadataValue(5)),
    (
        consumer.ConsumerGroupPartitionMetadataKey("g"),
        consumer.ConsumerGroupPartitionMetadataValue(
            (consumer.SubscribedTopic(TOPIC_ID, "t", 2, ((0, ("a", "b")), (1, ()))),)
        ),
    ),
    (
        consumer.ConsumerGroupMemberMetadataKey("g", "m"),
        consumer.ConsumerGroupMemberMetadataValue(
            None,
            "rack",
            "c",
            "/h",
            ("t", "u"),
            "t.*",
            30_000,
            "range",
            consumer.ClassicMemberMetadata(45_000, (("range", b"meta"), ("x", b""))),
        ),
    ),
    (
        consumer.ConsumerGroupTargetAssignmentMetadataKey("g"),
        consumer.ConsumerGroupTargetAssignmentMetadataValue(8, 1_700_000_000_000),
    ),
    (
        consumer.ConsumerGroupTargetAssignmentMemberKey("g", "m"),
        consumer.ConsumerGroupTargetAssignmentMemberValue(
            (consumer.TopicPartitions(TOPIC_ID, (1, 2)),)
        ),
    ),
    (
        consumer.ConsumerGroupCurrentMemberAssignmentKey("g", "m"),
        consumer.ConsumerGroupCurrentMemberAssignmentValue(4, 3, 1, TOPICS, TOPICS[:1]),
    ),
    (
        consumer.ConsumerGroupRegularExpressionKey("g", "t.*"),
        consumer.ConsumerGroupRegularExpressionValue(("t1", "t2"), 9, 1_700_000_000_000),
    ),
]


@pytest.mark.parametrize(("key", "value"), RECORDS)
def test_a_record_is_read_as_it_was_written(key, value):
    """Fails when a restart would find something else than was stored."""
    data = CODEC.encode(CoordinatorRecord(key, value))
    assert CODEC.decode(*data) == CoordinatorRecord(key, value)


def test_offsets_are_written_as_kafka_4_3_writes_them():
    """Fails when Kafka's tools would not print our offsets."""
    record = CoordinatorRecord(OffsetCommitKey("g", "t", 7), OffsetAndMetadata(42, 3, "n", 17))
    key, value = CODEC.encode(record)
    assert key.hex() == "0001" + "000167" + "000174" + "00000007"
    assert value is not None
    assert value.hex() == (
        "0004" + "000000000000002a" + "00000003" + "026e" + "0000000000000011" + "00"
    )


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("0000000000000000002a00016e0000000000000011", (42, -1, "n", 17, -1)),
        (
            "0001000000000000002a00016e00000000000000110000000000000063",
            (42, -1, "n", 17, 99),
        ),
        ("0002000000000000002a00016e0000000000000011", (42, -1, "n", 17, -1)),
        ("0003000000000000002a0000000300016e0000000000000011", (42, 3, "n", 17, -1)),
    ],
)
def test_old_offsets_are_read(data, expected):
    """Fails when the log of an older Kafka would be misread."""
    assert decode_offset_value(bytes.fromhex(data)) == OffsetAndMetadata(*expected)


@pytest.mark.parametrize("version", ["0000", "0001"])
def test_keys_of_both_versions_are_read(version):
    """Fails when offsets that a very old Kafka wrote are lost."""
    key = bytes.fromhex(version + "000167" + "000174" + "00000007")
    value = bytes.fromhex("0000000000000000002a00016e0000000000000011")
    name = OffsetCommitKey("g", "t", 7)
    expected = CoordinatorRecord(name, OffsetAndMetadata(42, -1, "n", 17))
    assert CODEC.decode(key, value) == expected
    assert CODEC.decode(key, None) == CoordinatorRecord(name, None)


@pytest.mark.parametrize("version", range(5))
def test_groups_of_all_versions_are_read(version):
    """Fails when the log of an older or newer Kafka would be misread."""
    found = decode_group_value(encode_group_value(GROUP, version))
    expected = GROUP
    if version < 3:
        expected = expected._replace(members=(MEMBER._replace(group_instance_id=None),))
    if version < 2:
        expected = expected._replace(current_state_timestamp_ms=-1)
    if version < 1:
        member = expected.members[0]._replace(rebalance_timeout_ms=MEMBER.session_timeout_ms)
        expected = expected._replace(members=(member,))
    assert found == expected


@pytest.mark.parametrize(("key", "value"), RECORDS)
def test_cut_records_are_refused(key, value):
    """Fails when a damaged record would end the broker instead of being passed over."""
    key_data, value_data = CODEC.encode(CoordinatorRecord(key, value))
    for cut in range(len(value_data or b"")):
        with pytest.raises(RecordError):
            CODEC.decode(key_data, (value_data or b"")[:cut])
    for cut in range(len(key_data)):
        with pytest.raises(RecordError):
            CODEC.decode(key_data[:cut], None)


def test_unknown_kinds_are_passed_over():
    """Fails when a record of a newer Kafka would keep a partition from loading."""
    assert CODEC.decode(b"\x00\x63abc", b"value") is None
