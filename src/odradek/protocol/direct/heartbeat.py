"""Heartbeat, versions 0 to 4: the request in, the response out. Hot: every member sends them.

Version notes: 1 adds the throttle time, 3 the group instance id, 4 is flexible.
"""

from typing import Final, NamedTuple

from odradek.protocol.primitives import Reader, Writer

THROTTLE_VERSION: Final = 1
INSTANCE_ID_VERSION: Final = 3
FLEXIBLE_VERSION: Final = 4


class HeartbeatMessage(NamedTuple):
    """A whole request."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


def decode_heartbeat_request(frame: memoryview, version: int, position: int) -> HeartbeatMessage:
    """Reads the body of a request, which begins at `position`.

    Raises:
        ProtocolError: it is malformed.
    """
    reader = Reader(frame, position)
    flexible = version >= FLEXIBLE_VERSION
    group_id = reader.string(flexible)
    generation_id = reader.int32()
    member_id = reader.string(flexible)
    instance_id = reader.nullable_string(flexible) if version >= INSTANCE_ID_VERSION else None
    if flexible:
        reader.skip_tags()
    return HeartbeatMessage(group_id, generation_id, member_id, instance_id)


def encode_heartbeat_response(
    code: int, version: int, correlation_id: int, throttle_time_ms: int = 0
) -> bytes:
    """The response with its header."""
    writer = Writer()
    flexible = version >= FLEXIBLE_VERSION
    writer.int32(correlation_id)
    writer.no_tags(flexible)
    if version >= THROTTLE_VERSION:
        writer.int32(throttle_time_ms)
    writer.int16(code)
    writer.no_tags(flexible)
    return writer.to_bytes()
