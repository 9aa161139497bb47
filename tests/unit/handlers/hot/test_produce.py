"""Produce, over real logs. What is wrong here, every producer in every language notices."""

import pytest

from odradek.errors import ErrorCode
from odradek.records.compression import Compression
from odradek.records.legacy import build_message
from odradek.records.reader import iter_records


@pytest.mark.parametrize("version", range(14))
def test_every_version_appends(broker, batch, version):
    topic_id = broker.create()
    records = batch(b"a", b"b")
    if version < 3:
        magic = 1 if version == 2 else 0
        records = b"".join(build_message(magic, i, 1_700_000_000_000, b"k", b"v") for i in (0, 1))
    topic = topic_id if version >= 13 else "orders"
    broker.produce(records, version=version, topic=topic)
    answer = broker.produce(records, version=version, topic=topic)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 2)
    data = broker.log().read(0, 1 << 20, 4, True).records
    assert [record.offset for record in iter_records(b"".join(data))] == [0, 1, 2, 3]


def test_nothing_is_appended_or_answered_before_the_read_ends(broker, batch):
    """One write and one reply for all that a read brought is where the throughput is from."""
    broker.create()
    exchanges = [broker.send_produce(batch(b"a")) for _ in range(3)]
    assert all(exchange.batched for exchange in exchanges)
    assert broker.log().log_end_offset == 0
    broker.dispatcher.end_of_read()
    assert [broker.produced(exchange).base_offset for exchange in exchanges] == [0, 1, 2]


def test_another_request_ends_the_read_of_what_came_before_it(broker, batch):
    """A client that produces and then asks for the latest offset must see its record."""
    broker.create()
    broker.send_produce(batch(b"a"))
    assert broker.list_offsets(-1)[0].offset == 1


def test_acks_0_is_silent(broker, batch):
    broker.create()
    exchange = broker.send_produce(batch(b"a"), acks=0)
    broker.dispatcher.end_of_read()
    assert exchange.is_silent
    assert exchange.sent is None
    assert broker.log().log_end_offset == 1


@pytest.mark.parametrize("topic", ["orders", "nowhere"])
def test_acks_0_that_fails_closes_the_connection(broker, batch, topic):
    """The client has no other way to learn that its records are lost."""
    broker.create()
    records = bytearray(batch(b"a"))
    records[40] ^= 1
    exchange = broker.send_produce(records, acks=0, topic=topic)
    broker.dispatcher.end_of_read()
    assert exchange.closed


def test_acks_all_on_one_replica_is_answered_at_once(broker, batch):
    broker.create()
    assert broker.produce(batch(b"a"), acks=-1).base_offset == 0


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"acks": 2}, ErrorCode.INVALID_REQUIRED_ACKS),
        ({"topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic": "__consumer_offsets"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_refusals(broker, batch, fields, code):
    broker.create()
    answer = broker.produce(batch(b"a"), **fields)
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert broker.log().log_end_offset == 0


def test_an_unknown_id_is_refused(broker, batch):
    topic_id = broker.create()
    unknown = type(topic_id)(int=1)
    assert broker.produce(batch(b"a"), version=13, topic=unknown).error_code == (
        ErrorCode.UNKNOWN_TOPIC_ID
    )


@pytest.mark.parametrize("records", [None, b""])
def test_no_records_are_refused(broker, records):
    broker.create()
    assert broker.produce(records).error_code == ErrorCode.INVALID_RECORD


def test_two_batches_for_a_partition_are_refused_from_version_3_on(broker, batch):
    broker.create()
    assert broker.produce(batch(b"a") * 2).error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("cut", [5, 40, -1])
def test_a_cut_off_batch_is_corrupt(broker, batch, cut):
    broker.create()
    assert broker.produce(batch(b"abc")[:cut]).error_code == ErrorCode.CORRUPT_MESSAGE


def test_old_magic_in_a_new_version_is_refused(broker):
    broker.create()
    records = build_message(1, 0, 0, b"key", b"v" * 40)
    assert broker.produce(records).error_code == ErrorCode.INVALID_RECORD


def test_zstd_needs_version_7(broker, batch):
    broker.create()
    records = batch(b"a", codec=Compression.ZSTD)
    assert broker.produce(records, version=6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert broker.produce(records, version=7).error_code == ErrorCode.NONE


def test_a_transaction_without_an_id_is_refused(broker, batch):
    broker.create()
    records = batch(b"a", is_transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
    refused = broker.produce(records)
    assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_too_large_a_batch_is_refused(broker, batch):
    broker.create(**{"max.message.bytes": "200"})
    assert broker.produce(batch(b"x" * 300)).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_bad_records_are_pointed_at(broker, batch):
    """A compacted topic cannot keep a record without a key; the client learns which one."""
    from odradek.records.builder import RecordBatchBuilder

    broker.create(**{"cleanup.policy": "compact"})
    builder = RecordBatchBuilder(Compression.NONE)
    builder.append(0, b"key", b"v")
    builder.append(0, None, b"v")
    answer = broker.produce(builder.build())
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [index for index, _ in answer.record_errors] == [1]


def test_a_duplicate_is_answered_with_its_first_offset(broker, batch):
    """An idempotent producer's retry must not write twice, nor learn another offset."""
    broker.create()
    records = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    first = broker.produce(records)
    second = broker.produce(records)
    assert (second.error_code, second.base_offset) == (ErrorCode.NONE, first.base_offset)
    assert broker.log().log_end_offset == 1
    gap = batch(b"b", producer_id=7, producer_epoch=0, base_sequence=5)
    assert broker.produce(gap).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_append_time_is_told_when_it_is_the_brokers(broker, batch):
    broker.create(**{"message.timestamp.type": "LogAppendTime"})
    assert broker.produce(batch(b"a")).log_append_time_ms == broker.clock.wall_ms()


def test_a_new_leader_is_named_from_version_10_on(broker, batch):
    broker.create()
    partition = broker.replicas.partition(broker.log().topic_partition)
    partition.in_sync_replicas = None
    exchange = broker.send_produce(batch(b"a"), version=10)
    broker.dispatcher.end_of_read()
    answer = broker.produced(exchange, 10)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.current_leader_id, answer.current_leader_epoch) == (1, partition.leader_epoch)


def test_a_failed_disk_is_told_as_old_clients_know_it(broker, batch):
    broker.create()
    broker.log_manager.directories[0].fail(OSError(5, "the disk has gone"))
    assert broker.produce(batch(b"a"), version=4).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    answer = broker.produce(batch(b"a"), version=3)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
