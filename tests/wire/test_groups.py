"""Consumer groups with other people's clients, alone and mixed in one group.

Every member reads with manual commits at the end of each batch and gives partitions back only
after it has committed, so that nothing may be lost or read twice, whatever happens to the group.
"""

import asyncio
import itertools
import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from tools import peers

PARTITIONS = 6
RECORDS = 300
DEADLINE_S = 60

Names = Callable[[str], str]


@pytest.fixture
def filled(bootstrap: str, topic: str) -> str:
    """A topic with records in all partitions."""
    create(bootstrap, topic)
    produce(bootstrap, topic, range(RECORDS))
    return topic


def create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        future.result()


def produce(bootstrap: str, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(30) == 0


class Reader(threading.Thread):
    """A member of a group in a thread of its own; `read` is what it has read and committed."""

    def __init__(self, bootstrap: str, topic: str, group_id: str) -> None:
        super().__init__(daemon=True)
        self.bootstrap = bootstrap
        self.topic = topic
        self.group_id = group_id
        self.read: list[bytes] = []
        self.stopping = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.consume()
        except BaseException as error:  # noqa: BLE001 - raised again where it is looked at
            self.error = error

    def consume(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        self.stopping.set()
        self.join(DEADLINE_S)
        assert not self.is_alive(), f"{type(self).__name__} does not stop"
        if self.error is not None:
            raise self.error


class ConfluentReader(Reader):
    strategy = "range"
    instance_id = ""

    def consume(self) -> None:
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "partition.assignment.strategy": self.strategy,
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 300,
        }
        if self.instance_id:
            settings["group.instance.id"] = self.instance_id
        consumer = Consumer(settings)
        consumer.subscribe([self.topic])
        try:
            while not self.stopping.is_set():
                for message in consumer.consume(50, 0.1):
                    assert not message.error(), message.error()
                    consumer.commit(message, asynchronous=False)
                    self.read.append(message.value())
        finally:
            consumer.close()


class CooperativeReader(ConfluentReader):
    strategy = "cooperative-sticky"


class KafkaPythonReader(Reader):
    def consume(self) -> None:
        consumer = KafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=300,
        )
        try:
            while not self.stopping.is_set():
                batches = consumer.poll(timeout_ms=100)
                if batches:
                    consumer.commit()
                    for batch in batches.values():
                        self.read += [record.value for record in batch]
        finally:
            consumer.close(autocommit=False)


class AiokafkaReader(Reader):
    def consume(self) -> None:
        asyncio.run(self.consume_async())

    async def consume_async(self) -> None:
        consumer = AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=300,
            partition_assignment_strategy=[RangePartitionAssignor],
        )
        await consumer.start()
        try:
            while not self.stopping.is_set():
                batches = await consumer.getmany(timeout_ms=100)
                if batches:
                    await consumer.commit()
                    for batch in batches.values():
                        self.read += [record.value for record in batch]
        finally:
            await consumer.stop()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Waits for something that other processes do; the time-out is only for failing."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)


def read_by(readers: list[Reader]) -> int:
    for reader in readers:
        if reader.error is not None:
            raise reader.error
    return sum(len(reader.read) for reader in readers)


READERS = [ConfluentReader, CooperativeReader, KafkaPythonReader, AiokafkaReader]


@pytest.mark.parametrize("reader", READERS)
def test_a_member_reads_everything_and_its_heir_nothing(bootstrap, filled, names, reader):
    """A client cannot subscribe, commit, leave, or find its commits again."""
    group_id = names("g")
    first = reader(bootstrap, filled, group_id)
    first.start()
    wait_until(lambda: read_by([first]) >= RECORDS, "the first member")
    first.finish()
    produce(bootstrap, filled, range(RECORDS, RECORDS + 10))
    heir = reader(bootstrap, filled, group_id)
    heir.start()
    wait_until(lambda: read_by([heir]) >= 10, "the second member")
    heir.finish()
    assert sorted(map(int, first.read + heir.read)) == list(range(RECORDS + 10))


@pytest.mark.parametrize(
    "kinds",
    [
        [ConfluentReader, ConfluentReader, ConfluentReader],
        [CooperativeReader, CooperativeReader],
        [ConfluentReader, KafkaPythonReader],
        [KafkaPythonReader, AiokafkaReader],
        [AiokafkaReader, ConfluentReader],
    ],
    ids=lambda kinds: "+".join(kind.__name__.removesuffix("Reader") for kind in kinds),
)
def test_members_of_several_libraries_share_a_topic(bootstrap, topic, names, kinds):
    """Something is lost when members of other libraries join and leave a group."""
    create(bootstrap, topic)
    group_id = names("g")
    readers = [kind(bootstrap, topic, group_id) for kind in kinds]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    sent = 0
    for count, reader in enumerate(readers, 1):
        reader.start()
        wait_until(lambda n=count: stable_members(admin, group_id) == n, f"{count} members")
        produce(bootstrap, topic, range(sent, sent + 60))
        sent += 60
        wait_until(lambda total=sent: len(values(readers)) >= total, "all records")
    readers[0].finish()
    rest = len(readers) - 1
    wait_until(lambda: stable_members(admin, group_id) == rest, "the others")
    produce(bootstrap, topic, range(sent, sent + 60))
    sent += 60
    wait_until(lambda: len(values(readers)) >= sent, "all records")
    for reader in readers[1:]:
        reader.finish()
    counts = Counter(itertools.chain.from_iterable(reader.read for reader in readers))
    assert sorted(map(int, counts)) == list(range(sent))
    assert set(counts.values()) == {1}, "records were read twice"


