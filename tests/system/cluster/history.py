"""Producers and consumers of other people's libraries, and the history that they make.

Every record has a value of its own. What a producer was told and what a consumer has read is
noted, and compared with what is in the log in the end: nothing acknowledged is missing or
elsewhere, nothing is there twice, a producer's records stand in its order, two different records
were never acknowledged for one offset, what was once read stays what it was, and a group is never
behind what it was told that it has committed. For transactions see `transactions`.
"""

import contextlib
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from kafka.producer.future import RecordMetadata
from tests.system.cluster.polling import PATIENCE_S, until
from tests.system.cluster.transactions import TransactionalLoad

PACE_S = 0.005
MESSAGE_TIMEOUT_MS = 120_000


UNKNOWN = -1


class Place(NamedTuple):
    """Where a record is. librdkafka does not know of every acknowledged record at which offset:
    an answer to a later one is good for all before it."""

    partition: int
    offset: int


class History:
    """The records that were acknowledged and read, by value and by place. Several threads write to
    it."""

    def __init__(self, partitions: int) -> None:
        self.partitions: Final = partitions
        self.acknowledged: Final[dict[str, Place]] = {}
        self.failed: Final[list[str]] = []
        self.seen: Final[dict[Place, str]] = {}
        self.read: Final[list[Place]] = []
        self.committed: Final[dict[int, int]] = {}
        self.broken: Final[list[str]] = []
        self._counts: Final[Counter[tuple[str, int]]] = Counter()
        self._lock: Final = threading.Lock()

    def note_seen(self, place: Place, value: str) -> None:
        """Somebody has read this there."""
        before = self.seen.setdefault(place, value)
        if before != value:
            self.broken.append(f"read {value} at {place}, where {before} was")

    def note_acknowledged(self, value: str, place: Place) -> None:
        """A producer was told that this is there."""
        with self._lock:
            self.acknowledged[value] = place
            self._counts[_writer(value), place.partition] += 1

    def counts(self) -> Counter[tuple[str, int]]:
        """How many records of each producer are acknowledged in each partition."""
        with self._lock:
            return self._counts.copy()

    def findings(self, log: dict[int, dict[int, str]], offsets: dict[int, int]) -> list[str]:
        """The faults, given the values in the log by partition and offset, the offsets that the
        group has in the end, and readers that have come to its end."""
        return [
            *self.broken,
            *(f"lost or elsewhere: {each}" for each in self._lost(log)),
            *(f"there twice: {each}" for each in _doubled(log)),
            *(f"out of order: {each}" for each in _reordered(log)),
            *(f"acknowledged for one offset: {each}" for each in self._disputed()),
            *(f"read, and another now: {each}" for each in self._changed(log)),
            *(f"passed over or gone back: {each}" for each in self._read_otherwise(log)),
            *(f"a group has lost its offset: {each}" for each in self._forgotten(offsets)),
        ]

    def _lost(self, log: dict[int, dict[int, str]]) -> Iterator[str]:
        there = {partition: set(records.values()) for partition, records in log.items()}
        for value, place in self.acknowledged.items():
            found = log[place.partition].get(place.offset)
            if found != value and (place.offset != UNKNOWN or value not in there[place.partition]):
                yield f"{value} at {place}"

    def _disputed(self) -> Iterator[str]:
        values: dict[Place, str] = {}
        for value, place in self.acknowledged.items():
            if place.offset != UNKNOWN and values.setdefault(place, value) != value:
                yield f"{value} and {values[place]} at {place}"

    def _changed(self, log: dict[int, dict[int, str]]) -> Iterator[str]:
        for place, value in self.seen.items():
            if log[place.partition].get(place.offset) != value:
                yield f"{value} at {place}"

    def _read_otherwise(self, log: dict[int, dict[int, str]]) -> Iterator[str]:
        """A reader of everything from the start meets every offset once, in order."""
        for partition, records in log.items():
            read = [place.offset for place in self.read if place.partition == partition]
            if read != sorted(records):
                yield f"partition {partition} of {len(records)} records was read as {read}"

    def _forgotten(self, offsets: dict[int, int]) -> Iterator[str]:
        for partition, committed in self.committed.items():
            if offsets[partition] < committed:
                yield f"{offsets[partition]} of partition {partition}, where it was at {committed}"


