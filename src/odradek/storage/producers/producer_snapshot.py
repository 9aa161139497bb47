"""The file `<offset>.snapshot`: the producers of a log as they were at that offset.

Kafka's format, big-endian: version 1 (2 bytes), CRC-32C of what follows (4), the number of
entries (4), and for each entry producer id (8), epoch (2), last sequence (4), last offset
(8), offset delta of the last batch (4), timestamp (8), coordinator epoch (4) and first offset
of the open transaction or -1 (8). Only the last batch of a producer is kept, so after a
restart a retry of an older one is out of order, as it is in Kafka.

A snapshot that cannot be read is removed by the caller and the state rebuilt from the log.
"""

import struct
from collections.abc import Sequence
from typing import Final

from fastcrc import crc32

from odradek.storage.producers.producer_state import MAX_SEQUENCE, BatchMetadata, ProducerState

_VERSION: Final = 1
_HEAD: Final = struct.Struct(">hII")
_ENTRIES_POSITION: Final = 6
_ENTRY: Final = struct.Struct(">qhiqiqiq")


class CorruptSnapshot(ValueError):
    """A producer snapshot that contradicts itself."""


def encode_snapshot(states: Sequence[ProducerState]) -> bytes:
    """The snapshot of these producers."""
    entries = b"".join([_encode_entry(state) for state in states])
    counted = struct.pack(">I", len(states)) + entries
    return struct.pack(">hI", _VERSION, int(crc32.iscsi(counted))) + counted


def decode_snapshot(data: bytes) -> list[ProducerState]:
    """The producers of a snapshot.

    Raises:
        CorruptSnapshot: wrong version, checksum or length.
    """
    if len(data) < _HEAD.size:
        raise CorruptSnapshot(f"{len(data)} bytes are no producer snapshot")
    version, crc, count = _HEAD.unpack_from(data, 0)
    if version != _VERSION:
        raise CorruptSnapshot(f"version {version} is not {_VERSION}")
    if int(crc32.iscsi(data[_ENTRIES_POSITION:])) != crc:
        raise CorruptSnapshot("the checksum is wrong")
    if len(data) != _HEAD.size + count * _ENTRY.size:
        raise CorruptSnapshot(f"{len(data)} bytes cannot hold {count} producers")
    return [_decode_entry(*fields) for fields in _ENTRY.iter_unpack(data[_HEAD.size :])]


def _encode_entry(state: ProducerState) -> bytes:
    delta = 0
    if state.batches:
        delta = state.batches[-1].last_offset - state.batches[-1].first_offset
    return _ENTRY.pack(
        state.producer_id,
        state.epoch,
        state.last_sequence,
        state.last_offset,
        delta,
        state.last_timestamp,
        state.coordinator_epoch,
        state.txn_first_offset,
    )


def _decode_entry(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    delta: int,
    timestamp: int,
    coordinator_epoch: int,
    txn_first_offset: int,
) -> ProducerState:
    batches = []
    if last_offset >= 0:
        first_sequence = (last_sequence - delta) & MAX_SEQUENCE
        first_offset = last_offset - delta
        batches.append(
            BatchMetadata(first_sequence, last_sequence, first_offset, last_offset, timestamp)
        )
    return ProducerState(
        producer_id, epoch, batches, timestamp, coordinator_epoch, txn_first_offset
    )