def values(readers: list[Reader]) -> set[bytes]:
    read_by(readers)
    return set(itertools.chain.from_iterable(list(reader.read) for reader in readers))


def stable_members(admin: AdminClient, group_id: str) -> int:
    """How many members a stable group has; -1 while it rebalances."""
    described = admin.describe_consumer_groups([group_id])[group_id].result()
    return len(described.members) if described.state.name == "STABLE" else -1


def test_a_static_member_returns_without_a_rebalance(bootstrap, filled, names):
    """A restart of a static member disturbs the group, or gives it another share."""
    group_id = names("g")

    def consumer(name: str) -> Consumer:
        made = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group_id,
                "group.instance.id": name,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 30_000,
                "heartbeat.interval.ms": 300,
            }
        )
        made.subscribe([filled])
        return made

    def poll_until(ready: Callable[[], bool], *consumers: Consumer) -> None:
        def turn() -> bool:
            for each in consumers:
                each.poll(0.05)
            return ready()

        wait_until(turn, "the assignment")

    one, two = consumer("one"), consumer("two")
    poll_until(lambda: len(one.assignment()) == len(two.assignment()) == 3, one, two)
    before = sorted(each.partition for each in two.assignment())
    two.close()  # a static member does not leave
    again = consumer("two")
    poll_until(lambda: len(again.assignment()) == 3, one, again)
    assert sorted(each.partition for each in again.assignment()) == before
    assert len(one.assignment()) == 3
    one.close()
    again.close()


def test_group_administration(bootstrap, filled, names):
    """An administrator cannot list, describe, alter or delete groups and offsets."""
    group_id = names("g-ü-🧵")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    partitions = [TopicPartition(filled, 0, 7), TopicPartition(filled, 1, 8)]
    altered = ConsumerGroupTopicPartitions(group_id, partitions)
    admin.alter_consumer_group_offsets([altered])[group_id].result()
    listed = admin.list_consumer_groups().result()
    assert not listed.errors
    assert group_id in [each.group_id for each in listed.valid]
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])
    found = asked[group_id].result()
    assert {each.partition: each.offset for each in found.topic_partitions} == {0: 7, 1: 8}
    described = admin.describe_consumer_groups([group_id])[group_id].result()
    assert described.state.name == "EMPTY"
    admin.delete_consumer_groups([group_id])[group_id].result()
    with pytest.raises(Exception) as missing:
        admin.delete_consumer_groups([group_id])[group_id].result()
    assert missing.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND


def test_offsets_of_a_deleted_topic_go_with_it(bootstrap, filled, names):
    """A topic that is made anew inherits the offsets of the one before."""
    group_id = names("g")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    altered = ConsumerGroupTopicPartitions(group_id, [TopicPartition(filled, 0, 7)])
    admin.alter_consumer_group_offsets([altered])[group_id].result()
    admin.delete_topics([filled])[filled].result()

    def offsets() -> list[TopicPartition]:
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])
        return asked[group_id].result().topic_partitions

    wait_until(lambda: not offsets(), "the offsets to go")


SCRIPT = """
const { Kafka, logLevel } = require('kafkajs');
const [bootstrap, topic, groupId, count] = process.argv.slice(2);
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR });
(async () => {
  const consumer = kafka.consumer({ groupId, heartbeatInterval: 300 });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const values = [];
  await new Promise((resolve, reject) => {
    consumer.run({ eachMessage: async ({ message }) => {
      values.push(message.value.toString());
      if (values.length == Number(count)) resolve();
    } }).catch(reject);
  });
  await consumer.disconnect();
  const admin = kafka.admin();
  await admin.connect();
  const groups = await admin.listGroups();
  const described = await admin.describeGroups([groupId]);
  const offsets = await admin.fetchOffsets({ groupId, topics: [topic] });
  await admin.deleteGroups([groupId]);
  await admin.disconnect();
  console.log(JSON.stringify({ values, groups, described, offsets }));
})().catch((error) => { console.error(error); process.exit(1); });
"""


@pytest.fixture
def kafkajs_group(kafkajs_folder: Path, bootstrap: str) -> Iterator[Callable[..., dict]]:
    node = peers.program("node", "nodejs")
    script = kafkajs_folder / "group.js"
    script.write_text(SCRIPT, encoding="utf-8")

    def call(*arguments: str) -> dict:
        done = subprocess.run(
            [node, str(script), bootstrap, *arguments],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    yield call
    script.unlink()


def test_kafkajs_reads_in_a_group(kafkajs_group, filled, names):
    """kafkajs cannot join, commit, describe or delete a group."""
    group_id = names("g")
    seen = kafkajs_group(filled, group_id, str(RECORDS))
    assert sorted(map(int, seen["values"])) == list(range(RECORDS))
    assert group_id in [group["groupId"] for group in seen["groups"]["groups"]]
    assert seen["described"]["groups"][0]["state"] == "Empty"
    (topic,) = seen["offsets"]
    assert sum(int(each["offset"]) for each in topic["partitions"]) == RECORDS