def _writer(value: str) -> str:
    return value.partition(":")[0]


def _doubled(log: dict[int, dict[int, str]]) -> list[str]:
    values = Counter(value for records in log.values() for value in records.values())
    return [value for value, count in values.items() if count > 1]


def _reordered(log: dict[int, dict[int, str]]) -> Iterator[str]:
    for partition, records in log.items():
        last: dict[str, int] = {}
        for offset in sorted(records):
            writer, _, number = records[offset].partition(":")
            if int(number) < last.get(writer, -1):
                yield f"{records[offset]} at {Place(partition, offset)}"
            last[writer] = int(number)


class Load:
    """Two producers and two consumers on one topic, each on a thread of its own, until `finish`.

    The producers are idempotent and write with acks=all, to every partition in turn.
    """

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self.history: Final = History(partitions)
        self._group: Final = f"group of {topic}"
        self._bootstrap_servers: Final = bootstrap_servers
        self.topic: Final = topic
        self._partitions: Final = partitions
        self._stops_writing: Final = threading.Event()
        self._ends: dict[int, int] | None = None
        self._writers: Final = self._threads(self._write_confluent, self._write_kafka_python)
        self._readers: Final = self._threads(self._read_confluent, self._read_kafka_python)

    def _threads(self, *bodies: Callable[[], None]) -> list[threading.Thread]:
        def guarded(body: Callable[[], None]) -> None:
            try:
                body()
            except Exception as error:  # noqa: BLE001 - told with the findings
                self.history.broken.append(f"{body.__name__} ended: {error!r}")

        return [threading.Thread(target=guarded, args=(body,), daemon=True) for body in bodies]

    def start(self) -> None:
        for thread in (*self._writers, *self._readers):
            thread.start()

    def stop(self) -> None:
        """Writes no more."""
        self._stops_writing.set()

    def findings(self, log: dict[int, dict[int, str]]) -> list[str]:
        """The faults in the end, given the values in the log by partition and offset."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap_servers})
        places = [TopicPartition(self.topic, partition) for partition in log]
        asked = [ConsumerGroupTopicPartitions(self._group, places)]
        found = admin.list_consumer_group_offsets(asked)[self._group].result(PATIENCE_S)
        offsets = {each.partition: each.offset for each in found.topic_partitions}
        return self.history.findings(log, offsets)

    def await_progress(self, records: int = 5) -> None:
        """Returns when every producer has had so many more acknowledged in every partition."""
        before = self.history.counts()
        streams = list(itertools.product(("confluent", "kafkapython"), range(self._partitions)))

        def has_come() -> bool:
            now = self.history.counts()
            broken = self.history.broken
            assert not broken, broken
            return all(now[stream] >= before[stream] + records for stream in streams)

        until(has_come, "every producer goes on in every partition")

    def finish_writing(self) -> None:
        """Returns when everything that was sent is acknowledged or failed."""
        self.stop()
        self._join(self._writers)

    def finish_reading(self, ends: dict[int, int]) -> None:
        """Returns when the readers have come to these ends."""
        self._ends = ends
        self._join(self._readers)

    def _join(self, threads: list[threading.Thread]) -> None:
        for thread in threads:
            thread.join(PATIENCE_S + MESSAGE_TIMEOUT_MS / 1000)
            assert not thread.is_alive(), (
                f"{thread.name} does not come to an end: {self.history.read[-1:]}, of {self._ends}"
            )

    def _values(self, writer: str) -> Iterator[tuple[int, str]]:
        for number in itertools.count():
            if self._stops_writing.wait(PACE_S):
                return
            yield number % self._partitions, f"{writer}:{number}"

    def _write_confluent(self) -> None:
        history = self.history

        def delivered(error: object, message: Message) -> None:
            value = message.value().decode()
            if error is not None:
                history.failed.append(f"{value}: {error}")
            else:
                offset = message.offset()
                place = Place(message.partition(), UNKNOWN if offset is None else offset)
                history.note_acknowledged(value, place)

        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap_servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "message.timeout.ms": MESSAGE_TIMEOUT_MS,
                "request.timeout.ms": 2_000,
                "socket.timeout.ms": 3_000,
                "topic.metadata.refresh.interval.ms": 500,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        for partition, value in self._values("confluent"):
            producer.produce(self.topic, value, partition=partition, on_delivery=delivered)
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0, "not everything was answered"

    def _write_kafka_python(self) -> None:
        history = self.history
        producer = KafkaProducer(
            bootstrap_servers=self._bootstrap_servers.split(","),
            enable_idempotence=True,
            acks="all",
            linger_ms=1,
            retry_backoff_ms=50,
            delivery_timeout_ms=MESSAGE_TIMEOUT_MS,
            request_timeout_ms=2_000,
            metadata_max_age_ms=1_000,
            reconnect_backoff_max_ms=200,
        )

        def on_sent(value: str, metadata: RecordMetadata) -> None:
            history.note_acknowledged(value, Place(metadata.partition, metadata.offset))

        def on_failed(value: str, error: object) -> None:
            history.failed.append(f"{value}: {error!r}")

        for partition, value in self._values("kafkapython"):
            sent = producer.send(self.topic, value.encode(), partition=partition)
            sent.add_callback(on_sent, value)
            sent.add_errback(on_failed, value)
        producer.flush(PATIENCE_S)
        producer.close()

    def _is_read(self, positions: dict[int, int]) -> bool:
        ends = self._ends
        return ends is not None and all(
            positions.get(partition, 0) >= end for partition, end in ends.items()
        )

    def _read_confluent(self) -> None:
        history = self.history
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap_servers,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "topic.metadata.refresh.interval.ms": 500,
                "socket.timeout.ms": 3_000,
                "reconnect.backoff.max.ms": 200,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(self.topic, each, 0) for each in range(self._partitions)])
        positions: dict[int, int] = {}
        while not self._is_read(positions):
            for message in consumer.consume(500, 0.1):
                if message.error() is None:
                    place = Place(message.partition(), message.offset())
                    history.note_seen(place, message.value().decode())
                    history.read.append(place)
                    positions[place.partition] = place.offset + 1
        consumer.close()

    def _read_kafka_python(self) -> None:
        """A member of a group: it may begin again where it has committed, and not before."""
        consumer = KafkaConsumer(
            self.topic,
            bootstrap_servers=self._bootstrap_servers.split(","),
            group_id=self._group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            metadata_max_age_ms=1_000,
            request_timeout_ms=11_000,
            reconnect_backoff_max_ms=200,
            fetch_max_wait_ms=100,
        )
        positions: dict[int, int] = {}
        committed = self.history.committed
        while not self._is_read(positions):
            for batch in consumer.poll(timeout_ms=100).values():
                for record in batch:
                    place = Place(record.partition, record.offset)
                    if place.offset < committed.get(place.partition, 0):
                        self.history.broken.append(f"gone back: a group at {place} has committed")
                    self.history.note_seen(place, record.value.decode())
                    positions[place.partition] = place.offset + 1
            # Whoever coordinates may be away; then it is for the next time.
            with contextlib.suppress(KafkaError):
                consumer.commit(timeout_ms=3_000)
                committed.update(positions)
        consumer.close()


L = TypeVar("L", Load, TransactionalLoad)


@contextlib.contextmanager
def running(load: L) -> Iterator[L]:
    """Ends its threads in any case."""
    load.start()
    try:
        yield load
    finally:
        load.stop()


def read_log(bootstrap_servers: str, topic: str, partitions: int) -> dict[int, dict[int, str]]:
    """The records that a fresh consumer finds in the log, by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }
    )
    places = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
    ends = {each.partition: consumer.get_watermark_offsets(each, PATIENCE_S)[1] for each in places}
    consumer.assign(places)
    log: dict[int, dict[int, str]] = {partition: {} for partition in range(partitions)}

    def is_whole() -> bool:
        for message in consumer.consume(1_000, 0.2):
            if message.error() is None:
                log[message.partition()][message.offset()] = message.value().decode()
        return all(len(log[partition]) >= end for partition, end in ends.items())

    try:
        until(is_whole, f"{topic} can be read up to {ends}")
    finally:
        consumer.close()
    return log
