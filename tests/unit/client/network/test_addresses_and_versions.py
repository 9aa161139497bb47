"""If these fail, a client connects to the wrong place or speaks a version that a broker lacks."""

from collections.abc import Callable
from functools import partial

import pytest

from odradek.client import Admin, Consumer, Producer, ShareConsumer, sync
from odradek.client.addresses import Address, parse_bootstrap_servers
from odradek.client.apis import FETCH, METADATA, agree
from odradek.config import ConfigError
from odradek.errors import BrokerError, ErrorCode


def test_lists_of_brokers_are_read_as_people_write_them() -> None:
    text = " a:9092 , PLAINTEXT://b.example:19092,[::1]:9093,"
    servers = parse_bootstrap_servers(text)
    assert servers == [Address("a", 9092), Address("b.example", 19092), Address("::1", 9093)]
    assert [str(server) for server in servers] == ["a:9092", "b.example:19092", "[::1]:9093"]


@pytest.mark.parametrize("text", ["", " , "])
def test_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^Configuration 'x' values must not be empty\.$"):
        parse_bootstrap_servers(text, "x")


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "a:",
        ":9092",
        "a:x",
        "a:\u0661",
        "a:+1",
        "a:1 2",
        "a b:1",
        "k\u00f6ln:1",
        "a/b:1",
        "x y://a:1",
    ],
)
def test_what_is_no_address_is_named(text: str) -> None:
    """A name of other characters was looked up for a minute."""
    with pytest.raises(ConfigError) as caught:
        parse_bootstrap_servers(f"b:1,{text}")
    assert str(caught.value) == f"Invalid url in bootstrap.servers: {text}"


@pytest.mark.parametrize("port", ["0", "65536", "9" * 5_000])
def test_what_is_no_port_is_named(port: str) -> None:
    with pytest.raises(ConfigError, match=f"^Invalid port in bootstrap.servers: a:{port}$"):
        parse_bootstrap_servers(f"a:{port}")


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("[::1]:9092", "::1"),
        ("x://a-b_c.d:0009092", "a-b_c.d"),
        ("fe80::1%eth0:9092", "fe80::1%eth0"),
    ],
)
def test_every_address_of_kafka_is_read(text: str, host: str) -> None:
    """A program that has no other would fail."""
    assert parse_bootstrap_servers(text) == [Address(host, 9092)]


@pytest.mark.parametrize(
    "client",
    [
        Admin, Producer, Consumer, partial(ShareConsumer, group_id="g"),
        sync.Admin, sync.Producer, sync.Consumer, partial(sync.ShareConsumer, group_id="g"),
        sync.Cluster,
    ],
)  # fmt: skip
def test_every_client_refuses_what_is_no_address_at_once(client: Callable[[str], object]) -> None:
    """A user would wait for a minute, and then hear that no broker answers."""
    with pytest.raises(ConfigError, match=r"^Invalid url in bootstrap\.servers: a b:1$"):
        client("localhost:1,a b:1")


def test_controllers_are_named_as_such() -> None:
    with pytest.raises(ConfigError, match=r"^Invalid url in bootstrap\.controllers: a b:1$"):
        Admin(bootstrap_controllers="a b:1")


def test_the_highest_common_version_is_spoken() -> None:
    assert agree(FETCH, {FETCH.key: (0, 13)}) == 13
    assert agree(FETCH, {FETCH.key: (0, 99)}) == FETCH.max_version


@pytest.mark.parametrize("ranges", [{}, {METADATA.key: (0, 3)}, {METADATA.key: (50, 60)}])
def test_without_a_common_version_there_is_no_talking(ranges: dict[int, tuple[int, int]]) -> None:
    with pytest.raises(BrokerError, match="Metadata") as caught:
        agree(METADATA, ranges)
    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION
