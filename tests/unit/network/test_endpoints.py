"""Listener syntax: what Kafka accepts is accepted, what it refuses is refused with a reason."""

import pytest

from odradek.model import EndPoint
from odradek.network.endpoints import format_host_port, parse_listeners, parse_protocol_map


def test_several_listeners_with_ipv6_and_empty_hosts() -> None:
    """Goal: R27's syntax."""
    assert parse_listeners("PLAINTEXT://:9092, ssl://[::1]:0,SASL_SSL://broker.example:9094") == [
        EndPoint("PLAINTEXT", "PLAINTEXT", "", 9092),
        EndPoint("SSL", "SSL", "::1", 0),
        EndPoint("SASL_SSL", "SASL_SSL", "broker.example", 9094),
    ]


def test_named_listeners_take_their_protocol_from_the_map() -> None:
    """Goal: names and protocols are different things."""
    endpoints = parse_listeners(
        "INTERNAL://10.0.0.1:9092,EXTERNAL://:9093", "INTERNAL:PLAINTEXT,EXTERNAL:SSL"
    )
    assert [endpoint.security_protocol for endpoint in endpoints] == ["PLAINTEXT", "SSL"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "9092",
        "PLAINTEXT://host",
        "PLAINTEXT://host:port",
        "PLAINTEXT://host:65536",
        "PLAINTEXT://::1:9092",
        "PLAINTEXT://[::1:9092",
        "NOBODY://host:1",
        "PLAINTEXT://a:1,PLAINTEXT://a:2",
        "PLAINTEXT://a:1,SSL://a:1",
    ],
)
def test_malformed_listeners_are_refused(text: str) -> None:
    """Goal: a typing mistake is named at the start and not found by a client."""
    with pytest.raises(ValueError):
        parse_listeners(text)


def test_protocol_map_names_unknown_protocols() -> None:
    """Goal: a wrong protocol is refused with the known ones."""
    with pytest.raises(ValueError, match="SASL_PLAINTEXT"):
        parse_protocol_map("CLIENT:TLS")


def test_ipv6_is_printed_in_brackets() -> None:
    """Goal: bootstrap strings can be pasted into any client."""
    assert format_host_port("::1", 9092) == "[::1]:9092"
    assert format_host_port("localhost", 9092) == "localhost:9092"
