"""If these fail, an answer that arrives in pieces is cut wrongly, or lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.core.network.frames import RESPONSE_MAX_BYTES, FrameReceiver
from odradek.protocol.framing import encode_size
from odradek.protocol.primitives import ProtocolError

SIZES = st.lists(st.sampled_from([1, 5, 1000, 65_531, 65_532, 65_533, 70_000, 200_000]), max_size=6)


def feed(receiver: FrameReceiver, data: bytes, step: int) -> list[bytes]:
    frames = []
    position = 0
    while position < len(data):
        room = receiver.get_buffer()
        piece = data[position : position + min(step, len(room))]
        room[: len(piece)] = piece
        frames += [bytes(frame) for frame in receiver.buffer_updated(len(piece))]
        position += len(piece)
    return frames


@given(SIZES, st.sampled_from([3, 7, 4096, 1 << 20]))
def test_frames_come_out_whole_however_they_come_in(sizes: list[int], step: int) -> None:
    step = step if sum(sizes) < 10_000 else max(step, 4096)
    frames = [bytes([number]) * size for number, size in enumerate(sizes)]
    stream = b"".join(encode_size(len(frame)) + frame for frame in frames)
    assert feed(FrameReceiver(), stream, step) == frames


@pytest.mark.parametrize("size", [0, -1, RESPONSE_MAX_BYTES + 1])
def test_a_size_that_no_answer_has_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError, match="bytes"):
        feed(FrameReceiver(), encode_size(size), 4)
