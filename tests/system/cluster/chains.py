"""Chains of our client and of other people's: each carries one topic to another, exactly once.

A chain goes on until it is stopped. Whatever ends one of its lives, such as being fenced or a
broker that is gone, another begins, as a supervisor would have it: with the same transactional id,
from the offsets that the group has committed. What it met is in `met`.
"""

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata
from tests.deadlines import deadline_s
from tests.system.cluster.transactions import ASKS_ANEW

from odradek.client import KafkaError as OurError
from odradek.client import sync

PARTITIONS = 3
FEW = 5
LIFE_S = 30
CALL_S = 10
TRANSACTION_MS = 20_000
END_S = deadline_s(60)

Life = Callable[[str, str, str, threading.Event], None]


def confluent(bootstrap: str, source: str, target: str, stop: threading.Event) -> None:
    """A member of a group that balances, whose consumer is closed whatever happens."""
    own = {"transaction.timeout.ms": TRANSACTION_MS, **ASKS_ANEW}
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": target, **own})
    producer.init_transactions(LIFE_S)
    settings = {"bootstrap.servers": bootstrap, "group.id": target, "enable.auto.commit": False}
    consumer = Consumer(
        {**settings, "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    )
    with contextlib.closing(consumer):
        consumer.subscribe([source])
        while not stop.is_set():
            taken = [each for each in consumer.consume(FEW, 0.2) if each.error() is None]
            if not taken:
                continue
            producer.begin_transaction()
            for each in taken:
                producer.produce(target, each.value(), partition=each.partition())
            places = [
                TopicPartition(source, partition, offset + 1)
                for partition, offset in {each.partition(): each.offset() for each in taken}.items()
            ]
            producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), LIFE_S)
            producer.commit_transaction(LIFE_S)


def kafka_python(bootstrap: str, source: str, target: str, stop: threading.Event) -> None:
    """Its partitions are its own: it has no group to balance."""
    servers = bootstrap.split(",")
    producer = KafkaProducer(
        bootstrap_servers=servers, transactional_id=target, transaction_timeout_ms=TRANSACTION_MS
    )
    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        group_id=target,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=FEW,
    )
    try:
        producer.init_transactions()
        consumer.assign([KafkaTopicPartition(source, each) for each in range(PARTITIONS)])
        while not stop.is_set():
            taken = consumer.poll(timeout_ms=200)
            if not taken:
                continue
            producer.begin_transaction()
            sent = [
                producer.send(target, each.value, partition=each.partition)
                for messages in taken.values()
                for each in messages
            ]
            places = {
                place: OffsetAndMetadata(messages[-1].offset + 1, "", -1)
                for place, messages in taken.items()
            }
            in_time(producer.send_offsets_to_transaction, places, target)
            producer.flush(LIFE_S)
            for each in sent:
                each.get(LIFE_S)
            in_time(producer.commit_transaction)
    finally:
        consumer.close()
        producer.close(1)


def in_time(call: Callable[..., None], *arguments: object) -> None:
    """Calls, and goes on without an answer that takes too long. kafka-python's transactional calls
    wait for ever once a TxnOffsetCommit was answered with any error: its own code raises then,
    where nobody looks (`errors.CoordinatorNotAvailableError`, of a dict, in 2.3.3).

    Raises:
        TimeoutError: it is not over yet.
    """
    raised: list[KafkaError] = []

    def run() -> None:
        try:
            call(*arguments)
        except KafkaError as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(CALL_S)
    if thread.is_alive():
        raise TimeoutError(f"{call} is not over")
    for error in raised:
        raise error


