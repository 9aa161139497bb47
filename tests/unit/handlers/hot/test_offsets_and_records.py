"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords and DescribeProducers, over real logs."""

import pytest

from odradek.errors import ErrorCode

DELETE_RECORDS, OFFSET_FOR_LEADER_EPOCH, DESCRIBE_PRODUCERS = 21, 23, 61


@pytest.fixture
def filled(broker, batch):
    broker.create()
    for value in (b"a", b"b", b"c"):
        broker.produce(batch(value, producer_id=9, producer_epoch=1, base_sequence=value[0] - 97))
    return broker


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_finds_both_ends(filled, version):
    latest, earliest = (filled.list_offsets(each, version=version)[0] for each in (-1, -2))
    assert (latest.offset, earliest.offset) == (3, 0)
    assert latest.error_code == earliest.error_code == ErrorCode.NONE


def test_version_0_lists_segment_starts(filled):
    (answer,) = filled.list_offsets(-1, version=0)
    assert answer.old_style_offsets == [3] or answer.old_style_offsets == [3, 0]


@pytest.mark.parametrize(("timestamp", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 12)])
def test_a_name_is_refused_before_the_version_that_brought_it(filled, timestamp, since):
    (before,) = filled.list_offsets(timestamp, version=since - 1)
    assert before.error_code == ErrorCode.UNSUPPORTED_VERSION
    if since <= 11:
        (known,) = filled.list_offsets(timestamp, version=since)
        assert known.error_code == ErrorCode.NONE


def test_a_partition_asked_for_twice_is_refused(filled):
    codes = [each.error_code for each in filled.list_offsets(-1, -2)]
    assert codes == [ErrorCode.INVALID_REQUEST] * 2


def test_an_unknown_partition_is_refused(filled):
    (answer,) = filled.list_offsets(-1, partition=4)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def delete_records(broker, offset, version=2):
    asked = [{"name": "orders", "partitions": [{"partition_index": 0, "offset": offset}]}]
    response = broker.cluster.ask(DELETE_RECORDS, version, topics=asked, timeout_ms=1000)
    partition = response.topics[0].partitions[0]
    return int(partition.error_code), partition.low_watermark


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted(filled, version):
    assert delete_records(filled, 2, version) == (0, 2)
    assert filled.list_offsets(-2)[0].offset == 2
    assert delete_records(filled, -1, version) == (0, 3)
    assert delete_records(filled, 9, version) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_where_an_epoch_ends(filled, version):
    asked = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    unknown = {"partition": 5, "current_leader_epoch": -1, "leader_epoch": 0}
    response = filled.cluster.ask(
        OFFSET_FOR_LEADER_EPOCH,
        version,
        topics=[{"topic": "orders", "partitions": [asked, unknown]}],
    )
    found, missing = response.topics[0].partitions
    assert found.end_offset == 3
    assert int(missing.error_code) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_producers_are_described(filled):
    response = filled.cluster.ask(
        DESCRIBE_PRODUCERS, 0, topics=[{"name": "orders", "partition_indexes": [0, 8]}]
    )
    known, unknown = response.topics[0].partitions
    (producer,) = known.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (9, 1, 2)
    assert producer.current_txn_start_offset == -1
    assert int(unknown.error_code) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
