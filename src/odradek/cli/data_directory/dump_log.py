"""`odradek dump-log`: prints the files of a partition, with the options and lines of Kafka's tool.

For magic 2 and all indexes the lines are those of Kafka 4.3's `DumpLogSegments`; a log that begins
with magic 0 or 1 is printed as by the tool of its time (one line per message, `Starting offset:`).
`--format json` prints an object per line instead. Files are read as they lie there, by a path each;
a broker may be running. Faults in a file go to standard error. Exit status 1 when a file could not
be read or an index contradicts its log.
"""

import argparse
import json
import os
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from odradek import __version__
from odradek.cli.arguments import add_format
from odradek.cli.data_directory.record_decoders import (
    RecordDecoder,
    coordinator_decoder,
    decoder_named,
    plain_decoder,
    to_json,
)
from odradek.cli.terminal import tell
from odradek.cli.tools.option_words import read_words, refuse_values
from odradek.coordinator.records.record_schemas import (
    GROUP_RECORDS,
    SHARE_STATE_RECORDS,
    TRANSACTION_RECORDS,
)
from odradek.errors import BrokerError
from odradek.kafka_files.inspection import (
    WHOLE_FILE,
    FoundBatch,
    LogFile,
    UnreadableFile,
    base_offset_of,
    beside,
    check_offset_index,
    check_time_index,
    read_offset_index,
    read_producer_snapshot,
    read_time_index,
    read_transaction_index,
)
from odradek.kafka_files.kraft_records import CONTROL_RECORDS, decode_control_record
from odradek.protocol.primitives import ProtocolError
from odradek.records.batch import BatchHeader, split_batches
from odradek.records.compression import Compression, decompress
from odradek.records.legacy import check_message, read_message
from odradek.records.reader import read_batch
from odradek.records.record import Record
from odradek.replication.schedule.marks import SCHEDULE_MARKS, describe_mark
from odradek.storage import names
from odradek.storage.producers.end_marker import parse_end_marker

_DEFAULT_MAX_MESSAGE_BYTES: Final = 5 * 1024 * 1024
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_OLD_CODECS: Final = (
    "NoCompressionCodec",
    "GZIPCompressionCodec",
    "SnappyCompressionCodec",
    "LZ4CompressionCodec",
)
_TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
# By decoder: the internal topic and its records.
_OF_COORDINATORS: Final = {
    "offsets": ("__consumer_offsets", GROUP_RECORDS),
    "transaction-log": ("__transaction_state", TRANSACTION_RECORDS),
    "share-group-state": ("__share_group_state", SHARE_STATE_RECORDS),
}
_CONTROL_KEY: Final = struct.Struct(">hh")
_END_MARKERS: Final = ("ABORT", "COMMIT")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of Kafka's tool."""
    parser.set_defaults(read_words=read_words)
    parser.add_argument("--version", action="version", version=f"odradek {__version__}")
    parser.add_argument(
        "--files",
        metavar="FILE,FILE...",
        required=True,
        help=".log, .index, .timeindex, .txnindex and .snapshot files, separated by commas",
    )
    parser.add_argument(
        "--print-data-log", action="store_true", help="print keys and values of the records"
    )
    parser.add_argument(
        "--deep-iteration",
        action="store_true",
        help="print each record, not only batches; implied by --print-data-log",
    )
    parser.add_argument(
        "--skip-record-metadata",
        action="store_true",
        help="leave out what surrounds keys and values, and control records",
    )
    parser.add_argument(
        "--verify-index-only",
        action="store_true",
        help="compare indexes with their log without printing them",
    )
    parser.add_argument(
        "--index-sanity-check",
        action="store_true",
        help="check only what a broker checks at its start",
    )
    parser.add_argument(
        "--max-message-size",
        metavar="BYTES",
        type=int,
        default=_DEFAULT_MAX_MESSAGE_BYTES,
        help=f"size of the largest message (default: {_DEFAULT_MAX_MESSAGE_BYTES})",
    )
    parser.add_argument(
        "--max-bytes",
        metavar="BYTES",
        type=int,
        default=WHOLE_FILE,
        help="read at most this much of each .log file",
    )
    for side in ("key", "value"):
        parser.add_argument(
            f"--{side}-decoder-class",
            metavar="NAME",
            nargs="?",
            const="string",
            help="string, short, integer, long, float, double, uuid or default (hexadecimal)",
        )
    for name, (topic, _) in _OF_COORDINATORS.items():
        parser.add_argument(
            f"--{name}-decoder",
            dest="coordinators",
            action="append_const",
            const=name,
            default=[],
            help=f"show the records of {topic}",
        )
    add_format(parser, "an object a line")


