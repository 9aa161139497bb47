"""Request headers (versions 0 to 2) and response headers (0 and 1).

Which version a header has follows from the API and its version: requests have 1, or 2 when
the API version is flexible; responses 0, or 1 when flexible. Two exceptions: an ApiVersions
response always has header 0, so that a client can read it before it knows the broker, and
header 0 of requests belongs to ControlledShutdown 0 alone. The client id is never written
as a compact string, in no version.
"""

from typing import Final

from odradek.protocol.primitives import NO_TAGS, ProtocolError, Reader, Writer

API_VERSIONS_KEY: Final = 18
CONTROLLED_SHUTDOWN_KEY: Final = 7
NEVER_FLEXIBLE: Final = 0x7FFF
_MINIMUM_BYTES: Final = 8


class RequestHeader:
    """The header of a request; the body begins at `body_position` of the frame."""

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        body_position: int,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body_position = body_position


def request_header_version(api_key: int, api_version: int, flexible_from: int) -> int:
    """The version of the header in front of a request; its API is flexible from that version."""
    if api_version >= flexible_from:
        return 2
    return 0 if api_key == CONTROLLED_SHUTDOWN_KEY and api_version == 0 else 1


def response_header_version(api_key: int, api_version: int, flexible_from: int) -> int:
    """The version of the header in front of a response."""
    return 1 if api_version >= flexible_from and api_key != API_VERSIONS_KEY else 0


def decode_request_header(frame: memoryview, flexible_from: dict[int, int]) -> RequestHeader:
    """Reads the header of a request; `flexible_from` has the first flexible version by API key.

    Only the first eight bytes of an unknown API's header can be decoded: it has no client id, and
    its body position is invalid.

    Raises:
        ProtocolError: the header is truncated.
    """
    if len(frame) < _MINIMUM_BYTES:
        raise ProtocolError(f"a request of {len(frame)} bytes", 0)
    reader = Reader(frame)
    api_key = reader.int16()
    api_version = reader.int16()
    correlation_id = reader.int32()
    client_id: str | None = None
    first_flexible = flexible_from.get(api_key)
    if first_flexible is not None:
        version = request_header_version(api_key, api_version, first_flexible)
        if version >= 1:
            client_id = reader.nullable_string(False)
        if version >= 2:
            reader.skip_tags()
    return RequestHeader(api_key, api_version, correlation_id, client_id, reader.position)


def encode_request_header(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None, header_version: int
) -> bytes:
    """Writes a request's header."""
    writer = Writer()
    writer.int16(api_key)
    writer.int16(api_version)
    writer.int32(correlation_id)
    if header_version >= 1:
        writer.nullable_string(client_id, False)
    writer.no_tags(header_version >= 2)
    return writer.to_bytes()


def encode_response_header(correlation_id: int, header_version: int) -> bytes:
    """Writes a response's header."""
    data = correlation_id.to_bytes(4, "big", signed=True)
    return data + NO_TAGS if header_version >= 1 else data


def decode_response_header(frame: memoryview, header_version: int) -> tuple[int, int]:
    """Reads a response's header: the correlation id, and where the body begins.

    Raises:
        ProtocolError: it is truncated.
    """
    reader = Reader(frame)
    correlation_id = reader.int32()
    if header_version >= 1:
        reader.skip_tags()
    return correlation_id, reader.position
