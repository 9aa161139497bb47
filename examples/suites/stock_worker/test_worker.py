"""The worker against a real Kafka: what is booked, what is rejected, what a restart repeats."""

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from worker import DEAD_LETTERS, GROUP, MOVES, SCHEMA, Command

PATIENCE_S = 60


@pytest.fixture(autouse=True)
def topics(kafka_bootstrap_servers: str) -> Iterator[None]:
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap_servers})
    wanted = [NewTopic(MOVES, 1, 1), NewTopic(DEAD_LETTERS, 1, 1)]
    for created in admin.create_topics(wanted).values():
        created.result(PATIENCE_S)
    yield
    for deleted in admin.delete_consumer_groups([GROUP]).values():
        deleted.result(PATIENCE_S)
    for gone in admin.delete_topics([MOVES, DEAD_LETTERS]).values():
        gone.result(PATIENCE_S)


@pytest.fixture
def database(tmp_path: Path) -> str:
    path = str(tmp_path / "stock.sqlite3")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(SCHEMA)
        connection.execute("insert into article values ('thread', 10)")
    return path


@contextmanager
def working(database: str, servers: str) -> Iterator[Command]:
    command = Command(database, servers)
    thread = threading.Thread(target=command.handle)
    thread.start()
    try:
        yield command
    finally:
        command.stopping = True
        thread.join()


def send(servers: str, *moves: dict[str, object] | bytes) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for move in moves:
        body = move if isinstance(move, bytes) else json.dumps(move).encode()
        producer.produce(MOVES, body, "thread")
    assert producer.flush(PATIENCE_S) == 0


def left(database: str) -> int:
    with closing(sqlite3.connect(database)) as connection:
        [(count,)] = connection.execute("select count from article where name = 'thread'")
        return int(count)


def committed(servers: str) -> int:
    with closing(Consumer({"bootstrap.servers": servers, "group.id": GROUP})) as consumer:
        [found] = consumer.committed([TopicPartition(MOVES, 0)], timeout=PATIENCE_S)
        return int(found.offset)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def dead_letter(servers: str) -> Message:
    settings = {"bootstrap.servers": servers, "group.id": "test", "auto.offset.reset": "earliest"}
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(DEAD_LETTERS, 0, 0)])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None
        return message


def test_moves_are_booked_once(database: str, kafka_bootstrap_servers: str) -> None:
    move = {"id": "1", "article": "thread", "count": 3}
    with working(database, kafka_bootstrap_servers):
        send(kafka_bootstrap_servers, move, move, {"id": "2", "article": "thread", "count": 1})
        until(lambda: committed(kafka_bootstrap_servers) == 3)
    assert left(database) == 6


def test_what_cannot_be_booked_goes_to_the_dead_letters(
    database: str, kafka_bootstrap_servers: str
) -> None:
    with working(database, kafka_bootstrap_servers):
        send(kafka_bootstrap_servers, b"no json", {"id": "3", "article": "thread", "count": 2})
        until(lambda: committed(kafka_bootstrap_servers) == 2)
    assert left(database) == 8
    message = dead_letter(kafka_bootstrap_servers)
    assert message.value() == b"no json"
    headers = message.headers()
    assert headers is not None
    assert "JSONDecodeError" in dict(headers)["reason"].decode()


def test_a_new_worker_goes_on_where_the_old_one_was(
    database: str, kafka_bootstrap_servers: str
) -> None:
    with working(database, kafka_bootstrap_servers):
        send(kafka_bootstrap_servers, {"id": "4", "article": "thread", "count": 1})
        until(lambda: committed(kafka_bootstrap_servers) == 1)
    send(kafka_bootstrap_servers, {"id": "5", "article": "thread", "count": 1})
    with working(database, kafka_bootstrap_servers):
        until(lambda: committed(kafka_bootstrap_servers) == 2)
    assert left(database) == 8
