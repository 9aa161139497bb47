"""The metrics that clients are to push, and the pushes that are taken, as by Kafka without a
receiver."""

import gzip
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from odradek.handlers.table import API_TABLE, ZOOKEEPER_API_TABLE, all_told
from odradek.handlers.telemetry import client_metrics
from odradek.handlers.telemetry.client_metrics import UNPACKED_BYTES, Client
from odradek.metadata import ConfigResource
from odradek.model import ConfigResourceType
from odradek.records.compression import Compression, compress

GET, PUSH = 71, 72
ME = UUID(int=77)
NONE, GZIP = 0, 1


def subscribe(cluster, name, **settings):
    resource = ConfigResource(ConfigResourceType.CLIENT_METRICS, name)
    named = {key.replace("_", "."): value for key, value in settings.items()}
    cluster.store.alter_configs({resource: named}, lambda outcome: None)


def ask(cluster, who=ME):
    return cluster.ask(GET, 0, client_instance_id=who)


def push(cluster, subscription_id, who=ME, *, last=False, codec=NONE, metrics=b"m"):
    return cluster.ask(
        PUSH,
        0,
        client_instance_id=who,
        subscription_id=subscription_id,
        terminating=last,
        compression_type=codec,
        metrics=metrics,
    ).error_code


def told(answer):
    assert answer.error_code is ErrorCode.none
    return set(answer.requested_metrics), answer.push_interval.total_seconds() * 1000


def test_a_client_learns_what_to_push(cluster):
    """Clients would push nothing, or everything, or too often."""
    assert told(ask(cluster, UUID(int=5))) == (set(), 300_000)
    subscribe(cluster, "all", metrics="a.,b.", interval_ms="5000")
    subscribe(cluster, "some", metrics="c.", interval_ms="1000", match="client_id=te.t")
    subscribe(cluster, "others", metrics="*", match="client_id=tes")
    assert told(ask(cluster, UUID(int=5))) == ({"a.", "b.", "c."}, 1000)
    named = ask(cluster, None)
    assert named.client_instance_id not in (None, UUID(int=5))
    subscribe(cluster, "others", match="client_source_address=192.*,client_source_port=4[0-9]*")
    assert told(ask(cluster, UUID(int=5))) == ({"*"}, 1000)


def test_a_client_is_known_by_its_software(cluster):
    subscribe(
        cluster, "soft", metrics="s", match="client_software_name=lib,client_software_version=1"
    )
    assert told(ask(cluster, UUID(int=1001)))[0] == set()
    cluster.ask(18, 4, client_software_name="lib", client_software_version="1")
    assert told(ask(cluster, UUID(int=1002)))[0] == {"s"}
    cluster.dispatcher().connection_closed("connection-1")
    assert told(ask(cluster, UUID(int=1003)))[0] == set()


def test_pushes_are_taken_once_in_an_interval(cluster):
    """Clients that push without pause would keep the broker busy."""
    subscribe(cluster, "all", metrics="*", interval_ms="1000")
    number = ask(cluster).subscription_id
    assert ask(cluster).error_code is ErrorCode.throttling_quota_exceeded
    assert push(cluster, number) is ErrorCode.none
    assert push(cluster, number) is ErrorCode.throttling_quota_exceeded
    cluster.context.clock.advance(999)
    assert push(cluster, number) is ErrorCode.throttling_quota_exceeded
    cluster.context.clock.advance(1)
    assert push(cluster, number) is ErrorCode.none
    assert push(cluster, number, last=True) is ErrorCode.none
    cluster.context.clock.advance(10_000)
    assert push(cluster, number) is ErrorCode.invalid_request


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"number": 1}, ErrorCode.unknown_subscription_id),
        ({"codec": 9}, ErrorCode.unsupported_compression_type),
        ({"metrics": b"x" * 1001}, ErrorCode.telemetry_too_large),
    ],
)
def test_a_last_push_that_is_refused_ends_nothing(cluster, fields, refused):
    """A client whose subscription changed while it closed could not push its last metrics."""
    subscribe(cluster, "all", metrics="*", interval_ms="1000")
    number = ask(cluster).subscription_id
    rest = {"metrics": b"", **fields}
    assert push(cluster, number + rest.pop("number", 0), last=True, **rest) is refused
    if refused is not ErrorCode.telemetry_too_large:
        assert ask(cluster).subscription_id == number
    assert push(cluster, number, last=True) is ErrorCode.none
    assert push(cluster, number, last=True) is ErrorCode.invalid_request


