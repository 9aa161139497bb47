"""`odradek dump-log`: the lines of each kind of file, and one line for each kind of damage.

That the lines are Kafka's own is held by tests/wire/interchange/test_directories.py, with its tool.
"""

import json
import struct
from pathlib import Path
from uuid import UUID

import pytest
from tests.unit.cli import segments

from odradek.cli.main import AS_KAFKA, main
from odradek.coordinator.records import share_group_records
from odradek.coordinator.records.offset_records import (
    OffsetAndMetadata,
    OffsetCommitKey,
    encode_offset_key,
    encode_offset_value,
)
from odradek.coordinator.records.record import CoordinatorRecord
from odradek.coordinator.records.record_codec import GroupRecordCodec
from odradek.protocol.uuids import uuid_text
from odradek.records.batch import parse_header
from odradek.records.builder import RecordBatchBuilder
from odradek.records.reader import iter_records
from odradek.replication.schedule.marks import Entry, Mark, MarkKind, Target, build_marks
from odradek.storage.producers.producer_snapshot import encode_snapshot
from odradek.storage.producers.producer_state import BatchMetadata, ProducerState

TIME = segments.BASE_TIME_MS
TOPIC_ID = UUID(int=7 << 96)


@pytest.fixture
def dump(capsys: pytest.CaptureFixture[str]):
    """Dumps files; returns the exit status, the lines, and the lines of standard error."""

    def call(*words: str) -> tuple[int, list[str], list[str]]:
        status = main(["dump-log", "--files", *words])
        printed = capsys.readouterr()
        return status, printed.out.splitlines(), printed.err.splitlines()

    return call


def test_batches_and_records_of_magic_2(dump, tmp_path: Path) -> None:
    """Goal: the batch line, the record line, the message behind it."""
    data = segments.batch(7, [b"one", None], epoch=3)
    log = segments.write_segment(tmp_path, [data], 7)
    header = parse_header(data)
    status, lines, errors = dump(str(log), "--print-data-log")
    assert (status, errors) == (0, [])
    assert lines == [
        f"Dumping {log}",
        "Log starting offset: 7",
        "baseOffset: 7 lastOffset: 8 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 "
        "producerEpoch: -1 partitionLeaderEpoch: 3 isTransactional: false isControl: false "
        f"deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: {TIME + 8} "
        f"size: {len(data)} magic: 2 compresscodec: none crc: {header.crc} isvalid: true",
        f"| offset: 7 CreateTime: {TIME + 7} keySize: 2 valueSize: 3 sequence: -1 "
        "headerKeys: [] key: k0 payload: one",
        f"| offset: 8 CreateTime: {TIME + 8} keySize: 2 valueSize: -1 sequence: -1 "
        "headerKeys: [] key: k1",
    ]


def test_messages_of_magic_1_have_the_lines_of_their_time(dump, tmp_path: Path) -> None:
    """Goal: positions grow by 34 and the sizes of key and value; keyed lines name the key."""
    log = segments.write_segment(tmp_path, [])
    log.write_bytes(
        segments.message(0, b"c") + segments.message(1, b"d") + segments.message(2, b"a", b"a")
    )
    status, lines, errors = dump(str(log), "--print-data-log")
    assert (status, errors) == (0, [])
    assert lines[1] == "Starting offset: 0"
    assert lines[2] == (
        f"offset: 0 position: 0 CreateTime: {TIME} isvalid: true payloadsize: 1 magic: 1 "
        "compresscodec: NoCompressionCodec crc: 1269164006 payload: c"
    )
    assert lines[3].startswith("offset: 1 position: 35 ")
    assert lines[4].startswith("offset: 2 position: 70 ")
    assert lines[4].endswith(" keysize: 1 key: a payload: a")


def test_a_message_of_magic_0_has_no_time(dump, tmp_path: Path) -> None:
    """Goal: the oldest format is read as well."""
    log = segments.write_segment(tmp_path, [])
    log.write_bytes(segments.message(4, b"x", magic=0))
    assert (
        "offset: 4 position: 0 NoTimestampType: -1 isvalid: true payloadsize: 1 magic: 0 "
        in (dump(str(log))[1][2])
    )


