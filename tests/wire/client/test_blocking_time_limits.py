"""The blocking clients before brokers that say nothing: no call waits without end, on whatever
thread, and what it raises names the setting that has ended it.

A call that hangs fails by the test's own time-out. How long each may take is held where the clock
jumps: `tests/simulation/client/test_client_time_limits.py`.
"""

import re
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from tests.deadlines import deadline_s
from tests.wire.client.faults.test_inner_errors import (
    ADMIN,
    CONSUMER,
    PRODUCER,
    SHARE_CONSUMER,
    TRANSACTIONAL,
    Call,
)
from tests.wire.client.test_share_consumer import fill

import odradek
from odradek.client import ConsumerRecord
from odradek.client.errors import ClientClosed, KafkaError, RequestTimedOut, UsageError
from odradek.client.sync import Admin, Consumer, Producer, ShareConsumer

HOURS_MS = 10_000_000
NAMED = re.compile(r"\d+ ms \([a-z.]+\.ms\)")
LIMITS = {
    "request_timeout_ms": 60,
    "socket_connection_setup_timeout_ms": 40,
    "socket_connection_setup_timeout_max_ms": 40,
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 10,
}
OF_PRODUCERS = {**LIMITS, "linger_ms": 0, "delivery_timeout_ms": 120, "max_block_ms": 120}
OF_OTHERS = {**LIMITS, "default_api_timeout_ms": 120}
NEVER_READ = ConsumerRecord("t", 0, 7, 0, 0, None, b"v", None, 0)


@pytest.fixture
def silent() -> Iterator[str]:
    """Accepts, and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=1_000) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def _transaction(producer: Producer) -> None:
    with producer.transaction():
        producer.send("t", b"v")


def _process(consumer: ShareConsumer) -> None:
    with consumer.process(NEVER_READ):
        pass


def _getone(consumer: Consumer) -> None:
    """Waits for a record without end; another thread wakes it."""
    waking = threading.Timer(0.05, consumer.wakeup)
    waking.start()
    try:
        consumer.getone()
    finally:
        waking.join()


# What is written in another way here.
OWN: dict[str, Callable[[Any], Any]] = {
    "transaction": _transaction,
    "process": _process,
    "getone": _getone,
    "poll": lambda c: c.poll(100),
}


def _error_of(call: Callable[[Any], Any], client: Any) -> KafkaError | None:
    try:
        outcome = call(client)
        if isinstance(outcome, Future):
            outcome.result(deadline_s(60))
    except KafkaError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("kind", "calls", "given"),
    [
        (Producer, [*PRODUCER, *TRANSACTIONAL[-2:]], OF_PRODUCERS),
        (Producer, TRANSACTIONAL, {**OF_PRODUCERS, "transactional_id": "x"}),
        (Consumer, [("poll", OWN["poll"]), *CONSUMER], {**OF_OTHERS, "group_id": "g"}),
        (
            Consumer,
            [("poll", OWN["poll"]), *CONSUMER],
            {**OF_OTHERS, "group_id": "g", "group_protocol": "consumer"},
        ),
        (ShareConsumer, [("poll", OWN["poll"]), *SHARE_CONSUMER], {**OF_OTHERS, "group_id": "g"}),
        (Admin, ADMIN, OF_OTHERS),
    ],
)
def test_every_call_ends(silent: str, kind: Any, calls: list[Call], given: Any) -> None:
    client = kind(silent, **given)
    if "group_id" in given:
        client.subscribe(["t"])
        client.read_before = [NEVER_READ, NEVER_READ]
    public = {each for each in dir(kind) if not each.startswith("_")}
    if kind is not Producer or "transactional_id" in given:
        assert public == {name for name, _ in calls}
    for name, call in calls:
        error = _error_of(OWN.get(name, call), client)
        if error is not None and error.retriable:
            assert NAMED.search(str(error)), f"{name} names no setting: {error}"


def test_acknowledgements_that_nobody_takes_are_waited_for_as_the_setting_says(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    with odradek.Broker() as broker:
        run(fill(broker.bootstrap_servers, "t", 2))
        settings = {"group_id": "t", "default_api_timeout_ms": 100}
        consumer = ShareConsumer(broker.bootstrap_servers, topics=["t"], **settings)
        next(consumer)
        with broker.pause():
            with pytest.raises(RequestTimedOut, match=r"100 ms \(default\.api\.timeout\.ms\)"):
                consumer.commit()
            with pytest.raises(RequestTimedOut, match=r"50 ms \(timeout_ms\)"):
                consumer.commit(timeout_ms=50)
            consumer.close(timeout_ms=50)


def test_who_closes_with_less_time_ends_it_for_the_other_thread() -> None:
    """They would wait as long as the first, for hours."""
    with odradek.Broker() as broker:
        broker.create_topic("t")
        producer = Producer(broker.bootstrap_servers, delivery_timeout_ms=HOURS_MS)
        producer.partitions_for("t")
        with broker.pause():
            delivery = producer.send("t", b"never")
            closing = threading.Thread(target=producer.close, daemon=True)
            closing.start()
            while not producer._is_closing:
                time.sleep(0)
            producer.close(timeout_ms=50)
            closing.join(deadline_s(60))
            assert not closing.is_alive()
            assert isinstance(delivery.exception(0), KafkaError)
    with pytest.raises(ClientClosed):
        producer.flush()


def test_the_loops_own_thread_cannot_close_a_client(bootstrap: str, topic: str) -> None:
    """It would wait for itself, and all blocking clients of the process with it."""
    refused: list[UsageError] = []

    def close(*_: object) -> None:
        try:
            producer.close()
        except UsageError as error:
            refused.append(error)

    producer = Producer(bootstrap, on_delivery=close)
    producer.send_and_wait(topic, b"v")
    producer.flush()
    assert len(refused) == 1
    assert producer.send_and_wait(topic, b"w").offset == 1
    producer.close()
    assert len(refused) == 2
