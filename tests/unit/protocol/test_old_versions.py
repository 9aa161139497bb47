"""Versions that kio does not know, byte by byte, as old clients write and read them."""

import pytest

from odradek.protocol.direct import fetch, list_offsets, produce


def joined(buffers):
    return b"".join(bytes(buffer) for buffer in buffers)


PRODUCE_REQUEST = bytes.fromhex(
    "0001"  # acks
    "000003e8"  # timeout
    "00000001 0001 74"  # one topic, "t"
    "00000001 00000002"  # one partition, 2
    "00000003 616263"  # records
)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_produce_request(version):
    """librdkafka in its oldest mode could not produce."""
    request = produce.decode_produce_request(memoryview(PRODUCE_REQUEST), version, 0)
    assert (request.transactional_id, request.acks, request.timeout_ms) == (None, 1, 1000)
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (topic.name, partition.index, bytes(partition.records)) == ("t", 2, b"abc")
    assert joined(produce.encode_produce_request(request, version)) == PRODUCE_REQUEST


PRODUCE_ANSWERS = {
    0: "00000007 00000001 0001 74 00000001 00000002 0003 0000000000000009",
    1: "00000007 00000001 0001 74 00000001 00000002 0003 0000000000000009 0000000b",
    2: "00000007 00000001 0001 74 00000001 00000002 0003 0000000000000009000000000000000d 0000000b",
}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_produce_response(version):
    """An old producer would take its answer for something else."""
    answer = produce.ProducePartitionResponse(2, 3, 9, log_append_time_ms=13, log_start_offset=99)
    topic = produce.ProduceTopicResponse("t", None, [answer])
    response = produce.ProduceResponse([topic], throttle_time_ms=11)
    expected = bytes.fromhex(PRODUCE_ANSWERS[version])
    assert produce.encode_produce_response(response, version, 7) == expected


FETCH_BEGIN = "ffffffff 000001f4 00000001"
FETCH_TOPIC = "00000001 0001 74 00000001 00000002 0000000000000009 00000400"
FETCH_REQUESTS = {
    0: FETCH_BEGIN + FETCH_TOPIC,
    1: FETCH_BEGIN + FETCH_TOPIC,
    2: FETCH_BEGIN + FETCH_TOPIC,
    3: FETCH_BEGIN + "00010000" + FETCH_TOPIC,
}


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_old_fetch_request(version):
    """librdkafka in its oldest mode could not consume."""
    data = bytes.fromhex(FETCH_REQUESTS[version])
    request = fetch.decode_fetch_request(memoryview(data), version, 0)
    assert (request.replica_id, request.max_wait_ms, request.min_bytes) == (-1, 500, 1)
    assert request.max_bytes == (0x10000 if version == 3 else 0x7FFFFFFF)
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (topic.name, partition.index, partition.fetch_offset) == ("t", 2, 9)
    assert partition.partition_max_bytes == 1024
    assert joined(fetch.encode_fetch_request(request, version)) == data


FETCH_ANSWER = "00000001 0001 74 00000001 00000002 0000 0000000000000009 00000003 616263"


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_old_fetch_response(version):
    """An old consumer would read its records from a wrong place."""
    answer = fetch.FetchPartitionResponse(2, 0, 9, 8, 7, [(1, 2)], -1, [b"a", b"bc"])
    topic = fetch.FetchTopicResponse("t", None, [answer])
    response = fetch.FetchResponse([topic], throttle_time_ms=11)
    throttle = "" if version == 0 else "0000000b"
    expected = bytes.fromhex("00000007" + throttle + FETCH_ANSWER)
    assert joined(fetch.encode_fetch_response(response, version, 7)) == expected


def test_oldest_list_offsets():
    """kcat -Q and old consumers could not find the ends of a log."""
    data = bytes.fromhex("ffffffff 00000001 0001 74 00000001 00000002 ffffffffffffffff 00000005")
    request = list_offsets.decode_list_offsets_request(memoryview(data), 0, 0)
    (partition,) = request.topics[0].partitions
    assert (partition.index, partition.timestamp, partition.max_num_offsets) == (2, -1, 5)
    assert joined(list_offsets.encode_list_offsets_request(request, 0)) == data
    answer = list_offsets.ListOffsetsPartitionResponse(2, 0, old_style_offsets=[9, 0])
    topic = list_offsets.ListOffsetsTopicResponse("t", [answer])
    response = list_offsets.ListOffsetsResponse([topic], throttle_time_ms=11)
    assert list_offsets.encode_list_offsets_response(response, 0, 7) == bytes.fromhex(
        "00000007 00000001 0001 74 00000001 00000002 0000 00000002 00000000000000090000000000000000"
    )