def test_a_compressed_message_is_opened_by_deep_iteration(dump, tmp_path: Path) -> None:
    """Goal: the wrapper alone, or the messages inside, each with the position of the wrapper."""
    plain = segments.message(5, b"one") + segments.message(6, b"two")
    log = segments.write_segment(tmp_path, [])
    log.write_bytes(segments.message_set(list(iter_records(plain)), codec=1))
    shallow = dump(str(log))[1]
    assert len(shallow) == 3
    assert "offset: 6 position: 0 " in shallow[2]
    assert "compresscodec: GZIPCompressionCodec" in shallow[2]
    deep = dump(str(log), "--print-data-log")[1]
    assert [line.split(" CreateTime")[0] for line in deep[2:]] == [
        "offset: 5 position: 0",
        "offset: 6 position: 0",
    ]
    assert deep[2].endswith("payload: one")


def test_indexes_are_printed_and_compared_with_their_log(dump, tmp_path: Path) -> None:
    """Goal: each contradiction is told, as Kafka's tool tells it, and is an exit status of 1."""
    log = segments.write_segment(tmp_path, [segments.batch(0, [b"a"]), segments.batch(1, [b"b"])])
    index, times = log.with_suffix(".index"), log.with_suffix(".timeindex")
    size = log.stat().st_size // 2
    assert dump(f"{index},{times}") == (
        0,
        [
            f"Dumping {index}",
            f"offset: 1 position: {size}",
            f"Dumping {times}",
            f"timestamp: {TIME} offset: 0",
            f"timestamp: {TIME + 1} offset: 1",
        ],
        [],
    )
    assert dump(f"{index},{times}", "--index-sanity-check")[1][1::2] == [
        f"{index} passed sanity check.",
        f"{times} passed sanity check.",
    ]
    index.write_bytes(struct.pack(">ii", 9, size))
    times.write_bytes(struct.pack(">qiqi", TIME + 5, 1, TIME + 1, 1))
    status, lines, errors = dump(f"{index},{times}", "--verify-index-only")
    assert (status, lines) == (1, [f"Dumping {index}", f"Dumping {times}"])
    assert errors == [
        f"Mismatches in :{index}",
        "  Index offset: 9, log offset: 1",
        f"Found timestamp mismatch in :{times}",
        f"  Index timestamp: {TIME + 5}, log timestamp: {TIME + 1}",
        f"Found out of order timestamp in :{times}",
        f"  Index timestamp: {TIME + 1}, Previously indexed timestamp: {TIME + 5}",
    ]


def test_a_transaction_index_and_a_snapshot(dump, tmp_path: Path) -> None:
    """Goal: the two files of transactions and idempotence."""
    index = tmp_path / f"{0:020d}.txnindex"
    index.write_bytes(struct.pack(">hqqqq", 0, 4, 1, 2, 3))
    assert dump(str(index))[1][1] == (
        "version: 0 producerId: 4 firstOffset: 1 lastOffset: 2 lastStableOffset: 3"
    )
    snapshot = tmp_path / f"{9:020d}.snapshot"
    states = [
        ProducerState(4, 1, [BatchMetadata(5, 7, 2, 4, TIME)], TIME, 0, 2),
        ProducerState(5, 0, [], TIME),
    ]
    snapshot.write_bytes(encode_snapshot(states))
    assert dump(str(snapshot))[1][1:] == [
        "producerId: 4 producerEpoch: 1 coordinatorEpoch: 0 currentTxnFirstOffset: "
        f"OptionalLong[2] lastTimestamp: {TIME} firstSequence: 5 lastSequence: 7 lastOffset: 4 "
        f"offsetDelta: 2 timestamp: {TIME}",
        "producerId: 5 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: "
        f"OptionalLong.empty lastTimestamp: {TIME}",
    ]


