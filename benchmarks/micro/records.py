"""What does one record, and one batch, cost on its way through the records floor?

    python -m benchmarks.micro.records            compiled, where it was built so
    ODRADEK_PURE=1 python -m benchmarks.micro.records

Per row the best of several rounds. The batches are what the Spark measurements use: 75
records of a 15-byte key, a 190-byte value and, where it says so, one header.
"""

import timeit
from collections.abc import Callable

from odradek.records import walk
from odradek.records.batch import check_checksum, parse_header, split_batches, stamp
from odradek.records.builder import RecordBatchBuilder
from odradek.records.columnar import ColumnDecoder
from odradek.records.reader import iter_records, records_bytes
from odradek.records.validate import BatchRules, validate_produced

RECORDS = 75
BATCHES = 200
NOW_MS = 1_700_000_000_000
ROUNDS = 7
COMPILED = not walk.__file__.endswith(".py")


def build(codec: int, headers: int, base_offset: int = 0) -> bytes:
    builder = RecordBatchBuilder(codec, base_offset)
    for index in range(RECORDS):
        number = base_offset + index
        value = b'{"carrier": "UA", "delay": %d, "text": "' % (number * 7919 % 1000)
        value = value.ljust(188, b"abcdefghijklmnopqrstuvwxyz"[number % 26 : number % 26 + 1])
        builder.append(
            NOW_MS + index, b"key-%011d" % number, value + b'"}', [("trace", b"w" * 20)] * headers
        )
    return builder.build()


def seconds(call: Callable[[], object], number: int) -> float:
    """The best round's time for one call."""
    return min(timeit.repeat(call, number=number, repeat=ROUNDS)) / number


def batch_rows() -> None:
    """Does what the broker does once per produced batch."""
    batch = build(0, 0)
    buffer = memoryview(bytearray(batch))
    header = parse_header(buffer)
    records = records_bytes(buffer, header)
    rules = BatchRules()
    number = 2_000 if COMPILED else 100
    steps: dict[str, Callable[[], object]] = {
        "parse header": lambda: parse_header(buffer),
        "split": lambda: split_batches(buffer),
        "stamp": lambda: stamp(buffer, header, 0, 0),
        "checksum": lambda: check_checksum(buffer, header),
        "copy records": lambda: records_bytes(buffer, header),
        "walk": lambda: walk.walk_records(records, RECORDS),
        "validate_produced": lambda: validate_produced(buffer, rules, NOW_MS),
    }
    print(f"one batch of {len(batch)} bytes, {RECORDS} records")
    for name, call in steps.items():
        took = seconds(call, number)
        print(f"  {name:<24}{took * 1e6:9.2f} us{took / RECORDS * 1e9:10.1f} ns/record")


def decode(data: bytes, **options: bool) -> None:
    decoder = ColumnDecoder(max_rows=4096, **options)
    position = 0
    while position < len(data):
        position = decoder.append(data, position)
        decoder.finish()


def decoder_rows() -> None:
    """Does what a scan of a segment does per record."""
    count = BATCHES if COMPILED else BATCHES // 10
    options: dict[str, dict[str, bool]] = {
        "all but headers": {},
        "with CRC": {"check_crc": True},
        "key, offset, timestamp": {"value": False, "timestamp_type": False},
        "with headers": {"headers": True},
    }
    print("columns, millions of records a second")
    for codec, name in ((0, "none"), (3, "lz4"), (4, "zstd")):
        for what, chosen in options.items():
            headers = 1 if "headers" in chosen else 0
            data = b"".join(build(codec, headers, i * RECORDS) for i in range(count))
            rate = count * RECORDS / seconds(lambda: decode(data, **chosen), 1) / 1e6  # noqa: B023
            print(f"  {name:<6}{what:<26}{rate:8.2f}")
    data = b"".join(build(0, 1, i * RECORDS) for i in range(count))
    rate = count * RECORDS / seconds(lambda: list(iter_records(data)), 1) / 1e6
    print(f"  none  {'one object a record':<26}{rate:8.2f}")


def main() -> None:
    print("compiled" if COMPILED else "uncompiled")
    batch_rows()
    decoder_rows()


if __name__ == "__main__":
    main()