def aiokafka(bootstrap: str, source: str, target: str, stop: threading.Event) -> None:
    """The same on an event loop, in a group."""

    async def live() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=target,
            transaction_timeout_ms=TRANSACTION_MS,
        )
        consumer = AIOKafkaConsumer(
            source,
            bootstrap_servers=bootstrap,
            group_id=target,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        try:
            await producer.start()
            await consumer.start()
            while not stop.is_set():
                taken = await consumer.getmany(timeout_ms=200, max_records=FEW)
                if taken:
                    await asyncio.wait_for(carry(producer, taken), LIFE_S)
        finally:
            for each in (consumer, producer):
                with contextlib.suppress(AioKafkaError, TimeoutError):
                    await asyncio.wait_for(each.stop(), 5)

    async def carry(producer: AIOKafkaProducer, taken: dict) -> None:
        await producer.begin_transaction()
        for place, messages in taken.items():
            for each in messages:
                await producer.send_and_wait(target, each.value, partition=place.partition)
        places = {place: messages[-1].offset + 1 for place, messages in taken.items()}
        await producer.send_offsets_to_transaction(places, target)
        await producer.commit_transaction()

    asyncio.run(live())


def odradek(bootstrap: str, source: str, target: str, stop: threading.Event) -> None:
    """Ours, which blocks."""
    with (
        sync.Producer(
            bootstrap, transactional_id=target, transaction_timeout_ms=TRANSACTION_MS
        ) as producer,
        sync.Consumer(
            bootstrap,
            group_id=target,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_poll_records=FEW,
        ) as consumer,
    ):
        producer.init_transactions()
        consumer.subscribe([source])
        while not stop.is_set():
            taken = consumer.poll(timeout_ms=200)
            if not taken:
                continue
            with producer.transaction():
                for place, records in taken.items():
                    for each in records:
                        producer.send(target, each.value, partition=place.partition)
                places = {place: records[-1].offset + 1 for place, records in taken.items()}
                producer.send_offsets_to_transaction(places, consumer.group_metadata())


CLIENTS: dict[str, Life] = {
    "odradek": odradek,
    "confluent": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}
_ERRORS = (KafkaException, KafkaError, AioKafkaError, OurError, TimeoutError)
# What no fault explains: the broker and the client do not agree on the state of a transaction.
NEVER_MET = re.compile("INVALID_TXN_STATE|InvalidTxnState|OUT_OF_ORDER_SEQ|OutOfOrderSeq")
# What a producer is told of which a newer one has taken the place, or whose transaction was aborted
# as too old.
FENCED = re.compile("FENCED|Fenced|INVALID_PRODUCER_EPOCH|InvalidProducerEpoch")


class Chain:
    """One chain of a client of Python, in a thread."""

    def __init__(self, name: str, bootstrap: str, source: str, target: str) -> None:
        self.name = name
        self.met: list[str] = []
        self._stop = threading.Event()
        self._arguments = (bootstrap, source, target, self._stop)
        self._thread = threading.Thread(target=self._live, name=f"chain of {name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _live(self) -> None:
        while not self._stop.is_set():
            try:
                CLIENTS[self.name](*self._arguments)
            except _ERRORS as error:
                self.met.append(repr(error))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(END_S)
        frame = sys._current_frames().get(self._thread.ident or 0)
        where = "".join(traceback.format_stack(frame)[-6:])
        assert not self._thread.is_alive(), f"the chain of {self.name} does not end:\n{where}"


class ProgramChain:
    """One chain of a program, which ends when its input is closed."""

    def __init__(self, target: str, command: list[str], home: Path) -> None:
        self.met: list[str] = []
        self._command = command
        self._log = home / f"{target}.out"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("wb") as out:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT
            )

    def stop(self) -> None:
        process = self._process
        assert process is not None, "it was started"
        assert process.stdin is not None, "it was given an input"
        process.stdin.close()
        try:
            status = process.wait(END_S)
        finally:
            process.kill()
            process.wait()
        self.met = self._log.read_text().splitlines()
        assert status == 0, self.met


def met_without_reason(met: list[str], faults: int) -> list[str]:
    """The errors a client met that so many faults do not explain: each may keep the transaction of
    one producer open for longer than it may be."""
    fenced = [each for each in met if FENCED.search(each)]
    return [each for each in met if NEVER_MET.search(each)] + fenced[faults:]


def java_command(jars: list[Path], java: str, javac: str, home: Path, *arguments: str) -> list[str]:
    """Compiles `TransactionalChain.java`; how it is begun."""
    (home / "log4j2.properties").write_text("rootLogger.level = OFF\n", encoding="utf-8")
    path = os.pathsep.join([str(home), *map(str, jars)])
    source = Path(__file__).parents[2] / "wire" / "java" / "TransactionalChain.java"
    compile_it = [javac, "-cp", path, "-d", str(home), str(source)]
    subprocess.run(compile_it, check=True, timeout=deadline_s(120))
    return [java, "-Xmx128m", "-cp", path, source.stem, *arguments]


@contextlib.contextmanager
def running(*chains: Chain | ProgramChain) -> Iterator[None]:
    """Runs the chains, and ends them all."""
    with contextlib.ExitStack() as ends:
        for each in chains:
            each.start()
            ends.callback(each.stop)
        yield


class Carried:
    """The records that readers of committed records find in a topic, as they come."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.values: list[int] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self._consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])

    def look(self) -> int:
        """How many different values there are by now."""
        for each in self._consumer.consume(500, 0.1):
            if each.error() is None:
                self.values.append(int(each.value()))
        return len(set(self.values))

    def close(self) -> None:
        self._consumer.close()