def test_committed_offsets_are_decoded(dump, tmp_path: Path) -> None:
    """Goal: JSON of Kafka's field names; a tombstone; a key that is not known."""
    builder = RecordBatchBuilder(0)
    key = encode_offset_key(OffsetCommitKey("g", "orders", 2))
    builder.append(TIME, key, encode_offset_value(OffsetAndMetadata(17, 3, "m", TIME)), [])
    builder.append(TIME, key, None, [])
    builder.append(TIME, struct.pack(">h", 77), None, [])
    builder.append(TIME, b"\x00", None, [])
    log = segments.write_segment(tmp_path, [builder.build()])
    shown = [line.split(" key: ")[1] for line in dump(str(log), "--offsets-decoder")[1][3:]]
    shown_key = '{"type":"1","data":{"group":"g","topic":"orders","partition":2}}'
    value = f'{{"offset":17,"leaderEpoch":3,"metadata":"m","commitTimestamp":{TIME}}}'
    assert shown[:3] == [
        f'{shown_key} payload: {{"version":"4","data":{value}}}',
        f"{shown_key} payload: <DELETE>",
        "Unknown record type 77 at offset 2, skipping.",
    ]
    assert shown[3].startswith("Error at offset 3, skipping.")


def test_records_of_share_groups_are_decoded(dump, tmp_path: Path) -> None:
    """Goal: they are no unknown records; a look into a share group's past would be empty."""
    builder = RecordBatchBuilder(0)
    key = share_group_records.ShareGroupMetadataKey("g")
    value = share_group_records.ShareGroupMetadataValue(7, 9)
    data = GroupRecordCodec().encode(CoordinatorRecord(key, value))
    builder.append(TIME, *data, [])
    log = segments.write_segment(tmp_path, [builder.build()])
    (shown,) = [line.split(" key: ")[1] for line in dump(str(log), "--offsets-decoder")[1][3:]]
    assert shown == (
        '{"type":"11","data":{"groupId":"g"}} payload: '
        '{"version":"0","data":{"epoch":7,"metadataHash":9}}'
    )


def test_what_share_groups_were_handed_is_decoded(dump, tmp_path: Path) -> None:
    """Goal: the third internal topic, by the flag of Kafka 4.3; its records would be bytes."""
    builder = RecordBatchBuilder(0)
    key = struct.pack(">hh", 0, 1) + b"g" + TOPIC_ID.bytes + struct.pack(">i", 3)
    builder.append(TIME, key, None, [])
    log = segments.write_segment(tmp_path, [builder.build()])
    status, lines, errors = dump(str(log), "--share-group-state-decoder")
    assert (status, errors) == (0, [])
    data = f'{{"groupId":"g","topicId":"{uuid_text(TOPIC_ID)}","partition":3}}'
    assert lines[3].endswith(f'key: {{"type":"0","data":{data}}} payload: <DELETE>')


