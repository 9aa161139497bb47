"""The five codecs, in Kafka's framings, in both directions.

Decompressing trusts nothing: the result may grow to `limit_bytes` and no further, whatever size a
client claims. gzip and lz4 decode in steps; snappy says its size first; a zstd frame is walked
block by block for an upper bound (its encoders often leave the size out) and decoded into exactly
that much.

Framings differ by message format: snappy is written in the Xerial framing of the Java
clients and read in both; lz4 in magic 0 carries a header checksum that covers too much
(KAFKA-3160), which is written so and on reading ignored.
"""

import zlib
from enum import IntEnum
from io import BytesIO
from mmap import mmap
from typing import Any, Final

from odradek._lazy import LazyModule
from odradek.errors import ErrorCode
from odradek.records.batch import Buffer
from odradek.records.errors import CorruptRecords, InvalidRecords, UnsupportedCompression

cramjam: Any = LazyModule("cramjam")
lz4_frame: Any = LazyModule("lz4.frame")


class Compression(IntEnum):
    """The codec ids of record attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def from_id(cls, codec_id: int) -> "Compression":
        """The codec of an attributes field.

        Raises:
            UnsupportedCompression: the id is 5, 6 or 7.
        """
        if codec_id > cls.ZSTD:
            raise UnsupportedCompression(codec_id)
        return cls(codec_id)

    @classmethod
    def from_name(cls, name: str) -> "Compression":
        """The codec that settings call `name`: none, gzip, snappy, lz4 or zstd.

        Raises:
            ValueError: there is none.
        """
        for codec in cls:
            if codec.name.lower() == name:
                return codec
        if name == "uncompressed":
            return cls.NONE
        raise ValueError(f"no codec is called {name!r}")


# The default limit of a decompressed batch.
_PIECE_BYTES: Final = 1024 * 1024
DEFAULT_LIMIT_BYTES: Final = 256 * 1024 * 1024

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_FLAGS_POSITION: Final = 4
_LZ4_INDEPENDENT_BIT: Final = 0x20
_LZ4_BLOCK_CHECKSUM_BIT: Final = 0x10
_LZ4_CONTENT_SIZE_BIT: Final = 0x08
_LZ4_CONTENT_CHECKSUM_BIT: Final = 0x04
_LZ4_BLOCK_SIZE_MASK: Final = 0x7FFFFFFF
_LZ4_DICTIONARY_BIT: Final = 0x01
# Kafka's level 9 of lz4 means "the fast compressor", its default.
_LZ4_DEFAULT_LEVEL: Final = 9
_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE_MAGIC: Final = 0x184D2A50
_ZSTD_BLOCK_BYTES: Final = 128 * 1024
_GZIP_WBITS: Final = 31
_STEP_BYTES: Final = 64 * 1024


def compress(
    codec: int, data: Buffer, level: int | None = None, *, broken_lz4_header: bool = False
) -> bytes:
    """`data` in Kafka's framing of `codec`; `level` None is the codec's usual one.

    `broken_lz4_header` writes the header checksum as magic-0 readers expect it.

    Raises:
        UnsupportedCompression: there is no such codec.
    """
    match Compression.from_id(codec):
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            return bytes(cramjam.gzip.compress(data, 6 if level in (None, -1) else level))
        case Compression.SNAPPY:
            return _compress_xerial(data)
        case Compression.LZ4:
            return _compress_lz4(data, level, broken_lz4_header)
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data, 3 if level is None else level))


def decompress(
    codec: int,
    data: Buffer,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
    *,
    broken_lz4_header: bool = False,
) -> bytes:
    """Decompresses what `compress` was given, by us or by any Kafka client.

    `broken_lz4_header` is for magic 0: the lz4 header checksum is not looked at.

    Raises:
        UnsupportedCompression: there is no such codec.
        CorruptRecords: the codec cannot read the data.
        InvalidRecords: MESSAGE_TOO_LARGE, the result would have more than `limit_bytes`.
    """
    kind = Compression.from_id(codec)
    try:
        match kind:
            case Compression.NONE:
                return _bounded(bytes(data), limit_bytes)
            case Compression.GZIP:
                return _decompress_gzip(data, limit_bytes)
            case Compression.SNAPPY:
                return _decompress_snappy(data, limit_bytes)
            case Compression.LZ4:
                return _decompress_lz4(data, limit_bytes, broken_lz4_header)
            case Compression.ZSTD:
                return _decompress_zstd(data, limit_bytes)
    except (cramjam.DecompressionError, zlib.error, RuntimeError, EOFError) as error:
        raise CorruptRecords(f"{kind.name.lower()} cannot read the records: {error}") from error


def _too_large(limit_bytes: int) -> InvalidRecords:
    return InvalidRecords(
        f"the records decompress to more than the {limit_bytes} bytes allowed",
        code=ErrorCode.MESSAGE_TOO_LARGE,
    )


def _bounded(data: bytes, limit_bytes: int) -> bytes:
    if len(data) > limit_bytes:
        raise _too_large(limit_bytes)
    return data


def _decompress_gzip(data: Buffer, limit_bytes: int) -> bytes:
    """One or more gzip members, one after the other."""
    pieces: list[bytes] = []
    room = limit_bytes + 1
    while True:
        member = zlib.decompressobj(_GZIP_WBITS)
        piece = member.decompress(data, room)
        pieces.append(piece)
        room -= len(piece)
        if room <= 0:
            raise _too_large(limit_bytes)
        if not member.eof:
            raise EOFError("the data ends before the stream does")
        data = member.unused_data
        if not data:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _compress_xerial(data: Buffer) -> bytes:
    """Snappy blocks of 32 KiB, each behind its length, as snappy-java's streams write them."""
    view = memoryview(data)
    pieces = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        pieces.append(len(block).to_bytes(4, "big"))
        pieces.append(block)
    return b"".join(pieces)


