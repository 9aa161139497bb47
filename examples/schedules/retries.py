"""Retries with back-off, and dead letters: what confluent-kafka needs where the broker can wait.

`orders` is worked on, `orders.later` is a schedule topic with `schedule.target.topic=orders`, and
`orders.dead` has what has failed for good. No consumer sleeps or is held up: a message that fails
is put off, and comes again by itself.
"""

from collections.abc import Callable

from confluent_kafka import Consumer, Message, Producer

DELAYS = ("1m", "10m", "1h", "12h", "6d")


def work_on_one(consumer: Consumer, producer: Producer, handle: Callable[[Message], None]) -> bool:
    """Handles a message, or puts it off; whether there was one."""
    message = consumer.poll(0.2)
    if message is None or message.error() is not None:
        return False
    try:
        handle(message)
    except Exception as error:  # noqa: BLE001 - whatever it is, the others go on
        put_off(producer, message, error)
        producer.flush()
    consumer.commit(message, asynchronous=False)
    return True


def put_off(producer: Producer, message: Message, error: Exception) -> None:
    """Sends a message again, later each time, and in the end where people look."""
    headers = dict(message.headers() or ())
    attempt = int(headers.get("attempt", b"0"))
    headers |= {"attempt": b"%d" % (attempt + 1), "error": str(error).encode()}
    topic = message.topic() + (".later" if attempt < len(DELAYS) else ".dead")
    if attempt < len(DELAYS):
        headers["deliver-after"] = DELAYS[attempt].encode()
    # With its key, an id: a newer failure of the same order would take the place of this one.
    headers["deliver-key"] = message.key()
    producer.produce(topic, message.value(), headers=list(headers.items()))
