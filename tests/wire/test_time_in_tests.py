"""A real client against a broker whose time only the test moves."""

import time

from confluent_kafka import Consumer, Producer

import odradek

TODAY_MS = 24 * 3600 * 1000


def test_a_client_produces_and_consumes_on_a_clock_that_stands() -> None:
    """A manual clock that begins in the past has every record of every client refused: its
    timestamp is in the broker's future."""
    clock = odradek.ManualClock()
    assert abs(clock.wall_ms() - time.time_ns() // 1_000_000) < TODAY_MS
    refused: list[object] = []
    with odradek.Broker(clock=clock) as broker:
        broker.create_topic("orders")
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("orders", b"spool", on_delivery=lambda error, _: refused.append(error))
        assert producer.flush(30) == 0
        assert refused == [None]
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer(settings)
        try:
            consumer.subscribe(["orders"])
            message = consumer.poll(30)
            assert message is not None
            assert (message.error(), message.value()) == (None, b"spool")
        finally:
            consumer.close()
