"""Which header a message has, and what it says."""

import pytest

from odradek.protocol.header import (
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    request_header_version,
    response_header_version,
)
from odradek.protocol.primitives import ProtocolError

PRODUCE, CONTROLLED_SHUTDOWN, API_VERSIONS = 0, 7, 18
FLEXIBLE_FROM = {PRODUCE: 9, CONTROLLED_SHUTDOWN: 3, API_VERSIONS: 3}


@pytest.mark.parametrize(
    ("api_key", "version", "request_version", "response_version"),
    [
        (PRODUCE, 8, 1, 0),
        (PRODUCE, 9, 2, 1),
        (CONTROLLED_SHUTDOWN, 0, 0, 0),
        (CONTROLLED_SHUTDOWN, 1, 1, 0),
        (API_VERSIONS, 2, 1, 0),
        (API_VERSIONS, 3, 2, 0),
    ],
)
def test_header_versions(api_key, version, request_version, response_version):
    """The body would be read from one byte too early or too late."""
    first = FLEXIBLE_FROM[api_key]
    assert request_header_version(api_key, version, first) == request_version
    assert response_header_version(api_key, version, first) == response_version


@pytest.mark.parametrize("client_id", [None, "", "producer-1", "ключ"])
@pytest.mark.parametrize(
    ("api_key", "version"), [(PRODUCE, 8), (PRODUCE, 9), (CONTROLLED_SHUTDOWN, 0)]
)
def test_a_request_header_comes_back(api_key, version, client_id):
    """Answers would bear a wrong correlation id."""
    header_version = request_header_version(api_key, version, FLEXIBLE_FROM[api_key])
    data = encode_request_header(api_key, version, -7, client_id, header_version)
    header = decode_request_header(memoryview(data + b"body"), FLEXIBLE_FROM)
    assert (header.api_key, header.api_version) == (api_key, version)
    assert header.correlation_id == -7
    assert header.client_id == (client_id if header_version else None)
    assert header.body_position == len(data)


def test_the_bytes_of_a_request_header():
    """Both directions could be wrong in the same way."""
    data = bytes.fromhex("0000 0009 00000005 0002 6162 00")
    assert encode_request_header(PRODUCE, 9, 5, "ab", 2) == data


def test_of_an_unknown_api_only_the_beginning_is_read():
    """A client id would be looked for where none may be."""
    data = b"\x03\xe7\x00\x01\x00\x00\x00\x05\x7f\xff"
    header = decode_request_header(memoryview(data), FLEXIBLE_FROM)
    assert (header.api_key, header.correlation_id, header.client_id) == (999, 5, None)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(7),
        bytes(8),
        b"\0\0\0\x09" + bytes(4) + b"\0\x01a",
    ],
)
def test_a_malformed_request_header(data):
    """Something else than a ProtocolError would reach the network."""
    with pytest.raises(ProtocolError):
        decode_request_header(memoryview(data), FLEXIBLE_FROM)


@pytest.mark.parametrize("version", [0, 1])
def test_a_response_header_comes_back(version):
    """A client would not find the answer to its request."""
    data = encode_response_header(123456, version)
    assert decode_response_header(memoryview(data), version) == (123456, len(data))
