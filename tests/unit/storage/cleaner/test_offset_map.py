"""`OffsetMap`: the newest offset of each key, in bounded memory, against a dictionary."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.storage.cleaner import offset_map
from odradek.storage.cleaner.offset_map import ENTRY_BYTES, OffsetMap


def cleared(memory_bytes: int, load_factor: float = 0.9, first_offset: int = 0) -> OffsetMap:
    offsets = OffsetMap(memory_bytes, load_factor, first_offset)
    while not offsets.is_clear:
        offsets.clear_some()
    return offsets


@given(
    st.lists(st.binary(max_size=3), max_size=60), st.sampled_from([0, 1, 10**12]), st.integers(2, 9)
)
def test_the_map_agrees_with_a_dictionary(keys: list[bytes], first_offset: int, slots: int):
    """Compaction would keep an old record, or drop the newest."""
    offsets = cleared(slots * ENTRY_BYTES, 0.8, first_offset)
    newest: dict[bytes, int] = {}
    for offset, key in enumerate(keys, first_offset):
        if offsets.put(key, offset):
            newest[key] = offset
        else:
            assert key not in newest
            assert len(newest) == offsets.capacity
    for offset, key in enumerate([*keys, b"\xffnever"], first_offset):
        assert offsets.is_newest(key, offset) == (newest.get(key, -1) <= offset)
    for key, offset in newest.items():
        assert not offsets.is_newest(key, first_offset - 1)
        assert offsets.is_newest(key, offset)
        assert not offsets.is_newest(key, offset - 1)


def test_keys_with_one_hash_are_told_apart(monkeypatch):
    """Records of a key would go because another key's hash is the same by chance."""
    hashed = []

    def half_blind(key: bytes) -> int:
        hashed.append(key)
        return hash(key) if key.startswith(b"\xa5second") else 42

    monkeypatch.setattr(offset_map, "hash", half_blind, raising=False)
    offsets = cleared(100 * ENTRY_BYTES)
    for offset, key in enumerate([b"a", b"b", b"c", b"b"]):
        assert offsets.put(key, offset)
    if not hashed:
        pytest.skip("compiled: the built-in cannot be replaced")
    assert offsets.size == 3
    assert [offsets.is_newest(key, 2) for key in (b"a", b"b", b"c", b"d")] == [
        True,
        False,
        True,
        True,
    ]


def test_a_large_map_is_cleared_in_parts():
    """The interpreter would stand still while a map of 128 MB is filled with zeros."""
    offsets = OffsetMap(3 << 20, 0.9, 0)
    calls = 0
    while not offsets.is_clear:
        offsets.clear_some()
        calls += 1
    assert calls == 24
    assert offsets.put(b"key", 5)
    assert not offsets.is_newest(b"key", 4)


def test_an_offset_that_is_too_far_ends_the_round():
    """The offset would wrap, and with it the order of the key's records."""
    offsets = cleared(64, 0.9, 7)
    assert offsets.put(b"a", 7 + (1 << 40) - 1)
    assert not offsets.put(b"b", 7 + (1 << 40))