def test_words_are_read_as_kafkas_tool_reads_them(
    dump, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: one hyphen is as good as two, words of no flag count for nothing; what is given twice,
    or is no number, ends with 1 under Kafka's name."""
    log = segments.write_segment(tmp_path, [segments.batch(0, [b"one"])])
    printed = dump(str(log), "--print-data-log")
    assert dump(str(log), "-print-data-log", "extra") == printed
    assert main([AS_KAFKA, "dump-log", "-files", str(log), "-print-data-log"]) == 0
    assert capsys.readouterr().out.splitlines() == printed[1]
    for words in (["--files", "x"], ["--max-bytes", "few"], ["--value-decoder-class", "my.Own"]):
        assert main([AS_KAFKA, "dump-log", "--files", str(log), *words]) == 1
        assert capsys.readouterr().err.startswith("odradek: ")


def test_numbers_can_be_decoded(dump, tmp_path: Path) -> None:
    """Goal: the decoder classes of Kafka, by their names or shorter."""
    builder = RecordBatchBuilder(0)
    builder.append(TIME, struct.pack(">i", 7), struct.pack(">q", -8), [])
    log = segments.write_segment(tmp_path, [builder.build()])
    options = ["--key-decoder-class", "integer", "--value-decoder-class"]
    lines = dump(str(log), *options, "org.apache.kafka.tools.api.LongDecoder")[1]
    assert lines[3].endswith("key: 7 payload: -8")
    assert dump(str(log), "--value-decoder-class", "my.own.Decoder")[0] == 2


def test_json_has_an_object_per_line(dump, tmp_path: Path) -> None:
    """Goal: `--format json`."""
    log = segments.write_segment(tmp_path, [segments.batch(0, [b"a"])])
    rows = [json.loads(line) for line in dump(str(log), "--print-data-log", "--format", "json")[1]]
    assert [row["kind"] for row in rows] == ["file", "log", "batch", "record"]
    assert (rows[2]["isvalid"], rows[3]["payload"]) == (True, "a")


def test_every_truncation_of_a_log_is_told(dump, tmp_path: Path) -> None:
    """Goal: never a traceback; what is whole is printed, the rest is named."""
    first, second = segments.batch(0, [b"a"]), segments.batch(1, [b"b" * 50])
    log = segments.write_segment(tmp_path, [first, second])
    whole = log.read_bytes()
    for size in range(len(first), len(whole), 7):
        log.write_bytes(whole[:size])
        status, lines, errors = dump(str(log), "--print-data-log")
        torn = size - len(first)
        end = [f"Found {torn} invalid bytes at the end of {log.name}"] if torn else []
        assert (status, errors, lines[4:]) == (0, [], end)


def test_every_flipped_byte_of_a_log_is_survived(dump, tmp_path: Path) -> None:
    """Goal: never a traceback, whatever a byte becomes."""
    log = segments.write_segment(tmp_path, [segments.batch(0, [b"a", b"b"])])
    whole = log.read_bytes()
    for position in range(len(whole)):
        data = bytearray(whole)
        data[position] ^= 0xFF
        log.write_bytes(data)
        _, lines, errors = dump(str(log), "--print-data-log")
        seen = "\n".join(lines + errors)
        # The offset and the leader's epoch stand before the checksum.
        covered = position >= 8 and not 12 <= position < 16
        assert (
            not covered
            or "isvalid: false" in seen
            or "invalid bytes" in seen
            or str(log) in ("".join(errors))
        )


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex", ".snapshot"])
def test_what_cannot_be_read_is_one_line(dump, tmp_path: Path, suffix: str) -> None:
    """Goal: a missing file, a directory in its place, a torn one."""
    file = tmp_path / f"{0:020d}{suffix}"
    assert dump(str(file))[::2] == (1, [f"{file}: No such file or directory"])
    file.mkdir()
    assert dump(str(file))[::2] == (1, [f"{file}: Is a directory"])
    file.rmdir()
    file.write_bytes(b"\x00" * 7)
    status, lines, errors = dump(str(file))
    assert len(lines) + len(errors) >= 2
    assert status == (0 if suffix == ".log" else 1)


def test_a_file_of_another_kind_is_named(dump, tmp_path: Path) -> None:
    """Goal: what is not a segment's file is passed over, aloud."""
    file = tmp_path / "partition.metadata"
    file.write_text("version: 0")
    assert dump(str(file))[::2] == (1, [f"Ignoring unknown file {file}"])


def test_marks_of_schedules_are_named(dump, tmp_path: Path) -> None:
    """The deliveries of a schedule partition would not be told."""
    target = Target("orders", UUID(int=1), 2)
    mark = Mark(MarkKind.RELEASE, target, 7, 40, [Entry(0, TIME, -1), Entry(3, TIME, -1)])
    data = bytes(build_marks([mark, Mark(MarkKind.RELEASED, target, 7, 42)], TIME))
    log = segments.write_segment(tmp_path, [data], 0)
    status, lines, errors = dump(str(log), "--print-data-log")
    assert (status, errors) == (0, [])
    assert [line.partition("headerKeys: [] ")[2] for line in lines[3:]] == [
        'scheduleRelease {"target":"orders-2","producerId":7,"sequence":40,"offsets":[0,3]}',
        'scheduleReleased {"target":"orders-2","producerId":7,"sequence":42,"offsets":[]}',
    ]
    cut = segments.write_segment(tmp_path / "cut", [bytes(_cut_mark())], 0)
    assert dump(str(cut), "--print-data-log")[0] == 1


def _cut_mark() -> bytes:
    builder = RecordBatchBuilder(is_control=True)
    builder.append(TIME, (20001).to_bytes(4, "big"), b"\0\0")
    return builder.build()
