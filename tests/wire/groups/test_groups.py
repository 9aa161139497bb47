"""Consumer groups with other people's clients, alone and mixed in one group.

See `readers`: nothing may be lost or read twice, whatever happens to the group.
"""

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from tests.deadlines import deadline_s
from tests.wire.readers import (
    DEADLINE_S,
    HEARTBEAT_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
    AiokafkaReader,
    ConfluentNewerReader,
    ConfluentReader,
    CooperativeReader,
    JavaConsumerReader,
    JavaCooperativeReader,
    JavaReader,
    KafkajsReader,
    KafkaPythonReader,
    OurCooperativeReader,
    OurNewerReader,
    OurReader,
    Reader,
)
from tests.wire.replicas import REPLICAS, await_known

PARTITIONS = 6
RECORDS = 300
COMING_COORDINATOR = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._TIMED_OUT,
)
# librdkafka loses a question now and then to the first coordinator of a new Apache Kafka, and says
# so after a minute: after less it is asked again.
QUESTION_S = deadline_s(10)
SLOW = (pytest.mark.slow, pytest.mark.xdist_group("jvm"))

Names = Callable[[str], str]


@pytest.fixture
def filled(bootstrap: str, topic: str) -> str:
    """A topic with records in all partitions."""
    create(bootstrap, topic)
    produce(bootstrap, topic, range(RECORDS))
    return topic


def create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, REPLICAS)]).values():
        future.result()
    await_known(bootstrap, topic, PARTITIONS)


def produce(bootstrap: str, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0


@pytest.fixture
def crew() -> Iterator[list[Reader]]:
    """The readers of a test; what a failing one leaves behind is shown, and ended with it."""
    readers: list[Reader] = []
    yield readers
    for reader in readers:
        print(reader)
        reader.stopping.set()
        if reader.is_alive():
            reader.join(DEADLINE_S)


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


READERS = [
    ConfluentReader,
    CooperativeReader,
    KafkaPythonReader,
    AiokafkaReader,
    OurReader,
    OurCooperativeReader,
]


@pytest.mark.parametrize("reader", READERS)
def test_a_member_reads_everything_and_its_heir_nothing(bootstrap, filled, names, reader, crew):
    """A client cannot subscribe, commit, leave, or find its commits again."""
    group_id = names("g")
    first = reader(bootstrap, filled, group_id)
    crew.append(first)
    first.start()
    wait_until(lambda: read_by([first]) >= RECORDS, "the first member")
    first.finish()
    produce(bootstrap, filled, range(RECORDS, RECORDS + 10))
    heir = reader(bootstrap, filled, group_id)
    crew.append(heir)
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
        [OurReader, ConfluentReader, KafkaPythonReader],
        [AiokafkaReader, OurReader],
        [CooperativeReader, OurCooperativeReader],
        pytest.param([OurReader, KafkajsReader, AiokafkaReader], marks=SLOW),
        pytest.param([JavaReader, OurReader], marks=SLOW),
        pytest.param([OurCooperativeReader, JavaCooperativeReader], marks=SLOW),
        pytest.param([JavaConsumerReader, OurNewerReader], marks=SLOW),
        pytest.param([OurNewerReader, OurCooperativeReader], marks=SLOW),
        pytest.param([KafkajsReader, ConfluentReader, AiokafkaReader], marks=SLOW),
        pytest.param([KafkaPythonReader, KafkajsReader], marks=SLOW),
        pytest.param([JavaReader, ConfluentReader, KafkaPythonReader], marks=SLOW),
        pytest.param([CooperativeReader, JavaCooperativeReader], marks=SLOW),
        pytest.param([KafkajsReader, JavaReader], marks=SLOW),
    ],
    ids=lambda kinds: "+".join(kind.__name__.removesuffix("Reader") for kind in kinds),
)
def test_members_of_several_libraries_share_a_topic(bootstrap, topic, names, kinds, crew, request):
    """Something is lost when members of other libraries join and leave a group."""
    for fixture in itertools.chain.from_iterable(kind.needs for kind in kinds):
        request.getfixturevalue(fixture)
    share_a_topic(bootstrap, topic, names("g"), kinds, crew)


NEWER = [
    [OurNewerReader, ConfluentNewerReader],
    [ConfluentNewerReader, OurNewerReader],
    [OurNewerReader, JavaConsumerReader],
    [JavaConsumerReader, OurNewerReader],
]


@pytest.mark.slow
@pytest.mark.xdist_group("jvm")
@pytest.mark.parametrize("broker", ["bootstrap", "apache_kafka"])
@pytest.mark.parametrize(
    "kinds",
    NEWER,
    ids=lambda kinds: "+".join(kind.__name__.removesuffix("Reader") for kind in kinds),
)
def test_members_by_the_newer_protocol_share_a_topic(topic, names, broker, kinds, crew, request):
    """As above, whoever is there first, on our broker and on Apache Kafka."""
    for fixture in itertools.chain.from_iterable(kind.needs for kind in kinds):
        request.getfixturevalue(fixture)
    share_a_topic(request.getfixturevalue(broker), topic, names("g"), kinds, crew)


