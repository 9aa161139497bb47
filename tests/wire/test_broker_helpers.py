"""What `odradek.Broker` tells of a real client's group, and keeps for it over a restart."""

from confluent_kafka import Consumer

import odradek


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
            message = consumer.poll(30)
            assert message is not None
            assert message.value() == b"one"
            consumer.commit(message=message, asynchronous=False)
            assert broker.lag("billing") == {("orders", 0): 2}
            assert broker.groups() == {"billing": "Stable"}
            broker.restart()
            assert broker.lag("billing") == {("orders", 0): 2}
            again = consumer.poll(30)
            while again is not None and again.error() is not None:
                again = consumer.poll(30)
            assert again is not None
            assert again.value() == b"two"
        finally:
            consumer.close()
