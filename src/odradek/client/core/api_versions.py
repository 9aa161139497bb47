"""ApiVersions as a client needs it: its own name and version, and the broker's API versions.

Written out by hand, as Metadata is: these two are all that listing topics takes, and the classes of
the other messages cost more time to import than the whole listing.
"""

from typing import NamedTuple

from odradek.client.apis import API_VERSIONS, VersionRanges
from odradek.errors import ErrorCode
from odradek.protocol.primitives import Reader, Writer

SOFTWARE_NAME = "odradek"


class SupportedVersions(NamedTuple):
    """The answer: an error code, and the versions of every API by its key."""

    error_code: int
    ranges: VersionRanges


def encode_request(version: int, software_version: str) -> bytes:
    """The body of a request; name and version of the software since version 3."""
    writer = Writer()
    flexible = version >= API_VERSIONS.flexible_from
    if flexible:
        writer.string(SOFTWARE_NAME, flexible)
        writer.string(software_version, flexible)
        writer.no_tags(flexible)
    return writer.to_bytes()


def decode_response(version: int, frame: memoryview, position: int) -> SupportedVersions:
    """Reads the body of an answer.

    A broker that does not know the version of the request answers in version 0.

    Raises:
        ProtocolError: the body is malformed.
    """
    reader = Reader(frame, position)
    error_code = reader.int16()
    flexible = version >= API_VERSIONS.flexible_from and error_code != ErrorCode.UNSUPPORTED_VERSION
    ranges = {}
    for _ in range(reader.array_length(flexible, 6)):
        key = reader.int16()
        ranges[key] = (reader.int16(), reader.int16())
        if flexible:
            reader.skip_tags()
    return SupportedVersions(error_code, ranges)
