"""The records of share groups in `__consumer_offsets`, to the byte as Kafka 4.3.0 makes them."""

from uuid import UUID

import pytest

from odradek.coordinator.records import share_group_records as share
from odradek.coordinator.records.record import CoordinatorRecord, RecordError
from odradek.coordinator.records.record_codec import GroupRecordCodec

CODEC = GroupRecordCodec()
TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
PARTITIONS = {TOPIC_ID: frozenset({0, 1})}
_TOPIC = "0200112233445566778899aabbccddeeff"
_INDEXES = "030000000000000001"

RECORDS = [
    (
        share.ShareGroupMemberMetadataKey("g", "m"),
        share.ShareGroupMemberMetadataValue(None, "c", "/h", ("t", "u")),
        "000a00016700016d",
        "0000000263032f68030274027500",
    ),
    (
        share.ShareGroupMetadataKey("g"),
        share.ShareGroupMetadataValue(5, -77),
        "000b000167",
        "000000000005ffffffffffffffb300",
    ),
    (
        share.ShareGroupTargetAssignmentMetadataKey("g"),
        share.ShareGroupTargetAssignmentMetadataValue(5, 17),
        "000c000167",
        "0000000000050100080000000000000011",
    ),
    (
        share.ShareGroupTargetAssignmentMetadataKey("g"),
        share.ShareGroupTargetAssignmentMetadataValue(5),
        "000c000167",
        "00000000000500",
    ),
    (
        share.ShareGroupTargetAssignmentMemberKey("g", "m"),
        share.ShareGroupTargetAssignmentMemberValue(PARTITIONS),
        "000d00016700016d",
        "0000" + _TOPIC + _INDEXES + "0000",
    ),
    (
        share.ShareGroupCurrentMemberAssignmentKey("g", "m"),
        share.ShareGroupCurrentMemberAssignmentValue(3, 2, 0, PARTITIONS),
        "000e00016700016d",
        "0000" + "00000003" + "00000002" + "00" + _TOPIC + _INDEXES + "0000",
    ),
    (
        share.ShareGroupStatePartitionMetadataKey("g"),
        share.ShareGroupStatePartitionMetadataValue(
            ((TOPIC_ID, "t", (0, 1)),), (), ((TOPIC_ID, "t"),)
        ),
        "000f000167",
        "0000" + _TOPIC + "0274" + _INDEXES + "00" + "01" + _TOPIC + "0274" + "00" + "00",
    ),
]


@pytest.mark.parametrize(("key", "value", "key_bytes", "value_bytes"), RECORDS)
def test_share_groups_are_stored_as_kafka_stores_them(key, value, key_bytes, value_bytes) -> None:
    """If this fails, a share group is lost when a directory changes between Kafka and us."""
    record = CoordinatorRecord(key, value)
    encoded = CODEC.encode(record)
    assert (encoded[0].hex(), encoded[1].hex()) == (key_bytes, value_bytes)
    assert CODEC.decode(*encoded) == record


@pytest.mark.parametrize(("key", "value", "key_bytes", "value_bytes"), RECORDS)
def test_a_cut_record_is_refused(key, value, key_bytes, value_bytes) -> None:
    """If this fails, a corrupt record is taken for another one, or ends the broker."""
    data = bytes.fromhex(value_bytes)
    with pytest.raises(RecordError):
        CODEC.decode(bytes.fromhex(key_bytes), data[:-1])
    with pytest.raises(RecordError):
        CODEC.decode(bytes.fromhex(key_bytes), b"\0\7" + data[2:])
