"""Faults on command: what is mistyped, whom they concern, and that nothing is left of them."""

import asyncio

import pytest

import odradek
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.dispatcher import Dispatcher


def handler_of(broker: odradek.Broker) -> object:
    [listener] = broker._running().sockets._listeners
    return listener._context.handler


def test_all_faults_are_found_in_one_place() -> None:
    """Their names are what the documents and other people's checks say."""
    with odradek.Broker() as broker:
        faults = broker.faults
        put = [
            faults.refuse("Produce", "NOT_LEADER_OR_FOLLOWER", times=2),
            faults.delay(5, "Fetch"),
            faults.drop("Fetch"),
            faults.cut("Fetch"),
            faults.disk_full(),
            faults.slow_disk(5),
        ]
        assert broker.faults() == tuple(put)
        with faults.refuse("Fetch", "UNKNOWN_SERVER_ERROR") as one:
            assert one in broker.faults()
        assert one not in broker.faults()


def test_a_mistyped_name_is_an_error_that_names_the_likely_one() -> None:
    """A fault that is meant for no request would never strike, and the test would pass."""
    with odradek.Broker() as broker:
        with pytest.raises(ValueError, match=r"no API called 'Produse' .did you mean Produce"):
            broker.fail("Produse", "NOT_ENOUGH_REPLICAS")
        with pytest.raises(ValueError, match=r"no error called 'SPOOL_LOST'$"):
            broker.fail("Produce", "SPOOL_LOST")
        with pytest.raises(ValueError, match="at least once"):
            broker.drop(times=0)
        with pytest.raises(ValueError, match="at least 0 ms"):
            broker.delay(-1)
        assert broker.faults() == ()


def test_a_fault_is_in_force_until_its_end_and_costs_nothing_after() -> None:
    """A fault would outlive its block, or every request would go the long way for good."""
    with odradek.Broker() as broker:
        assert isinstance(handler_of(broker), Dispatcher)
        with broker.fail("Fetch", ErrorCode.UNKNOWN_SERVER_ERROR, topic="t", client_id="c") as one:
            other = broker.delay(5, ["Produce", "Fetch"], times=3, group="g")
            assert broker.faults() == (one, other)
            assert str(one) == (
                "fail Fetch of topic t from client c with UNKNOWN_SERVER_ERROR (so far 0)"
            )
            assert str(other) == "delay Fetch, Produce of group g by 5 ms, 3 times (so far 0)"
            assert not isinstance(handler_of(broker), Dispatcher)
            broker.restart()
            assert not isinstance(handler_of(broker), Dispatcher)
        assert broker.faults() == (other,)
        broker.end_faults()
        other.end()
        assert isinstance(handler_of(broker), Dispatcher)
        with pytest.raises(TimeoutError, match="has not struck 1 times"):
            broker.wait_for_fault(other, timeout=0)


def test_a_full_disk_takes_no_records_and_has_room_again() -> None:
    """A record refused for want of room would stop the broker, or go on failing afterwards."""
    with odradek.Broker() as broker:
        broker.produce("orders", "before")
        with broker.full_disk() as fault:
            with pytest.raises(BrokerError) as refused:
                broker.produce("orders", "while")
            assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert fault.struck >= 1
            assert [record.value for record in broker.records("orders")] == [b"before"]
        broker.produce("orders", "after")
        assert [record.value for record in broker.records("orders")] == [b"before", b"after"]


def test_faults_on_the_running_loop() -> None:
    """`async with` would have no faults, or wait for itself."""

    async def main() -> None:
        async with odradek.Broker() as broker:
            with broker.drop("Heartbeat") as fault:
                assert broker.faults() == (fault,)
                with pytest.raises(TimeoutError):
                    await broker.wait_for_fault_async(fault, timeout=0)
            assert broker.faults() == ()

    asyncio.run(main())


def test_a_clusters_leader_is_moved() -> None:
    """A test of a new leader would have to kill the old one."""
    with odradek.Cluster(brokers=2) as cluster:
        cluster.create_topic("orders", replication_factor=2)
        cluster.produce("orders", "one")
        before = cluster.leader("orders")
        assert before is not None
        after = cluster.move_leader("orders")
        assert after != before.id
        assert cluster.leader("orders").id == after  # type: ignore[union-attr]
        assert [record.value for record in cluster.wait_for("orders", 1, 60)] == [b"one"]
        with pytest.raises(BrokerError, match="in sync are"):
            cluster.move_leader("orders", to=7)
        assert cluster.move_leader("orders", to=before.id) == before.id