def run(arguments: argparse.Namespace) -> int:
    """Dumps the files one after another."""
    try:
        refuse_values(arguments)
        dump = Dump(arguments, choose_decoder(arguments))
    except ValueError as error:
        tell(str(error))
        return 2
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    for path in arguments.files.split(","):
        dump.file(path.strip())
    dump.report()
    return 1 if dump.has_findings else 0


def choose_decoder(arguments: argparse.Namespace) -> RecordDecoder:
    """The decoder that the flags ask for; naming one implies --print-data-log.

    Raises:
        ValueError: there is none of that name.
    """
    key_name, value_name = arguments.key_decoder_class, arguments.value_decoder_class
    for name, (_, kinds) in _OF_COORDINATORS.items():
        if name in arguments.coordinators:
            arguments.print_data_log = True
            return coordinator_decoder(kinds)
    if key_name is not None or value_name is not None:
        arguments.print_data_log = True
    return plain_decoder(decoder_named(key_name or "string"), decoder_named(value_name or "string"))


class Dump:
    """One run: prints file by file, and collects the faults of indexes and offsets."""

    def __init__(self, arguments: argparse.Namespace, decoder: RecordDecoder) -> None:
        self._decoder: Final = decoder
        self._prints_contents: Final[bool] = arguments.print_data_log
        self._is_deep: Final[bool] = arguments.deep_iteration or arguments.print_data_log
        self._skips_metadata: Final[bool] = arguments.skip_record_metadata
        self._verifies_only: Final[bool] = arguments.verify_index_only
        self._checks_sanity: Final[bool] = arguments.index_sanity_check
        self._max_message_bytes: Final[int] = arguments.max_message_size
        self._max_bytes: Final[int] = arguments.max_bytes
        self._is_json: Final[bool] = arguments.format == "json"
        self.has_findings = False
        # For each kind of contradiction, by file: the lines that the run ends with.
        self._mismatches: dict[str, list[str]] = {}
        self._time_mismatches: dict[str, list[str]] = {}
        self._times_out_of_order: dict[str, list[str]] = {}
        self._offsets_not_found: dict[str, list[str]] = {}
        self._gaps: dict[str, list[str]] = {}

    def file(self, path: str) -> None:
        """Dumps one file; its name tells what kind it is."""
        self._show(f"Dumping {path}", "file", path=path)
        dump_of: dict[str, Callable[[str], None]] = {
            names.LOG_SUFFIX: self._log,
            names.INDEX_SUFFIX: self._offset_index,
            names.TIME_INDEX_SUFFIX: self._time_index,
            names.TXN_INDEX_SUFFIX: self._transaction_index,
            names.SNAPSHOT_SUFFIX: self._snapshot,
            ".checkpoint": self._log,
        }
        dump = dump_of.get(os.path.splitext("x" + os.path.basename(path))[1])
        if dump is None:
            self._find(f"Ignoring unknown file {path}")
            return
        try:
            dump(path)
        except UnreadableFile as error:
            self._find(str(error))

    def report(self) -> None:
        """Prints the collected faults, in the order of Kafka's tool."""
        for head, found in (
            ("Mismatches in :", self._mismatches),
            ("Found timestamp mismatch in :", self._time_mismatches),
            ("Found out of order timestamp in :", self._times_out_of_order),
            ("The following indexed offsets are not found in :", self._offsets_not_found),
            ("Non-consecutive offsets in ", self._gaps),
        ):
            for path, lines in found.items():
                self._find("\n".join([head + path, *lines]))

    # Logs.

    def _log(self, path: str) -> None:
        with LogFile(path) as log:
            batches = log.batches(0, self._max_bytes)
            self._log_head(path, log.first_batch(0))
            valid_bytes = 0
            last_offset = -1
            for batch in batches:
                last_offset = self._batch(path, batch, last_offset)
                valid_bytes = batch.position + batch.header.size_bytes
            trailing = log.size_bytes - valid_bytes
        if trailing > 0 and self._max_bytes == WHOLE_FILE:
            name = os.path.basename(path)
            self._show(
                f"Found {trailing} invalid bytes at the end of {name}",
                "invalid_bytes",
                position=valid_bytes,
                size=trailing,
            )

    def _log_head(self, path: str, first: FoundBatch | None) -> None:
        name = os.path.basename(path)
        if name == "bootstrap.checkpoint":
            self._show("KRaft bootstrap snapshot", "log")
        elif name.endswith(".checkpoint"):
            epoch = name.split(".")[0].rpartition("-")[2]
            offset = int(name.split("-")[0]) if name.split("-")[0].isdecimal() else -1
            line = f"Snapshot end offset: {offset}, epoch: {int(epoch) if epoch else -1}"
            self._show(line, "log", offset=offset)
        else:
            offset = base_offset_of(path)
            is_old = first is not None and first.header.magic < 2
            words = "Starting offset" if is_old else "Log starting offset"
            self._show(f"{words}: {offset}", "log", starting_offset=offset)

    def _batch(self, path: str, batch: FoundBatch, last_offset: int) -> int:
        """Prints a batch; returns the offset of the last record that was looked at."""
        if batch.header.magic == 2:
            self._batch_line(batch)
        elif not self._is_deep:
            self._message_line(batch, batch.header, None)
        if not self._is_deep:
            return last_offset
        try:
            records = read_batch(batch.data, batch.header)
        except BrokerError as error:
            self._find(f"{path} at position {batch.position}: {error.message}")
            return last_offset
        inner = [] if batch.header.magic == 2 else self._inner_headers(batch)
        for index, record in enumerate(records):
            if last_offset >= 0 and record.offset != last_offset + 1:
                line = f"  {last_offset} is followed by {record.offset}"
                self._gaps.setdefault(os.path.abspath(path), []).append(line)
            last_offset = record.offset
            if batch.header.magic == 2 or self._skips_metadata:
                self._record_line(path, batch, record)
            else:
                self._message_line(batch, inner[index], record)
        return last_offset

    def _batch_line(self, batch: FoundBatch) -> None:
        header = batch.header
        horizon = header.base_timestamp if header.has_delete_horizon else None
        facts = {
            "baseOffset": header.base_offset,
            "lastOffset": header.last_offset,
            "count": header.record_count,
            "baseSequence": header.base_sequence,
            "lastSequence": header.last_sequence,
            "producerId": header.producer_id,
            "producerEpoch": header.producer_epoch,
            "partitionLeaderEpoch": header.partition_leader_epoch,
            "isTransactional": header.is_transactional,
            "isControl": header.is_control,
            "deleteHorizonMs": horizon,
            "position": batch.position,
            _TIMESTAMP_TYPES[header.timestamp_type]: header.max_timestamp,
            "size": header.size_bytes,
            "magic": header.magic,
            "compresscodec": _codec_name(header, _CODECS),
            "crc": header.crc,
            "isvalid": batch.problem() is None,
        }
        self._show_facts("", "batch", facts)

    def _message_line(self, batch: FoundBatch, header: BatchHeader, record: Record | None) -> None:
        """The line of a message of magic 0 or 1; of a wrapper when there is no record."""
        key, value = _raw_message(batch, record)
        kind = "NoTimestampType" if header.magic == 0 else _TIMESTAMP_TYPES[header.timestamp_type]
        facts: dict[str, object] = {
            "offset": header.base_offset if record is None else record.offset,
            "position": batch.position,
            kind: header.max_timestamp if record is None else record.timestamp,
            "isvalid": batch.problem() is None,
            "payloadsize": -1 if value is None else len(value),
            "magic": header.magic,
            "compresscodec": _codec_name(header, _OLD_CODECS),
            "crc": header.crc,
        }
        if key is not None:
            facts["keysize"] = len(key)
        if self._prints_contents and record is not None:
            self._add_contents(facts, record)
        self._show_facts("", "message", facts)

    def _inner_headers(self, batch: FoundBatch) -> list[BatchHeader]:
        """The headers of the messages inside; of the message itself when it is not compressed."""
        header = batch.header
        if header.codec == Compression.NONE:
            return [header]
        _, value = _raw_message(batch, None)
        inside = decompress(header.codec, value or b"", broken_lz4_header=header.magic == 0)
        headers = split_batches(inside)
        for inner in headers:
            check_message(inside, inner)
        return headers

    def _record_line(self, path: str, batch: FoundBatch, record: Record) -> None:
        facts: dict[str, object] = {}
        if not self._skips_metadata:
            facts["offset"] = record.offset
            facts[_TIMESTAMP_TYPES[record.timestamp_type]] = record.timestamp
            facts["keySize"] = -1 if record.key is None else len(record.key)
            facts["valueSize"] = -1 if record.value is None else len(record.value)
            facts["sequence"] = record.sequence
            facts["headerKeys"] = [name for name, _ in record.headers]
            if record.is_control:
                self._add_control(path, facts, batch, record)
        if self._prints_contents and not record.is_control:
            self._add_contents(facts, record)
        self._show_facts("| ", "record", facts)

    def _add_contents(self, facts: dict[str, object], record: Record) -> None:
        key, payload = self._decoder(record)
        if key is not None:
            facts["key"] = key
        if payload is not None:
            facts["payload"] = payload

    def _add_control(
        self, path: str, facts: dict[str, object], batch: FoundBatch, record: Record
    ) -> None:
        where = f"{path} at position {batch.position}, offset {record.offset}"
        if record.key is None or len(record.key) < _CONTROL_KEY.size:
            self._find(f"{where}: a control record without a control key")
            return
        number: int = _CONTROL_KEY.unpack_from(record.key)[1]
        try:
            if number < len(_END_MARKERS):
                marker = parse_end_marker(batch.data)
                assert marker is not None, "the key says that it ends a transaction"
                facts["endTxnMarker"] = _END_MARKERS[number]
                facts["coordinatorEpoch"] = marker.coordinator_epoch
            elif number in CONTROL_RECORDS:
                name = CONTROL_RECORDS[number].name
                facts[name] = decode_control_record(number, record.value or b"")
            elif number in SCHEDULE_MARKS:
                facts[SCHEDULE_MARKS[number]] = describe_mark(record)
            else:
                facts["controlType"] = f"UNKNOWN({number})"
        except (ProtocolError, BrokerError) as error:
            self._find(f"{where}: {error}")

    # Indexes.

    def _offset_index(self, path: str) -> None:
        entries = read_offset_index(path)
        if not entries:
            self._show(f"{path} is empty.", "empty")
            return
        if self._checks_sanity:
            check_offset_index(path)
            self._show(f"{path} passed sanity check.", "sane")
            return
        with LogFile(beside(path, names.LOG_SUFFIX)) as log:
            for offset, position in entries:
                batch = log.first_batch(position, self._max_message_bytes)
                found = -1 if batch is None else batch.header.last_offset
                if found != offset:
                    line = f"  Index offset: {offset}, log offset: {found}"
                    self._mismatches.setdefault(os.path.abspath(path), []).append(line)
                if not self._verifies_only:
                    self._show_facts("", "index_entry", {"offset": offset, "position": position})

    def _time_index(self, path: str) -> None:
        if self._checks_sanity:
            check_time_index(path)
            self._show(f"{path} passed sanity check.", "sane")
            return
        absolute = os.path.abspath(path)
        entries = read_time_index(path)
        positions = read_offset_index(beside(path, names.INDEX_SUFFIX))
        previous = -1
        with LogFile(beside(path, names.LOG_SUFFIX)) as log:
            for timestamp, offset in entries:
                start = max((at for known, at in positions if known <= offset), default=0)
                batch = _batch_reaching(log.batches(start), offset)
                self._check_time_entry(absolute, batch, timestamp, offset, previous)
                if not self._verifies_only:
                    self._show_facts(
                        "", "time_index_entry", {"timestamp": timestamp, "offset": offset}
                    )
                previous = timestamp

    def _check_time_entry(
        self, path: str, batch: FoundBatch | None, timestamp: int, offset: int, previous: int
    ) -> None:
        found = -1 if batch is None else batch.header.last_offset
        if batch is None or found != offset:
            line = f"Indexed offset: {offset}, found log offset: {found}"
            self._offsets_not_found.setdefault(path, []).append(line)
            return
        largest = _largest_timestamp(path, batch)
        if largest != timestamp:
            line = f"  Index timestamp: {timestamp}, log timestamp: {largest}"
            self._time_mismatches.setdefault(path, []).append(line)
        if previous >= timestamp:
            line = f"  Index timestamp: {timestamp}, Previously indexed timestamp: {previous}"
            self._times_out_of_order.setdefault(path, []).append(line)

    def _transaction_index(self, path: str) -> None:
        base_offset_of(path)
        for version, entry in read_transaction_index(path):
            facts = {
                "version": version,
                "producerId": entry.producer_id,
                "firstOffset": entry.first_offset,
                "lastOffset": entry.last_offset,
                "lastStableOffset": entry.last_stable_offset,
            }
            self._show_facts("", "aborted_transaction", facts)

    def _snapshot(self, path: str) -> None:
        for state in read_producer_snapshot(path):
            facts: dict[str, object] = {
                "producerId": state.producer_id,
                "producerEpoch": state.epoch,
                "coordinatorEpoch": state.coordinator_epoch,
                "currentTxnFirstOffset": (
                    None if state.txn_first_offset < 0 else state.txn_first_offset
                ),
                "lastTimestamp": state.last_timestamp,
            }
            if state.batches:
                last = state.batches[-1]
                facts["firstSequence"] = last.first_sequence
                facts["lastSequence"] = last.last_sequence
                facts["lastOffset"] = last.last_offset
                facts["offsetDelta"] = last.last_offset - last.first_offset
                facts["timestamp"] = last.timestamp
            self._show_facts("", "producer", facts)

    # Output.

    def _show(self, line: str, kind: str, **facts: object) -> None:
        if self._is_json:
            print(json.dumps({"kind": kind, **facts}, ensure_ascii=False))
        else:
            print(line)

    def _show_facts(self, prefix: str, kind: str, facts: Mapping[str, object]) -> None:
        if self._is_json:
            print(json.dumps({"kind": kind, **facts}, ensure_ascii=False))
        elif facts:
            print(prefix + " ".join(_text(name, value) for name, value in facts.items()))
        else:
            # A record of which nothing is wanted still takes its line.
            print()

    def _find(self, line: str) -> None:
        self.has_findings = True
        sys.stdout.flush()
        print(line, file=sys.stderr)


