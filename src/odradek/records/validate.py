"""Validates records before a leader appends them to its log, as Kafka does.

`validate_produced` takes what one produce request holds for one partition and gives `ValidRecords`:
the bytes to append, wanting only `assign` for their place in the log. A batch of magic 2 that suits
the topic is walked once and left as it is, compressed or not: at most its timestamp type and
largest timestamp are corrected in place. It is rewritten only if the topic has another codec or
another message format.

The errors are Kafka's: bytes that cannot be trusted are CORRUPT_MESSAGE, malformed records under a
right checksum are INVALID_RECORD, and errors of single records name them. The producer state checks
sequences and transactions.
"""

from typing import Final

from odradek.config.topic import LogConfig
from odradek.errors import BrokerError, ErrorCode
from odradek.model import NO_TIMESTAMP, AppendOrigin
from odradek.records.batch import (
    CODEC_MASK,
    CREATE_TIME,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    Buffer,
    check_checksum,
    parse_header,
    split_batches,
    stamp,
    stamp_timestamps,
)
from odradek.records.builder import RecordBatchBuilder, assemble_batch
from odradek.records.compression import (
    DEFAULT_LIMIT_BYTES,
    Compression,
    check_lz4_frame,
    compress,
)
from odradek.records.errors import CorruptRecords, InvalidRecords, UnsupportedCompression
from odradek.records.legacy import build_message_set
from odradek.records.reader import read_batch, records_bytes
from odradek.records.record import Record
from odradek.records.walk import RecordsSummary, walk_records

_LARGEST: Final = (1 << 63) - 1
# Compiled code compares numbers below without making objects of them.
_USUAL: Final = 1 << 60
_NO_CODEC: Final = 0
_LZ4: Final = 3
_LAST_CODEC: Final = 4
_CLIENT: Final = AppendOrigin.CLIENT


class BatchRules:
    """The rules of one topic for its records; made once per topic configuration.

    `codec` None keeps the producer's. `limit_bytes` is what a compressed batch may grow to.
    """

    def __init__(
        self,
        *,
        max_message_bytes: int = 1_048_588,
        timestamp_type: int = CREATE_TIME,
        timestamp_before_max_ms: int = _LARGEST,
        timestamp_after_max_ms: int = 3_600_000,
        requires_keys: bool = False,
        codec: int | None = None,
        level: int | None = None,
        magic: int = 2,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
    ) -> None:
        self.max_message_bytes = max_message_bytes
        self.timestamp_type = timestamp_type
        self.timestamp_before_max_ms = timestamp_before_max_ms
        self.timestamp_after_max_ms = timestamp_after_max_ms
        self.requires_keys = requires_keys
        self.codec = codec
        self.level = level
        self.magic = magic
        self.limit_bytes = limit_bytes

    @classmethod
    def from_config(cls, config: LogConfig) -> "BatchRules":
        """The rules that a topic's settings make."""
        codec = None
        if config.compression_type != "producer":
            codec = Compression.from_name(config.compression_type)
        return cls(
            max_message_bytes=config.max_message_bytes,
            timestamp_type=(
                LOG_APPEND_TIME if config.message_timestamp_type == "LogAppendTime" else CREATE_TIME
            ),
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            requires_keys="compact" in config.cleanup_policy,
            codec=codec,
            level=_level(config, codec),
            magic=magic_of_format_version(config.message_format_version),
        )


def _level(config: LogConfig, codec: Compression | None) -> int | None:
    match codec:
        case Compression.GZIP:
            return config.compression_gzip_level
        case Compression.LZ4:
            return config.compression_lz4_level
        case Compression.ZSTD:
            return config.compression_zstd_level
        case _:
            return None


def magic_of_format_version(version: str | None) -> int:
    """The magic that `message.format.version` stands for: 0 before 0.10, 1 before 0.11, then 2."""
    if version is None:
        return 2
    numbers = [int(part) for part in version.split("-")[0].split(".")[:2]]
    if numbers < [0, 10]:
        return 0
    return 1 if numbers < [0, 11] else 2


class ValidRecords:
    """Records that may be appended: `data` holds exactly the `batches`.

    `max_timestamp_index` counts records from the first; -1 if none has a timestamp.
    `log_append_time_ms` is -1 for topics of CreateTime. Usable once `assign` was called.
    """

    def __init__(
        self,
        data: bytearray | memoryview,
        batches: list[BatchHeader],
        record_count: int,
        max_timestamp: int,
        max_timestamp_index: int,
        log_append_time_ms: int,
    ) -> None:
        self.data = data
        self.batches = batches
        self.record_count = record_count
        self.max_timestamp = max_timestamp
        self.max_timestamp_index = max_timestamp_index
        self.log_append_time_ms = log_append_time_ms

    @property
    def size_bytes(self) -> int:
        """The number of bytes that an append writes."""
        return self.batches[-1].end_position

    def assign(self, base_offset: int, leader_epoch: int) -> None:
        """Gives the records their place: the first one gets `base_offset`."""
        stamp(self.data, self.batches[0], base_offset, leader_epoch)


class ValidMessages(ValidRecords):
    """Valid records for a topic of magic 0 or 1, whose bytes depend on their place in the log."""

    def __init__(
        self, records: list[Record], rules: BatchRules, codec: int, log_append_time_ms: int
    ) -> None:
        self._records = records
        self._rules = rules
        self._codec = codec
        data = self._build(0, log_append_time_ms)
        max_timestamp, index = _largest_timestamp(records)
        if log_append_time_ms != NO_TIMESTAMP:
            max_timestamp, index = log_append_time_ms, 0
        if rules.magic == 0:
            max_timestamp, index = NO_TIMESTAMP, -1
        super().__init__(
            data, split_batches(data), len(records), max_timestamp, index, log_append_time_ms
        )

    def _build(self, base_offset: int, log_append_time_ms: int) -> bytearray:
        return bytearray(
            build_message_set(
                self._records,
                self._rules.magic,
                self._codec,
                base_offset=base_offset,
                log_append_time_ms=log_append_time_ms,
                level=self._rules.level,
            )
        )

    def assign(self, base_offset: int, leader_epoch: int) -> None:  # noqa: ARG002 - has no place
        """Gives the records their place; the format knows no leader epoch."""
        self.data = self._build(base_offset, self.log_append_time_ms)
        self.batches = split_batches(self.data)


class PreparedRecords:
    """Records that were validated before their append, by the rules of that time.

    `source` is the unchanged request data, in case the log's rules have changed since.
    """

    def __init__(self, source: memoryview, rules: BatchRules, valid: ValidRecords) -> None:
        self.source = source
        self.rules = rules
        self.valid = valid


Batches = memoryview | PreparedRecords


def prepare_produced(source: memoryview, rules: BatchRules, now_ms: int) -> PreparedRecords:
    """`validate_produced` for a client's records, without touching them; for helper threads.

    Raises:
        BrokerError: as there.
    """
    return PreparedRecords(source, rules, validate_produced(bytes(source), rules, now_ms))


def validate_produced(
    buffer: Buffer, rules: BatchRules, now_ms: int, origin: AppendOrigin = _CLIENT
) -> ValidRecords:
    """Checks what a produce request holds for one partition and fits it to the topic.

    `buffer` is changed in place where it is writable, else copied. Only the broker's own
    coordinators may send control batches and base offsets other than 0.

    Raises:
        CorruptRecords: lengths, magic, checksum or codec say that the bytes are damaged.
        InvalidRecords: INVALID_RECORD, INVALID_TIMESTAMP or MESSAGE_TOO_LARGE.
        BrokerError: UNSUPPORTED_COMPRESSION_TYPE, UNSUPPORTED_FOR_MESSAGE_FORMAT.
    """
    if isinstance(buffer, bytes) or (isinstance(buffer, memoryview) and buffer.readonly):
        buffer = bytearray(buffer)
    # To look at, not to write: a byte of `bytes` is read without making an object.
    data = bytes(buffer)
    headers = split_batches(data)
    if not headers:
        raise InvalidRecords("a produce request has at least one record batch per partition")
    first = headers[0]
    if len(headers) > 1 and (first.magic == 2 or first.codec != _NO_CODEC):
        raise InvalidRecords("a produce request has exactly one record batch per partition")
    for header in headers:
        _check_size(header.size_bytes, rules)
    if first.magic == 2:
        valid = _validate_batch(buffer, data, headers, rules, now_ms, origin)
    else:
        valid = _validate_messages(data, headers, rules, now_ms)
    if valid.data is not buffer:
        for header in valid.batches:
            _check_size(header.size_bytes, rules)
    return valid


def _check_size(size_bytes: int, rules: BatchRules) -> None:
    if size_bytes > rules.max_message_bytes:
        raise InvalidRecords(
            f"the record batch has {size_bytes} bytes, max.message.bytes is "
            f"{rules.max_message_bytes}",
            code=ErrorCode.MESSAGE_TOO_LARGE,
        )


def _validate_batch(
    buffer: bytearray | memoryview,
    data: bytes,
    headers: list[BatchHeader],
    rules: BatchRules,
    now_ms: int,
    origin: AppendOrigin,
) -> ValidRecords:
    """`buffer` is one batch, `data` a copy of it."""
    header = headers[0]
    check_checksum(buffer, header)
    # Not by way of the enumeration: that alone would cost more than the walk.
    if header.codec > _LAST_CODEC:
        raise UnsupportedCompression(header.codec)
    if origin is _CLIENT:
        _check_client_header(header)
    records, start = data, HEADER_BYTES
    if header.codec != _NO_CODEC:
        records, start = _unpacked(data, header, rules), 0
    summary = walk_records(records, header.record_count, start=start)
    _check_records(data, header, summary, rules, now_ms)
    if rules.magic < 2:
        return _downgraded(data, header, rules, now_ms)
    if _wants_other_codec(header, rules):
        buffer = recompress(header, records[start:], rules.codec or 0, rules.level)
        headers = split_batches(buffer)
        header = headers[0]
    if rules.timestamp_type == LOG_APPEND_TIME:
        stamp_timestamps(buffer, header, LOG_APPEND_TIME, now_ms)
        return ValidRecords(buffer, headers, header.record_count, now_ms, 0, now_ms)
    max_timestamp = header.base_timestamp + summary.max_timestamp_delta
    index = summary.max_timestamp_index
    if max_timestamp < 0:
        max_timestamp, index = NO_TIMESTAMP, -1
    stamp_timestamps(buffer, header, CREATE_TIME, max_timestamp)
    return ValidRecords(buffer, headers, header.record_count, max_timestamp, index, NO_TIMESTAMP)


def _unpacked(data: bytes, header: BatchHeader, rules: BatchRules) -> bytes:
    """The records of a compressed batch.

    Raises:
        InvalidRecords: UNKNOWN_SERVER_ERROR, as in Kafka where a codec fails. For CORRUPT_MESSAGE a
            client would send the same bytes again.
    """
    try:
        if header.codec == _LZ4:
            check_lz4_frame(memoryview(data)[HEADER_BYTES:])
        return records_bytes(data, header, rules.limit_bytes)
    except CorruptRecords as error:
        raise InvalidRecords(error.message, code=ErrorCode.UNKNOWN_SERVER_ERROR) from error


def _check_client_header(header: BatchHeader) -> None:
    """Checks the fields of the header that a producer sets."""
    if header.base_offset != 0:
        raise InvalidRecords(f"the base offset of a batch is 0, not {header.base_offset}")
    if header.record_count <= 0:
        raise InvalidRecords(f"a batch cannot have {header.record_count} records")
    if header.record_count != header.last_offset_delta + 1:
        raise InvalidRecords(
            f"a batch of {header.record_count} records has the last offset delta "
            f"{header.last_offset_delta}"
        )
    if header.is_control:
        raise InvalidRecords("clients may not write control records")
    if header.has_delete_horizon:
        raise InvalidRecords("clients may not set a delete horizon")
    if header.has_producer_id and header.base_sequence < 0:
        raise InvalidRecords(
            f"a batch of producer {header.producer_id} has the sequence {header.base_sequence}"
        )


def _check_records(
    buffer: Buffer,
    header: BatchHeader,
    summary: RecordsSummary,
    rules: BatchRules,
    now_ms: int,
) -> None:
    """Checks single records; for most batches the summary alone decides."""
    largest = header.base_timestamp + summary.max_timestamp_delta
    smallest = header.base_timestamp + summary.min_timestamp_delta
    is_usual = -_USUAL < smallest <= largest < _USUAL
    if not is_usual and (largest > _LARGEST or smallest < -_LARGEST - 1):
        raise InvalidRecords("a timestamp has more than 64 bits")
    if header.timestamp_type == LOG_APPEND_TIME:
        raise _record_errors(
            [(0, "a producer may not set the timestamp type LogAppendTime")], is_timestamp=True
        )
    keys_missing = rules.requires_keys and summary.null_key_count > 0 and not header.is_control
    out_of_range = rules.timestamp_type == CREATE_TIME and (
        largest - now_ms > rules.timestamp_after_max_ms
        or now_ms - smallest > rules.timestamp_before_max_ms
    )
    if keys_missing or out_of_range:
        _check_each(read_batch(buffer, header), rules, now_ms)


def _check_each(records: list[Record], rules: BatchRules, now_ms: int) -> None:
    """Names every record that breaks a rule of the topic.

    Raises:
        InvalidRecords: there is one; INVALID_TIMESTAMP if any is about a timestamp.
    """
    earliest = now_ms - rules.timestamp_before_max_ms
    latest = now_ms + rules.timestamp_after_max_ms
    errors: list[tuple[int, str | None]] = []
    is_timestamp = False
    for index, record in enumerate(records):
        if rules.requires_keys and record.key is None and not record.is_control:
            errors.append((index, "a compacted topic takes no record without a key"))
        elif (
            rules.timestamp_type == CREATE_TIME
            and record.timestamp != NO_TIMESTAMP
            and not earliest <= record.timestamp <= latest
        ):
            is_timestamp = True
            errors.append(
                (index, f"the timestamp {record.timestamp} is not within [{earliest}, {latest}]")
            )
    if errors:
        raise _record_errors(errors, is_timestamp=is_timestamp)


