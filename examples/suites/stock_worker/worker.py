"""A worker in the manner of a Django management command: books what leaves the stock.

Each message is handled in a database transaction; its offset is committed afterwards. What cannot
be booked goes to a topic of dead letters, with the reason in a header.
"""

import json
import sqlite3
from typing import Any

from confluent_kafka import Consumer, Message, Producer

MOVES = "stock.moves"
DEAD_LETTERS = "stock.moves.dead"
GROUP = "stock-worker"

SCHEMA = """
create table if not exists article (name text primary key, count integer not null);
create table if not exists booked (move_id text primary key);
"""


class Rejected(Exception):
    """A move that can never be booked."""


class Command:
    """`manage.py book_moves`, without Django around it."""

    help = "Books what leaves the stock until it is told to stop."

    def __init__(self, database: str, servers: str) -> None:
        self.database = sqlite3.connect(database, check_same_thread=False)
        self.database.executescript(SCHEMA)
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self.producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        self.stopping = False

    def handle(self, *_args: Any, **_options: Any) -> None:
        self.consumer.subscribe([MOVES])
        try:
            while not self.stopping:
                message = self.consumer.poll(0.1)
                if message is not None and message.error() is None:
                    self.handle_message(message)
        finally:
            self.consumer.close()
            self.database.close()

    def handle_message(self, message: Message) -> None:
        try:
            with self.database:
                self.book(json.loads(message.value() or b""))
        except (Rejected, ValueError, KeyError) as reason:
            self.producer.produce(
                DEAD_LETTERS,
                message.value(),
                message.key(),
                headers=[("reason", repr(reason).encode())],
            )
            if self.producer.flush(60):
                raise RuntimeError("the dead letter was not delivered") from reason
        self.consumer.commit(message=message, asynchronous=False)

    def book(self, move: dict[str, Any]) -> None:
        done = self.database.execute(
            "insert or ignore into booked values (?)", (move["id"],)
        ).rowcount
        if not done:
            return  # delivered once more
        changed = self.database.execute(
            "update article set count = count - ? where name = ? and count >= ?",
            (move["count"], move["article"], move["count"]),
        ).rowcount
        if not changed:
            raise Rejected(f"there are not {move['count']} of {move['article']}")
