"""`GroupRecordCodec`: the formats of `__consumer_offsets`, chosen by the number in the key.

The first two bytes of a key say what the record is; unknown kinds (streams groups, future ones) are
skipped with one log line, as a Kafka broker skips newer ones.
"""

import logging
from typing import Final, cast

from odradek.coordinator.records import consumer_group_records, share_group_records
from odradek.coordinator.records.group_records import (
    GROUP_METADATA_KEY_VERSION,
    GroupMetadataKey,
    GroupMetadataValue,
    decode_group_key,
    decode_group_value,
    encode_group_key,
    encode_group_value,
)
from odradek.coordinator.records.offset_records import (
    OFFSET_COMMIT_KEY_VERSION,
    OffsetAndMetadata,
    OffsetCommitKey,
    decode_offset_key,
    decode_offset_value,
    encode_offset_key,
    encode_offset_value,
)
from odradek.coordinator.records.record import CoordinatorRecord, RecordCodec, RecordError

logger = logging.getLogger(__name__)

_NUMBER_BYTES: Final = 2
_FORMATS: Final = (*consumer_group_records.FORMATS, *share_group_records.FORMATS)
_BY_KEY: Final = {form.key: form for form in _FORMATS}
_BY_NUMBER: Final = {form.number: form for form in _FORMATS}


class GroupRecordCodec(RecordCodec):
    """Kafka's keys and values; see the modules of each kind for the versions."""

    def __init__(self) -> None:
        self._passed_over: set[int] = set()

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        """See `RecordCodec`."""
        key, value = record.key, record.value
        if isinstance(key, OffsetCommitKey):
            data = None if value is None else encode_offset_value(cast(OffsetAndMetadata, value))
            return encode_offset_key(key), data
        if isinstance(key, GroupMetadataKey):
            data = None if value is None else encode_group_value(cast(GroupMetadataValue, value))
            return encode_group_key(key), data
        return _BY_KEY[type(key)].encode(record)

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        """See `RecordCodec`."""
        if len(key) < _NUMBER_BYTES:
            raise RecordError(f"a key of {len(key)} bytes")
        number = key[0] << 8 | key[1]
        if number <= OFFSET_COMMIT_KEY_VERSION:
            offset = None if value is None else decode_offset_value(value)
            return CoordinatorRecord(decode_offset_key(key), offset)
        if number == GROUP_METADATA_KEY_VERSION:
            group = None if value is None else decode_group_value(value)
            return CoordinatorRecord(decode_group_key(key), group)
        if number in _BY_NUMBER:
            return _BY_NUMBER[number].decode(key, value)
        self._pass_over(number)
        return None

    def _pass_over(self, number: int) -> None:
        if number not in self._passed_over:
            self._passed_over.add(number)
            logger.warning("records of unknown kind %d are skipped", number)