def test_who_has_ended_stays_away(cluster):
    """A client could push without pause by ending again and again."""
    subscribe(cluster, "all", metrics="*", interval_ms="1000")
    number = ask(cluster).subscription_id
    assert push(cluster, number, last=True) is ErrorCode.none
    for last in (False, True, False, True):
        cluster.context.clock.advance(1000)
        assert push(cluster, number, last=last) is ErrorCode.invalid_request


def test_garbage_in_a_last_push_ends_a_client_too(cluster):
    """Unpacking what comes out of turn would cost a broker as much as a client likes."""
    number = ask(cluster).subscription_id
    garbage = {"codec": GZIP, "metrics": b"garbage"}
    assert push(cluster, number, last=True, **garbage) is ErrorCode.invalid_record
    assert push(cluster, number, last=True, **garbage) is ErrorCode.invalid_request


def test_who_is_wrong_may_ask_at_once(cluster):
    """A client whose subscription has changed would have to wait for the whole interval."""
    number = ask(cluster).subscription_id
    assert push(cluster, number + 1) is ErrorCode.unknown_subscription_id
    assert ask(cluster).subscription_id == number
    assert ask(cluster).error_code is ErrorCode.throttling_quota_exceeded
    subscribe(cluster, "new", metrics="n")
    assert push(cluster, number) is ErrorCode.unknown_subscription_id
    assert ask(cluster).subscription_id != number


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"codec": 9}, ErrorCode.unsupported_compression_type),
        ({"codec": -1}, ErrorCode.unsupported_compression_type),
        ({"metrics": b"x" * 1001}, ErrorCode.telemetry_too_large),
        ({"metrics": b"x" * 1000}, ErrorCode.none),
        ({"metrics": b""}, ErrorCode.none),
        ({"metrics": b"garbage", "codec": GZIP}, ErrorCode.invalid_record),
        ({"metrics": gzip.compress(b"x")[:-12], "codec": GZIP}, ErrorCode.invalid_record),
        ({"metrics": gzip.compress(b"x"), "codec": GZIP}, ErrorCode.none),
        ({"metrics": b"g" + gzip.compress(b"x"), "codec": GZIP}, ErrorCode.invalid_record),
        ({"who": UUID(int=0)}, ErrorCode.invalid_request),
        ({"who": UUID(int=1)}, ErrorCode.invalid_request),
    ],
)
def test_what_is_pushed_is_checked(cluster, fields, expected):
    number = ask(cluster).subscription_id
    assert push(cluster, number, **fields) is expected


@pytest.mark.parametrize("codec", [each for each in Compression if each is not Compression.NONE])
def test_a_push_that_unpacks_to_much_more_is_too_large(cluster_with, codec):
    """A few kilobytes could take a broker's memory, and its time."""
    cluster = cluster_with({})
    cluster.client_metrics.max_bytes = UNPACKED_BYTES // 8
    number = ask(cluster).subscription_id
    bomb = compress(codec, bytes(UNPACKED_BYTES + 1))
    assert len(bomb) < UNPACKED_BYTES // 8
    assert push(cluster, number, codec=codec, metrics=bomb) is ErrorCode.telemetry_too_large


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(.*)(.*)(.*)(.*)x"])
def test_patterns_take_no_longer_than_a_name_is_long(cluster, pattern):
    """Hangs when a pattern and a name that go together can hold up the broker."""
    subscribe(cluster, "slow", metrics="s", match=f"client_id={pattern}")
    client = Client("a" * 5000 + "!", "", "", "192.0.2.7", "1")
    assert cluster.client_metrics.ask(ME, client).metrics == ()


@pytest.mark.parametrize("apis", [API_TABLE, ZOOKEEPER_API_TABLE])
def test_clients_are_told_of_telemetry_where_it_is_received(cluster, apis):
    """Clients would push nothing, or to a broker that drops it."""
    for told_of, is_told in ((apis, False), (all_told(apis), True)):
        cluster.replace(apis=told_of)
        software = {"client_software_name": "lib", "client_software_version": "1"}
        keys = {api.api_key for api in cluster.ask(18, 4, **software).api_keys}
        assert keys >= {0, 1, 3}
        assert ({GET, PUSH} <= keys, bool({GET, PUSH} & keys)) == (is_told, is_told)


def test_clients_are_forgotten_for_newer_ones(cluster, monkeypatch):
    """Clients that come and go would fill the memory."""
    monkeypatch.setattr(client_metrics, "MOST_INSTANCES", 2)
    for number in range(10, 13):
        ask(cluster, UUID(int=number))
    assert ask(cluster, UUID(int=12)).error_code is ErrorCode.throttling_quota_exceeded
    assert ask(cluster, UUID(int=10)).error_code is ErrorCode.none