def _decompress_snappy(data: Buffer, limit_bytes: int) -> bytes:
    if bytes(data[:8]) != _XERIAL_MAGIC:
        return _decompress_raw_snappy(data, limit_bytes, limit_bytes)
    pieces: list[bytes] = []
    size_bytes = 0
    position = len(_XERIAL_HEADER)
    end = len(data)
    if end < position:
        raise EOFError("the Xerial header is cut off")
    while position < end:
        if end - position < 4:
            raise EOFError("a Xerial block length is cut off")
        block_end = position + 4 + int.from_bytes(data[position : position + 4], "big")
        if block_end > end:
            raise EOFError("a Xerial block is cut off")
        block = _decompress_raw_snappy(
            data[position + 4 : block_end], limit_bytes - size_bytes, limit_bytes
        )
        pieces.append(block)
        size_bytes += len(block)
        position = block_end
    return b"".join(pieces)


def _decompress_raw_snappy(data: Buffer, room_bytes: int, limit_bytes: int) -> bytes:
    if not data:
        raise EOFError("a snappy block is empty")
    if cramjam.snappy.decompress_raw_len(data) > room_bytes:
        raise _too_large(limit_bytes)
    return bytes(cramjam.snappy.decompress_raw(data))


def _compress_lz4(data: Buffer, level: int | None, broken_header: bool) -> bytes:
    """One frame of independent 64 KiB blocks without sizes: all that old Java readers know."""
    fast = level is None or level == _LZ4_DEFAULT_LEVEL
    frame: bytes = lz4_frame.compress(
        data,
        compression_level=0 if fast else level,
        block_size=lz4_frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return _with_lz4_header_checksum(frame, covers_magic=True) if broken_header else frame


def _decompress_lz4(data: Buffer, limit_bytes: int, broken_header: bool) -> bytes:
    """One or more frames, one after the other."""
    pieces: list[bytes] = []
    room = limit_bytes + 1
    while True:
        if broken_header:
            data = _with_lz4_header_checksum(bytes(data), covers_magic=False)
        frame = lz4_frame.LZ4FrameDecompressor()
        # The decoder allocates what it is allowed to return, so it is allowed little at first.
        step = max(_STEP_BYTES, 4 * len(data))
        while not frame.eof:
            if frame.needs_input and not data:
                raise EOFError("the data ends before the frame does")
            piece = frame.decompress(data, max_length=min(step, room))
            data = b""
            pieces.append(piece)
            room -= len(piece)
            if room <= 0:
                raise _too_large(limit_bytes)
        data = frame.unused_data or b""
        if not data:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def check_lz4_frame(data: Buffer) -> None:
    """Refuses what lz4 libraries read and Kafka's does not: blocks that depend on one another, and
    more than one frame. Decompressing finds all other errors.

    Raises:
        CorruptRecords: no Java client could read the blocks.
        InvalidRecords: to a Java client the records end with the first frame.
    """
    if data[:_LZ4_FLAGS_POSITION] != _LZ4_MAGIC or len(data) <= _LZ4_FLAGS_POSITION:
        return
    flags = data[_LZ4_FLAGS_POSITION]
    if not flags & _LZ4_INDEPENDENT_BIT:
        raise CorruptRecords("the blocks of an lz4 frame depend on one another")
    checksum_bytes = 4 if flags & _LZ4_BLOCK_CHECKSUM_BIT else 0
    position = 7 + (8 if flags & _LZ4_CONTENT_SIZE_BIT else 0)
    while position + 4 <= len(data):
        size_bytes = int.from_bytes(data[position : position + 4], "little") & _LZ4_BLOCK_SIZE_MASK
        position += 4
        if size_bytes == 0:
            position += 4 if flags & _LZ4_CONTENT_CHECKSUM_BIT else 0
            break
        position += size_bytes + checksum_bytes
    if position < len(data):
        raise InvalidRecords("there is more than one lz4 frame")


def _with_lz4_header_checksum(frame: bytes, *, covers_magic: bool) -> bytes:
    """`frame` with its header checksum computed over the descriptor, or as KAFKA-3160 has it.

    Raises:
        EOFError: the header is cut off.
    """
    if frame[:4] != _LZ4_MAGIC or len(frame) < 7:
        raise EOFError("this is no lz4 frame")
    flags = frame[4]
    end = 6 + (8 if flags & _LZ4_CONTENT_SIZE_BIT else 0)
    if flags & _LZ4_DICTIONARY_BIT or len(frame) <= end:
        raise EOFError("the lz4 frame header is cut off or asks for a dictionary")
    covered = frame[0 if covers_magic else 4 : end]
    check = _xxh32_short(covered) >> 8 & 0xFF
    return frame[:end] + bytes((check,)) + frame[end + 1 :]


def _xxh32_short(data: bytes) -> int:
    """xxHash32 with seed 0 of fewer than 16 bytes, which is all that a frame header has."""
    prime1, prime2, prime3 = 2654435761, 2246822519, 3266489917
    prime4, prime5 = 668265263, 374761393
    value = prime5 + len(data)
    words = len(data) // 4 * 4
    for start in range(0, words, 4):
        value += int.from_bytes(data[start : start + 4], "little") * prime3
        value = _rotate_left(value, 17) * prime4
    for byte in data[words:]:
        value = _rotate_left(value + byte * prime5, 11) * prime1
    value &= 0xFFFFFFFF
    value = (value ^ value >> 15) * prime2 & 0xFFFFFFFF
    value = (value ^ value >> 13) * prime3 & 0xFFFFFFFF
    return value ^ value >> 16


def _rotate_left(value: int, bits: int) -> int:
    value &= 0xFFFFFFFF
    return (value << bits | value >> 32 - bits) & 0xFFFFFFFF


def _decompress_zstd(data: Buffer, limit_bytes: int) -> bytes:
    bound = zstd_bound(memoryview(data))
    try:
        if min(bound, limit_bytes) > _PIECE_BYTES:
            return _decompress_large_zstd(data, min(bound, limit_bytes))
        room = bytearray(min(bound, limit_bytes))
        return bytes(memoryview(room)[: cramjam.zstd.decompress_into(data, room)])
    except cramjam.DecompressionError:
        # A full buffer looks like any other failure. If the bound says that everything must have
        # fitted, the data is wrong, else the size.
        if bound > limit_bytes:
            raise _too_large(limit_bytes) from None
        raise


def _decompress_large_zstd(data: Buffer, room_bytes: int) -> bytes:
    """Decompresses on a helper thread without stopping the others for long.

    Clearing or copying hundreds of megabytes at once would stop them for a tenth of a second.
    Mapped memory is clear already, and a copy in pieces lets other threads run in between.
    """
    with mmap(-1, room_bytes) as room, memoryview(room) as view:
        size_bytes = cramjam.zstd.decompress_into(data, view)
        copy = BytesIO()
        for position in range(0, size_bytes, _PIECE_BYTES):
            with view[position : min(position + _PIECE_BYTES, size_bytes)] as piece:
                copy.write(piece)
        return copy.getvalue()


def zstd_bound(data: memoryview) -> int:
    """At most how many bytes the frames of `data` decode to, from their headers alone.

    Raises:
        EOFError: a frame is cut off, or the data is no frame.
    """
    bound = 0
    position = 0
    if not data:
        raise EOFError("there is no frame")
    while position < len(data):
        magic = _little(data, position, 4)
        if magic & 0xFFFFFFF0 == _ZSTD_SKIPPABLE_MAGIC:
            position += 8 + _little(data, position + 4, 4)
        elif magic == _ZSTD_MAGIC:
            position, frame_bound = _zstd_frame_bound(data, position + 4)
            bound += frame_bound
        else:
            raise EOFError("a frame begins with an unknown number")
    return bound


def _zstd_frame_bound(data: memoryview, position: int) -> tuple[int, int]:
    """Where the frame whose descriptor stands at `position` ends, and the bound on its size."""
    descriptor = _little(data, position, 1)
    single_segment = descriptor >> 5 & 1
    position += 1 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
    size_field_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
    content_bytes = _little(data, position, size_field_bytes) if size_field_bytes else -1
    if size_field_bytes == 2:
        content_bytes += 256
    position += size_field_bytes
    blocks_bytes = 0
    last = 0
    while not last:
        block = _little(data, position, 3)
        last, kind, size_bytes = block & 1, block >> 1 & 3, block >> 3
        position += 3 + (1 if kind == 1 else size_bytes)
        blocks_bytes += size_bytes if kind < 2 else _ZSTD_BLOCK_BYTES
    position += 4 * (descriptor >> 2 & 1)
    return position, blocks_bytes if content_bytes < 0 else min(content_bytes, blocks_bytes)


def _little(data: memoryview, position: int, size_bytes: int) -> int:
    if position + size_bytes > len(data):
        raise EOFError("the data ends inside a frame")
    return int.from_bytes(data[position : position + size_bytes], "little")
