"""`odradek.Broker` tells of a real client's group, and keeps its offsets over a restart."""

import pytest
from confluent_kafka import Consumer
from tests.deadlines import deadline_s

import odradek
from odradek.errors import BrokerError, ErrorCode


def test_lag_and_a_restart_under_a_connected_client() -> None:
    """A test would read a wrong lag, or its client would not find the broker again."""
    with odradek.Broker() as broker:
        for value in ("one", "two", "three"):
            broker.produce("orders", value)
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        consumer = Consumer(settings)
        try:
            consumer.subscribe(["orders"])
            message = consumer.poll(deadline_s(30))
            assert message is not None
            assert message.value() == b"one"
            consumer.commit(message=message, asynchronous=False)
            assert broker.lag("billing") == {("orders", 0): 2}
            assert broker.groups() == {"billing": "Stable"}
            broker.restart()
            assert broker.lag("billing") == {("orders", 0): 2}
            again = consumer.poll(deadline_s(30))
            while again is not None and again.error() is not None:
                again = consumer.poll(deadline_s(30))
            assert again is not None
            assert again.value() == b"two"
        finally:
            consumer.close()


def test_a_group_is_awaited_and_a_pause_stands_still() -> None:
    """A test would sleep until its consumer has its partitions, or until it is gone."""
    with odradek.Broker() as broker:
        broker.create_topic("orders", partitions=2)
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "group.protocol": "classic",
        }
        consumer = Consumer(settings)
        try:
            consumer.subscribe(["orders"])
            consumer.poll(0)
            group = broker.wait_for_group("billing", members=1, timeout=deadline_s(60))
            [member] = group.members
            assert member.client_id == "rdkafka"
            assert member.partitions == (("orders", 0), ("orders", 1))
            with pytest.raises(BrokerError) as refused:
                broker.reset("billing", "latest")
            assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
            with broker.pause():
                broker.produce("orders", "held back")
                assert consumer.poll(1) is None
            message = consumer.poll(deadline_s(60))
            assert message is not None
            assert message.value() == b"held back"
        finally:
            consumer.close()
        assert broker.wait_for_group("billing", "Empty", timeout=deadline_s(60)).members == ()
