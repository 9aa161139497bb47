"""The size field in front of every request and response."""

import pytest

from odradek.protocol.framing import encode_size, frame_size
from odradek.protocol.primitives import ProtocolError

MAX = 1000


@pytest.mark.parametrize("size", [1, 255, 256, MAX])
def test_a_size_is_read_as_it_was_written(size):
    """Every frame would be cut at a wrong place."""
    assert frame_size(bytearray(b"xx" + encode_size(size)), 2, MAX) == size


@pytest.mark.parametrize("size", [0, -1, -(2**31), MAX + 1, 2**31 - 1])
def test_a_size_out_of_bounds_is_refused(size):
    """A few bytes from anyone would make the broker set gigabytes aside."""
    field = size.to_bytes(4, "big", signed=True)
    with pytest.raises(ProtocolError, match=f"{size} bytes"):
        frame_size(bytearray(field), 0, MAX)
