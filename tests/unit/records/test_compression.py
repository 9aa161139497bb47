"""The codecs: if these fail, batches of some client cannot be read, or one fills the memory."""

import tracemalloc

import cramjam
import lz4.frame
import pytest

from odradek.errors import BrokerError, ErrorCode
from odradek.records.compression import Compression, compress, decompress
from odradek.records.errors import CorruptRecords, UnsupportedCompression

SAMPLES = [b"", b"a", b"record " * 5_000, bytes(range(256)) * 1_000, b"\0" * 3_000_000]
COMPRESSED = [codec for codec in Compression if codec is not Compression.NONE]


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("data", SAMPLES, ids=lambda data: str(len(data)))
def test_what_goes_in_comes_out(codec: Compression, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed) == data
    assert decompress(codec, memoryview(bytearray(packed)), len(data)) == data
    assert compress(codec, memoryview(data)) == packed


@pytest.mark.parametrize("codec", Compression)
def test_the_limit_is_exact(codec: Compression) -> None:
    packed = compress(codec, b"x" * 10_000)
    assert len(decompress(codec, packed, 10_000)) == 10_000
    with pytest.raises(BrokerError) as raised:
        decompress(codec, packed, 9_999)
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_never_takes_more_than_the_limit_and_a_block(codec: Compression) -> None:
    """Memory as Python sees it; 60 MB of zeros against a limit of 1 MiB."""
    bomb = compress(codec, b"\0" * 60_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(BrokerError):
            decompress(codec, bomb, 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < (1 << 20) + 16 * len(bomb) + (1 << 18)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", COMPRESSED)
def test_cut_off_anywhere_it_is_refused(codec: Compression) -> None:
    packed = compress(codec, b"some records, some more records, " * 3)
    for cut in range(len(packed)):
        if codec is Compression.SNAPPY and cut == 16:
            continue  # a Xerial stream without blocks is a stream of nothing
        with pytest.raises(CorruptRecords):
            decompress(codec, packed[:cut])


@pytest.mark.parametrize("codec", COMPRESSED)
def test_garbage_is_refused(codec: Compression) -> None:
    for garbage in (b"", b"\x81", b"\xff" * 40, b"garbage of some length", bytes(range(64))):
        with pytest.raises(BrokerError):
            decompress(codec, garbage, 10_000)


@pytest.mark.parametrize("codec_id", [5, 6, 7])
def test_codecs_that_do_not_exist(codec_id: int) -> None:
    with pytest.raises(UnsupportedCompression) as raised:
        decompress(codec_id, b"")
    assert raised.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    with pytest.raises(UnsupportedCompression):
        compress(codec_id, b"")


def test_names_are_those_of_the_settings() -> None:
    for name, codec in {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4, "uncompressed": 0}.items():
        assert Compression.from_name(name) == codec
    with pytest.raises(ValueError, match="brotli"):
        Compression.from_name("brotli")


def test_snappy_is_read_raw_and_in_several_xerial_blocks() -> None:
    data = bytes(range(256)) * 300
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data
    framed = compress(Compression.SNAPPY, data)
    assert framed.startswith(b"\x82SNAPPY\0\0\0\0\1\0\0\0\1")
    assert decompress(Compression.SNAPPY, framed) == data


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_several_streams_one_after_the_other(codec: Compression) -> None:
    packed = compress(codec, b"first ") + compress(codec, b"second")
    assert decompress(codec, packed) == b"first second"
    with pytest.raises(BrokerError):
        decompress(codec, packed, 11)


def test_zstd_frames_with_and_without_a_size_and_skippable_ones() -> None:
    data = b"0123456789" * 30_000
    stream = cramjam.zstd.Compressor(3)
    stream.compress(data[:1000])
    unsized = bytes(stream.flush())
    stream.compress(data[1000:])
    unsized += bytes(stream.finish())
    skippable = bytes.fromhex("532a4d18 04000000") + b"skip"
    assert decompress(Compression.ZSTD, skippable + unsized + skippable) == data
    assert decompress(Compression.ZSTD, bytes(cramjam.zstd.compress(data)), len(data)) == data


def test_lz4_is_framed_for_old_java_readers() -> None:
    """Independent blocks of 64 KiB, no content size; lz4-java refused anything else."""
    info = lz4.frame.get_frame_info(compress(Compression.LZ4, b"x" * 200_000))
    assert not info["block_linked"]
    assert info["block_size"] == 64 * 1024
    assert info["content_size"] == 0


def test_the_broken_lz4_header_of_magic_0() -> None:
    """KAFKA-3160: the checksum covers the frame's magic too; readers of then ignored it."""
    good = compress(Compression.LZ4, b"data")
    broken = compress(Compression.LZ4, b"data", broken_lz4_header=True)
    assert good[:6] == broken[:6]
    assert good[6] != broken[6]
    assert good[7:] == broken[7:]
    with pytest.raises(CorruptRecords):
        decompress(Compression.LZ4, broken)
    assert decompress(Compression.LZ4, broken, broken_lz4_header=True) == b"data"
    assert decompress(Compression.LZ4, good, broken_lz4_header=True) == b"data"


def test_our_lz4_header_checksum_is_the_libraries() -> None:
    """Reading magic 0 puts the right checksum in, with and without a content size."""
    for store_size in (False, True):
        frame = lz4.frame.compress(b"data", store_size=store_size)
        check = 14 if store_size else 6
        spoilt = frame[:check] + b"\x00" + frame[check + 1 :]
        with pytest.raises(CorruptRecords):
            decompress(Compression.LZ4, spoilt)
        assert decompress(Compression.LZ4, spoilt, broken_lz4_header=True) == b"data"


@pytest.mark.parametrize("level", [1, 9])
def test_levels_are_passed_on(level: int) -> None:
    data = bytes(i * i % 251 for i in range(50_000))
    for codec in (Compression.GZIP, Compression.LZ4, Compression.ZSTD):
        assert decompress(codec, compress(codec, data, level)) == data
