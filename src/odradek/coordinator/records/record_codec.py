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
from odradek.coordinator.records.share_group_records import ShareGroupKey

logger = logging.getLogger(__name__)

_NUMBER_BYTES: Final = 2
_SHARE_KEYS: Final = frozenset(share_group_records.KEY_TYPES.values())


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
        if type(key) in _SHARE_KEYS:
            data = None if value is None else share_group_records.encode_value(value)
            return share_group_records.encode_key(cast(ShareGroupKey, key)), data
        consumer_key = cast(consumer_group_records.ConsumerGroupKey, key)
        data = None if value is None else consumer_group_records.encode_value(value)
        return consumer_group_records.encode_key(consumer_key), data

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
        if number in share_group_records.KEY_TYPES:
            shared = None if value is None else share_group_records.decode_value(number, value)
            return CoordinatorRecord(share_group_records.decode_key(number, key), shared)
        if number in consumer_group_records.KEY_TYPES:
            other = None if value is None else consumer_group_records.decode_value(number, value)
            return CoordinatorRecord(consumer_group_records.decode_key(number, key), other)
        self._pass_over(number)
        return None

    def _pass_over(self, number: int) -> None:
        if number not in self._passed_over:
            self._passed_over.add(number)
            logger.warning("records of unknown kind %d are skipped", number)