def _record_errors(errors: list[tuple[int, str | None]], *, is_timestamp: bool) -> InvalidRecords:
    if is_timestamp:
        return InvalidRecords(
            "one or more records have been rejected due to an invalid timestamp",
            errors,
            ErrorCode.INVALID_TIMESTAMP,
        )
    shown = "; ".join(f"record {index}: {why}" for index, why in errors[:3])
    return InvalidRecords(
        f"one or more records have been rejected due to {len(errors)} record errors, "
        f"the first of them: {shown}",
        errors,
    )


def _wants_other_codec(header: BatchHeader, rules: BatchRules) -> bool:
    # Control batches stay as they are: nobody gains from compressing one marker.
    return rules.codec is not None and rules.codec != header.codec and not header.is_control


def recompress(
    header: BatchHeader, records: bytes, codec: int, level: int | None = None
) -> bytearray:
    """The batch of `header` in another codec; offsets, times and producer fields are kept.

    `records` are its records uncompressed, as `reader.records_bytes` gives them.
    """
    return bytearray(
        assemble_batch(
            compress(codec, records, level),
            base_offset=header.base_offset,
            partition_leader_epoch=header.partition_leader_epoch,
            attributes=header.attributes & ~CODEC_MASK | codec,
            last_offset_delta=header.last_offset_delta,
            base_timestamp=header.base_timestamp,
            max_timestamp=header.max_timestamp,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            record_count=header.record_count,
        )
    )


def _downgraded(
    buffer: Buffer, header: BatchHeader, rules: BatchRules, now_ms: int
) -> ValidRecords:
    """A batch of magic 2 for a topic of magic 0 or 1."""
    if header.is_transactional or header.has_producer_id:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"messages of magic {rules.magic} have no place for a producer id",
        )
    records = read_batch(buffer, header, limit_bytes=rules.limit_bytes)
    codec = header.codec if rules.codec is None else rules.codec
    return ValidMessages(records, rules, codec, _append_time(rules, now_ms))


def _append_time(rules: BatchRules, now_ms: int) -> int:
    return now_ms if rules.timestamp_type == LOG_APPEND_TIME else NO_TIMESTAMP


def _validate_messages(
    data: bytes, headers: list[BatchHeader], rules: BatchRules, now_ms: int
) -> ValidRecords:
    """A message set of an old producer, rewritten for the topic's format whatever it is."""
    magic, codec = headers[0].magic, headers[0].codec
    records: list[Record] = []
    for header in headers:
        if header.magic != magic or header.codec != codec:
            raise InvalidRecords("a produce request has messages of one magic and one codec")
        if header.attributes & TIMESTAMP_TYPE_BIT:
            raise _record_errors(
                [(0, "a producer may not set the timestamp type LogAppendTime")], is_timestamp=True
            )
        records += read_batch(data, header, check_crc=True, limit_bytes=rules.limit_bytes)
    _check_each(records, rules, now_ms)
    if rules.codec is not None:
        codec = rules.codec
    if rules.magic < 2:
        return ValidMessages(records, rules, codec, _append_time(rules, now_ms))
    return _upgraded(records, rules, codec, now_ms)


def _upgraded(records: list[Record], rules: BatchRules, codec: int, now_ms: int) -> ValidRecords:
    """Messages of magic 0 or 1 as one batch of magic 2."""
    append_time = _append_time(rules, now_ms)
    builder = RecordBatchBuilder(codec, level=rules.level, log_append_time_ms=append_time)
    for record in records:
        builder.append(record.timestamp, record.key, record.value)
    buffer = bytearray(builder.build())
    header = parse_header(buffer)
    max_timestamp, index = _largest_timestamp(records)
    if append_time != NO_TIMESTAMP:
        max_timestamp, index = append_time, 0
    return ValidRecords(buffer, [header], len(records), max_timestamp, index, append_time)


def _largest_timestamp(records: list[Record]) -> tuple[int, int]:
    """The largest timestamp and the first record that has it; (-1, -1) if none has one."""
    largest, largest_index = NO_TIMESTAMP, -1
    for index, record in enumerate(records):
        if record.timestamp > largest:
            largest, largest_index = record.timestamp, index
    return largest, largest_index