def share_a_topic(bootstrap, topic, group_id, readers_of, crew):
    """Members come one after the other, the first one leaves; every record is read once."""
    create(bootstrap, topic)
    readers = crew
    readers += [kind(bootstrap, topic, group_id) for kind in readers_of]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    sent = 0
    for count, reader in enumerate(readers, 1):
        reader.start()
        wait_until(lambda n=count: settled_members(admin, group_id) == n, f"{count} members")
        produce(bootstrap, topic, range(sent, sent + 60))
        sent += 60
        wait_until(lambda total=sent: len(values(readers)) >= total, "all records")
    readers[0].finish()
    rest = len(readers) - 1
    wait_until(lambda: settled_members(admin, group_id) == rest, "the others")
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


def settled_members(admin: AdminClient, group_id: str) -> int:
    """How many members share all partitions in a stable group; -1 while it is not so far.

    A leader that does not know the topic yet shares out nothing, and cooperative members give back
    in one rebalance what others get in the next: such a group is stable, and about to rebalance.
    """
    try:
        asked = admin.describe_consumer_groups([group_id], request_timeout=QUESTION_S)
        described = asked[group_id].result()
    except KafkaException as error:
        # librdkafka does not ask again where a coordinator is still on its way.
        if error.args[0].code() in COMING_COORDINATOR:
            return -1
        raise
    assigned = sum(len(each.assignment.topic_partitions) for each in described.members)
    settled = described.state.name == "STABLE" and assigned == PARTITIONS
    return len(described.members) if settled else -1


def await_coordinator(admin: AdminClient, group_id: str) -> None:
    """Returns when a group's coordinator can be asked: librdkafka does not ask again where one is
    still on its way."""

    def is_there() -> bool:
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])
        try:
            asked[group_id].result()
        except KafkaException as error:
            if error.args[0].code() not in COMING_COORDINATOR:
                raise
            return False
        return True

    wait_until(is_there, "a coordinator")


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
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
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


@pytest.mark.parametrize(
    "kinds",
    [
        [KafkaPythonReader, AiokafkaReader],
        [AiokafkaReader, KafkaPythonReader],
        [ConfluentReader, OurReader],
        pytest.param([ConfluentReader, JavaReader], marks=SLOW),
    ],
    ids=lambda kinds: "+".join(kind.__name__.removesuffix("Reader") for kind in kinds),
)
def test_static_members_of_several_libraries(bootstrap, topic, names, kinds, crew, request):
    """A library's static process does not get back what it had, or moves what others have."""
    for fixture in itertools.chain.from_iterable(kind.needs for kind in kinds):
        request.getfixturevalue(fixture)
    create(bootstrap, topic)
    group_id = names("g")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    readers = crew
    readers += [kind(bootstrap, topic, group_id, f"i{number}") for number, kind in enumerate(kinds)]
    for reader in readers:
        reader.start()
    wait_until(lambda: settled_members(admin, group_id) == len(readers), "the members")
    produce(bootstrap, topic, range(60))
    wait_until(lambda: len(values(readers)) == 60, "all records")
    before = shares(admin, group_id)
    readers[-1].finish()
    heir = kinds[-1](bootstrap, topic, group_id, f"i{len(kinds) - 1}")
    readers.append(heir)
    heir.start()
    produce(bootstrap, topic, range(60, 120))
    wait_until(lambda: len(values(readers)) == 120, "the records of the restarted member")
    assert shares(admin, group_id) == before
    assert heir.read
    for reader in (readers[0], heir):
        reader.finish()
    counts = Counter(itertools.chain.from_iterable(reader.read for reader in readers))
    assert set(counts.values()) == {1}, "records were read twice"


def shares(admin: AdminClient, group_id: str) -> dict[str, list[int]]:
    """The partitions of each instance."""
    described = admin.describe_consumer_groups([group_id])[group_id].result()
    return {
        member.group_instance_id: sorted(
            each.partition for each in member.assignment.topic_partitions
        )
        for member in described.members
    }


def test_group_administration(bootstrap, filled, names):
    """An administrator cannot list, describe, alter or delete groups and offsets."""
    group_id = names("g-ü-🧵")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    await_coordinator(admin, group_id)
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
    await_coordinator(admin, group_id)
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
const kafka = new Kafka({ brokers: bootstrap.split(','), logLevel: logLevel.ERROR });
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
def kafkajs_group(kafkajs) -> Callable[..., dict]:
    return partial(kafkajs, SCRIPT)


def test_kafkajs_reads_in_a_group(kafkajs_group, filled, names):
    """kafkajs cannot join, commit, describe or delete a group."""
    group_id = names("g")
    seen = kafkajs_group(filled, group_id, str(RECORDS))
    assert sorted(map(int, seen["values"])) == list(range(RECORDS))
    assert group_id in [group["groupId"] for group in seen["groups"]["groups"]]
    assert seen["described"]["groups"][0]["state"] == "Empty"
    (topic,) = seen["offsets"]
    assert sum(int(each["offset"]) for each in topic["partitions"]) == RECORDS
