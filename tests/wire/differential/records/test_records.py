"""Records that a broker takes or refuses, and offsets by time: Apache Kafka and ours agree."""

from collections.abc import Callable

import lz4.frame
import pytest
from tests.wire.differential.harness import Peer, Scenario

from odradek.records.builder import RecordBatchBuilder, assemble_batch
from odradek.records.compression import Compression, compress

pytestmark = [pytest.mark.slow, pytest.mark.of_three_too, pytest.mark.xdist_group("jvm")]

Check = Callable[[Scenario], None]
LZ4 = int(Compression.LZ4)
START_MS = 1_700_000_000_000


def plain(count: int = 1, size_bytes: int = 10, **options: int) -> bytes:
    """A batch without compression."""
    builder = RecordBatchBuilder(0, **options)
    for number in range(count):
        builder.append(START_MS + number, b"key", bytes([number % 251]) * size_bytes, [])
    return bytes(builder.build())


def compressed(codec: int, records: bytes, count: int) -> bytes:
    """A batch around records that are compressed already."""
    return bytes(
        assemble_batch(
            records,
            base_offset=0,
            partition_leader_epoch=-1,
            attributes=codec,
            last_offset_delta=count - 1,
            base_timestamp=START_MS,
            max_timestamp=START_MS + count - 1,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=count,
        )
    )


def lz4_frame(records: bytes, **options: object) -> bytes:
    return bytes(lz4.frame.compress(records, block_size=lz4.frame.BLOCKSIZE_MAX64KB, **options))


def create(peer: Peer, name: str, **configs: str) -> None:
    topic = {
        "name": name,
        "num_partitions": 1,
        "replication_factor": 1,
        "configs": [{"name": key.replace("_", "."), "value": configs[key]} for key in configs],
    }
    peer.prepare("create_topics", 7, topics=[topic], timeout_ms=9000)
    peer.ask_until(
        lambda answer: not answer.topics[0].error_code and answer.topics[0].partitions[0].leader_id,
        "metadata",
        12,
        topics=[{"name": name}],
    )


def produce(peer: Peer, name: str, records: bytes | None, version: int = 9) -> None:
    data = [{"index": 0, "records": records}]
    peer.ask(
        "produce",
        version,
        acks=-1,
        timeout_ms=9000,
        topic_data=[{"name": name, "partition_data": data}],
    )


def test_lz4_frames(same_answers: Check) -> None:
    """Frames of linked blocks would be stored that no Java consumer can read."""
    records = plain(30, 5000)[61:]
    half = len(records) // 2
    frames = [
        compress(LZ4, records),
        lz4_frame(records, block_linked=True),
        lz4_frame(records, block_linked=True, content_checksum=True),
        lz4_frame(records, block_linked=False, store_size=True),
        lz4_frame(records, block_linked=False, store_size=False, content_checksum=True),
        lz4_frame(records, block_linked=False, store_size=False, block_checksum=True),
        lz4_frame(records[:half], block_linked=False, store_size=False)
        + lz4_frame(records[half:], block_linked=False, store_size=False),
        b"no frame",
    ]

    def scenario(peer: Peer) -> None:
        create(peer, "unreadable-lz4")
        for frame in frames:
            produce(peer, "unreadable-lz4", compressed(LZ4, frame, 30))
        small = lz4_frame(plain(1)[61:], block_linked=True)
        produce(peer, "unreadable-lz4", compressed(LZ4, small, 1))

    same_answers(scenario)


def test_other_codecs_that_cannot_be_read(same_answers: Check) -> None:
    """A client would be told something else of records that no codec can unpack."""
    records = plain(3)[61:]

    def scenario(peer: Peer) -> None:
        create(peer, "unreadable-codecs")
        for codec in (1, 2, 4):
            packed = compress(codec, records)
            for data in (packed, packed[:-3], b"nonsense"):
                produce(peer, "unreadable-codecs", compressed(codec, data, 3))

    same_answers(scenario)


def test_the_largest_timestamp_after_records_were_deleted(same_answers: Check) -> None:
    """A consumer would be told that there is no record where there is one."""

    def list_offsets(peer: Peer, name: str) -> None:
        for timestamp in (-1, -2, -3, START_MS, START_MS + 100, START_MS + 900):
            asked = [{"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}]
            peer.ask("list_offsets", 7, replica_id=-1, topics=[{"name": name, "partitions": asked}])

    def scenario(peer: Peer) -> None:
        create(peer, "times", message_timestamp_before_max_ms="9223372036854775807")
        list_offsets(peer, "times")
        for delta_ms in (100, 900, 300, 200, 300):
            builder = RecordBatchBuilder(0)
            builder.append(START_MS + delta_ms, b"k", b"v", [])
            builder.append(START_MS + delta_ms - 50, b"k", b"v", [])
            produce(peer, "times", bytes(builder.build()))
        list_offsets(peer, "times")
        for offset in (1, 2, 3, 4, 7, 10):
            deleted = [{"partition_index": 0, "offset": offset}]
            topics = [{"name": "times", "partitions": deleted}]
            peer.ask("delete_records", 2, topics=topics, timeout_ms=9000)
            list_offsets(peer, "times")

    same_answers(scenario)
