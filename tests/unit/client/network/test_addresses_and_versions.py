"""If these fail, a client connects to the wrong place or speaks a version that a broker lacks."""

import pytest

from odradek.client.addresses import Address, parse_bootstrap_servers
from odradek.client.apis import FETCH, METADATA, agree
from odradek.errors import BrokerError, ErrorCode


def test_lists_of_brokers_are_read_as_people_write_them() -> None:
    text = " a:9092 , PLAINTEXT://b.example:19092,[::1]:9093,"
    servers = parse_bootstrap_servers(text)
    assert servers == [Address("a", 9092), Address("b.example", 19092), Address("::1", 9093)]
    assert [str(server) for server in servers] == ["a:9092", "b.example:19092", "[::1]:9093"]


@pytest.mark.parametrize("text", ["", " , ", "a", "a:", ":9092", "a:x", "a:0", "a:65536"])
def test_what_is_no_address_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"no (broker|host)"):
        parse_bootstrap_servers(text)


def test_the_highest_common_version_is_spoken() -> None:
    assert agree(FETCH, {FETCH.key: (0, 13)}) == 13
    assert agree(FETCH, {FETCH.key: (0, 99)}) == FETCH.max_version


@pytest.mark.parametrize("ranges", [{}, {METADATA.key: (0, 3)}, {METADATA.key: (50, 60)}])
def test_without_a_common_version_there_is_no_talking(ranges: dict[int, tuple[int, int]]) -> None:
    with pytest.raises(BrokerError, match="Metadata") as caught:
        agree(METADATA, ranges)
    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION
