"""The records of internal topics as Kafka's formatters print them: JSON objects without line ends,
of the kinds that the formatter is for.
"""

import struct
import sys
from collections.abc import Callable, Mapping
from typing import Final

from odradek.cli.data_directory.record_decoders import to_json
from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.coordinator.records.record_schemas import (
    GROUP_RECORDS,
    SHARE_STATE_RECORDS,
    TRANSACTION_RECORDS,
    RecordSchemas,
)
from odradek.protocol.primitives import ProtocolError
from odradek.protocol.schema import Json, decode

_Kinds = Mapping[int, RecordSchemas]
_INT16: Final = struct.Struct(">h")


def _of_groups(*numbers: int) -> _Kinds:
    return {number: GROUP_RECORDS[number] for number in numbers}


# By the names of the classes.
FORMATTERS: Final[Mapping[str, _Kinds]] = {
    "OffsetsMessageFormatter": _of_groups(0, 1),
    "GroupMetadataMessageFormatter": _of_groups(2),
    "ShareGroupMessageFormatter": _of_groups(*range(10, 16)),
    "TransactionLogMessageFormatter": TRANSACTION_RECORDS,
    "ShareGroupStateMessageFormatter": SHARE_STATE_RECORDS,
}


def writer_of(name: str) -> Callable[[ConsumerRecord], None]:
    """Writes records like the formatter of that name, and skips those of other kinds.

    It raises ValueError for a record that cannot be read.
    """
    kinds = FORMATTERS[name]

    def write(record: ConsumerRecord) -> None:
        try:
            shown = _shown(kinds, record)
        except (ProtocolError, struct.error) as error:
            raise ValueError(
                f"Could not read record at offset {record.offset} due to: {error}"
            ) from None
        if shown is not None:
            sys.stdout.buffer.write(to_json(shown).encode())

    return write


def _shown(kinds: _Kinds, record: ConsumerRecord) -> dict[str, Json] | None:
    key, value = record.key, record.value
    if key is None:
        return None
    (number,) = _INT16.unpack_from(key)
    if number not in kinds:
        return None
    schemas = kinds[number]
    shown: dict[str, Json] = {
        "key": {"type": number, "data": decode(schemas.key, 0, key, _INT16.size)},
        "value": None,
    }
    if value is not None:
        (version,) = _INT16.unpack_from(value)
        data = decode(schemas.value, version, value, _INT16.size)
        shown["value"] = {"version": version, "data": data}
    return shown
