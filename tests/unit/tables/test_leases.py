"""If these fail, a running query loses records to retention, or its lease is never given back."""

import pickle
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.tables.conftest import build_batch

import odradek
from odradek.client.core.consuming.list_offsets import lease_request
from odradek.client.sync import Cluster
from odradek.clock import ManualClock
from odradek.model import TopicPartition
from odradek.protocol.direct.list_offsets import (
    LeaseTerms,
    decode_list_offsets_request,
    encode_list_offsets_request,
)
from odradek.storage import OsFileSystem
from odradek.storage.leases import Lease, read_leases, write_lease
from odradek.tables.plan.bounds import Bounds, open_bounds
from odradek.tables.plan.options import ClientOptions, ReadOptions, TopicSelection
from odradek.tables.plan.ranges import OffsetRange
from odradek.tables.scan import leases
from odradek.tables.scan.leases import LeaseKeeper, release_lease, take_lease

FIRST = TopicPartition("t", 0)
MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("broker"))


@pytest.fixture(scope="module")
def broker(data_dir: str) -> Iterator[odradek.Broker]:
    with odradek.Broker(data_dir=data_dir) as broker:
        broker.create_topic("t", partitions=2)
        broker.produce_many("t", [b"%d" % number for number in range(10)])
        yield broker


def held(data_dir: str, partition: int = 0) -> list[Lease]:
    return read_leases(OsFileSystem(1), str(Path(data_dir, f"t-{partition}")))


def options(servers: str | None, *log_dirs: str, lease_ms: int = MINUTE_MS) -> ReadOptions:
    client = ClientOptions(servers)
    return ReadOptions(TopicSelection(names=("t",)), client, log_dirs, lease_ms=lease_ms)


def test_the_terms_survive_the_wire() -> None:
    request = lease_request(LeaseTerms("ab", "who", 5), {FIRST: 7, TopicPartition("u", 1): 0}, 9)
    frame = b"".join(map(bytes, encode_list_offsets_request(request, 10)))
    read = decode_list_offsets_request(memoryview(frame), 10, 0)
    assert read.lease is not None
    assert (read.lease.lease_id, read.lease.owner, read.lease.duration_ms) == ("ab", "who", 5)
    assert [(t.name, t.partitions[0].lease_offset) for t in read.topics] == [("t", 7), ("u", 0)]
    # Versions without tagged fields ask without.
    old = b"".join(map(bytes, encode_list_offsets_request(request, 5)))
    assert decode_list_offsets_request(memoryview(old), 5, 0).lease is None


def test_a_broker_takes_a_lease_and_gives_it_back(broker: odradek.Broker, data_dir: str) -> None:
    with Cluster(broker.bootstrap_servers) as cluster:
        cluster.hold(LeaseTerms("ab", "who", MINUTE_MS), {FIRST: 7})
        (lease,) = held(data_dir)
        assert lease[:3] == ("ab", "who", 7)
        cluster.hold(LeaseTerms("ab", "who", 0), {FIRST: 7})
        assert held(data_dir) == []
        # Nothing may be written elsewhere.
        cluster.hold(LeaseTerms("../t-1/ab", "who", MINUTE_MS), {FIRST: 7})
    assert held(data_dir) == held(data_dir, 1) == []


@pytest.mark.parametrize("by_path", [False, True])
def test_a_plan_is_held_from_its_first_offsets(
    broker: odradek.Broker, data_dir: str, by_path: bool
) -> None:
    asked = options(None, data_dir) if by_path else options(broker.bootstrap_servers)
    bounds = open_bounds(asked)
    ranges = [OffsetRange(FIRST, 5, 7), OffsetRange(FIRST, 2, 5)]
    lease = take_lease(bounds, asked, ranges, "cd")
    assert lease is not None
    assert [each.offset for each in held(data_dir)] == [2]
    assert held(data_dir, 1) == []
    release_lease(bounds, lease)
    assert held(data_dir) == []
    assert take_lease(bounds, options(None, data_dir, lease_ms=0), ranges, "cd") is None
    bounds.close()


