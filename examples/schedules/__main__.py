"""A week of retries on a clock that is moved by hand: `python -m examples.schedules`."""

from contextlib import closing
from datetime import UTC, datetime

from confluent_kafka import Consumer, Message, Producer
from examples.schedules.retries import work_on_one

import odradek

MONDAY = datetime(2030, 1, 7, 9, tzinfo=UTC)


def main() -> None:
    """Prints what happens when, and takes no longer than the clients."""
    clock = odradek.ManualClock(wall_ms=int(MONDAY.timestamp()) * 1000)
    with odradek.Broker(clock=clock) as broker:
        broker.create_topic("orders")
        broker.create_topic("orders.later", config={"schedule.target.topic": "orders"})
        broker.create_topic("orders.dead")
        broker.produce("orders", "7 chairs", key="4711")
        broker.produce("orders", "minus one table", key="4712")

        def tell(what: str) -> None:
            moment = datetime.fromtimestamp(clock.wall_ms() / 1000, UTC)
            print(f"{moment:%a %d %H:%M}  {what}")

        def handle(message: Message) -> None:
            order = (message.value() or b"").decode()
            if order.startswith("minus"):
                tell(f"{order}: fails")
                raise ValueError("there is no less than nothing")
            tell(f"{order}: done")

        address = {"bootstrap.servers": broker.bootstrap_servers}
        settings = {"group.id": "workers", "auto.offset.reset": "earliest"}
        settings |= address | {"enable.auto.commit": "false"}
        # Clients end before their broker: librdkafka writes a line about one that goes away.
        with closing(Consumer(settings)) as consumer, Producer(address) as producer:
            consumer.subscribe(["orders"])
            while not broker.records("orders.dead"):
                if not work_on_one(consumer, producer, handle) and _next(broker) is not None:
                    broker.advance_to_next_deadline("ScheduledRecord")
        [dead] = broker.records("orders.dead")
        why = dict(dead.headers)["error"] or b""
        tell(f"{(dead.value or b'').decode()}: given up, {why.decode()}")


def _next(broker: odradek.Broker) -> object:
    return broker.next_deadline("ScheduledRecord")


if __name__ == "__main__":
    main()
