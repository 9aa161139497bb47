"""Snapshots of a broker: what a fork has, that forks do not touch each other, what is different."""

import asyncio
import os
from pathlib import Path

import pytest

import odradek
from odradek.server.in_process.snapshot import Snapshot


def values(broker: odradek.Broker, topic: str = "orders") -> list[bytes]:
    return [record.value for record in broker.records(topic)]


def test_a_fork_goes_on_alone() -> None:
    """A fork would miss what the broker had, or write into the broker's files, or another's."""
    with odradek.Broker(config={"num.partitions": 2}) as broker:
        broker.create_topic("orders", config={"segment.bytes": 1024, "cleanup.policy": "compact"})
        for number in range(40):
            broker.produce("orders", "x" * 100, key=str(number))
        broker.reset("billing", "latest", topics=["orders"])
        before = values(broker)
        snapshot = broker.snapshot()
        broker.produce("orders", "of the first alone", key="k")
        forks = [odradek.Broker.from_snapshot(snapshot) for _ in range(2)]
        for number, fork in enumerate(forks):
            with fork:
                assert fork.bootstrap_servers != broker.bootstrap_servers
                assert (fork.cluster_id, values(fork)) == (broker.cluster_id, before)
                assert fork.lag("billing") == {("orders", 0): 0}
                for _ in range(20):
                    fork.produce("orders", f"{number}" * 100, key="k")
                fork.restart()
                assert values(fork)[:40] == before
                fork.produce("more", "spool", partition=1)
                assert fork.topics() == {"more": 2, "orders": 1}
        assert values(broker) == [*before, b"of the first alone"]
        broker.restart()
        assert values(broker) == [*before, b"of the first alone"]
        with odradek.Broker.from_snapshot(snapshot) as fork:
            assert values(fork) == before
    assert os.path.isdir(snapshot.path)
    path = snapshot.path
    del snapshot
    assert not os.path.exists(path)


def test_closed_segments_take_no_room_and_active_ones_are_copied() -> None:
    """A fork of a large topic would take as long as copying it, or share what both write."""
    with odradek.Broker() as broker:
        broker.create_topic("orders", config={"segment.bytes": 1024})
        for _ in range(20):
            broker.produce("orders", "x" * 400)
        snapshot = broker.snapshot()
        logs = sorted(Path(snapshot.path).glob("orders-0/*.log"))
        assert len(logs) > 2
        assert {log.stat().st_nlink for log in logs[:-1]} == {2}
        assert logs[-1].stat().st_nlink == 1
        indexes = Path(snapshot.path).glob("orders-0/*index")
        assert {index.stat().st_nlink for index in indexes} == {1}
        with odradek.Broker.from_snapshot(snapshot) as fork:
            assert len(values(fork)) == 20


def test_time_and_randomness_go_on_too() -> None:
    """A fork would be on another day, or draw other ids, and no test could rely on it."""
    clock = odradek.ManualClock()
    with odradek.Broker(clock=clock, seed=7) as broker:
        broker.create_topic("orders")
        clock.advance(60_000)
        snapshot = broker.snapshot()
        forks = [odradek.Broker.from_snapshot(snapshot) for _ in range(2)]
        ids = []
        clock.advance(1)
        for fork in forks:
            with fork:
                fork.produce("orders", "spool")
                assert fork.records("orders")[0].timestamp == clock.wall_ms() - 1
                fork.create_topic("more")
                ids.append(fork._running().metadata.image.topics["more"].topic_id)
        assert ids[0] == ids[1]


def test_what_is_different() -> None:
    """A test would list everything twice and compare by hand."""
    with odradek.Broker() as broker:
        broker.produce("orders", "spool")
        broker.produce("returns", "thread")
        first = broker.snapshot()
        assert not first.diff(broker.snapshot())
        broker.produce("orders", "more")
        broker.delete_topic("returns")
        broker.create_topic("refunds")
        broker.reset("billing", "latest", topics=["orders"])
        difference = first.diff(broker.snapshot())
        assert difference.created == ("refunds",)
        assert difference.deleted == ("returns",)
        assert difference.ends[odradek.TopicPartition("orders", 0)] == (1, 2)
        assert difference.groups == {"billing": {("orders", 0): (None, 2)}}
        assert str(difference).splitlines()[:3] == [
            "topic refunds created",
            "topic returns deleted",
            "orders-0 ended at 1, now at 2",
        ]


@pytest.mark.parametrize("kept", [False, True])
def test_a_snapshot_with_a_path_outlives_the_process(kept: bool, tmp_path: Path) -> None:
    """Tests of another run could not begin with it."""
    source = tmp_path / "data" if kept else None
    clock = odradek.ManualClock()
    with odradek.Broker(source, config={"num.partitions": 3}, clock=clock, seed=7) as broker:
        broker.produce("orders", "spool", partition=2)
        broker.configure("orders", {"retention.ms": 60_000})
        cluster_id = broker.cluster_id
        first = broker.snapshot(tmp_path / "first")
        with pytest.raises(FileExistsError):
            broker.snapshot(tmp_path / "first")
    again = Snapshot.read(str(tmp_path / "first"))
    assert not first.diff(again)
    with odradek.Broker.from_snapshot(tmp_path / "first") as fork:
        assert (fork.cluster_id, fork.topics()) == (cluster_id, {"orders": 3})
        assert values(fork) == [b"spool"]
        fork.produce("more", "x")
        assert fork.topics() == {"more": 3, "orders": 3}
    with odradek.Broker(tmp_path / "first") as served:  # as `odradek start` would
        assert (served.cluster_id, values(served)) == (cluster_id, [b"spool"])
    with pytest.raises(ValueError, match="there is no snapshot at"):
        odradek.Broker.from_snapshot(tmp_path)


def test_snapshots_on_the_running_loop() -> None:
    """`async with` would have none."""

    async def main() -> None:
        async with odradek.Broker() as broker:
            await broker.produce_async("orders", "spool")
            snapshot = await broker.snapshot_async()
        async with odradek.Broker.from_snapshot(snapshot) as fork:
            assert len(await fork.records_async("orders")) == 1

    asyncio.run(main())
