"""A transactional producer of somebody else's library, and the history that it makes.

Each transaction writes its number to every partition and commits it as the offset of a group. It is
noted how it ended, as far as the producer was told. In the end a committed one has to be whole, an
aborted one to be nowhere, one of unknown outcome to be one of the two; the group's offset has to be
the number of the last that was committed. Somebody reads what is committed all the while: nothing
may have been shown that is not there in the end, or twice, and the group's offset never goes back.
"""

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from typing import Final

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from tests.system.cluster.polling import PATIENCE_S, until

PACE_S = 0.05
ABORTED_EVERY = 4
CALL_S = 30
GRACE_S = 10
# librdkafka waits for ever for a group's coordinator that has left the cluster (its issue 5511,
# `send_offsets_to_transaction` does not come back), unless the state of some connection changes:
# then it asks for the coordinator anew. Connections that are idle are closed, and change so.
ASKS_ANEW = {"connections.max.idle.ms": 2_000}
# An abort of librdkafka's (2.16) gives up the records that are not acknowledged, and the ones after
# get their sequence numbers again, under the same epoch. Where the broker has such a record it
# takes the next one for a retry and answers with the old one's offset, as Apache Kafka does: that
# is lost, and its transaction is committed without it. A producer that has given something up is
# not asked for more; the next one has another epoch.


class TransactionHistory:
    """How transactions have ended, by number."""

    def __init__(self) -> None:
        self.committed: Final[list[int]] = []
        self.aborted: Final[list[int]] = []
        self.unknown: Final[list[int]] = []
        self.shown: Final[dict[int, list[int]]] = {}
        self.broken: Final[list[str]] = []

    def findings(self, log: dict[int, list[int]], offset: int) -> list[str]:
        """The faults, given the numbers that are committed in each partition, in their order, and
        the group's offset."""
        return [
            *self.broken,
            *(f"twice or out of order: {each}" for each in log.items() if not _rises(each[1])),
            *(f"transaction {each}" for each in self._torn(log)),
            *(f"shown before: {each}" for each in self._shown_otherwise(log)),
            *self._lost_offset(log, offset),
        ]

    def _torn(self, log: dict[int, list[int]]) -> Iterator[str]:
        there = [set(numbers) for numbers in log.values()]
        for number in self.committed:
            if not all(number in numbers for numbers in there):
                yield f"{number} was committed, and is not whole"
        for number in self.aborted:
            if any(number in numbers for numbers in there):
                yield f"{number} was aborted, and is there"
        for number in self.unknown:
            if len({number in numbers for numbers in there}) != 1:
                yield f"{number} is there in part"

    def _shown_otherwise(self, log: dict[int, list[int]]) -> Iterator[str]:
        """A reader meets what is committed, in its order, and nothing else; it may go on."""
        for partition, numbers in self.shown.items():
            if numbers != log[partition][: len(numbers)]:
                yield f"{numbers} of {log[partition]} in partition {partition}"

    def _lost_offset(self, log: dict[int, list[int]], offset: int) -> Iterator[str]:
        last = max((number for numbers in log.values() for number in numbers), default=-1)
        if offset != last:
            yield f"a group is at {offset}, the last transaction that counts is {last}"


def _rises(numbers: list[int]) -> bool:
    return all(one < next_ for one, next_ in itertools.pairwise(numbers))