def _text(name: str, value: object) -> str:
    if name in ("deleteHorizonMs", "currentTxnFirstOffset"):
        return f"{name}: {'OptionalLong.empty' if value is None else f'OptionalLong[{value}]'}"
    if isinstance(value, bool):
        return f"{name}: {str(value).lower()}"
    if isinstance(value, list):
        return f"{name}: [{','.join(value)}]"
    if isinstance(value, dict):
        # Kafka's tool puts a colon behind this name alone.
        colon = ":" if name == "LeaderChange" else ""
        return f"{name}{colon} {to_json(value)}"
    return f"{name}: {value}"


def _codec_name(header: BatchHeader, codecs: tuple[str, ...]) -> str:
    return codecs[header.codec] if header.codec < len(codecs) else f"unknown({header.codec})"


def _raw_message(batch: FoundBatch, record: Record | None) -> tuple[bytes | None, bytes | None]:
    """Key and value of a record, or of the message itself, compressed as it is."""
    if record is not None:
        return record.key, record.value
    header = batch.header
    plain = BatchHeader(
        0,
        header.base_offset,
        header.size_bytes,
        -1,
        header.magic,
        header.crc,
        0,
        0,
        header.base_timestamp,
        header.max_timestamp,
        -1,
        -1,
        -1,
        -1,
    )
    message = read_message(batch.data, plain)[0]
    return message.key, message.value


def _batch_reaching(batches: Iterator[FoundBatch], offset: int) -> FoundBatch | None:
    return next((batch for batch in batches if batch.header.last_offset >= offset), None)


def _largest_timestamp(path: str, batch: FoundBatch) -> int:
    try:
        records = read_batch(batch.data, batch.header)
    except BrokerError as error:
        raise UnreadableFile(
            beside(path, names.LOG_SUFFIX), error.message, batch.position
        ) from error
    return max((record.timestamp for record in records), default=-1)