def test_a_task_of_a_large_plan_is_small() -> None:
    """With 4 000 partitions a plan of as many tasks had 481 MB, all of it on the driver."""

    class Taken(Bounds):
        def hold(self, *asked: object) -> bool:
            return True

    ranges = [
        OffsetRange(TopicPartition(topic, number), 0, 50_000)
        for topic in ("t", "u")
        for number in range(2_000)
        if number != 7
    ]
    lease = take_lease(Taken(), options("h:1"), ranges, "cd")
    assert lease is not None
    assert set(lease.partitions()) == {piece.topic_partition for piece in ranges}
    assert len(pickle.dumps(lease)) < 1_000


def test_a_plan_of_very_many_partitions_is_small_whichever_have_news() -> None:
    """Each task has all partitions of the lease: with a half of them, here and there, that was 63
    MB on the driver."""
    numbers = random.Random(7).sample(range(10_000), 5_000)
    parts = [TopicPartition("t", number) for number in sorted(numbers)]
    packed = leases.pack(parts)
    assert [*leases.ReadLease("ab", "who", 0, MINUTE_MS, packed).partitions()] == parts
    # A range of so many offsets has a task of its own.
    assert len(packed) * 10_000 < 20e6


def test_another_brokers_directory_is_not_written_to(log_dir) -> None:
    log_dir.segment([build_batch(0, 1)], 0)
    asked = options(None, str(log_dir.root))
    piece = OffsetRange(TopicPartition("orders", 0), 0, 1)
    assert take_lease(open_bounds(asked), asked, [piece], "cd") is None
    assert not list(Path(log_dir.root).rglob("*.lease"))


def test_who_reads_renews(
    broker: odradek.Broker, data_dir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(wall_ms=1_700_000_000_000)
    monkeypatch.setattr(leases, "_clock", clock)
    asked = options(broker.bootstrap_servers)
    bounds = open_bounds(asked)
    lease = take_lease(bounds, asked, [OffsetRange(FIRST, 2, 5)], "ef")
    bounds.close()
    keeper = LeaseKeeper(asked, lease)
    path = Path(data_dir, "t-0", "ef.lease")

    def is_renewed(by: LeaseKeeper) -> bool:
        """Whether the lease has another end than one that is about to be over, and its offset."""
        write_lease(OsFileSystem(1), str(path.parent), Lease("ef", "who", 2, 1), 0)
        by.maybe_renew()
        ((_, _, offset, expires_ms),) = held(data_dir)
        assert offset == 2
        return expires_ms > 1

    clock.advance(5_999)
    assert not is_renewed(keeper)
    clock.advance(1)
    assert is_renewed(keeper)
    # Another task in the same process knows that it was just done; one elsewhere does not.
    assert not is_renewed(LeaseKeeper(asked, lease))
    monkeypatch.setattr(LeaseKeeper, "_last", ("", 0))
    assert is_renewed(LeaseKeeper(asked, lease))
    # Until a clock that was set back was there again, the records had gone.
    monkeypatch.setattr(leases, "_clock", ManualClock(wall_ms=clock.wall_ms() - 60 * MINUTE_MS))
    assert is_renewed(keeper)
    assert not is_renewed(keeper)
    path.unlink()
    monkeypatch.setattr(LeaseKeeper, "_last", ("", 0))
    LeaseKeeper(asked, lease).maybe_renew()
    assert not path.exists(), "it was given back"


def test_a_broker_that_is_gone_ends_no_read(broker: odradek.Broker) -> None:
    with odradek.Broker() as other:
        servers = other.bootstrap_servers
    client = ClientOptions(servers, request_timeout_ms=1, patience_ms=1)
    asked = ReadOptions(TopicSelection(names=("t",)), client, lease_ms=MINUTE_MS)
    lease = leases.ReadLease("gh", "who", 0, MINUTE_MS, leases.pack([FIRST]))
    LeaseKeeper(asked, lease).maybe_renew()