class TransactionalLoad:
    """One transaction after another, on a thread, until `finish`."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self.history: Final = TransactionHistory()
        self._servers: Final = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
        self._topic: Final = topic
        self._group: Final = f"group of {topic}"
        self._partitions: Final = partitions
        self._member: Final = Consumer({**self._servers, "group.id": self._group})
        self._number = -1
        self._current: Producer | None = None
        self._is_spent = False
        self._stops: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._run, daemon=True)
        self._reader: Final = threading.Thread(target=self._watch, daemon=True)
        self._has_ended: Final = threading.Event()
        self._last_offset = OFFSET_INVALID

    def start(self) -> None:
        self._thread.start()
        self._reader.start()

    def stop(self) -> None:
        self._stops.set()

    def await_progress(self) -> None:
        """Returns when another transaction has been committed."""
        before = len(self.history.committed)

        def has_come() -> bool:
            assert not self.history.broken, self.history.broken
            return len(self.history.committed) > before

        until(has_come, "a transaction is committed")

    def finish(self) -> None:
        """Returns when the last one has ended, one way or the other: librdkafka may wait for a
        coordinator that is gone for far longer than it was told. The next producer of the id
        settles what is open."""
        self.stop()
        self._thread.join(GRACE_S)
        self._producer()
        self._thread.join(GRACE_S / 2)
        if self._thread.is_alive():
            self.history.unknown.append(self._number)
        self._has_ended.set()
        self._reader.join(PATIENCE_S)
        assert not self._reader.is_alive(), "the reader of what is committed does not end"

    def findings(self) -> list[str]:
        """The faults in the end."""
        return self.history.findings(self._read(), self._offset())

    def go_on(self) -> None:
        """Takes one more transaction to its end, with another producer where the one before is
        spent."""
        if self._current is None or self._is_spent:
            self._current, self._is_spent = self._producer(), False
        self._number += 1
        if not self._transact(self._current, self._number):
            self.history.unknown.append(self._number)
            self._is_spent = True

    def _producer(self) -> Producer:
        producer = Producer(
            {
                **self._servers,
                "transactional.id": self._topic,
                "transaction.timeout.ms": 30_000,
                "socket.timeout.ms": 3_000,
                "request.timeout.ms": 2_000,
                "reconnect.backoff.max.ms": 200,
                **ASKS_ANEW,
            }
        )
        self._retried(lambda: producer.init_transactions(CALL_S))
        return producer

    def _run(self) -> None:
        try:
            while not self._stops.wait(PACE_S):
                self.go_on()
        except Exception as error:  # noqa: BLE001 - told with the findings
            self.history.broken.append(f"transactions ended: {error!r}")

    def _transact(self, producer: Producer, number: int) -> bool:
        """One transaction; False where nobody knows how it has ended."""
        commits = number % ABORTED_EVERY != ABORTED_EVERY - 1
        try:
            producer.begin_transaction()
            for partition in range(self._partitions):
                producer.produce(
                    self._topic, str(number), partition=partition, on_delivery=self._on_delivery
                )
            offsets = [TopicPartition(self._topic, 0, number)]
            group = self._member.consumer_group_metadata()
            self._retried(lambda: producer.send_offsets_to_transaction(offsets, group, CALL_S))
            if commits:
                self._retried(lambda: producer.commit_transaction(CALL_S))
                self.history.committed.append(number)
                return True
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                return False
        try:
            self._retried(lambda: producer.abort_transaction(CALL_S))
        except KafkaException:
            return False
        self.history.aborted.append(number)
        return True

    def _on_delivery(self, error: KafkaError | None, _: object) -> None:
        self._is_spent |= error is not None

    def _retried(self, call: object) -> None:
        """librdkafka says of an error whether the same call may be made again."""
        deadline, pause = time.monotonic() + PATIENCE_S, threading.Event()
        while True:
            try:
                call()  # type: ignore[operator]
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
                pause.wait(2 * PACE_S)
            else:
                return

    def _consumer(self, **settings: object) -> Consumer:
        """One of what is committed, that begins at the start of every partition."""
        consumer = Consumer(
            {
                **self._servers,
                "group.id": self._group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                **settings,
            }
        )
        consumer.assign([TopicPartition(self._topic, each, 0) for each in range(self._partitions)])
        return consumer

    def _watch(self) -> None:
        """Reads what is committed, and the group's offset, while transactions go on."""
        shown = self.history.shown
        shown.update((each, []) for each in range(self._partitions))
        try:
            with contextlib.closing(self._consumer()) as consumer:
                while not self._is_read():
                    for message in consumer.consume(100, 0.2):
                        if message.error() is None:
                            shown[message.partition()].append(int(message.value()))
                    self._look_at_offset(consumer)
        except Exception as error:  # noqa: BLE001 - told with the findings
            self.history.broken.append(f"reading what is committed ended: {error!r}")

    def _is_read(self) -> bool:
        """Whether the reader has come to the last transaction."""
        last = self.history.committed[-1:]
        shown = self.history.shown.values()
        return self._has_ended.is_set() and all(numbers[-1:] >= last for numbers in shown)

    def _look_at_offset(self, consumer: Consumer) -> None:
        # Whoever coordinates may be away; then it is for the next time.
        with contextlib.suppress(KafkaException):
            (found,) = consumer.committed([TopicPartition(self._topic, 0)], 1)
            if found.error is None:
                if found.offset < self._last_offset:
                    self.history.broken.append(f"a group went back: {self._last_offset}, {found}")
                self._last_offset = found.offset

    def _read(self) -> dict[int, list[int]]:
        """The numbers in each partition that a consumer of what is committed is given."""
        consumer = self._consumer(**{"enable.partition.eof": True})
        log: dict[int, list[int]] = {each: [] for each in range(self._partitions)}
        ended: set[int] = set()

        def is_whole() -> bool:
            for message in consumer.consume(1_000, 0.2):
                partition = message.partition()
                if message.error() is None:
                    log[partition].append(int(message.value()))
                else:
                    ended.add(partition)
            return len(ended) == self._partitions

        with contextlib.closing(consumer):
            until(is_whole, f"{self._topic} can be read to its end")
        return log

    def _offset(self) -> int:
        admin = AdminClient(self._servers)
        asked = [ConsumerGroupTopicPartitions(self._group, [TopicPartition(self._topic, 0)])]
        found = admin.list_consumer_group_offsets(asked, require_stable=True)[self._group]
        return int(found.result(PATIENCE_S).topic_partitions[0].offset)
