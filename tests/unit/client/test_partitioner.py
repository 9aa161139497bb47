"""If these fail, records with a key go elsewhere than those of every other producer."""

import random

import pytest

from odradek.client.core.producing.partitioner import StickyPartitioner, murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF
    assert partition_for_key(key, 7) == (expected & 0x7FFFFFFF) % 7


def test_records_stick_until_a_batch_is_full() -> None:
    sticky = StickyPartitioner(100, random.Random(3))
    chosen = []
    for _ in range(40):
        chosen.append(sticky.choose([0, 1, 2], lambda _: 0))
        sticky.produced(25)
    runs = [chosen[start : start + 4] for start in range(0, 40, 4)]
    assert all(len(set(run)) == 1 for run in runs)
    assert set(chosen) == {0, 1, 2}


def test_long_queues_get_less() -> None:
    sticky = StickyPartitioner(1, random.Random(3))
    counts = [0, 0]
    for _ in range(1000):
        counts[sticky.choose([0, 1], lambda index: 9 * index)] += 1
        sticky.produced(1)
    assert 850 < counts[0] < 950, "ten to one"


def test_a_partition_that_lost_its_leader_is_left() -> None:
    sticky = StickyPartitioner(1000, random.Random(3))
    first = sticky.choose([0, 1], lambda _: 0)
    assert sticky.choose([1 - first], lambda _: 0) == 1 - first
